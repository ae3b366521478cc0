//! The architectures. Each is one file: how its metadata differs from the common keys, which rope
//! tables it needs, and its graph in the order of computation. To add one, write the file and put
//! a line into [`ALL`].
//!
//! **Invariant:** nothing outside this module branches on an architecture's name.

mod blocks;
mod gemma3;
mod llama;
mod qwen2;
mod qwen3;
mod qwen3moe;

use strata_model::gguf::Gguf;
use strata_model::quant;

use crate::error::EngineError;
use crate::graph::Graph;
use crate::hyperparameters::Hyperparameters;
use crate::rope::{RopeScaling, RopeTable};

/// What the engine asks of an architecture.
pub(crate) trait Architecture: Sync + std::fmt::Debug {
    /// The value of `general.architecture`.
    fn key(&self) -> &'static str;

    fn hyperparameters(&self, gguf: &Gguf) -> Result<Hyperparameters, EngineError>;

    /// One table for each rope base; layers name theirs by number. `divisors` are what
    /// [`rope_divisors`] found.
    fn rope_tables(&self, hyper: &Hyperparameters, divisors: Option<&[f32]>) -> Vec<RopeTable> {
        vec![RopeTable::new(&hyper.rope, hyper.rope.base, true, divisors)]
    }

    /// Adds the ops of a whole step. Missing tensors are noted by the graph's weights, not here.
    fn build(&self, hyper: &Hyperparameters, graph: &mut Graph<'_, '_>);
}

const ALL: [&dyn Architecture; 5] = [&llama::Llama, &qwen2::Qwen2, &qwen3::Qwen3, &gemma3::Gemma3, &qwen3moe::Qwen3Moe];

/// Keys of all architectures that this build runs.
pub fn known() -> Vec<&'static str> {
    ALL.iter().map(|architecture| architecture.key()).collect()
}

/// The architecture of a file.
pub(crate) fn of(gguf: &Gguf) -> Result<&'static dyn Architecture, EngineError> {
    let key = gguf.architecture()?;
    ALL.into_iter()
        .find(|architecture| architecture.key() == key)
        .ok_or_else(|| EngineError::UnsupportedArch { architecture: key.to_owned(), known: known() })
}

/// Divisors of the rope frequencies that the file itself brings, one a pair: Llama 3.1's
/// `rope_freqs`, or LongRoPE's factors for a context of this length.
pub(crate) fn rope_divisors(
    gguf: &Gguf,
    hyper: &Hyperparameters,
    context: u64,
) -> Result<Option<Vec<f32>>, EngineError> {
    let name = match &hyper.rope.scaling {
        RopeScaling::LongRope { original_context, .. } if context > *original_context => "rope_factors_long.weight",
        RopeScaling::LongRope { .. } => "rope_factors_short.weight",
        _ if gguf.tensor("rope_freqs.weight").is_some() => "rope_freqs.weight",
        _ => return Ok(None),
    };
    let tensor = gguf.require_shaped(name, &[hyper.rope.n_rot / 2])?;
    let mut divisors = vec![0.0; (hyper.rope.n_rot / 2) as usize];
    quant::dequantise_row(tensor.dtype, gguf.tensor_data(tensor), &mut divisors)?;
    if let Some(bad) = divisors.iter().find(|divisor| !divisor.is_finite() || **divisor <= 0.0) {
        return Err(EngineError::BadHyperparameter {
            key: name.to_owned(),
            value: bad.to_string(),
            why: "divisors of rope frequencies are finite and greater than zero".to_owned(),
        });
    }
    Ok(Some(divisors))
}
