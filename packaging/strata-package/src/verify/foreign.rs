//! Packages of other people, which carry a list of sums inside: checked as far as that list goes, and
//! the report says that it is a reduced check.

use super::finding::{Finding, Report};
use super::inventory::Inventory;
use super::{law, names};
use crate::archive_read::{Kind, Oddity};
use crate::{stray, sums};
use std::collections::BTreeMap;
use strata_diag::catalogue::packages::{FILE_DIFFERS, FILE_MISSING, FILE_UNLISTED, NOTHING_CHECKED, SUM_UNREAD};
use strata_manifest::Sha256Digest;

/// Names of lists of sums in a top folder.
pub(super) const LISTS: &[&str] =
    &["MANIFEST.sha256", "SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt", "sha256sum.txt", "checksums.txt"];

/// Checks against the list of sums that lies in the package; `false`: there is none.
pub(super) fn check(inventory: &Inventory, report: &mut Report) -> bool {
    let Some((name, text)) = LISTS.iter().find_map(|name| {
        let content = inventory.items.get(*name)?.content.as_ref()?;
        Some((*name, content.text.as_deref()?))
    }) else {
        return false;
    };
    report.note(format!("it is no package of Strata: checked against its own `{name}`, which nobody signed"));
    let list = sums::parse(text.as_bytes());
    for line in &list.unreadable {
        let message = format!("line {} of the list: {}", line.line, line.why.text());
        report.add(Finding::new(SUM_UNREAD, Some(name.as_bytes()), message));
    }
    for note in &list.notes {
        report.note((*note).to_owned());
    }
    if list.entries.is_empty() {
        report.add(Finding::new(NOTHING_CHECKED, Some(name.as_bytes()), "the list names no file"));
    }
    let listed: BTreeMap<String, Sha256Digest> = list
        .entries
        .iter()
        .filter_map(|entry| Some((String::from_utf8(entry.name.clone()?).ok()?, entry.digest)))
        .map(|(path, digest)| (path.strip_prefix("./").unwrap_or(&path).to_owned(), digest))
        .collect();
    for (path, digest) in &listed {
        let found = names::followed(&inventory.items, path).and_then(|item| item.content.as_ref());
        match found {
            None => report.add(Finding::new(FILE_MISSING, Some(path.as_bytes()), "it is listed and not there")),
            Some(content) if content.digests.sha256 != *digest => {
                let finding = Finding::new(FILE_DIFFERS, Some(path.as_bytes()), "its content is not the listed one");
                report.add(finding.fact("expected", digest).fact("got", content.digests.sha256));
            }
            Some(_) => {}
        }
    }
    for (path, item) in &inventory.items {
        if item.kind == Kind::File && path != name && !listed.contains_key(path) {
            let mut finding = Finding::new(FILE_UNLISTED, Some(path.as_bytes()), "the list does not name it");
            finding.bytes = item.size;
            finding.looks_like = stray::looks_like(path.rsplit('/').next().unwrap_or_default());
            report.add(finding.fact("bytes", item.size));
        }
    }
    // How other people's tools write headers says nothing; that two readers may disagree does.
    for (_, finding) in inventory.odd.iter().filter(|(oddity, _)| *oddity == Oddity::Structure) {
        report.add(finding.clone());
    }
    law::foreign(inventory, report);
    true
}
