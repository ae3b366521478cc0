//! The software device for one test, and code objects for it to load.

use std::ffi::{CString, c_char, c_int, c_long};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use libloading::Library;
use strata_gpu::{Image, Module};

/// A copy of the library, with a state of its own.
pub(crate) struct Software {
    _folder: tempfile::TempDir,
    path: String,
    library: Library,
}

impl Software {
    pub(crate) fn new(settings: &str) -> Software {
        Software::without(settings, &[])
    }

    /// Without some of the runtime's functions: their names are spoilt in the copy.
    pub(crate) fn without(settings: &str, functions: &[&str]) -> Software {
        let mut bytes = fs_err::read(library()).unwrap();
        for function in functions {
            let name = format!("\0{function}\0");
            let at = bytes.windows(name.len()).position(|window| window == name.as_bytes());
            bytes[at.expect("the library has the function") + 1] = b'x';
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("libamdhip64.so.7");
        fs_err::write(&path, bytes).unwrap();
        // SAFETY: our own library, which has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        let software = Software { path: path.to_str().unwrap().to_owned(), _folder: folder, library };
        let settings = CString::new(settings).unwrap();
        // SAFETY: the type is that of the function in control.rs.
        let set = unsafe { software.library.get::<unsafe extern "C" fn(*const c_char)>(b"software_settings") };
        // SAFETY: the text lives through the call.
        unsafe { set.unwrap()(settings.as_ptr()) };
        software
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn fail(&self, call: &str, code: i32, after: i32) {
        let call = CString::new(call).unwrap();
        // SAFETY: the type is that of the function in control.rs.
        let fail = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char, c_int, c_int)>(b"software_fail") };
        // SAFETY: the text lives through the call.
        unsafe { fail.unwrap()(call.as_ptr(), code, after) };
    }

    pub(crate) fn count(&self, what: &str) -> i64 {
        let what = CString::new(what).unwrap();
        // SAFETY: the type is that of the function in control.rs.
        let count = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char) -> c_long>(b"software_count") };
        // SAFETY: the text lives through the call.
        unsafe { count.unwrap()(what.as_ptr()) }
    }
}

/// The device's library: the one that is named, else built into the target directory of this test.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("STRATA_TEST_HIP_LIBRARY") {
            return PathBuf::from(path);
        }
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).expect("a test lies in `<profile>/deps`");
        let target = profile.parent().expect("a profile's folder lies in the target directory");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "strata-hip-software", "--target-dir"]).arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        profile.join("libamdhip64.so")
    })
}

/// Kernels of elementwise.cu for these targets, compiled now; `None`, and said, without a compiler.
pub(crate) fn modules(targets: &[&'static str]) -> Option<&'static [Module]> {
    let images: Option<Vec<Image>> = targets.iter().map(|target| image(target)).collect();
    let Some(images) = images else {
        eprintln!("skipped: no clang-19 for a code object to load");
        return None;
    };
    let module = Module { name: "elementwise", entries: &["unary", "binary"], images: images.leak() };
    Some(vec![module].leak())
}

fn image(target: &'static str) -> Option<Image> {
    static MADE: Mutex<Vec<Image>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap();
    if let Some(image) = made.iter().find(|image| image.target == target) {
        return Some(*image);
    }
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.hsaco");
    let mut clang = Command::new("clang-19");
    clang.args(["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "--no-gpu-bundle-output", "-std=c++17"]);
    clang.arg(format!("--offload-arch={target}")).args(["-O1", "-fuse-cuid=none", "-Wno-unused-variable", "-I"]);
    let output = clang.arg(&kernels).arg("-o").arg(&out).arg(kernels.join("elementwise.cu")).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = Image { target, bytes: fs_err::read(&out).unwrap().leak() };
    made.push(image);
    Some(image)
}
