//! Every environment variable that the program itself reads, in one table. Proxies, certificates and
//! tokens are read by the download engine.

use std::path::PathBuf;
use std::time::Duration;

const PREFIX: &str = "STRATA_PREFIX";
const RELEASE: &str = "STRATA_RELEASE";
/// Seconds that a plugin's check may take.
const PROOF_SECONDS: &str = "STRATA_PROOF_SECONDS";
/// Ends the program as `kill -9` does when the named step begins (`switch`) or is done (`switch+`).
const STOP_AT: &str = "STRATA_SETUP_STOP_AT";

/// Name and meaning, for docs/setup-cli.md.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    (PREFIX, "installation to work on, where no `--prefix` is given"),
    (RELEASE, "release to install from, where no `--release` is given"),
    ("XDG_DATA_HOME", "folder that `strata` is installed in by default; else `~/.local/share`"),
    ("HF_ENDPOINT, HF_TOKEN", "address and token of the model hub"),
    ("HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY", "proxies, and what goes past them"),
    ("SSL_CERT_FILE, SSL_CERT_DIR", "certificates to trust beside the system's"),
    (
        PROOF_SECONDS,
        "how long a plugin's check may take before it counts as hanging; else 60 for the CPU's, 180 for a GPU's",
    ),
    (STOP_AT, "for tests: end as if killed when the named step begins, or with `+` behind it when it is done"),
];

pub(crate) fn prefix() -> Option<PathBuf> {
    path(PREFIX)
}

pub(crate) fn release() -> Option<String> {
    std::env::var(RELEASE).ok().filter(|value| !value.is_empty())
}

/// A number that is none counts as not set.
pub(crate) fn proof_limit() -> Option<Duration> {
    let seconds = std::env::var(PROOF_SECONDS).ok()?.parse().ok().filter(|seconds| (1..=86_400).contains(seconds))?;
    Some(Duration::from_secs(seconds))
}

pub(crate) fn stop_at() -> Option<String> {
    std::env::var(STOP_AT).ok().filter(|value| !value.is_empty())
}

/// Where an installation goes when nobody says.
pub(crate) fn default_prefix() -> Option<PathBuf> {
    path("XDG_DATA_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| path("HOME").map(|home| home.join(".local/share")))
        .map(|folder| folder.join("strata"))
}

/// The user's own folder of programs.
pub(crate) fn program_folder() -> Option<PathBuf> {
    path("HOME").map(|home| home.join(".local/bin"))
}

fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
