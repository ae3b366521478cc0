//! `cargo xtask tidy`: the rules of docs/ARCHITECTURE.md that a program can check. Each rule
//! returns its violations; all are printed before it fails.

mod arrows;
mod errors;
mod files;
mod manifests;

use crate::workspace::{metadata, say};
use anyhow::bail;

pub(crate) fn run_tidy() -> anyhow::Result<()> {
    let metadata = metadata()?;
    let sources = files::sources()?;
    let mut violations = Vec::new();
    violations.extend(arrows::violations(&metadata)?);
    violations.extend(manifests::violations(&metadata)?);
    violations.extend(files::violations(&sources));
    violations.extend(errors::violations(&sources)?);
    for violation in &violations {
        say(&format!("tidy: {violation}"));
    }
    if !violations.is_empty() {
        bail!("{} violations of the house rules", violations.len());
    }
    Ok(())
}
