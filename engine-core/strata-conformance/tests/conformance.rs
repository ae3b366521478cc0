//! The CPU plugin (each of its variants that this processor can run) and the plugin in C against
//! the oracle, one named test per op and format. A variant that the processor lacks is said to be skipped.
//!
//! The CPU plugin is the one in `STRATA_TEST_PLUGIN_DIR` (the folder of its `cpu.plugin.json`), else
//! it is built into this build's own target directory. A plugin is made and opened when the first
//! test asks for it, so listing tests builds nothing.

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use strata_conformance::{Bench, Gaps, GroupReport, groups, run_group};
use strata_diag::{Diagnose, catalogue};
use strata_plugin_host::{OpenOptions, Plugin, PluginEntry};

/// A plugin under test.
struct Subject {
    name: &'static str,
    variant: &'static str,
    descriptor: fn() -> Result<PathBuf, String>,
    gaps: fn() -> Result<Gaps, String>,
    bench: OnceLock<Result<Opened, String>>,
}

enum Opened {
    Ready(Bench, Gaps),
    /// This processor lacks what the variant needs.
    Skipped,
}

static SUBJECTS: [Subject; 5] = [
    Subject { name: "scalar", variant: "scalar", descriptor: cpu, gaps: own_gaps, bench: OnceLock::new() },
    Subject { name: "avx2", variant: "avx2", descriptor: cpu, gaps: own_gaps, bench: OnceLock::new() },
    Subject { name: "avx-vnni", variant: "avx-vnni", descriptor: cpu, gaps: own_gaps, bench: OnceLock::new() },
    Subject { name: "vnni", variant: "vnni", descriptor: cpu, gaps: own_gaps, bench: OnceLock::new() },
    Subject { name: "c_demo", variant: "", descriptor: c_demo, gaps: c_demo_gaps, bench: OnceLock::new() },
];

fn main() {
    let arguments = Arguments::from_args();
    let mut tests = Vec::new();
    for subject in &SUBJECTS {
        for group in groups() {
            tests.push(Trial::test(format!("{}::{}", subject.name, group.name()), move || {
                match subject.bench.get_or_init(|| subject.open()).as_ref()? {
                    Opened::Ready(bench, gaps) => verdict(&run_group(bench, &group, gaps, &mut |_| {})),
                    Opened::Skipped => Ok(()),
                }
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, tests);
    if let Some(Ok(folder)) = STAGE.get() {
        // What cannot be removed lies in the target directory.
        let _ = fs_err::remove_dir_all(folder);
    }
    conclusion.exit();
}

fn verdict(report: &GroupReport) -> Result<(), Failed> {
    let Some((case, what)) = report.failures.first() else { return Ok(()) };
    let total = report.failures.len() + report.passed + report.gaps.len();
    Err(format!("{} of {total} cases failed; {case}: {what}", report.failures.len()).into())
}

impl Subject {
    fn open(&self) -> Result<Opened, String> {
        let entry = PluginEntry::from_descriptor(&(self.descriptor)()?).map_err(|error| error.to_string())?;
        let plugin = Plugin::open(&entry, &OpenOptions::in_process()).map_err(|error| error.to_string())?;
        match Bench::open(&plugin, 0, self.variant) {
            Ok(bench) => Ok(Opened::Ready(bench, (self.gaps)()?)),
            Err(error) if error.code() == catalogue::plugin::CPU_UNSUPPORTED => {
                let _ = writeln!(std::io::stderr(), "skipped: {}: {error}", self.name);
                Ok(Opened::Skipped)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn own_gaps() -> Result<Gaps, String> {
    Gaps::built_in().map_err(|error| error.to_string())
}

fn c_demo() -> Result<PathBuf, String> {
    support::c_demo(stage()?, "c-demo", &[])
}

fn c_demo_gaps() -> Result<Gaps, String> {
    Gaps::parse(include_str!("c_demo_gaps.toml"))
}

/// A folder of this process for libraries with their descriptors.
static STAGE: OnceLock<Result<PathBuf, String>> = OnceLock::new();

fn stage() -> Result<&'static Path, String> {
    let made = STAGE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{}", std::process::id()));
        fs_err::create_dir_all(&folder).map_err(support::text)?;
        Ok(folder)
    });
    made.as_deref().map_err(Clone::clone)
}

/// The CPU plugin's descriptor.
fn cpu() -> Result<PathBuf, String> {
    static DESCRIPTOR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    DESCRIPTOR
        .get_or_init(|| match std::env::var_os("STRATA_TEST_PLUGIN_DIR") {
            Some(folder) => Ok(Path::new(&folder).join("cpu.plugin.json")),
            None => support::describe(stage()?, "cpu", "cpu", &build_cpu()?),
        })
        .clone()
}

/// Builds the plugin as this test was built: same target directory, same profile.
fn build_cpu() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(support::text)?;
    let profile_folder = test.parent().and_then(Path::parent).ok_or("a test lies in `<profile>/deps`")?;
    let target = profile_folder.parent().ok_or("a profile's folder lies in the target directory")?;
    let mut build = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    build.args(["build", "--quiet", "--package", "strata-backend-cpu", "--target-dir"]).arg(target);
    if profile_folder.ends_with("release") {
        build.arg("--release");
    }
    support::run(build.current_dir(env!("CARGO_MANIFEST_DIR")))?;
    let file = format!("{}strata_backend_cpu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    Ok(profile_folder.join(file))
}
