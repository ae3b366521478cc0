//! Many columns: eight rows are unpacked once into a tile of bytes that interleaves them, then
//! multiplied with four tokens at a time.
//!
//! In the tile a 32-bit lane holds four columns of one row, so that products of one broadcast of
//! four activations add up within their lane and no sum crosses lanes. Per 32 columns, eight rows
//! and one token that is 8 multiply-adds and 8 additions for 4-bit formats, and about six
//! instructions of float work, against the 24 that unpacking costs once for all tokens.

use super::decode::{accumulate, at, combine_halves};
use super::formats::{Format, Kind, Scales};
use super::load::{
    broadcast_4, broadcast_pair, load_f32, load_i32, load_tile_row, store_f32, store_i32, store_tile_row, transpose,
};
use crate::simd::{ActivationBlock, TileBlock, TileSubScales};
use core::arch::x86_64::{
    __m256, __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_madd_epi16, _mm256_maddubs_epi16,
    _mm256_set1_epi8, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_xor_si256,
};

/// Unpacks eight rows. With `unsigned`, signed formats are stored plus 128.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn pack<F: Format>(
    rows: &[&[F::Block]; 8],
    unsigned: bool,
    tile: &mut [TileBlock],
    tile_sub: &mut [TileSubScales],
) {
    let mut scales = Scales::new();
    for (index, tile) in tile.chunks_exact_mut(F::SUB_BLOCKS).enumerate() {
        let blocks = at(rows, index);
        // SAFETY: this function's target features are what the call needs.
        unsafe { F::scales(&blocks, &mut scales) };
        for (sub, tile) in tile.iter_mut().enumerate() {
            pack_block::<F>(&blocks, sub, unsigned, tile);
            store_f32(&mut tile.scale, scales.scale[sub]);
            store_f32(&mut tile.min, scales.min[sub]);
            if F::Kind::SUB_SCALES {
                let out = &mut tile_sub[index * F::SUB_BLOCKS + sub];
                for half in 0..2 {
                    store_i32(&mut out.sub[half], scales.sub[sub][half]);
                    store_i32(&mut out.sub_min[half], scales.sub_min[sub][half]);
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pack_block<F: Format>(blocks: &[&F::Block; 8], sub: usize, unsigned: bool, tile: &mut TileBlock) {
    let mut values = [_mm256_setzero_si256(); 8];
    for (values, block) in values.iter_mut().zip(blocks) {
        // SAFETY: this function's target features are what the call needs.
        *values = unsafe { F::values(block, sub) };
        if F::Kind::SIGNED && unsigned {
            *values = _mm256_xor_si256(*values, _mm256_set1_epi8(-128));
        }
    }
    for (out, values) in tile.values.iter_mut().zip(transpose(values)) {
        store_tile_row(out, values);
    }
}

/// Eight rows times `N` tokens.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn multiply<K: Kind, const N: usize>(
    tile: &[TileBlock],
    tile_sub: &[TileSubScales],
    offset: i32,
    x: &[&[ActivationBlock]; N],
) -> [__m256; N] {
    let mut acc = [_mm256_setzero_ps(); N];
    for (index, tile) in tile.iter().enumerate() {
        let x = at(x, index);
        let low = half_sums::<K, N>(tile, 0, &x);
        let high = half_sums::<K, N>(tile, 1, &x);
        let (mut sub, mut sub_min) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
        if K::SUB_SCALES {
            let scales = &tile_sub[index];
            sub = [load_i32(&scales.sub[0]), load_i32(&scales.sub[1])];
            sub_min = [load_i32(&scales.sub_min[0]), load_i32(&scales.sub_min[1])];
        }
        for token in 0..N {
            let whole = combine_halves::<K>([low[token], high[token]], offset, x[token], &sub);
            let (scale, min) = (load_f32(&tile.scale), load_f32(&tile.min));
            acc[token] = accumulate::<K>(acc[token], whole, x[token], scale, min, &sub_min);
        }
    }
    acc
}

/// Sums of 16 columns: bytes times `q`, times the half's multiplier.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_sums<K: Kind, const N: usize>(tile: &TileBlock, half: usize, x: &[&ActivationBlock; N]) -> [__m256i; N] {
    let mut sums = [_mm256_setzero_si256(); N];
    // Products are added in 16 bits as far as the values' size allows, then in 32.
    let mut narrow = [_mm256_setzero_si256(); N];
    for step in 0..4 {
        let group = 4 * half + step;
        let values = load_tile_row(&tile.values[group]);
        let magnitudes = if K::SIGNED { _mm256_abs_epi8(values) } else { values };
        for token in 0..N {
            let q = broadcast_4(&x[token].q, group);
            let q = if K::SIGNED { _mm256_sign_epi8(q, values) } else { q };
            let products = _mm256_maddubs_epi16(magnitudes, q);
            narrow[token] = if step % K::DEPTH == 0 { products } else { _mm256_add_epi16(narrow[token], products) };
            if step % K::DEPTH == K::DEPTH - 1 {
                let wide = _mm256_madd_epi16(narrow[token], broadcast_pair(x[token].multiplier[half]));
                sums[token] = if step < K::DEPTH { wide } else { _mm256_add_epi32(sums[token], wide) };
            }
        }
    }
    sums
}
