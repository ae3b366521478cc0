//! Figures for Prometheus, in its text form.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;

use crate::app::{App, Phase};

/// Upper bounds, seconds.
const FIRST_TOKEN: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
const WHOLE: &[f64] = &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const PER_TOKEN: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// Paths that have a line of their own; all others share one, so that nobody can make up many.
const PATHS: &[&str] = &[
    "/health",
    "/metrics",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/v1/responses",
    "/v1/status",
];

#[derive(Debug, Default)]
struct Histogram {
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn add(&mut self, bounds: &[f64], value: f64) {
        self.counts.resize(bounds.len(), 0);
        for (count, bound) in self.counts.iter_mut().zip(bounds) {
            *count += u64::from(value <= *bound);
        }
        self.sum += value;
        self.count += 1;
    }

    fn write(&self, text: &mut String, name: &str, help: &str, bounds: &[f64]) {
        head(text, name, help, "histogram");
        for (index, bound) in bounds.iter().enumerate() {
            line(
                text,
                &format!("{name}_bucket{{le=\"{bound}\"}}"),
                self.counts.get(index).copied().unwrap_or(0) as f64,
            );
        }
        line(text, &format!("{name}_bucket{{le=\"+Inf\"}}"), self.count as f64);
        line(text, &format!("{name}_sum"), self.sum);
        line(text, &format!("{name}_count"), self.count as f64);
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, value: f64) {
    let _ = writeln!(text, "{name} {value}");
}

fn single(text: &mut String, name: &str, help: &str, kind: &str, value: f64) {
    head(text, name, help, kind);
    line(text, name, value);
}

#[derive(Debug, Default)]
struct Counters {
    responses: BTreeMap<(&'static str, u16), u64>,
    gone: u64,
    first_token: Histogram,
    whole: Histogram,
    per_token: Histogram,
}

/// What is counted over requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counters: Mutex<Counters>,
}

impl Metrics {
    fn with<T>(&self, work: impl FnOnce(&mut Counters) -> T) -> T {
        work(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn responded(&self, path: &str, status: StatusCode) {
        let path = PATHS.iter().find(|known| **known == path).copied().unwrap_or("other");
        self.with(|counters| *counters.responses.entry((path, status.as_u16())).or_default() += 1);
    }

    pub(crate) fn client_gone(&self) {
        self.with(|counters| counters.gone += 1);
    }

    /// A request that was answered: seconds to its first token, in all, and for each token of decoding.
    pub(crate) fn answered(&self, first_token: Option<f64>, whole: f64, per_token: Option<f64>) {
        self.with(|counters| {
            if let Some(seconds) = first_token {
                counters.first_token.add(FIRST_TOKEN, seconds);
            }
            counters.whole.add(WHOLE, whole);
            if let Some(seconds) = per_token {
                counters.per_token.add(PER_TOKEN, seconds);
            }
        });
    }
}

/// Bytes of memory of this process that are its own, and all that is mapped in.
pub(crate) fn resident_bytes() -> Option<(u64, u64)> {
    let text = fs_err::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
    };
    Some((field("RssAnon:")?, field("VmRSS:")?))
}

/// All figures.
pub(crate) fn text(app: &App) -> String {
    let mut text = String::new();
    let out = &mut text;
    let phase = app.phase();
    let ready = f64::from(u8::from(matches!(phase, Phase::Ready(_))));
    single(out, "strata_ready", "1 when requests are answered", "gauge", ready);
    single(out, "strata_uptime_seconds", "Seconds since the start", "gauge", app.uptime().as_secs_f64());
    if let Some((own, all)) = resident_bytes() {
        single(out, "strata_memory_own_bytes", "Memory of the process without mapped files", "gauge", own as f64);
        single(out, "process_resident_memory_bytes", "Memory of the process", "gauge", all as f64);
    }
    if let Phase::Ready(room) = phase {
        of_room(out, &*room);
    }
    app.metrics.with(|counters| {
        head(out, "strata_http_responses_total", "Responses by path and status", "counter");
        for ((path, status), count) in &counters.responses {
            line(out, &format!("strata_http_responses_total{{path=\"{path}\",status=\"{status}\"}}"), *count as f64);
        }
        let help = "Requests whose client went away before the end";
        single(out, "strata_clients_gone_total", help, "counter", counters.gone as f64);
        counters.first_token.write(
            out,
            "strata_first_token_seconds",
            "From the request to its first token",
            FIRST_TOKEN,
        );
        counters.whole.write(out, "strata_request_seconds", "From the request to the end of its answer", WHOLE);
        counters.per_token.write(out, "strata_token_seconds", "Seconds for each token after the first", PER_TOKEN);
    });
    text
}

fn of_room(out: &mut String, room: &dyn crate::room::Room) {
    let figures = room.figures();
    let counters: [(&str, &str, f64); 8] = [
        ("strata_steps_total", "Steps of the model", figures.steps as f64),
        ("strata_step_seconds_total", "Seconds in steps of the model", figures.step_seconds),
        ("strata_prompt_tokens_total", "Prompt tokens evaluated", figures.prompt_tokens as f64),
        ("strata_reused_tokens_total", "Prompt tokens found in the cache", figures.reused_tokens as f64),
        ("strata_generated_tokens_total", "Tokens of answers", figures.generated_tokens as f64),
        ("strata_answers_finished_total", "Answers that came to their end", figures.finished as f64),
        ("strata_answers_cancelled_total", "Answers that nobody wanted any more", figures.cancelled as f64),
        ("strata_answers_failed_total", "Answers that failed", figures.failed as f64),
    ];
    for (name, help, value) in counters {
        single(out, name, help, "counter", value);
    }
    let cache = figures.cache;
    let gauges: [(&str, &str, f64); 6] = [
        ("strata_slots", "Answers that can be made at one time", room.facts().slots as f64),
        ("strata_requests_active", "Requests that have a slot", figures.active.len() as f64),
        ("strata_requests_waiting", "Requests that wait for a slot", figures.waiting as f64),
        ("strata_cache_pages", "Pages of the KV cache", cache.pages as f64),
        ("strata_cache_pages_in_use", "Pages of the KV cache that hold something", cache.pages_in_use as f64),
        ("strata_conversation_cache_bytes", "Host memory that keeps prefixes", cache.conversation_bytes as f64),
    ];
    for (name, help, value) in gauges {
        single(out, name, help, "gauge", value);
    }
}
