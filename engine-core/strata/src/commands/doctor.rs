//! `strata doctor`: what the machine has, what is installed, whether the two fit, and for whatever
//! is wrong one line of what to do. It changes nothing; repairing is `strata-setup`'s.

mod installed;
mod machine;
mod redact;
mod selftest;

pub(crate) use selftest::child as selftest_child;

use crate::cli::DoctorArgs;
use crate::device;
use crate::outcome::Outcome;
use crate::printer;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use strata_diag::catalogue::general::{FILE_UNREADABLE, FILE_UNWRITABLE};
use strata_diag::{Diagnostic, ExitStatus};
use strata_manifest::HostFacts;
use strata_plugin_host::select::{self, BackendRequest, Request, Selection, Verdict};
use strata_probe::{Helper, Options, Root, probe};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Fine,
    /// Worth knowing, and nothing that was asked for fails because of it.
    Note,
    Wrong,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Fine => "ok",
            Level::Note => "note",
            Level::Wrong => "WRONG",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Check {
    /// `system`, `processor`, `memory`, `disk`, `gpu`, `receipt`, `files`, `models`, `state`, `port`, `plugin`,
    /// `threads`, `backend`, `selftest`.
    topic: &'static str,
    level: Level,
    text: String,
    details: Vec<String>,
    /// One line of what to do.
    to_do: Option<String>,
}

impl Check {
    fn new(topic: &'static str, level: Level, text: impl Into<String>) -> Check {
        Check { topic, level, text: text.into(), details: Vec::new(), to_do: None }
    }

    fn detail(mut self, detail: impl Into<String>) -> Check {
        self.details.push(detail.into());
        self
    }

    fn advise(mut self, to_do: impl Into<String>) -> Check {
        self.to_do = Some(to_do.into());
        self
    }

    /// What an error says, with its code, facts and first hint.
    fn failed(topic: &'static str, who: &str, diagnostic: &Diagnostic) -> Check {
        let mut check =
            Check::new(topic, Level::Wrong, format!("{who}: {} [{}]", diagnostic.message, diagnostic.code.id));
        check.details.extend(diagnostic.facts.iter().map(|(name, value)| format!("{name}: {value}")));
        check.details.extend(diagnostic.causes.iter().map(|cause| format!("because: {cause}")));
        let explain = format!("`strata explain {}`", diagnostic.code.name);
        check.advise(diagnostic.hints.first().cloned().unwrap_or(explain))
    }

    fn to_json(&self) -> Value {
        json!({
            "topic": self.topic, "level": self.level.word(), "text": self.text, "details": self.details,
            "to_do": self.to_do,
        })
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Outcome {
    let host = facts(args.root.as_deref())?;
    let mut checks = machine::checks(&host);
    let (mut selection, mut tests) = (None, Vec::new());
    if args.root.is_none() {
        let prefix = installed::receipt(args.prefix.as_deref(), &mut checks);
        let is_damaged = checks.iter().any(|check| check.topic == "receipt" && check.level == Level::Wrong);
        if !is_damaged {
            checks.extend(installed::files(prefix.as_ref(), args.full));
            checks.extend(installed::models(prefix.as_ref(), args.full));
        }
        checks.extend(args.model.iter().map(|path| installed::model_file(&path.display().to_string(), path)));
        checks.push(machine::state());
        checks.push(machine::port(args.port));
        match device::entries(&args.plugin, prefix.as_ref()) {
            // Without its receipt an installation has no plugins that could be named.
            Err(_) if is_damaged => {}
            entries => plugins(args, &host, entries, &mut checks, &mut selection, &mut tests)?,
        }
    }
    let wrong = checks.iter().filter(|check| check.level == Level::Wrong).count();
    let text = text(&checks, &tests, wrong);
    if args.json {
        printer::json(&json!({
            "schema": "strata-doctor/1.0",
            "healthy": wrong == 0,
            "checks": checks.iter().map(Check::to_json).collect::<Vec<_>>(),
            "selftest": tests.iter().map(selftest::Row::to_json).collect::<Vec<_>>(),
            "backend": selection.as_ref().map(Selection::to_json),
            "host": host,
        }))?;
    } else {
        printer::data(&text)?;
    }
    if let Some(path) = &args.report {
        write_new(path, &redact::redacted(&text, &host))?;
        printer::talk(&format!("written: {}", path.display()));
    }
    Ok(if wrong == 0 { ExitStatus::Done } else { ExitStatus::Failed })
}

/// What the plugins find, and what would compute.
fn plugins(
    args: &DoctorArgs,
    host: &HostFacts,
    entries: Result<device::Entries, Diagnostic>,
    checks: &mut Vec<Check>,
    selection: &mut Option<Selection>,
    tests: &mut Vec<selftest::Row>,
) -> Outcome<()> {
    let entries = match entries {
        Ok(entries) => entries,
        Err(diagnostic) => {
            checks.push(Check::failed("plugin", "plugins", &diagnostic));
            return Ok(());
        }
    };
    let options = device::open_options(args.retry_plugin)?;
    let devices = installed::plugins(&entries, &options, checks);
    checks.extend(machine::without_plugin(host, &entries));
    let selected = select::select(&entries, &Request::of(BackendRequest::Auto), &options);
    checks.extend(choice(&selected.selection));
    *selection = Some(selected.selection);
    if args.selftest {
        // Whoever tests has the device for itself.
        *tests = selftest::run(args, &devices, checks);
    }
    Ok(())
}

fn facts(root: Option<&Path>) -> Outcome<HostFacts> {
    let root = match root {
        None => Root::live(),
        Some(path) if path.is_dir() => Root::at(path),
        Some(path) => {
            return Err(Diagnostic::new(FILE_UNREADABLE, format!("`{}` is no folder", path.display())).into());
        }
    };
    // This link still leads to the running file when an update has replaced it on disk.
    let own = Path::new("/proc/self/exe");
    let nvml = (root.is_live() && own.exists()).then(|| Helper::nvml(own));
    Ok(probe(&root, &Options { nvml, ..Options::default() }))
}

/// What would compute, and every device that would not although it is here.
fn choice(selection: &Selection) -> Vec<Check> {
    let mut checks: Vec<Check> =
        selection.warnings.iter().map(|warning| Check::failed("backend", "not used", warning)).collect();
    checks.push(match &selection.outcome {
        Ok(chosen) => {
            let reason = selection.reasons.iter().find(|reason| reason.verdict == Verdict::Chosen);
            let device = reason.map_or_else(String::new, |reason| {
                format!("{} {}", reason.plugin, reason.device.as_deref().unwrap_or_default())
            });
            Check::new("backend", Level::Fine, format!("`--backend auto` takes {}: {}", device.trim(), chosen.why))
        }
        Err(error) => Check::failed("backend", "`--backend auto`", &Diagnostic::of(error)),
    });
    let notes = selection.notes.iter().map(|note| Check::new("backend", Level::Note, note.clone()));
    checks.extend(notes);
    checks
}

fn text(checks: &[Check], tests: &[selftest::Row], wrong: usize) -> String {
    let mut out = format!("strata {}\n", env!("CARGO_PKG_VERSION"));
    for check in checks {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<5} {}: {}", check.level.word(), check.topic, check.text);
        for detail in &check.details {
            let _ = writeln!(out, "        {detail}");
        }
        if let Some(to_do) = &check.to_do {
            let _ = writeln!(out, "      to do: {to_do}");
        }
    }
    out += &selftest::table(tests);
    let _ = match wrong {
        0 => writeln!(out, "nothing is wrong"),
        1 => writeln!(out, "1 thing is wrong"),
        _ => writeln!(out, "{wrong} things are wrong"),
    };
    out
}

/// A file that is there already is someone's: it is never written over.
fn write_new(path: &Path, text: &str) -> Result<(), Diagnostic> {
    use std::io::Write as _;
    let mut options = fs_err::OpenOptions::new();
    let file = options.write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Diagnostic::new(FILE_UNWRITABLE, error.to_string()).hint("name a file that is not there yet"))
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=1_048_575 => format!("{bytes} bytes"),
        1_048_576..=1_073_741_823 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
