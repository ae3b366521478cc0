//! The K formats and IQ4_XS: blocks of 256 with small whole scales. Eight rows' packed scales are
//! gathered as words, one row a lane, and unpacked in place, so that nothing needs transposing.

use super::formats::{byte_of, count, format, half_pairs, halves, lookup, nibbles};
use super::formats_plain::IQ4NL_BYTES;
use super::load::{load_32, words};
use crate::matmul::field;
use core::arch::x86_64::{
    __m256, __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_mul_ps, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps, _mm256_sll_epi32, _mm256_slli_epi16, _mm256_slli_epi32,
    _mm256_srai_epi32, _mm256_srl_epi16, _mm256_srl_epi32, _mm256_srli_epi16, _mm256_srli_epi32, _mm256_sub_epi32,
    _mm256_xor_ps,
};

format!(Q2K, SmallSubMin, 84 bytes, 8 x 32, offset 0,
values(block, sub) { plane_of_two(field(block, 16 + 32 * (sub / 4)), sub % 4) }
scales(blocks, scales) {
    let (scale, min) = half_pairs(blocks, 80);
    let min = negated(min);
    for quarter in 0..4 {
        let packed = words(blocks, 4 * quarter);
        let sub = _mm256_and_si256(packed, _mm256_set1_epi32(0x0f0f_0f0f));
        let sub_min = _mm256_and_si256(_mm256_srli_epi32::<4>(packed), _mm256_set1_epi32(0x0f0f_0f0f));
        for pair in 0..2 {
            let index = 2 * quarter + pair;
            scales.scale[index] = scale;
            scales.min[index] = min;
            scales.sub[index] = [byte_of(sub, 2 * pair), byte_of(sub, 2 * pair + 1)];
            scales.sub_min[index] = [byte_of(sub_min, 2 * pair), byte_of(sub_min, 2 * pair + 1)];
        }
    }
});

format!(Q3K, SmallSub, 110 bytes, 8 x 32, offset 4,
values(block, sub) {
    let low = plane_of_two(field(block, 32 + 32 * (sub / 4)), sub % 4);
    _mm256_or_si256(low, bit_plane(field(block, 0), sub, 4))
}
scales(blocks, scales) {
    let scale = halves(blocks, 108);
    let low = [words(blocks, 96), words(blocks, 100)];
    let high = words(blocks, 104);
    for quarter in 0..4 {
        let low = _mm256_srl_epi32(low[quarter % 2], count(4 * (quarter / 2)));
        let high = _mm256_and_si256(_mm256_srl_epi32(high, count(2 * quarter)), _mm256_set1_epi32(0x0303_0303));
        let packed =
            _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(0x0f0f_0f0f)), _mm256_slli_epi32::<4>(high));
        for pair in 0..2 {
            let index = 2 * quarter + pair;
            scales.scale[index] = scale;
            for half in 0..2 {
                let biased = byte_of(packed, 2 * pair + half);
                scales.sub[index][half] = _mm256_sub_epi32(biased, _mm256_set1_epi32(32));
            }
        }
    }
});

format!(Q4K, SmallMin, 144 bytes, 8 x 32, offset 0,
values(block, sub) { plane_of_four(field(block, 16 + 32 * (sub / 2)), sub % 2) }
scales(blocks, scales) { scales_and_minima(blocks, scales); });

format!(Q5K, SmallMin, 176 bytes, 8 x 32, offset 0,
values(block, sub) {
    let low = plane_of_four(field(block, 48 + 32 * (sub / 2)), sub % 2);
    _mm256_or_si256(low, bit_plane(field(block, 16), sub, 16))
}
scales(blocks, scales) { scales_and_minima(blocks, scales); });

format!(Q6K, MediumSub, 210 bytes, 8 x 32, offset 32,
values(block, sub) {
    let (half, quarter) = (sub / 4, sub % 4);
    let low = plane_of_four(field(block, 64 * half + 32 * (quarter % 2)), quarter / 2);
    _mm256_or_si256(low, high_of_two(field(block, 128 + 32 * half), quarter))
}
scales(blocks, scales) {
    let scale = halves(blocks, 208);
    for quarter in 0..4 {
        let packed = words(blocks, 192 + 4 * quarter);
        for pair in 0..2 {
            let index = 2 * quarter + pair;
            scales.scale[index] = scale;
            scales.sub[index] = [signed_byte_of(packed, 2 * pair), signed_byte_of(packed, 2 * pair + 1)];
        }
    }
});

format!(Iq4Xs, Signed, 136 bytes, 8 x 32, offset 0,
values(block, sub) { lookup(&IQ4NL_BYTES, nibbles(field(block, 8 + 16 * sub))) }
scales(blocks, scales) {
    let scale = halves(blocks, 0);
    // The word at 0 is the half-precision scale and, above it, two high bits per stretch.
    let high = words(blocks, 0);
    let low = words(blocks, 4);
    for sub in 0..8 {
        let low = _mm256_and_si256(_mm256_srl_epi32(low, count(4 * sub)), _mm256_set1_epi32(15));
        let high = _mm256_and_si256(_mm256_srl_epi32(high, count(16 + 2 * sub)), _mm256_set1_epi32(3));
        let biased = _mm256_or_si256(low, _mm256_slli_epi32::<4>(high));
        let whole = _mm256_sub_epi32(biased, _mm256_set1_epi32(32));
        scales.scale[sub] = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(whole));
    }
});

/// 2-bit numbers `plane` of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn plane_of_two(bytes: &[u8; 32], plane: usize) -> __m256i {
    _mm256_and_si256(_mm256_srl_epi16(load_32(bytes), count(2 * plane)), _mm256_set1_epi8(3))
}

/// 2-bit numbers `plane` of each byte, times 16: one shift straight to their place.
#[inline]
#[target_feature(enable = "avx2")]
fn high_of_two(bytes: &[u8; 32], plane: usize) -> __m256i {
    let packed = load_32(bytes);
    let placed = match plane {
        0 => _mm256_slli_epi16::<4>(packed),
        1 => _mm256_slli_epi16::<2>(packed),
        2 => packed,
        _ => _mm256_srli_epi16::<2>(packed),
    };
    _mm256_and_si256(placed, _mm256_set1_epi8(0x30))
}

/// 4-bit numbers `plane` of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn plane_of_four(bytes: &[u8; 32], plane: usize) -> __m256i {
    _mm256_and_si256(_mm256_srl_epi16(load_32(bytes), count(4 * plane)), _mm256_set1_epi8(15))
}

/// `value` where bit `plane` of a byte is set.
#[inline]
#[target_feature(enable = "avx2")]
fn bit_plane(bytes: &[u8; 32], plane: usize, value: i8) -> __m256i {
    let bit = _mm256_set1_epi8((1_u8 << plane).cast_signed());
    let mask = _mm256_cmpeq_epi8(_mm256_and_si256(load_32(bytes), bit), bit);
    _mm256_and_si256(mask, _mm256_set1_epi8(value))
}

/// Byte `index` of every lane with its sign.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_byte_of(lanes: __m256i, index: usize) -> __m256i {
    _mm256_srai_epi32::<24>(_mm256_sll_epi32(lanes, count(24 - 8 * index)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn negated(values: __m256) -> __m256 {
    _mm256_xor_ps(values, _mm256_set1_ps(-0.0))
}

/// The 6-bit scales and minima of Q4_K and Q5_K: half-precision pair at 0, 12 packed bytes at 4.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scales_and_minima<const N: usize>(blocks: &[&[u8; N]; 8], scales: &mut super::formats::Scales) {
    let (scale, min) = half_pairs(blocks, 0);
    let min = negated(min);
    let (a, b, c) = (words(blocks, 4), words(blocks, 8), words(blocks, 12));
    let (six, four, two) =
        (_mm256_set1_epi32(0x3f3f_3f3f), _mm256_set1_epi32(0x0f0f_0f0f), _mm256_set1_epi32(0x3030_3030));
    let top = |lanes: __m256i| _mm256_and_si256(_mm256_srli_epi32::<2>(lanes), two);
    let whole = [_mm256_and_si256(a, six), _mm256_or_si256(_mm256_and_si256(c, four), top(a))];
    let whole_min =
        [_mm256_and_si256(b, six), _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32::<4>(c), four), top(b))];
    for sub in 0..8 {
        let of = |lanes: &[__m256i; 2]| _mm256_cvtepi32_ps(byte_of(lanes[sub / 4], sub % 4));
        scales.scale[sub] = _mm256_mul_ps(scale, of(&whole));
        scales.min[sub] = _mm256_mul_ps(min, of(&whole_min));
    }
}
