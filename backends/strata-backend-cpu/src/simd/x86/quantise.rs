//! Activations to 8 bits; must agree with `crate::matmul::quantise_block`.

use super::load::load_f32;
use crate::matmul::half_scales;
use crate::simd::{ActivationBlock, BLOCK};
use core::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_madd_epi16, _mm_maddubs_epi16, _mm_max_epi32,
    _mm_packs_epi16, _mm_set1_epi8, _mm_set1_epi16, _mm_shuffle_epi32, _mm_storeu_si128, _mm256_and_si256,
    _mm256_castps_si256, _mm256_castsi256_si128, _mm256_cvtps_epi32, _mm256_extracti128_si256, _mm256_max_epi32,
    _mm256_mul_ps, _mm256_packs_epi32, _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm256_set1_ps,
};

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quantise(x: &[[f32; BLOCK]], out: &mut [ActivationBlock]) {
    for (x, out) in x.iter().zip(out) {
        let parts = x.as_chunks::<8>().0;
        let x = [load_f32(&parts[0]), load_f32(&parts[1]), load_f32(&parts[2]), load_f32(&parts[3])];
        let greatest = [greatest_bits(x[0], x[1]), greatest_bits(x[2], x[3])];
        let (unit, multipliers) = half_scales(greatest.map(|bits| f32::from_bits(bits.cast_unsigned())));
        let Some(multipliers) = multipliers else {
            *out = ActivationBlock { unit, sum: unit, multiplier: [[1; 2]; 2], ..ActivationBlock::default() };
            continue;
        };
        *out = ActivationBlock { unit, ..ActivationBlock::default() };
        for half in 0..2 {
            let inverse = _mm256_set1_ps(1.0 / (multipliers[half] * unit));
            let q = sixteen_bytes(_mm256_mul_ps(x[2 * half], inverse), _mm256_mul_ps(x[2 * half + 1], inverse));
            store_half(&mut out.q, half, q);
            out.multiplier[half] = [multipliers[half] as i16; 2];
            out.weighted[half] = multipliers[half] as i32 * sum_of_bytes(q);
        }
        out.whole = out.weighted[0] + out.weighted[1];
        out.sum = out.whole as f32 * unit;
    }
}

/// The greatest magnitude of 16 floats, as bits.
#[inline]
#[target_feature(enable = "avx2")]
fn greatest_bits(a: __m256, b: __m256) -> i32 {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let bits = |x: __m256| _mm256_and_si256(_mm256_castps_si256(x), magnitude);
    let most: __m256i = _mm256_max_epi32(bits(a), bits(b));
    let most = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256::<1>(most));
    let most = _mm_max_epi32(most, _mm_shuffle_epi32::<0b00_00_11_10>(most));
    _mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32::<0b00_00_00_01>(most)))
}

/// 16 floats rounded to the nearest whole numbers, ties to even, within ±127 already.
#[inline]
#[target_feature(enable = "avx2")]
fn sixteen_bytes(a: __m256, b: __m256) -> __m128i {
    let words = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
    _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_bytes(q: __m128i) -> i32 {
    let pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), q);
    let sums = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
    let sums = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b00_00_11_10>(sums));
    _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32::<0b00_00_00_01>(sums)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_half(out: &mut [i8; BLOCK], half: usize, q: __m128i) {
    let target = &mut out.as_chunks_mut::<16>().0[half];
    // SAFETY: 16 writable bytes, by type; the store takes any alignment.
    unsafe { _mm_storeu_si128(target.as_mut_ptr().cast(), q) };
}
