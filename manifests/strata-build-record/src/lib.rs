//! The build record: JSON (schema `strata-build/1.0`, type `BuildRecord` in strata-manifest) that
//! every program and plugin carries in an ELF note section, so that `verify-package` reads the
//! version of a file without running it.
//!
//! Two halves: [`emit`] is called by the final crate's `build.rs` and gathers the facts;
//! [`embed!`] in the crate's root places them. Libraries that are linked into others do neither.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the section: `.note.` makes linkers keep it and readers find it.
pub const SECTION: &str = ".note.strata.build";
/// Owner of the ELF note.
pub const NOTE_NAME: &[u8; 8] = b"Strata\0\0";
/// Type of the ELF note.
pub const NOTE_TYPE: u32 = 1;

/// Gathers the record of the crate whose build script calls this and hands it to [`embed!`].
pub fn emit() {
    let env = |name: &str| std::env::var(name).unwrap_or_default();
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR"));
    let git = |args: &[&str]| output(Command::new("git").arg("-C").arg(&root).args(args));

    // A packager who builds from an archive without git says the commit; a checkout knows it.
    let commit = Some(env("STRATA_COMMIT")).filter(|text| !text.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "HEAD"])).unwrap_or_else(|| "unknown".to_owned());
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    let epoch = Some(env("SOURCE_DATE_EPOCH")).filter(|text| !text.is_empty());
    let epoch = epoch.or_else(|| git(&["log", "-1", "--format=%ct"])).and_then(|text| text.parse::<u64>().ok());
    let toolchain = output(Command::new(env("RUSTC")).arg("--version")).unwrap_or_else(|| "unknown".to_owned());
    let version = env("CARGO_PKG_VERSION");
    let build_id = format!("{version}-{}{}", commit.get(..12).unwrap_or(&commit), if dirty { "-dirty" } else { "" });

    let record = format!(
        "{{\"schema\":\"strata-build/1.0\",\"name\":{},\"version\":{},\"build_id\":{},\"commit\":{},\"dirty\":{dirty},\
         \"target\":{},\"toolchain\":{},\"source_epoch\":{}}}",
        json(&env("CARGO_PKG_NAME")),
        json(&version),
        json(&build_id),
        json(&commit),
        json(&env("TARGET")),
        json(&toolchain),
        epoch.unwrap_or(0),
    );
    let directives = format!(
        "cargo::rustc-env=STRATA_BUILD_RECORD={record}\n\
         cargo::rerun-if-env-changed=STRATA_COMMIT\ncargo::rerun-if-env-changed=SOURCE_DATE_EPOCH\n{}",
        rerun(git(&["rev-parse", "--absolute-git-dir"]).map(PathBuf::from)),
    );
    // A build script speaks to Cargo on stdout.
    #[expect(clippy::print_stdout, reason = "a build script speaks to Cargo on stdout")]
    {
        print!("{directives}");
    }
}

/// The commit changes with HEAD or what it points to, the dirty flag with the index.
fn rerun(git_dir: Option<PathBuf>) -> String {
    let mut lines = String::from("cargo::rerun-if-changed=build.rs\ncargo::rerun-if-changed=src\n");
    let watched = git_dir.into_iter().flat_map(|dir| ["HEAD", "index", "logs/HEAD"].map(|name| dir.join(name)));
    for path in watched.filter(|path| Path::exists(path)) {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "cargo::rerun-if-changed={}", path.display());
    }
    lines
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// A JSON string of a text without control characters, which none of the facts has.
fn json(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// An ELF note as the format lays it out: sizes, type, name and descriptor, each padded to 4 bytes.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct Note<const N: usize> {
    name_bytes: u32,
    descriptor_bytes: u32,
    kind: u32,
    name: [u8; 8],
    descriptor: [u8; N],
}

impl<const N: usize> Note<N> {
    /// `N` is the record's length rounded up to 4; what is left over stays zero.
    pub const fn new(record: &str) -> Self {
        let bytes = record.as_bytes();
        let mut descriptor = [0; N];
        let mut i = 0;
        while i < bytes.len() {
            descriptor[i] = bytes[i];
            i += 1;
        }
        // The owner's name counts with its one terminating NUL, the padding does not count.
        Note { name_bytes: 7, descriptor_bytes: bytes.len() as u32, kind: NOTE_TYPE, name: *NOTE_NAME, descriptor }
    }
}

/// Places the record that `build.rs` gathered with [`emit`] and defines `BUILD_RECORD`, its
/// JSON, in the crate's root.
#[macro_export]
macro_rules! embed {
    () => {
        /// The build record of this program, JSON.
        pub(crate) const BUILD_RECORD: &str = env!("STRATA_BUILD_RECORD");

        #[used]
        #[unsafe(link_section = ".note.strata.build")]
        static STRATA_BUILD_NOTE: $crate::Note<{ BUILD_RECORD.len().next_multiple_of(4) }> =
            $crate::Note::new(BUILD_RECORD);
    };
}
