//! The tiles' inner loop with an 8-bit dot product, on 256-bit registers: one instruction for four
//! products and their sum where AVX2 takes a multiply-add, an addition and, for 8-bit weights, a sign.
//! The instruction exists twice, in AVX-512 VNNI and, for processors without AVX-512, in AVX-VNNI; the
//! loop is written once. Everything else is shared with `tiles.rs`.

macro_rules! dot_product_kernels {
    ($(#[$doc:meta])* $name:ident, $features:literal, $dot:ident) => {
        $(#[$doc])*
        pub(super) mod $name {
            use crate::simd::x86::decode::{accumulate, at, combine_halves};
            use crate::simd::x86::formats::Kind;
            use crate::simd::x86::load::{broadcast_4, load_f32, load_i32, load_tile_row};
            use crate::simd::{ActivationBlock, TileBlock, TileSubScales};
            use core::arch::x86_64::{
                __m256, __m256i, $dot, _mm256_mullo_epi32, _mm256_set1_epi32, _mm256_setzero_ps,
                _mm256_setzero_si256,
            };

            /// Eight rows times `N` tokens. The tile's bytes are unsigned in every format, `offset` too large.
            #[target_feature(enable = $features)]
            pub(in crate::simd::x86) fn multiply<K: Kind, const N: usize>(
                tile: &[TileBlock],
                tile_sub: &[TileSubScales],
                offset: i32,
                x: &[&[ActivationBlock]; N],
            ) -> [__m256; N] {
                let mut acc = [_mm256_setzero_ps(); N];
                for (index, tile) in tile.iter().enumerate() {
                    let x = at(x, index);
                    let low = half_sums::<N>(tile, 0, &x);
                    let high = half_sums::<N>(tile, 1, &x);
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
            #[target_feature(enable = $features)]
            fn half_sums<const N: usize>(tile: &TileBlock, half: usize, x: &[&ActivationBlock; N]) -> [__m256i; N] {
                let mut sums = [_mm256_setzero_si256(); N];
                for group in 4 * half..4 * (half + 1) {
                    let values = load_tile_row(&tile.values[group]);
                    for token in 0..N {
                        sums[token] = $dot(sums[token], values, broadcast_4(&x[token].q, group));
                    }
                }
                for token in 0..N {
                    let multiplier = _mm256_set1_epi32(i32::from(x[token].multiplier[half][0]));
                    sums[token] = _mm256_mullo_epi32(sums[token], multiplier);
                }
                sums
            }
        }
    };
}

dot_product_kernels! {
    /// AVX-512 VNNI with the 256-bit forms of AVX-512 VL.
    avx512, "avx2,fma,f16c,avx512vl,avx512bw,avx512vnni", _mm256_dpbusd_epi32
}
dot_product_kernels! {
    /// AVX-VNNI: the same dot product without AVX-512.
    avx, "avx2,fma,f16c,avxvnni", _mm256_dpbusd_avx_epi32
}
