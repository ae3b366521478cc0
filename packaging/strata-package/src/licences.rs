//! Third-party parts and their licence texts, as Cargo knows them: the crates that are linked into
//! what is packed (not build scripts, macros or tests), and the texts that lie in their sources.

use crate::PackageError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use strata_manifest::Recipe;

/// How deep below a crate's folder licence files are looked for: bundled C sources have their own.
const MAX_DEPTH: usize = 4;
const MAX_TEXT_BYTES: u64 = 4 << 20;

/// A part by somebody else with the texts of its licence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub version: String,
    pub licence: String,
    pub source: String,
    /// Path below the part's own folder, and the text.
    pub texts: Vec<(String, Vec<u8>)>,
    /// Where the text comes from when the part carries none.
    pub note: Option<String>,
}

/// Asks Cargo for the crates that are linked into the recipe's crates for a target, then reads their licences.
pub fn of_crates(recipe: &Recipe, source: &Path, target: &str) -> Result<Vec<Part>, PackageError> {
    if recipe.crates.is_empty() {
        return Ok(Vec::new());
    }
    let mut linked = BTreeSet::new();
    for name in &recipe.crates {
        let args = ["tree", "--locked", "--package", name, "--edges", "normal,no-proc-macro", "--target", target];
        let text = cargo(source, &[&args[..], &["--prefix", "none", "--format", "{p}"]].concat())?;
        linked.extend(text.lines().filter_map(name_and_version));
    }
    let text = cargo(source, &["metadata", "--locked", "--format-version", "1", "--filter-platform", target])?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| PackageError::Tool { tool: "cargo metadata".to_owned(), why: error.to_string() })?;
    let mut parts = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
        // Without a source it is ours.
        if package["source"].is_string() && linked.contains(&(text("name"), text("version"))) {
            parts.push(part(package, recipe, source)?);
        }
    }
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(parts)
}

/// The standard library is linked into every program; its texts lie in the toolchain's own folder.
pub fn of_standard_library(toolchain: &str, source: &Path) -> Result<Part, PackageError> {
    let version = toolchain.split(' ').nth(1).unwrap_or("unknown").to_owned();
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(source).output();
    let sysroot = output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let folder = PathBuf::from(String::from_utf8_lossy(&sysroot).trim()).join("share/doc/rust");
    let (mut texts, mut note) = (Vec::new(), None);
    for name in ["COPYRIGHT-library.html", "licenses/MIT.txt", "licenses/Apache-2.0.txt"] {
        if let Ok(text) = fs_err::read(folder.join(name)) {
            texts.push((name.to_owned(), text));
        }
    }
    if texts.is_empty() {
        texts.push(apache(source)?);
        note =
            Some("the toolchain carries no licence text; standard text of Apache-2.0, one of its licences".to_owned());
    }
    Ok(Part {
        name: "rust-std".to_owned(),
        licence: "MIT OR Apache-2.0".to_owned(),
        source: format!("pkg:generic/rust-std@{version}"),
        version,
        texts,
        note,
    })
}

/// `serde v1.0.228 (…)`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((name.to_owned(), version.to_owned()))
}

fn part(package: &Value, recipe: &Recipe, source: &Path) -> Result<Part, PackageError> {
    let field = |name: &str| package[name].as_str().unwrap_or_default();
    let (name, version) = (field("name").to_owned(), field("version").to_owned());
    let lacking = |why: &str| PackageError::Licence { part: format!("{name} {version}"), why: why.to_owned() };
    // The old form of `OR`.
    let licence = field("license").replace('/', " OR ").replace("  ", " ");
    let folder = Path::new(field("manifest_path")).parent().unwrap_or(Path::new("")).to_owned();
    let mut texts = licence_files(&folder)?;
    if let Some(named) = package["license_file"].as_str() {
        add_text(&mut texts, &folder, named)?;
    }
    let mut note = None;
    if let Some(path) = recipe.licence_texts.get(&name) {
        let file = source.join(path);
        let text = fs_err::read(&file).map_err(PackageError::unreadable(&file))?;
        texts = BTreeMap::from([(file_name(path), text)]);
        note = Some(format!("the part carries no licence text; `{path}` of the source is given for it"));
    } else if texts.is_empty() {
        // Apache-2.0 has no line with the authors' names, so its standard text says everything.
        if !licence.split([' ', '(', ')']).any(|word| word == "Apache-2.0") || licence.contains(" AND ") {
            return Err(lacking(&format!("the crate carries none, and its licence is `{licence}`")));
        }
        let (file, text) = apache(source)?;
        texts.insert(file, text);
        note = Some(format!("the crate carries no licence text; standard text of Apache-2.0, chosen from `{licence}`"));
    }
    if licence.is_empty() {
        return Err(lacking("the crate states no licence"));
    }
    let source = format!("pkg:cargo/{name}@{version}");
    Ok(Part { name, version, licence, source, texts: texts.into_iter().collect(), note })
}

fn apache(source: &Path) -> Result<(String, Vec<u8>), PackageError> {
    let path = source.join("LICENSE-APACHE");
    let text = fs_err::read(&path).map_err(PackageError::unreadable(&path))?;
    Ok(("LICENSE-APACHE".to_owned(), text))
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Files that hold a licence by their name, by path below the folder.
fn licence_files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, PackageError> {
    let mut texts = BTreeMap::new();
    let mut pending = vec![(folder.to_owned(), String::new(), MAX_DEPTH)];
    while let Some((here, prefix, depth)) = pending.pop() {
        for entry in fs_err::read_dir(&here).map_err(PackageError::unreadable(&here))? {
            let entry = entry.map_err(PackageError::unreadable(&here))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(PackageError::unreadable(entry.path()))?;
            if kind.is_dir() && depth > 1 && !matches!(name.as_str(), "tests" | "benches" | "target" | ".git") {
                pending.push((entry.path(), format!("{prefix}{name}/"), depth - 1));
            } else if kind.is_file() && is_licence_name(&name) {
                add_text(&mut texts, folder, &format!("{prefix}{name}"))?;
            }
        }
    }
    Ok(texts)
}

fn add_text(texts: &mut BTreeMap<String, Vec<u8>>, folder: &Path, relative: &str) -> Result<(), PackageError> {
    let path = folder.join(relative);
    if fs_err::metadata(&path).map_err(PackageError::unreadable(&path))?.len() <= MAX_TEXT_BYTES {
        let text = fs_err::read(&path).map_err(PackageError::unreadable(&path))?;
        // A file named outside the crate (`../LICENSE`) is kept under its own name.
        let key = if relative.split('/').any(|part| part == "..") { file_name(relative) } else { relative.to_owned() };
        texts.insert(key, text);
    }
    Ok(())
}

/// `LICENSE`, `LICENCE-MIT.txt`, `COPYING`, `NOTICE.md`, `UNLICENSE`, `COPYRIGHT`; not `license.rs`.
fn is_licence_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let (stem, suffix) = upper.rsplit_once('.').unwrap_or((&upper, ""));
    let text =
        !matches!(suffix, "RS" | "C" | "H" | "PY" | "TOML" | "JSON" | "YML" | "YAML" | "SH" | "HTML" | "SVG" | "PNG");
    text && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT", "LICENSES"].iter().any(|word| {
        stem == *word
            || upper.starts_with(&format!("{word}-"))
            || upper.starts_with(&format!("{word}."))
            || upper.starts_with(&format!("{word}_"))
    })
}

fn cargo(source: &Path, args: &[&str]) -> Result<String, PackageError> {
    let tool = || format!("cargo {}", args.first().unwrap_or(&""));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(args).current_dir(source).env("LC_ALL", "C").output();
    let output = output.map_err(|error| PackageError::Tool { tool: tool(), why: error.to_string() })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().find(|line| line.starts_with("error")).unwrap_or("no reason given").to_owned();
        return Err(PackageError::Tool { tool: tool(), why });
    }
    String::from_utf8(output.stdout).map_err(|error| PackageError::Tool { tool: tool(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_files_are_known_by_name() {
        for name in [
            "LICENSE",
            "LICENSE-MIT",
            "license-apache-2.0",
            "LICENSE.md",
            "COPYING",
            "NOTICE.txt",
            "UNLICENSE",
            "LICENCE",
        ] {
            assert!(is_licence_name(name), "{name}");
        }
        for name in ["license.rs", "licenses.json", "LICENSING.md", "README", "notice_board.txt.rs"] {
            assert!(!is_licence_name(name), "{name}");
        }
    }

    #[test]
    fn lines_of_cargo_tree() {
        let line = |text| name_and_version(text).map(|(name, version)| format!("{name}/{version}"));
        assert_eq!(line("serde v1.0.228").as_deref(), Some("serde/1.0.228"));
        assert_eq!(line("serde v1.0.228 (*)").as_deref(), Some("serde/1.0.228"));
        assert_eq!(line(""), None);
    }
}
