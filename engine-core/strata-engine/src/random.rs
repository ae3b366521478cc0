//! The sampler's random numbers: xoshiro256++ (Blackman and Vigna, 2019), seeded by SplitMix64.
//! Integer arithmetic only, so a seed gives the same numbers on every machine, and it is ours, so
//! no update of a library changes them.

use std::hash::{BuildHasher, Hasher};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    pub(crate) fn new(seed: u64) -> Xoshiro256 {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Xoshiro256 { state }
    }

    /// A seed that differs from call to call: the standard library's own per-map keys.
    pub(crate) fn fresh_seed() -> u64 {
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Uniform in [0, 1), in steps of 2⁻⁵³.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first outputs of SplitMix64 from seed 0, and xoshiro256++ from the state
    /// 1, 2, 3, 4.
    #[test]
    fn numbers_are_those_of_the_published_generators() {
        let seeded = Xoshiro256::new(0);
        assert_eq!(seeded.state[..3], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
        let mut random = Xoshiro256 { state: [1, 2, 3, 4] };
        let numbers: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn uniform_stays_below_one_and_fills_the_range() {
        let mut random = Xoshiro256::new(7);
        let mean =
            (0..10_000).map(|_| random.uniform()).inspect(|x| assert!((0.0..1.0).contains(x))).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
