//! Flags of `strata bench`.

use super::EngineArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Path of a GGUF file, or the name of an installed model.
    pub(crate) model: String,
    /// Prompt lengths to measure, tokens.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "512")]
    pub(crate) prompt_tokens: Vec<u32>,
    /// Tokens to decode one by one.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) decode_tokens: u32,
    /// Tokens that the context holds already when decoding begins.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    pub(crate) depths: Vec<u32>,
    /// Measured runs of each, after one that is not counted.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) runs: u32,
    /// Also a session as an agent has it: so many turns, each with the whole talk before it.
    #[arg(long, value_name = "TURNS", default_value_t = 0, hide_default_value = true)]
    pub(crate) session: u32,
    /// Also so many fresh processes, one after another: time to ready, first speeds, and their spread.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) starts: u32,
    /// Also whether a sentence is found again at these depths of a long text, percent.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    pub(crate) needle: Vec<u32>,
    /// Length of that text, tokens.
    #[arg(long, value_name = "N", default_value_t = 2048)]
    pub(crate) needle_tokens: u32,
    /// Compare with an earlier report of `--json`.
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// What a process of `--starts` does: load, one prompt, one answer, one line.
    #[arg(long, hide = true)]
    pub(crate) internal_start: bool,
}
