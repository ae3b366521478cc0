//! The formats with blocks of 32 weights.

use super::formats::{byte_of, format, half_pairs, halves, lookup, nibbles, spread_bits};
use super::load::{load_32, words};
use crate::matmul::field;
use core::arch::x86_64::{
    __m256, __m256i, _mm256_and_si256, _mm256_blendv_epi8, _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_sub_epi32,
};
use strata_backend_abi::codebook::{IQ4NL_VALUES, MXFP4_VALUES};

format!(Q4_0, Small, 18 bytes, 1 x 32, offset 8,
values(block, _sub) { nibbles(field(block, 2)) }
scales(blocks, scales) { scales.scale[0] = halves(blocks, 0); });

format!(Q4_1, SmallMin, 20 bytes, 1 x 32, offset 0,
values(block, _sub) { nibbles(field(block, 4)) }
scales(blocks, scales) { (scales.scale[0], scales.min[0]) = half_pairs(blocks, 0); });

format!(Q5_0, Small, 22 bytes, 1 x 32, offset 16,
values(block, _sub) { fives(*field(block, 2), field(block, 6)) }
scales(blocks, scales) { scales.scale[0] = halves(blocks, 0); });

format!(Q5_1, SmallMin, 24 bytes, 1 x 32, offset 0,
values(block, _sub) { fives(*field(block, 4), field(block, 8)) }
scales(blocks, scales) { (scales.scale[0], scales.min[0]) = half_pairs(blocks, 0); });

format!(Q8_0, Signed, 34 bytes, 1 x 32, offset 0,
values(block, _sub) { load_32(field(block, 2)) }
scales(blocks, scales) { scales.scale[0] = halves(blocks, 0); });

format!(Iq4Nl, Signed, 18 bytes, 1 x 32, offset 0,
values(block, _sub) { lookup(&IQ4NL_BYTES, nibbles(field(block, 2))) }
scales(blocks, scales) { scales.scale[0] = halves(blocks, 0); });

format!(Mxfp4, Small, 17 bytes, 1 x 32, offset 12,
values(block, _sub) { lookup(&MXFP4_BYTES, nibbles(field(block, 1))) }
scales(blocks, scales) {
    scales.scale[0] = e8m0_halves(byte_of(words(blocks, 0), 0));
});

/// Half of the powers of two that E8M0 bytes name: 2^(e - 128), of which the two lowest are subnormal.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn e8m0_halves(exponents: __m256i) -> __m256 {
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)));
    let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), exponents);
    let is_normal = _mm256_cmpgt_epi32(exponents, _mm256_set1_epi32(1));
    _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal))
}

/// `nibbles` with the fifth bits in a word.
#[inline]
#[target_feature(enable = "avx2")]
fn fives(high: [u8; 4], low: &[u8; 16]) -> __m256i {
    let fifth = _mm256_and_si256(spread_bits(u32::from_le_bytes(high)), _mm256_set1_epi8(16));
    _mm256_or_si256(nibbles(low), fifth)
}

/// The values of IQ4_NL as bytes.
pub(super) static IQ4NL_BYTES: [u8; 16] = bytes_plus(&IQ4NL_VALUES, 0);
/// MXFP4's values plus 12.
static MXFP4_BYTES: [u8; 16] = bytes_plus(&MXFP4_VALUES, 12);

const fn bytes_plus(values: &[i8; 16], offset: i8) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < 16 {
        bytes[i] = (values[i] + offset).cast_unsigned();
        i += 1;
    }
    bytes
}
