//! Dequantising equals the PyPI package gguf: against committed vectors always, and against the
//! package itself on random bytes where python3 has it.
#![expect(clippy::unwrap_used, reason = "a test file: a panic is the report")]

use sha2::{Digest, Sha256};
use std::io::Write;
use std::process::{Command, Stdio};
use strata_backend_abi::StrataDType;
use strata_model::quant::dequantise_row;

fn dtype_named(name: &str) -> StrataDType {
    *StrataDType::ALL.iter().find(|dtype| dtype.name() == name).expect(name)
}

fn decode(dtype: StrataDType, data: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; data.len() / dtype.block_bytes() * dtype.block_len()];
    dequantise_row(dtype, data, &mut out).unwrap();
    out
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn committed_vectors() {
    let mut seen = Vec::new();
    for line in include_str!("fixtures/quant_vectors.txt").lines().filter(|line| !line.starts_with('#')) {
        let [name, blocks, sha256] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let dtype = dtype_named(name);
        let floats: Vec<u8> = decode(dtype, &hex(blocks)).iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(Sha256::digest(&floats)[..], hex(sha256), "{name}");
        seen.push(dtype);
    }
    let quantised: Vec<_> = StrataDType::ALL.iter().filter(|dtype| dtype.is_quantised()).collect();
    assert!(quantised.iter().all(|dtype| seen.contains(dtype)), "a format has no vector: {seen:?}");
}

#[test]
fn plain_types() {
    assert_eq!(decode(StrataDType::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]), [1.0, -2.0]);
    assert_eq!(
        decode(StrataDType::F16, &[0x00, 0x3c, 0x01, 0x00, 0x00, 0xfc]),
        [1.0, 2f32.powi(-24), f32::NEG_INFINITY]
    );
    assert_eq!(decode(StrataDType::BF16, &[0x80, 0x3f, 0x00, 0xc0]), [1.0, -2.0]);
    assert_eq!(decode(StrataDType::I32, &[0xff, 0xff, 0xff, 0xff]), [-1.0]);
}

#[test]
fn wrong_sizes_are_refused() {
    for dtype in StrataDType::ALL {
        let block = vec![0; dtype.block_bytes()];
        let mut out = vec![0.0; dtype.block_len()];
        assert!(dequantise_row(*dtype, &block, &mut out).is_ok(), "{dtype}");
        assert!(dequantise_row(*dtype, &block[1..], &mut out).is_err(), "{dtype}: a byte too few");
        out.push(0.0);
        assert!(dequantise_row(*dtype, &block, &mut out).is_err(), "{dtype}: an element too many");
    }
}

/// A small generator of the same bytes on every run (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Random blocks, every second of which has special half-precision numbers where most formats
/// keep their scales: zeros of both signs, subnormals, the greatest, infinities, NaN.
fn random_blocks(dtype: StrataDType, n_blocks: usize, rng: &mut Rng) -> Vec<u8> {
    const SPECIAL: [u16; 8] = [0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00];
    let size = dtype.block_bytes();
    let mut data: Vec<u8> = (0..size * n_blocks).map(|_| rng.next() as u8).collect();
    let places = if size > 4 { vec![0, 2, size - 4, size - 2] } else { vec![0] };
    for block in data.chunks_exact_mut(size).step_by(2) {
        for at in &places {
            block[*at..at + 2].copy_from_slice(&SPECIAL[(rng.next() % 8) as usize].to_le_bytes());
        }
    }
    data
}

#[test]
fn random_bytes_equal_the_package() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gguf_oracle.py");
    match Command::new("python3").args(["-c", "import gguf, numpy"]).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        _ => {
            println!("skipped: python3 has no package gguf");
            return;
        }
    }
    let mut rng = Rng(1);
    // The package has no I32 weights.
    let types = StrataDType::ALL.iter().copied().filter(|dtype| *dtype != StrataDType::I32);
    let rows: Vec<_> = types.map(|dtype| (dtype, random_blocks(dtype, 800, &mut rng))).collect();

    let mut child = Command::new("python3")
        .args([script, "dequantise"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let request = rows.clone();
    let feeder = std::thread::spawn(move || {
        for (dtype, data) in request {
            writeln!(stdin, "{} {}", dtype.name(), data.len()).unwrap();
            stdin.write_all(&data).unwrap();
        }
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert!(output.status.success());

    let mut expected = output.stdout.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    for (dtype, data) in rows {
        for (i, got) in decode(dtype, &data).into_iter().enumerate() {
            let expected = expected.next().expect("the package gave fewer numbers");
            // Which NaN an operation gives is the processor's choice.
            let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
            assert!(same, "{dtype}, block {}: {got} instead of {expected}", i / dtype.block_len());
        }
    }
    assert!(expected.next().is_none(), "the package gave more numbers");
}
