//! Which library file is opened: the newest major that the loader or ROCm's usual folders have.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;
use strata_backend_abi::StrataStatus;
use strata_backend_sdk::{Failure, Result};

/// Newest first. The bare name is a developer's link and may be any of them.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
/// Where ROCm's own packages put it, which the loader need not know.
const FOLDERS: [&str; 2] = ["/opt/rocm/lib", "/opt/rocm/lib64"];

/// The open library and the file that it is.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) library: Library,
    pub(super) path: String,
}

/// Opens the file that was named, else the first of the usual ones.
pub(super) fn open(named: Option<&str>) -> Result<Opened> {
    let candidates = named.map_or_else(candidates, |name| vec![name.to_owned()]);
    let mut broken = None;
    for name in &candidates {
        // SAFETY: the system's runtime, or what a test names: opening it runs its initialisers, which are its vendor's.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                let path = path_of(&library).unwrap_or_else(|| name.clone());
                return Ok(Opened { library, path });
            }
            Err(error) => {
                let why = strata_gpu::loader_words(&error);
                // A file that is there and cannot be opened is the better answer than one that is not there.
                if broken.is_none() && !is_absence(&why, name) {
                    broken = Some(format!("{name} is there and cannot be opened: {why}"));
                }
            }
        }
    }
    let text = match (broken, named) {
        (Some(broken), _) => format!("the HIP runtime does not load: {broken}"),
        (None, Some(name)) => format!("the HIP runtime is not installed: there is no {name}"),
        (None, None) => format!(
            "the HIP runtime is not installed: the loader knows no libamdhip64.so.7, .6 or .5, and none lies in {}",
            FOLDERS.join(" or ")
        ),
    };
    Err(Failure::new(StrataStatus::DriverMissing, text))
}

fn candidates() -> Vec<String> {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    if let Some(rocm) = std::env::var_os("ROCM_PATH").map(PathBuf::from).filter(|path| path.is_absolute()) {
        folders.insert(0, rocm.join("lib"));
    }
    let below = folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name)));
    let below = below.filter(|path| path.exists()).map(|path| path.display().to_string());
    NAMES.iter().map(|name| (*name).to_owned()).chain(below).collect()
}

/// The loader says of a file that is not there just what it says of one that its dependencies lack, but
/// for the name in front.
fn is_absence(why: &str, name: &str) -> bool {
    why.starts_with(&format!("{name}: cannot open shared object file: No such file"))
}

/// The file behind an open library, links followed.
fn path_of(library: &Library) -> Option<String> {
    // SAFETY: only the address is used; it is not called through this type.
    let symbol = unsafe { library.get::<unsafe extern "C" fn()>(b"hipInit") }.ok()?;
    let address = *symbol as *const c_void;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place lives through the call, and any address may be asked for.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed is a valid value of this plain struct, and the call has filled it in.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's text, which lives as long as the library is open.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_str().ok()?;
    let real = Path::new(name).canonicalize().unwrap_or_else(|_| PathBuf::from(name));
    Some(real.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_said_to_be_absent() {
        let failure = open(Some("/no/such/libamdhip64.so.7")).unwrap_err();
        assert_eq!(failure.status, StrataStatus::DriverMissing);
        assert_eq!(failure.text, "the HIP runtime is not installed: there is no /no/such/libamdhip64.so.7");
    }

    #[test]
    fn a_library_that_is_there_and_broken_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libamdhip64.so.6");
        fs_err::write(&path, b"no library").unwrap();
        let failure = open(path.to_str()).unwrap_err();
        assert_eq!(failure.status, StrataStatus::DriverMissing);
        assert!(
            failure.text.contains("does not load") && failure.text.contains("libamdhip64.so.6"),
            "{}",
            failure.text
        );
    }

    #[test]
    fn a_missing_dependency_is_no_absence_of_the_library() {
        let of = |missing: &str| format!("{missing}: cannot open shared object file: No such file or directory");
        assert!(is_absence(&of("libamdhip64.so.7"), "libamdhip64.so.7"));
        assert!(!is_absence(&of("libamd_comgr.so.2"), "libamdhip64.so.7"));
    }

    #[test]
    fn newer_majors_come_first_and_the_loader_before_folders() {
        let names = candidates();
        assert_eq!(&names[..4], NAMES);
    }
}
