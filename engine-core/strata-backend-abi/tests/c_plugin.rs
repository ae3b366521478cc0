//! The proof that the header is C and enough to write a plugin with: a C compiler and a C++ compiler
//! take it without a warning, `tests/c/plugin.c` asserts the recorded layout, and the library made
//! of it runs programs through the raw table.
//!
//! Needs `cc` and `c++`, which a machine that links Rust has. `CC` and `CXX` override them.

#[cfg(test)]
#[expect(unsafe_code, reason = "plays the host: loads the library and calls its table")]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::OnceLock;

    use strata_backend_abi::{
        ENTRY_SYMBOL, STRATA_ABI_VERSION, STRATA_NO_OPERAND, SizedStruct, StrataBackend, StrataBufferDesc, StrataDType,
        StrataDeviceInfo, StrataDeviceOptions, StrataEntryArgs, StrataEntryFn, StrataEntryResult, StrataHandle,
        StrataMemoryInfo, StrataOp, StrataOpKind, StrataProgramDesc, StrataRunArgs, StrataStatus, StrataStr,
        StrataTensor, StrataTextOut, abi_version,
    };

    const INSTANCE: u64 = 7;

    macro_rules! call {
        ($table:expr, $entry:ident $(, $arg:expr)* $(,)?) => {{
            let entry = $table.$entry.expect(stringify!($entry));
            // SAFETY: the handles are live and the pointers are to places of the test.
            let status = unsafe { entry($($arg),*) };
            StrataStatus::from_number(status).expect("a known status")
        }};
    }

    fn crate_folder() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    /// A place that no other process uses.
    fn scratch(name: &str) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
    }

    #[track_caller]
    fn compile(compiler: (&str, &str), arguments: &[&str], source: &Path, output: Option<&Path>) {
        let program = std::env::var(compiler.0).unwrap_or_else(|_| compiler.1.to_owned());
        let mut command = Command::new(&program);
        command.args(arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.arg("-I").arg(crate_folder().join("include")).arg(source);
        if let Some(output) = output {
            command.arg("-o").arg(output).arg("-lm");
        }
        let result = command.output().unwrap_or_else(|error| panic!("running {program}: {error}"));
        assert!(result.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&result.stderr));
    }

    #[test]
    fn the_header_alone_is_c_and_cpp() {
        let include = b"#include \"strata_backend.h\"\n#include \"strata_backend.h\"\n";
        let (c, cpp) = (scratch("header.c"), scratch("header.cpp"));
        fs_err::write(&c, include).unwrap();
        fs_err::write(&cpp, include).unwrap();
        compile(("CC", "cc"), &["-std=c11", "-fsyntax-only"], &c, None);
        for version in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            compile(("CXX", "c++"), &[version, "-fsyntax-only"], &cpp, None);
        }
        fs_err::remove_file(&c).unwrap();
        fs_err::remove_file(&cpp).unwrap();
    }

    #[test]
    fn the_layout_asserts_bite() {
        let source = scratch("wrong.c");
        let wrong = "#include \"strata_backend.h\"\n_Static_assert(sizeof(struct StrataOp) == 160, \"\");\n";
        fs_err::write(&source, wrong).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let include = crate_folder().join("include");
        let result =
            Command::new(compiler).args(["-std=c11", "-fsyntax-only", "-I"]).arg(include).arg(&source).output();
        assert!(!result.unwrap().status.success(), "a wrong size compiled");
        fs_err::remove_file(&source).unwrap();
    }

    fn library() -> &'static Path {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            // Made beside and moved into place: tests of other processes may be loading it.
            let (fresh, library) = (scratch("c-demo.so"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-demo.so"));
            let flags = ["-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-DC_DEMO_VERSION=\"9.8.7\""];
            compile(("CC", "cc"), &flags, &crate_folder().join("tests/c/plugin.c"), Some(&fresh));
            fs_err::rename(&fresh, &library).unwrap();
            library
        })
    }

    /// The entry of the library, which is never unloaded.
    fn entry() -> StrataEntryFn {
        static LOADED: OnceLock<libloading::Library> = OnceLock::new();
        // SAFETY: our own plugin, whose initialisers do nothing.
        let library = LOADED.get_or_init(|| unsafe { libloading::Library::new(library()) }.unwrap());
        // SAFETY: the header gives this symbol this type.
        let symbol = unsafe { library.get::<StrataEntryFn>(ENTRY_SYMBOL.as_bytes()) };
        *symbol.unwrap()
    }

    fn enter(lowest: u32, highest: u32) -> (StrataStatus, StrataEntryResult) {
        let args = StrataEntryArgs {
            struct_size: StrataEntryArgs::SIZE,
            abi_lowest: lowest,
            abi_highest: highest,
            reserved: 0,
            instance: INSTANCE,
            host_version: StrataStr::from_static("0"),
            log: None,
            log_context: std::ptr::null_mut(),
        };
        let mut result = StrataEntryResult {
            struct_size: StrataEntryResult::SIZE,
            abi: 0,
            table: std::ptr::null(),
            reason: StrataStr::EMPTY,
        };
        // SAFETY: both structs live through the call.
        let status = unsafe { entry()(&raw const args, &raw mut result) };
        (StrataStatus::from_number(status).unwrap(), result)
    }

    fn table() -> &'static StrataBackend {
        let (status, result) = enter(STRATA_ABI_VERSION, STRATA_ABI_VERSION);
        assert_eq!(status, StrataStatus::Ok);
        // SAFETY: with the status Ok the table lives as long as the process.
        unsafe { result.table.as_ref() }.unwrap()
    }

    fn text(text: StrataStr) -> String {
        // SAFETY: the plugin's texts are static.
        unsafe { text.to_string_lossy(1000) }
    }

    fn last_error(table: &StrataBackend) -> String {
        let mut place = [0_u8; 300];
        let mut out = StrataTextOut { data: place.as_mut_ptr(), capacity: place.len() as u64, len: 0 };
        // SAFETY: the place is ours.
        unsafe { table.last_error.unwrap()(&raw mut out) };
        String::from_utf8(place[..out.len as usize].to_vec()).unwrap()
    }

    fn open(table: &StrataBackend) -> StrataHandle {
        let options = StrataDeviceOptions {
            struct_size: StrataDeviceOptions::SIZE,
            n_threads: 1,
            reserve_bytes: 0,
            variant: StrataStr::EMPTY,
        };
        let mut device = StrataHandle::NONE;
        assert_eq!(call!(table, device_open, 0, &raw const options, &raw mut device), StrataStatus::Ok);
        assert_eq!(device.instance, INSTANCE);
        device
    }

    fn alloc(table: &StrataBackend, device: StrataHandle, bytes: u64) -> Result<StrataHandle, StrataStatus> {
        let label = StrataStr::from_static("weights");
        let desc = StrataBufferDesc { struct_size: StrataBufferDesc::SIZE, kind: 0, bytes, label };
        let mut buffer = StrataHandle::NONE;
        match call!(table, buffer_alloc, device, &raw const desc, &raw mut buffer) {
            StrataStatus::Ok => Ok(buffer),
            status => Err(status),
        }
    }

    #[test]
    fn it_exports_one_symbol() {
        let listing = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        let symbols: Vec<_> = listing.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(symbols, [ENTRY_SYMBOL]);
    }

    #[test]
    fn it_negotiates() {
        for (lowest, highest) in [((1, 0), (1, 0)), ((1, 0), (1, 9)), ((0, 5), (2, 0))] {
            let (status, result) = enter(abi_version(lowest.0, lowest.1), abi_version(highest.0, highest.1));
            assert_eq!((status, result.abi), (StrataStatus::Ok, STRATA_ABI_VERSION), "{lowest:?} {highest:?}");
            assert!(!result.table.is_null());
        }
        for (lowest, highest) in [((2, 0), (2, 0)), ((1, 1), (1, 9)), ((0, 1), (0, 9))] {
            let (status, result) = enter(abi_version(lowest.0, lowest.1), abi_version(highest.0, highest.1));
            assert_eq!((status, result.abi), (StrataStatus::AbiMismatch, STRATA_ABI_VERSION), "{lowest:?} {highest:?}");
            assert!(result.table.is_null());
            assert_eq!(text(result.reason), "c-demo speaks ABI 1.0 only");
        }
    }

    #[test]
    fn it_leaves_only_optional_entries_out() {
        let table = table();
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
        let table = table();
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

    fn tensor(dtype: StrataDType, buffer: u32, offset: u64, ne: [u64; 2], dynamic: bool) -> StrataTensor {
        let row = ne[0] * 4;
        StrataTensor {
            struct_size: StrataTensor::SIZE,
            dtype: dtype as u32,
            buffer,
            flags: 0,
            offset,
            ne: [ne[0], ne[1], 1, 1],
            nb: [4, row, row * ne[1], row * ne[1]],
            // Scalar 0 is the token count.
            dynamic: [0, u32::from(dynamic), 0, 0],
        }
    }

    fn op(kind: StrataOpKind, operands: &[u32], float: f32) -> StrataOp {
        let mut op = StrataOp {
            struct_size: StrataOp::SIZE,
            kind: kind as u32,
            flags: 0,
            layer: -1,
            operand: [STRATA_NO_OPERAND; _],
            float: [0.0; _],
            int: [0; _],
        };
        op.operand[..operands.len()].copy_from_slice(operands);
        op.float[0] = float;
        op
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

    fn desc(tensors: &[StrataTensor], ops: &[StrataOp], buffers: &[StrataHandle]) -> StrataProgramDesc {
        static MOST_TOKENS: [i64; 1] = [MOST as i64];
        StrataProgramDesc {
            struct_size: StrataProgramDesc::SIZE,
            flags: 0,
            name: StrataStr::from_static("test"),
            tensors: tensors.as_ptr(),
            ops: ops.as_ptr(),
            buffers: buffers.as_ptr(),
            scalar_max: MOST_TOKENS.as_ptr(),
            n_tensors: tensors.len() as u32,
            tensor_stride: StrataTensor::SIZE,
            n_ops: ops.len() as u32,
            op_stride: StrataOp::SIZE,
            n_buffers: buffers.len() as u32,
            n_scalars: 1,
        }
    }

    #[test]
    fn it_runs_a_program_again_and_again() {
        let (table, model) = (table(), Model::new());
        let device = open(table);
        let buffers: Vec<_> = [1024, 1024, 256].map(|bytes| alloc(table, device, bytes).unwrap()).to_vec();
        let write = |buffer: usize, offset: u64, data: &[u8]| {
            let (pointer, bytes) = (data.as_ptr().cast(), data.len() as u64);
            assert_eq!(call!(table, buffer_write, buffers[buffer], offset, pointer, bytes), StrataStatus::Ok);
        };
        for (offset, values) in [(0, &model.table), (256, &model.norm), (512, &model.weights), (768, &model.bias)] {
            write(0, offset, &floats(values));
        }
        write(1, 0, &model.ids.iter().flat_map(|id| id.to_ne_bytes()).collect::<Vec<u8>>());

        let (tensors, ops) = program();
        let desc = desc(&tensors, &ops, &buffers);
        let mut program = StrataHandle::NONE;
        for index in 0..ops.len() as u32 {
            let status = call!(table, op_supported, device, &raw const desc, index, std::ptr::null_mut());
            assert_eq!(status, StrataStatus::Ok, "op {index}: {}", last_error(table));
        }
        assert_eq!(call!(table, program_compile, device, &raw const desc, &raw mut program), StrataStatus::Ok);

        for tokens in [1, 3, MOST, 2] {
            write(2, 0, &[0xff; 256]);
            let scalars = [tokens as i64];
            let args = StrataRunArgs {
                struct_size: StrataRunArgs::SIZE,
                n_scalars: 1,
                scalars: scalars.as_ptr(),
                wait: std::ptr::null(),
                n_wait: 0,
                reserved: 0,
                signal: StrataHandle::NONE,
            };
            assert_eq!(call!(table, program_run, program, &raw const args), StrataStatus::Ok);
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
        let table = table();
        let device = open(table);
        let refusal = |change: &dyn Fn(&mut Vec<StrataTensor>, &mut StrataOp)| {
            let (mut tensors, ops) = program();
            let mut op = ops[2];
            change(&mut tensors, &mut op);
            let ops = [op];
            let desc = desc(&tensors, &ops, &[]);
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
}
