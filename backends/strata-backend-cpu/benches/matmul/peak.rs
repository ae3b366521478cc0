//! What one core's multiply-add instructions for 8-bit numbers can do at most: the ceiling that the
//! prefill column is compared with. Eight independent sums in registers, nothing is loaded or stored.

#![expect(unsafe_code, reason = "instructions are chosen by variant; the optimiser is kept out by empty assembly")]

use super::matmul::Variant;

const TURNS: u32 = 200_000;
const SUMS: usize = 8;

/// Multiply-adds a second of the instruction that a variant's tiles are built on; `None` for plain Rust.
pub(super) fn measure(variant: Variant) -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    {
        let run: unsafe fn() = match variant {
            Variant::Scalar => return None,
            Variant::Avx2 => x86::maddubs,
            Variant::AvxVnni => x86::dot_avx,
            Variant::Vnni => x86::dot_avx512,
        };
        // SAFETY: `main` keeps only variants that this processor supports.
        let times = (0..31).map(|_| super::seconds(|| unsafe { run() })).collect();
        Some(f64::from(TURNS) * SUMS as f64 * 32.0 / super::low(times))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = variant;
        None
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{SUMS, TURNS};
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi16, _mm256_dpbusd_avx_epi32, _mm256_dpbusd_epi32, _mm256_maddubs_epi16,
        _mm256_set1_epi8, _mm256_setzero_si256,
    };
    use std::hint::black_box;

    macro_rules! peak {
        ($name:ident, $features:literal, |$sum:ident, $a:ident, $b:ident| $step:expr) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name() {
                let mut sums = [_mm256_setzero_si256(); SUMS];
                // One pair of operands a sum, hidden from the optimiser, so that no product is shared.
                let pairs: [(__m256i, __m256i); SUMS] =
                    core::array::from_fn(|i| black_box((_mm256_set1_epi8(i as i8 + 1), _mm256_set1_epi8(3))));
                for _ in 0..TURNS {
                    for ($sum, ($a, $b)) in sums.iter_mut().zip(pairs) {
                        *$sum = $step;
                    }
                    sums = keep(sums);
                }
                black_box(sums);
            }
        };
    }

    /// The sums as they are, without letting the optimiser combine turns.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn keep(mut sums: [__m256i; SUMS]) -> [__m256i; SUMS] {
        for sum in &mut sums {
            *sum = opaque(*sum);
        }
        sums
    }

    peak!(maddubs, "avx2", |sum, a, b| _mm256_add_epi16(*sum, _mm256_maddubs_epi16(opaque(a), b)));
    peak!(dot_avx, "avx2,avxvnni", |sum, a, b| _mm256_dpbusd_avx_epi32(*sum, a, b));
    peak!(dot_avx512, "avx2,avx512vl,avx512vnni", |sum, a, b| _mm256_dpbusd_epi32(*sum, a, b));

    /// An operand that may differ each time, so that its product is not taken out of the loop.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn opaque(mut value: __m256i) -> __m256i {
        // SAFETY: an empty instruction that claims to change a register.
        unsafe { core::arch::asm!("/* {0} */", inout(ymm_reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }
}
