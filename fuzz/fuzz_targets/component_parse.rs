//! Any text as one of the documents that packages carry: parsed or refused; what was parsed comes back
//! the same from its own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use strata_manifest::{BuildRecord, Component, Document, KeyList, PluginDescriptor, Receipt, Release, TrustRoot};

fn round<D: Document + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(document) = D::parse(text, Path::new("x.json")) {
        let again = D::parse(&document.to_text(), Path::new("x.json"));
        assert_eq!(again.as_ref().ok(), Some(&document), "{again:?}");
    }
}

fuzz_target!(|text: &str| {
    if let Ok(component) = Component::parse_unchecked(text, Path::new("component.json")) {
        let _ = (component.faults(), component.stem(), component.id(), component.unpacked_bytes());
        let _ = strata_package::archive_write::entries(&component).len();
        let _ = (strata_package::sbom::cyclonedx(&component), strata_package::sbom::spdx(&component));
    }
    round::<Component>(text);
    round::<Release>(text);
    round::<KeyList>(text);
    round::<TrustRoot>(text);
    round::<BuildRecord>(text);
    round::<PluginDescriptor>(text);
    round::<Receipt>(text);
});
