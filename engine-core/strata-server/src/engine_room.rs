//! The room of a real model: a thread that owns the scheduler of an engine and does one step after
//! another while anybody wants an answer.
//!
//! Requests come to it through a channel; what becomes of them goes straight to their clients.
//! Templates and tokens are worked on by whoever asks, not by this thread.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use serde_json::{Map, Value, json};
use strata_diag::catalogue::serving::{NOT_READY, SERVER_FAULT, UNSUPPORTED};
use strata_diag::{Diagnose, Diagnostic};
use strata_engine::{
    BatchFigures, BatchPiece, BatchRequest, Constraint, Engine, EngineError, Finished, Grammars, Rule, SamplerSettings,
    Scheduler, SchedulerOptions, Sink, check_request,
};
use strata_model::TextError;
use strata_model::chat::{ChatTemplate, RenderOptions};
use strata_model::gguf::Gguf;
use strata_model::tokenizer::{TokenKind, Tokenizer};
use strata_plugin_host::abi::StrataStatus;

use crate::output::{LISTED, PYTHON};
use crate::room::{
    ActiveRequest, Ask, CacheUse, Chat, Choice, Event, Facts, Failure, FailureKind, Figures, Form, Rendered, Reporter,
    Room, ToolForm, Trouble,
};

/// Bytes of a prompt's end that may begin the answer.
const TAIL: usize = 64;
/// Tokens that the vocabulary calls control tokens, though they say how a call is written.
const MARKS: &[&str] = &[LISTED, PYTHON, "[ARGS]", "<tool_call>", "</tool_call>", "<think>", "</think>"];

/// A failure of longer ago says nothing of now.
const LATELY: std::time::Duration = std::time::Duration::from_secs(300);

/// What the program knows of a loaded model.
#[derive(Debug)]
pub struct EngineRoomOptions {
    /// The name that clients see.
    pub model: String,
    /// Seconds since 1970: when the model's file was made.
    pub created: u64,
    /// How tokens are chosen when a request says nothing.
    pub sampling: SamplerSettings,
    /// Host memory for earlier conversations' keys and values, bytes.
    pub conversation_bytes: u64,
    /// Backend, settings and memory, as `/v1/status` shows them.
    pub about: Map<String, Value>,
}

/// A loaded model that answers.
#[derive(Debug)]
pub struct EngineRoom {
    facts: Facts,
    engine: Engine,
    gguf: Arc<Gguf>,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    asks: Mutex<Option<mpsc::Sender<Box<Ask>>>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Made when it is first needed, or soon after the start.
    grammars: Arc<OnceLock<Result<Grammars, EngineError>>>,
}

/// What the thread and everybody else look at.
#[derive(Debug, Default)]
struct Shared {
    figures: Mutex<BatchFigures>,
    closing: AtomicBool,
    /// The model's file is not what it was.
    changed: Mutex<Option<String>>,
    last_failure: Mutex<Option<(std::time::Instant, String)>>,
}

impl EngineRoom {
    /// Begins to answer. The room takes all sequences of the engine.
    pub fn start(
        engine: Engine,
        gguf: Arc<Gguf>,
        tokenizer: Tokenizer,
        options: EngineRoomOptions,
    ) -> Result<EngineRoom, Diagnostic> {
        let template = match ChatTemplate::from_gguf(&gguf, &tokenizer) {
            Ok(template) => Some(template),
            Err(TextError::NoChatTemplate { .. }) => None,
            Err(error) => return Err(Diagnostic::of(&error)),
        };
        let tokenizer = Arc::new(tokenizer);
        let scheduler = SchedulerOptions {
            conversation_bytes: options.conversation_bytes,
            // The server counts who waits, before it takes a request.
            max_waiting: usize::MAX / 2,
        };
        let scheduler = Scheduler::new(&engine, Arc::clone(&tokenizer), &scheduler).map_err(|e| Diagnostic::of(&e))?;
        let hyper = engine.hyperparameters();
        let facts = Facts {
            model: options.model,
            created: options.created,
            context: engine.context(),
            trained_context: hyper.n_context,
            vocabulary: hyper.n_vocab,
            parameters: Some(parameters(&gguf)),
            slots: scheduler.figures().slots,
            template: template.as_ref().map(|template| template.source().to_owned()),
            embeds: false,
            sampling: options.sampling,
            about: options.about,
        };
        let shared: Arc<Shared> = Arc::default();
        let (sender, receiver) = mpsc::channel();
        let worker = Worker {
            scheduler,
            shared: Arc::clone(&shared),
            gguf: Arc::clone(&gguf),
            tokenizer: Arc::clone(&tokenizer),
        };
        let thread = std::thread::Builder::new().name("strata-model".to_owned()).spawn(move || worker.run(&receiver));
        let thread = thread.map_err(|error| {
            Diagnostic::new(SERVER_FAULT, "the system gives no thread for the model").fact("because", error)
        })?;
        let grammars: Arc<OnceLock<Result<Grammars, EngineError>>> = Arc::default();
        let (warmed, with) = (Arc::clone(&grammars), Arc::clone(&tokenizer));
        // Takes a second for a large vocabulary, which no request shall wait for.
        let warm = std::thread::Builder::new().name("strata-grammar".to_owned()).spawn(move || {
            warmed.get_or_init(|| Grammars::new(&with));
        });
        // Without that thread the first request waits after all.
        drop(warm);
        Ok(EngineRoom {
            facts,
            engine,
            gguf,
            tokenizer,
            template,
            asks: Mutex::new(Some(sender)),
            shared,
            thread: Mutex::new(Some(thread)),
            grammars,
        })
    }
}

fn parameters(gguf: &Gguf) -> u64 {
    gguf.tensors().iter().map(strata_model::gguf::TensorInfo::elements).fold(0, u64::saturating_add)
}

/// A grammar of calls of these tools. Marks that are single control tokens of the vocabulary are
/// named as such, since no text spells them.
fn tool_grammar(tools: &[ToolForm], tokenizer: &Tokenizer) -> String {
    let quoted = |text: &str| if text.is_empty() { String::new() } else { Value::from(text).to_string() };
    let control = |mark: &str| {
        let id = tokenizer.token_id(mark)?;
        (tokenizer.token_kind(id) == Some(TokenKind::Control)).then(|| format!("<[{id}]>"))
    };
    let text = |text: &str| {
        let mark = MARKS.iter().find_map(|mark| Some((text.find(mark)?, mark.len(), control(mark)?)));
        match mark {
            Some((at, length, token)) => format!("{} {token} {}", quoted(&text[..at]), quoted(&text[at + length..])),
            None => quoted(text),
        }
    };
    let names: Vec<String> = (0..tools.len()).map(|index| format!("call{index}")).collect();
    let mut grammar = format!("start: {}\n", names.join(" | "));
    for (index, tool) in tools.iter().enumerate() {
        let mut schema = tool.schema.clone();
        if let Value::Object(fields) = &mut schema {
            // Options belong to this program, not to whoever sends a schema.
            fields.insert("x-guidance".to_owned(), json!({ "whitespace_pattern": "[ \\t\\n\\r]{0,40}" }));
        }
        // Writing to a String cannot fail.
        let _ = write!(
            grammar,
            "call{index}: {} arguments{index} {}\narguments{index}: %json {schema}\n",
            text(&tool.before),
            text(&tool.after)
        );
    }
    grammar
}

/// The thread that computes.
struct Worker {
    scheduler: Scheduler,
    shared: Arc<Shared>,
    gguf: Arc<Gguf>,
    tokenizer: Arc<Tokenizer>,
}

impl Worker {
    fn run(mut self, asks: &mpsc::Receiver<Box<Ask>>) {
        loop {
            if self.scheduler.is_idle() {
                match asks.recv() {
                    Ok(ask) => self.take(*ask),
                    Err(_) => break,
                }
            }
            while let Ok(ask) = asks.try_recv() {
                self.take(*ask);
            }
            if self.shared.closing.load(Ordering::SeqCst) {
                break;
            }
            self.scheduler.step();
            *lock(&self.shared.figures) = self.scheduler.figures();
        }
        self.scheduler.cancel_all();
        *lock(&self.shared.figures) = self.scheduler.figures();
    }

    fn take(&mut self, ask: Ask) {
        let Ask { prompt, sampling, limits, top_log_probabilities, constraint, reporter } = ask;
        let reporter = Arc::new(reporter);
        let sink = RoomSink {
            reporter: Arc::clone(&reporter),
            shared: Arc::clone(&self.shared),
            gguf: Arc::clone(&self.gguf),
            tokenizer: Arc::clone(&self.tokenizer),
        };
        let request = BatchRequest {
            prompt: prompt.to_vec(),
            sampling,
            limits,
            top_log_probabilities,
            constraint,
            sink: Box::new(sink),
        };
        if let Err(error) = self.scheduler.submit(request) {
            reporter.tell(Event::Failed(Box::new(failure(&error))));
        }
    }
}

/// Passes on what the scheduler says of a request.
struct RoomSink {
    reporter: Arc<Reporter>,
    shared: Arc<Shared>,
    gguf: Arc<Gguf>,
    tokenizer: Arc<Tokenizer>,
}

impl RoomSink {
    /// The text of a mark that the decoder does not show.
    fn mark(&self, token: u32) -> Option<&str> {
        let is_control = self.tokenizer.token_kind(token) == Some(TokenKind::Control);
        let text = self.tokenizer.token_text(token).filter(|text| MARKS.contains(text));
        if is_control { text } else { None }
    }
}

impl Sink for RoomSink {
    fn started(&mut self, reused: u64) {
        self.reporter.tell(Event::Started { reused });
    }

    fn piece(&mut self, piece: &BatchPiece<'_>) -> ControlFlow<()> {
        let mut text = piece.text.to_owned();
        if let Some(mark) = piece.token.and_then(|token| self.mark(token)) {
            text.push_str(mark);
        }
        let choice =
            piece.token.map(|token| Choice { token, log_probability: piece.log_probability, top: piece.top.to_vec() });
        self.reporter.tell(Event::Piece { text, choice });
        if self.reporter.is_gone() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_gone(&self) -> bool {
        self.reporter.is_gone()
    }

    fn done(self: Box<Self>, result: Result<Finished, EngineError>) {
        // What was evaluated may lie in a file's missing end: say so instead of answering with zeros.
        let result = match self.gguf.check_unchanged() {
            Ok(()) => result,
            Err(error) => {
                *lock(&self.shared.changed) = Some(error.to_string());
                Err(error.into())
            }
        };
        self.reporter.tell(match result {
            Ok(finished) => Event::Done(Box::new(finished)),
            Err(error) => {
                let failure = failure(&error);
                if matches!(failure.kind, FailureKind::Internal | FailureKind::OutOfMemory) {
                    let line = format!("a request failed: {}", failure.diagnostic.message);
                    *lock(&self.shared.last_failure) = Some((std::time::Instant::now(), line));
                }
                Event::Failed(Box::new(failure))
            }
        });
    }
}

/// Whose fault an error of the engine is.
fn failure(error: &EngineError) -> Failure {
    let kind = match error {
        EngineError::Step(inner) => return failure(inner),
        EngineError::Cancelled => {
            return Failure::new(FailureKind::Stopping, Diagnostic::new(NOT_READY, "the server is stopping"));
        }
        EngineError::ContextExceeded { tokens, context } => FailureKind::TooLong { prompt: *tokens, context: *context },
        EngineError::EmptyPrompt | EngineError::UnknownToken { .. } | EngineError::BadSampling { .. } => {
            FailureKind::Refused { param: None }
        }
        EngineError::Plugin(plugin) if plugin.status() == Some(StrataStatus::OutOfMemory) => {
            return Failure::new(FailureKind::OutOfMemory, Diagnostic::of(plugin));
        }
        _ => FailureKind::Internal,
    };
    Failure::new(kind, Diagnostic::of(error))
}

fn refused(error: &dyn Diagnose, param: &'static str) -> Failure {
    Failure::new(FailureKind::Refused { param: Some(param) }, Diagnostic::of(error))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Room for EngineRoom {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn render(&self, chat: &Chat) -> Result<Rendered, Failure> {
        let Some(template) = &self.template else {
            let error = TextError::NoChatTemplate { name: None, present: Vec::new() };
            let mut failure = refused(&error, "messages");
            failure.diagnostic.hints.push("`/v1/completions` continues plain text".to_owned());
            return Err(failure);
        };
        let mut options = RenderOptions::answer();
        options.extra.clone_from(&chat.variables);
        let text = template.render(&chat.messages, chat.tools.as_ref(), &options);
        let text = text.map_err(|error| refused(&error, "messages"))?;
        let from = text.len().saturating_sub(TAIL);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        Ok(Rendered { tokens: self.tokenizer.encode_rendered(&text), tail: text[from..].to_owned() })
    }

    fn tokenize(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text, true, true)
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        self.tokenizer.piece_bytes(token).map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn check(&self, prompt: &[u32], sampling: &SamplerSettings) -> Result<(), Failure> {
        check_request(&self.engine, prompt, sampling).map_err(|error| failure(&error))
    }

    fn hold(&self, form: &Form) -> Result<Box<dyn Constraint>, Failure> {
        let grammars = self.grammars.get_or_init(|| Grammars::new(&self.tokenizer));
        let param = if matches!(form, Form::Tools(_)) { "tools" } else { "response_format" };
        let refused = |error: &EngineError| refused(error, param);
        let grammars = grammars.as_ref().map_err(refused)?;
        let rule = match form {
            Form::Json => Rule::JsonObject,
            Form::Schema(schema) => Rule::JsonSchema(schema.clone()),
            Form::Tools(tools) => Rule::Grammar(tool_grammar(tools, &self.tokenizer)),
        };
        grammars.constraint(&rule).map_err(|error| refused(&error))
    }

    fn submit(&self, ask: Ask) {
        let unsent = match &*lock(&self.asks) {
            Some(asks) => asks.send(Box::new(ask)).err().map(|error| error.0),
            None => Some(Box::new(ask)),
        };
        if let Some(ask) = unsent {
            let diagnostic = Diagnostic::new(NOT_READY, "the server is stopping");
            ask.reporter.tell(Event::Failed(Box::new(Failure::new(FailureKind::Stopping, diagnostic))));
        }
    }

    fn figures(&self) -> Figures {
        let figures = lock(&self.shared.figures).clone();
        let active = |active: &strata_engine::ActiveFigures| ActiveRequest {
            id: active.id,
            slot: active.slot,
            prompt: active.prompt,
            reused: active.reused,
            evaluated: active.evaluated,
            generated: active.generated,
            seconds: active.seconds,
            decode_rate: active.decode_rate,
        };
        let cache = figures.cache;
        Figures {
            waiting: figures.waiting,
            active: figures.active.iter().map(active).collect(),
            steps: figures.steps,
            step_seconds: figures.step_seconds,
            prompt_tokens: figures.prompt_tokens,
            reused_tokens: figures.reused_tokens,
            generated_tokens: figures.generated_tokens,
            finished: figures.finished,
            cancelled: figures.cancelled,
            failed: figures.failed,
            cache: CacheUse {
                pages: cache.pages,
                pages_in_use: cache.pages - cache.free_pages.min(cache.pages),
                page_tokens: cache.page_tokens,
                conversation_bytes: cache.host_bytes,
                conversation_budget: cache.host_budget,
            },
        }
    }

    fn trouble(&self) -> Option<Trouble> {
        let has_ended = lock(&self.thread).as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended && !self.shared.closing.load(Ordering::SeqCst) {
            return Some(Trouble { why: "the model's thread has ended".to_owned(), serves: false });
        }
        if let Err(error) = self.gguf.check_unchanged() {
            *lock(&self.shared.changed) = Some(error.to_string());
        }
        if let Some(why) = lock(&self.shared.changed).clone() {
            return Some(Trouble { why, serves: false });
        }
        let failed = lock(&self.shared.last_failure).clone().filter(|(at, _)| at.elapsed() < LATELY);
        failed.map(|(_, why)| Trouble { why, serves: true })
    }

    fn embed(&self, _: &[u32]) -> Result<Vec<f32>, Failure> {
        let message = format!("`{}` writes text; it gives no embeddings", self.facts.model);
        Err(Failure::new(FailureKind::Refused { param: Some("model") }, Diagnostic::new(UNSUPPORTED, message)))
    }

    fn close(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        lock(&self.asks).take();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic there has ended its requests already.
            let _ = thread.join();
        }
    }
}
