//! The canonical archive: for a component manifest and its files there is exactly one tar.gz, one
//! tar.zst and one zip. docs/PACKAGE-FORMAT.md states the rules; the verifier re-encodes and compares.

mod deflate;
mod tar;
mod zip;

pub use deflate::{DEFLATE_LEVEL, Deflate, Deflated, GZIP_HEADER, Gzip};
pub use tar::TarEncoder;
pub(crate) use tar::tar_header;
pub use zip::{Open, ZipEncoder};

use std::io::{self, Read, Write};
use strata_manifest::{COMPONENT_FILE, Component, Document, FileMode, PackageFile};

/// Level of the canonical zstd encoding.
pub const ZSTD_LEVEL: i32 = 12;
/// Binary logarithm of the window, 8 MiB: what a reader must be able to hold.
pub const ZSTD_WINDOW_LOG: u32 = 23;

/// Kind of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    TarGz,
    TarZst,
    Zip,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::TarGz, Format::TarZst, Format::Zip];

    /// What follows the dot after the stem: `tar.gz`.
    pub fn suffix(self) -> &'static str {
        match self {
            Format::TarGz => "tar.gz",
            Format::TarZst => "tar.zst",
            Format::Zip => "zip",
        }
    }

    /// The format with that suffix.
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Format::ALL.into_iter().find(|format| format.suffix() == suffix)
    }

    /// Stem and format of an archive's file name.
    pub fn of_name(name: &str) -> Option<(&str, Self)> {
        Format::ALL.into_iter().find_map(|format| {
            let stem = name.strip_suffix(format.suffix())?.strip_suffix('.')?;
            Some((stem, format))
        })
    }
}

/// One entry of an archive in canonical order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Full name, ending in `/`.
    Folder(String),
    /// `component.json`; full name.
    Manifest(String),
    /// Full name, and what the manifest says of the file.
    File(String, &'a PackageFile),
}

impl Entry<'_> {
    pub fn name(&self) -> &str {
        match self {
            Entry::Folder(name) | Entry::Manifest(name) | Entry::File(name, _) => name,
        }
    }
}

/// All entries in canonical order: the top folder, the manifest, then everything else sorted by
/// name as bytes, each folder under its name with `/`, so that it comes before what is in it.
pub fn entries(component: &Component) -> Vec<Entry<'_>> {
    let stem = component.stem();
    let mut rest: Vec<Entry<'_>> = Vec::new();
    let mut folders = std::collections::BTreeSet::new();
    for file in &component.files {
        let path = file.path.as_str();
        for (end, _) in path.match_indices('/') {
            if folders.insert(&path[..end]) {
                rest.push(Entry::Folder(format!("{stem}/{}/", &path[..end])));
            }
        }
        rest.push(Entry::File(format!("{stem}/{path}"), file));
    }
    rest.sort_by(|a, b| a.name().cmp(b.name()));
    let mut entries = vec![Entry::Folder(format!("{stem}/")), Entry::Manifest(format!("{stem}/{COMPONENT_FILE}"))];
    entries.append(&mut rest);
    entries
}

/// Opens the content of a listed file; a zip may ask twice for the same.
pub type Source<'a> = dyn FnMut(&PackageFile) -> io::Result<Box<dyn Read>> + 'a;

/// Writes the canonical archive of a component. A file whose size is not the listed one is an error.
pub fn write_archive<W: Write>(
    component: &Component,
    source: &mut Source<'_>,
    format: Format,
    out: W,
) -> io::Result<W> {
    match format {
        Format::TarGz => write_tar(component, source, Gzip::new(out)?)?.finish(),
        Format::TarZst => write_tar(component, source, zstd(out)?)?.finish(),
        Format::Zip => write_zip(component, source, out),
    }
}

/// The canonical zstd stream: one frame with checksum and without content size.
pub fn zstd<W: Write>(out: W) -> io::Result<zstd::Encoder<'static, W>> {
    let mut encoder = zstd::Encoder::new(out, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.include_contentsize(false)?;
    encoder.window_log(ZSTD_WINDOW_LOG)?;
    Ok(encoder)
}

fn write_tar<W: Write>(component: &Component, source: &mut Source<'_>, out: W) -> io::Result<W> {
    let text = component.to_text();
    let mut tar = TarEncoder::new(out, component.source_epoch);
    for entry in entries(component) {
        match entry {
            Entry::Folder(name) => tar.folder(&name)?,
            Entry::Manifest(name) => tar.file(&name, text.len() as u64, FileMode::Plain, &mut text.as_bytes())?,
            Entry::File(name, file) => tar.file(&name, file.size, file.mode, &mut source(file)?)?,
        }
    }
    tar.finish()
}

fn write_zip<W: Write>(component: &Component, source: &mut Source<'_>, out: W) -> io::Result<W> {
    let text = component.to_text();
    let mut zip = ZipEncoder::new(out, component.source_epoch);
    for entry in entries(component) {
        match entry {
            Entry::Folder(name) => zip.folder(&name)?,
            Entry::Manifest(name) => {
                let text = text.clone();
                let mut open = || Ok(Box::new(io::Cursor::new(text.clone())) as Box<dyn Read>);
                zip.file(&name, text.len() as u64, FileMode::Plain, &mut open)?;
            }
            Entry::File(name, file) => zip.file(&name, file.size, file.mode, &mut || source(file))?,
        }
    }
    zip.finish()
}
