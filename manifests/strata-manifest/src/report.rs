//! What commands print with `--json`: one type a command, with a generated schema, so that scripts
//! can rely on it. Speeds are tokens per second, times are seconds.

use schemars::JsonSchema;
use serde::Serialize;

/// A document that a command prints.
pub trait Report: Serialize {
    /// Pretty JSON.
    fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("reports hold nothing that JSON cannot")
    }
}

impl<T: Serialize> Report for T {}

/// What computes, as it was resolved.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BackendReport {
    /// Plugin: `cpu`.
    pub plugin: String,
    pub device: String,
    /// What kernels were chosen by.
    pub arch: String,
    /// Identity that `--device` takes.
    pub uid: String,
    /// The plugin's own line about what it chose and why.
    pub report: String,
    /// What the user asked for, in the word of `--backend`.
    pub asked: String,
    /// Why this one, a sentence.
    pub reason: String,
    pub warnings: Vec<String>,
}

/// Settings of memory and arithmetic, in the words of the flags.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SettingsReport {
    /// `--max-context` as resolved.
    pub max_context: u64,
    /// `--kv` as resolved: keys, values.
    pub kv: String,
    pub precise: bool,
    pub memory: MemoryReport,
}

/// Bytes that the plan takes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MemoryReport {
    pub weights: u64,
    pub kv: u64,
    pub scratch: u64,
    pub workspace: u64,
}

/// `strata run --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RunReport {
    /// `strata-run/1.0`.
    pub schema: &'static str,
    pub model: String,
    pub backend: BackendReport,
    pub settings: SettingsReport,
    pub text: String,
    pub tokens: Vec<u32>,
    /// `stop`, `length` or `cancelled`.
    pub finish_reason: String,
    pub seed: u64,
    pub stats: StatsReport,
}

/// Figures of one request.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StatsReport {
    pub prompt_tokens_reused: u64,
    pub prompt_tokens_new: u64,
    pub prompt_seconds: f64,
    /// `null` when every prompt token was in the cache.
    pub prompt_speed: Option<f64>,
    pub generated_tokens: u64,
    pub decode_seconds: f64,
    /// `null` when no step after the prompt was needed.
    pub decode_speed: Option<f64>,
    /// Tokens in the context at the end.
    pub end_context: u64,
    pub context_size: u64,
}

/// `strata eval --reference FILE --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EvalReport {
    /// `strata-eval/1.0`.
    pub schema: &'static str,
    pub model: String,
    pub reference: String,
    pub backend: BackendReport,
    pub precise: bool,
    pub positions: u64,
    /// KL(exact ‖ ours) in nats over the listed tokens and the rest as one; mean over positions.
    pub kl_mean: f64,
    pub kl_max: f64,
    /// Share of positions at which the most likely token is the reference's.
    pub top1: f64,
    pub cases: Vec<EvalCase>,
}

/// One token list of a reference file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EvalCase {
    pub name: String,
    pub positions: u64,
    pub kl_mean: f64,
    pub kl_max: f64,
    pub top1: f64,
}

/// `strata eval --perplexity TEXT --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PerplexityReport {
    /// `strata-perplexity/1.0`.
    pub schema: &'static str,
    pub model: String,
    pub text: String,
    pub backend: BackendReport,
    pub precise: bool,
    pub chunk: u64,
    pub chunks: u64,
    pub scored_tokens: u64,
    /// Mean negative log-likelihood of a scored token, nats.
    pub mean_nll: f64,
    pub ppl: f64,
    pub stderr: f64,
}

/// `strata bench --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BenchReport {
    /// `strata-bench/1.1`.
    pub schema: &'static str,
    pub model: String,
    pub backend: BackendReport,
    pub settings: SettingsReport,
    pub prompt: Vec<SpeedReport>,
    /// The first of `decode_at`.
    pub decode: SpeedReport,
    pub decode_at: Vec<DepthReport>,
    pub session: Option<SessionReport>,
    pub starts: Option<StartsReport>,
    pub needle: Vec<NeedleReport>,
    /// With `--compare`: what both reports have measured.
    pub comparison: Vec<ChangeReport>,
}

/// Decode speed with so many tokens in the context already.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DepthReport {
    pub depth: u64,
    pub speed: SpeedReport,
}

/// A session of several turns, each with the whole talk before it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionReport {
    pub turns: Vec<TurnReport>,
    /// All turns.
    pub seconds: f64,
    /// Of all turns, and how many of them were in the cache.
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    /// The last turn's first token when nothing is in the cache.
    pub last_turn_cold_seconds: f64,
}

/// A turn of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TurnReport {
    pub reused: u64,
    pub new: u64,
    pub first_token_seconds: f64,
    pub answer_seconds: f64,
}

/// The same work in fresh processes. Seconds, and tokens per second of the first prompt and answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StartsReport {
    pub processes: u64,
    /// Until the model is loaded and ready.
    pub ready_seconds: SpeedReport,
    /// From start to end of the process.
    pub whole_seconds: SpeedReport,
    pub first_prompt: SpeedReport,
    pub first_decode: SpeedReport,
}

/// Whether a sentence was found again in a long text.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct NeedleReport {
    pub depth_percent: u32,
    pub prompt_tokens: u64,
    pub is_found: bool,
    pub answer: String,
}

/// A speed in an earlier report and in this one.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ChangeReport {
    pub what: String,
    pub before: f64,
    pub now: f64,
    pub percent: f64,
    /// No run of one is among those of the other.
    pub is_beyond_spread: bool,
}

/// `strata ps --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PsReport {
    /// `strata-ps/1.0`.
    pub schema: &'static str,
    /// Oldest first.
    pub servers: Vec<InstanceReport>,
}

/// A server that runs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct InstanceReport {
    pub pid: u32,
    pub model: String,
    /// Address and port.
    pub address: String,
    /// Plugin: `cpu`.
    pub backend: String,
    pub version: String,
    pub seconds_up: u64,
}

/// One measured speed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SpeedReport {
    pub tokens: u64,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// (max - min) / median.
    pub spread: f64,
    /// Every counted run, in order.
    pub runs: Vec<f64>,
}

impl SpeedReport {
    /// Summary of runs; the median of an even number is the mean of the middle two.
    pub fn of(tokens: u64, runs: Vec<f64>) -> SpeedReport {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => 0.0,
            n if n % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        SpeedReport {
            tokens,
            median,
            min: sorted.first().copied().unwrap_or(0.0),
            max: sorted.last().copied().unwrap_or(0.0),
            spread: if median > 0.0 { (sorted[sorted.len() - 1] - sorted[0]) / median } else { 0.0 },
            runs,
        }
    }
}

/// `strata package build --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PackageBuildReport {
    /// `strata-package-build/1.0`.
    pub schema: &'static str,
    pub components: Vec<BuiltComponent>,
}

/// One component that was built.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BuiltComponent {
    /// `engine-cpu`.
    pub id: String,
    pub version: String,
    /// Files that its manifest lists.
    pub files: usize,
    pub unpacked_bytes: u64,
    /// Parts by others that are in it.
    pub third_party: usize,
    pub gpu_targets: Vec<String>,
    pub libc_floor: Option<String>,
    pub host_libraries: Vec<String>,
    pub archives: Vec<BuiltArchive>,
}

/// One archive of a component.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BuiltArchive {
    pub path: String,
    pub size: u64,
    pub sha256: String,
}

/// Name and JSON schema of every document of this crate, for `cargo xtask gen`.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("strata-plugin", schemars::schema_for!(crate::PluginDescriptor)),
        ("strata-receipt", schemars::schema_for!(crate::Receipt)),
        ("strata-models", schemars::schema_for!(crate::ModelStore)),
        ("strata-installed", schemars::schema_for!(crate::setup_report::InstalledReport)),
        ("strata-list", schemars::schema_for!(crate::setup_report::ListReport)),
        ("strata-catalog-report", schemars::schema_for!(crate::setup_report::CatalogReport)),
        ("strata-audit", schemars::schema_for!(crate::setup_report::AuditReport)),
        ("strata-rollback", schemars::schema_for!(crate::setup_report::RollbackReport)),
        ("strata-removed", schemars::schema_for!(crate::setup_report::RemovedReport)),
        ("strata-by-hand", schemars::schema_for!(crate::setup_report::ByHandReport)),
        ("strata-host-facts", schemars::schema_for!(crate::HostFacts)),
        ("strata-pins", schemars::schema_for!(crate::PinnedTrust)),
        ("strata-plan", schemars::schema_for!(crate::InstallPlan)),
        ("strata-download", schemars::schema_for!(crate::plan::DownloadFolder)),
        ("strata-lock", schemars::schema_for!(crate::Lock)),
        ("strata-component", schemars::schema_for!(crate::Component)),
        ("strata-release", schemars::schema_for!(crate::Release)),
        ("strata-recipe", schemars::schema_for!(crate::Recipe)),
        ("strata-trust-root", schemars::schema_for!(crate::TrustRoot)),
        ("strata-keys", schemars::schema_for!(crate::KeyList)),
        ("strata-build", schemars::schema_for!(crate::BuildRecord)),
        ("strata-run", schemars::schema_for!(RunReport)),
        ("strata-eval", schemars::schema_for!(EvalReport)),
        ("strata-ps", schemars::schema_for!(PsReport)),
        ("strata-perplexity", schemars::schema_for!(PerplexityReport)),
        ("strata-package-build", schemars::schema_for!(PackageBuildReport)),
        ("strata-bench", schemars::schema_for!(BenchReport)),
        ("strata-verify", schemars::schema_for!(crate::verify_report::VerifyReport)),
    ]
}
