//! The release index: every archive of a folder with size and digests, beside it the checksum list
//! for people with coreutils. Signing is `sign`'s work; an index that changes loses its signatures.

pub use crate::digest::Digests;

use crate::PackageError;
use crate::archive_write::Format;
use crate::peek::manifest_text;
use crate::sign::signature_path;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use strata_manifest::{
    Component, Document, KEYS_FILE, RELEASE_FILE, Release, ReleaseComponent, ReleaseFile, ReleaseModel, SUMS_FILE,
    Sha256Digest, UtcTime,
};

/// What an index says that no archive does.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    pub created: UtcTime,
    pub expires: UtcTime,
    /// Rollback counter; without one, the seconds of `created`.
    pub serial: Option<u64>,
    /// Models to offer: name and files in the folder.
    pub models: Vec<(String, Vec<PathBuf>)>,
}

/// Lists the archives of a folder in `release.json` and `SHA256SUMS.txt`. An earlier index there is
/// replaced when its counter is lower.
pub fn index(folder: &Path, options: &IndexOptions) -> Result<Release, PackageError> {
    let bad = |why: String| PackageError::Release { folder: folder.to_owned(), why };
    let mut components: BTreeMap<String, ReleaseComponent> = BTreeMap::new();
    let mut version = None;
    for (name, format) in archives(folder)? {
        let path = folder.join(&name);
        let text = manifest_text(&path, format).map_err(|error| bad(format!("`{name}` is no package: {error}")))?;
        let component = Component::parse(&text, &path)?;
        let expected = format!("{}.{}", component.stem(), format.suffix());
        if expected != name {
            return Err(bad(format!("`{name}` holds what would be called `{expected}`")));
        }
        let agreed = version.get_or_insert_with(|| component.version.clone());
        if *agreed != component.version {
            return Err(bad(format!("`{name}` has version {}, others have {agreed}", component.version)));
        }
        let manifest_sha256 = Sha256Digest::of_bytes(text.as_bytes());
        let entry = components.entry(component.stem()).or_insert_with(|| ReleaseComponent {
            component: component.component.clone(),
            backend: component.backend.clone(),
            version: component.version.clone(),
            os: component.os.clone(),
            cpu_arch: component.cpu_arch.clone(),
            gpu_targets: component.gpu_targets.clone(),
            abi: component.abi.clone(),
            libc_floor: component.libc_floor.clone(),
            unpacked_bytes: component.unpacked_bytes() + text.len() as u64,
            manifest_sha256,
            archives: Vec::new(),
        });
        if entry.manifest_sha256 != manifest_sha256 {
            return Err(bad(format!(
                "`{name}` holds another `component.json` than the other archive of that component"
            )));
        }
        entry.archives.push(release_file(folder, &path, format.suffix())?);
    }
    let version = version.ok_or_else(|| bad("no archive of a component lies in it".to_owned()))?;
    let mut components: Vec<ReleaseComponent> = components.into_values().collect();
    components.sort_by(|a, b| {
        (&a.component, &a.backend, &a.os, &a.cpu_arch).cmp(&(&b.component, &b.backend, &b.os, &b.cpu_arch))
    });
    let serial = options.serial.unwrap_or(options.created.seconds());
    let release = Release {
        schema: Release::SCHEMA.to_owned(),
        version,
        serial,
        created: options.created,
        expires: options.expires,
        components,
        models: models(folder, options)?,
    };
    if let Some(fault) = release.faults().into_iter().next() {
        return Err(bad(fault));
    }
    write(folder, &release)?;
    Ok(release)
}

/// Archives of the folder by name, with their format.
fn archives(folder: &Path) -> Result<Vec<(String, Format)>, PackageError> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).map_err(PackageError::unreadable(folder))? {
        let entry = entry.map_err(PackageError::unreadable(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let format = Format::of_name(&name).filter(|(stem, _)| stem.starts_with("strata-")).map(|(_, format)| format);
        found.extend(format.map(|format| (name, format)));
    }
    found.sort();
    Ok(found)
}

fn release_file(folder: &Path, path: &Path, format: &str) -> Result<ReleaseFile, PackageError> {
    let bad = |why: String| PackageError::Release { folder: folder.to_owned(), why };
    let relative = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let relative = relative.ok_or_else(|| bad(format!("`{}` does not lie in it", path.display())))?;
    let digests = Digests::of_file(path)?;
    Ok(ReleaseFile {
        path: Some(relative.parse().map_err(|error: strata_manifest::BadPath| bad(error.to_string()))?),
        url: None,
        format: format.to_owned(),
        size: digests.size,
        sha256: digests.sha256,
        chunks_sha256: (!digests.chunks.is_empty()).then(|| Sha256Digest::of_digests(&digests.chunks)),
        chunks: digests.chunks,
    })
}

fn models(folder: &Path, options: &IndexOptions) -> Result<Vec<ReleaseModel>, PackageError> {
    let mut models = Vec::new();
    for (name, files) in &options.models {
        let file = |path: &PathBuf| {
            let format = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            release_file(folder, &folder.join(path), &format)
        };
        models.push(ReleaseModel { name: name.clone(), files: files.iter().map(file).collect::<Result<_, _>>()? });
    }
    Ok(models)
}

fn write(folder: &Path, release: &Release) -> Result<(), PackageError> {
    let path = folder.join(RELEASE_FILE);
    if path.is_file() {
        let earlier = Release::read(&path)?;
        let changed = earlier != *release;
        if changed && release.serial <= earlier.serial {
            let why =
                format!("the index there has number {}, and the new one would have {}", earlier.serial, release.serial);
            return Err(PackageError::Release { folder: folder.to_owned(), why });
        }
    }
    // From here on the signatures are of another text, also when this is interrupted.
    for name in [RELEASE_FILE, SUMS_FILE] {
        let signature = signature_path(&folder.join(name));
        if signature.exists() {
            fs_err::remove_file(&signature).map_err(PackageError::unwritable(&signature))?;
        }
    }
    release.write(&path)?;
    let sums = folder.join(SUMS_FILE);
    let beside = folder.join(format!(".{SUMS_FILE}.new"));
    fs_err::write(&beside, sums_text(release)).map_err(PackageError::unwritable(&beside))?;
    fs_err::rename(&beside, &sums).map_err(PackageError::unwritable(&sums))
}

/// The list in the form of GNU coreutils, sorted by name: every file of the index that lies in the
/// folder, and the index itself.
pub fn sums_text(release: &Release) -> String {
    let mut lines: BTreeMap<&str, Sha256Digest> = BTreeMap::new();
    lines.extend(release.files().filter_map(|file| Some((file.path.as_ref()?.as_str(), file.sha256))));
    lines.insert(RELEASE_FILE, Sha256Digest::of_bytes(release.to_text().as_bytes()));
    lines.iter().fold(String::new(), |mut text, (name, digest)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{digest}  {name}");
        text
    })
}

/// Whether every file that the index lists lies in the folder with its size and digest, and the
/// checksum list is the index's: what is looked at before anything is signed.
pub fn check(folder: &Path) -> Result<Release, PackageError> {
    let bad = |why: String| PackageError::Release { folder: folder.to_owned(), why };
    let release = Release::read(&folder.join(RELEASE_FILE))?;
    for file in release.files() {
        let Some(path) = &file.path else { continue };
        let digests = Digests::of_file(&path.below(folder))?;
        if (digests.size, digests.sha256) != (file.size, file.sha256) {
            return Err(bad(format!("`{path}` is not the file that the index lists")));
        }
    }
    let listed: Vec<&str> = release.files().filter_map(|file| Some(file.path.as_ref()?.as_str())).collect();
    if let Some((name, _)) = archives(folder)?.iter().find(|(name, _)| !listed.contains(&name.as_str())) {
        return Err(bad(format!("`{name}` lies in it and the index does not list it")));
    }
    let sums = folder.join(SUMS_FILE);
    let text = fs_err::read_to_string(&sums).map_err(PackageError::unreadable(&sums))?;
    if text != sums_text(&release) {
        return Err(bad(format!("`{SUMS_FILE}` is not the index's list")));
    }
    Ok(release)
}

/// Files of a release folder that are signed with a release key.
pub fn signed_files(folder: &Path) -> Vec<PathBuf> {
    [RELEASE_FILE, SUMS_FILE].into_iter().map(|name| folder.join(name)).collect()
}

/// Where the key list of a release folder lies.
pub fn keys_path(folder: &Path) -> PathBuf {
    folder.join(KEYS_FILE)
}
