//! The recorded layout: sizes and offsets of every struct, as text. One file per minor version is
//! committed under `layouts/`; a test compares. Its hash is in every plugin's descriptor, so that a
//! plugin built against a changed header is refused before it is opened.

use crate::{
    STRATA_ABI_MAJOR, STRATA_ABI_MINOR, StrataBackend, StrataBufferDesc, StrataDType, StrataDeviceInfo,
    StrataDeviceOptions, StrataEntryArgs, StrataEntryResult, StrataHandle, StrataMemoryInfo, StrataOp, StrataOpKind,
    StrataProgramDesc, StrataProgramInfo, StrataRunArgs, StrataStatus, StrataStr, StrataTensor, StrataTextOut,
};
use core::mem::{offset_of, size_of};
use std::fmt::Write;

macro_rules! describe {
    ($out:ident, $($name:ident { $($field:ident),* $(,)? })*) => {$(
        let _ = writeln!($out, "{} {}", stringify!($name), size_of::<$name>());
        $(let _ = writeln!($out, "  {} {}", stringify!($field), offset_of!($name, $field));)*
    )*};
}

/// The layout of this build, one line a struct (`name size`) and one a field (`  name offset`), bytes.
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
    for kind in StrataOpKind::ALL {
        let _ = writeln!(out, "op {} {kind:?}", *kind as u32);
    }
    for status in StrataStatus::ALL {
        let _ = writeln!(out, "status {} {status:?}", status as i32);
    }
    out
}

/// FNV-1a of [`text`], 64 bits in hexadecimal. It tells layouts apart; it is no seal.
pub fn hash() -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}
