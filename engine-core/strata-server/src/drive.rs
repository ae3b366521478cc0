//! Carries one HTTP request's answers from the room to its client: several choices at a time, taken
//! apart into reasoning, text and calls, as a stream of events or as a whole.
//!
//! It knows no interface: a [`Writer`] puts its steps into the words of one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use strata_diag::catalogue::serving::{NOT_READY, SERVER_FAULT};
use strata_engine::{FinishReason, Finished, Limits, SamplerSettings};
use tokio::sync::{mpsc, watch};

use crate::api_error::ApiError;
use crate::app::{App, Recent, Stage};
use crate::connection::RequestId;
use crate::output::{Expected, Part, Splitter};
use crate::room::{Ask, Choice, Event, Form, Reporter, Room};
use crate::sse::{ChannelBody, Sse};
use crate::wire::Wire;

/// How long the head of a stream waits for its first step: so long a failure still gets a status of
/// its own; after it, the client sees that the server works.
const FIRST_STEP: Duration = Duration::from_secs(2);
/// A stream in which nothing happens sends a comment this often, so that nothing between here and
/// the client takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The same for a client that may have gone.
const PROBE: Duration = Duration::from_millis(500);
/// Pieces of a response that may wait for a slow client before its task waits as well.
const AHEAD: usize = 16;

/// What every handler has at hand.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) app: Arc<App>,
    pub(crate) room: Arc<dyn Room>,
    pub(crate) id: RequestId,
    pub(crate) wire: Arc<Wire>,
    pub(crate) path: &'static str,
}

/// A request in the room's words.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Answers to each prompt.
    pub(crate) n: usize,
    pub(crate) sampling: SamplerSettings,
    pub(crate) limits: Limits,
    pub(crate) top_log_probabilities: usize,
    pub(crate) form: Option<Form>,
    pub(crate) expected: Expected,
    /// The answer ends after its first call.
    pub(crate) one_call: bool,
}

/// Why an answer ended, as all interfaces tell it apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    End,
    StopText(String),
    Length,
    Calls,
}

/// A step of an answer.
#[derive(Debug)]
pub(crate) enum Step {
    /// Parts, and the tokens that they are made of (when log-probabilities are wanted).
    Parts {
        index: usize,
        parts: Vec<Part>,
        tokens: Vec<Choice>,
    },
    Finished {
        index: usize,
        reason: Reason,
        finished: Box<Finished>,
    },
}

/// Tokens of a whole request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) prompt: u64,
    pub(crate) reused: u64,
    pub(crate) generated: u64,
    pub(crate) reasoning: u64,
}

/// One choice on its way.
#[expect(clippy::struct_excessive_bools, reason = "what was asked, where it is, how it ended: none excludes another")]
struct Sheet {
    splitter: Splitter,
    log_probabilities: bool,
    one_call: bool,
    tokens: Vec<Choice>,
    in_reasoning: bool,
    /// Ended here already; what the room still says is figures only.
    cut: bool,
    done: bool,
}

/// A request that is being answered. Dropped before its end, it counts as a client that went away.
pub(crate) struct Answering {
    context: Context,
    events: mpsc::UnboundedReceiver<(usize, Event)>,
    cancels: Vec<Arc<std::sync::atomic::AtomicBool>>,
    stage: watch::Receiver<Stage>,
    sheets: Vec<Sheet>,
    n: usize,
    started: Instant,
    first_token: Option<Instant>,
    totals: Totals,
    last: Option<Finished>,
    /// An end whose last text went out just now.
    ending: Option<(usize, Box<Finished>)>,
    over: bool,
}

/// Checks a request to its end and puts it into the queue; what is refused was not begun.
pub(crate) async fn begin(context: Context, asked: Asked) -> Result<Answering, ApiError> {
    for prompt in &asked.prompts {
        context.room.check(prompt, &asked.sampling)?;
    }
    let count = asked.prompts.len() * asked.n;
    let mut constraints = Vec::new();
    if let Some(form) = asked.form.clone() {
        let room = Arc::clone(&context.room);
        let hold = move || (0..count).map(|_| room.hold(&form)).collect::<Result<Vec<_>, _>>();
        constraints = blocking(hold).await??;
    }
    let places = context.app.places(&*context.room, count)?;
    let (sender, events) = mpsc::unbounded_channel();
    let mut sheets = Vec::with_capacity(count);
    let mut cancels = Vec::with_capacity(count);
    let mut totals = Totals::default();
    let prompts: Vec<Arc<[u32]>> = asked.prompts.iter().map(|prompt| Arc::from(prompt.as_slice())).collect();
    for (index, place) in places.into_iter().enumerate() {
        let prompt = &prompts[index / asked.n];
        if index % asked.n == 0 {
            totals.prompt += prompt.len() as u64;
        }
        let reporter = Reporter::new(index, sender.clone(), place);
        cancels.push(reporter.cancel());
        let seed = asked.sampling.seed.map(|seed| seed.wrapping_add((index % asked.n) as u64));
        context.room.submit(Ask {
            prompt: Arc::clone(prompt),
            sampling: SamplerSettings { seed, ..asked.sampling.clone() },
            limits: asked.limits.clone(),
            top_log_probabilities: asked.top_log_probabilities,
            constraint: constraints.pop(),
            reporter,
        });
        sheets.push(Sheet {
            splitter: Splitter::new(asked.expected.clone()),
            log_probabilities: asked.limits.log_probabilities,
            one_call: asked.one_call,
            tokens: Vec::new(),
            in_reasoning: asked.expected.in_reasoning,
            cut: false,
            done: false,
        });
    }
    Ok(Answering {
        stage: context.app.stage.subscribe(),
        context,
        events,
        cancels,
        sheets,
        n: asked.n,
        started: Instant::now(),
        first_token: None,
        totals,
        last: None,
        ending: None,
        over: false,
    })
}

/// Work that may take a while, off the threads that serve connections.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_FAULT, format!("a part of the server failed: {error}"))
    })
}

impl Sheet {
    fn piece(&mut self, text: &str, choice: Option<Choice>) -> Vec<Part> {
        if self.log_probabilities {
            self.tokens.extend(choice);
        }
        let parts = self.splitter.push(text);
        if let Some(last) = parts.last() {
            self.in_reasoning = matches!(last, Part::Reasoning(_));
        }
        parts
    }
}

impl Answering {
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// The figures of the answer that ended last.
    pub(crate) fn last(&self) -> Option<&Finished> {
        self.last.as_ref()
    }

    /// Answers that are made.
    pub(crate) fn choices(&self) -> usize {
        self.sheets.len()
    }

    /// What happens next; `None` after the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Step>, ApiError> {
        loop {
            if let Some((index, finished)) = self.ending.take() {
                return self.finished(index, finished);
            }
            if self.sheets.iter().all(|sheet| sheet.done) {
                self.end("200");
                return Ok(None);
            }
            let event = tokio::select! {
                event = self.events.recv() => Ok(event),
                () = ending(&mut self.stage) => Err(stopping()),
            };
            let event = event.map_err(|error| self.fail(error))?;
            let Some((index, event)) = event else {
                let message = "the model's thread ended before the answer";
                return Err(self.fail(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_FAULT, message)));
            };
            if let Some(step) = self.take(index, event)? {
                return Ok(Some(step));
            }
        }
    }

    fn take(&mut self, index: usize, event: Event) -> Result<Option<Step>, ApiError> {
        let Some(sheet) = self.sheets.get_mut(index) else { return Ok(None) };
        match event {
            Event::Started { reused } => {
                if index.is_multiple_of(self.n) {
                    self.totals.reused += reused;
                }
                Ok(None)
            }
            Event::Piece { .. } if sheet.cut => Ok(None),
            Event::Piece { text, choice } => {
                self.first_token.get_or_insert_with(Instant::now);
                if choice.is_some() {
                    self.totals.generated += 1;
                    self.totals.reasoning += u64::from(sheet.in_reasoning);
                }
                let parts = sheet.piece(&text, choice);
                if sheet.one_call && sheet.splitter.calls() > 0 {
                    sheet.cut = true;
                    self.cancels[index].store(true, std::sync::atomic::Ordering::SeqCst);
                }
                if parts.is_empty() {
                    return Ok(None);
                }
                let tokens = std::mem::take(&mut sheet.tokens);
                Ok(Some(Step::Parts { index, parts, tokens }))
            }
            Event::Done(finished) => self.finished(index, finished),
            // Ended here before the room said so.
            Event::Failed(_) if sheet.cut => self.finished(index, Box::new(cut_short())),
            Event::Failed(failure) => Err(self.fail((*failure).into())),
        }
    }

    fn finished(&mut self, index: usize, finished: Box<Finished>) -> Result<Option<Step>, ApiError> {
        let sheet = &mut self.sheets[index];
        if !sheet.done && !sheet.cut {
            // The last of the text comes first; the end itself is asked for again.
            let parts = sheet.splitter.finish();
            let tokens = std::mem::take(&mut sheet.tokens);
            sheet.cut = true;
            if !parts.is_empty() || !tokens.is_empty() {
                self.ending = Some((index, finished));
                return Ok(Some(Step::Parts { index, parts, tokens }));
            }
        }
        let sheet = &mut self.sheets[index];
        sheet.done = true;
        let reason = match &finished.reason {
            _ if sheet.splitter.calls() > 0 => Reason::Calls,
            FinishReason::End => Reason::End,
            FinishReason::StopText(text) => Reason::StopText(text.clone()),
            FinishReason::MaxTokens | FinishReason::ContextFull => Reason::Length,
            FinishReason::Cancelled => return Err(self.fail(stopping())),
        };
        self.last = Some((*finished).clone());
        Ok(Some(Step::Finished { index, reason, finished }))
    }

    /// The request is over, one way or the other.
    fn end(&mut self, outcome: &str) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let first_token_seconds = self.first_token.map(|at| (at - self.started).as_secs_f64());
        let stats = self.last.as_ref().map(|finished| finished.stats);
        let decode_rate = stats.and_then(|stats| stats.decode_rate());
        let prompt_rate = stats.and_then(|stats| stats.prompt_rate());
        let app = &self.context.app;
        app.metrics.answered(first_token_seconds, seconds, decode_rate.map(f64::recip));
        let Totals { prompt, reused, generated, .. } = self.totals;
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!(" at {rate:.1} tok/s"));
        let first = first_token_seconds.map_or_else(String::new, |first| format!(", first token after {first:.2} s"));
        let end = stats
            .map_or_else(String::new, |stats| format!("; context {} of {}", stats.end_context, stats.context_size));
        app.log(&format!(
            "{} {}: {outcome}; prompt {prompt} tokens ({reused} reused + {} new){}; generated {generated}{}{end}; \
             {seconds:.2} s{first}",
            self.context.id.0,
            self.context.path,
            prompt.saturating_sub(reused),
            rate(prompt_rate),
            rate(decode_rate),
        ));
        app.note(Recent {
            id: self.context.id.0.clone(),
            path: self.context.path,
            outcome: outcome.to_owned(),
            prompt,
            reused,
            generated,
            seconds,
            first_token_seconds,
            prompt_rate,
            decode_rate,
            ended: Instant::now(),
        });
    }

    fn fail(&mut self, error: ApiError) -> ApiError {
        self.end(&format!("{} {}", error.status.as_u16(), error.message()));
        self.events.close();
        error
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.over {
            self.context.app.metrics.client_gone();
            self.end("client closed");
        }
    }
}

/// Of an answer that was cut off here, when the room tells nothing of it.
fn cut_short() -> Finished {
    Finished {
        reason: FinishReason::Cancelled,
        text: String::new(),
        tokens: Vec::new(),
        seed: 0,
        stats: strata_engine::RequestStats::default(),
    }
}

/// Waits until everything that goes on has to end.
async fn ending(stage: &mut watch::Receiver<Stage>) {
    // A server that is gone altogether ends nothing more.
    if stage.wait_for(|stage| *stage == Stage::Ending).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn stopping() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, NOT_READY, "the server is stopping")
        .named("not_ready")
        .retry_after(5)
}

/// Puts steps into the words of an interface.
pub(crate) trait Writer: Send + 'static {
    fn begin(&mut self, answering: &Answering, out: &mut Sse);
    fn step(&mut self, step: Step, out: &mut Sse);
    fn end(&mut self, answering: &Answering, out: &mut Sse);
    fn failed(&mut self, error: &ApiError, out: &mut Sse);
}

/// Streams the answers as they come.
pub(crate) async fn stream(mut answering: Answering, mut writer: impl Writer) -> Result<Response<Body>, ApiError> {
    let mut out = Sse::default();
    let first = tokio::time::timeout(FIRST_STEP, answering.next()).await;
    let mut is_over = false;
    match first {
        Ok(result) => {
            let step = result?;
            writer.begin(&answering, &mut out);
            is_over = put(step, &mut answering, &mut writer, &mut out);
        }
        Err(_) => writer.begin(&answering, &mut out),
    }
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut last_sent = Instant::now();
        loop {
            if !out.is_empty() {
                if sender.send(out.take()).await.is_err() {
                    return;
                }
                last_sent = Instant::now();
            }
            if is_over {
                return;
            }
            tokio::select! {
                step = answering.next() => match step {
                    Ok(step) => is_over = put(step, &mut answering, &mut writer, &mut out),
                    Err(error) => {
                        writer.failed(&error, &mut out);
                        is_over = true;
                    }
                },
                () = sender.closed() => return,
                () = tokio::time::sleep(PROBE) => {
                    let pause = if answering.context.wire.is_half_closed() { PROBE } else { KEEP_ALIVE };
                    if last_sent.elapsed() >= pause {
                        out.comment();
                    }
                }
            }
        }
    });
    let mut response = Response::new(Body::new(ChannelBody::new(receiver)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some gateways collect responses unless they are told.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Writes a step; whether it was the last.
fn put(step: Option<Step>, answering: &mut Answering, writer: &mut impl Writer, out: &mut Sse) -> bool {
    let Some(step) = step else {
        writer.end(answering, out);
        return true;
    };
    writer.step(step, out);
    false
}

/// A tool call of a whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WholeCall {
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// A whole answer.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<WholeCall>,
    pub(crate) tokens: Vec<Choice>,
    pub(crate) end: Option<(Reason, Box<Finished>)>,
}

/// Waits for all answers.
pub(crate) async fn collect(answering: &mut Answering) -> Result<Vec<Whole>, ApiError> {
    let mut wholes: Vec<Whole> = answering.sheets.iter().map(|_| Whole::default()).collect();
    while let Some(step) = answering.next().await? {
        match step {
            Step::Parts { index, parts, tokens } => {
                let whole = &mut wholes[index];
                whole.tokens.extend(tokens);
                for part in parts {
                    match part {
                        Part::Reasoning(text) => whole.reasoning.push_str(&text),
                        Part::Text(text) => whole.text.push_str(&text),
                        Part::Call { name } => whole.calls.push(WholeCall { name, arguments: String::new() }),
                        Part::Arguments(text) => {
                            if let Some(call) = whole.calls.last_mut() {
                                call.arguments.push_str(&text);
                            }
                        }
                        Part::CallEnd => {}
                    }
                }
            }
            Step::Finished { index, reason, finished } => wholes[index].end = Some((reason, finished)),
        }
    }
    Ok(wholes)
}
