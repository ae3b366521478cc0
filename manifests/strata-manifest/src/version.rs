//! The version law: semver, with an optional numeric `+build` that counts and compares.
//!
//! Plain semver ignores what follows `+`. A hotfix build (`0.1.45+3`) is newer than the release it
//! fixes (`0.1.45`), and two programs that differ only there are different programs.

use crate::ManifestError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A product version: `major.minor.patch[-pre][+build]`, build a plain number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Version {
    release: semver::Version,
    build: u32,
}

impl Version {
    /// Version of this workspace: what every program of this build says.
    pub fn current() -> Version {
        env!("CARGO_PKG_VERSION").parse().expect("Cargo checked the workspace version; a test checks its build part")
    }

    /// The hotfix number, 0 for a plain release.
    pub fn build(&self) -> u32 {
        self.build
    }
}

impl FromStr for Version {
    type Err = ManifestError;

    fn from_str(text: &str) -> Result<Self, ManifestError> {
        let bad = |why: String| ManifestError::BadVersion { text: text.chars().take(80).collect(), why };
        let mut release = semver::Version::parse(text).map_err(|error| bad(error.to_string()))?;
        let build = match release.build.as_str() {
            "" => 0,
            digits if digits.starts_with('0') || digits.len() > 9 => {
                return Err(bad("the part after + is a number from 1 to 999999999".to_owned()));
            }
            digits => digits.parse().map_err(|_| bad("the part after + is a number from 1 to 999999999".to_owned()))?,
        };
        release.build = semver::BuildMetadata::EMPTY;
        Ok(Version { release, build })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.build == 0 { self.release.to_string() } else { format!("{}+{}", self.release, self.build) };
        f.pad(&text)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.release.cmp_precedence(&other.release).then(self.build.cmp(&other.build))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<String> for Version {
    type Error = ManifestError;

    fn try_from(text: String) -> Result<Self, ManifestError> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> String {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_follows_semver_and_then_the_build() {
        let ordered = ["0.1.9", "0.1.45-rc.1", "0.1.45", "0.1.45+1", "0.1.45+3", "0.1.45+12", "0.1.46-alpha", "0.2.0"];
        for pair in ordered.windows(2) {
            let (low, high): (Version, Version) = (pair[0].parse().unwrap(), pair[1].parse().unwrap());
            assert!(low < high, "{low} < {high}");
            assert_ne!(low, high);
        }
    }

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        for good in ["0.1.0", "1.2.3-rc.4+5", "0.1.45+3"] {
            assert_eq!(good.parse::<Version>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "1",
            "1.2",
            "v1.2.3",
            "1.2.3+",
            "1.2.3+abc",
            "1.2.3+0",
            "1.2.3+03",
            "1.2.3+1.2",
            "0.1.45.3",
            "1.2.3+9999999999",
        ] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_workspace_version_parses() {
        assert_eq!(Version::current().to_string(), env!("CARGO_PKG_VERSION"));
    }
}
