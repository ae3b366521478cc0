//! The lattice formats IQ1, IQ2 and IQ3: points looked up one by one, signs and scales in vectors.

use super::formats::{Scales, byte_of, count, format, halves, spread_bits};
use super::load::words;
use crate::matmul::{field, iq1_m_scale, sign_bytes};
use core::arch::x86_64::{
    __m256, __m256i, _mm256_add_epi8, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_mul_ps,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_setr_ps,
    _mm256_slli_epi16, _mm256_slli_epi32, _mm256_srl_epi32, _mm256_srli_epi32, _mm256_sub_epi8, _mm256_xor_si256,
};
use strata_backend_abi::codebook::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS};

format!(Iq2Xxs, Large, 66 bytes, 8 x 32, offset 43,
values(block, sub) {
    let points = field::<4>(block, 2 + 8 * sub).map(|index| IQ2XXS_GRID[usize::from(index)]);
    let signs = u32::from_le_bytes(sign_bytes(u32::from_le_bytes(*field(block, 6 + 8 * sub))));
    with_signs(eights(points), signs, 43)
}
scales(blocks, scales) {
    let scale = _mm256_mul_ps(halves(blocks, 0), _mm256_set1_ps(0.125));
    for sub in 0..8 {
        scales.scale[sub] = times_odd(scale, _mm256_srli_epi32::<28>(words(blocks, 6 + 8 * sub)));
    }
});

format!(Iq2Xs, LargeSub, 74 bytes, 8 x 32, offset 43,
values(block, sub) {
    let code = |i: usize| usize::from(u16::from_le_bytes(*field(block, 2 + 8 * sub + 2 * i)));
    let codes: [usize; 4] = core::array::from_fn(code);
    let signs = u32::from_le_bytes(codes.map(|code| KSIGNS[code >> 9]));
    with_signs(eights(codes.map(|code| IQ2XS_GRID[code & 511])), signs, 43)
}
scales(blocks, scales) { odd_nibble_scales(blocks, 66, scales); });

format!(Iq2S, LargeSub, 82 bytes, 8 x 32, offset 43,
values(block, sub) {
    let low = field::<4>(block, 2 + 4 * sub);
    let high = usize::from(block[66 + sub]);
    let points = core::array::from_fn(|i| IQ2S_GRID[usize::from(low[i]) | (((high >> (2 * i)) & 3) << 8)]);
    with_signs(eights(points), u32::from_le_bytes(*field(block, 34 + 4 * sub)), 43)
}
scales(blocks, scales) { odd_nibble_scales(blocks, 74, scales); });

format!(Iq3Xxs, Large, 98 bytes, 8 x 32, offset 62,
values(block, sub) {
    let points = field::<8>(block, 2 + 8 * sub).map(|index| IQ3XXS_GRID[usize::from(index)]);
    let signs = u32::from_le_bytes(sign_bytes(u32::from_le_bytes(*field(block, 66 + 4 * sub))));
    with_signs(fours(points), signs, 62)
}
scales(blocks, scales) {
    let scale = _mm256_mul_ps(halves(blocks, 0), _mm256_set1_ps(0.25));
    for sub in 0..8 {
        scales.scale[sub] = times_odd(scale, _mm256_srli_epi32::<28>(words(blocks, 66 + 4 * sub)));
    }
});

format!(Iq3S, Small, 110 bytes, 8 x 32, offset 15,
values(block, sub) {
    let low = field::<8>(block, 2 + 8 * sub);
    let high = usize::from(block[66 + sub]);
    let points = core::array::from_fn(|i| IQ3S_GRID[usize::from(low[i]) | (((high >> i) & 1) << 8)]);
    with_signs(fours(points), u32::from_le_bytes(*field(block, 74 + 4 * sub)), 15)
}
scales(blocks, scales) {
    let scale = halves(blocks, 0);
    let packed = words(blocks, 106);
    for sub in 0..8 {
        let nibble = _mm256_and_si256(_mm256_srl_epi32(packed, count(4 * sub)), _mm256_set1_epi32(15));
        scales.scale[sub] = times_odd(scale, nibble);
    }
});

format!(Iq1S, Small, 50 bytes, 8 x 32, offset 9,
values(block, sub) {
    let low = field::<4>(block, 2 + 4 * sub);
    let high = usize::from(u16::from_le_bytes(*field(block, 34 + 2 * sub)));
    let points = core::array::from_fn(|i| IQ1S_GRID[usize::from(low[i]) | (((high >> (3 * i)) & 7) << 8)]);
    let shift = if high & 0x8000 == 0 { 10 } else { 8 };
    shifted(points, _mm256_set1_epi8(shift))
}
scales(blocks, scales) {
    let scale = _mm256_mul_ps(halves(blocks, 0), _mm256_set1_ps(0.125));
    for pair in 0..4 {
        let packed = words(blocks, 34 + 4 * pair);
        for half in 0..2 {
            let three = _mm256_and_si256(_mm256_srl_epi32(packed, count(12 + 16 * half)), _mm256_set1_epi32(7));
            scales.scale[2 * pair + half] = times_odd(scale, three);
        }
    }
});

format!(Iq1M, SmallSub, 56 bytes, 8 x 32, offset 9,
values(block, sub) {
    let low = field::<4>(block, 4 * sub);
    let high = usize::from(u16::from_le_bytes(*field(block, 32 + 2 * sub)));
    let points = core::array::from_fn(|i| IQ1S_GRID[usize::from(low[i]) | (((high >> (4 * i)) & 7) << 8)]);
    let shift = |i: usize| {
        let shift: u8 = if (high >> (4 * i)) & 8 == 0 { 10 } else { 8 };
        i64::from_le_bytes([shift; 8])
    };
    shifted(points, _mm256_setr_epi64x(shift(0), shift(1), shift(2), shift(3)))
}
scales(blocks, scales) {
    let scale = |row: usize| iq1_m_scale(blocks[row]) * 0.125;
    let scale = _mm256_setr_ps(scale(0), scale(1), scale(2), scale(3), scale(4), scale(5), scale(6), scale(7));
    for quarter in 0..4 {
        let packed = words(blocks, 48 + 4 * (quarter / 2));
        for pair in 0..2 {
            let index = 2 * quarter + pair;
            scales.scale[index] = scale;
            for half in 0..2 {
                let bits = count(16 * (quarter % 2) + 6 * pair + 3 * half);
                let three = _mm256_and_si256(_mm256_srl_epi32(packed, bits), _mm256_set1_epi32(7));
                scales.sub[index][half] = odd(three);
            }
        }
    }
});

#[inline]
#[target_feature(enable = "avx2")]
fn eights(points: [u64; 4]) -> __m256i {
    let [a, b, c, d] = points.map(u64::cast_signed);
    _mm256_setr_epi64x(a, b, c, d)
}

#[inline]
#[target_feature(enable = "avx2")]
fn fours(points: [u32; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = points.map(u32::cast_signed);
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// Magnitudes negated where `signs` has a bit, plus `offset`.
#[inline]
#[target_feature(enable = "avx2")]
fn with_signs(magnitudes: __m256i, signs: u32, offset: i8) -> __m256i {
    let mask = spread_bits(signs);
    let signed = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, mask), mask);
    _mm256_add_epi8(signed, _mm256_set1_epi8(offset))
}

/// 8·point + shift, for points of -1, 0 and 1; the shift has the offset in it. Shifting 16-bit
/// lanes moves the low byte's sign bits into the high byte, where they are masked off.
#[inline]
#[target_feature(enable = "avx2")]
fn shifted(points: [u64; 4], shift: __m256i) -> __m256i {
    let times_8 = _mm256_and_si256(_mm256_slli_epi16::<3>(eights(points)), _mm256_set1_epi8(-8));
    _mm256_add_epi8(times_8, shift)
}

/// 2·n + 1.
#[inline]
#[target_feature(enable = "avx2")]
fn odd(lanes: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_slli_epi32::<1>(lanes), _mm256_set1_epi32(1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn times_odd(scale: __m256, lanes: __m256i) -> __m256 {
    _mm256_mul_ps(scale, _mm256_cvtepi32_ps(odd(lanes)))
}

/// IQ2_XS and IQ2_S: a byte per 32 weights holds the scales of both halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn odd_nibble_scales<const N: usize>(blocks: &[&[u8; N]; 8], offset: usize, scales: &mut Scales) {
    let scale = _mm256_mul_ps(halves(blocks, 0), _mm256_set1_ps(0.125));
    for quarter in 0..2 {
        let packed = words(blocks, offset + 4 * quarter);
        for byte in 0..4 {
            let both = byte_of(packed, byte);
            let low = _mm256_and_si256(both, _mm256_set1_epi32(15));
            let index = 4 * quarter + byte;
            scales.scale[index] = scale;
            scales.sub[index] = [odd(low), odd(_mm256_srli_epi32::<4>(both))];
        }
    }
}
