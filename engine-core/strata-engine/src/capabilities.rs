//! Whether this build can run a file, said before anything is opened or taken: for `strata inspect`.

use std::collections::BTreeMap;

use strata_backend_abi::StrataDType;
use strata_model::gguf::Gguf;

use crate::error::EngineError;
use crate::hyperparameters::Hyperparameters;
use crate::load::{Blueprint, EngineOptions, Reading};
use crate::weights::PartMode;

/// What a model that this build can run is made of, and what it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchSummary {
    pub hyperparameters: Hyperparameters,
    /// Weights of all tensors in use.
    pub n_parameters: u64,
    /// Bytes of the tensors in use, as stored.
    pub weight_bytes: u64,
    /// Per format: tensors in use and their bytes.
    pub formats: Vec<(StrataDType, u64, u64)>,
    /// Context that would be used.
    pub context: u64,
    /// Bytes of cache for that context.
    pub kv_bytes: u64,
    /// Bytes of cache for each further token.
    pub kv_bytes_per_token: u64,
    /// Tensors inside a step, inputs, tables and logits.
    pub work_bytes: u64,
    /// Tensors of the file that its architecture does not use.
    pub unused: Vec<String>,
}

impl ArchSummary {
    /// All of it, bytes.
    pub fn needed_bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes + self.work_bytes
    }
}

/// What the model would need with these options, or why this build cannot run it. Looks at
/// metadata and shapes only; whether a device has the memory and the ops is asked when it is loaded.
pub fn can_run(gguf: &Gguf, options: &EngineOptions) -> Result<ArchSummary, EngineError> {
    let reading = Reading::new(gguf, options)?;
    let modes = vec![PartMode::InPlace; gguf.parts().len()];
    let blueprint = Blueprint::new(gguf, &reading, reading.context, options, &modes)?;
    let mut formats: BTreeMap<StrataDType, (u64, u64)> = BTreeMap::new();
    let mut n_parameters = 0;
    for placement in blueprint.weights.placements() {
        let tensor = placement.tensor;
        let entry = formats.entry(tensor.dtype).or_default();
        entry.0 += 1;
        entry.1 += tensor.bytes;
        n_parameters += tensor.elements();
    }
    let cache = &blueprint.cache;
    let kv_bytes_per_token = reading.hyper.cache_bytes_per_token(cache.k, cache.v).unwrap_or(0);
    Ok(ArchSummary {
        n_parameters,
        weight_bytes: formats.values().map(|(_, bytes)| bytes).sum(),
        formats: formats.into_iter().map(|(dtype, (count, bytes))| (dtype, count, bytes)).collect(),
        context: cache.context,
        kv_bytes: cache.bytes,
        kv_bytes_per_token,
        work_bytes: blueprint.scratch_bytes()
            + blueprint.input_bytes()
            + blueprint.output_bytes()
            + blueprint.table_bytes(),
        unused: blueprint.unused(gguf),
        hyperparameters: reading.hyper,
    })
}
