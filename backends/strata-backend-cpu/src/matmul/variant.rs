//! The sets of kernels. Which one a device gets and why is chosen in `crate::variant`.

/// A set of kernels. All variants give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Plain Rust: the reference, and what a CPU without AVX2 gets.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// As `Avx2`, with the 8-bit dot product of AVX-VNNI, which processors without AVX-512 have.
    AvxVnni,
    /// As `Avx2`, with the 8-bit dot product of AVX-512 VNNI on 256-bit registers.
    Vnni,
}

impl Variant {
    /// The name that device options use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Scalar => "scalar",
            Variant::Avx2 => "avx2",
            Variant::AvxVnni => "avx-vnni",
            Variant::Vnni => "vnni",
        }
    }

    /// Whether this CPU and its operating system can run it.
    pub(crate) fn is_supported(self) -> bool {
        match self {
            Variant::Scalar => true,
            Variant::Avx2 => cpu_has_avx2(),
            Variant::AvxVnni => cpu_has_avx2() && cpu_has_avx_vnni(),
            Variant::Vnni => cpu_has_avx2() && cpu_has_vnni(),
        }
    }

    /// Whether kernels may use AVX2, FMA and F16C.
    pub(crate) fn has_avx2(self) -> bool {
        self != Variant::Scalar
    }

    /// Whether tiles hold unsigned bytes for a dot product of unsigned and signed ones.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_dot_product(self) -> bool {
        matches!(self, Variant::AvxVnni | Variant::Vnni)
    }

    /// The fastest one here.
    #[cfg(test)]
    pub(crate) fn best() -> Variant {
        Variant::supported().last().copied().unwrap_or(Variant::Scalar)
    }

    /// What this CPU can run, slowest first.
    #[cfg(test)]
    pub(crate) fn supported() -> Vec<Variant> {
        [Variant::Scalar, Variant::Avx2, Variant::AvxVnni, Variant::Vnni]
            .into_iter()
            .filter(|variant| variant.is_supported())
            .collect()
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn cpu_has_avx_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avxvnni")
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
fn cpu_has_avx_vnni() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_has_vnni() -> bool {
    false
}
