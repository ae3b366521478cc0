//! `component.json`: what one package holds, file by file. The packager writes it, the verifier and
//! the installer read it.
//!
//! It lists every file of the package but itself; its own digest stands in the release index. Rules
//! between its fields are in [`Component::faults`]; `parse` and `read` refuse a document with one.

use crate::{BuildRecord, Document, ManifestError, PackagePath, Sha256Digest, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Files above this size carry a digest for each piece of this size, in bytes.
pub const CHUNK_BYTES: u64 = 8 << 20;
/// Most files that a component may list.
pub const MAX_FILES: usize = 100_000;
/// Most bytes that a component may unpack to.
pub const MAX_UNPACKED_BYTES: u64 = 1 << 40;
/// Name of the document in the top folder of a package.
pub const COMPONENT_FILE: &str = "component.json";

/// One component of a release, as one package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Component {
    /// `strata-component/1.0`.
    pub schema: String,
    /// `control` or `engine`.
    pub component: String,
    /// `cpu`, `cuda`, `hip-rx7900`, `hip-gfx906`; control has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    pub version: Version,
    /// `linux`.
    pub os: String,
    /// `x86_64`.
    pub cpu_arch: String,
    /// Seconds since 1970 that every entry of the archive has as its time.
    pub source_epoch: u64,
    /// What the ELF files of this package say in their notes; its `name` is the component's.
    pub build: BuildRecord,
    /// Which plugin ABI it speaks; components without a plugin have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<AbiRange>,
    /// GPU targets read out of its code objects, sorted: `gfx906:sramecc+:xnack-`, `sm_90`, `compute_80`.
    #[serde(default)]
    pub gpu_targets: Vec<String>,
    /// Highest glibc symbol version that any of its files needs: `2.28`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libc_floor: Option<String>,
    /// Highest libstdc++ symbol version (`GLIBCXX_`) that any of its files needs: `3.4.22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libstdcxx_floor: Option<String>,
    /// Libraries that the host must have, sorted by name.
    #[serde(default)]
    pub host_libraries: Vec<HostLibrary>,
    /// Parts by others that are in the files, sorted by name and version.
    #[serde(default)]
    pub third_party: Vec<ThirdParty>,
    /// The bills of material among the files.
    #[serde(default)]
    pub sboms: Vec<PackagePath>,
    /// Every file but `component.json`, sorted by path as bytes.
    pub files: Vec<PackageFile>,
}

/// One file of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackageFile {
    pub path: PackagePath,
    /// Bytes.
    pub size: u64,
    pub mode: FileMode,
    pub sha256: Sha256Digest,
    pub role: Role,
    /// SHA-256 of each 8 MiB piece in order, the last one shorter; only for files above 8 MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Sha256Digest>,
}

/// Permission bits: there are just these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FileMode {
    #[serde(rename = "0644")]
    Plain,
    #[serde(rename = "0755")]
    Executable,
}

impl FileMode {
    pub fn bits(self) -> u32 {
        match self {
            FileMode::Plain => 0o644,
            FileMode::Executable => 0o755,
        }
    }

    /// The mode with these permission bits, if it is one of the two.
    pub fn from_bits(bits: u32) -> Option<Self> {
        [FileMode::Plain, FileMode::Executable].into_iter().find(|mode| mode.bits() == bits)
    }
}

impl std::fmt::Display for FileMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04o}", self.bits())
    }
}

/// What a file is for. Roles of a newer Strata are read as [`Role::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A program.
    Binary,
    /// A backend plugin's library.
    Plugin,
    /// The descriptor beside a plugin.
    Descriptor,
    /// GPU code that lies in a file of its own.
    Kernel,
    /// A library that files of this package need.
    RuntimeLib,
    TuningTable,
    License,
    Doc,
    /// A bill of material.
    Sbom,
    Data,
    #[serde(other)]
    Unknown,
}

/// Plugin ABI versions, `major.minor`, and the layout that they were built with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbiRange {
    pub lowest: String,
    pub highest: String,
    pub layout_hash: String,
}

/// A library that is not in the package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct HostLibrary {
    /// `libcuda.so.1`.
    pub soname: String,
    /// Opened at run time when it is there; without it the program says so and goes on.
    #[serde(default)]
    pub optional: bool,
}

/// A part by somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThirdParty {
    pub name: String,
    pub version: String,
    /// SPDX licence expression.
    pub licence: String,
    /// Files of this package that hold the licence's text.
    pub licence_files: Vec<PackagePath>,
    /// Where those texts come from when the part itself carries none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence_note: Option<String>,
    /// Package URL: `pkg:cargo/serde@1.0.228`.
    pub source: String,
}

impl Document for Component {
    const SCHEMA: &'static str = "strata-component/1.0";

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.name_faults(&mut faults);
        self.file_faults(&mut faults);
        self.reference_faults(&mut faults);
        faults
    }
}

impl Component {
    /// Name of the archive without its suffix, and of the one folder in it:
    /// `strata-engine-0.1.0-linux-x86_64-cpu`.
    pub fn stem(&self) -> String {
        let backend = self.backend.as_deref().map(|backend| format!("-{backend}")).unwrap_or_default();
        format!("strata-{}-{}-{}-{}{backend}", self.component, self.version, self.os, self.cpu_arch)
    }

    /// `control`, `engine-cpu`: names the component within a release and an installation.
    pub fn id(&self) -> String {
        component_id(&self.component, self.backend.as_deref())
    }

    /// Bytes of all listed files.
    pub fn unpacked_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// The listed file of that path.
    pub fn file(&self, path: &str) -> Option<&PackageFile> {
        let found = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files.get(found)
    }

    fn name_faults(&self, faults: &mut Vec<String>) {
        let mut words = vec![("component", &self.component), ("os", &self.os), ("cpu_arch", &self.cpu_arch)];
        words.extend(self.backend.as_ref().map(|backend| ("backend", backend)));
        for (field, word) in words {
            if !is_word(word, field == "backend") {
                faults.push(format!("`{field}` is `{}`, which is no name", word.escape_default()));
            }
        }
        if self.build.version != self.version {
            faults.push(format!("`version` is {} and `build.version` {}", self.version, self.build.version));
        }
    }

    fn file_faults(&self, faults: &mut Vec<String>) {
        if self.files.len() > MAX_FILES {
            faults.push(format!("{} files are listed, {MAX_FILES} are the most", self.files.len()));
            return;
        }
        let bytes = self.unpacked_bytes();
        if bytes > MAX_UNPACKED_BYTES {
            faults.push(format!("its files have {bytes} bytes, {MAX_UNPACKED_BYTES} are the most"));
        }
        for pair in self.files.windows(2) {
            if pair[0].path >= pair[1].path {
                faults.push(format!("`{}` comes before `{}`: not sorted, or twice", pair[0].path, pair[1].path));
            }
        }
        // Folders count with their files: `Lib/a` and `lib/b` are one folder where case is not kept.
        let mut seen: BTreeMap<String, (&str, bool)> = BTreeMap::new();
        for file in &self.files {
            let path = file.path.as_str();
            let folders = path.match_indices('/').map(|(end, _)| (&path[..end], true));
            for (name, folder) in folders.chain([(path, false)]) {
                let (first, was_folder) = *seen.entry(name.to_ascii_lowercase()).or_insert((name, folder));
                if first != name {
                    faults.push(format!("`{first}` and `{name}` differ only in case"));
                } else if was_folder != folder {
                    faults.push(format!("`{name}` is a file and a folder"));
                }
            }
            if path.eq_ignore_ascii_case(COMPONENT_FILE) {
                faults.push(format!("`{path}` is listed: the manifest does not list itself"));
            }
            let chunks = if file.size > CHUNK_BYTES { file.size.div_ceil(CHUNK_BYTES) } else { 0 };
            if file.chunks.len() as u64 != chunks {
                let got = file.chunks.len();
                faults.push(format!("`{path}` has {} bytes and {got} chunk digests, not {chunks}", file.size));
            }
        }
    }

    fn reference_faults(&self, faults: &mut Vec<String>) {
        let licences =
            self.third_party.iter().flat_map(|part| part.licence_files.iter().map(|path| (path, Role::License)));
        for (path, role) in self.sboms.iter().map(|path| (path, Role::Sbom)).chain(licences) {
            match self.file(path.as_str()) {
                None => faults.push(format!("`{path}` is named and not among the files")),
                Some(file) if file.role != role => {
                    faults.push(format!("`{path}` has role {:?}, not {role:?}", file.role));
                }
                Some(_) => {}
            }
        }
        for (field, text) in [("libc_floor", &self.libc_floor), ("libstdcxx_floor", &self.libstdcxx_floor)] {
            if let Some(text) = text.as_ref().filter(|text| !is_dotted(text)) {
                faults.push(format!("`{field}` is `{}`, which is no version of numbers", text.escape_default()));
            }
        }
    }

    /// Reads the text without the rules of [`Document::faults`], for the verifier, which reports them one by one.
    pub fn parse_unchecked(text: &str, path: &Path) -> Result<Self, ManifestError> {
        crate::document::parse_schema(text, path)
    }
}

/// `control`, or `engine-cpu` of `engine` and `cpu`.
pub fn component_id(component: &str, backend: Option<&str>) -> String {
    backend.map_or_else(|| component.to_owned(), |backend| format!("{component}-{backend}"))
}

/// A name that can be part of a file name: lower-case letters, digits, `_`, and `-` inside where allowed.
fn is_word(text: &str, hyphens: bool) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    (1..=40).contains(&text.len())
        && text.split('-').all(|part| !part.is_empty() && part.bytes().all(plain))
        && (hyphens || !text.contains('-'))
}

/// `2.28`, `3.4.22`.
pub(crate) fn is_dotted(text: &str) -> bool {
    text.split('.').all(|part| (1..=9).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64) -> PackageFile {
        let chunks = if size > CHUNK_BYTES { size.div_ceil(CHUNK_BYTES) } else { 0 };
        let sha256 = Sha256Digest::of_bytes(b"");
        let path = path.parse().unwrap();
        PackageFile {
            path,
            size,
            mode: FileMode::Plain,
            sha256,
            role: Role::Data,
            chunks: vec![sha256; chunks as usize],
        }
    }

    fn component(files: Vec<PackageFile>) -> Component {
        let version: Version = "0.1.45+3".parse().unwrap();
        let build = BuildRecord {
            schema: BuildRecord::SCHEMA.to_owned(),
            name: "engine-cpu".to_owned(),
            version: version.clone(),
            build_id: "0.1.45+3-x".to_owned(),
            commit: "unknown".to_owned(),
            dirty: false,
            target: "x86_64-unknown-linux-gnu".to_owned(),
            toolchain: "unknown".to_owned(),
            source_epoch: 0,
        };
        Component {
            schema: Component::SCHEMA.to_owned(),
            component: "engine".to_owned(),
            backend: Some("cpu".to_owned()),
            version,
            os: "linux".to_owned(),
            cpu_arch: "x86_64".to_owned(),
            source_epoch: 0,
            build,
            abi: None,
            gpu_targets: Vec::new(),
            libc_floor: Some("2.28".to_owned()),
            libstdcxx_floor: None,
            host_libraries: Vec::new(),
            third_party: Vec::new(),
            sboms: Vec::new(),
            files,
        }
    }

    #[test]
    fn a_sound_component_round_trips() {
        let component =
            component(vec![file("bin/strata", 3), file("lib/a", CHUNK_BYTES + 1), file("lib/b", CHUNK_BYTES)]);
        assert_eq!(component.faults(), Vec::<String>::new());
        assert_eq!(
            (component.stem().as_str(), component.id().as_str()),
            ("strata-engine-0.1.45+3-linux-x86_64-cpu", "engine-cpu")
        );
        assert_eq!(Component::parse(&component.to_text(), Path::new("component.json")).unwrap(), component);
        assert_eq!(component.file("lib/b").unwrap().size, CHUNK_BYTES);
        assert_eq!(component.unpacked_bytes(), 2 * CHUNK_BYTES + 4);
    }

    #[test]
    fn each_rule_between_fields_has_its_sentence() {
        let mut other_version = component(Vec::new());
        other_version.version = "0.1.45".parse().unwrap();
        let mut no_name = component(Vec::new());
        no_name.component = "../x".to_owned();
        let mut floor = component(Vec::new());
        floor.libc_floor = Some("GLIBC_2.28".to_owned());
        let mut sbom = component(vec![file("share/sbom.json", 1)]);
        sbom.sboms = vec!["share/sbom.json".parse().unwrap(), "share/absent.json".parse().unwrap()];
        let mut chunk = component(vec![file("a", 2 * CHUNK_BYTES)]);
        chunk.files[0].chunks.pop();
        let huge = component(vec![PackageFile { size: u64::MAX, ..file("a", 1) }, file("b", 1)]);
        for (component, part) in [
            (other_version, "`version` is 0.1.45 and `build.version` 0.1.45+3"),
            (no_name, "no name"),
            (floor, "no version of numbers"),
            (sbom, "`share/absent.json` is named and not among the files"),
            (chunk, "1 chunk digests, not 2"),
            (huge, "are the most"),
            (component(vec![file("b", 1), file("a", 1)]), "not sorted"),
            (component(vec![file("a", 1), file("a", 1)]), "twice"),
            (component(vec![file("A", 1), file("a", 1)]), "differ only in case"),
            (component(vec![file("Lib/a", 1), file("lib/b", 1)]), "differ only in case"),
            (component(vec![file("lib", 1), file("lib/b", 1)]), "a file and a folder"),
            (component(vec![file("component.json", 1)]), "does not list itself"),
        ] {
            let error = Component::parse(&component.to_text(), Path::new("component.json")).unwrap_err().to_string();
            assert!(error.contains(part), "{error} / {part}");
            assert!(Component::parse_unchecked(&component.to_text(), Path::new("component.json")).is_ok());
        }
    }

    #[test]
    fn a_newer_minor_is_read_and_a_bad_path_is_not() {
        let text = component(vec![file("bin/strata", 3)]).to_text();
        let newer = text.replace("strata-component/1.0", "strata-component/1.9").replace("\"data\"", "\"hologram\"");
        let read = Component::parse(&newer, Path::new("component.json")).unwrap();
        assert_eq!(read.files[0].role, Role::Unknown);
        let error =
            Component::parse(&text.replace("bin/strata", "../strata"), Path::new("component.json")).unwrap_err();
        assert!(error.to_string().contains("a part `.` or `..`"), "{error}");
        assert!(Component::parse(&text.replace("0644", "4755"), Path::new("component.json")).is_err());
    }
}
