//! Whether code built for a target runs on a device, by the vendors' published rules. Pure;
//! called by the choice and, before anything is opened, by whoever knows the card from elsewhere.

use std::fmt;
use strata_manifest::BackendKind;

/// How well a plugin's targets fit a device, best first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetFit {
    /// Built for just this.
    Exact(String),
    /// Native code of an earlier step of the same generation, which runs here.
    SameGeneration(String),
    /// Code for a family of devices, or an intermediate form that the driver compiles first.
    Generic(String),
    /// Nothing fits, and why.
    None(String),
}

impl TargetFit {
    pub fn is_usable(&self) -> bool {
        !matches!(self, TargetFit::None(_))
    }

    /// The driver compiles the kernels at the first start, which takes a while.
    pub fn compiles_first(&self) -> bool {
        matches!(self, TargetFit::Generic(target) if is_ptx(target))
    }
}

impl fmt::Display for TargetFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetFit::Exact(target) => write!(f, "built for {target}"),
            TargetFit::SameGeneration(target) => write!(f, "{target} code runs on it"),
            TargetFit::Generic(target) if is_ptx(target) => {
                write!(f, "through PTX ({target}), which the driver compiles at the first start")
            }
            TargetFit::Generic(target) => write!(f, "generic code ({target})"),
            TargetFit::None(reason) => f.write_str(reason),
        }
    }
}

/// The best fit of a plugin's targets to a device's `arch`.
pub fn target_fit(kind: BackendKind, targets: &[String], arch: &str) -> TargetFit {
    let fit_one: fn(&str, &str) -> Option<TargetFit> = match kind {
        BackendKind::Cuda => nvidia_fit,
        BackendKind::Hip => amd_fit,
        BackendKind::Cpu => |target, _| Some(TargetFit::Exact(target.to_owned())),
        BackendKind::Unknown => |_, _| None,
    };
    let mut fits: Vec<TargetFit> = targets.iter().filter_map(|target| fit_one(target, arch)).collect();
    // Among equals the newest code is the best; targets of one kind sort by their numbers.
    fits.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| newest(b).cmp(&newest(a))));
    fits.into_iter().next().unwrap_or_else(|| {
        let only = if targets.is_empty() { "it holds no kernels at all".to_owned() } else { targets.join(", ") };
        TargetFit::None(format!("no code for {arch} (it holds: {only})"))
    })
}

fn rank(fit: &TargetFit) -> u8 {
    match fit {
        TargetFit::Exact(_) => 0,
        TargetFit::SameGeneration(_) => 1,
        TargetFit::Generic(_) => 2,
        TargetFit::None(_) => 3,
    }
}

fn newest(fit: &TargetFit) -> u32 {
    match fit {
        TargetFit::Exact(target) | TargetFit::SameGeneration(target) | TargetFit::Generic(target) => {
            capability(target).map_or(0, |(number, _)| number)
        }
        TargetFit::None(_) => 0,
    }
}

fn is_ptx(target: &str) -> bool {
    target.starts_with("compute_") || target.starts_with("ptx_")
}

/// `sm_86`, `compute_90a`, `ptx_89`, or `8.6`: ten times major plus minor, and the letter behind it.
fn capability(text: &str) -> Option<(u32, Option<char>)> {
    let digits = ["sm_", "compute_", "ptx_"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let (digits, letter) = match digits.char_indices().last()? {
        (at, letter) if letter.is_ascii_lowercase() => (&digits[..at], Some(letter)),
        _ => (digits, None),
    };
    let number = match digits.split_once('.') {
        Some((major, minor)) if minor.len() == 1 => {
            major.parse::<u32>().ok()?.checked_mul(10)?.checked_add(minor.parse().ok()?)?
        }
        Some(_) => return None,
        None => digits.parse().ok()?,
    };
    (10..10_000).contains(&number).then_some((number, letter))
}

/// Native code runs on its own capability and later minors of the same major; with the letter `a`
/// only on its own, with `f` on its family, which is its major. PTX runs on its own and all later
/// ones, with `a` only on its own.
fn nvidia_fit(target: &str, arch: &str) -> Option<TargetFit> {
    let (built_for, letter) = capability(target)?;
    // What a device is called may carry the letter of its best code; the card is the number.
    let (card, _) = capability(arch)?;
    let same_major = built_for / 10 == card / 10;
    let target = target.to_owned();
    if is_ptx(&target) {
        let runs = match letter {
            None => card >= built_for,
            Some('f') => same_major && card >= built_for,
            Some(_) => card == built_for,
        };
        return runs.then_some(TargetFit::Generic(target));
    }
    match letter {
        _ if card == built_for => Some(TargetFit::Exact(target)),
        None | Some('f') if same_major && card >= built_for => Some(TargetFit::SameGeneration(target)),
        _ => None,
    }
}

/// AMD's generic targets and the devices that they run on.
const AMD_GENERIC: [(&str, &[&str]); 6] = [
    ("gfx9-generic", &["gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"]),
    ("gfx9-4-generic", &["gfx940", "gfx941", "gfx942", "gfx950"]),
    ("gfx10-1-generic", &["gfx1010", "gfx1011", "gfx1012", "gfx1013"]),
    ("gfx10-3-generic", &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    ("gfx11-generic", &["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"]),
    ("gfx12-generic", &["gfx1200", "gfx1201"]),
];

/// Code runs on its own processor only, or on those of its generic target. A feature that the
/// target names (`gfx906:xnack-`) must be set so on the device; one it leaves out may be either.
fn amd_fit(target: &str, arch: &str) -> Option<TargetFit> {
    let (processor, wanted) = target.split_once(':').unwrap_or((target, ""));
    let (device, set) = arch.split_once(':').unwrap_or((arch, ""));
    let features = |list: &'static str, text: &str| -> Vec<String> {
        text.split(list).filter(|feature| !feature.is_empty()).map(str::to_owned).collect()
    };
    let set = features(":", set);
    for feature in features(":", wanted) {
        let opposite = match feature.strip_suffix('+') {
            Some(name) => format!("{name}-"),
            None => format!("{}+", feature.trim_end_matches('-')),
        };
        if set.contains(&opposite) {
            return None;
        }
    }
    if processor == device {
        return Some(TargetFit::Exact(target.to_owned()));
    }
    let members = AMD_GENERIC.iter().find(|(name, _)| *name == processor)?.1;
    members.contains(&device).then(|| TargetFit::Generic(target.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(kind: BackendKind, targets: &str, arch: &str) -> String {
        let targets: Vec<String> = targets.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect();
        target_fit(kind, &targets, arch).to_string()
    }

    #[test]
    fn nvidia() {
        let check =
            |targets, arch, wanted| assert_eq!(fit(BackendKind::Cuda, targets, arch), wanted, "{targets} {arch}");
        check("sm_80,sm_86,sm_89,compute_89", "sm_86", "built for sm_86");
        check("sm_80,sm_86,sm_89,compute_89", "8.7", "sm_86 code runs on it");
        check("sm_80", "sm_89", "sm_80 code runs on it");
        check("compute_80,sm_80", "sm_90", "through PTX (compute_80), which the driver compiles at the first start");
        check(
            "compute_70,compute_90",
            "sm_100",
            "through PTX (compute_90), which the driver compiles at the first start",
        );
        check("sm_86", "sm_80", "no code for sm_80 (it holds: sm_86)");
        check("sm_90a", "sm_90", "built for sm_90a");
        check("sm_90a", "sm_100", "no code for sm_100 (it holds: sm_90a)");
        check("sm_120f", "sm_121", "sm_120f code runs on it");
        check("sm_100f", "sm_120", "no code for sm_120 (it holds: sm_100f)");
        check("compute_90a", "sm_100", "no code for sm_100 (it holds: compute_90a)");
        check("compute_90", "sm_89", "no code for sm_89 (it holds: compute_90)");
        check("", "sm_89", "no code for sm_89 (it holds: it holds no kernels at all)");
        check(
            "sm_x,sm_,nonsense,sm_99999999999",
            "sm_89",
            "no code for sm_89 (it holds: sm_x, sm_, nonsense, sm_99999999999)",
        );
    }

    #[test]
    fn amd() {
        let check =
            |targets, arch, wanted| assert_eq!(fit(BackendKind::Hip, targets, arch), wanted, "{targets} {arch}");
        check("gfx906", "gfx906:sramecc+:xnack-", "built for gfx906");
        check("gfx906:xnack-", "gfx906:sramecc+:xnack-", "built for gfx906:xnack-");
        check(
            "gfx906:xnack+",
            "gfx906:sramecc+:xnack-",
            "no code for gfx906:sramecc+:xnack- (it holds: gfx906:xnack+)",
        );
        check("gfx906:xnack+", "gfx906", "built for gfx906:xnack+");
        check("gfx900", "gfx906", "no code for gfx906 (it holds: gfx900)");
        check("gfx9-generic", "gfx906", "generic code (gfx9-generic)");
        check("gfx9-generic,gfx906", "gfx906", "built for gfx906");
        check("gfx9-generic", "gfx90a", "no code for gfx90a (it holds: gfx9-generic)");
        check("gfx11-generic", "gfx1151", "generic code (gfx11-generic)");
        check("gfx1100", "gfx1101", "no code for gfx1101 (it holds: gfx1100)");
    }
}
