//! The numbers that shape a graph, read once from the file's metadata and checked: after this
//! nothing looks at metadata again, and no count is large enough to hurt.
//!
//! It knows keys that several architectures share; a key of one architecture is read in that
//! architecture's own file.

use strata_backend_abi::{StrataDType, StrataRopeStyle};
use strata_model::gguf::{Gguf, Value};

use crate::error::EngineError;
use crate::rope::RopeScaling;

/// Greatest count of layers, heads or experts that is taken for real.
const MAX_COUNT: u64 = 1 << 14;
/// Greatest width of a row (hidden size, feed-forward size, vocabulary) that is taken for real.
const MAX_WIDTH: u64 = 1 << 27;
/// Greatest context that is taken for real; positions cross to plugins as I32.
const MAX_CONTEXT: u64 = i32::MAX as u64;

/// Shapes and constants of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparameters {
    pub architecture: String,
    pub n_layers: u64,
    /// Width of the residual stream.
    pub n_embd: u64,
    /// Rows of the embedding table.
    pub n_vocab: u64,
    /// Positions that the model was trained for.
    pub n_context: u64,
    pub n_heads: u64,
    pub n_heads_kv: u64,
    /// Elements of one head of q and k.
    pub head_dim_k: u64,
    /// Elements of one head of v.
    pub head_dim_v: u64,
    /// Width of the dense feed-forward network; 0 when all layers route to experts.
    pub n_ff: u64,
    pub experts: Option<Experts>,
    /// What attention scores are multiplied by.
    pub attention_scale: f32,
    /// Positions that a local layer sees; `None`: all layers see all.
    pub window: Option<u64>,
    /// Which layers are local; empty: none.
    pub local_layers: Vec<bool>,
    /// Rope base of local layers, when it is their own.
    pub local_rope_base: Option<f64>,
    pub rope: Rope,
    /// `c·tanh(x/c)` over the final logits.
    pub final_softcap: Option<f32>,
    /// Absent only in files that lack it; whoever builds a graph demands it.
    pub(crate) rms_eps: Option<f32>,
}

/// Routed experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    pub count: u64,
    pub used: u64,
    /// Width of one expert.
    pub n_ff: u64,
    /// Multiplies the weights of the chosen ones.
    pub weights_scale: f32,
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub style: StrataRopeStyle,
    /// Leading elements of a head that rotate.
    pub n_rot: u64,
    pub base: f64,
    pub scaling: RopeScaling,
}

/// Reads `<architecture>.<suffix>` keys with the checks that all of them need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys<'g> {
    pub(crate) gguf: &'g Gguf,
    pub(crate) architecture: &'g str,
}

impl<'g> Keys<'g> {
    pub(crate) fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture)
    }

    pub(crate) fn value(&self, suffix: &str) -> Option<&'g Value> {
        self.gguf.arch_value(suffix)
    }

    fn bad(&self, suffix: &str, value: impl std::fmt::Debug, why: impl Into<String>) -> EngineError {
        EngineError::BadHyperparameter { key: self.name(suffix), value: format!("{value:?}"), why: why.into() }
    }

    /// An integer within `lowest..=greatest`. Some files give one value per layer; that is taken
    /// when all are equal.
    pub(crate) fn integer(&self, suffix: &str, lowest: u64, greatest: u64) -> Result<Option<u64>, EngineError> {
        let Some(value) = self.value(suffix) else { return Ok(None) };
        let number = match value.as_array() {
            None => value.as_u64(),
            Some(array) => {
                let first = array.i64_at(0);
                if (1..array.len()).any(|i| array.i64_at(i) != first) {
                    return Err(EngineError::UnsupportedFeature {
                        key: self.name(suffix),
                        value: "different from layer to layer".to_owned(),
                        known: vec!["one value for all layers"],
                    });
                }
                first.and_then(|first| u64::try_from(first).ok())
            }
        };
        let Some(number) = number else {
            return Err(self.bad(suffix, value, "an unsigned integer is needed"));
        };
        if number < lowest || number > greatest {
            return Err(self.bad(suffix, number, format!("must lie between {lowest} and {greatest}")));
        }
        Ok(Some(number))
    }

    pub(crate) fn required(&self, suffix: &str, lowest: u64, greatest: u64) -> Result<u64, EngineError> {
        self.integer(suffix, lowest, greatest)?.ok_or_else(|| EngineError::MissingKey { key: self.name(suffix) })
    }

    /// A finite number.
    pub(crate) fn number(&self, suffix: &str) -> Result<Option<f64>, EngineError> {
        let Some(value) = self.value(suffix) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.bad(suffix, value, "a finite number is needed")),
        }
    }

    /// A finite number above zero.
    pub(crate) fn positive(&self, suffix: &str) -> Result<Option<f64>, EngineError> {
        match self.number(suffix)? {
            Some(number) if number <= 0.0 => Err(self.bad(suffix, number, "must be greater than zero")),
            other => Ok(other),
        }
    }

    pub(crate) fn text(&self, suffix: &str) -> Result<Option<&'g str>, EngineError> {
        let Some(value) = self.value(suffix) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.bad(suffix, value, "a text is needed"))
    }
}

/// What an architecture says about itself before the common keys are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) rope_style: StrataRopeStyle,
    pub(crate) rope_base: f64,
    /// Whether `feed_forward_length` must be there.
    pub(crate) dense: bool,
}

impl Hyperparameters {
    /// Reads the keys that all decoders share. Counts are bounded here, so that the graph
    /// builder's loops and products are, too.
    pub(crate) fn read(gguf: &Gguf, defaults: Defaults) -> Result<Hyperparameters, EngineError> {
        let architecture = gguf.architecture()?;
        let keys = Keys { gguf, architecture };
        let n_embd = keys.required("embedding_length", 1, MAX_WIDTH)?;
        let n_layers = keys.required("block_count", 1, MAX_COUNT)?;
        let n_context = keys.required("context_length", 1, MAX_CONTEXT)?;
        let n_heads = keys.required("attention.head_count", 1, MAX_COUNT)?;
        let n_heads_kv = keys.integer("attention.head_count_kv", 1, MAX_COUNT)?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_heads_kv) {
            return Err(keys.bad(
                "attention.head_count_kv",
                n_heads_kv,
                format!("{n_heads} query heads cannot share {n_heads_kv} key heads evenly"),
            ));
        }
        let head_dim_k = head_dim(&keys, "attention.key_length", n_embd, n_heads)?;
        let head_dim_v = head_dim(&keys, "attention.value_length", n_embd, n_heads)?;
        let n_ff = if defaults.dense {
            keys.required("feed_forward_length", 1, MAX_WIDTH)?
        } else {
            keys.integer("feed_forward_length", 0, MAX_WIDTH)?.unwrap_or(0)
        };
        let attention_scale = match keys.positive("attention.scale")? {
            Some(scale) => scale as f32,
            None => (1.0 / (head_dim_k as f64).sqrt()) as f32,
        };
        let experts = Experts::read(&keys, n_ff)?;
        let rope = Rope::read(&keys, defaults, head_dim_k, n_context)?;
        Ok(Hyperparameters {
            architecture: architecture.to_owned(),
            n_layers,
            n_embd,
            n_vocab: vocabulary(gguf)?,
            n_context,
            n_heads,
            n_heads_kv,
            head_dim_k,
            head_dim_v,
            n_ff,
            experts,
            attention_scale,
            window: None,
            local_layers: Vec::new(),
            local_rope_base: None,
            rope,
            final_softcap: None,
            rms_eps: keys.positive("attention.layer_norm_rms_epsilon")?.map(|eps| eps as f32),
        })
    }

    /// The epsilon of the norms. Asked for after the tensors are checked, since a file that lacks
    /// both is better described by what it lacks of its weights.
    pub(crate) fn rms_eps(&self) -> Result<f32, EngineError> {
        self.rms_eps.ok_or_else(|| EngineError::MissingKey {
            key: format!("{}.attention.layer_norm_rms_epsilon", self.architecture),
        })
    }

    /// The same for the graph builder, which runs before the check: what it makes of a file that
    /// lacks the key is thrown away.
    pub(crate) fn eps(&self) -> f32 {
        self.rms_eps.unwrap_or_default()
    }

    /// Bytes of cache that one position takes in all layers, or `None` when a row is no whole
    /// number of blocks of the format.
    pub fn cache_bytes_per_token(&self, k: StrataDType, v: StrataDType) -> Option<u64> {
        let k = k.row_bytes(self.head_dim_k)?.checked_mul(self.n_heads_kv)?;
        let v = v.row_bytes(self.head_dim_v)?.checked_mul(self.n_heads_kv)?;
        k.checked_add(v)?.checked_mul(self.n_layers)
    }
}

fn head_dim(keys: &Keys<'_>, suffix: &str, n_embd: u64, n_heads: u64) -> Result<u64, EngineError> {
    if let Some(dim) = keys.integer(suffix, 1, MAX_COUNT)? {
        return Ok(dim);
    }
    if !n_embd.is_multiple_of(n_heads) {
        return Err(keys.bad(
            "attention.head_count",
            n_heads,
            format!("does not divide the width {n_embd}, and '{}' is absent", keys.name(suffix)),
        ));
    }
    Ok(n_embd / n_heads)
}

/// The vocabulary is as large as the embedding table. That the tokenizer's list is as long, the tokenizer checks.
fn vocabulary(gguf: &Gguf) -> Result<u64, EngineError> {
    let Some(table) = gguf.tensor("token_embd.weight") else {
        return Err(EngineError::MissingTensors {
            architecture: gguf.architecture()?.to_owned(),
            names: vec!["token_embd.weight".to_owned()],
            total: 1,
            instead: None,
        });
    };
    if table.ne[1] == 0 || table.ne[1] > u64::from(u32::MAX) {
        return Err(EngineError::BadHyperparameter {
            key: "rows of token_embd.weight".to_owned(),
            value: table.ne[1].to_string(),
            why: "token ids have 32 bits".to_owned(),
        });
    }
    Ok(table.ne[1])
}

impl Experts {
    fn read(keys: &Keys<'_>, n_ff: u64) -> Result<Option<Experts>, EngineError> {
        let count = keys.integer("expert_count", 0, MAX_COUNT)?.unwrap_or(0);
        if count == 0 {
            return Ok(None);
        }
        let used = keys.required("expert_used_count", 1, count)?;
        let n_ff = match keys.integer("expert_feed_forward_length", 1, MAX_WIDTH)? {
            Some(n_ff) => n_ff,
            None if n_ff > 0 => n_ff,
            None => return Err(EngineError::MissingKey { key: keys.name("expert_feed_forward_length") }),
        };
        // Files of models without a scale write none or zero.
        let weights_scale = match keys.number("expert_weights_scale")? {
            Some(scale) if scale != 0.0 => scale as f32,
            _ => 1.0,
        };
        Ok(Some(Experts { count, used, n_ff, weights_scale }))
    }
}

impl Rope {
    fn read(keys: &Keys<'_>, defaults: Defaults, head_dim: u64, n_context: u64) -> Result<Rope, EngineError> {
        let n_rot = keys.integer("rope.dimension_count", 2, MAX_COUNT)?.unwrap_or(head_dim);
        if n_rot > head_dim || !n_rot.is_multiple_of(2) {
            return Err(keys.bad(
                "rope.dimension_count",
                n_rot,
                format!("must be even and at most the head size {head_dim}"),
            ));
        }
        let base = keys.positive("rope.freq_base")?.unwrap_or(defaults.rope_base);
        Ok(Rope { style: defaults.rope_style, n_rot, base, scaling: RopeScaling::read(keys, n_context)? })
    }
}
