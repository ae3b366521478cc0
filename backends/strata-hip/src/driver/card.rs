//! A card as the runtime lists it: by ordinal for the runtime, by PCI address for everybody else.

use std::ffi::{c_char, c_int};

use strata_backend_sdk::Result;
use strata_gpu::{DriverResult, ListedCard};

use super::api::HipRuntime;

/// `hipDeviceAttributeMultiprocessorCount`; attributes have the same numbers in ROCm 5 to 7.
const UNITS: c_int = 63;
/// `hipDeviceAttributeMaxSharedMemoryPerBlock`.
const MOST_SHARED: c_int = 74;
/// Larger than `hipDeviceProp_t` of any runtime so far (1472 bytes in ROCm 7).
const PROPERTIES_BYTES: usize = 8192;
/// Length of `gcnArchName`.
const ARCH_BYTES: usize = 256;

/// A card that is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub(super) ordinal: c_int,
    pub(super) name: String,
    /// `0000:03:00.0`.
    pub(super) pci: String,
    /// `gfx906:sramecc+:xnack-`.
    pub(super) arch: String,
    pub(super) units: u32,
    pub(super) most_shared: u32,
    memory_total: u64,
}

/// Room for a properties struct of unknown size, aligned as its 64-bit fields want it.
#[repr(C, align(16))]
struct Room([u8; PROPERTIES_BYTES]);

impl Listed {
    pub(super) fn ask(runtime: &HipRuntime, ordinal: c_int) -> Result<Listed> {
        let functions = &runtime.functions;
        let mut device = 0;
        // SAFETY: the place for the device lives through the call.
        let status = unsafe { (functions.device_get)(&raw mut device, ordinal) };
        runtime.listing("hipDeviceGet", status)?;
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: the runtime writes at most the 255 characters that it is told of, and a NUL.
        let status = unsafe { (functions.device_name)(text.as_mut_ptr(), 255, device) };
        runtime.listing("hipDeviceGetName", status)?;
        let name = words(&text);
        text.fill(0);
        // SAFETY: as above.
        let status = unsafe { (functions.device_pci)(text.as_mut_ptr(), 255, device) };
        runtime.listing("hipDeviceGetPCIBusId", status)?;
        let pci = words(&text).to_ascii_lowercase();
        let mut memory = 0;
        // SAFETY: the place for the number lives through the call.
        let status = unsafe { (functions.device_memory)(&raw mut memory, device) };
        runtime.listing("hipDeviceTotalMem", status)?;
        let arch = arch(runtime, ordinal)?;
        Ok(Listed {
            ordinal,
            // A card that the system's list of names does not know has an empty one.
            name: if name.is_empty() { format!("AMD GPU {}", processor(&arch)) } else { name },
            pci,
            units: attribute(runtime, device, UNITS)?,
            most_shared: attribute(runtime, device, MOST_SHARED)?,
            arch,
            memory_total: memory as u64,
        })
    }

    /// What is told about it.
    pub(super) fn entry(&self) -> ListedCard {
        ListedCard {
            name: self.name.clone(),
            arch: self.arch.clone(),
            uid: self.pci.clone(),
            memory_total: self.memory_total,
        }
    }

    /// Makes the card the one that this thread's calls go to.
    pub(super) fn enter(&self, runtime: &HipRuntime) -> DriverResult<()> {
        // SAFETY: an ordinal that the runtime has listed; a wrong one is an error, not a fault.
        runtime.status("hipSetDevice", unsafe { (runtime.functions.set_device)(self.ordinal) })
    }

    pub(super) fn memory(&self, runtime: &HipRuntime) -> DriverResult<(u64, u64)> {
        self.enter(runtime)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the places for the numbers live through the call.
        let status = unsafe { (runtime.functions.memory_info)(&raw mut free, &raw mut total) };
        runtime.status("hipMemGetInfo", status)?;
        Ok((free as u64, total as u64))
    }
}

fn attribute(runtime: &HipRuntime, device: c_int, which: c_int) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the place for the value lives through the call.
    let status = unsafe { (runtime.functions.device_attribute)(&raw mut value, which, device) };
    runtime.listing("hipDeviceGetAttribute", status)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// `gcnArchName` out of the properties, at the place that goes with the function's name.
fn arch(runtime: &HipRuntime, ordinal: c_int) -> Result<String> {
    let mut room = Box::new(Room([0; PROPERTIES_BYTES]));
    let properties = runtime.properties;
    // SAFETY: there is more room than any runtime's struct needs; the runtime zeroes or fills all of its own.
    let status = unsafe { (properties.function)(room.0.as_mut_ptr(), ordinal) };
    runtime.listing(properties.call, status)?;
    let bytes = &room.0[properties.arch_at..properties.arch_at + ARCH_BYTES];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(ARCH_BYTES);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// `gfx906` of `gfx906:sramecc+:xnack-`.
fn processor(arch: &str) -> &str {
    arch.split(':').next().unwrap_or(arch)
}

fn words(text: &[c_char; 256]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
