//! From an open file to a lowered model: which architecture, which programs, how much memory.
//! Nothing here touches a device; `engine` does what this plans, and `capabilities` asks it what
//! would be planned.

use strata_backend_abi::StrataDType;
use strata_model::gguf::Gguf;

use crate::arch::{self, Architecture};
use crate::error::EngineError;
use crate::graph::{CHOICE_BYTES, Ending, Graph, Lowered, Shared, StepLimits, TableLayout};
use crate::hyperparameters::Hyperparameters;
use crate::kv_cache::CacheLayout;
use crate::rope::RopeTable;
use crate::weights::{PartMode, Weights, align};

/// Tokens of the step that is compiled for decoding: one, or a few drafted ones.
pub(crate) const DECODE_TOKENS: u64 = 8;
/// Context when nothing is asked for: enough for a long talk, and a cache that a small machine has.
pub const DEFAULT_CONTEXT: u64 = 8192;

/// How an engine is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Positions of a sequence. `None`: what the model was trained for, at most
    /// [`DEFAULT_CONTEXT`], less when that does not fit the memory.
    pub max_context: Option<u64>,
    /// Storage of keys: F16 or F32. `None`: F16, or F32 when `precise`.
    pub kv_k: Option<StrataDType>,
    /// Storage of values, likewise.
    pub kv_v: Option<StrataDType>,
    /// Nearly exact arithmetic: float activations.
    pub precise: bool,
    /// Most tokens of one step while a prompt is read.
    pub max_batch: u64,
    /// Most tokens of one step whose logits are all wanted: drafts, and evaluation. At least as many
    /// as there are sequences.
    pub max_outputs: u64,
    /// Sequences that have a cache at one time.
    pub sequences: u32,
    /// Bytes of device memory to leave free.
    pub reserve_bytes: u64,
    /// Copy the weights even where the device could read them in the mapped file: for files that
    /// may change or lie on a slow file system.
    pub copy_weights: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            max_context: None,
            kv_k: None,
            kv_v: None,
            precise: false,
            max_batch: 512,
            max_outputs: DECODE_TOKENS,
            sequences: 1,
            reserve_bytes: 0,
            copy_weights: false,
        }
    }
}

impl EngineOptions {
    fn check(&self) -> Result<(), EngineError> {
        let bad = |option, value: u64, why: &str| {
            Err(EngineError::BadOption { option, value: value.to_string(), why: why.to_owned() })
        };
        if self.max_batch == 0 || self.max_batch > 1 << 16 {
            return bad("max_batch", self.max_batch, "must lie between 1 and 65536");
        }
        if self.max_outputs == 0 || self.max_outputs > 1 << 16 {
            return bad("max_outputs", self.max_outputs, "must lie between 1 and 65536");
        }
        if self.sequences == 0 || self.sequences > 1 << 12 {
            return bad("sequences", self.sequences.into(), "must lie between 1 and 4096");
        }
        match self.max_context {
            Some(context) if !(2..=i32::MAX as u64).contains(&context) => {
                bad("--max-context", context, "must lie between 2 and 2147483647")
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn cache_format(&self, asked: Option<StrataDType>) -> StrataDType {
        asked.unwrap_or(if self.precise { StrataDType::F32 } else { StrataDType::F16 })
    }
}

/// What is known of a model before anything is planned for it.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) architecture: &'static dyn Architecture,
    pub(crate) hyper: Hyperparameters,
    /// What is asked for, or by default.
    pub(crate) context: u64,
}

impl Reading {
    pub(crate) fn new(gguf: &Gguf, options: &EngineOptions) -> Result<Reading, EngineError> {
        options.check()?;
        let architecture = arch::of(gguf)?;
        let hyper = architecture.hyperparameters(gguf)?;
        let context = options.max_context.unwrap_or_else(|| hyper.n_context.min(DEFAULT_CONTEXT)).max(2);
        Ok(Reading { architecture, hyper, context })
    }
}

/// Both programs of a model and all sizes, for one context length.
#[derive(Debug)]
pub(crate) struct Blueprint<'g> {
    pub(crate) weights: Weights<'g>,
    pub(crate) cache: CacheLayout,
    pub(crate) tables: TableLayout,
    pub(crate) rope: Vec<RopeTable>,
    pub(crate) decode: (StepLimits, Lowered),
    pub(crate) prefill: (StepLimits, Lowered),
    /// Two that choose their token themselves, by turns: one reads what the other wrote.
    pub(crate) choosing: [(StepLimits, Lowered); 2],
    /// Where the places of chosen tokens begin in the output buffer.
    pub(crate) choices: u64,
}

impl<'g> Blueprint<'g> {
    pub(crate) fn new(
        gguf: &'g Gguf,
        reading: &Reading,
        context: u64,
        options: &EngineOptions,
        modes: &[PartMode],
    ) -> Result<Blueprint<'g>, EngineError> {
        let Reading { architecture, hyper, .. } = reading;
        let [k, v] = [options.kv_k, options.kv_v].map(|asked| options.cache_format(asked));
        let cache = CacheLayout::new(hyper, context, u64::from(options.sequences), k, v)?;
        // Requests that share steps have a row of logits each.
        let sequences = u64::from(options.sequences);
        let max_tokens = options.max_batch.max(DECODE_TOKENS).max(sequences);
        let tables = TableLayout::new(max_tokens, &cache);
        let mut weights = Weights::new(gguf, modes.to_vec());
        let divisors = arch::rope_divisors(gguf, hyper, context)?;
        let rope = architecture.rope_tables(hyper, divisors.as_deref());
        let shared = Shared { cache: &cache, tables, n_rot: hyper.rope.n_rot, n_rope: rope.len() };
        let decode = StepLimits { tokens: DECODE_TOKENS, outputs: DECODE_TOKENS };
        let prefill = StepLimits { tokens: max_tokens, outputs: options.max_outputs.max(sequences).min(max_tokens) };
        // A file with more layers than tensors lacks some, which one layer too many tells as well.
        let n_layers = hyper.n_layers.min(gguf.tensors().len() as u64 + 1);
        let buildable = Hyperparameters { n_layers, ..hyper.clone() };
        let mut program = |name, limits, ending| {
            let mut graph = Graph::new(name, options.precise, limits, ending, shared, &mut weights);
            architecture.build(&buildable, &mut graph);
            graph.weights.check(architecture.key())?;
            hyper.rms_eps()?;
            Ok::<_, EngineError>((limits, graph.lower()))
        };
        let decode = program("decode", decode, Ending::Logits)?;
        let prefill = program("prefill", prefill, Ending::Logits)?;
        let choices = align(decode.1.output_bytes.max(prefill.1.output_bytes));
        let one = StepLimits { tokens: 1, outputs: 1 };
        let places = [choices, choices + CHOICE_BYTES];
        let choosing = [
            program("decode and choose", one, Ending::Choice { from: places[0], to: places[1] })?,
            program("decode and choose by turns", one, Ending::Choice { from: places[1], to: places[0] })?,
        ];
        Ok(Blueprint { weights, cache, tables, rope, decode, prefill, choosing, choices })
    }

    pub(crate) fn scratch_bytes(&self) -> u64 {
        let most = self.decode.1.scratch_bytes.max(self.prefill.1.scratch_bytes);
        self.choosing.iter().map(|program| program.1.scratch_bytes).fold(most, u64::max)
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        self.decode.1.input.bytes.max(self.prefill.1.input.bytes)
    }

    pub(crate) fn output_bytes(&self) -> u64 {
        self.choices + 2 * CHOICE_BYTES
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        self.tables.converted + align(self.weights.converted_bytes())
    }

    /// Tensors of the file that no program uses, rope divisors aside.
    pub(crate) fn unused(&self, gguf: &Gguf) -> Vec<String> {
        let used: std::collections::BTreeSet<&str> =
            self.weights.placements().map(|placement| placement.tensor.name.as_str()).collect();
        let unused = |name: &&str| !used.contains(name) && !name.starts_with("rope_");
        gguf.tensors().iter().map(|tensor| tensor.name.as_str()).filter(unused).map(str::to_owned).collect()
    }
}
