//! Loads and stores of fixed-size arrays, and small register idioms. All of AVX2.

use core::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadu_si128, _mm256_broadcastsi128_si256, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_storeu_ps, _mm256_storeu_si256,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes, by type; the load takes any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_i8(values: &[i8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes, by type; the load takes any alignment.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_i32(values: &[i32; 8]) -> __m256i {
    // SAFETY: 32 readable bytes, by type; the load takes any alignment.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes, by type; the load takes any alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// The same 16 bytes in both halves.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_16_twice(bytes: &[u8; 16]) -> __m256i {
    _mm256_broadcastsi128_si256(load_16(bytes))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_f32(values: &[f32; 8]) -> __m256 {
    // SAFETY: 8 readable floats, by type; the load takes any alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_f32(out: &mut [f32; 8], values: __m256) {
    // SAFETY: 8 writable floats, by type; the store takes any alignment.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), values) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_i32(out: &mut [i32; 8], values: __m256i) {
    // SAFETY: 32 writable bytes, by type; the store takes any alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), values) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_tile_row(out: &mut [[u8; 4]; 8], values: __m256i) {
    // SAFETY: 32 writable bytes, by type; the store takes any alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), values) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_tile_row(values: &[[u8; 4]; 8]) -> __m256i {
    // SAFETY: 32 readable bytes, by type; the load takes any alignment.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

/// Four bytes in every 32-bit lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn broadcast_4(values: &[i8; 32], group: usize) -> __m256i {
    let four = &values.as_chunks::<4>().0[group];
    // SAFETY: 4 readable bytes, by type; the read takes any alignment.
    _mm256_set1_epi32(unsafe { four.as_ptr().cast::<i32>().read_unaligned() })
}

/// Two 16-bit numbers in every 32-bit lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn broadcast_pair(pair: [i16; 2]) -> __m256i {
    let [low, high] = pair.map(|half| u32::from(half.cast_unsigned()));
    _mm256_set1_epi32((low | (high << 16)).cast_signed())
}

/// The little-endian words at `offset` of eight rows' blocks, one row a lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn words<const N: usize>(blocks: &[&[u8; N]; 8], offset: usize) -> __m256i {
    let word = |row: usize| i32::from_le_bytes(*crate::matmul::field(blocks[row], offset));
    _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7))
}

/// Swaps rows and columns of 8 × 8 lanes of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let (ef0, ef1) = (_mm256_unpacklo_epi32(e, f), _mm256_unpackhi_epi32(e, f));
    let (gh0, gh1) = (_mm256_unpacklo_epi32(g, h), _mm256_unpackhi_epi32(g, h));
    let low = [
        _mm256_unpacklo_epi64(ab0, cd0),
        _mm256_unpackhi_epi64(ab0, cd0),
        _mm256_unpacklo_epi64(ab1, cd1),
        _mm256_unpackhi_epi64(ab1, cd1),
    ];
    let high = [
        _mm256_unpacklo_epi64(ef0, gh0),
        _mm256_unpackhi_epi64(ef0, gh0),
        _mm256_unpacklo_epi64(ef1, gh1),
        _mm256_unpackhi_epi64(ef1, gh1),
    ];
    [
        _mm256_permute2x128_si256::<0x20>(low[0], high[0]),
        _mm256_permute2x128_si256::<0x20>(low[1], high[1]),
        _mm256_permute2x128_si256::<0x20>(low[2], high[2]),
        _mm256_permute2x128_si256::<0x20>(low[3], high[3]),
        _mm256_permute2x128_si256::<0x31>(low[0], high[0]),
        _mm256_permute2x128_si256::<0x31>(low[1], high[1]),
        _mm256_permute2x128_si256::<0x31>(low[2], high[2]),
        _mm256_permute2x128_si256::<0x31>(low[3], high[3]),
    ]
}
