//! Cargo manifests: folder name = package name, one level below its room, version, lints and
//! licence inherited, only the room `manifests` derives serde.

use anyhow::Context;
use cargo_metadata::Metadata;

/// Crates that may depend on serde's derive: a serialisable type is a promise.
const SERDE_USERS: &[&str] = &["strata-diag", "strata-manifest"];
/// Crates that may hold `libloading`: one place opens plugins, and a plugin opens its own driver.
const LIBLOADING_USERS: &[&str] = &["strata-plugin-host", "strata-backend-cuda", "strata-hip", "strata-hip-software"];

pub(super) fn violations(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        if folder.file_name() != Some(name) {
            found.push(format!("{name} lies in `{folder}`: folder and package must have one name"));
        }
        let relative = folder.strip_prefix(&metadata.workspace_root)?;
        if relative.components().count() != 2 {
            found.push(format!("{name} lies in `{relative}`: crates lie one level below their room"));
        }
        let text = fs_err::read_to_string(&package.manifest_path)?;
        for line in [
            "version.workspace = true",
            "edition.workspace = true",
            "license.workspace = true",
            "publish.workspace = true",
        ] {
            if !text.contains(line) {
                found.push(format!("{name}: `{line}` is missing in its manifest"));
            }
        }
        if !text.contains("[lints]\nworkspace = true") {
            found.push(format!("{name}: does not inherit the workspace lints"));
        }
        for (crate_name, users) in [("serde", SERDE_USERS), ("libloading", LIBLOADING_USERS)] {
            let uses = package.dependencies.iter().any(|dependency| {
                dependency.name == crate_name && dependency.kind != cargo_metadata::DependencyKind::Development
            });
            if uses && !users.contains(&name) {
                found.push(format!("{name} must not depend on {crate_name}"));
            }
        }
    }
    Ok(found)
}
