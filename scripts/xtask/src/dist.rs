//! `cargo xtask dist`: from the source to a release folder: programs and plugins built, packaged by
//! `strata package`, indexed, signed, and `install.sh` beside them with the root key in it.
//!
//! It builds for an old glibc where cargo-zigbuild is installed, and for this machine's otherwise; what
//! a package really needs is measured from the files either way. A component whose plugin cannot be
//! built here is left out with its reason.

use crate::workspace::{metadata, root, run, say};
use anyhow::{Context, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use strata_manifest::{Document, Recipe};

/// The oldest glibc that packages are built for: RHEL 8, Debian 10, Ubuntu 20.04.
const LIBC: &str = "2.28";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const RECIPES: [&str; 5] = ["control", "engine-cpu", "engine-cuda", "engine-hip-rx7900", "engine-hip-gfx906"];

#[derive(Debug, Args)]
pub(crate) struct DistArgs {
    /// The release folder; archives of an earlier run there are replaced.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Build without optimisation and with this machine's paths in it: for tests.
    #[arg(long)]
    dev: bool,
    /// `tar.gz`, `tar.zst`, `zip`; several with commas.
    #[arg(long, default_value = "tar.gz")]
    format: String,
    /// Secret release key; default: throwaway keys in the target directory.
    #[arg(long, value_name = "FILE", requires = "root_key")]
    key: Option<PathBuf>,
    /// Secret root key, which signs the list of release keys.
    #[arg(long, value_name = "FILE", requires = "key")]
    root_key: Option<PathBuf>,
    /// Address that `install.sh` will fetch from.
    #[arg(long, value_name = "URL", default_value = "")]
    url: String,
    /// Model to offer, copied into the folder: `NAME=FILE`. May be given several times.
    #[arg(long, value_name = "NAME=FILE")]
    model: Vec<String>,
    /// Fail when a component cannot be built, instead of leaving it out.
    #[arg(long)]
    all: bool,
}

pub(crate) fn run_dist(args: &DistArgs) -> anyhow::Result<()> {
    let out = std::path::absolute(&args.out)?;
    fs_err::create_dir_all(&out)?;
    clear(&out)?;
    let members: Vec<String> = metadata()?.packages.iter().map(|package| package.name.to_string()).collect();
    let (mut recipes, mut left_out) = (Vec::new(), Vec::new());
    for name in RECIPES {
        let path = root().join(format!("packaging/recipes/{name}.toml"));
        let recipe = Recipe::read(&path)?;
        match recipe.crates.iter().find(|name| !members.contains(name)) {
            Some(absent) => left_out.push(format!("{name}: crate `{absent}` is not in this workspace")),
            None => recipes.push((name, path, recipe)),
        }
    }
    // What every release has is built first and must build; each GPU plugin has its own compiler, and may fail.
    let is_gpu = |recipe: &Recipe| recipe.plugin.as_ref().is_some_and(|plugin| plugin.kind.is_gpu());
    let (gpu, common): (Vec<_>, Vec<_>) = recipes.into_iter().partition(|(_, _, recipe)| is_gpu(recipe));
    let crates: Vec<&str> = common.iter().flat_map(|(_, _, recipe)| recipe.crates.iter().map(String::as_str)).collect();
    let built = compile(&crates, args.dev)?;
    let strata = built.join("strata");
    for (name, path, _) in &common {
        package(&strata, path, &built, &out, args).with_context(|| format!("packaging {name}"))?;
    }
    for (name, path, recipe) in &gpu {
        let crates: Vec<&str> = recipe.crates.iter().map(String::as_str).collect();
        let done = compile(&crates, args.dev).and_then(|built| package(&strata, path, &built, &out, args));
        if let Err(error) = done {
            left_out.push(format!("{name}: {error}"));
        }
    }
    let keys = Keys::find(args, &strata)?;
    finish(args, &out, &strata, &keys)?;
    for line in &left_out {
        say(&format!("left out: {line}"));
    }
    if args.all && !left_out.is_empty() {
        bail!("{} components are left out", left_out.len());
    }
    say(&format!("release folder: {}", out.display()));
    Ok(())
}

fn package(strata: &Path, recipe: &Path, built: &Path, out: &Path, args: &DistArgs) -> anyhow::Result<()> {
    let mut command = Command::new(strata);
    command.args(["package", "build"]).arg(recipe).arg("--from").arg(built).arg("--out").arg(out);
    if args.dev {
        command.arg("--allow-build-paths");
    }
    let output = command.args(["--format", &args.format]).output().context("strata package build")?;
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    if !output.status.success() {
        bail!("{said}");
    }
    say(&said);
    Ok(())
}

/// Removes what an earlier run made, and nothing else.
fn clear(out: &Path) -> anyhow::Result<()> {
    for entry in fs_err::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let archive =
            name.starts_with("strata-") && [".tar.gz", ".tar.zst", ".zip"].iter().any(|end| name.ends_with(end));
        if archive || ["release.json", "SHA256SUMS.txt", "keys.json"].iter().any(|start| name.starts_with(start)) {
            fs_err::remove_file(path)?;
        }
    }
    Ok(())
}

/// Builds the crates and gives the folder with the results.
fn compile(crates: &[&str], dev: bool) -> anyhow::Result<PathBuf> {
    let target = metadata()?.target_directory.into_std_path_buf();
    let packages: Vec<&str> = crates.iter().flat_map(|name| ["--package", name]).collect();
    if dev {
        run("cargo", &[&["build", "--locked"][..], &packages].concat())?;
        return Ok(target.join("debug"));
    }
    let zig = Command::new("cargo-zigbuild").arg("--version").output().is_ok_and(|output| output.status.success());
    let triple = if zig { format!("{TRIPLE}.{LIBC}") } else { TRIPLE.to_owned() };
    if !zig {
        say(
            "cargo-zigbuild is not installed: building for this machine's glibc (`pip install cargo-zigbuild ziglang`)",
        );
    }
    // A folder of its own: other flags would build everything else again.
    let folder = target.join("dist");
    let mut command = Command::new("cargo");
    command.args([if zig { "zigbuild" } else { "build" }, "--release", "--locked", "--target", &triple]);
    command.args(&packages).arg("--target-dir").arg(&folder).current_dir(root());
    let (rust, c) = remapped()?;
    command.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\x1f")).env("CFLAGS", c.join(" "));
    say(&format!("$ {command:?}"));
    let status = command.status().context("cargo build")?;
    if !status.success() {
        bail!("the build failed: {status}");
    }
    Ok(folder.join(TRIPLE).join("release"))
}

/// Flags that keep this machine's folders out of what is built, so that two machines build the same.
fn remapped() -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("no home folder")?;
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()).output()?;
    let sysroot = String::from_utf8(sysroot.stdout)?.trim().to_owned();
    let mut pairs =
        vec![(home.display().to_string(), "/cargo"), (sysroot, "/rust"), (root().display().to_string(), "/strata")];
    // Sources of crates lie in a folder that is named after the registry: one level less in what is printed.
    if let Ok(registries) = fs_err::read_dir(home.join("registry/src")) {
        for registry in registries {
            pairs.push((registry?.path().display().to_string(), "/crates"));
        }
    }
    let rust = pairs.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    let c = pairs.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    Ok((rust, c))
}

/// The two secret keys, and the public half of the root key.
struct Keys {
    root: PathBuf,
    root_public: PathBuf,
    release: PathBuf,
    release_public: PathBuf,
}

impl Keys {
    fn find(args: &DistArgs, strata: &Path) -> anyhow::Result<Self> {
        let public = |secret: &Path| secret.with_extension("pub");
        if let (Some(release), Some(root)) = (&args.key, &args.root_key) {
            let (release_public, root_public) = (public(release), public(root));
            return Ok(Keys { root: root.clone(), root_public, release: release.clone(), release_public });
        }
        let folder = metadata()?.target_directory.into_std_path_buf().join("dist-keys");
        fs_err::create_dir_all(&folder)?;
        say(&format!("no key is given: signing with throwaway keys in {}", folder.display()));
        for name in ["root", "release"] {
            if !folder.join(format!("{name}.key")).is_file() {
                strata_run(strata, &["package", "keygen", "--no-password"], &[&folder.join(name)])?;
            }
        }
        let (root, release) = (folder.join("root.key"), folder.join("release.key"));
        Ok(Keys { root_public: public(&root), release_public: public(&release), root, release })
    }
}

fn strata_run(strata: &Path, words: &[&str], paths: &[&Path]) -> anyhow::Result<()> {
    let status = Command::new(strata).args(words).args(paths).stdout(std::process::Stdio::null()).status()?;
    if !status.success() {
        bail!("`strata {}` failed", words.join(" "));
    }
    Ok(())
}

/// Models, index, key list, signatures, bootstrap script.
fn finish(args: &DistArgs, out: &Path, strata: &Path, keys: &Keys) -> anyhow::Result<()> {
    let mut models = Vec::new();
    for model in &args.model {
        let (name, file) = model.split_once('=').with_context(|| format!("`{model}` is not NAME=FILE"))?;
        let file = fs_err::canonicalize(file)?;
        let file_name = file.file_name().context("a model file has a name")?;
        let target = out.join(file_name);
        // A link where the disk allows it: models are large.
        if !target.exists() && fs_err::hard_link(&file, &target).is_err() {
            fs_err::copy(&file, &target)?;
        }
        models.push(format!("--model={name}={}", file_name.to_string_lossy()));
    }
    let words: Vec<&str> = ["package", "index"].into_iter().chain(models.iter().map(String::as_str)).collect();
    strata_run(strata, &words, &[out])?;
    let release = keys.release_public.to_string_lossy();
    let root_key = keys.root.to_string_lossy();
    strata_run(strata, &["package", "keys", "--key", &root_key, "--add", &release], &[out])?;
    strata_run(strata, &["package", "sign", "--key", &keys.release.to_string_lossy()], &[out])?;
    fs_err::copy(&keys.root_public, out.join("root.pub"))?;
    let public = fs_err::read_to_string(&keys.root_public)?;
    let public = public.lines().nth(1).context("a public key has two lines")?;
    let script = fs_err::read_to_string(root().join("scripts/install.sh"))?;
    for line in ["\nRELEASE=''\n", "\nKEYS=''\n"] {
        anyhow::ensure!(script.contains(line), "scripts/install.sh has no line `{}`", line.trim());
    }
    let script = script.replacen("\nRELEASE=''\n", &format!("\nRELEASE='{}'\n", args.url), 1);
    let script = script.replacen("\nKEYS=''\n", &format!("\nKEYS='{public}'\n"), 1);
    fs_err::write(out.join("install.sh"), script)?;
    // The folder as a whole must be what its index says.
    let release = strata_manifest::Release::read(&out.join(strata_manifest::RELEASE_FILE))?;
    say(&format!("release {} number {}: {} components", release.version, release.serial, release.components.len()));
    Ok(())
}
