//! The manifest against what is there, in both directions, and the archive against its canonical form.

use super::VerifyOptions;
use super::finding::{Finding, Report};
use super::inventory::{Inventory, Item, Manifest};
use crate::archive_read::{Container, Kind};
use crate::archive_write::{self, Format};
use crate::stray;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use strata_diag::catalogue::packages::{
    ARCHIVE_DAMAGED, FILE_DIFFERS, FILE_MISSING, FILE_UNLISTED, MODE_DIFFERS, NOT_CANONICAL, VERSION_DIFFERS,
};
use strata_manifest::{Component, PackageFile};

/// The archive's own name must be the manifest's.
pub(super) fn archive_name(inventory: &Inventory, name: &str, report: &mut Report) {
    let Some(manifest) = &inventory.manifest else { return };
    let stem = manifest.component.stem();
    let suffix = inventory.container.map(Container::suffix).unwrap_or_default();
    if name != format!("{stem}.{suffix}") {
        report.add(
            Finding::new(VERSION_DIFFERS, None, "the archive's name is not the manifest's")
                .fact("archive name", name)
                .fact("manifest", format!("{stem}.{suffix}")),
        );
    }
}

/// Everything that `component.json` says about files, and the archive's form.
pub(super) fn check(inventory: &Inventory, options: &VerifyOptions, report: &mut Report) {
    let Some(Manifest { component, .. }) = &inventory.manifest else { return };
    if let Some(top) = inventory.top.as_ref().filter(|top| **top != component.stem()) {
        report.add(
            Finding::new(VERSION_DIFFERS, None, "the top folder is not the manifest's")
                .fact("top folder", top)
                .fact("manifest", component.stem()),
        );
    }
    listed(inventory, component, report);
    unlisted(inventory, component, report);
    for (_, finding) in &inventory.odd {
        report.add(finding.clone());
    }
    if inventory.oddities > inventory.odd.len() {
        let more = format!("{} more places are not canonical", inventory.oddities - inventory.odd.len());
        report.add(Finding::new(NOT_CANONICAL, None, more));
    }
    if inventory.container.is_some() {
        canonical(inventory, component, options, report);
    }
}

fn listed(inventory: &Inventory, component: &Component, report: &mut Report) {
    for file in &component.files {
        let path = file.path.as_str();
        match inventory.items.get(path) {
            Some(item) if item.kind == Kind::File => one(file, item, report),
            None if inventory.is_hidden(path) => {}
            // What stands there instead of the file was told already.
            Some(_) | None => {
                let finding = Finding::new(FILE_MISSING, Some(path.as_bytes()), "it is listed and not there");
                report.add(finding.fact("size", file.size).fact("sha256", file.sha256));
            }
        }
    }
}

fn one(file: &PackageFile, item: &Item, report: &mut Report) {
    let path = Some(file.path.as_str().as_bytes());
    // A file of another size is not read.
    let size = item.content.as_ref().map_or(item.size, |content| content.digests.size);
    if size != file.size {
        let finding = Finding::new(FILE_DIFFERS, path, "its size is not the listed one");
        report.add(finding.fact("expected", file.size).fact("got", size));
    } else if let Some(content) = &item.content {
        let digests = &content.digests;
        if digests.sha256 != file.sha256 {
            let finding = Finding::new(FILE_DIFFERS, path, "its content is not the listed one");
            report.add(finding.fact("expected", file.sha256).fact("got", digests.sha256));
        } else if digests.chunks != file.chunks {
            let at = digests.chunks.iter().zip(&file.chunks).position(|(a, b)| a != b).unwrap_or_default();
            let finding = Finding::new(FILE_DIFFERS, path, "the digest of one of its pieces is not the listed one");
            report.add(finding.fact("piece", at));
        }
    }
    if item.mode != file.mode.bits() {
        let finding = Finding::new(MODE_DIFFERS, path, "its mode is not the listed one");
        report.add(finding.fact("expected", file.mode).fact("got", format!("{:04o}", item.mode)));
    }
}

fn unlisted(inventory: &Inventory, component: &Component, report: &mut Report) {
    let mut folders = BTreeSet::new();
    for file in &component.files {
        let path = file.path.as_str();
        folders.extend(path.match_indices('/').map(|(end, _)| &path[..end]));
    }
    for (path, item) in &inventory.items {
        let listed = match item.kind {
            Kind::Folder => folders.contains(path.as_str()),
            _ => component.file(path).is_some(),
        };
        if listed {
            let mode = item.mode;
            if item.kind == Kind::Folder && mode != 0o755 {
                let finding = Finding::new(MODE_DIFFERS, Some(path.as_bytes()), "a folder's mode is 0755");
                report.add(finding.fact("got", format!("{mode:04o}")));
            }
            continue;
        }
        let what = match item.kind {
            Kind::Folder => "a folder that holds no listed file",
            _ => "no manifest lists it",
        };
        let mut finding = Finding::new(FILE_UNLISTED, Some(path.as_bytes()), what);
        if item.kind == Kind::File {
            finding.bytes = item.size;
            finding.looks_like = stray::looks_like(path.rsplit('/').next().unwrap_or_default());
            finding = finding.fact("bytes", item.size);
        }
        report.add(finding);
    }
}

/// Order, times, and (up to a size) every byte.
fn canonical(inventory: &Inventory, component: &Component, options: &VerifyOptions, report: &mut Report) {
    let expected = archive_write::entries(component);
    let wrong = inventory.order.iter().zip(&expected).find(|(got, entry)| *got != entry.name());
    if let Some((got, entry)) = wrong {
        let finding = Finding::new(NOT_CANONICAL, None, "its entries are not in the canonical order");
        report.add(finding.fact("expected", entry.name()).fact("got", got));
    } else if inventory.order.len() != expected.len() {
        let finding = Finding::new(NOT_CANONICAL, None, "it has not the canonical entries");
        report.add(finding.fact("expected", expected.len()).fact("got", inventory.order.len()));
    }
    if let Some(time) = inventory.mtime.filter(|time| *time != component.source_epoch) {
        let finding = Finding::new(NOT_CANONICAL, None, "its entries' time is not the manifest's");
        report.add(finding.fact("expected", component.source_epoch).fact("got", time));
    }
    // Where something is wrong already, another archive would only say so again.
    if !report.is_clean() {
        return;
    }
    let Some(spool) = &inventory.spool else {
        report.note(format!(
            "it holds more than {} MiB: its order, headers and contents were compared, how it is compressed was not",
            options.reencode_bytes >> 20
        ));
        return;
    };
    if component.version != strata_manifest::Version::current() {
        report.note(format!(
            "it is of version {}: how it is compressed is compared only by that version's own program",
            component.version
        ));
        return;
    }
    if let Err(error) = reencode(inventory, component, spool, report) {
        let finding = Finding::new(ARCHIVE_DAMAGED, None, "it could not be made anew to be compared");
        report.add(finding.fact("because", error));
    }
}

fn reencode(inventory: &Inventory, component: &Component, spool: &File, report: &mut Report) -> io::Result<()> {
    let format = match inventory.container {
        Some(Container::TarGz) => Format::TarGz,
        Some(Container::TarZst) => Format::TarZst,
        Some(Container::Zip) => Format::Zip,
        Some(Container::Tar) | None => {
            report.add(Finding::new(NOT_CANONICAL, None, "our packages are tar.gz, tar.zst or zip"));
            return Ok(());
        }
    };
    let mut source = |file: &PackageFile| -> io::Result<Box<dyn Read>> {
        let gone = || io::Error::other("a file's content was not kept");
        let item = inventory.items.get(file.path.as_str()).ok_or_else(gone)?;
        let start = item.spooled.ok_or_else(gone)?;
        let mut handle = spool.try_clone()?;
        handle.seek(SeekFrom::Start(start))?;
        Ok(Box::new(handle.take(file.size)))
    };
    let compared =
        Compared { archive: inventory.archive.as_ref().map(File::try_clone).transpose()?, at: 0, differs: None };
    let mut compared = compared.begin()?;
    compared = archive_write::write_archive(component, &mut source, format, compared)?;
    if let Some(at) = compared.end()? {
        let finding = Finding::new(NOT_CANONICAL, None, "it is not compressed as the canonical archive is");
        report.add(finding.fact("first different byte", at));
    }
    Ok(())
}

/// Compares what is written into it with a file.
struct Compared {
    archive: Option<File>,
    at: u64,
    differs: Option<u64>,
}

impl Compared {
    fn begin(mut self) -> io::Result<Self> {
        if let Some(archive) = &mut self.archive {
            archive.seek(SeekFrom::Start(0))?;
        }
        Ok(self)
    }

    /// The first byte that differs; the file must end here.
    fn end(mut self) -> io::Result<Option<u64>> {
        if self.differs.is_none()
            && let Some(archive) = &mut self.archive
            && archive.read(&mut [0])? != 0
        {
            self.differs = Some(self.at);
        }
        Ok(self.differs)
    }
}

impl Write for Compared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(archive) = &mut self.archive else { return Ok(bytes.len()) };
        if self.differs.is_some() {
            return Ok(bytes.len());
        }
        let mut found = vec![0; bytes.len()];
        let mut filled = 0;
        while filled < found.len() {
            match archive.read(&mut found[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        if let Some(at) = found.iter().zip(bytes).position(|(a, b)| a != b) {
            self.differs = Some(self.at + at as u64);
        } else if filled < bytes.len() {
            self.differs = Some(self.at + filled as u64);
        }
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
