//! From a model file to tokens: the graph of each architecture, lowered to a program that a
//! backend plugin runs; the memory plan, the KV cache, sampling and generation.
//!
//! It does not read files (strata-model), does not open plugins and calls them only through
//! strata-plugin-host, and computes nothing of a step itself: every op is the plugin's. It prints
//! nothing. Called by the `strata` binary and the server.
//!
//! ```text
//! Gguf ─ arch ─ graph ─ ProgramSpec ─┐
//!   Device ──────────────────────────┴─ Engine ┬ Session ─ generate / eval
//!                                             └ Scheduler: many requests in shared steps
//! ```

mod error;
mod hyperparameters;
mod rope;

mod arch;
mod graph;
mod kv_cache;
mod load;
mod memory;
mod probe;
mod weights;

mod batch;
mod engine;
mod session;
mod step;

mod capabilities;
pub mod eval;
mod generate;
mod grammar;
mod random;
mod reference;
mod sampler;

pub use arch::known as known_architectures;
pub use batch::{
    ActiveFigures, BatchFigures, BatchPiece, BatchRequest, CacheFigures, Constraint, RequestId, Scheduler,
    SchedulerOptions, Sink, check_request,
};
pub use capabilities::{ArchSummary, can_run};
pub use engine::{Engine, LoadProgress};
pub use error::EngineError;
pub use generate::{FinishReason, Finished, Limits, Piece, RequestStats, generate, generate_within};
pub use grammar::{Grammars, Rule};
pub use hyperparameters::{Experts, Hyperparameters, Rope};
pub use kv_cache::CACHE_FORMATS;
pub use load::{DEFAULT_CONTEXT, EngineOptions};
pub use memory::MemoryPlan;
pub use reference::{Reference, ReferenceCase, ReferencePosition};
pub use rope::{RopeScaling, Yarn};
pub use sampler::{Sampler, SamplerSettings, log_sum_exp};
pub use session::{PromptStats, Session};
