//! A small computation with a known answer, run on a device before it is trusted: RMS norm, a
//! matrix product and an addition over three tokens, precise mode, F32. It finds a plugin or a
//! card that computes nonsense; whether every op is right is the conformance kit's business.
//! Called by the probe child, once a device.

use crate::{Device, Dim, PluginError, ProgramBuilder, ScalarMax, Support};
use strata_backend_abi::{StrataBufferKind, StrataDType};

const K: usize = 64;
const M: usize = 32;
const TOKENS: usize = 3;
const EPS: f32 = 1e-5;
/// Sums of 64 products in F32 stay well within this; a wrong kernel does not.
const TOLERANCE: f64 = 1e-4;
/// Bytes between the tensors of the check's buffer.
const STEP: u64 = 16 << 10;

/// Runs the check on a device and compares every number.
pub fn numeric_check(device: &Device) -> Result<(), PluginError> {
    let max = ScalarMax { tokens: TOKENS as i64, outputs: 1, kv_length: 1, position: 0 };
    let mut builder = ProgramBuilder::new("numeric check", max).precise(true);
    let rows = |n: usize| [Dim::Fixed(n as u64), Dim::TOKENS];
    let x = builder.tensor(StrataDType::F32, 0, 0, &rows(K));
    let gamma = builder.constant(StrataDType::F32, 1, 0, &[K as u64]);
    let w = builder.constant(StrataDType::F32, 1, STEP, &[K as u64, M as u64]);
    let normed = builder.tensor(StrataDType::F32, 0, STEP, &rows(K));
    let product = builder.tensor(StrataDType::F32, 0, 2 * STEP, &rows(M));
    let summand = builder.tensor(StrataDType::F32, 0, 3 * STEP, &rows(M));
    let sum = builder.tensor(StrataDType::F32, 0, 4 * STEP, &rows(M));
    builder.rms_norm(normed, x, Some(gamma), EPS);
    builder.mat_mul(product, w, normed, None);
    builder.add(sum, product, summand, 0.5);
    let spec = builder.finish();
    for (op, support) in device.supports_all(&spec)?.into_iter().enumerate() {
        if let Support::No(reason) = support {
            return Err(wrong(device, &format!("op {op} of the check is not supported"), &reason));
        }
    }

    let data = Data::new();
    let work = device.alloc(StrataBufferKind::Device, 5 * STEP, "check")?;
    let weights = device.alloc(StrataBufferKind::Device, 2 * STEP, "check")?;
    work.write(0, &bytes(&data.x))?;
    work.write(3 * STEP, &bytes(&data.summand))?;
    weights.write(0, &bytes(&data.gamma))?;
    weights.write(STEP, &bytes(&data.w))?;
    let mut program = device.compile(&spec, &[work.clone(), weights])?;
    program.run(&[TOKENS as i64, 1, 1, 0])?;
    let mut out = vec![0_u8; M * TOKENS * 4];
    work.read(4 * STEP, &mut out)?;

    let expected = data.expected();
    for (index, (got, want)) in out.chunks_exact(4).zip(expected).enumerate() {
        let got = f64::from(f32::from_le_bytes([got[0], got[1], got[2], got[3]]));
        let error = (got - want).abs();
        // Written so that NaN fails.
        let close = error <= TOLERANCE * (1.0 + want.abs());
        if !close {
            let detail = format!("element {index} is {got}, {want} is right");
            return Err(wrong(device, "norm, matrix product and sum", &detail));
        }
    }
    Ok(())
}

fn wrong(device: &Device, check: &str, detail: &str) -> PluginError {
    PluginError::WrongNumbers {
        plugin: device.plugin().to_owned(),
        device: device.info().index,
        check: check.to_owned(),
        detail: detail.to_owned(),
    }
}

struct Data {
    x: Vec<f32>,
    gamma: Vec<f32>,
    w: Vec<f32>,
    summand: Vec<f32>,
}

impl Data {
    /// Numbers from −1 to 1 without a pattern that a wrong index would keep.
    fn new() -> Data {
        let mut state = 1_u32;
        let mut draw = |n: usize| -> Vec<f32> {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            (0..n).map(|_| next()).collect()
        };
        Data { x: draw(K * TOKENS), gamma: draw(K), w: draw(K * M), summand: draw(M * TOKENS) }
    }

    fn expected(&self) -> Vec<f64> {
        let mut out = Vec::with_capacity(M * TOKENS);
        for token in 0..TOKENS {
            let x: Vec<f64> = self.x[token * K..][..K].iter().map(|v| f64::from(*v)).collect();
            let mean = x.iter().map(|v| v * v).sum::<f64>() / K as f64;
            let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
            let normed: Vec<f64> = x.iter().zip(&self.gamma).map(|(v, g)| v * factor * f64::from(*g)).collect();
            for row in 0..M {
                let w = &self.w[row * K..][..K];
                let product: f64 = w.iter().zip(&normed).map(|(w, v)| f64::from(*w) * v).sum();
                out.push(product + 0.5 * f64::from(self.summand[token * M + row]));
            }
        }
        out
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
