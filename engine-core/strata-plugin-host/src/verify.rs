//! Everything that is checked about a plugin before its library is opened: the descriptor against
//! this machine and this host, then the file against the descriptor. Reads one file, once. Called
//! by `Plugin::open`, in the program and again in the probe child.

use crate::elf::{self, ElfFault};
use crate::error::{AbiRange, parse_abi};
use crate::raw::{self, HOST_ABI};
use crate::{PluginEntry, PluginError};
use std::io::{Read, Seek};
use std::path::{Component, Path, PathBuf};
use strata_backend_abi::{layout, negotiate};
use strata_manifest::{BackendKind, Sha256Digest};

/// What a descriptor is compared with.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) os: String,
    pub(crate) cpu_arch: String,
    /// Version of glibc, when that is the C library.
    pub(crate) libc: Option<String>,
    /// Where `/sys` and `/proc` lie; `/` but for tests.
    pub(crate) root: PathBuf,
}

impl Machine {
    pub(crate) fn this() -> Machine {
        Machine {
            os: std::env::consts::OS.to_owned(),
            cpu_arch: std::env::consts::ARCH.to_owned(),
            libc: raw::glibc_version(),
            root: PathBuf::from("/"),
        }
    }

    /// Version of the kernel driver that a plugin of this kind works through, when it can be told
    /// without the vendor's tools.
    pub(crate) fn driver(&self, kind: BackendKind) -> Option<String> {
        let path = match kind {
            BackendKind::Cuda => "sys/module/nvidia/version",
            BackendKind::Hip => "sys/module/amdgpu/version",
            BackendKind::Cpu | BackendKind::Unknown => return None,
        };
        read_line(&self.root.join(path))
    }
}

/// First line of a small text file.
pub(crate) fn read_line(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs_err::File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Checks all; returns the library's path with links resolved.
pub(crate) fn verify(entry: &PluginEntry, machine: &Machine) -> Result<PathBuf, PluginError> {
    fits_machine(entry, machine)?;
    fits_host(entry)?;
    let path = library_path(entry)?;
    fits_descriptor(entry, &path, &machine.cpu_arch)?;
    Ok(path)
}

fn fits_machine(entry: &PluginEntry, machine: &Machine) -> Result<(), PluginError> {
    let descriptor = entry.descriptor();
    let other = |what, expected: &str, got: &str| PluginError::OtherMachine {
        path: entry.path().to_owned(),
        what,
        expected: expected.to_owned(),
        got: got.to_owned(),
    };
    if descriptor.os != machine.os {
        return Err(other("operating system", &machine.os, &descriptor.os));
    }
    if descriptor.cpu_arch != machine.cpu_arch {
        return Err(other("processor", &machine.cpu_arch, &descriptor.cpu_arch));
    }
    if let Some(needs) = &descriptor.libc_floor {
        let has = machine.libc.as_deref();
        if has.is_none_or(|has| !reaches(has, needs)) {
            let has = has.unwrap_or("another C library").to_owned();
            return Err(PluginError::LibcTooOld { path: entry.path().to_owned(), needs: needs.clone(), has });
        }
    }
    if let Some(needs) = &descriptor.driver_floor
        && let Some(has) = machine.driver(descriptor.kind)
        && !reaches(&has, needs)
    {
        return Err(PluginError::DriverTooOld { plugin: descriptor.name.clone(), needs: needs.clone(), has });
    }
    Ok(())
}

/// Whether version `has` is `needs` or later, by the numbers in them. What is no number counts as 0.
fn reaches(has: &str, needs: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().unwrap_or(u64::MAX))
            .collect()
    };
    let (mut has, mut needs) = (numbers(has), numbers(needs));
    let len = has.len().max(needs.len());
    has.resize(len, 0);
    needs.resize(len, 0);
    has >= needs
}

fn fits_host(entry: &PluginEntry) -> Result<(), PluginError> {
    let descriptor = entry.descriptor();
    let parse = |text: &str| {
        parse_abi(text).ok_or_else(|| PluginError::Descriptor {
            path: entry.path().to_owned(),
            reason: format!("`{text}` is no ABI version"),
        })
    };
    let theirs: AbiRange = (parse(&descriptor.abi_lowest)?, parse(&descriptor.abi_highest)?);
    if negotiate(HOST_ABI, theirs).is_none_or(|abi| abi >> 16 != HOST_ABI.1 >> 16) {
        return Err(PluginError::Abi { plugin: descriptor.name.clone(), ours: HOST_ABI, theirs });
    }
    // Only a plugin of the very same minor has to have the very same layout; others agree by the rule that
    // structs only grow, which the recorded layouts prove.
    let ours = layout::hash();
    if theirs.1 == HOST_ABI.1 && descriptor.layout_hash != ours {
        let got = descriptor.layout_hash.clone();
        return Err(PluginError::Layout { plugin: descriptor.name.clone(), expected: ours, got });
    }
    Ok(())
}

/// The library lies in the descriptor's own folder: its name has no path in it, and a link may
/// lead to another file of the folder only.
fn library_path(entry: &PluginEntry) -> Result<PathBuf, PluginError> {
    let name = Path::new(&entry.descriptor().library);
    let is_plain =
        matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(only)] if only == name.as_os_str());
    if !is_plain {
        let reason = format!("its library `{}` is no plain file name", name.display());
        return Err(PluginError::Descriptor { path: entry.path().to_owned(), reason });
    }
    let path = entry.library_path();
    let fault = |reason: String| PluginError::NotALibrary { path: path.clone(), reason };
    let metadata = std::fs::symlink_metadata(&path).map_err(|error| fault(error.to_string()))?;
    let folder = entry.path().parent().unwrap_or(Path::new("/"));
    let folder = std::fs::canonicalize(folder).map_err(|error| fault(error.to_string()))?;
    let real = std::fs::canonicalize(&path).map_err(|error| {
        let link = if metadata.is_symlink() { "it is a link that leads nowhere: " } else { "" };
        fault(format!("{link}{error}"))
    })?;
    if real.parent() != Some(&folder) {
        return Err(fault(format!("it is a link out of its folder, to `{}`", real.display())));
    }
    if !std::fs::metadata(&real).map_err(|error| fault(error.to_string()))?.is_file() {
        return Err(fault("it is no regular file".to_owned()));
    }
    Ok(real)
}

fn fits_descriptor(entry: &PluginEntry, path: &Path, cpu_arch: &str) -> Result<(), PluginError> {
    let descriptor = entry.descriptor();
    let fault = |error: &std::io::Error| PluginError::NotALibrary { path: path.to_owned(), reason: error.to_string() };
    let mut file = fs_err::File::open(path).map_err(|error| fault(&error))?;
    let size = file.metadata().map_err(|error| fault(&error))?.len();
    if size != descriptor.size {
        return Err(PluginError::Size { path: path.to_owned(), expected: descriptor.size, got: size });
    }
    let mut head = Vec::new();
    file.by_ref().take(elf::HEAD_BYTES as u64).read_to_end(&mut head).map_err(|error| fault(&error))?;
    file.rewind().map_err(|error| fault(&error))?;
    let (digest, read) = Sha256Digest::of_reader(file.take(size + 1)).map_err(|error| fault(&error))?;
    if digest != descriptor.sha256 || read != size {
        let (expected, got) = (descriptor.sha256.to_string(), digest.to_string());
        return Err(PluginError::Digest { path: path.to_owned(), expected, got });
    }
    if descriptor.os != "linux" {
        return Ok(());
    }
    elf::check(&head, size, cpu_arch).map_err(|fault| match fault {
        ElfFault::Broken(reason) => PluginError::NotALibrary { path: path.to_owned(), reason },
        ElfFault::Machine(got) => {
            PluginError::OtherMachine { path: path.to_owned(), what: "processor", expected: cpu_arch.to_owned(), got }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        for (has, needs) in
            [("2.36", "2.28"), ("2.28", "2.28"), ("535.104.05", "535.54"), ("2.28.1", "2.28"), ("3", "2.99")]
        {
            assert!(reaches(has, needs), "{has} {needs}");
        }
        for (has, needs) in [("2.4", "2.28"), ("", "2.17"), ("470.256.02", "525.60.13"), ("garbage", "1")] {
            assert!(!reaches(has, needs), "{has} {needs}");
        }
    }
}
