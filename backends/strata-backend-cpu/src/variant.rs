//! Which kernels this processor can run: a pure choice over a set of features, and the sentence
//! that says why not the next better. Called by device.rs; each kernel family has an entry per variant.
//!
//! Every extension is asked for by its own name: processors and virtual machines exist that have
//! AVX2 without FMA or AVX without F16C.

use std::collections::BTreeSet;

use strata_backend_abi::StrataStatus;
use strata_backend_sdk::{Failure, Result};

pub(crate) use crate::matmul::Variant;

/// Every variant that is compiled in, worst first. What each is: matmul/variant.rs.
#[cfg(target_arch = "x86_64")]
const VARIANTS: &[Variant] = &[Variant::Scalar, Variant::Avx2, Variant::AvxVnni, Variant::Vnni];
/// Every variant that is compiled in.
#[cfg(not(target_arch = "x86_64"))]
const VARIANTS: &[Variant] = &[Variant::Scalar];

/// Extensions that a variant's kernels execute, by the names Linux prints.
const fn needs(variant: Variant) -> &'static [&'static str] {
    match variant {
        Variant::Scalar if cfg!(target_arch = "x86_64") => &["sse2"],
        Variant::Scalar => &[],
        Variant::Avx2 => &["avx", "avx2", "fma", "f16c"],
        Variant::AvxVnni => &["avx", "avx2", "fma", "f16c", "avxvnni"],
        Variant::Vnni => &["avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni", ZMM_STATE],
    }
}

fn missing(variant: Variant, features: &FeatureSet) -> Vec<&'static str> {
    needs(variant).iter().copied().filter(|name| !features.0.contains(*name)).collect()
}

/// The operating system saves the registers that AVX-512 adds.
const ZMM_STATE: &str = "zmm state";

/// Extensions that processor and operating system both support.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FeatureSet(pub(crate) BTreeSet<&'static str>);

impl FeatureSet {
    /// What this machine has. The library's detection looks at the operating system's part (saved
    /// vector state) too.
    pub(crate) fn detect() -> FeatureSet {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "only x86-64 has extensions to add"))]
        let mut set = BTreeSet::new();
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! add {
                ($($name:tt)*) => { $(if std::arch::is_x86_feature_detected!($name) { set.insert($name); })* };
            }
            add!("sse2" "avx" "avx2" "fma" "f16c" "avxvnni" "avx512f" "avx512bw" "avx512vl" "avx512vnni");
            // AVX-512 is only reported when the system saves the wide registers.
            if set.contains("avx512f") {
                set.insert(ZMM_STATE);
            }
        }
        FeatureSet(set)
    }
}

/// A chosen variant and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariantChoice {
    pub(crate) variant: Variant,
    /// `avx2; not avx-vnni: lacks avxvnni`.
    pub(crate) sentence: String,
}

/// The best variant, or the one asked for by name when `wanted` is not empty.
pub(crate) fn choose(features: &FeatureSet, wanted: &str) -> Result<VariantChoice> {
    let lacking = |variant: Variant| missing(variant, features).join(", ");
    if !wanted.is_empty() {
        let Some(variant) = VARIANTS.iter().copied().find(|variant| variant.name() == wanted) else {
            let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name()).collect();
            return Err(Failure::unsupported(format!(
                "no kernel variant is called `{wanted}`; this build has {}",
                names.join(", ")
            )));
        };
        if !missing(variant, features).is_empty() {
            let text = format!("kernel variant `{wanted}` cannot run on this CPU: it lacks {}", lacking(variant));
            return Err(Failure::new(StrataStatus::CpuUnsupported, text));
        }
        return Ok(VariantChoice { variant, sentence: format!("{wanted} as asked for") });
    }
    let Some(best) = VARIANTS.iter().rposition(|variant| missing(*variant, features).is_empty()) else {
        let text = format!("this CPU lacks {}, the least that the kernels need", lacking(VARIANTS[0]));
        return Err(Failure::new(StrataStatus::CpuUnsupported, text));
    };
    let variant = VARIANTS[best];
    let sentence = match VARIANTS.get(best + 1) {
        Some(next) => format!("{}; not {}: lacks {}", variant.name(), next.name(), lacking(*next)),
        None => format!("{}, the best there is", variant.name()),
    };
    Ok(VariantChoice { variant, sentence })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&'static str]) -> FeatureSet {
        FeatureSet(names.iter().copied().collect())
    }

    const VNNI: &[&str] = &["avx512f", "avx512bw", "avx512vl", "avx512vnni", ZMM_STATE];

    /// Flags as Linux prints them, and the best variant of ours.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_extension_counts() {
        let avx2: &[&str] = &["sse2", "avx", "f16c", "avx2", "fma", "bmi2"];
        let rows: &[(&[&str], Variant, &str)] = &[
            (&["sse2", "ssse3"], Variant::Scalar, "scalar; not avx2: lacks avx, avx2, fma, f16c"),
            (&["sse2", "avx"], Variant::Scalar, "scalar; not avx2: lacks avx2, fma, f16c"),
            (&["sse2", "avx", "f16c", "avx2"], Variant::Scalar, "scalar; not avx2: lacks fma"),
            (&["sse2", "avx", "fma", "avx2"], Variant::Scalar, "scalar; not avx2: lacks f16c"),
            (avx2, Variant::Avx2, "avx2; not avx-vnni: lacks avxvnni"),
            (
                &["sse2", "avx", "f16c", "avx2", "fma", "avxvnni"],
                Variant::AvxVnni,
                "avx-vnni; not vnni: lacks avx512f, avx512bw, avx512vl, avx512vnni, zmm state",
            ),
        ];
        for (flags, variant, sentence) in rows {
            let choice = choose(&set(flags), "").unwrap();
            assert_eq!((choice.variant, choice.sentence.as_str()), (*variant, *sentence));
        }
        let all = [avx2, VNNI].concat();
        assert_eq!(choose(&set(&all), "").unwrap().variant, Variant::Vnni);
        let no_state: Vec<&str> = all.iter().copied().filter(|name| *name != ZMM_STATE).collect();
        assert_eq!(choose(&set(&no_state), "").unwrap().variant, Variant::Avx2);
    }

    /// The table of the cases beside the checkout: flags, then the best of another set of variants.
    /// Ours has no step between the baseline and AVX2,
    /// and none for AVX-512 without its 8-bit dot product.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn table_of_reported_machines() {
        let shared = std::env::var_os("STRATA_SHARED").map_or_else(
            || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
            std::path::PathBuf::from,
        );
        let Ok(table) = fs_err::read_to_string(shared.join("cases/d09-cpu-variant/flags.tsv")) else {
            println!("skipped: no cases beside the checkout");
            return;
        };
        let known = [
            "avx", "avx2", "fma", "f16c", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "sse2", "sse4_1",
            "sse4_2", "ssse3", "bmi2",
        ];
        let mut n = 0;
        for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (flags, expected) = line.split_once('\t').unwrap();
            // Linux lists avx512 flags only with saved state; the table says when it is absent.
            let mut features: BTreeSet<&'static str> = BTreeSet::from(["sse2", ZMM_STATE]);
            let (flags, note) = flags.split_once(", ").unwrap_or((flags, ""));
            if note.contains("without ZMM") {
                features.remove(ZMM_STATE);
            }
            for flag in flags.split(' ') {
                features.insert(known.iter().copied().find(|name| *name == flag).unwrap());
            }
            let variant = choose(&FeatureSet(features), "").unwrap().variant;
            let expected = match expected.split([' ', ',']).next().unwrap() {
                "sse42" | "avx" | "baseline" => Variant::Scalar,
                "avx2" | "avx512" => Variant::Avx2,
                other => panic!("unknown variant {other}"),
            };
            assert_eq!(variant, expected, "{line}");
            n += 1;
        }
        assert!(n >= 9);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn too_old_a_cpu_is_named() {
        let failure = choose(&set(&[]), "").unwrap_err();
        assert_eq!(failure.status, StrataStatus::CpuUnsupported);
        assert!(failure.text.contains("sse2"), "{}", failure.text);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn asked_for_variants() {
        assert_eq!(choose(&set(&["sse2", "avx2", "avx", "fma", "f16c"]), "scalar").unwrap().variant, Variant::Scalar);
        let failure = choose(&set(&["sse2", "avx", "avx2", "f16c"]), "avx2").unwrap_err();
        assert_eq!(failure.status, StrataStatus::CpuUnsupported);
        assert!(failure.text.contains("lacks fma"), "{}", failure.text);
        let failure = choose(&FeatureSet::detect(), "neon9").unwrap_err();
        assert!(failure.text.contains("scalar, avx2"), "{}", failure.text);
    }
}
