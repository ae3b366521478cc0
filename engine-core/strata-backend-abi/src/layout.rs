//! The recorded layout: sizes and offsets of every struct, as text. One file per minor version is
//! committed under `layouts/`; a test compares. Its hash is in every plugin's descriptor, so that a
//! plugin built against a changed header is refused before it is opened.

use crate::{
    STRATA_ABI_MAJOR, STRATA_ABI_MINOR, STRATA_BUFFER_ALIGNMENT, STRATA_DEVICE_DISPLAY, STRATA_DEVICE_HOST_MEMORY,
    STRATA_DEVICE_UNPROVEN, STRATA_MAX_DIMS, STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS,
    STRATA_NO_OPERAND, STRATA_PROGRAM_PRECISE, STRATA_TENSOR_CONSTANT, StrataActivation, StrataBackend,
    StrataBufferDesc, StrataBufferKind, StrataDType, StrataDeviceInfo, StrataDeviceKind, StrataDeviceOptions,
    StrataEntryArgs, StrataEntryResult, StrataHandle, StrataLogLevel, StrataMemoryInfo, StrataOp, StrataOpKind,
    StrataProgramDesc, StrataProgramInfo, StrataRopeStyle, StrataRouterScore, StrataRunArgs, StrataScalar,
    StrataStatus, StrataStr, StrataTensor, StrataTextOut, StrataUnary,
};
use core::mem::{offset_of, size_of};
use std::fmt::Write;

macro_rules! describe {
    ($out:ident, $($name:ident { $($field:ident),* $(,)? })*) => {$(
        let _ = writeln!($out, "{} {}", stringify!($name), size_of::<$name>());
        $(let _ = writeln!($out, "  {} {}", stringify!($field), offset_of!($name, $field));)*
    )*};
}

/// One line a variant (`enum NAME NUMBER VARIANT`). The match has no catch-all, so a variant that is
/// missing from the list does not compile.
macro_rules! numbers {
    ($out:ident, $($name:ident { $($variant:ident),* $(,)? })*) => {$(
        let number = |value: $name| match value { $($name::$variant => $name::$variant as i64),* };
        $(let _ = writeln!($out, "enum {} {} {}", stringify!($name), number($name::$variant), stringify!($variant));)*
    )*};
}

macro_rules! constants {
    ($out:ident, $($name:ident),* $(,)?) => {
        $(let _ = writeln!($out, "const {} {}", stringify!($name), $name);)*
    };
}

/// The layout of this build, one line a struct (`name size`) and one a field (`  name offset`), bytes;
/// then every format, number and constant.
pub fn text() -> String {
    let mut out = format!("abi {STRATA_ABI_MAJOR}.{STRATA_ABI_MINOR}\n");
    describe! { out,
        StrataStr { data, len }
        StrataTextOut { data, capacity, len }
        StrataHandle { instance, id }
        StrataTensor { struct_size, dtype, buffer, flags, offset, ne, nb, dynamic }
        StrataOp { struct_size, kind, flags, layer, operand, float, int }
        StrataProgramDesc {
            struct_size, flags, name, tensors, ops, buffers, scalar_max, n_tensors, tensor_stride, n_ops, op_stride,
            n_buffers, n_scalars,
        }
        StrataProgramInfo { struct_size, n_launches, workspace_bytes, constant_bytes }
        StrataRunArgs { struct_size, n_scalars, scalars, wait, n_wait, reserved, signal }
        StrataDeviceInfo {
            struct_size, kind, flags, reserved, name, arch, uid, driver, memory_total, memory_free,
        }
        StrataDeviceOptions { struct_size, n_threads, reserve_bytes, variant }
        StrataMemoryInfo { struct_size, reserved, total, free, used_here }
        StrataBufferDesc { struct_size, kind, bytes, label }
        StrataEntryArgs {
            struct_size, abi_lowest, abi_highest, reserved, instance, host_version, log, log_context,
        }
        StrataEntryResult { struct_size, abi, table, reason }
        StrataBackend {
            struct_size, abi, name, version, last_error, device_count, device_info, device_open, device_close,
            device_memory, device_report, synchronize, op_supported, buffer_alloc, buffer_import, buffer_free,
            buffer_write, buffer_read, buffer_copy, buffer_map, program_compile, program_info, program_run,
            program_free, event_create, event_query, event_wait, event_free,
        }
    }
    for dtype in StrataDType::ALL {
        let _ = writeln!(out, "dtype {} {} {} {}", *dtype as u32, dtype.name(), dtype.block_len(), dtype.block_bytes());
    }
    number_lines(&mut out);
    constant_lines(&mut out);
    out
}

fn number_lines(out: &mut String) {
    numbers! { out,
        StrataOpKind {
            EmbeddingLookup, RmsNorm, MatMul, Rope, KvStore, Attention, Glu, Add, Mul, Scale, Unary, Softmax,
            RouterTopK, ExpertMatMul, ExpertCombine, GatherRows, Copy, ArgMax, L2Norm, GatedDeltaNet, ShortConv,
            HyperConnection,
        }
        StrataRopeStyle { Norm, Neox }
        StrataActivation { Silu, GeluTanh, GeluErf, ReluSquared, SwigluOai }
        StrataUnary { Silu, GeluTanh, Sigmoid, Tanh, Softplus, Exp, Softcap }
        StrataRouterScore { Softmax, SoftmaxOfChosen, Sigmoid, SqrtSoftplus }
        StrataScalar { Tokens, Outputs, KvLength, Position }
        StrataDeviceKind { Cpu, Gpu, Accelerator }
        StrataBufferKind { Device, HostVisible }
        StrataLogLevel { Debug, Info, Warning, Error }
        StrataStatus {
            Ok, Unsupported, OutOfMemory, DeviceLost, InvalidCall, Internal, NoDevice, NoPermission, DriverMissing,
            DriverTooOld, ArchMissing, CpuUnsupported, NotReady, AbiMismatch, KernelsNotBuilt, DeviceFailed,
        }
    }
}

/// Constants that both sides build into their structs or flags. Counts that grow with a minor
/// version (scalars) are not among them.
fn constant_lines(out: &mut String) {
    constants! { out,
        STRATA_MAX_DIMS, STRATA_MAX_OPERANDS, STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_NO_OPERAND,
        STRATA_TENSOR_CONSTANT, STRATA_PROGRAM_PRECISE, STRATA_DEVICE_HOST_MEMORY, STRATA_DEVICE_DISPLAY,
        STRATA_DEVICE_UNPROVEN, STRATA_BUFFER_ALIGNMENT,
    }
}

/// The committed text of a version of this major (`layouts/1.0.txt`), or `None` for a version that
/// this build does not know, which a newer plugin may well name.
pub fn recorded(version: u32) -> Option<&'static str> {
    match (version >> 16, version & 0xffff) {
        (1, 0) => Some(include_str!("../layouts/1.0.txt")),
        _ => None,
    }
}

/// FNV-1a of [`text`], 64 bits in hexadecimal. It tells layouts apart; it is no seal.
pub fn hash() -> String {
    hash_of(&text())
}

/// The hash of a layout text: of [`recorded`], for a plugin of an older minor.
pub fn hash_of(text: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}
