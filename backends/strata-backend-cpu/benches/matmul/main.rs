//! Speed of the matmul kernels per weight format: `cargo bench -p strata-backend-cpu --bench matmul
//! [-- FORMAT… [variant=NAME]]`.
//!
//! Three numbers a format, one thread. Decode (one column) over weights far larger than the caches,
//! in GB/s of weights, and its ratio to a plain reading loop over the same memory that runs between
//! the repetitions, so that a busy machine disturbs both alike; decode over weights in the
//! second-level cache, which is what the instructions allow; prefill (512 columns) in billions of
//! multiply-adds a second, and its share of what the 8-bit multiply-add instruction of the variant does
//! alone (`peak.rs`). The fastest tenth of many repetitions. The kernels are private to the plugin, so
//! this file takes their sources in.
#![expect(clippy::print_stdout, reason = "a benchmark's table")]
#![expect(dead_code, reason = "the plugin uses more of these modules than the benchmark")]

#[path = "../../src/matmul/mod.rs"]
mod matmul;
mod peak;
mod simd;

use matmul::{Columns, Job, Plan, Variant};
use simd::Line;
use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;
use strata_backend_abi::StrataDType;

const LARGE_BYTES: usize = 96 << 20;
const SMALL_BYTES: usize = 256 << 10;
const PIECE_BYTES: usize = 8 << 20;
const REPETITIONS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let variant = arguments.iter().find_map(|argument| argument.strip_prefix("variant="));
    let variants: Vec<Variant> = [Variant::Scalar, Variant::Avx2, Variant::AvxVnni, Variant::Vnni]
        .into_iter()
        .filter(|have| have.is_supported() && variant.is_none_or(|name| name == have.name()))
        .collect();
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.contains('=')).collect();
    let memory: Vec<u8> = (0..LARGE_BYTES as u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
    println!(
        "{:8} {:8} {:>5} | {:>8} {:>9} {:>10} | {:>9} | {:>10} {:>8}",
        "format", "kernel", "k", "GB/s", "of read", "read GB/s", "cached", "prefill", "of peak"
    );
    let peaks: Vec<Option<f64>> = variants.iter().map(|variant| peak::measure(*variant)).collect();
    for (variant, peak) in variants.iter().zip(&peaks) {
        if let Some(peak) = peak {
            println!("# {}: {:.1} billion 8-bit multiply-adds a second at most", variant.name(), peak / 1e9);
        }
    }
    for dtype in StrataDType::ALL.iter().copied().filter(|dtype| *dtype != StrataDType::I32) {
        if !wanted.is_empty() && !wanted.iter().any(|name| **name == dtype.name()) {
            continue;
        }
        let memory = with_sound_scales(dtype, &memory);
        for (variant, peak) in variants.iter().zip(&peaks) {
            if *variant == Variant::Scalar && variants.len() > 1 {
                continue;
            }
            for k in [576, 1536, 4096] {
                if let Ok(plan) = Plan::new(dtype, k, false, *variant) {
                    line(&plan, &memory, *peak);
                }
            }
        }
    }
}

/// MXFP4's scale is any power of two that a byte can name; with random ones the sums become subnormal,
/// which some processors compute many times slower, and which no model holds.
fn with_sound_scales(dtype: StrataDType, memory: &[u8]) -> Cow<'_, [u8]> {
    if dtype != StrataDType::MXFP4 {
        return Cow::Borrowed(memory);
    }
    let mut memory = memory.to_vec();
    for scale in memory.iter_mut().step_by(17) {
        *scale = 120 + *scale % 8;
    }
    Cow::Owned(memory)
}

fn line(plan: &Plan, memory: &[u8], peak: Option<f64>) {
    // Pieces take about a millisecond, so that some of them are not interrupted; by the time a piece
    // comes round again the caches have forgotten it.
    let piece_bytes = PIECE_BYTES / plan.row_bytes() * plan.row_bytes();
    let mut pieces: Vec<Setup<'_>> = memory.chunks_exact(piece_bytes).map(|piece| Setup::new(plan, piece, 1)).collect();
    let bytes = pieces[0].bytes();
    let (mut reads, mut decodes) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        for piece in &pieces {
            reads.push(seconds(|| {
                black_box(read(&piece.weights[..bytes]));
            }));
        }
        for piece in &mut pieces {
            decodes.push(seconds(|| piece.run(plan)));
        }
    }
    let (read, decode) = (low(reads), low(decodes));
    let mut small = Setup::new(plan, &memory[..SMALL_BYTES], 1);
    let cached = low((0..63).map(|_| seconds(|| small.run(plan))).collect());
    let mut many = Setup::new(plan, &memory[..(SMALL_BYTES / 4).max(8 * plan.row_bytes())], 512);
    let prefill = low((0..15).map(|_| seconds(|| many.run(plan))).collect());
    let speed = (many.n_rows * plan.k * 512) as f64 / prefill;
    println!(
        "{:8} {:8} {:5} | {:8.2} {:8.0}% {:>10.2} | {:9.2} | {:10.1} {:>8}",
        plan.dtype.name(),
        plan.variant().name(),
        plan.k,
        bytes as f64 / decode / 1e9,
        100.0 * read / decode,
        bytes as f64 / read / 1e9,
        small.bytes() as f64 / cached / 1e9,
        speed / 1e9,
        peak.map_or("-".to_owned(), |peak| format!("{:.0}%", 100.0 * speed / peak)),
    );
}

struct Setup<'a> {
    weights: &'a [u8],
    row_bytes: usize,
    n_rows: usize,
    n_columns: usize,
    prepared: Vec<Line>,
    scratch: Vec<Line>,
    out: Vec<f32>,
}

impl<'a> Setup<'a> {
    fn new(plan: &Plan, memory: &'a [u8], n_columns: usize) -> Setup<'a> {
        let row_bytes = plan.row_bytes();
        let n_rows = memory.len() / row_bytes / 8 * 8;
        let x: Vec<f32> = (0..plan.k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 20.0).collect();
        let lines = plan.lines_per_row();
        let mut prepared = vec![Line::default(); lines * n_columns];
        for out in prepared.chunks_exact_mut(lines) {
            plan.prepare_f32(&x, out);
        }
        Setup {
            weights: memory,
            row_bytes,
            n_rows,
            n_columns,
            prepared,
            scratch: vec![Line::default(); plan.scratch_lines()],
            out: vec![0.0; n_rows * n_columns],
        }
    }

    fn bytes(&self) -> usize {
        self.n_rows * self.row_bytes
    }

    fn run(&mut self, plan: &Plan) {
        let job = Job {
            weights: self.weights,
            row_stride: self.row_bytes,
            n_rows: self.n_rows,
            prepared: &self.prepared,
            bias: None,
            columns: Columns::All(self.n_columns),
        };
        let mut out = simd::whole(&mut self.out, self.n_rows);
        plan.run(&job, 0..self.n_rows, &mut self.scratch, &mut out);
        black_box(&self.out);
    }
}

/// Sums all 64-bit words in eight independent lanes.
fn read(memory: &[u8]) -> u64 {
    let mut sums = [0_u64; 16];
    for words in memory.as_chunks::<8>().0.as_chunks::<16>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The tenth of the times that is shortest: whatever else runs can only add.
fn low(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 10]
}
