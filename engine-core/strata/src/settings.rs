//! From flags to the engine's settings: what is out of range or unknown is refused here, before any
//! model is read.

use crate::cli::{EngineArgs, SamplingArgs};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::BAD_OPTION;
use strata_engine::CACHE_FORMATS;
use strata_engine::{EngineOptions, SamplerSettings};
use strata_plugin_host::abi::StrataDType;

/// More threads than any machine has cores for is a slip of the finger, and takes minutes to start.
const MOST_THREADS: u32 = 1024;

/// Memory and arithmetic.
pub(crate) fn engine_options(args: &EngineArgs) -> Result<EngineOptions, Diagnostic> {
    let (k, v) = match &args.kv {
        None => (None, None),
        Some(text) => {
            let (k, v) = cache_formats(text)?;
            (Some(k), Some(v))
        }
    };
    if args.precise && [k, v].into_iter().flatten().any(|format| format != StrataDType::F32) {
        return Err(Diagnostic::new(
            BAD_OPTION,
            format!("`--precise` keeps the KV cache in f32, `--kv {}` does not", args.kv.as_deref().unwrap_or("")),
        )
        .hint("leave `--kv` out, or say `--precise --kv f32`"));
    }
    if args.max_context == Some(0) || args.threads == Some(0) {
        return Err(Diagnostic::new(BAD_OPTION, "`--max-context` and `--threads` are at least 1"));
    }
    if let Some(threads) = args.threads.filter(|threads| *threads > MOST_THREADS) {
        return Err(Diagnostic::new(BAD_OPTION, format!("`--threads {threads}`: {MOST_THREADS} is the most"))
            .hint("leave it out: one thread per usable core is best"));
    }
    Ok(EngineOptions {
        max_context: args.max_context,
        kv_k: k,
        kv_v: v,
        precise: args.precise,
        reserve_bytes: args.vram_reserve_mib << 20,
        ..EngineOptions::default()
    })
}

/// `f16`, or `f32,f16` for keys and values.
fn cache_formats(text: &str) -> Result<(StrataDType, StrataDType), Diagnostic> {
    let known = || CACHE_FORMATS.iter().map(|format| format.name().to_lowercase()).collect::<Vec<_>>().join(", ");
    let parse = |word: &str| {
        let named = StrataDType::ALL.iter().find(|format| format.name().eq_ignore_ascii_case(word.trim()));
        match named {
            Some(format) if CACHE_FORMATS.contains(format) => Ok(*format),
            Some(format) => Err(Diagnostic::new(
                BAD_OPTION,
                format!("`--kv {text}`: this build cannot keep a KV cache in {format}"),
            )
            .fact("known", known())
            .hint("a combination that works: `--kv f16`")),
            None => Err(Diagnostic::new(BAD_OPTION, format!("`--kv {text}`: there is no format `{}`", word.trim()))
                .fact("known", known())
                .hint("a combination that works: `--kv f16`")),
        }
    };
    match text.split_once(',') {
        Some((k, v)) => Ok((parse(k)?, parse(v)?)),
        None => parse(text).map(|format| (format, format)),
    }
}

/// How the next token is chosen.
pub(crate) fn sampler_settings(args: &SamplingArgs) -> Result<SamplerSettings, Diagnostic> {
    let settings = SamplerSettings {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repeat_penalty: args.repeat_penalty,
        repeat_window: args.repeat_last_n,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        logit_bias: args.logit_bias.iter().map(|text| logit_bias(text)).collect::<Result<_, _>>()?,
        seed: args.seed,
    };
    settings.check().map_err(|error| Diagnostic::of(&error))?;
    Ok(settings)
}

fn logit_bias(text: &str) -> Result<(u32, f32), Diagnostic> {
    let parsed = text.split_once('=').and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)));
    parsed.ok_or_else(|| {
        Diagnostic::new(BAD_OPTION, format!("`--logit-bias {text}` is not ID=VALUE"))
            .hint("a token id and a number, as in `--logit-bias 42=-5` or `--logit-bias 42=-inf`")
    })
}
