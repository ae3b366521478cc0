//! Rotary tables: for each token of a step the (cos, sin) of each pair, made on the host in
//! double precision. Base, scaling and the attention factor are all in the table, so that no
//! backend needs to know one scaling rule from another.

use crate::error::EngineError;
use crate::hyperparameters::{Keys, Rope};

/// How a model stretches its angles over a longer context than it was first trained for.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// All angles divided by `factor`.
    Linear {
        factor: f64,
    },
    /// Fast pairs keep their angles, slow ones are divided by `factor`, a ramp lies between.
    Yarn(Yarn),
    /// One divisor a pair, from one of two tensors by context length. Scales by the attention factor.
    LongRope {
        original_context: u64,
        attention_factor: f64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    pub original_context: u64,
    /// Rotations within the original context above which a pair keeps its angle.
    pub beta_fast: f64,
    /// Rotations below which a pair's angle is divided by the whole factor.
    pub beta_slow: f64,
    /// How much of the ramp is used, 1 for all models known so far.
    pub extrapolation: f64,
    /// Multiplies the magnitude beside YaRN's own `1 + 0.1 ln factor`.
    pub attention_factor: f64,
}

const KNOWN_SCALINGS: [&str; 4] = ["none", "linear", "yarn", "longrope"];

impl RopeScaling {
    pub(crate) fn read(keys: &Keys<'_>, n_context: u64) -> Result<RopeScaling, EngineError> {
        let legacy = keys.positive("rope.scale_linear")?;
        let kind = match keys.text("rope.scaling.type")? {
            Some(kind) => kind,
            None if legacy.is_some() => "linear",
            None => "none",
        };
        let factor = keys.number("rope.scaling.factor")?.filter(|factor| *factor > 0.0).or(legacy);
        let original = keys.integer("rope.scaling.original_context_length", 1, 1 << 31)?.unwrap_or(n_context);
        let attention_factor = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
        match kind {
            "none" => Ok(RopeScaling::None),
            "linear" => Ok(match factor {
                Some(factor) if factor != 1.0 => RopeScaling::Linear { factor },
                _ => RopeScaling::None,
            }),
            "yarn" => {
                let factor = factor.ok_or_else(|| EngineError::MissingKey { key: keys.name("rope.scaling.factor") })?;
                Ok(RopeScaling::Yarn(Yarn {
                    factor,
                    original_context: original,
                    beta_fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    extrapolation: keys.number("rope.scaling.yarn_ext_factor")?.filter(|x| *x >= 0.0).unwrap_or(1.0),
                    attention_factor: attention_factor * keys.positive("rope.scaling.yarn_attn_factor")?.unwrap_or(1.0),
                }))
            }
            "longrope" => Ok(RopeScaling::LongRope { original_context: original, attention_factor }),
            other => Err(EngineError::UnsupportedFeature {
                key: keys.name("rope.scaling.type"),
                value: other.to_owned(),
                known: KNOWN_SCALINGS.to_vec(),
            }),
        }
    }
}

/// Angle per position and pair, and the magnitude: all that a table row is made from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RopeTable {
    frequency: Vec<f64>,
    magnitude: f64,
}

impl RopeTable {
    /// `divisors`, when there are any, divide each pair's frequency: Llama 3.1's `rope_freqs` or
    /// the long or short factors of LongRoPE.
    pub(crate) fn new(rope: &Rope, base: f64, scaled: bool, divisors: Option<&[f32]>) -> RopeTable {
        let n_rot = rope.n_rot as f64;
        let mut frequency: Vec<f64> = (0..rope.n_rot / 2).map(|pair| base.powf(-2.0 * pair as f64 / n_rot)).collect();
        for (frequency, divisor) in frequency.iter_mut().zip(divisors.unwrap_or_default()) {
            *frequency /= f64::from(*divisor);
        }
        let mut magnitude = 1.0;
        match (&rope.scaling, scaled) {
            (RopeScaling::Linear { factor }, true) => frequency.iter_mut().for_each(|f| *f /= factor),
            (RopeScaling::Yarn(yarn), true) => magnitude = yarn.stretch(&mut frequency, base, n_rot),
            (RopeScaling::LongRope { attention_factor, .. }, true) => magnitude = *attention_factor,
            _ => {}
        }
        RopeTable { frequency, magnitude }
    }

    pub(crate) fn n_pairs(&self) -> usize {
        self.frequency.len()
    }

    /// Writes the row of a position: little-endian F32 (cos, sin) pairs, 8 bytes a pair.
    pub(crate) fn write_row(&self, position: u64, out: &mut [u8]) {
        for (frequency, pair) in self.frequency.iter().zip(out.chunks_exact_mut(8)) {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            pair[..4].copy_from_slice(&((cos * self.magnitude) as f32).to_le_bytes());
            pair[4..].copy_from_slice(&((sin * self.magnitude) as f32).to_le_bytes());
        }
    }
}

impl Yarn {
    /// Stretches the frequencies and returns the magnitude. "YaRN: Efficient Context Window
    /// Extension of Large Language Models", section 3.2, with the ramp over pair numbers.
    fn stretch(&self, frequency: &mut [f64], base: f64, n_rot: f64) -> f64 {
        let last_pair = n_rot - 1.0;
        // The pair that makes `rotations` turns within the original context.
        let pair_of = |rotations: f64| {
            n_rot * (self.original_context as f64 / (rotations * std::f64::consts::TAU)).ln() / (2.0 * base.ln())
        };
        let low = pair_of(self.beta_fast).floor().clamp(0.0, last_pair);
        let high = pair_of(self.beta_slow).ceil().clamp(0.0, last_pair);
        for (pair, frequency) in frequency.iter_mut().enumerate() {
            let ramp = (pair as f64 - low) / (high - low).max(0.001);
            let keep = (1.0 - ramp.clamp(0.0, 1.0)) * self.extrapolation;
            *frequency = *frequency / self.factor * (1.0 - keep) + *frequency * keep;
        }
        if self.extrapolation == 0.0 {
            return self.attention_factor;
        }
        self.attention_factor * (1.0 + 0.1 * self.factor.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_backend_abi::StrataRopeStyle;

    fn rope(n_rot: u64, scaling: RopeScaling) -> Rope {
        Rope { style: StrataRopeStyle::Neox, n_rot, base: 10_000.0, scaling }
    }

    fn row(table: &RopeTable, position: u64) -> Vec<f32> {
        let mut bytes = vec![0; table.n_pairs() * 8];
        table.write_row(position, &mut bytes);
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    #[test]
    fn plain_angles_are_position_times_base_power() {
        let table = RopeTable::new(&rope(4, RopeScaling::None), 10_000.0, true, None);
        let expected = [3f64.cos(), 3f64.sin(), 0.03f64.cos(), 0.03f64.sin()].map(|x| x as f32);
        assert_eq!(row(&table, 3), expected);
    }

    #[test]
    fn linear_scaling_divides_and_can_be_left_out_for_local_layers() {
        let scaled = rope(4, RopeScaling::Linear { factor: 8.0 });
        let global = RopeTable::new(&scaled, 10_000.0, true, None);
        let local = RopeTable::new(&scaled, 10_000.0, false, None);
        let plain = RopeTable::new(&rope(4, RopeScaling::None), 10_000.0, true, None);
        assert_eq!(row(&global, 16), row(&plain, 2));
        assert_eq!(row(&local, 16), row(&plain, 16));
    }

    #[test]
    fn divisors_slow_single_pairs() {
        let table = RopeTable::new(&rope(4, RopeScaling::None), 10_000.0, true, Some(&[1.0, 4.0]));
        let plain = RopeTable::new(&rope(4, RopeScaling::None), 10_000.0, true, None);
        assert_eq!(row(&table, 8)[..2], row(&plain, 8)[..2]);
        assert_eq!(row(&table, 8)[2..], row(&plain, 2)[2..]);
    }

    /// Qwen2.5's numbers (factor 4 over 32768, base 1e6, head 128), worked out by hand from the
    /// paper's formula: pairs up to 23 keep their angle, pairs from 40 are divided by the factor.
    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        let yarn = Yarn {
            factor: 4.0,
            original_context: 32_768,
            beta_fast: 32.0,
            beta_slow: 1.0,
            extrapolation: 1.0,
            attention_factor: 1.0,
        };
        let rope = Rope { style: StrataRopeStyle::Neox, n_rot: 128, base: 1e6, scaling: RopeScaling::Yarn(yarn) };
        let table = RopeTable::new(&rope, 1e6, true, None);
        let plain = |pair: usize| 1e6f64.powf(-2.0 * pair as f64 / 128.0);
        assert_eq!(table.frequency[0], 1.0);
        assert_eq!(table.frequency[23], plain(23));
        assert!((table.frequency[40] / (plain(40) / 4.0) - 1.0).abs() < 1e-12);
        assert_eq!(table.frequency[63], plain(63) / 4.0);
        // Between: 24 is one of 17 steps down the ramp.
        let keep = 1.0 - 1.0 / 17.0;
        let expected = plain(24) / 4.0 * (1.0 - keep) + plain(24) * keep;
        assert!((table.frequency[24] / expected - 1.0).abs() < 1e-12);
        assert!((table.magnitude - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-15);
    }
}
