//! `strata inspect`: what a model file holds, what it needs, whether this build can run it and why
//! not. Looks at metadata and shapes only; nothing is loaded and no plugin is opened.

use crate::cli::InspectArgs;
use crate::outcome::Outcome;
use crate::printer;
use strata_diag::catalogue::general::BAD_OPTION;
use strata_diag::{Diagnose, Diagnostic, ExitStatus};
use strata_engine::{EngineError, EngineOptions, can_run};
use strata_model::gguf::Gguf;
use strata_model::inspect::{Summary, Verdict};
use strata_model::tokenizer::Tokenizer;

pub(crate) fn run(args: &InspectArgs) -> Outcome {
    if args.max_context == Some(0) {
        return Err(Diagnostic::new(BAD_OPTION, "`--max-context` is at least 1").into());
    }
    let path = crate::model::find(Some(&args.model), args.prefix.as_deref())?;
    // A format that this build cannot read is something to be shown, not a reason to show nothing.
    let gguf = Gguf::open_lenient(&path)?;
    let mut summary = Summary::of(&gguf);
    summary.verdict = Some(verdict(&gguf, args.max_context));
    if args.json {
        printer::json(&summary.to_json())?;
    } else {
        printer::data(&summary.to_text(args.tensors))?;
    }
    Ok(ExitStatus::Done)
}

fn verdict(gguf: &Gguf, max_context: Option<u64>) -> Verdict {
    let options = EngineOptions { max_context, ..EngineOptions::default() };
    let mut reasons = Vec::new();
    match can_run(gguf, &options) {
        Ok(model) => {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            reasons.push(format!(
                "with {} tokens of context it needs {} MiB: weights {}, KV cache {}, work {}",
                model.context,
                mib(model.needed_bytes()),
                mib(model.weight_bytes),
                mib(model.kv_bytes),
                mib(model.work_bytes)
            ));
            if !model.unused.is_empty() {
                reasons.push(format!("tensors that its graph does not use: {}", model.unused.join(", ")));
            }
        }
        Err(error) => return refused(&error),
    }
    if let Err(error) = Tokenizer::from_gguf(gguf) {
        return Verdict { can_run: false, reasons: vec![format!("{}: {error}", error.code().id)] };
    }
    Verdict { can_run: true, reasons }
}

fn refused(error: &EngineError) -> Verdict {
    Verdict { can_run: false, reasons: vec![format!("{}: {error}", error.code().id)] }
}
