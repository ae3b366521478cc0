//! `strata eval`: how far this build is from exact arithmetic, or how well a model predicts a text.

use crate::cli::EvalArgs;
use crate::model::Loaded;
use crate::outcome::Outcome;
use crate::{input, printer};
use std::fmt::Write;
use std::path::Path;
use strata_diag::catalogue::engine::BAD_REFERENCE;
use strata_diag::catalogue::general::{BAD_OPTION, FILE_UNREADABLE};
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::eval::{self, DistanceSummary, PositionDistance};
use strata_engine::{Reference, ReferenceCase};
use strata_manifest::Sha256Digest;
use strata_manifest::report::{EvalCase, EvalReport, PerplexityReport};

pub(crate) fn run(args: &EvalArgs) -> Outcome {
    match (&args.reference, &args.perplexity) {
        (Some(file), _) => against_reference(args, file),
        (None, Some(file)) => perplexity(args, file),
        (None, None) => unreachable!("clap's group `what` asks for one of them"),
    }
}

fn against_reference(args: &EvalArgs, file: &Path) -> Outcome {
    let reference = Reference::parse(&input::file(file)?)?;
    let path = crate::model::find(Some(&args.model), args.engine.prefix.as_deref())?;
    let cases = choose_cases(&reference, args.case.as_deref(), &path)?;
    let needed = cases.iter().map(|case| case.positions.len() as u64 + 1).max().unwrap_or(1);
    let loaded = Loaded::load(&path, &args.engine, Some(needed))?;
    let mut session = loaded.engine.session()?;

    let mut all: Vec<PositionDistance> = Vec::new();
    let mut rows = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let distances = eval::compare(&mut session, case)?;
        let name = case.name.clone().unwrap_or_else(|| format!("{number}"));
        rows.push(row(name, &eval::summarise(&distances)));
        all.extend(distances);
    }
    let total = eval::summarise(&all);
    loaded.gguf.check_unchanged()?;
    if args.json {
        let report = EvalReport {
            schema: "strata-eval/1.0",
            model: path.display().to_string(),
            reference: file.display().to_string(),
            backend: loaded.chosen.report(),
            precise: args.engine.precise,
            positions: total.positions,
            kl_mean: total.kl_mean,
            kl_max: total.kl_max,
            top1: total.top1,
            cases: rows,
        };
        printer::document(&report)?;
        return Ok(ExitStatus::Done);
    }
    let mut text = format!("{:<24} {:>9} {:>12} {:>12} {:>8}\n", "case", "positions", "kl_mean", "kl_max", "top1");
    for row in rows.iter().chain([&row("all".to_owned(), &total)]) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<24} {:>9} {:>12.3e} {:>12.3e} {:>8.4}",
            row.name, row.positions, row.kl_mean, row.kl_max, row.top1
        );
    }
    printer::data(&text)?;
    Ok(ExitStatus::Done)
}

fn row(name: String, summary: &DistanceSummary) -> EvalCase {
    EvalCase {
        name,
        positions: summary.positions,
        kl_mean: summary.kl_mean,
        kl_max: summary.kl_max,
        top1: summary.top1,
    }
}

/// The named case, or those that are about the file with this digest. A file of one model whose
/// digest differs is used all the same, with a warning: it may be the same weights, written again.
fn choose_cases<'a>(
    reference: &'a Reference,
    named: Option<&str>,
    model: &Path,
) -> Result<Vec<&'a ReferenceCase>, Diagnostic> {
    let names = || {
        let names: Vec<&str> = reference.cases.iter().filter_map(|case| case.name.as_deref()).collect();
        if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") }
    };
    if let Some(named) = named {
        let found: Vec<_> = reference.cases.iter().filter(|case| case.name.as_deref() == Some(named)).collect();
        if found.is_empty() {
            let message = format!("the reference has no case `{named}`");
            return Err(Diagnostic::new(BAD_REFERENCE, message).fact("cases", names()));
        }
        return Ok(found);
    }
    let unreadable = |error: std::io::Error| {
        Diagnostic::new(FILE_UNREADABLE, format!("cannot read `{}`", model.display())).fact("because", error)
    };
    let file = fs_err::File::open(model).map_err(unreadable)?;
    let (digest, _) = Sha256Digest::of_reader(file).map_err(unreadable)?;
    let meant = reference.cases_for(&digest.to_string());
    if !meant.is_empty() {
        return Ok(meant);
    }
    let is_about_one_model =
        reference.cases.len() == 1 || reference.cases.iter().all(|case| case.model_sha256.is_none());
    if is_about_one_model {
        let warning = Diagnostic::new(BAD_REFERENCE, "the reference was made with another file than this model")
            .fact("SHA-256 of the model", digest);
        printer::talk(&warning.to_warning_text());
        return Ok(reference.cases.iter().collect());
    }
    Err(Diagnostic::new(BAD_REFERENCE, "no case of the reference is about this model")
        .fact("SHA-256 of the model", digest)
        .fact("cases", names())
        .hint("name one: `--case NAME`"))
}

fn perplexity(args: &EvalArgs, file: &Path) -> Outcome {
    if args.chunk < 4 {
        return Err(
            Diagnostic::new(BAD_OPTION, format!("`--chunk {}`: a chunk has at least 4 tokens", args.chunk)).into()
        );
    }
    let text = input::file(file)?;
    let path = crate::model::find(Some(&args.model), args.engine.prefix.as_deref())?;
    let loaded = Loaded::load(&path, &args.engine, Some(u64::from(args.chunk)))?;
    let tokens = loaded.tokenizer.encode(&text, true, false);
    let bos = loaded.tokenizer.adds_bos().then(|| loaded.tokenizer.bos()).flatten();
    let mut session = loaded.engine.session()?;
    let result = eval::perplexity(&mut session, &tokens, bos, args.chunk as usize, |so_far| {
        if !args.json {
            printer::talk(&format!("[{}] {:.4}", so_far.chunks, so_far.perplexity));
        }
    })?;
    loaded.gguf.check_unchanged()?;
    if args.json {
        let report = PerplexityReport {
            schema: "strata-perplexity/1.0",
            model: path.display().to_string(),
            text: file.display().to_string(),
            backend: loaded.chosen.report(),
            precise: args.engine.precise,
            chunk: u64::from(args.chunk),
            chunks: result.chunks,
            scored_tokens: result.tokens,
            mean_nll: result.nll,
            ppl: result.perplexity,
            stderr: result.stderr,
        };
        printer::document(&report)?;
    } else {
        printer::data(&format!(
            "ppl {:.4} +/- {:.4}  ({} chunks of {}, {} tokens scored)\n",
            result.perplexity, result.stderr, result.chunks, args.chunk, result.tokens
        ))?;
    }
    Ok(ExitStatus::Done)
}
