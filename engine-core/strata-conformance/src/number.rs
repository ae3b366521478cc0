//! Half-precision formats by their definition, in f64 arithmetic: no table, no bit tricks, and no
//! code that a plugin would also use. A test compares all 65,536 values with the `half` crate.

/// A small binary float: 1 sign bit, then exponent and mantissa bits, 16 in all.
#[derive(Debug, Clone, Copy)]
struct Small {
    mantissa_bits: u32,
    /// Exponent of the smallest normal number.
    lowest: i32,
    /// Exponent of the greatest finite number.
    highest: i32,
}

const F16: Small = Small { mantissa_bits: 10, lowest: -14, highest: 15 };
const BF16: Small = Small { mantissa_bits: 7, lowest: -126, highest: 127 };

fn power_of_two(exponent: i32) -> f64 {
    2.0_f64.powi(exponent)
}

fn decode(format: Small, bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let mantissa = f64::from(bits & ((1 << format.mantissa_bits) - 1)) / f64::from(1 << format.mantissa_bits);
    let exponent = i32::from((bits & 0x7fff) >> format.mantissa_bits);
    if exponent == 0 {
        return sign * mantissa * power_of_two(format.lowest);
    }
    if exponent > format.highest - format.lowest + 1 {
        return if mantissa == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    sign * (1.0 + mantissa) * power_of_two(format.lowest + exponent - 1)
}

/// Nearest value, ties to the even mantissa; too large becomes infinite.
fn encode(format: Small, value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 1 << 15 } else { 0 };
    let infinity = ((format.highest - format.lowest + 2) as u16) << format.mantissa_bits;
    if value.is_nan() {
        return sign | infinity | (1 << (format.mantissa_bits - 1));
    }
    if value.is_infinite() {
        return sign | infinity;
    }
    let magnitude = value.abs();
    // The exponent field of an f64; what is smaller than the format's normal numbers shares their lowest.
    let mut exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).clamp(format.lowest, format.highest + 1);
    // Scaling by a power of two is exact, so this rounds once.
    let steps = (magnitude / power_of_two(exponent - format.mantissa_bits as i32)).round_ties_even();
    let mut steps = steps.min(f64::from(1 << 30)) as u32;
    if steps >= 2 << format.mantissa_bits {
        steps /= 2;
        exponent += 1;
    }
    if exponent > format.highest {
        return sign | infinity;
    }
    if steps < 1 << format.mantissa_bits {
        return sign | steps as u16;
    }
    let field = (exponent - format.lowest + 1) as u16;
    sign | (field << format.mantissa_bits) | (steps as u16 - (1 << format.mantissa_bits))
}

pub(crate) fn f16_to_f64(bits: u16) -> f64 {
    decode(F16, bits)
}

pub(crate) fn f64_to_f16(value: f64) -> u16 {
    encode(F16, value)
}

pub(crate) fn bf16_to_f64(bits: u16) -> f64 {
    decode(BF16, bits)
}

pub(crate) fn f64_to_bf16(value: f64) -> u16 {
    encode(BF16, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(ours: f64, theirs: f64) -> bool {
        ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan())
    }

    #[test]
    fn every_half_decodes_and_encodes_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f64(bits), half::f16::from_bits(bits).to_f64());
            assert!(same(ours, theirs), "f16 {bits:04x}: {ours} {theirs}");
            let (ours, theirs) = (bf16_to_f64(bits), half::bf16::from_bits(bits).to_f64());
            assert!(same(ours, theirs), "bf16 {bits:04x}: {ours} {theirs}");
            if !f16_to_f64(bits).is_nan() {
                assert_eq!(f64_to_f16(f16_to_f64(bits)), bits);
            }
            if !bf16_to_f64(bits).is_nan() {
                assert_eq!(f64_to_bf16(bf16_to_f64(bits)), bits);
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        let mut rng = crate::rng::Rng::named("rounding");
        for _ in 0..200_000 {
            let value = f32::from_bits(rng.bits() as u32);
            if value.is_nan() {
                continue;
            }
            assert_eq!(f64_to_f16(f64::from(value)), half::f16::from_f32(value).to_bits(), "{value:e}");
            assert_eq!(f64_to_bf16(f64::from(value)), half::bf16::from_f32(value).to_bits(), "{value:e}");
        }
        // Half way between two values, the even one is taken, at 1 and in the subnormal range.
        assert_eq!(f64_to_f16(1.0 + 0.5 / 1024.0), 0x3c00);
        assert_eq!(f64_to_f16(1.0 + 1.5 / 1024.0), 0x3c02);
        assert_eq!(f64_to_f16(2.0_f64.powi(-25)), 0);
        assert_eq!(f64_to_f16(1.5 * 2.0_f64.powi(-24)), 2);
        assert_eq!(f64_to_f16(65519.9), 0x7bff);
        assert_eq!(f64_to_f16(65520.0), 0x7c00);
    }
}
