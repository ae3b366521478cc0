//! Fresh starts: the same work in so many new processes, one after another. What a process warms up
//! is warmed before it is ready, so a first answer is to be as fast as any other; the spread says
//! whether it is.

use crate::cli::BenchArgs;
use crate::model::Loaded;
use crate::outcome::Outcome;
use crate::printer;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use strata_diag::catalogue::general::BAD_INPUT;
use strata_diag::{Diagnostic, ExitStatus};
use strata_manifest::report::{SpeedReport, StartsReport};

pub(super) const MOST_STARTS: u32 = 1000;

/// What one of the processes does: nothing is run twice, so the first of everything is measured.
pub(super) fn child(path: &Path, args: &BenchArgs) -> Outcome {
    let start = Instant::now();
    let loaded = Loaded::load(path, &args.engine, Some(super::needed_context(args)))?;
    let mut session = loaded.engine.session()?;
    let ready = start.elapsed().as_secs_f64();
    let longest = args.prompt_tokens.iter().copied().max().unwrap_or(1) as usize;
    let tokens = super::text_tokens(&loaded, longest);
    let prompt = super::prompt_speed(&mut session, &tokens[..longest])?;
    session.truncate(0);
    let decode = super::decode_speed(&mut session, &[], tokens[0], args.decode_tokens)?;
    printer::compact(&json!({ "ready": ready, "prompt": prompt, "decode": decode }))?;
    Ok(ExitStatus::Done)
}

/// Runs this command line again, so many times, as such processes.
pub(super) fn measure(starts: u32) -> Outcome<StartsReport> {
    let failed = |why: String| Diagnostic::new(BAD_INPUT, "a fresh process of `--starts` failed").fact("because", why);
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (mut ready, mut whole, mut prompt, mut decode) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..starts {
        let begun = Instant::now();
        let mut command = Command::new(&program);
        command.args(&arguments).arg("--internal-start").stdin(Stdio::null());
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        whole.push(begun.elapsed().as_secs_f64());
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()).into());
        }
        let said: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        let figure = |name: &str| said.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        ready.push(figure("ready"));
        prompt.push(figure("prompt"));
        decode.push(figure("decode"));
    }
    Ok(StartsReport {
        processes: u64::from(starts),
        ready_seconds: SpeedReport::of(0, ready),
        whole_seconds: SpeedReport::of(0, whole),
        first_prompt: SpeedReport::of(0, prompt),
        first_decode: SpeedReport::of(0, decode),
    })
}
