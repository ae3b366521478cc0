//! Every environment variable that the program reads, in one table.

use std::path::PathBuf;

const PREFIX: &str = "STRATA_PREFIX";
const STATE_DIR: &str = "STRATA_STATE_DIR";
const API_KEY: &str = "STRATA_API_KEY";

/// Name and meaning, for docs/cli.md.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    (PREFIX, "installation to use instead of the one that the program lies in"),
    (API_KEY, "key that requests to `strata serve` must carry, when no flag gives one"),
    (
        STATE_DIR,
        "where the program keeps what it learned about plugins and the chat's history; default `$XDG_STATE_HOME/strata`, else `~/.local/state/strata`",
    ),
];

pub(crate) fn prefix() -> Option<PathBuf> {
    path(PREFIX)
}

/// The state folder, if the environment gives any.
pub(crate) fn state_dir() -> Option<PathBuf> {
    path(STATE_DIR)
        .or_else(|| path("XDG_STATE_HOME").map(|dir| dir.join("strata")))
        .or_else(|| path("HOME").map(|dir| dir.join(".local/state/strata")))
}

/// Where a user's programs keep their settings, if the environment gives any such place.
pub(crate) fn config_dir() -> Option<PathBuf> {
    path("XDG_CONFIG_HOME").or_else(|| path("HOME").map(|dir| dir.join(".config")))
}

/// What a service must be told of this environment, beside the masks of devices.
pub(crate) fn of_service() -> Vec<(&'static str, PathBuf)> {
    [PREFIX, STATE_DIR].into_iter().filter_map(|name| Some((name, path(name)?))).collect()
}

/// The server's key.
pub(crate) fn api_key() -> Option<String> {
    std::env::var(API_KEY).ok().filter(|key| !key.is_empty())
}

fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
