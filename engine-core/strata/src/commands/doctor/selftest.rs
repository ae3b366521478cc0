//! `strata doctor --selftest`: operations of a model, each on every device and on the CPU plugin's plain
//! kernels, compared. It finds a card, a driver or a build that computes wrong numbers; shapes at the
//! edges and all variants are the conformance kit's business.

mod child;

pub(crate) use child::child;

use super::installed::Found;
use super::{Check, Level};
use crate::cli::DoctorArgs;
use serde_json::{Value, json};
use std::fmt::Write;
use strata_plugin_host::abi::{
    StrataActivation, StrataBufferKind, StrataDType, StrataRopeStyle, StrataRouterScore, StrataUnary,
};
use strata_plugin_host::{
    Attention, Device, Dim, ExpertMatMul, KvStore, PluginError, ProgramBuilder, Rope, RouterTopK, ScalarMax, Support,
    TensorId,
};

/// Bytes from one operand to the next.
const STEP: u64 = 256 << 10;
/// Operands of a case, the result included.
const SLOTS: u64 = 10;
const OUT: u64 = (SLOTS - 1) * STEP;
const TOKENS: u64 = 3;
/// Long enough for the kernels that read prompts: tiles of tensor cores, of WMMA, of dot products.
const PROMPT: u64 = 40;
const K: u64 = 256;
const M: u64 = 64;
const HEAD: u64 = 64;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const PAGE: u64 = 16;
const EXPERTS: u64 = 4;
const CHOSEN: u64 = 2;
/// Of the greatest number of the result: sums of a few hundred products in F32.
const PRECISE: f64 = 1e-3;
/// The same where activations are rounded to eight bits and caches to sixteen.
const ROUNDED: f64 = 3e-2;

/// One operation on one device.
#[derive(Debug)]
pub(super) struct Row {
    device: String,
    op: String,
    result: Compared,
}

#[derive(Debug)]
enum Compared {
    /// Greatest difference, as a share of the greatest number: precise mode, normal mode.
    Within([f64; 2]),
    Beyond([f64; 2]),
    NotSupported(String),
    Failed(String),
}

impl Row {
    pub(super) fn to_json(&self) -> Value {
        let (word, errors, why) = match &self.result {
            Compared::Within(errors) => ("right", Some(errors), None),
            Compared::Beyond(errors) => ("wrong", Some(errors), None),
            Compared::NotSupported(why) => ("not supported", None, Some(why)),
            Compared::Failed(why) => ("failed", None, Some(why)),
        };
        json!({
            "device": self.device, "op": self.op, "result": word, "why": why,
            "precise_error": errors.map(|errors| errors[0]), "normal_error": errors.map(|errors| errors[1]),
        })
    }

    fn failed(device: &str, op: &str, why: &str) -> Row {
        Row { device: device.to_owned(), op: op.to_owned(), result: Compared::Failed(why.to_owned()) }
    }

    /// What [`Row::to_json`] wrote; `None` for anything else.
    fn from_json(device: &str, said: &Value) -> Option<Row> {
        let text = |name: &str| said.get(name).and_then(Value::as_str);
        // NaN is `null` in JSON.
        let error = |name: &str| said.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let errors = [error("precise_error"), error("normal_error")];
        let why = || text("why").unwrap_or_default().to_owned();
        let result = match text("result")? {
            "right" => Compared::Within(errors),
            "wrong" => Compared::Beyond(errors),
            "not supported" => Compared::NotSupported(why()),
            _ => Compared::Failed(why()),
        };
        Some(Row { device: device.to_owned(), op: text("op")?.to_owned(), result })
    }

    fn is_wrong(&self) -> bool {
        matches!(self.result, Compared::Beyond(_) | Compared::Failed(_))
    }
}

pub(super) fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut device = "";
    for row in rows {
        // Writing to a String cannot fail.
        if row.device != device {
            let _ = writeln!(out, "selftest of {}: greatest difference, precise and normal", row.device);
            device = &row.device;
        }
        let _ = match &row.result {
            Compared::Within([precise, normal]) => writeln!(out, "  {:<22} {precise:8.1e} {normal:8.1e}", row.op),
            Compared::Beyond([precise, normal]) => {
                writeln!(out, "  {:<22} {precise:8.1e} {normal:8.1e} WRONG", row.op)
            }
            Compared::NotSupported(why) => writeln!(out, "  {:<22} not on this device: {why}", row.op),
            Compared::Failed(why) => writeln!(out, "  {:<22} FAILED: {why}", row.op),
        };
    }
    out
}

/// Compares every device with the CPU plugin's plain kernels, each in a process of its own.
pub(super) fn run(args: &DoctorArgs, devices: &[Found], checks: &mut Vec<Check>) -> Vec<Row> {
    if !devices.iter().any(|found| found.plugin.name() == "cpu") {
        let none = Check::new("selftest", Level::Wrong, "there is no CPU plugin to compare with");
        checks.push(none.advise("`strata-setup --backend cpu` installs it"));
        return Vec::new();
    }
    let mut rows = Vec::new();
    for found in devices {
        let name = format!("{} on {}", found.plugin.name(), found.info.name);
        match child::rows(args, &name, found.plugin.name(), found.info.index) {
            Ok(of_device) => {
                checks.push(summary(&name, &of_device));
                rows.extend(of_device);
            }
            Err(why) => {
                let check = Check::new("selftest", Level::Wrong, format!("{name}: the test could not begin"));
                checks.push(check.detail(why).advise("compute on another device (`--backend cpu`)"));
            }
        }
    }
    rows
}

fn summary(name: &str, rows: &[Row]) -> Check {
    let wrong: Vec<&str> = rows.iter().filter(|row| row.is_wrong()).map(|row| row.op.as_str()).collect();
    if wrong.is_empty() {
        return Check::new("selftest", Level::Fine, format!("{name}: {} operations, all right", rows.len()));
    }
    Check::new("selftest", Level::Wrong, format!("{name}: {} of {} operations", wrong.len(), rows.len()))
        .detail(wrong.join(", "))
        .advise("do not trust this device's answers: compute on another (`--backend cpu`), and check driver and card")
}

#[derive(Debug, Clone, Copy)]
enum Case {
    Embedding(StrataDType),
    MatMul(StrataDType),
    ExpertMatMul(StrataDType),
    /// The same with as many tokens as a prompt has.
    LongMatMul(StrataDType),
    LongExpertMatMul(StrataDType),
    ExpertCombine,
    Router,
    /// Router, the chosen experts' products and their sum.
    ExpertLayer,
    GatherRows,
    ArgMax,
    RmsNorm,
    L2Norm,
    Rope(StrataRopeStyle),
    Attention,
    Glu,
    Add,
    Mul,
    Scale,
    Silu,
    Softmax,
    Copy,
}

/// Formats whose blocks are made up here: bytes, elements, where the half precision scales lie.
const FORMATS: &[(StrataDType, &[usize])] = &[
    (StrataDType::Q4_0, &[0]),
    (StrataDType::Q4_1, &[0, 2]),
    (StrataDType::Q5_0, &[0]),
    (StrataDType::Q5_1, &[0, 2]),
    (StrataDType::Q8_0, &[0]),
    (StrataDType::Q2K, &[80, 82]),
    (StrataDType::Q3K, &[108]),
    (StrataDType::Q4K, &[0, 2]),
    (StrataDType::Q5K, &[0, 2]),
    (StrataDType::Q6K, &[208]),
    (StrataDType::IQ4NL, &[0]),
    (StrataDType::IQ4XS, &[0]),
    (StrataDType::IQ2XXS, &[0]),
    (StrataDType::IQ2XS, &[0]),
    (StrataDType::IQ2S, &[0]),
    (StrataDType::IQ3XXS, &[0]),
    (StrataDType::IQ3S, &[0]),
    (StrataDType::IQ1S, &[0]),
    (StrataDType::IQ1M, &[]),
    (StrataDType::MXFP4, &[]),
    (StrataDType::F16, &[]),
    (StrataDType::BF16, &[]),
];

fn cases() -> Vec<Case> {
    let mut cases = vec![Case::Embedding(StrataDType::Q8_0), Case::RmsNorm, Case::L2Norm];
    cases.push(Case::MatMul(StrataDType::F32));
    cases.extend(FORMATS.iter().map(|(format, _)| Case::MatMul(*format)));
    cases.push(Case::ExpertMatMul(StrataDType::Q4K));
    cases.extend([StrataDType::Q4_0, StrataDType::Q8_0, StrataDType::Q4K, StrataDType::Q6K].map(Case::LongMatMul));
    cases.extend([StrataDType::Q8_0, StrataDType::Q4K].map(Case::LongExpertMatMul));
    cases.extend([Case::ExpertCombine, Case::Router, Case::ExpertLayer, Case::GatherRows, Case::ArgMax]);
    cases.extend([Case::Rope(StrataRopeStyle::Norm), Case::Rope(StrataRopeStyle::Neox), Case::Attention, Case::Glu]);
    cases.extend([Case::Add, Case::Mul, Case::Scale, Case::Silu, Case::Softmax, Case::Copy]);
    cases
}

impl Case {
    fn tokens(self) -> u64 {
        if matches!(self, Case::LongMatMul(_) | Case::LongExpertMatMul(_)) { PROMPT } else { TOKENS }
    }

    fn name(self) -> String {
        match self {
            Case::Embedding(format) => format!("embedding {}", format.name()),
            Case::MatMul(format) => format!("matrix product {}", format.name()),
            Case::ExpertMatMul(format) => format!("expert product {}", format.name()),
            Case::LongMatMul(format) => format!("prompt product {}", format.name()),
            Case::LongExpertMatMul(format) => format!("expert prompt {}", format.name()),
            Case::ExpertCombine => "expert combine".to_owned(),
            Case::ExpertLayer => "expert layer".to_owned(),
            Case::GatherRows => "gather rows".to_owned(),
            Case::ArgMax => "greatest of a row".to_owned(),
            Case::Rope(StrataRopeStyle::Norm) => "rope, neighbours".to_owned(),
            Case::Rope(StrataRopeStyle::Neox) => "rope, halves".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// A program under construction with its operands' bytes.
struct Scene {
    builder: ProgramBuilder,
    tokens: u64,
    /// Offset and bytes, in the buffer of activations and in that of weights.
    work: Vec<(u64, Vec<u8>)>,
    weights: Vec<(u64, Vec<u8>)>,
    outputs: usize,
    /// The result is whole numbers.
    is_integer: bool,
    noise: u64,
}

impl Scene {
    fn new(precise: bool, tokens: u64) -> Scene {
        let max = ScalarMax { tokens: tokens as i64, outputs: 1, kv_length: PAGE as i64, position: PAGE as i64 };
        let builder = ProgramBuilder::new("selftest", max).precise(precise);
        Scene {
            builder,
            tokens,
            work: Vec::new(),
            weights: Vec::new(),
            outputs: 0,
            is_integer: false,
            noise: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The same numbers at every run, on every device.
    fn next(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }

    fn floats(&mut self, count: u64) -> Vec<u8> {
        let mut float = || ((self.next() >> 40) as f32 / (1 << 23) as f32) - 1.0;
        (0..count).flat_map(|_| float().to_le_bytes()).collect()
    }

    fn count(&self, dims: &[Dim]) -> u64 {
        dims.iter().map(|dim| if let Dim::Fixed(n) = dim { *n } else { self.tokens }).product()
    }

    fn input(&mut self, dims: &[Dim]) -> TensorId {
        let count = self.count(dims);
        let bytes = self.floats(count);
        self.operand(StrataDType::F32, dims, bytes)
    }

    fn ints(&mut self, dims: &[Dim], values: &[i32]) -> TensorId {
        self.operand(StrataDType::I32, dims, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn operand(&mut self, dtype: StrataDType, dims: &[Dim], bytes: Vec<u8>) -> TensorId {
        let offset = self.work.len() as u64 * STEP;
        self.work.push((offset, bytes));
        self.builder.tensor(dtype, 0, offset, dims)
    }

    fn weight(&mut self, dtype: StrataDType, ne: &[u64]) -> TensorId {
        let offset = self.weights.len() as u64 * STEP;
        let count: u64 = ne.iter().product();
        let scales = FORMATS.iter().find(|(format, _)| *format == dtype).map(|(_, scales)| *scales);
        let bytes = match scales {
            None => self.floats(count),
            Some(scales) => self.blocks(dtype, count / dtype.block_len() as u64, scales),
        };
        self.weights.push((offset, bytes));
        self.builder.constant(dtype, 1, offset, ne)
    }

    /// Blocks of any codes, with scales from 2⁻⁷ to 2⁻⁶.
    fn blocks(&mut self, dtype: StrataDType, count: u64, scales: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let mut block: Vec<u8> = (0..dtype.block_bytes()).map(|_| (self.next() >> 33) as u8).collect();
            for at in scales {
                let scale = 0x2000 | (self.next() >> 33) as u16 & 0x3ff;
                block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            self.odd_scales(dtype, &mut block);
            bytes.extend(block);
        }
        bytes
    }

    /// Formats whose scales are no half precision number at a place of their own.
    fn odd_scales(&mut self, dtype: StrataDType, block: &mut [u8]) {
        let small = (self.next() >> 33) as u16;
        match dtype {
            // A number between 1/8 and 1/4 of either sign.
            StrataDType::F16 => block.copy_from_slice(&(0x3000 | small & 0x83ff).to_le_bytes()),
            StrataDType::BF16 => block.copy_from_slice(&(0x3e00 | small & 0x807f).to_le_bytes()),
            // An exponent: 2⁻⁷ or 2⁻⁶.
            StrataDType::MXFP4 => block[0] = 120 + (small & 1) as u8,
            // Its scale lies in the upper four bits of the last four words; these are the highest of them.
            StrataDType::IQ1M => block[55] = 0x20 | block[55] & 0x0f,
            _ => {}
        }
    }

    fn output(&mut self, dims: &[Dim]) -> TensorId {
        self.outputs = self.count(dims) as usize;
        self.builder.tensor(StrataDType::F32, 0, OUT, dims)
    }
}

fn scene(case: Case, precise: bool) -> Scene {
    let mut scene = Scene::new(precise, case.tokens());
    let rows = |n: u64| [Dim::Fixed(n), Dim::TOKENS];
    let out_like_x = |scene: &mut Scene| (scene.output(&rows(K)), scene.input(&rows(K)));
    match case {
        Case::Embedding(format) => {
            let ids = scene.ints(&[Dim::TOKENS], &[5, 0, 63]);
            let (table, out) = (scene.weight(format, &[K, M]), scene.output(&rows(K)));
            scene.builder.embedding_lookup(out, table, ids, 2.0);
        }
        Case::MatMul(format) | Case::LongMatMul(format) => {
            let (x, w, out) = (scene.input(&rows(K)), scene.weight(format, &[K, M]), scene.output(&rows(M)));
            scene.builder.mat_mul(out, w, x, None);
        }
        Case::ExpertMatMul(format) | Case::LongExpertMatMul(format) => {
            let x = scene.input(&[Dim::Fixed(K), Dim::Fixed(1), Dim::TOKENS]);
            let chosen: Vec<i32> =
                [3, 0, 1, 2, 2, 3].into_iter().cycle().take((CHOSEN * case.tokens()) as usize).collect();
            let ids = scene.ints(&rows(CHOSEN), &chosen);
            let w = scene.weight(format, &[K, M, EXPERTS]);
            let out = scene.output(&[Dim::Fixed(M), Dim::Fixed(CHOSEN), Dim::TOKENS]);
            scene.builder.expert_mat_mul(ExpertMatMul { out, w, x, ids, table: None });
        }
        Case::ExpertCombine => {
            let x = scene.input(&[Dim::Fixed(K), Dim::Fixed(CHOSEN), Dim::TOKENS]);
            let (weights, out) = (scene.input(&rows(CHOSEN)), scene.output(&rows(K)));
            scene.builder.expert_combine(out, x, weights);
        }
        Case::Router => {
            let weights = scene.output(&rows(CHOSEN));
            router(&mut scene, weights);
        }
        Case::ExpertLayer => expert_layer(&mut scene),
        Case::GatherRows => {
            let (x, wanted) = (scene.input(&rows(K)), scene.ints(&[Dim::TOKENS], &[2, 0, 1]));
            let out = scene.output(&rows(K));
            scene.builder.gather_rows(out, x, wanted);
        }
        Case::ArgMax => {
            let x = scene.input(&rows(K));
            scene.outputs = TOKENS as usize;
            scene.is_integer = true;
            let out = scene.builder.tensor(StrataDType::I32, 0, OUT, &[Dim::TOKENS]);
            scene.builder.arg_max(out, x);
        }
        Case::RmsNorm => {
            let ((out, x), w) = (out_like_x(&mut scene), scene.weight(StrataDType::F32, &[K]));
            scene.builder.rms_norm(out, x, Some(w), 1e-5);
        }
        Case::Rope(style) => rope(&mut scene, style),
        Case::Attention => attention(&mut scene),
        Case::Glu | Case::Add | Case::Mul => {
            let ((out, a), b) = (out_like_x(&mut scene), scene.input(&rows(K)));
            match case {
                Case::Glu => scene.builder.glu(out, a, b, StrataActivation::Silu),
                Case::Add => scene.builder.add(out, a, b, 0.5),
                _ => scene.builder.mul(out, a, b),
            }
        }
        Case::L2Norm | Case::Scale | Case::Silu | Case::Softmax => {
            let (out, x) = out_like_x(&mut scene);
            match case {
                Case::L2Norm => scene.builder.l2_norm(out, x, 1e-6),
                Case::Scale => scene.builder.scale(out, x, 3.0, -0.25),
                Case::Silu => scene.builder.unary(out, x, StrataUnary::Silu, 0.0),
                _ => scene.builder.softmax(out, x, 4.0),
            }
        }
        Case::Copy => {
            let (out, x) = out_like_x(&mut scene);
            let half = scene.operand(StrataDType::F16, &rows(K), Vec::new());
            scene.builder.copy(half, x);
            scene.builder.copy(out, half);
        }
    }
    scene
}

/// Chooses experts by logits; returns their ids.
fn router(scene: &mut Scene, weights: TensorId) -> TensorId {
    let logits = scene.input(&[Dim::Fixed(EXPERTS), Dim::TOKENS]);
    let chosen = [Dim::Fixed(CHOSEN), Dim::TOKENS];
    let ids = scene.operand(StrataDType::I32, &chosen, Vec::new());
    scene.builder.router_top_k(RouterTopK {
        ids,
        weights,
        logits,
        bias: None,
        score: StrataRouterScore::Softmax,
        normalise: Some(1e-6),
        scale: 1.5,
        groups: None,
    });
    ids
}

fn expert_layer(scene: &mut Scene) {
    let weights = scene.operand(StrataDType::F32, &[Dim::Fixed(CHOSEN), Dim::TOKENS], Vec::new());
    let ids = router(scene, weights);
    let x = scene.input(&[Dim::Fixed(K), Dim::Fixed(1), Dim::TOKENS]);
    let w = scene.weight(StrataDType::Q8_0, &[K, M, EXPERTS]);
    let products = [Dim::Fixed(M), Dim::Fixed(CHOSEN), Dim::TOKENS];
    let each = scene.operand(StrataDType::F32, &products, Vec::new());
    scene.builder.expert_mat_mul(ExpertMatMul { out: each, w, x, ids, table: None });
    let out = scene.output(&[Dim::Fixed(M), Dim::TOKENS]);
    scene.builder.expert_combine(out, each, weights);
}

fn rope(scene: &mut Scene, style: StrataRopeStyle) {
    let dims = [Dim::Fixed(HEAD), Dim::Fixed(HEADS), Dim::TOKENS];
    let x = scene.input(&dims);
    let angles = (0..PAGE * HEAD / 2).map(|index| (index / (HEAD / 2)) as f32 / (1 + index % (HEAD / 2)) as f32);
    let table = angles.flat_map(|angle| [angle.cos(), angle.sin()]).flat_map(f32::to_le_bytes).collect();
    let shape = [Dim::Fixed(2), Dim::Fixed(HEAD / 2), Dim::Fixed(PAGE)];
    let table = scene.operand(StrataDType::F32, &shape, table);
    let row = scene.ints(&[Dim::TOKENS], &[7, 0, 15]);
    let out = scene.output(&dims);
    scene.builder.rope(Rope { out, x, table, row, style, rotated: HEAD });
}

/// Three tokens are stored into an empty cache and attend to it.
fn attention(scene: &mut Scene) {
    let heads = |count: u64| [Dim::Fixed(HEAD), Dim::Fixed(count), Dim::TOKENS];
    let (q, new_k, new_v) = (scene.input(&heads(HEADS)), scene.input(&heads(KV_HEADS)), scene.input(&heads(KV_HEADS)));
    let cells = [Dim::Fixed(HEAD), Dim::Fixed(KV_HEADS), Dim::Fixed(PAGE)];
    let empty = || vec![0_u8; (HEAD * KV_HEADS * PAGE * 2) as usize];
    let k = scene.operand(StrataDType::F16, &cells, empty());
    let v = scene.operand(StrataDType::F16, &cells, empty());
    let pages = scene.ints(&[Dim::Fixed(1), Dim::Fixed(1)], &[0]);
    let sequence = scene.ints(&[Dim::TOKENS], &[0, 0, 0]);
    let position = scene.ints(&[Dim::TOKENS], &[0, 1, 2]);
    for (cache, x) in [(k, new_k), (v, new_v)] {
        scene.builder.kv_store(KvStore { cache, x, pages, sequence, position, page_size: PAGE });
    }
    let out = scene.output(&heads(HEADS));
    scene.builder.attention(Attention {
        out,
        q,
        k,
        v,
        pages,
        sequence,
        position,
        sinks: None,
        scale: 1.0,
        softcap: None,
        window: None,
        page_size: PAGE,
    });
}

fn compared(case: Case, reference: &Device, device: &Device) -> Compared {
    let want = match computed(case, reference, true) {
        Ok(Ok(want)) => want,
        Ok(Err(why)) => return Compared::Failed(format!("the reference has no such operation: {why}")),
        Err(error) => return Compared::Failed(format!("the reference failed: {error}")),
    };
    let mut errors = [0.0; 2];
    for (error, precise) in errors.iter_mut().zip([true, false]) {
        *error = match computed(case, device, precise) {
            Ok(Ok(got)) => difference(&got, &want),
            Ok(Err(why)) => return Compared::NotSupported(why),
            Err(error) => return Compared::Failed(error.to_string()),
        };
    }
    // Written so that NaN fails.
    let close = errors[0] <= PRECISE && errors[1] <= ROUNDED;
    if close { Compared::Within(errors) } else { Compared::Beyond(errors) }
}

/// The result, or why the device has no such operation.
fn computed(case: Case, device: &Device, precise: bool) -> Result<Result<Vec<f32>, String>, PluginError> {
    let scene = scene(case, precise);
    let spec = scene.builder.finish();
    for support in device.supports_all(&spec)? {
        if let Support::No(why) = support {
            return Ok(Err(why));
        }
    }
    let work = device.alloc(StrataBufferKind::Device, SLOTS * STEP, "selftest")?;
    let weights = device.alloc(StrataBufferKind::Device, SLOTS * STEP, "selftest")?;
    for (buffer, operands) in [(&work, &scene.work), (&weights, &scene.weights)] {
        for (offset, bytes) in operands.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            buffer.write(*offset, bytes)?;
        }
    }
    // A device that computes nothing must not find the last one's result.
    work.write(OUT, &vec![0xff; scene.outputs * 4])?;
    let buffers = if scene.weights.is_empty() { vec![work.clone()] } else { vec![work.clone(), weights] };
    let mut program = device.compile(&spec, &buffers)?;
    // Only attention reads the length of the cache, and has three tokens.
    program.run(&[scene.tokens as i64, 1, TOKENS as i64, 0])?;
    device.synchronize()?;
    let mut out = vec![0_u8; scene.outputs * 4];
    work.read(OUT, &mut out)?;
    let number = |bytes: &[u8; 4]| {
        if scene.is_integer { i32::from_le_bytes(*bytes) as f32 } else { f32::from_le_bytes(*bytes) }
    };
    Ok(Ok(out.as_chunks::<4>().0.iter().map(number).collect()))
}

/// Greatest difference as a share of the greatest number; NaN when one of them is none.
fn difference(got: &[f32], want: &[f32]) -> f64 {
    let greatest = want.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(f64::from(value.abs())));
    let mut most = 0.0_f64;
    for (got, want) in got.iter().zip(want) {
        let error = (f64::from(*got) - f64::from(*want)).abs();
        if error.is_nan() {
            return f64::NAN;
        }
        most = most.max(error);
    }
    most / greatest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_a_share_and_nan_is_never_close() {
        assert_eq!(difference(&[1.0, 3.0], &[1.0, 4.0]), 0.25);
        assert!(difference(&[f32::NAN, 3.0], &[1.0, 4.0]).is_nan());
        let row = |result| Row { device: "d".to_owned(), op: "add".to_owned(), result };
        assert!(row(Compared::Beyond([0.0, f64::NAN])).is_wrong());
        assert_eq!(summary("d", &[row(Compared::Failed("gone".to_owned()))]).level, Level::Wrong);
        assert_eq!(summary("d", &[row(Compared::Within([0.0; 2]))]).level, Level::Fine);
    }
}
