//! Two SHA-256 states that take the same blocks: of a whole file and of the piece of it that is being read.
//!
//! A processor's SHA instructions wait for each other along one chain, for about as long as they work. Two
//! chains side by side fill that time, and two over the same bytes share the message schedule: both
//! digests take the time of one, where one after the other they take twice as long. The compression function of the sha2
//! crate has one state, so the chains are written out here; where the instructions are missing,
//! that function takes turns.

use sha2::block_api::compress256;

const BLOCK: usize = 64;

/// Lets both states take all blocks.
#[multiversion::multiversion(targets("x86_64+sse4.1+sha"))]
pub(super) fn take(first: &mut [u32; 8], second: &mut [u32; 8], blocks: &[[u8; BLOCK]]) {
    multiversion::target::match_target! {
        "x86_64+sse4.1+sha" => x86::take(first, second, blocks),
        _ => in_turns(first, second, blocks),
    }
}

/// Blocks of a turn, measured: more, and the processor sees only one state's work at a time.
const TURN: usize = 1;

fn in_turns(first: &mut [u32; 8], second: &mut [u32; 8], blocks: &[[u8; BLOCK]]) {
    for turn in blocks.chunks(TURN) {
        compress256(first, turn);
        compress256(second, turn);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::BLOCK;
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_extract_epi32, _mm_set_epi32, _mm_set_epi64x,
        _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    };

    /// The constants of the 64 rounds (FIPS 180-4, section 4.2.2).
    #[rustfmt::skip]
    const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ];

    /// A state as the instructions take it: the words A, B, E, F and C, D, G, H.
    #[derive(Clone, Copy)]
    struct State {
        abef: __m128i,
        cdgh: __m128i,
    }

    impl State {
        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn load(words: &[u32; 8]) -> State {
            let [a, b, c, d, e, f, g, h] = words.map(u32::cast_signed);
            State { abef: _mm_set_epi32(a, b, e, f), cdgh: _mm_set_epi32(c, d, g, h) }
        }

        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn store(self) -> [u32; 8] {
            let State { abef, cdgh } = self;
            [
                _mm_extract_epi32::<3>(abef),
                _mm_extract_epi32::<2>(abef),
                _mm_extract_epi32::<3>(cdgh),
                _mm_extract_epi32::<2>(cdgh),
                _mm_extract_epi32::<1>(abef),
                _mm_extract_epi32::<0>(abef),
                _mm_extract_epi32::<1>(cdgh),
                _mm_extract_epi32::<0>(cdgh),
            ]
            .map(i32::cast_unsigned)
        }
    }

    /// Four rounds of both states, the `at`th four, with their words of the schedule.
    #[inline]
    #[target_feature(enable = "sha,sse4.1")]
    fn rounds(states: &mut [State; 2], at: usize, words: __m128i) {
        let [k0, k1, k2, k3] = [0, 1, 2, 3].map(|round| ROUNDS[4 * at + round].cast_signed());
        let low = _mm_add_epi32(words, _mm_set_epi32(k3, k2, k1, k0));
        let high = _mm_shuffle_epi32::<0b00_00_11_10>(low);
        for state in states.iter_mut() {
            state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, low);
        }
        for state in states {
            state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, high);
        }
    }

    /// The next four words of the schedule, from the sixteen before.
    #[inline]
    #[target_feature(enable = "sha,sse4.1")]
    fn next(w: [__m128i; 4]) -> __m128i {
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), _mm_alignr_epi8::<4>(w[3], w[2]));
        _mm_sha256msg2_epu32(sum, w[3])
    }

    /// A block's sixteen words, which stand in it with the high byte first.
    #[inline]
    #[target_feature(enable = "sha,sse4.1")]
    fn words(block: &[u8; BLOCK]) -> [__m128i; 4] {
        let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let (halves, _) = block.as_chunks::<8>();
        let half = |at: usize| i64::from_le_bytes(halves[at]);
        [0, 2, 4, 6].map(|at| _mm_shuffle_epi8(_mm_set_epi64x(half(at + 1), half(at)), swap))
    }

    #[target_feature(enable = "sha,sse4.1")]
    pub(super) fn take(first: &mut [u32; 8], second: &mut [u32; 8], blocks: &[[u8; BLOCK]]) {
        let mut states = [State::load(first), State::load(second)];
        for block in blocks {
            let before = states;
            let [mut w0, mut w1, mut w2, mut w3] = words(block);
            rounds(&mut states, 0, w0);
            rounds(&mut states, 1, w1);
            rounds(&mut states, 2, w2);
            rounds(&mut states, 3, w3);
            // Each step by its number: in a loop over a list of words these would go through memory, which
            // costs a third of the speed.
            for at in [4, 8, 12] {
                w0 = next([w0, w1, w2, w3]);
                rounds(&mut states, at, w0);
                w1 = next([w1, w2, w3, w0]);
                rounds(&mut states, at + 1, w1);
                w2 = next([w2, w3, w0, w1]);
                rounds(&mut states, at + 2, w2);
                w3 = next([w3, w0, w1, w2]);
                rounds(&mut states, at + 3, w3);
            }
            for (state, before) in states.iter_mut().zip(before) {
                state.abef = _mm_add_epi32(state.abef, before.abef);
                state.cdgh = _mm_add_epi32(state.cdgh, before.cdgh);
            }
        }
        [*first, *second] = states.map(|state| state.store());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_states_become_what_one_after_the_other_would() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as u32
        };
        for count in [0, 1, 2, 3, 15, 16, 17, 1000] {
            let blocks: Vec<[u8; BLOCK]> = (0..count).map(|_| [(); BLOCK].map(|()| next() as u8)).collect();
            let (start, other) = ([(); 8].map(|()| next()), [(); 8].map(|()| next()));
            let (mut alone, mut alone_other) = (start, other);
            compress256(&mut alone, &blocks);
            compress256(&mut alone_other, &blocks);
            for way in [take, in_turns] {
                let (mut first, mut second) = (start, other);
                way(&mut first, &mut second, &blocks);
                assert_eq!((first, second), (alone, alone_other), "{count} blocks");
            }
        }
    }
}
