//! `cargo xtask fuzz`: builds the fuzz targets, writes their seeds, runs each for a while and says how many
//! inputs it tried.
//!
//! libFuzzer needs coverage counters in the code, which the stable compiler puts in when it is told to: no nightly
//! toolchain and no cargo-fuzz. There is no address sanitizer, since what is fuzzed is safe Rust; whoever wants one
//! runs `cargo +nightly fuzz run NAME`. Everything lies below `target/fuzz`, inputs that broke a target below
//! `fuzz/artifacts`; a later run goes on from what an earlier one found.

use crate::workspace::{metadata, root, run, say};
use anyhow::{Context, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const FLAGS: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg",
    "fuzzing",
];
/// A single input may take this long and this much, in seconds and MiB.
const LIMITS: [&str; 2] = ["-timeout=20", "-rss_limit_mb=1024"];

#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// Targets, by name; default: all.
    names: Vec<String>,
    /// How long each runs.
    #[arg(long, value_name = "N", default_value_t = 300)]
    seconds: u64,
    /// How many run at once; default: one per processor.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Further seeds: archives, libraries, manifests, or folders of them.
    #[arg(long, value_name = "PATH")]
    seed: Vec<PathBuf>,
}

/// Where things lie.
struct Folders {
    work: PathBuf,
    artifacts: PathBuf,
}

pub(crate) fn run_fuzz(args: &FuzzArgs) -> anyhow::Result<()> {
    let known = targets()?;
    if let Some(unknown) = args.names.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target `{unknown}`; known: {}", known.join(", "));
    }
    let names = if args.names.is_empty() { known } else { args.names.clone() };
    let work = metadata()?.target_directory.into_std_path_buf().join("fuzz");
    let folders = Folders { work, artifacts: root().join("fuzz/artifacts") };
    seeds(&folders, &args.seed)?;
    build(&folders, &names)?;
    let jobs = args.jobs.unwrap_or(std::thread::available_parallelism()?.get()).max(1);
    let (mut waiting, mut running, mut broken) = (names.into_iter(), Vec::new(), 0);
    loop {
        while running.len() < jobs
            && let Some(name) = waiting.next()
        {
            running.push(Running::start(&folders, name, args.seconds)?);
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        let mut still = Vec::new();
        for mut one in running {
            match one.child.try_wait()? {
                Some(status) => broken += usize::from(!one.ended(&folders, status.success())?),
                None => still.push(one),
            }
        }
        running = still;
    }
    if broken > 0 {
        bail!("{broken} targets broke: the inputs lie in {}", folders.artifacts.display());
    }
    Ok(())
}

/// Names of the targets: their files.
fn targets() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Well-formed inputs to begin from; the public cases too, where they are.
fn seeds(folders: &Folders, further: &[PathBuf]) -> anyhow::Result<()> {
    let seeds = folders.work.join("seeds");
    let at = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    let mut arguments = vec![at(&seeds)?];
    let shared = std::env::var_os("STRATA_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let cases = shared.join("cases");
    for path in further.iter().chain(Some(&cases).filter(|cases| cases.is_dir())) {
        arguments.push(at(path)?);
    }
    let example = ["run", "--quiet", "--package", "strata-package", "--example", "package_seeds", "--"];
    run("cargo", &example.into_iter().chain(arguments.iter().map(String::as_str)).collect::<Vec<_>>())?;
    let models = at(&seeds.join("gguf_parse"))?;
    run("cargo", &["run", "--quiet", "--package", "strata-model", "--example", "gguf_seeds", "--", &models])
}

fn build(folders: &Folders, names: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "--target", TRIPLE, "--manifest-path", "fuzz/Cargo.toml"]);
    command.arg("--target-dir").arg(folders.work.join("build")).current_dir(root());
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    say(&format!("$ {command:?}"));
    let status = command.status().context("cargo build")?;
    if !status.success() {
        bail!("the fuzz targets were not built: {status}");
    }
    Ok(())
}

/// A target at work.
struct Running {
    name: String,
    child: Child,
    started: Instant,
    log: PathBuf,
}

impl Running {
    fn start(folders: &Folders, name: String, seconds: u64) -> anyhow::Result<Running> {
        let seeds = folders.work.join("seeds").join(&name);
        let found = folders.work.join("found").join(&name);
        for folder in [&seeds, &found, &folders.artifacts] {
            fs_err::create_dir_all(folder)?;
        }
        let log = folders.work.join(format!("{name}.log"));
        let output: std::fs::File = fs_err::File::create(&log)?.into();
        let mut command = Command::new(folders.work.join("build").join(TRIPLE).join("release").join(&name));
        command.args([&found, &seeds]).args(LIMITS).arg("-print_final_stats=1");
        command.arg(format!("-max_total_time={seconds}"));
        command.arg(format!("-artifact_prefix={}/{name}-", folders.artifacts.display()));
        // Readers of archives go through temporary files; in memory those cost little.
        if Path::new("/dev/shm").is_dir() {
            command.env("TMPDIR", "/dev/shm");
        }
        let child = command.stdout(output.try_clone()?).stderr(output).spawn().context("starting a fuzz target")?;
        say(&format!("{name}: runs for {seconds} s, log {}", log.display()));
        Ok(Running { name, child, started: Instant::now(), log })
    }

    /// Says how it went; `false`: something was found.
    fn ended(&self, folders: &Folders, sound: bool) -> anyhow::Result<bool> {
        let log = fs_err::read(&self.log)?;
        let log = String::from_utf8_lossy(&log);
        let of = |line: &str, word: &str| line.split_once(word).map(|(_, rest)| rest.trim().to_owned());
        let runs = log.lines().find_map(|line| of(line, "stat::number_of_executed_units:"));
        let covered = log.lines().rev().find_map(|line| of(line, " cov: ")?.split(' ').next().map(str::to_owned));
        let count = |folder: &str| -> anyhow::Result<usize> {
            Ok(fs_err::read_dir(folders.work.join(folder).join(&self.name))?.count())
        };
        say(&format!(
            "{}: {} runs in {} s from {} seeds, {} places of the code reached, {} inputs kept: {}",
            self.name,
            runs.as_deref().unwrap_or("an unknown number of"),
            self.started.elapsed().as_secs(),
            count("seeds")?,
            covered.as_deref().unwrap_or("?"),
            count("found")?,
            if sound { "nothing found" } else { "BROKE" },
        ));
        if !sound {
            let lines: Vec<&str> = log.lines().collect();
            say(&lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        Ok(sound)
    }
}
