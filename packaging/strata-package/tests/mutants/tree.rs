//! A package as a list of entries that can be changed one by one and written again, faults and all.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use strata_manifest::{CHUNK_BYTES, Component, Document, FileMode, PluginDescriptor, Role, Sha256Digest};
use strata_package::archive_write::{Format, Gzip, TarEncoder, ZipEncoder, entries, zstd};
use strata_package::sbom;

pub(crate) const MANIFEST: &str = "component.json";

/// What stands at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Folder(u32),
    File(u32, Vec<u8>),
    /// Kind of a tar entry and its target: `2` symbolic, `1` hard, `3` device, `6` pipe.
    Other(u8, String),
}

/// Entries in their order, names as they stand in an archive.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) stem: String,
    pub(crate) epoch: u64,
    pub(crate) entries: Vec<(String, Node)>,
}

impl Tree {
    /// The tree of a component and its unpacked folder.
    pub(crate) fn read(component: &Component, folder: &Path) -> Self {
        let stem = component.stem();
        let listed = entries(component);
        let nodes = listed.iter().map(|entry| {
            let name = entry.name().to_owned();
            let path = folder.join(name.strip_prefix(&format!("{stem}/")).unwrap());
            let node = if name.ends_with('/') {
                Node::Folder(0o755)
            } else {
                let mode = fs_err::metadata(&path).unwrap().permissions().mode() & 0o7777;
                Node::File(mode, fs_err::read(&path).unwrap())
            };
            (name, node)
        });
        Tree { epoch: component.source_epoch, entries: nodes.collect(), stem: stem.clone() }
    }

    pub(crate) fn component(&self) -> Component {
        Component::parse(std::str::from_utf8(self.bytes(MANIFEST)).unwrap(), Path::new(MANIFEST)).unwrap()
    }

    pub(crate) fn place(&self, path: &str) -> usize {
        let name = format!("{}/{path}", self.stem);
        self.entries.iter().position(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub(crate) fn bytes(&self, path: &str) -> &[u8] {
        match &self.entries[self.place(path)].1 {
            Node::File(_, bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn set(&mut self, path: &str, bytes: Vec<u8>) {
        let at = self.place(path);
        let Node::File(mode, _) = self.entries[at].1 else { panic!("no file") };
        self.entries[at].1 = Node::File(mode, bytes);
    }

    /// Places of the files, or of all entries but the top folder.
    pub(crate) fn places(&self, files: bool) -> Vec<usize> {
        let all = 1..self.entries.len();
        all.filter(|at| !files || matches!(self.entries[*at].1, Node::File(..))).collect()
    }

    /// An entry at its canonical place.
    pub(crate) fn add(&mut self, path: &str, node: Node) {
        let name = format!("{}/{path}", self.stem);
        let at = self.entries.iter().skip(2).position(|(known, _)| *known > name);
        let at = at.map_or(self.entries.len(), |at| at + 2);
        self.entries.insert(at, (name, node));
    }

    /// Makes everything that a packer would have written fit the files again: digests in the manifest and
    /// in the descriptor, bills of material. What is then wrong is wrong in the files themselves.
    pub(crate) fn repair(&mut self, change: impl FnOnce(&mut Component)) {
        let mut component = self.component();
        change(&mut component);
        let descriptors: Vec<String> = component
            .files
            .iter()
            .filter(|file| file.role == Role::Descriptor)
            .map(|file| file.path.to_string())
            .collect();
        for path in descriptors {
            let text = String::from_utf8(self.bytes(&path).to_vec()).unwrap();
            let Ok(mut descriptor) = PluginDescriptor::parse(&text, Path::new(&path)) else { continue };
            let library = format!("{}/{}", path.rsplit_once('/').unwrap().0, descriptor.library);
            let bytes = self.bytes(&library);
            (descriptor.sha256, descriptor.size) = (Sha256Digest::of_bytes(bytes), bytes.len() as u64);
            self.set(&path, descriptor.to_text().into_bytes());
        }
        self.list(&mut component, |role| role != Role::Sbom);
        let mut bare = component.clone();
        bare.sboms.clear();
        bare.files.retain(|file| file.role != Role::Sbom);
        for path in component.sboms.clone() {
            let text = if path.file_name() == sbom::SPDX_FILE { sbom::spdx(&bare) } else { sbom::cyclonedx(&bare) };
            self.set(path.as_str(), text.into_bytes());
        }
        self.list(&mut component, |role| role == Role::Sbom);
        self.set(MANIFEST, component.to_text().into_bytes());
    }

    fn list(&self, component: &mut Component, which: impl Fn(Role) -> bool) {
        for file in component.files.iter_mut().filter(|file| which(file.role)) {
            let bytes = self.bytes(file.path.as_str());
            (file.size, file.sha256) = (bytes.len() as u64, Sha256Digest::of_bytes(bytes));
            file.chunks.clear();
            if file.size > CHUNK_BYTES {
                file.chunks = bytes.chunks(CHUNK_BYTES as usize).map(Sha256Digest::of_bytes).collect();
            }
        }
    }

    /// The archive of these entries; `None` where the format has no room for one of them.
    pub(crate) fn archive(&self, format: Format) -> Option<Vec<u8>> {
        Some(match format {
            Format::TarGz => pack_gz(&self.tar()),
            Format::TarZst => pack_zst(&self.tar()),
            Format::Zip => {
                let mut zip = ZipEncoder::new(Vec::new(), self.epoch);
                for (name, node) in &self.entries {
                    match node {
                        Node::Folder(0o755) => zip.folder(name).unwrap(),
                        Node::File(mode, bytes) => {
                            let mode = FileMode::from_bits(*mode)?;
                            let mut open = || Ok(Box::new(Cursor::new(bytes.clone())) as Box<dyn Read>);
                            zip.file(name, bytes.len() as u64, mode, &mut open).unwrap();
                        }
                        Node::Folder(_) | Node::Other(..) => return None,
                    }
                }
                zip.finish().unwrap()
            }
        })
    }

    pub(crate) fn tar(&self) -> Vec<u8> {
        let mut tar = Vec::new();
        for (name, node) in &self.entries {
            let start = tar.len();
            let mut one = TarEncoder::new(Vec::new(), self.epoch);
            match node {
                Node::Folder(_) | Node::Other(..) => one.folder(name).unwrap(),
                Node::File(_, bytes) => one.file(name, bytes.len() as u64, FileMode::Plain, &mut &bytes[..]).unwrap(),
            }
            let one = one.finish().unwrap();
            tar.extend_from_slice(&one[..one.len() - 1024]);
            // The header is the last one before the data: a pax header may come first.
            let data = if let Node::File(_, bytes) = node { bytes.len().next_multiple_of(512) } else { 0 };
            let header = tar.len() - data - 512;
            assert!(header >= start);
            let (mode, kind, link) = match node {
                Node::Folder(mode) => (*mode, b'5', ""),
                Node::File(mode, _) => (*mode, b'0', ""),
                Node::Other(kind, link) => (0o777, *kind, link.as_str()),
            };
            let header = &mut tar[header..header + 512];
            header[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
            header[156] = kind;
            header[157..157 + link.len()].copy_from_slice(link.as_bytes());
            sum(header);
        }
        tar.extend_from_slice(&[0; 1024]);
        tar
    }

    /// Lays the entries into a folder; `None` where a file system has no room for one of them.
    pub(crate) fn lay(&self, folder: &Path) -> Option<()> {
        let mut modes = BTreeMap::new();
        for (name, node) in &self.entries {
            let relative = name.strip_prefix(&format!("{}/", self.stem))?;
            if relative.split('/').any(|part| part == ".." || part == ".") || relative.starts_with('/') {
                return None;
            }
            let path = folder.join(relative);
            if !relative.is_empty() && !relative.ends_with('/') && path.symlink_metadata().is_ok() {
                return None;
            }
            fs_err::create_dir_all(path.parent()?).ok()?;
            match node {
                Node::Folder(mode) => {
                    fs_err::create_dir_all(&path).ok()?;
                    modes.insert(path, *mode);
                }
                Node::File(mode, bytes) => {
                    fs_err::write(&path, bytes).ok()?;
                    modes.insert(path, *mode);
                }
                Node::Other(b'2', target) => fs_err::os::unix::fs::symlink(target, &path).ok()?,
                Node::Other(..) => return None,
            }
        }
        for (path, mode) in modes {
            fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).ok()?;
        }
        Some(())
    }
}

/// Writes a tar header's sum anew.
pub(crate) fn sum(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub(crate) fn pack_gz(tar: &[u8]) -> Vec<u8> {
    let mut gzip = Gzip::new(Vec::new()).unwrap();
    gzip.write_all(tar).unwrap();
    gzip.finish().unwrap()
}

pub(crate) fn pack_zst(tar: &[u8]) -> Vec<u8> {
    let mut encoder = zstd(Vec::new()).unwrap();
    encoder.write_all(tar).unwrap();
    encoder.finish().unwrap()
}
