//! Whether code built for a target runs on a card, by the vendors' published rules. The engine has
//! the same rules for what it opens (strata-plugin-host); the two programs share no code on purpose
//! and a table of cases in each one's tests.

use crate::InstallError;
use crate::plan::machine::Vendor;
use std::fmt;

/// What a card needs code for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `gfx906` with features, `sramecc+`, `xnack-`.
    Amd { arch: String, features: Vec<String> },
    /// Compute capability times ten: 89 for 8.9.
    Nvidia { capability: u32 },
}

impl Target {
    /// Takes `gfx906`, `gfx90a:sramecc+:xnack-`, `sm_90`, `compute_80`, `8.9`.
    pub fn parse(text: &str) -> Result<Target, InstallError> {
        let bad = || InstallError::BadTarget { text: text.chars().take(80).collect() };
        let lower = text.trim().to_ascii_lowercase();
        if let Some(rest) = lower.strip_prefix("gfx") {
            let mut parts = rest.split(':');
            let digits = parts.next().unwrap_or_default();
            let good = (3..=5).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_hexdigit());
            let features: Vec<String> = parts.map(str::to_owned).collect();
            let known = |feature: &String| {
                ["sramecc", "xnack"].iter().any(|name| feature.strip_prefix(name).is_some_and(|s| s == "+" || s == "-"))
            };
            return (good && features.iter().all(known))
                .then(|| Target::Amd { arch: format!("gfx{digits}"), features })
                .ok_or_else(bad);
        }
        capability(&lower).map(|(capability, _)| Target::Nvidia { capability }).ok_or_else(bad)
    }

    pub fn vendor(&self) -> Vendor {
        match self {
            Target::Amd { .. } => Vendor::Amd,
            Target::Nvidia { .. } => Vendor::Nvidia,
        }
    }

    /// How well code for `built_for` serves this card, best first; `None` when it does not run.
    pub fn fit(&self, built_for: &str) -> Option<Fitness> {
        match self {
            Target::Amd { arch, features } => {
                let mut parts = built_for.split(':');
                if parts.next() != Some(arch) {
                    return None;
                }
                // Code built for one setting of a feature runs only with it; code that says nothing runs with both.
                let contradicts = |built: &str| {
                    let name = built.trim_end_matches(['+', '-']);
                    features.iter().any(|ours| ours.trim_end_matches(['+', '-']) == name && ours != built)
                };
                (!parts.any(contradicts)).then_some(Fitness::Exact)
            }
            Target::Nvidia { capability: card } => {
                let (built, letter) = capability(built_for)?;
                let intermediate = built_for.starts_with("compute_") || built_for.starts_with("ptx_");
                let same_major = built / 10 == card / 10;
                match (intermediate, letter) {
                    (false, _) if built == *card => Some(Fitness::Exact),
                    (false, None | Some('f')) if same_major && built < *card => Some(Fitness::SameGeneration),
                    (true, None) if built <= *card => Some(Fitness::Compiled),
                    (true, Some('f')) if same_major && built <= *card => Some(Fitness::Compiled),
                    (true, Some(_)) if built == *card => Some(Fitness::Compiled),
                    _ => None,
                }
            }
        }
    }

    /// The best fit among a component's targets.
    pub fn best<'a>(&self, targets: &'a [String]) -> Option<(Fitness, &'a str)> {
        targets.iter().filter_map(|built| Some((self.fit(built)?, built.as_str()))).min_by_key(|(fit, _)| *fit)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Amd { arch, features } => {
                f.write_str(arch)?;
                features.iter().try_for_each(|feature| write!(f, ":{feature}"))
            }
            Target::Nvidia { capability } => write!(f, "sm_{capability}"),
        }
    }
}

/// How code serves a card, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    Exact,
    /// Native code of an earlier step of the same generation.
    SameGeneration,
    /// An intermediate form that the driver compiles at the first start.
    Compiled,
}

impl Fitness {
    pub fn text(self, built_for: &str) -> String {
        match self {
            Fitness::Exact => format!("built for {built_for}"),
            Fitness::SameGeneration => format!("{built_for} code runs on it"),
            Fitness::Compiled => format!("through {built_for}, which the driver compiles at the first start"),
        }
    }
}

/// `sm_86`, `compute_90a`, `8.6`: ten times major plus minor, and the letter behind it.
fn capability(text: &str) -> Option<(u32, Option<char>)> {
    let digits = ["sm_", "compute_", "ptx_"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let (digits, letter) = match digits.chars().last()? {
        letter @ 'a'..='z' => (&digits[..digits.len() - 1], Some(letter)),
        _ => (digits, None),
    };
    let plain = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit());
    let number = match digits.split_once('.') {
        Some((major, minor)) if plain(major) && minor.len() == 1 && plain(minor) => {
            major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?
        }
        None if plain(digits) => digits.parse().ok()?,
        _ => return None,
    };
    (10..1000).contains(&number).then_some((number, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_where_the_vendors_say() {
        let table = [
            ("gfx906", "gfx906", true),
            ("gfx906", "gfx906:xnack-", true),
            ("gfx906:sramecc+:xnack-", "gfx906:xnack-", true),
            ("gfx906:xnack-", "gfx906:xnack+", false),
            ("gfx900", "gfx906", false),
            ("gfx1100", "gfx1101", false),
            ("sm_86", "sm_86", true),
            ("sm_86", "sm_80", true),
            ("sm_80", "sm_86", false),
            ("sm_90", "sm_86", false),
            ("sm_120", "compute_80", true),
            ("sm_75", "compute_80", false),
            ("9.0", "sm_90a", true),
            ("10.0", "compute_90a", false),
            ("12.1", "sm_120f", true),
        ];
        for (card, built, runs) in table {
            assert_eq!(Target::parse(card).unwrap().fit(built).is_some(), runs, "{built} on {card}");
        }
        let card = Target::parse("8.6").unwrap();
        let targets = ["compute_80", "sm_80", "sm_86"].map(str::to_owned);
        assert_eq!(card.best(&targets), Some((Fitness::Exact, "sm_86")));
        assert_eq!(card.best(&targets[..2]), Some((Fitness::SameGeneration, "sm_80")));
        assert_eq!(card.best(&targets[..1]), Some((Fitness::Compiled, "compute_80")));
    }

    #[test]
    fn what_is_no_target_is_said_to_be_none() {
        for bad in ["", "gfx", "gfx90", "gfx9006xx", "gfx906:turbo+", "gfx906:xnack", "sm_", "sm_9.0.1", "rtx3090", "é"]
        {
            assert!(matches!(Target::parse(bad), Err(InstallError::BadTarget { .. })), "{bad}");
        }
        assert_eq!(Target::parse("GFX906:XNACK-").unwrap().to_string(), "gfx906:xnack-");
        assert_eq!(Target::parse("9.0").unwrap().to_string(), "sm_90");
    }
}
