//! Unpacking of the block formats with AVX2: 32 weights of a row as bytes, and the scales of eight
//! rows side by side. Must agree with `crate::matmul::unpack`. This file is what the formats share; they
//! themselves are in `formats_plain.rs` (blocks of 32), `formats_k.rs` and `formats_iq.rs`.

use super::load::{load_16_twice, words};
use crate::matmul::{Minimum, field};
use core::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_cvtsi32_si128, _mm_setr_epi16, _mm256_and_si256, _mm256_castsi256_si128,
    _mm256_cmpeq_epi8, _mm256_cvtph_ps, _mm256_extracti128_si256, _mm256_packus_epi32, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srl_epi32, _mm256_srli_epi32, _mm256_srlv_epi32,
};

/// How sums over a format's bytes are formed: what kernels are instantiated for.
pub(super) trait Kind {
    /// Bytes are signed; else unsigned with the format's offset.
    const SIGNED: bool;
    /// How many pairs of products may be added in 16 bits: 4 for values up to 31, 2 up to 63, else 1.
    const DEPTH: usize;
    const SUB_SCALES: bool;
    const MINIMUM: Minimum;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $signed:literal, $depth:literal, $sub:literal, $minimum:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl Kind for $name {
            const SIGNED: bool = $signed;
            const DEPTH: usize = $depth;
            const SUB_SCALES: bool = $sub;
            const MINIMUM: Minimum = Minimum::$minimum;
        }
    )*};
}

kinds! {
    Small: false, 4, false, None;
    SmallMin: false, 4, false, Block;
    SmallSub: false, 4, true, None;
    SmallSubMin: false, 4, true, Half;
    MediumSub: false, 2, true, None;
    Large: false, 1, false, None;
    LargeSub: false, 1, true, None;
    Signed: true, 1, false, None;
}

/// Scales of eight rows, one row a lane, for each 32 weights of a block.
pub(super) struct Scales {
    pub(super) scale: [__m256; 8],
    pub(super) min: [__m256; 8],
    pub(super) sub: [[__m256i; 2]; 8],
    pub(super) sub_min: [[__m256i; 2]; 8],
}

impl Scales {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn new() -> Scales {
        let (zero, none) = (_mm256_setzero_ps(), [_mm256_setzero_si256(); 2]);
        Scales { scale: [zero; 8], min: [zero; 8], sub: [none; 8], sub_min: [none; 8] }
    }
}

/// A block format as the kernels see it.
pub(super) trait Format {
    type Kind: Kind;
    /// The bytes of one block.
    type Block: Copy;
    /// Stretches of 32 weights in a block.
    const SUB_BLOCKS: usize;
    /// What `values` adds to the weights' whole numbers.
    const OFFSET: i32;

    fn blocks(row: &[u8]) -> &[Self::Block];

    /// Weights `32·sub..` of the block.
    ///
    /// # Safety
    /// The CPU has AVX2.
    unsafe fn values(block: &Self::Block, sub: usize) -> __m256i;

    /// The scales of all stretches of eight rows' blocks.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA and F16C.
    unsafe fn scales(blocks: &[&Self::Block; 8], scales: &mut Scales);
}

/// Half-precision numbers at `offset` of eight rows' blocks, one row a lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn halves<const N: usize>(blocks: &[&[u8; N]; 8], offset: usize) -> __m256 {
    let half = |row: usize| i16::from_le_bytes(*field(blocks[row], offset));
    _mm256_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)))
}

/// Two half-precision numbers that follow each other at `offset`, as [`halves`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn half_pairs<const N: usize>(blocks: &[&[u8; N]; 8], offset: usize) -> (__m256, __m256) {
    let pairs = words(blocks, offset);
    let low = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
    let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, _mm256_srli_epi32::<16>(pairs)));
    (_mm256_cvtph_ps(_mm256_castsi256_si128(packed)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed)))
}

/// 16 bytes as 32 numbers of 4 bits, the low halves first.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn nibbles(bytes: &[u8; 16]) -> __m256i {
    let shifted = _mm256_srlv_epi32(load_16_twice(bytes), _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    _mm256_and_si256(shifted, _mm256_set1_epi8(15))
}

/// A mask byte for each of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn spread_bits(bits: u32) -> __m256i {
    let ones = 0x0101_0101_0101_0101_i64;
    let byte_of = _mm256_setr_epi64x(0, ones, 2 * ones, 3 * ones);
    let bit_of = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), byte_of);
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of)
}

/// Byte `index` of every lane, not negative.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn byte_of(lanes: __m256i, index: usize) -> __m256i {
    _mm256_and_si256(_mm256_srl_epi32(lanes, count(8 * index)), _mm256_set1_epi32(255))
}

/// A shift count; a constant after inlining.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn count(bits: usize) -> __m128i {
    _mm_cvtsi32_si128(bits as i32)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lookup(table: &[u8; 16], indices: __m256i) -> __m256i {
    _mm256_shuffle_epi8(load_16_twice(table), indices)
}

/// Defines a format: its block, its kind, and the two functions with the target features on.
macro_rules! format {
    ($name:ident, $kind:ident, $bytes:literal bytes, $sub_blocks:literal x 32, offset $offset:literal,
     values($block:ident, $sub:ident) $values:block scales($blocks:ident, $scales:ident) $fill:block) => {
        pub(in super::super) struct $name;
        impl $crate::simd::x86::formats::Format for $name {
            type Kind = $crate::simd::x86::formats::$kind;
            type Block = [u8; $bytes];
            const SUB_BLOCKS: usize = $sub_blocks;
            const OFFSET: i32 = $offset;

            fn blocks(row: &[u8]) -> &[Self::Block] {
                row.as_chunks().0
            }

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn values($block: &Self::Block, $sub: usize) -> __m256i {
                $values
            }

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn scales($blocks: &[&Self::Block; 8], $scales: &mut $crate::simd::x86::formats::Scales) {
                $fill
            }
        }
    };
}
pub(super) use format;
