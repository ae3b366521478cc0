//! `strata verify-package`: the verifier is strata-package's; here are flags, what is printed, and
//! the exit status.

use crate::cli::VerifyPackageArgs;
use crate::outcome::{Outcome, Stop};
use crate::printer;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use strata_diag::catalogue::general::FILE_UNREADABLE;
use strata_diag::catalogue::packages::{FILE_MISSING, NOTHING_CHECKED, SUM_DIFFERS, SUM_UNREAD};
use strata_diag::catalogue::{self};
use strata_diag::{Code, Diagnostic, ExitStatus};
use strata_manifest::verify_report::{FindingCount, VerifiedComponent, VerifiedTarget, VerifyFinding, VerifyReport};
use strata_manifest::{Document, TrustRoot, UtcTime};
use strata_package::PackageError;
use strata_package::sign;
use strata_package::sums::{self, SumResult};
use strata_package::verify::{Bits, Progress, Report, TrustAnchor, VerifyOptions, verify, verify_stream};

/// Findings of one code that are shown one by one.
const SHOWN: usize = 8;

pub(crate) fn run(args: &VerifyPackageArgs) -> Outcome {
    let (targets, mut failures) = match &args.sums {
        Some(list) => (vec![against_sums(list, &args.paths)?], Vec::new()),
        None => verified(args)?,
    };
    // What could not be looked at comes last, and does not keep the rest from being told.
    let last = failures.pop();
    if targets.is_empty()
        && let Some(failure) = last
    {
        return Err(told(&failures, failure));
    }
    let bits = targets.iter().fold(0, |bits, target| bits | target.bits);
    if args.json {
        printer::document(&VerifyReport { schema: "strata-verify/1.0", targets, bits })?;
    } else {
        for target in &targets {
            printer::data(&text_of(target, args.quiet))?;
        }
    }
    last.map_or(Ok(ExitStatus::Verdict(bits)), |failure| Err(told(&failures, failure)))
}

/// Tells all failures but the last, which ends the command.
fn told(failures: &[PackageError], last: PackageError) -> Stop {
    for failure in failures {
        printer::talk(&Diagnostic::of(failure).to_text());
    }
    last.into()
}

fn verified(args: &VerifyPackageArgs) -> Outcome<(Vec<VerifiedTarget>, Vec<PackageError>)> {
    let options = VerifyOptions {
        trust: args.key.as_deref().map(anchor).transpose()?,
        unsigned: args.no_signature,
        build_paths: args.allow_build_paths,
        run: args.run,
        threads: args.threads,
        lowest_serial: args.lowest_serial,
        reencode_bytes: if args.canonical { u64::MAX } else { 256 << 20 },
        ..VerifyOptions::at(UtcTime::now())
    };
    let (mut targets, mut failures) = (Vec::new(), Vec::new());
    for path in &args.paths {
        let bar = Bar::new(path, args.quiet || args.json);
        let report = if path.as_os_str() == "-" {
            verify_stream(std::io::stdin().lock(), &options, &bar)
        } else {
            verify(path, &options, &bar)
        };
        bar.end();
        match report {
            Ok(report) => targets.push(target_of(report)),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((targets, failures))
}

/// A trust root begins with a brace, a minisign key with its comment.
fn anchor(path: &Path) -> Result<TrustAnchor, Diagnostic> {
    let text = fs_err::read_to_string(path).map_err(|error| Diagnostic::new(FILE_UNREADABLE, error.to_string()))?;
    let refused = |error: &dyn strata_diag::Diagnose| Diagnostic::of(error);
    if text.trim_start().starts_with('{') {
        return TrustRoot::parse(&text, path).map(TrustAnchor::Root).map_err(|error| refused(&error));
    }
    sign::read_public(path).map(TrustAnchor::Key).map_err(|error| refused(&error))
}

fn target_of(report: Report) -> VerifiedTarget {
    let findings = report.findings.into_iter().map(|finding| VerifyFinding {
        code: finding.code.id,
        name: finding.code.name,
        path: finding.path,
        message: finding.message,
        facts: finding.facts.into_iter().collect(),
        looks_like: finding.looks_like,
    });
    VerifiedTarget {
        path: report.target.display().to_string(),
        kind: report.kind,
        bits: report.bits.0,
        components: report
            .components
            .iter()
            .map(|component| VerifiedComponent { id: component.id(), version: component.version.to_string() })
            .collect(),
        files: report.files,
        bytes: report.bytes,
        findings: findings.collect(),
        counts: report
            .counts
            .into_iter()
            .map(|(code, count)| (code, FindingCount { findings: count.findings, bytes: count.bytes }))
            .collect(),
        notes: report.notes,
    }
}

/// `--sums`: other people's files, checked as far as a list goes.
fn against_sums(list: &Path, files: &[PathBuf]) -> Outcome<VerifiedTarget> {
    let unreadable = |error: std::io::Error| Diagnostic::new(FILE_UNREADABLE, error.to_string());
    let sums = sums::read(list).map_err(unreadable)?;
    let folder = list.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let checks = sums::check(&sums, folder, files);
    let mut target = VerifiedTarget {
        path: list.display().to_string(),
        kind: "list of sums",
        bits: 0,
        components: Vec::new(),
        files: 0,
        bytes: 0,
        findings: Vec::new(),
        counts: BTreeMap::new(),
        notes: sums.notes.iter().map(|note| (*note).to_owned()).collect(),
    };
    target.notes.push("only contents were compared: who made the list was not checked".to_owned());
    for line in &sums.unreadable {
        add(&mut target, SUM_UNREAD, None, format!("line {} of the list: {}", line.line, line.why.text()), &[]);
    }
    for check in &checks {
        let path = check.path.display().to_string();
        let expected = check.expected.map(|digest| digest.to_string()).unwrap_or_default();
        match &check.result {
            SumResult::Verified => {
                target.files += 1;
                target.bytes += fs_err::metadata(&check.path).map(|metadata| metadata.len()).unwrap_or_default();
            }
            SumResult::Differs { found } => {
                let facts = [("expected", expected), ("got", found.to_string())];
                add(&mut target, SUM_DIFFERS, Some(path), "its SHA-256 is not the listed one".to_owned(), &facts);
            }
            SumResult::Absent => {
                add(&mut target, FILE_MISSING, Some(path), "it is listed and not there".to_owned(), &[]);
            }
            SumResult::NotListed => {
                add(&mut target, NOTHING_CHECKED, Some(path), "the list does not name it".to_owned(), &[]);
            }
            SumResult::LeadsOutside => {
                let message = "its name leads out of the list's folder: it was not looked at";
                add(&mut target, SUM_UNREAD, Some(path), message.to_owned(), &[]);
            }
            SumResult::Unreadable { because } => {
                let facts = [("because", because.clone())];
                add(&mut target, NOTHING_CHECKED, Some(path), "it cannot be read".to_owned(), &facts);
            }
        }
    }
    if checks.is_empty() {
        add(&mut target, NOTHING_CHECKED, None, "the list names no file".to_owned(), &[]);
    }
    Ok(target)
}

fn add(
    target: &mut VerifiedTarget,
    code: &'static Code,
    path: Option<String>,
    message: String,
    facts: &[(&'static str, String)],
) {
    target.bits |= Bits::of(code).0;
    let count = target.counts.entry(code.id).or_insert(FindingCount { findings: 0, bytes: 0 });
    count.findings += 1;
    let facts = facts.iter().cloned().collect();
    target.findings.push(VerifyFinding { code: code.id, name: code.name, path, message, facts, looks_like: None });
}

/// One block: the verdict, then the findings by code, the first of each with its facts.
fn text_of(target: &VerifiedTarget, quiet: bool) -> String {
    let mut text = String::new();
    let verdict = verdict(target.bits);
    let components: Vec<String> =
        target.components.iter().map(|component| format!("{} {}", component.id, component.version)).collect();
    if !quiet || target.bits != 0 {
        let _ = writeln!(text, "{}: {verdict} ({})", target.path, target.kind);
    }
    if !quiet {
        if !components.is_empty() {
            let _ = writeln!(text, "  holds: {}", components.join(", "));
        }
        let _ = writeln!(text, "  checked: {} files, {}", target.files, size(target.bytes));
    }
    let mut codes: Vec<&str> = Vec::new();
    for finding in &target.findings {
        if !codes.contains(&finding.code) {
            codes.push(finding.code);
        }
    }
    for code in codes {
        group(&mut text, target, code);
    }
    if !quiet {
        for note in &target.notes {
            let _ = writeln!(text, "  note: {note}");
        }
    }
    text
}

fn group(text: &mut String, target: &VerifiedTarget, id: &str) {
    let (title, name) = catalogue::find(id).map_or(("", ""), |code| (code.title, code.name));
    let all = target.counts.get(id).map_or(0, |count| count.findings);
    let bytes = target.counts.get(id).map_or(0, |count| count.bytes);
    let mut head = format!("error[{id}]: {title}");
    if all > 1 {
        let _ = write!(head, ": {all} times");
    }
    if bytes > 0 {
        let _ = write!(head, ", {}", size(bytes));
    }
    let _ = writeln!(text, "{head}");
    let mut looks: BTreeMap<&str, u64> = BTreeMap::new();
    let of_code = || target.findings.iter().filter(|finding| finding.code == id);
    for finding in of_code() {
        if let Some(looks_like) = finding.looks_like {
            *looks.entry(looks_like).or_default() += 1;
        }
    }
    for finding in of_code().take(SHOWN) {
        let place = finding.path.as_deref().map(|path| format!("`{path}`: ")).unwrap_or_default();
        let _ = writeln!(text, "  {place}{}", finding.message);
        for (name, value) in finding.facts.iter().filter(|(name, _)| **name != "bytes") {
            let _ = writeln!(text, "      {name}: {value}");
        }
    }
    if all > SHOWN as u64 {
        let _ = writeln!(text, "  and {} more (`--json` lists up to 5000)", all - SHOWN as u64);
    }
    for (looks_like, count) in looks {
        let _ = writeln!(
            text,
            "  {count} of them look like {looks_like}: a leftover of the GPU compiler, which no program reads"
        );
    }
    let _ = writeln!(text, "  what to do: `strata explain {name}`");
}

fn verdict(bits: u8) -> String {
    let words = [(1, "DAMAGED"), (2, "UNTRUSTED"), (4, "INCOMPATIBLE"), (8, "NOT CHECKABLE")];
    let found: Vec<&str> = words.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| *word).collect();
    if found.is_empty() { "verified".to_owned() } else { found.join(", ") }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=10_485_759 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A line on a terminal that says how far the work is, for packages that take a while.
struct Bar {
    name: String,
    shown: bool,
    /// The percentage that was printed last, plus one.
    last: AtomicU64,
}

impl Bar {
    fn new(path: &Path, silent: bool) -> Bar {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Bar { name, shown: !silent && std::io::stderr().is_terminal(), last: AtomicU64::new(0) }
    }

    fn end(&self) {
        if self.shown && self.last.load(Ordering::Relaxed) > 0 {
            printer::status("\r\x1b[K");
        }
    }
}

impl Progress for Bar {
    fn bytes(&self, done: u64, total: u64) {
        // Below a quarter of a second nobody needs a bar.
        if !self.shown || total < 256 << 20 {
            return;
        }
        let percent = (done.min(total) as f64 / total as f64 * 100.0) as u64;
        if self.last.swap(percent + 1, Ordering::Relaxed) != percent + 1 {
            printer::status(&format!("\rverifying {}: {percent} %", self.name));
        }
    }
}
