//! Which kernels run: chosen once per device, from what the CPU has.

/// A set of kernels. All variants give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Plain Rust: the reference, and what a CPU without AVX2 gets.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// As `Avx2`, with the 8-bit dot product of AVX-512 VNNI on 256-bit registers.
    Vnni,
}

impl Variant {
    const ALL: [Variant; 3] = [Variant::Scalar, Variant::Avx2, Variant::Vnni];

    /// The name that device options use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Scalar => "scalar",
            Variant::Avx2 => "avx2",
            Variant::Vnni => "vnni",
        }
    }

    /// Whether this CPU and its operating system can run it.
    pub(crate) fn is_supported(self) -> bool {
        match self {
            Variant::Scalar => true,
            Variant::Avx2 => cpu_has_avx2(),
            Variant::Vnni => cpu_has_avx2() && cpu_has_vnni(),
        }
    }

    /// Whether kernels may use AVX2, FMA and F16C.
    pub(crate) fn has_avx2(self) -> bool {
        self != Variant::Scalar
    }

    /// What this CPU can run, slowest first.
    pub(crate) fn supported() -> Vec<Variant> {
        Variant::ALL.into_iter().filter(|variant| variant.is_supported()).collect()
    }

    /// The fastest one here.
    pub(crate) fn best() -> Variant {
        Variant::ALL.into_iter().rev().find(|variant| variant.is_supported()).unwrap_or(Variant::Scalar)
    }

    /// The variant with this name, the best one for an empty name; the error says why not.
    pub(crate) fn parse(name: &str) -> Result<Variant, String> {
        if name.is_empty() {
            return Ok(Variant::best());
        }
        let Some(variant) = Variant::ALL.into_iter().find(|variant| variant.name() == name) else {
            let known = Variant::ALL.map(Variant::name).join(", ");
            return Err(format!("no kernel variant `{name}`; there are {known}"));
        };
        if variant.is_supported() {
            Ok(variant)
        } else {
            Err(format!("kernel variant `{name}` needs instructions that this CPU lacks"))
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn cpu_has_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_has_vnni() -> bool {
    false
}
