//! Few columns: eight rows at a time straight from the weights' own bytes, one row a lane.
//!
//! Per 32 columns each row gives 16 sums of two products; a tree of unpacks and adds brings eight
//! rows' sums into one register. Against keeping a vector of partial sums per row, that costs about
//! as many shuffles as it saves conversions and multiplications, and it makes the float part the
//! same as the tiles' (`tiles.rs`), which is what the identical bits rest on.

use super::formats::{Format, Kind, Scales};
use super::load::{broadcast_pair, load_i8};
use crate::matmul::Minimum;
use crate::simd::ActivationBlock;
use core::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_blend_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_mullo_epi32, _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_sign_epi8, _mm256_sub_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

/// What decode prefetches while it works on eight rows: as many bytes as they have, in order of their
/// addresses, because eight short strides give the hardware's prefetchers little to go by.
///
/// Measured over row lengths and formats: groups that fit the first-level cache twice are best fetched
/// there, exactly one group ahead (the cache's misses in order then wake the second level's own
/// prefetcher); of longer ones the rows push each other out, and shorter ones come too late, so these go
/// into the second level and further ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    distance: usize,
    near: bool,
}

impl Ahead {
    /// Bytes of eight rows that are fetched into the first level.
    const NEAR: core::ops::RangeInclusive<usize> = 4096..=10240;
    /// How far ahead the others are fetched at least.
    const FAR: usize = 12800;

    pub(super) fn of(group_bytes: usize) -> Ahead {
        let near = Ahead::NEAR.contains(&group_bytes);
        Ahead { distance: if near { group_bytes } else { group_bytes.max(Ahead::FAR) }, near }
    }

    /// `offset` bytes into the group that starts at `group`. The address need not be readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fetch(self, group: *const u8, offset: usize) {
        let address = group.wrapping_add(self.distance + offset).cast();
        if self.near {
            _mm_prefetch::<_MM_HINT_T0>(address);
        } else {
            _mm_prefetch::<_MM_HINT_T1>(address);
        }
    }
}

/// Eight rows times one prepared activation row. `group` is where the first row starts.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn eight_rows<F: Format>(
    rows: &[&[F::Block]; 8],
    x: &[ActivationBlock],
    group: *const u8,
    ahead: Ahead,
) -> __m256 {
    let bytes = 8 * size_of::<F::Block>();
    let mut acc = _mm256_setzero_ps();
    let mut scales = Scales::new();
    for (index, x) in x.chunks_exact(F::SUB_BLOCKS).enumerate() {
        for line in 0..bytes.div_ceil(64) {
            ahead.fetch(group, index * bytes + 64 * line);
        }
        let blocks = at(rows, index);
        // SAFETY: this function's target features are what the call needs.
        unsafe { F::scales(&blocks, &mut scales) };
        acc = stretch::<F, 0>(acc, &blocks, x, &scales);
        // Each is a copy of its own: with the number known, shifts are by constants and bytes that two stretches
        // share are loaded once. The compiler does not unroll a loop that long.
        if F::SUB_BLOCKS == 8 {
            acc = stretch::<F, 1>(acc, &blocks, x, &scales);
            acc = stretch::<F, 2>(acc, &blocks, x, &scales);
            acc = stretch::<F, 3>(acc, &blocks, x, &scales);
            acc = stretch::<F, 4>(acc, &blocks, x, &scales);
            acc = stretch::<F, 5>(acc, &blocks, x, &scales);
            acc = stretch::<F, 6>(acc, &blocks, x, &scales);
            acc = stretch::<F, 7>(acc, &blocks, x, &scales);
        }
    }
    acc
}

/// Stretch `SUB` of 32 columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn stretch<F: Format, const SUB: usize>(
    acc: __m256,
    blocks: &[&F::Block; 8],
    x: &[ActivationBlock],
    scales: &Scales,
) -> __m256 {
    const { assert!(F::SUB_BLOCKS == 1 || F::SUB_BLOCKS == 8, "blocks of 32 or 256") };
    let x = &x[SUB];
    let whole = whole_sums::<F>(blocks, SUB, x, scales);
    accumulate::<F::Kind>(acc, whole, x, scales.scale[SUB], scales.min[SUB], &scales.sub_min[SUB])
}

/// The `index`-th element of each slice. A loop, because the optimiser leaves a call to the array's
/// `map` in place here, and that call cost a third of a kernel's speed.
#[inline]
pub(super) fn at<'a, T, const N: usize>(slices: &[&'a [T]; N], index: usize) -> [&'a T; N] {
    let mut elements = [&slices[0][index]; N];
    for (element, slice) in elements.iter_mut().zip(slices) {
        *element = &slice[index];
    }
    elements
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn prefetch(address: *const u8) {
    _mm_prefetch::<_MM_HINT_T1>(address.cast());
}

/// Steps 2 and 3 of the order in `crate::matmul`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn accumulate<K: Kind>(
    acc: __m256,
    whole: __m256i,
    x: &ActivationBlock,
    scale: __m256,
    min: __m256,
    sub_min: &[__m256i; 2],
) -> __m256 {
    let unit = _mm256_set1_ps(x.unit);
    let acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), _mm256_mul_ps(scale, unit), acc);
    match K::MINIMUM {
        Minimum::None => acc,
        Minimum::Block => _mm256_fmadd_ps(min, _mm256_set1_ps(x.sum), acc),
        Minimum::Half => {
            let low = _mm256_mullo_epi32(sub_min[0], _mm256_set1_epi32(x.weighted[0]));
            let high = _mm256_mullo_epi32(sub_min[1], _mm256_set1_epi32(x.weighted[1]));
            let whole = _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));
            _mm256_fmadd_ps(whole, _mm256_mul_ps(min, unit), acc)
        }
    }
}

/// Step 1 once the halves' sums of bytes times `q` times the multiplier are there: takes the offset
/// out and applies sub-scales.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn combine_halves<K: Kind>(
    halves: [__m256i; 2],
    offset: i32,
    x: &ActivationBlock,
    sub: &[__m256i; 2],
) -> __m256i {
    if !K::SUB_SCALES {
        let whole = _mm256_add_epi32(halves[0], halves[1]);
        if offset == 0 {
            return whole;
        }
        return _mm256_sub_epi32(whole, _mm256_set1_epi32(offset.wrapping_mul(x.whole)));
    }
    let mut scaled = [_mm256_setzero_si256(); 2];
    for half in 0..2 {
        let correction = _mm256_set1_epi32(offset.wrapping_mul(x.weighted[half]));
        let sum = if offset == 0 { halves[half] } else { _mm256_sub_epi32(halves[half], correction) };
        scaled[half] = _mm256_mullo_epi32(sum, sub[half]);
    }
    _mm256_add_epi32(scaled[0], scaled[1])
}

/// Step 1 of the order for eight rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn whole_sums<F: Format>(blocks: &[&F::Block; 8], sub: usize, x: &ActivationBlock, scales: &Scales) -> __m256i {
    let q = load_i8(&x.q);
    let multiplier =
        _mm256_blend_epi32::<0b1111_0000>(broadcast_pair(x.multiplier[0]), broadcast_pair(x.multiplier[1]));
    let [a, b, c, d, e, f, g, h] = *blocks;
    let low = four_rows::<F>([a, b, c, d], sub, q, multiplier);
    let high = four_rows::<F>([e, f, g, h], sub, q, multiplier);
    let halves = [_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high)];
    combine_halves::<F::Kind>(halves, F::OFFSET, x, &scales.sub[sub])
}

/// Sums of four rows, times the multipliers: the first half's in the low 128 bits, the second's in
/// the high.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four_rows<F: Format>(blocks: [&F::Block; 4], sub: usize, q: __m256i, multiplier: __m256i) -> __m256i {
    let (a, b) = (products::<F>(blocks[0], sub, q), products::<F>(blocks[1], sub, q));
    let (c, d) = (products::<F>(blocks[2], sub, q), products::<F>(blocks[3], sub, q));
    match F::Kind::DEPTH {
        4 => _mm256_madd_epi16(fold_64_in_16(fold_32_in_16(a, b), fold_32_in_16(c, d)), multiplier),
        2 => {
            let ab = _mm256_madd_epi16(fold_32_in_16(a, b), multiplier);
            let cd = _mm256_madd_epi16(fold_32_in_16(c, d), multiplier);
            fold_64(ab, cd)
        }
        _ => {
            let ab = fold_32(_mm256_madd_epi16(a, multiplier), _mm256_madd_epi16(b, multiplier));
            let cd = fold_32(_mm256_madd_epi16(c, multiplier), _mm256_madd_epi16(d, multiplier));
            fold_64(ab, cd)
        }
    }
}

/// Sums of two products in 16 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn products<F: Format>(block: &F::Block, sub: usize, q: __m256i) -> __m256i {
    // SAFETY: this function's target features are what the call needs.
    let values = unsafe { F::values(block, sub) };
    if F::Kind::SIGNED {
        _mm256_maddubs_epi16(_mm256_abs_epi8(values), _mm256_sign_epi8(q, values))
    } else {
        _mm256_maddubs_epi16(values, q)
    }
}

/// `[a0 a1 b0 b1]` in 32-bit lanes out of two rows' `[a0 a1 a2 a3]`, pairs added: `a0 + a2` and so on.
#[inline]
#[target_feature(enable = "avx2")]
fn fold_32(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b))
}

/// As [`fold_32`], adding 16-bit lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn fold_32_in_16(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b))
}

/// The next step of the tree: 64 bits of each.
#[inline]
#[target_feature(enable = "avx2")]
fn fold_64(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
}

/// As [`fold_64`], adding 16-bit lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn fold_64_in_16(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
}
