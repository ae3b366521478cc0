//! Status codes: what every call returns, and what a refusing entry gives as its reason.

/// Returned by every call as `int32_t`. Numbers are never reused.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataStatus {
    Ok = 0,
    /// The op, format or option is not supported by this device; not an error of the caller.
    Unsupported = 1,
    /// Device or host memory is used up.
    OutOfMemory = 2,
    /// The device went away or must be reset; every handle on it is dead.
    DeviceLost = 3,
    /// A call that the host should not have made: a fault of the host.
    InvalidCall = 4,
    /// The plugin's own fault; a caught panic ends here.
    Internal = 5,
    /// No such device on this machine.
    NoDevice = 6,
    /// The device is there, this user may not open it.
    NoPermission = 7,
    /// The driver is absent or failed to start.
    DriverMissing = 8,
    /// The driver is older than the plugin needs.
    DriverTooOld = 9,
    /// The plugin holds no kernels for this device.
    ArchMissing = 10,
    /// The CPU lacks instructions that the plugin needs.
    CpuUnsupported = 11,
    /// The work is not finished yet (event queries).
    NotReady = 12,
    /// No ABI version in common.
    AbiMismatch = 13,
    /// The plugin was built without the vendor's compiler and holds no kernels at all.
    KernelsNotBuilt = 14,
    /// A device call failed; `last_error` says which.
    DeviceFailed = 15,
}

impl StrataStatus {
    /// All codes, for tables and tests.
    pub const ALL: [StrataStatus; 16] = [
        StrataStatus::Ok,
        StrataStatus::Unsupported,
        StrataStatus::OutOfMemory,
        StrataStatus::DeviceLost,
        StrataStatus::InvalidCall,
        StrataStatus::Internal,
        StrataStatus::NoDevice,
        StrataStatus::NoPermission,
        StrataStatus::DriverMissing,
        StrataStatus::DriverTooOld,
        StrataStatus::ArchMissing,
        StrataStatus::CpuUnsupported,
        StrataStatus::NotReady,
        StrataStatus::AbiMismatch,
        StrataStatus::KernelsNotBuilt,
        StrataStatus::DeviceFailed,
    ];

    /// The known status for a number that came across, or the number itself.
    pub fn from_number(number: i32) -> Result<StrataStatus, i32> {
        StrataStatus::ALL.into_iter().find(|status| *status as i32 == number).ok_or(number)
    }
}
