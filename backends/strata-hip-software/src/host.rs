//! Kernels compiled for the host, one library a wave width: backends/kernels/host_launch.h.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use libloading::Library;

use crate::code;

type Launch = unsafe extern "C" fn(*const c_char, *const [u32; 3], u32, u32, *const c_void, usize) -> c_int;
type Order = unsafe extern "C" fn(u32);

#[derive(Debug, Default)]
pub(crate) struct HostKernels {
    libraries: HashMap<u32, Library>,
}

/// A launch with its arguments copied.
#[derive(Debug, Clone)]
pub(crate) struct LaunchOp {
    pub(crate) kernel: String,
    pub(crate) wave: u32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) params: Vec<u8>,
}

impl HostKernels {
    /// Runs the whole grid. Failures go to standard error with their reason: a number is all that the
    /// runtime's caller gets.
    pub(crate) fn run(&mut self, folder: &str, order: u32, op: &LaunchOp) -> Result<(), i32> {
        let library = match self.libraries.entry(op.wave) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let path = Path::new(folder).join(format!("libstrata_kernels_wave{}.so", op.wave));
                // SAFETY: a library of our own build, named by the test.
                let library = unsafe { Library::new(&path) }.map_err(|error| {
                    let error: &dyn std::error::Error = &error;
                    say(&format!("{}: {}", path.display(), error.source().unwrap_or(error)))
                })?;
                // SAFETY: the type is that of the function in host_launch.h; an older library may lack it.
                if let Ok(set) = unsafe { library.get::<Order>(b"strata_host_order") } {
                    // SAFETY: takes any number.
                    unsafe { set(order) };
                }
                entry.insert(library)
            }
        };
        // SAFETY: the type is that of the function in host_launch.h.
        let launch = unsafe { library.get::<Launch>(b"strata_host_launch") };
        let launch = launch.map_err(|error| say(&error.to_string()))?;
        let name = CString::new(op.kernel.as_str()).map_err(|_| code::INVALID_VALUE)?;
        let (params, n) = (op.params.as_ptr().cast(), op.params.len());
        // SAFETY: name, grid and parameters live through the call; addresses in the parameters are as good as
        // those that the caller gave, as on a card.
        let result = unsafe { launch(name.as_ptr(), &raw const op.grid, op.block, op.shared, params, n) };
        if result == 0 {
            return Ok(());
        }
        Err(say(&format!("kernel {} (grid {:?}, block {}) on the host: {result}", op.kernel, op.grid, op.block)))
    }
}

#[expect(clippy::print_stderr, reason = "a test library has no other way to say why")]
fn say(text: &str) -> i32 {
    eprintln!("software HIP device: {text}");
    code::LAUNCH_FAILURE
}
