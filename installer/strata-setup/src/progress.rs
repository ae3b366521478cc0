//! Progress of downloads and of the installation: bars on a terminal, a line now and then elsewhere,
//! or one JSON event a line. Also where a test ends the program at a named step.

use crate::cli::ProgressArg;
use crate::{env, interrupt, printer};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use strata_install::{Observer, Step, bytes};

/// Between two lines about the same work.
const EVERY: Duration = Duration::from_secs(5);
/// Names that fit beside a bar.
const NAME: usize = 40;

/// How it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Bars,
    Lines,
    Json,
    None,
}

/// Shows what is done; told from several threads.
#[derive(Debug)]
pub(crate) struct Progress {
    how: How,
    verbose: bool,
    bars: MultiProgress,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: Option<Total>,
    files: BTreeMap<String, Shown>,
    /// Of the installation: one bar for the step that is under way.
    step: Option<ProgressBar>,
    step_name: &'static str,
    step_said: Option<Instant>,
}

#[derive(Debug)]
struct Total {
    bar: ProgressBar,
    done: u64,
    of: u64,
    began: Instant,
    said: Instant,
}

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    done: u64,
    total: Option<u64>,
}

impl Progress {
    pub(crate) fn new(how: ProgressArg, verbose: bool) -> Progress {
        let how = match how {
            ProgressArg::Auto if printer::is_terminal() => How::Bars,
            ProgressArg::Auto | ProgressArg::Lines => How::Lines,
            ProgressArg::Bars => How::Bars,
            ProgressArg::Json => How::Json,
            ProgressArg::None => How::None,
        };
        let bars = MultiProgress::with_draw_target(match how {
            How::Bars => ProgressDrawTarget::stderr_with_hz(10),
            _ => ProgressDrawTarget::hidden(),
        });
        if how == How::Bars {
            printer::set_bars(bars.clone());
        }
        Progress { how, verbose, bars, state: Mutex::new(State::default()) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Downloads begin: `total` bytes in all, as far as known, of which `done` are there.
    pub(crate) fn downloads(&self, done: u64, total: u64) {
        let bar = self.bars.add(ProgressBar::new(total));
        bar.set_style(style("{prefix:40} {bar:24} {bytes:>11} of {total_bytes:<11} {bytes_per_sec:>13}  {eta} left"));
        bar.set_prefix("all files");
        bar.set_position(done);
        bar.reset_eta();
        let now = Instant::now();
        self.lock().total = Some(Total { bar, done, of: total, began: now, said: now });
        self.event(&json!({ "event": "downloads", "done": done, "total": total }));
    }

    /// A file begins, with what is there of it.
    pub(crate) fn file(&self, name: &str, done: u64, total: Option<u64>) {
        let bar = self.bars.insert(0, ProgressBar::new(total.unwrap_or(0)));
        bar.set_style(style("{prefix:40} {bar:24} {bytes:>11} of {total_bytes:<11} {bytes_per_sec:>13}  {eta} left"));
        bar.set_prefix(short(name));
        bar.set_position(done);
        bar.reset_eta();
        self.lock().files.insert(name.to_owned(), Shown { bar, done, total });
        self.event(&json!({ "event": "file", "file": name, "done": done, "total": total }));
        if self.how == How::Lines {
            let of = total.map(|total| format!(" of {}", bytes(total))).unwrap_or_default();
            let there = if done > 0 { format!(", {} are there", bytes(done)) } else { String::new() };
            printer::talk(&format!("fetching {name}{of}{there}"));
        }
    }

    /// `done` bytes of a file are there now.
    pub(crate) fn advance(&self, name: &str, done: u64) {
        let mut state = self.lock();
        let Some(shown) = state.files.get_mut(name) else { return };
        let before = std::mem::replace(&mut shown.done, done);
        shown.bar.set_position(done);
        let total_of_file = shown.total;
        let Some(total) = &mut state.total else { return };
        total.done = (total.done + done).saturating_sub(before);
        total.bar.set_position(total.done);
        if total.said.elapsed() >= EVERY {
            total.said = Instant::now();
            let seconds = total.began.elapsed().as_secs_f64().max(0.001);
            let line = total_line(name, total.done, total.of, seconds);
            let event = json!({
                "event": "progress", "file": name, "done": done, "total": total_of_file,
                "all_done": total.done, "all_total": total.of,
            });
            drop(state);
            if self.how == How::Lines {
                printer::talk(&line);
            }
            self.event(&event);
        }
    }

    /// A file is there and checked.
    pub(crate) fn file_done(&self, name: &str, size: u64) {
        if let Some(shown) = self.lock().files.remove(name) {
            shown.bar.finish_and_clear();
        }
        self.event(&json!({ "event": "file-done", "file": name, "size": size }));
        if self.how == How::Lines || self.verbose {
            printer::talk(&format!("{name}: {}, checked", bytes(size)));
        }
    }

    /// All downloads are over, well or not.
    pub(crate) fn downloads_over(&self) {
        let mut state = self.lock();
        for (_, shown) in std::mem::take(&mut state.files) {
            shown.bar.finish_and_clear();
        }
        if let Some(total) = state.total.take() {
            total.bar.finish_and_clear();
        }
    }

    /// Something that happened and was survived: a cut, a mirror that was dropped.
    pub(crate) fn trouble(&self, text: &str) {
        self.event(&json!({ "event": "note", "text": text }));
        if matches!(self.how, How::Bars | How::Lines) {
            printer::talk(&format!("note: {text}"));
        }
    }

    fn event(&self, event: &serde_json::Value) {
        if self.how == How::Json {
            printer::talk(&event.to_string());
        }
    }
}

fn total_line(name: &str, done: u64, total: u64, seconds: f64) -> String {
    // What was there before counts too little to matter after the first lines.
    let speed = done as f64 / seconds;
    let left = if speed > 0.0 { (total.saturating_sub(done)) as f64 / speed } else { 0.0 };
    format!("{name}: {} of {} in all, {}/s, about {} left", bytes(done), bytes(total), bytes(speed as u64), time(left))
}

fn time(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// The end of a long name says more than its beginning.
fn short(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME {
        name.to_owned()
    } else {
        format!("…{}", name.chars().skip(count - NAME + 1).collect::<String>())
    }
}

impl Observer for Progress {
    fn step(&self, step: Step) {
        self.event(&json!({ "event": "step", "step": step.name() }));
        if self.verbose && matches!(self.how, How::Bars | How::Lines) {
            printer::talk(&format!("step {}: {}", step.name(), step.text()));
        }
        self.lock().step_name = step.name();
        stop_at(step.name());
    }

    fn done(&self, step: Step) {
        if let Some(bar) = self.lock().step.take() {
            bar.finish_and_clear();
        }
        self.event(&json!({ "event": "step-done", "step": step.name() }));
        stop_at(&format!("{}+", step.name()));
    }

    fn bytes(&self, what: &str, done: u64, total: u64) {
        let mut state = self.lock();
        if self.how == How::Bars && state.step.is_none() {
            let bar = self.bars.add(ProgressBar::new(total));
            bar.set_style(style("{prefix:40} {bar:24} {bytes:>11} of {total_bytes:<11} {wide_msg}"));
            bar.set_prefix(state.step_name);
            state.step = Some(bar);
        }
        if let Some(bar) = &state.step {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(what.to_owned());
        }
        if self.how == How::Lines && total > 1 << 30 && state.step_said.is_none_or(|said| said.elapsed() >= EVERY) {
            state.step_said = Some(Instant::now());
            drop(state);
            printer::talk(&format!("{what}: {} of {}", bytes(done), bytes(total)));
        }
    }

    fn note(&self, text: &str) {
        if self.verbose || self.how == How::Json {
            self.trouble(text);
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::asked()
    }
}

/// Ends the program as `kill -9` does, if a test asked for it at this point.
fn stop_at(point: &str) {
    if env::stop_at().is_some_and(|asked| asked == point) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_bytes_speed_and_time() {
        let line = total_line("x.gguf", 1 << 30, 3 << 30, 64.0);
        assert_eq!(line, "x.gguf: 1.00 GiB of 3.00 GiB in all, 16.0 MiB/s, about 2 min left");
        assert_eq!(time(7300.0), "2 h 1 min");
        assert_eq!(short(&"x".repeat(60)).chars().count(), NAME);
    }
}
