//! Where a release comes from: a folder, or an address whose index is fetched into a folder first;
//! and whether it is believed.

use crate::cli::InstallArgs;
use crate::fetching::{Network, Wanted};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::{env, fetching, printer};
use std::path::{Path, PathBuf};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::FILE_UNREADABLE;
use strata_diag::catalogue::installing::{DOWNLOAD_FOLDER, RELEASE_ABSENT};
use strata_install::{Folder, InstallError, InstallRoot, KeySource, Pins, TrustPolicy, check_release};
use strata_manifest::{KEYS_FILE, PinnedTrust, PublicKey, RELEASE_FILE, Receipt, Release, SUMS_FILE, Trust, UtcTime};

/// Address of the release that this build belongs to, if it was built for one.
const BUILT_IN_RELEASE: Option<&str> = option_env!("STRATA_RELEASE_URL");
/// Public keys that this build believes, separated by blanks.
const BUILT_IN_KEYS: Option<&str> = option_env!("STRATA_RELEASE_KEYS");

/// A release that was read and is believed.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) release: Release,
    /// Where index and archives lie, or will lie.
    pub(crate) folder: Folder,
    /// What the user would name: folder or address.
    pub(crate) from: String,
    /// Address that relative paths are below; `None` for a folder.
    pub(crate) base: Option<String>,
    pub(crate) trust: Trust,
    /// Pins after this release is installed.
    pub(crate) pins: PinnedTrust,
}

/// Finds, reads and checks the release. `index` is where the index of an address is fetched to.
pub(crate) fn open(
    args: &InstallArgs,
    pins: &PinnedTrust,
    installed: Option<&Receipt>,
    index: &Path,
    progress: &Progress,
) -> Outcome<Opened> {
    let place = place(args, installed)?;
    refuse_scheme(&place)?;
    let (folder, base) = if is_address(&place) {
        let base = format!("{}/", place.trim_end_matches(&format!("/{RELEASE_FILE}")).trim_end_matches('/'));
        fetch_index(&base, index, &Network::new(args, None), progress)?;
        (Folder::new(index), Some(base))
    } else {
        let path = std::path::absolute(&place).unwrap_or_else(|_| PathBuf::from(&place));
        if args.from.is_some() && !path.join(RELEASE_FILE).is_file() {
            let message = format!("`{}` holds no {RELEASE_FILE}", path.display());
            return Err(Diagnostic::new(DOWNLOAD_FOLDER, message)
                .hint("make such a folder where there is network: `strata-setup --download-only --to DIR`")
                .into());
        }
        (Folder::new(&path), None)
    };
    let signed = folder.signed()?;
    let release = folder.parse(&signed)?;
    let policy =
        TrustPolicy { allow_unsigned: args.allow_unsigned, allow_expired: args.allow_expired, now: UtcTime::now() };
    let (trust, pins) = check_release(&signed, &release, &place, &keys(args)?, pins, policy)?;
    let from = base.clone().unwrap_or_else(|| folder.path().display().to_string());
    Ok(Opened { release, folder, from, base, trust, pins })
}

/// Keys that were named, and those of this build.
fn keys(args: &InstallArgs) -> Outcome<KeySource> {
    let mut source = KeySource { named: Vec::new(), built_in: built_in_keys() };
    if let Some(path) = &args.key {
        let text = fs_err::read_to_string(path).map_err(|error| {
            Diagnostic::new(FILE_UNREADABLE, format!("cannot read `{}`", path.display())).fact("because", error)
        })?;
        source.named = KeySource::parse_named(&text, path)?;
    }
    Ok(source)
}

fn built_in_keys() -> Vec<PublicKey> {
    let words = BUILT_IN_KEYS.unwrap_or_default().split_whitespace();
    words.filter_map(|word| KeySource::parse_named(word, Path::new("built in")).ok()).flatten().collect()
}

/// What names the release: the command line, the environment, what is installed, this build.
fn place(args: &InstallArgs, installed: Option<&Receipt>) -> Outcome<String> {
    let from = args.from.as_ref().map(|path| path.display().to_string());
    let recorded = installed.and_then(|receipt| receipt.install.as_ref()).map(|record| record.release.from.clone());
    from.or_else(|| args.release.clone())
        .or_else(env::release)
        .or_else(|| BUILT_IN_RELEASE.map(str::to_owned))
        .or(recorded)
        .ok_or_else(|| {
            Diagnostic::new(RELEASE_ABSENT, "no release is named, and this build carries no address of one")
                .hint("name a folder or address: `--release DIR|URL`")
                .hint("from a checkout: `cargo xtask dist` makes a release folder")
                .into()
        })
}

/// An address of another kind is no folder, and one without a host is nothing to wait for.
fn refuse_scheme(place: &str) -> Outcome<()> {
    let Some((scheme, rest)) = place.split_once("://") else { return Ok(()) };
    let is_word = !scheme.is_empty() && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let why = match (is_word, is_address(place), host.is_empty()) {
        (true, false, _) => format!("`{scheme}` addresses are not fetched"),
        (_, true, true) => format!("`{place}` names no host"),
        _ => return Ok(()),
    };
    Err(Diagnostic::new(RELEASE_ABSENT, why).hint("name a folder, or an address with `https://`").into())
}

/// Whether a place is fetched over the network.
pub(crate) fn is_address(place: &str) -> bool {
    place.starts_with("https://") || place.starts_with("http://")
}

/// Brings index, signatures and key list; the index alone is needed.
fn fetch_index(base: &str, into: &Path, network: &Network, progress: &Progress) -> Outcome<()> {
    let wanted = |name: &str| Wanted {
        name: name.to_owned(),
        sources: vec![format!("{base}{name}")],
        size: None,
        about_bytes: 0,
        sha256: None,
        to: into.join(name),
        ..Wanted::default()
    };
    // An index of yesterday must not be taken for today's, nor its signature for that of a new one.
    let names = [
        RELEASE_FILE.to_owned(),
        format!("{RELEASE_FILE}.minisig"),
        KEYS_FILE.to_owned(),
        format!("{KEYS_FILE}.minisig"),
        "root.pub".to_owned(),
        SUMS_FILE.to_owned(),
        format!("{SUMS_FILE}.minisig"),
    ];
    for name in &names {
        let _ = fs_err::remove_file(into.join(name));
    }
    fetching::fetch(&[wanted(RELEASE_FILE)], network, progress)?;
    for name in &names[1..] {
        fetching::fetch_if_there(&wanted(name), network, progress)?;
    }
    Ok(())
}

/// Pins and receipt of a prefix; both empty where nothing is installed.
pub(crate) fn known(root: &InstallRoot) -> Outcome<(PinnedTrust, Option<Receipt>)> {
    let installed = match root.installed() {
        Ok(installed) => installed.map(|(_, receipt)| receipt),
        Err(error @ InstallError::ReceiptDamaged { .. }) => {
            printer::talk(&format!("note: {error}; it is laid out anew"));
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok((Pins::read(root)?, installed))
}
