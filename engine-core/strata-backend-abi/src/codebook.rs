//! Constant tables of the quantised formats: lattice points of the IQ types, the sign table, the
//! value lists of IQ4_NL and MXFP4.
//!
//! Only numbers that the formats fix live here, so that the model reader and every backend share
//! one copy of the data and no code. The grids are stored packed (`packed.rs`) and expanded at
//! compile time into the form that kernels load: one little-endian integer per point whose bytes
//! are the values, element 0 in the lowest byte.

mod packed;

/// IQ2_XXS: 256 points of 8 magnitudes (`u8`).
pub static IQ2XXS_GRID: [u64; 256] = expand_8(&packed::IQ2XXS_PACKED, IQ2_VALUES);
/// IQ2_XS: 512 points of 8 magnitudes (`u8`).
pub static IQ2XS_GRID: [u64; 512] = expand_8(&packed::IQ2XS_PACKED, IQ2_VALUES);
/// IQ2_S: 1024 points of 8 magnitudes (`u8`).
pub static IQ2S_GRID: [u64; 1024] = expand_8(&packed::IQ2S_PACKED, IQ2_VALUES);
/// IQ3_XXS: 256 points of 4 magnitudes (`u8`).
pub static IQ3XXS_GRID: [u32; 256] = expand_4(&packed::IQ3XXS_PACKED, [4, 12, 20, 28, 36, 44, 52, 62]);
/// IQ3_S: 512 points of 4 magnitudes (`u8`).
pub static IQ3S_GRID: [u32; 512] = expand_4(&packed::IQ3S_PACKED, [1, 3, 5, 7, 9, 11, 13, 15]);
/// IQ1_S and IQ1_M: 2048 points of 8 values out of -1, 0, 1 (`i8`).
pub static IQ1S_GRID: [u64; 2048] = expand_8(&packed::IQ1S_PACKED, [0xff, 0, 1, 0]);

/// Magnitudes of the IQ2 types by their 2-bit index; index 3 does not occur.
const IQ2_VALUES: [u8; 4] = [8, 25, 43, 0];

/// Eight sign bits (bit i set: element i is negative) for the 7-bit sign index of IQ2_XXS, IQ2_XS
/// and IQ3_XXS. The eighth sign makes the number of minus signs even.
pub static KSIGNS: [u8; 128] = ksigns();

/// Values of IQ4_NL and IQ4_XS by 4-bit index.
pub static IQ4NL_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Values of MXFP4 (E2M1) by 4-bit index, doubled to be whole; [`e8m0_half`] halves them again.
pub static MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Scale of an MXFP4 block: half of the power of two that the E8M0 byte names, 2^(e-128). The two
/// lowest exponents give subnormal numbers; the format's NaN (255) is read as 2^127.
pub const fn e8m0_half(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => (exponent as u32 - 1) << 23,
    })
}

const fn ksigns() -> [u8; 128] {
    let mut table = [0_u8; 128];
    let mut index = 0;
    while index < 128 {
        let low = index as u8;
        table[index] = low | (((low.count_ones() & 1) as u8) << 7);
        index += 1;
    }
    table
}

const fn expand_8<const N: usize>(packed: &[u16; N], values: [u8; 4]) -> [u64; N] {
    let mut grid = [0_u64; N];
    let mut point = 0;
    while point < N {
        let mut element = 0;
        while element < 8 {
            let index = (packed[point] >> (2 * element)) & 3;
            grid[point] |= (values[index as usize] as u64) << (8 * element);
            element += 1;
        }
        point += 1;
    }
    grid
}

const fn expand_4<const N: usize>(packed: &[u16; N], values: [u8; 8]) -> [u32; N] {
    let mut grid = [0_u32; N];
    let mut point = 0;
    while point < N {
        let mut element = 0;
        while element < 4 {
            let index = (packed[point] >> (4 * element)) & 7;
            grid[point] |= (values[index as usize] as u32) << (8 * element);
            element += 1;
        }
        point += 1;
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a over bytes, as the script below computes it.
    fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
        bytes
            .into_iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// Expected numbers: FNV-1a of `gguf.quants.<TYPE>.grid.astype(int8).tobytes()` after
    /// `init_grid()`, of `gguf.quants.IQ2_XXS.ksigns`, of the `kvalues` as int8, and of
    /// `MXFP4.e8m0_to_fp32_half(arange(256))` as little-endian float32 (gguf 0.19).
    #[test]
    fn tables_equal_the_package_gguf() {
        let eights = |grid: &[u64]| fnv(grid.iter().flat_map(|point| point.to_le_bytes()));
        let fours = |grid: &[u32]| fnv(grid.iter().flat_map(|point| point.to_le_bytes()));
        assert_eq!(eights(&IQ2XXS_GRID), 0xbb4e_e025_b5ac_6e8e);
        assert_eq!(eights(&IQ2XS_GRID), 0xc9b1_ee61_e799_09bd);
        assert_eq!(eights(&IQ2S_GRID), 0x123e_dd38_a3b6_2b90);
        assert_eq!(fours(&IQ3XXS_GRID), 0xdfa5_dc83_d6a1_55d5);
        assert_eq!(fours(&IQ3S_GRID), 0xfa37_020c_25b4_4829);
        assert_eq!(eights(&IQ1S_GRID), 0x6703_ed86_3501_ae2e);
        assert_eq!(fnv(KSIGNS), 0xf19b_a8f8_c329_2ba5);
        assert_eq!(fnv(IQ4NL_VALUES.map(i8::cast_unsigned)), 0x055d_06d2_d8fa_0f75);
        assert_eq!(fnv(MXFP4_VALUES.map(i8::cast_unsigned)), 0x3f0e_3c08_af1e_5eb5);
        let scales = (0..=255).flat_map(|e| e8m0_half(e).to_le_bytes());
        assert_eq!(fnv(scales), 0x7b22_ab04_866e_17b8);
    }
}
