//! K formats: blocks of 256 elements with scales for 16 or 32 of them, themselves quantised.

use super::f16_at;

/// 16 scale bytes (low half scale, high half minimum), 64 bytes of 2-bit quants, d, dmin.
/// Quants of byte 32·h + l: elements 128·h + 32·s + l for the four 2-bit fields s.
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scales, quants) = block[..80].split_at(16);
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (index, out) in out.iter_mut().enumerate() {
        let (half, field, l) = (index / 128, index / 32 % 4, index % 32);
        let scale = scales[index / 16];
        let q = (quants[32 * half + l] >> (2 * field)) & 3;
        *out = d * f32::from(scale & 15) * f32::from(q) - dmin * f32::from(scale >> 4);
    }
}

/// 32 bytes of third bits (set: no offset), 64 bytes of 2-bit quants as in Q2_K, 12 bytes that
/// hold 16 scales of 6 bits, d.
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let (mask, rest) = block.split_at(32);
    let (quants, scales) = rest.split_at(64);
    let d = f16_at(block, 108);
    for (index, out) in out.iter_mut().enumerate() {
        let (half, field, l) = (index / 128, index / 32 % 4, index % 32);
        let low = (quants[32 * half + l] >> (2 * field)) & 3;
        let offset = if (mask[l] >> (index / 32)) & 1 == 1 { 0 } else { 4 };
        *out = d * f32::from(q3_k_scale(scales, index / 16)) * f32::from(low as i8 - offset);
    }
}

/// Scale `i` of 16: four bits in the first 8 bytes (low halves are scales 0 to 7), two bits in
/// the last 4.
fn q3_k_scale(scales: &[u8], i: usize) -> i8 {
    let low = (scales[i % 8] >> (4 * (i / 8))) & 15;
    let high = (scales[8 + i % 4] >> (2 * (i / 4))) & 3;
    (low | (high << 4)) as i8 - 32
}

/// Scale and minimum `i` of the 8 in Q4_K and Q5_K, 6 bits each: the first four whole in bytes
/// i and i + 4, the others as halves of byte i + 4 with their top bits above the first four.
fn scale_and_min(scales: &[u8], i: usize) -> (f32, f32) {
    let (scale, min) = if i < 4 {
        (scales[i] & 63, scales[i + 4] & 63)
    } else {
        let low = scales[i + 4];
        ((low & 15) | ((scales[i - 4] >> 6) << 4), (low >> 4) | ((scales[i] >> 6) << 4))
    };
    (f32::from(scale), f32::from(min))
}

/// d, dmin, 12 bytes of scales, 128 bytes: halves of bytes 32·p.. are elements of groups 2p, 2p + 1.
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, quants) = block[4..].split_at(12);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, group);
        let (scale, min) = (d * scale, dmin * min);
        for (l, out) in out.iter_mut().enumerate() {
            let q = (quants[32 * (group / 2) + l] >> (4 * (group % 2))) & 15;
            *out = scale * f32::from(q) - min;
        }
    }
}

/// As Q4_K, with 32 bytes of fifth bits between scales and quants: bit g of byte l for group g.
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, rest) = block[4..].split_at(12);
    let (high, quants) = rest.split_at(32);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, group);
        let (scale, min) = (d * scale, dmin * min);
        for (l, out) in out.iter_mut().enumerate() {
            let low = (quants[32 * (group / 2) + l] >> (4 * (group % 2))) & 15;
            let q = low | (((high[l] >> group) & 1) << 4);
            *out = scale * f32::from(q) - min;
        }
    }
}

/// 128 bytes of low bits, 64 of high bits, 16 signed scales, d: d·scale·(q − 32). Within each half
/// of the block, group g of 32 takes the low or high halves (g / 2) of every second 32 bytes.
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, rest) = block.split_at(128);
    let (high, scales) = rest.split_at(64);
    let d = f16_at(block, 208);
    for (index, out) in out.iter_mut().enumerate() {
        let (half, group, l) = (index / 128, index / 32 % 4, index % 32);
        let low = (low[64 * half + 32 * (group % 2) + l] >> (4 * (group / 2))) & 15;
        let high = (high[32 * half + l] >> (2 * group)) & 3;
        let q = (low | (high << 4)) as i8 - 32;
        *out = d * f32::from(scales[index / 16].cast_signed()) * f32::from(q);
    }
}
