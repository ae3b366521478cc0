//! `tests/c/plugin.c`, made into a library and run through the raw table.
#![expect(unsafe_code, reason = "calls the table, as a host in C does")]

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use strata_backend_abi::{
    ENTRY_SYMBOL, STRATA_ABI_VERSION, SizedStruct, StrataBackend, StrataDType, StrataDeviceInfo, StrataEntryFn,
    StrataHandle, StrataMemoryInfo, StrataOp, StrataOpKind, StrataStatus, StrataStr, StrataTensor, StrataTextOut,
    abi_version,
};

use crate::host::{
    self, alloc, call, crate_folder, desc, enter, entry_of, last_error, load, op, open, run, table, tensor, text,
};

fn entry() -> StrataEntryFn {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    let source = crate_folder().join("tests/c/plugin.c");
    entry_of(LIBRARY.get_or_init(|| load("c-demo.so", &source, &["-DC_DEMO_VERSION=\"9.8.7\""])))
}

fn c_demo() -> &'static StrataBackend {
    table(entry())
}

#[test]
fn it_exports_one_symbol() {
    entry();
    let listing = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-demo.so"))
        .output()
        .unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let symbols: Vec<_> = listing.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(symbols, [ENTRY_SYMBOL]);
}

#[test]
fn it_negotiates() {
    for (lowest, highest) in [((1, 0), (1, 0)), ((1, 0), (1, 9)), ((0, 5), (2, 0))] {
        let (status, result) = enter(entry(), abi_version(lowest.0, lowest.1), abi_version(highest.0, highest.1));
        assert_eq!((status, result.abi), (StrataStatus::Ok, STRATA_ABI_VERSION), "{lowest:?} {highest:?}");
        assert!(!result.table.is_null());
    }
    for (lowest, highest) in [((2, 0), (2, 0)), ((1, 1), (1, 9)), ((0, 1), (0, 9))] {
        let (status, result) = enter(entry(), abi_version(lowest.0, lowest.1), abi_version(highest.0, highest.1));
        assert_eq!((status, result.abi), (StrataStatus::AbiMismatch, STRATA_ABI_VERSION), "{lowest:?} {highest:?}");
        assert!(result.table.is_null());
        assert_eq!(text(result.reason), "c-demo speaks ABI 1.0 only");
    }
}

#[test]
fn it_leaves_only_optional_entries_out() {
    let table = c_demo();
    assert_eq!(table.struct_size, StrataBackend::SIZE);
    assert_eq!((text(table.name).as_str(), text(table.version).as_str()), ("c-demo", "9.8.7"));
    assert!(table.device_report.is_none() && table.buffer_import.is_none() && table.program_info.is_none());
    assert!(table.event_create.is_none() && table.event_query.is_none());
    assert!(table.event_wait.is_none() && table.event_free.is_none());

    let mut count = 0;
    assert_eq!(call!(table, device_count, &raw mut count), StrataStatus::Ok);
    assert_eq!(count, 1);
    let mut info = StrataDeviceInfo {
        struct_size: StrataDeviceInfo::SIZE,
        kind: 9,
        flags: 0,
        reserved: 0,
        name: StrataStr::EMPTY,
        arch: StrataStr::EMPTY,
        uid: StrataStr::EMPTY,
        driver: StrataStr::EMPTY,
        memory_total: 0,
        memory_free: 0,
    };
    assert_eq!(call!(table, device_info, 0, &raw mut info), StrataStatus::Ok);
    assert_eq!((info.kind, text(info.uid).as_str()), (0, "c-demo"));
    assert_eq!(call!(table, device_info, 1, &raw mut info), StrataStatus::NoDevice);
    assert_eq!(last_error(table), "there is no device 1, only 0");
}

#[test]
fn it_counts_its_memory() {
    let table = c_demo();
    let device = open(table);
    let buffer = alloc(table, device, 1000).unwrap();
    let used = || {
        let mut info =
            StrataMemoryInfo { struct_size: StrataMemoryInfo::SIZE, reserved: 0, total: 0, free: 0, used_here: 0 };
        assert_eq!(call!(table, device_memory, device, &raw mut info), StrataStatus::Ok);
        assert_eq!(info.total, info.free + info.used_here);
        info.used_here
    };
    assert_eq!(used(), 1000);
    assert_eq!(alloc(table, device, 1 << 40), Err(StrataStatus::OutOfMemory));
    assert_eq!(last_error(table), "weights needs 1099511627776 bytes, 1073740824 are left");
    assert_eq!(call!(table, buffer_free, buffer), StrataStatus::Ok);
    assert_eq!(used(), 0);
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
}

/// Shapes of the test program: hidden size, vocabulary, rows of the matrix, most tokens.
const HIDDEN: usize = 6;
const VOCAB: usize = 5;
const ROWS: usize = 6;
const MOST: usize = 4;

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Tensors of `residual = x + W·rmsnorm(x)` with `x` looked up, then copied out with a wider stride.
struct Model {
    table: Vec<f32>,
    norm: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    ids: Vec<i32>,
}

impl Model {
    fn new() -> Model {
        // Anything irregular will do; the values are compared with the same arithmetic in Rust.
        let numbers = |n: usize, step: f32| (0..n).map(|i| ((i as f32) * step).sin()).collect::<Vec<f32>>();
        Model {
            table: numbers(HIDDEN * VOCAB, 0.7),
            norm: numbers(HIDDEN, 1.3),
            weights: numbers(HIDDEN * ROWS, 0.37),
            bias: numbers(ROWS, 2.1),
            ids: vec![3, 0, 4, 3],
        }
    }

    fn expected(&self, t: usize) -> Vec<f32> {
        let id = self.ids[t] as usize;
        let x: Vec<f64> = self.table[id * HIDDEN..][..HIDDEN].iter().map(|value| f64::from(*value) * 2.0).collect();
        let mean = x.iter().map(|value| value * value).sum::<f64>() / HIDDEN as f64;
        let factor = 1.0 / (mean + 1e-6).sqrt();
        let normed: Vec<f64> = x.iter().zip(&self.norm).map(|(value, w)| value * factor * f64::from(*w)).collect();
        let product = self.weights.chunks(HIDDEN).zip(&self.bias).map(|(row, bias)| {
            f64::from(*bias) + row.iter().zip(&normed).map(|(w, value)| f64::from(*w) * value).sum::<f64>()
        });
        x.iter().zip(product).map(|(value, more)| (value + 0.5 * more) as f32).collect()
    }
}

/// Operand numbers of the test program.
const IDS: u32 = 4;
/// Bytes from row to row of the result, wider than a row.
const WIDE: u64 = 32;

fn program() -> (Vec<StrataTensor>, Vec<StrataOp>) {
    let (hidden, vocab, rows, most) = (HIDDEN as u64, VOCAB as u64, ROWS as u64, MOST as u64);
    let f32 = StrataDType::F32;
    // Buffer 0 holds weights at 256-byte steps, buffer 1 activations, buffer 2 the result.
    let mut ids = tensor(StrataDType::I32, 1, 0, [most, 1], false);
    ids.dynamic = [1, 0, 0, 0];
    let mut result = tensor(f32, 2, 8, [hidden, most], true);
    result.nb = [4, WIDE, WIDE * most, WIDE * most];
    let tensors = vec![
        tensor(f32, 0, 0, [hidden, vocab], false),
        tensor(f32, 0, 256, [hidden, 1], false),
        tensor(f32, 0, 512, [hidden, rows], false),
        tensor(f32, 0, 768, [rows, 1], false),
        ids,
        tensor(f32, 1, 256, [hidden, most], true),
        tensor(f32, 1, 512, [hidden, most], true),
        tensor(f32, 1, 768, [rows, most], true),
        result,
    ];
    let ops = vec![
        op(StrataOpKind::EmbeddingLookup, &[5, 0, IDS], 2.0),
        op(StrataOpKind::RmsNorm, &[6, 5, 1], 1e-6),
        op(StrataOpKind::MatMul, &[7, 2, 6, 3], 0.0),
        op(StrataOpKind::Add, &[5, 5, 7], 0.5),
        op(StrataOpKind::Copy, &[8, 5], 0.0),
    ];
    (tensors, ops)
}

#[test]
fn it_runs_a_program_again_and_again() {
    let (table, model) = (c_demo(), Model::new());
    let device = open(table);
    let buffers: Vec<_> = [1024, 1024, 256].map(|bytes| alloc(table, device, bytes).unwrap()).to_vec();
    let write = |buffer: usize, offset: u64, data: &[u8]| host::write(table, buffers[buffer], offset, data);
    for (offset, values) in [(0, &model.table), (256, &model.norm), (512, &model.weights), (768, &model.bias)] {
        write(0, offset, &floats(values));
    }
    write(1, 0, &model.ids.iter().flat_map(|id| id.to_ne_bytes()).collect::<Vec<u8>>());

    let (tensors, ops) = program();
    let desc = desc(&tensors, &ops, &buffers, &[MOST as i64]);
    let mut program = StrataHandle::NONE;
    for index in 0..ops.len() as u32 {
        let status = call!(table, op_supported, device, &raw const desc, index, std::ptr::null_mut());
        assert_eq!(status, StrataStatus::Ok, "op {index}: {}", last_error(table));
    }
    assert_eq!(call!(table, program_compile, device, &raw const desc, &raw mut program), StrataStatus::Ok);

    for tokens in [1, 3, MOST, 2] {
        write(2, 0, &[0xff; 256]);
        assert_eq!(run(table, program, &[tokens as i64]), StrataStatus::Ok);
        assert_eq!(call!(table, synchronize, device), StrataStatus::Ok);
        let mut out = [0_u8; 256];
        assert_eq!(call!(table, buffer_read, buffers[2], 0, out.as_mut_ptr().cast(), 256), StrataStatus::Ok);
        let written = check_rows(&model, tokens, &out);
        assert!((0..256).all(|at| written.contains(&at) || out[at] == 0xff), "bytes beside the rows changed");
    }
    assert_eq!(call!(table, program_free, program), StrataStatus::Ok);
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
}

/// Compares the result's rows; returns the bytes they cover.
fn check_rows(model: &Model, tokens: usize, out: &[u8]) -> Vec<usize> {
    let mut written = Vec::new();
    for t in 0..tokens {
        for (i, expected) in model.expected(t).into_iter().enumerate() {
            let at = 8 + t * WIDE as usize + i * 4;
            let got = f32::from_ne_bytes(out[at..at + 4].try_into().unwrap());
            assert!((got - expected).abs() < 1e-5, "token {t} of {tokens}, element {i}: {got}, not {expected}");
            written.extend(at..at + 4);
        }
    }
    written
}

#[test]
fn it_says_what_it_cannot_do() {
    let table = c_demo();
    let device = open(table);
    let refusal = |change: &dyn Fn(&mut Vec<StrataTensor>, &mut StrataOp)| {
        let (mut tensors, ops) = program();
        let mut op = ops[2];
        change(&mut tensors, &mut op);
        let ops = [op];
        let desc = desc(&tensors, &ops, &[], &[MOST as i64]);
        let mut place = [0_u8; 200];
        let mut out = StrataTextOut { data: place.as_mut_ptr(), capacity: 200, len: 0 };
        let status = call!(table, op_supported, device, &raw const desc, 0, &raw mut out);
        (status, String::from_utf8(place[..out.len as usize].to_vec()).unwrap())
    };
    let unsupported = |text: &str| (StrataStatus::Unsupported, text.to_owned());
    assert_eq!(refusal(&|_, _| {}), (StrataStatus::Ok, String::new()));
    assert_eq!(refusal(&|_, op| op.kind = 5), unsupported("c-demo has no op of kind 5"));
    assert_eq!(refusal(&|_, op| op.kind = 9999), unsupported("c-demo has no op of kind 9999"));
    // A flag or an operand of a later minor must not be passed over.
    assert_eq!(refusal(&|_, op| op.flags = 4), unsupported("c-demo knows no flags, not 0x4"));
    let text = "c-demo knows no operand 9 of op kind 3";
    assert_eq!(refusal(&|_, op| op.operand[9] = 1), unsupported(text));
    let text = "c-demo computes in F32 only, operand 1 has format 12";
    assert_eq!(refusal(&|tensors, _| tensors[2].dtype = StrataDType::Q4K as u32), unsupported(text));
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
}
