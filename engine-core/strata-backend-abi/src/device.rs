//! Devices and buffers.

use crate::{StrataStr, sized_struct};

/// What kind of thing computes.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataDeviceKind {
    Cpu = 0,
    Gpu = 1,
    Accelerator = 2,
}

/// Device memory is the host's memory: `buffer_import` costs nothing.
pub const STRATA_DEVICE_HOST_MEMORY: u32 = 1 << 0;
/// A display hangs on the device; a reserve should be kept.
pub const STRATA_DEVICE_DISPLAY: u32 = 1 << 1;
/// No device of this kind has run this plugin yet; say so to the user.
pub const STRATA_DEVICE_UNPROVEN: u32 = 1 << 2;

/// What `device_info` fills in. Texts live as long as the plugin.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataDeviceInfo {
    pub struct_size: u32,
    /// `StrataDeviceKind`.
    pub kind: u32,
    /// `STRATA_DEVICE_*`.
    pub flags: u32,
    pub reserved: u32,
    /// Marketing name.
    pub name: StrataStr,
    /// What kernels are chosen by: `x86-64 avx2 fma f16c`, `sm_90`, `gfx906`.
    pub arch: StrataStr,
    /// Identity that survives a reboot: PCI address or UUID; `cpu` for the CPU.
    pub uid: StrataStr,
    /// Driver and its version, empty for the CPU.
    pub driver: StrataStr,
    pub memory_total: u64,
    pub memory_free: u64,
}
sized_struct!(StrataDeviceInfo);

/// What `device_open` takes. All zero means: the plugin chooses.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataDeviceOptions {
    pub struct_size: u32,
    /// CPU: worker threads, the calling one included; 0: one per usable physical core.
    pub n_threads: u32,
    /// Bytes of device memory that must stay free.
    pub reserve_bytes: u64,
    /// Kernel variant to use instead of the best one (`scalar`, `avx2`, …), empty for the best.
    pub variant: StrataStr,
}
sized_struct!(StrataDeviceOptions);

/// Memory of an open device, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataMemoryInfo {
    pub struct_size: u32,
    pub reserved: u32,
    pub total: u64,
    pub free: u64,
    /// Taken by this plugin instance on this device.
    pub used_here: u64,
}
sized_struct!(StrataMemoryInfo);

/// Where a buffer lies.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataBufferKind {
    /// Fastest for the device; the host reaches it by `buffer_read` and `buffer_write` only.
    Device = 0,
    /// The device can use it and `buffer_map` gives the host an address (pinned memory on a GPU).
    HostVisible = 1,
}

/// What `buffer_alloc` takes. The contents are undefined at first.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataBufferDesc {
    pub struct_size: u32,
    /// `StrataBufferKind`.
    pub kind: u32,
    pub bytes: u64,
    /// What it is for, for messages (`weights`, `kv`, `scratch`).
    pub label: StrataStr,
}
sized_struct!(StrataBufferDesc);

/// Alignment in bytes that every buffer's start has, and that the host gives every tensor it places.
pub const STRATA_BUFFER_ALIGNMENT: u64 = 256;
