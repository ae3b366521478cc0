//! What the HTTP side asks of whoever answers: the [`Room`], one loaded model with a queue before
//! it. The server's own room is [`crate::EngineRoom`], a thread that owns an engine; tests have a
//! scripted one.
//!
//! Nothing here knows of HTTP, and the room knows of none: texts and tokens go in, [`Event`]s come
//! out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Map, Value};
use strata_diag::Diagnostic;
use strata_engine::{Constraint, Finished, Limits, SamplerSettings};
use strata_model::chat::Message;
use tokio::sync::mpsc::UnboundedSender;

/// A loaded model that answers.
pub trait Room: Send + Sync {
    /// What does not change while the model is loaded.
    fn facts(&self) -> &Facts;

    /// A conversation as the model wants it, in tokens. May take milliseconds to seconds; called on
    /// threads that may wait.
    fn render(&self, chat: &Chat) -> Result<Rendered, Failure>;

    /// The tokens of plain text, with what the model wants before it (BOS).
    fn tokenize(&self, text: &str) -> Vec<u32>;

    /// The bytes that a token stands for.
    fn token_bytes(&self, token: u32) -> Vec<u8>;

    /// Whether a prompt with these settings can be answered at all. Nothing is computed.
    fn check(&self, prompt: &[u32], sampling: &SamplerSettings) -> Result<(), Failure>;

    /// Holds one answer to this form. May take a while; fails for a form that cannot be kept to.
    fn hold(&self, form: &Form) -> Result<Box<dyn Constraint>, Failure>;

    /// Puts a request into the queue. What becomes of it goes to its [`Reporter`].
    fn submit(&self, ask: Ask);

    /// What is being done now.
    fn figures(&self) -> Figures;

    /// Why answers may be wrong or slow, if there is a reason; `/health` tells.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// The embedding of a text, if the model gives any.
    fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>, Failure>;

    /// Ends everything that is being answered, and waits until the device is at rest.
    fn close(&self);
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub why: String,
    /// Requests are answered all the same.
    pub serves: bool,
}

/// What a room tells of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The name that clients see.
    pub model: String,
    /// Seconds since 1970: when the model's file was made.
    pub created: u64,
    /// Tokens of prompt and answer together.
    pub context: u64,
    /// Tokens that the model was trained for.
    pub trained_context: u64,
    pub vocabulary: u64,
    pub parameters: Option<u64>,
    /// Answers that can be made at one time.
    pub slots: usize,
    /// The text of the model's chat template; `None`: it has none.
    pub template: Option<String>,
    /// Whether it gives embeddings.
    pub embeds: bool,
    /// How tokens are chosen when a request says nothing.
    pub sampling: SamplerSettings,
    /// Backend, reason, settings and memory, as `/v1/status` shows them.
    pub about: Map<String, Value>,
}

/// A conversation to be continued.
#[derive(Debug, Clone)]
pub struct Chat {
    pub messages: Vec<Message>,
    /// Function descriptions as OpenAI's interface has them.
    pub tools: Option<Value>,
    /// Variables for the template: `enable_thinking`, `reasoning_effort`.
    pub variables: Map<String, Value>,
}

/// A conversation in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub tokens: Vec<u32>,
    /// The end of the prompt's text, which may already begin the answer (`<think>`).
    pub tail: String,
}

/// What form an answer must have.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// Any JSON object.
    Json,
    /// JSON of this schema.
    Schema(Value),
    /// A call of one of these tools, in the words of the model's template.
    Tools(Vec<ToolForm>),
}

/// A text that an answer may consist of: `before`, JSON of `schema`, `after`.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolForm {
    pub before: String,
    pub schema: Value,
    pub after: String,
}

/// A request for one answer.
pub struct Ask {
    pub prompt: Arc<[u32]>,
    pub sampling: SamplerSettings,
    pub limits: Limits,
    /// How many of the most probable tokens to tell with each one.
    pub top_log_probabilities: usize,
    /// What the answer is held to.
    pub constraint: Option<Box<dyn Constraint>>,
    pub reporter: Reporter,
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("prompt", &self.prompt.len()).finish_non_exhaustive()
    }
}

/// A token, with what the model thought of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub token: u32,
    /// Under the model alone, before any sampling setting. When asked for.
    pub log_probability: Option<f64>,
    /// The most probable tokens, falling. As many as asked for.
    pub top: Vec<(u32, f64)>,
}

/// What is said about a request, in this order: started, pieces, done or failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It left the queue; so many tokens of its prompt were in the cache.
    Started {
        reused: u64,
    },
    /// Text that is certain now, which may be empty; without a token what was held back to the end.
    Piece {
        text: String,
        choice: Option<Choice>,
    },
    Done(Box<Finished>),
    Failed(Box<Failure>),
}

/// Why a request got no answer, and what kind of reason that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub kind: FailureKind,
    pub diagnostic: Box<Diagnostic>,
}

impl Failure {
    pub fn new(kind: FailureKind, diagnostic: Diagnostic) -> Failure {
        Failure { kind, diagnostic: Box::new(diagnostic) }
    }
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The request's, in this field.
    Refused { param: Option<&'static str> },
    /// The prompt's length.
    TooLong { prompt: u64, context: u64 },
    /// Memory ran out.
    OutOfMemory,
    /// The room closes.
    Stopping,
    /// Ours.
    Internal,
}

/// Where a room tells what becomes of a request. Dropping it frees the request's place.
#[derive(Debug)]
pub struct Reporter {
    index: usize,
    events: UnboundedSender<(usize, Event)>,
    cancelled: Arc<AtomicBool>,
    _place: Place,
}

impl Reporter {
    pub(crate) fn new(index: usize, events: UnboundedSender<(usize, Event)>, place: Place) -> Reporter {
        Reporter { index, events, cancelled: Arc::default(), _place: place }
    }

    /// Ends this answer and no other of its request, when set.
    pub(crate) fn cancel(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    /// Says what happened. A listener that has gone is no fault: [`Reporter::is_gone`] tells.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send((self.index, event));
    }

    /// Nobody wants the answer any more.
    pub fn is_gone(&self) -> bool {
        self.events.is_closed() || self.cancelled.load(Ordering::SeqCst)
    }
}

/// Counts the requests that have a slot or wait for one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
}

impl Places {
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// So many places, or none when there would be more than `most` then.
    pub(crate) fn take(&self, n: usize, most: usize) -> Option<Vec<Place>> {
        let more = |taken: usize| taken.checked_add(n).filter(|sum| *sum <= most);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some((0..n).map(|_| Place { taken: Arc::clone(&self.taken) }).collect())
    }
}

/// One of the [`Places`], given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a room is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    pub waiting: usize,
    pub active: Vec<ActiveRequest>,
    /// Since the start.
    pub steps: u64,
    pub step_seconds: f64,
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    pub generated_tokens: u64,
    pub finished: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub cache: CacheUse,
}

/// Pages of the KV cache, and what is kept of earlier conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUse {
    pub pages: u64,
    pub pages_in_use: u64,
    pub page_tokens: u64,
    /// Conversations' prefixes in host memory, bytes.
    pub conversation_bytes: u64,
    pub conversation_budget: u64,
}

/// A request that has a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActiveRequest {
    pub id: u64,
    pub slot: u32,
    pub prompt: u64,
    pub reused: u64,
    /// Tokens in the cache.
    pub evaluated: u64,
    pub generated: u64,
    pub seconds: f64,
    /// Tokens of the answer per second, once there are two.
    pub decode_rate: Option<f64>,
}
