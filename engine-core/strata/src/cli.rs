//! The command line as data: every command, flag and its help text. A catalogue; the commands
//! themselves parse no text: `settings.rs` turns values into the engine's types.

mod bench;
mod doctor;
mod package;
mod serve;
mod verify_package;

pub(crate) use bench::*;
pub(crate) use doctor::*;
pub(crate) use package::*;
pub(crate) use serve::*;
pub(crate) use verify_package::*;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Runs language models on the GPU or CPU that is here.
#[derive(Debug, Parser)]
#[command(name = "strata", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt, or chat when none is given.
    #[command(visible_alias = "chat")]
    Run(RunArgs),
    /// Answer programs and people over HTTP: the interfaces of OpenAI and Anthropic, and a web page.
    Serve(Box<ServeArgs>),
    /// Print the token ids of texts.
    Tokenize(TokenizeArgs),
    /// Measure how far this build is from exact reference data, or a text's perplexity.
    Eval(EvalArgs),
    /// Measure prompt and decode speed.
    Bench(BenchArgs),
    /// Show what a model file holds, what it needs and whether this build can run it.
    Inspect(InspectArgs),
    /// Say what this machine and this installation can do, what is wrong and what to do about it.
    Doctor(DoctorArgs),
    /// List the servers that run on this machine.
    Ps(PsArgs),
    /// Ask servers of this machine to end, and wait until they have.
    Stop(StopArgs),
    /// Build, index and sign packages.
    Package(PackageArgs),
    /// Prove that a package is exactly what its manifest says: files, versions, ELF, GPU code, signature.
    VerifyPackage(VerifyPackageArgs),
    /// Print a shell's completions of this program's commands and flags.
    Completions(CompletionsArgs),
    /// Explain an error code.
    Explain(ExplainArgs),
    /// Print version and build record.
    Version(VersionArgs),
    /// Load one plugin and say what it finds: what a plugin's first open runs in a child process.
    #[command(hide = true)]
    InternalProbe(InternalProbeArgs),
    /// Ask NVIDIA's management library about its cards: what the detector runs in a child process.
    #[command(hide = true)]
    InternalNvml(InternalNvmlArgs),
    /// Compare one device's operations with the CPU's: what `doctor --selftest` runs in a child process.
    #[command(hide = true)]
    InternalSelftest(InternalSelftestArgs),
    /// Print docs/cli.md, or the man pages and completions of packages.
    #[command(hide = true)]
    InternalReference(InternalReferenceArgs),
}

impl Command {
    /// Whether failures are wanted as JSON on standard output too.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Command::Run(args) => args.json,
            Command::Tokenize(args) => args.json,
            Command::Eval(args) => args.json,
            Command::Bench(args) => args.json,
            Command::Inspect(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::Version(args) => args.json,
            Command::Ps(args) => args.json,
            Command::Package(args) => args.command.wants_json(),
            Command::VerifyPackage(args) => args.json,
            Command::Serve(_)
            | Command::Stop(_)
            | Command::Completions(_)
            | Command::Explain(_)
            | Command::InternalProbe(_)
            | Command::InternalNvml(_)
            | Command::InternalSelftest(_)
            | Command::InternalReference(_) => false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Path of a GGUF file, or the name of an installed model. Without it: the only installed one.
    pub(crate) model: Option<String>,
    /// What to answer; `-` reads it from standard input. Without it: an interactive chat, or standard
    /// input when that is no terminal.
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// System message for models with a chat template.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Give the prompt to the model as it is, without its chat template.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Stop after this many tokens; default: until the model ends or the context is full.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop where this text begins, which is not printed. May be given several times.
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// The answer is JSON that the schema in this file describes.
    #[arg(long, value_name = "FILE", group = "rule")]
    pub(crate) json_schema: Option<PathBuf>,
    /// The answer is text of the grammar in this file, in Lark's notation, from its rule `start` on.
    #[arg(long, value_name = "FILE", group = "rule")]
    pub(crate) grammar: Option<PathBuf>,
    /// The answer as a whole matches this regular expression.
    #[arg(long, value_name = "REGEX", group = "rule")]
    pub(crate) regex: Option<String>,
    /// Print one JSON object at the end instead of streaming text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the model runs and with how much.
#[derive(Debug, Clone, Args)]
pub(crate) struct EngineArgs {
    /// What computes. `auto` takes the best that works and says so; a named one is never replaced by another.
    #[arg(long, value_enum, default_value_t = BackendArg::Auto, help_heading = "Backend")]
    pub(crate) backend: BackendArg,
    /// Choose among several devices: by PCI address, UUID (`GPU-…`) or `unique_id`.
    #[arg(long, value_name = "UID", help_heading = "Backend")]
    pub(crate) device: Option<String>,
    /// Print the whole reasoning behind the choice of backend, then go on.
    #[arg(long, help_heading = "Backend")]
    pub(crate) backend_report: bool,
    /// Use the plugin of this descriptor file instead of the installed ones. May be given several times.
    #[arg(long, value_name = "FILE", help_heading = "Backend")]
    pub(crate) plugin: Vec<PathBuf>,
    /// Try a plugin again that crashed or hung before.
    #[arg(long, help_heading = "Backend")]
    pub(crate) retry_plugin: bool,
    /// Kernel variant of the plugin (`scalar`, `avx2`, …); default: the best that the device has.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Backend")]
    pub(crate) variant: String,
    /// CPU threads; default: one per usable physical core.
    #[arg(long, value_name = "N", help_heading = "Backend")]
    pub(crate) threads: Option<u32>,
    /// Tokens of context to reserve memory for; default: what the model was made for, at most 8192.
    #[arg(long, value_name = "TOKENS", help_heading = "Memory")]
    pub(crate) max_context: Option<u64>,
    /// Storage of the KV cache: `f16` (default) or `f32`; two for keys and values: `f32,f16`.
    #[arg(long, value_name = "TYPE", help_heading = "Memory")]
    pub(crate) kv: Option<String>,
    /// Compute with float activations and an f32 cache: slower, nearly exact.
    #[arg(long, help_heading = "Memory")]
    pub(crate) precise: bool,
    /// Bytes of device memory to leave free, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 0, help_heading = "Memory")]
    pub(crate) vram_reserve_mib: u64,
    /// Installation to take plugins and models from; default: the one this program lies in.
    #[arg(long, value_name = "DIR", help_heading = "Memory")]
    pub(crate) prefix: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    Auto,
    Cpu,
    Cuda,
    Hip,
}

/// How the next token is chosen. The order is: bias, penalties, min-p, top-k, top-p, temperature.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// 0 always takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.8, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) temperature: f32,
    /// Only the K most likely tokens; 0: all.
    #[arg(long, value_name = "K", default_value_t = 40, help_heading = "Sampling")]
    pub(crate) top_k: u32,
    /// Only the most likely tokens that together reach this probability.
    #[arg(long, value_name = "P", default_value_t = 0.95, help_heading = "Sampling")]
    pub(crate) top_p: f32,
    /// Only tokens with at least this share of the most likely one's probability.
    #[arg(long, value_name = "P", default_value_t = 0.05, help_heading = "Sampling")]
    pub(crate) min_p: f32,
    /// Divides the logits of tokens among the last `--repeat-last-n`; 1 is off.
    #[arg(long, value_name = "X", default_value_t = 1.0, help_heading = "Sampling")]
    pub(crate) repeat_penalty: f32,
    /// How far back the penalties look, in tokens.
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Sampling")]
    pub(crate) repeat_last_n: u32,
    /// Subtracted once from the logit of every token that occurred.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) presence_penalty: f32,
    /// Subtracted from a token's logit for each time it occurred.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) frequency_penalty: f32,
    /// Same seed, same text; default: a fresh one, which is printed with `--json`.
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub(crate) seed: Option<u64>,
    /// Adds to a token's logit: `ID=VALUE`, `-inf` forbids it. May be given several times.
    #[arg(long, value_name = "ID=VALUE", help_heading = "Sampling")]
    pub(crate) logit_bias: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// Path of a GGUF file, or the name of an installed model.
    pub(crate) model: String,
    /// Text to tokenize; without it, standard input.
    pub(crate) text: Option<String>,
    /// Recognise special tokens in the text and add those that the model wants (BOS).
    #[arg(long)]
    pub(crate) special: bool,
    /// Read a JSON array of strings from standard input, print an array of arrays of ids.
    #[arg(long, conflicts_with = "text")]
    pub(crate) json: bool,
    /// The other way: ids (separated by blanks, or with `--json` arrays of ids) to text.
    #[arg(long)]
    pub(crate) decode: bool,
    /// Installation to take models from.
    #[arg(long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["reference", "perplexity"]))]
pub(crate) struct EvalArgs {
    /// Path of a GGUF file, or the name of an installed model.
    pub(crate) model: String,
    /// Compare with exact logits: prints `kl_mean`, `kl_max`, `top1`.
    #[arg(long, value_name = "FILE")]
    pub(crate) reference: Option<PathBuf>,
    /// Case of a reference file that holds several models (by name); default: the one whose
    /// SHA-256 is the model's, else all cases.
    #[arg(long, value_name = "NAME", requires = "reference")]
    pub(crate) case: Option<String>,
    /// Perplexity of a text file: chunks of `--chunk` tokens, second half of each scored.
    #[arg(long, value_name = "FILE")]
    pub(crate) perplexity: Option<PathBuf>,
    /// Tokens of a perplexity chunk.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) chunk: u32,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Path of a GGUF file, or the name of an installed model.
    pub(crate) model: String,
    /// List every tensor.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Context for the memory figures, tokens; default: what the model was made for.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_context: Option<u64>,
    /// Print one JSON object (always with all tensors).
    #[arg(long)]
    pub(crate) json: bool,
    /// Installation to take models from.
    #[arg(long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell; `strata completions bash > ~/.local/share/bash-completion/completions/strata` keeps them.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct InternalReferenceArgs {
    /// Man pages and completions instead, as JSON: a path in the repository and the text.
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Which one: its pid, port, address or model; without it, the only one that runs.
    pub(crate) server: Option<String>,
    /// All servers.
    #[arg(long, conflicts_with = "server")]
    pub(crate) all: bool,
    /// Seconds to wait for it to finish its answers.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) timeout: u64,
    /// End it by force when it has not ended in time.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// `S0104` or `truncated-model`; without it, all codes.
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print the whole build record as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InternalNvmlArgs {
    /// PCI addresses of the cards to ask about; default: all.
    pub(crate) address: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InternalProbeArgs {
    /// The plugin's descriptor.
    pub(crate) descriptor: PathBuf,
}
