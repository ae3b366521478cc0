//! A room that plays a script, a server around it, and a client that sends exactly what it is told.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use strata_diag::Diagnostic;
use strata_diag::catalogue::{engine, plugin, serving};
use strata_engine::{Constraint, FinishReason, Finished, RequestStats, SamplerSettings};
use strata_model::chat::Content;
use strata_model::tokenizer::StopMatcher;
use strata_server::*;

/// What the scripted model does with every request.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) pieces: Vec<String>,
    /// Before each piece.
    pub(crate) delay: Duration,
    /// Before the first, for each token of the prompt.
    pub(crate) prompt_delay: Duration,
    /// Pieces after which the request fails, and how.
    pub(crate) fails: Option<(usize, FailureKind)>,
    pub(crate) context: u64,
    pub(crate) slots: usize,
    pub(crate) loading: Duration,
    pub(crate) template: &'static str,
    /// Requests vanish without a word.
    pub(crate) drops: bool,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            pieces: ["Hello", ", ", "wor", "ld"].map(str::to_owned).to_vec(),
            delay: Duration::ZERO,
            prompt_delay: Duration::ZERO,
            fails: None,
            context: 8192,
            slots: 4,
            loading: Duration::ZERO,
            template: "{{ messages }} {% if tools %}<tool_call>{% endif %}",
            drops: false,
        }
    }
}

/// What the room did, for tests to look at.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) started: AtomicUsize,
    pub(crate) active: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    pub(crate) chats: Mutex<Vec<Chat>>,
    pub(crate) forms: Mutex<Vec<Form>>,
    pub(crate) sampling: Mutex<Vec<SamplerSettings>>,
}

pub(crate) struct Scripted {
    facts: Facts,
    script: Script,
    asks: Mutex<Option<mpsc::Sender<Ask>>>,
    seen: Arc<Seen>,
}

impl Scripted {
    pub(crate) fn new(script: Script, seen: Arc<Seen>) -> Scripted {
        let (sender, receiver) = mpsc::channel::<Ask>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..script.slots {
            let (receiver, script, seen) = (Arc::clone(&receiver), script.clone(), Arc::clone(&seen));
            std::thread::spawn(move || {
                loop {
                    let ask = receiver.lock().unwrap().recv();
                    let Ok(ask) = ask else { return };
                    play(&script, &ask, &seen);
                }
            });
        }
        let mut about = serde_json::Map::new();
        about.insert("backend".to_owned(), json!({"plugin": "scripted", "reason": "a test"}));
        let facts = Facts {
            model: "scripted".to_owned(),
            created: 1,
            context: script.context,
            trained_context: script.context,
            vocabulary: 256,
            parameters: None,
            slots: script.slots,
            template: Some(script.template.to_owned()),
            embeds: false,
            sampling: SamplerSettings::default(),
            about,
        };
        Scripted { facts, script, asks: Mutex::new(Some(sender)), seen }
    }
}

fn play(script: &Script, ask: &Ask, seen: &Seen) {
    if script.drops {
        return;
    }
    if ask.reporter.is_gone() {
        seen.cancelled.fetch_add(1, Ordering::SeqCst);
        return;
    }
    seen.started.fetch_add(1, Ordering::SeqCst);
    seen.active.fetch_add(1, Ordering::SeqCst);
    ask.reporter.tell(Event::Started { reused: 0 });
    let end = answer(script, ask, seen);
    seen.active.fetch_sub(1, Ordering::SeqCst);
    ask.reporter.tell(end);
}

fn answer(script: &Script, ask: &Ask, seen: &Seen) -> Event {
    let gone = || {
        seen.cancelled.fetch_add(1, Ordering::SeqCst);
        Event::Failed(Box::new(Failure::new(FailureKind::Stopping, Diagnostic::new(serving::NOT_READY, "cancelled"))))
    };
    for _ in ask.prompt.iter() {
        std::thread::sleep(script.prompt_delay);
        if ask.reporter.is_gone() {
            return gone();
        }
    }
    let mut stops = StopMatcher::new(ask.limits.stop.iter().cloned());
    let mut reason = FinishReason::End;
    let mut tokens = Vec::new();
    for (index, piece) in script.pieces.iter().enumerate() {
        if let Some((at, kind)) = script.fails
            && at == index
        {
            let code = if kind == FailureKind::OutOfMemory { plugin::OUT_OF_MEMORY } else { engine::NOT_A_NUMBER };
            return Event::Failed(Box::new(Failure::new(kind, Diagnostic::new(code, "the script says so"))));
        }
        if (ask.prompt.len() + index) as u64 >= script.context {
            reason = FinishReason::MaxTokens;
            break;
        }
        std::thread::sleep(script.delay);
        if ask.reporter.is_gone() {
            return gone();
        }
        tokens.push(index as u32);
        let output = stops.push(piece);
        let top = (0..ask.top_log_probabilities as u32).map(|id| (id, -f64::from(id) - 0.5)).collect();
        let log_probability = ask.limits.log_probabilities.then_some(-0.5);
        let choice = Some(Choice { token: index as u32, log_probability, top });
        ask.reporter.tell(Event::Piece { text: output.text, choice });
        if let Some(stop) = output.stop {
            reason = FinishReason::StopText(ask.limits.stop[stop].clone());
            break;
        }
        if ask.limits.max_tokens == Some(index as u64 + 1) {
            reason = FinishReason::MaxTokens;
            break;
        }
    }
    let rest = stops.finish();
    if !rest.is_empty() {
        ask.reporter.tell(Event::Piece { text: rest, choice: None });
    }
    let stats = RequestStats {
        prompt_new: ask.prompt.len() as u64,
        generated: tokens.len() as u64,
        end_context: (ask.prompt.len() + tokens.len()) as u64,
        context_size: script.context,
        ..RequestStats::default()
    };
    Event::Done(Box::new(Finished { reason, text: String::new(), tokens, seed: 7, stats }))
}

impl Room for Scripted {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    /// A token for each byte of the messages' texts.
    fn render(&self, chat: &Chat) -> Result<Rendered, Failure> {
        self.seen.chats.lock().unwrap().push(chat.clone());
        let text: String = chat
            .messages
            .iter()
            .map(|message| match &message.content {
                Content::Text(text) => text.clone(),
                _ => String::new(),
            })
            .collect();
        Ok(Rendered { tokens: self.tokenize(&text), tail: String::new() })
    }

    fn tokenize(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        self.script.pieces.get(token as usize).map_or_else(|| vec![token as u8], |piece| piece.clone().into_bytes())
    }

    fn check(&self, prompt: &[u32], _: &SamplerSettings) -> Result<(), Failure> {
        let (prompt, context) = (prompt.len() as u64, self.script.context);
        if prompt < context {
            return Ok(());
        }
        let message = format!("{prompt} tokens do not fit a context of {context}");
        Err(Failure::new(FailureKind::TooLong { prompt, context }, Diagnostic::new(engine::CONTEXT_EXCEEDED, message)))
    }

    fn hold(&self, form: &Form) -> Result<Box<dyn Constraint>, Failure> {
        self.seen.forms.lock().unwrap().push(form.clone());
        Ok(Box::new(Anything))
    }

    fn submit(&self, ask: Ask) {
        self.seen.sampling.lock().unwrap().push(ask.sampling.clone());
        if let Some(asks) = &*self.asks.lock().unwrap() {
            let _ = asks.send(ask);
        }
    }

    fn figures(&self) -> Figures {
        Figures::default()
    }

    fn embed(&self, _: &[u32]) -> Result<Vec<f32>, Failure> {
        Err(Failure::new(FailureKind::Refused { param: None }, Diagnostic::new(serving::UNSUPPORTED, "no embeddings")))
    }

    fn close(&self) {
        self.asks.lock().unwrap().take();
    }
}

/// Holds an answer to nothing: the script says what it is.
struct Anything;

impl Constraint for Anything {
    fn mask(&mut self, _: &mut [f32]) -> Result<(), String> {
        Ok(())
    }

    fn accept(&mut self, _: u32) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

/// A server that plays a script.
pub(crate) struct Playing {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Playing {
    pub(crate) fn start(script: Script) -> Playing {
        Playing::with(script, |_| {})
    }

    /// With other options than the usual ones. Ready when this returns, but for a slow script.
    pub(crate) fn with(script: Script, set: impl FnOnce(&mut ServerOptions)) -> Playing {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&lines);
        let log: Log = Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()));
        let mut options = ServerOptions::new(vec!["127.0.0.1:0".parse().unwrap()], log);
        set(&mut options);
        let seen: Arc<Seen> = Arc::default();
        let slow = !script.loading.is_zero();
        let for_room = Arc::clone(&seen);
        let mut server = Server::start(
            options,
            Box::new(move |_| {
                std::thread::sleep(script.loading);
                Ok(Arc::new(Scripted::new(script, for_room)))
            }),
        )
        .unwrap();
        if !slow {
            server.wait_until_ready().unwrap();
        }
        let address = server.addresses()[0];
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run()));
        Playing { address, seen, lines, stopper, thread }
    }

    pub(crate) fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits for the server's end.
    pub(crate) fn ended(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(&post(path, &body.to_string()))
    }

    pub(crate) fn chat(&self, body: &Value) -> Answer {
        self.post("/v1/chat/completions", body)
    }

    /// Sends text and reads to the end of the connection.
    pub(crate) fn send(&self, text: &str) -> Answer {
        self.send_bytes(text.as_bytes())
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may answer and close before it has read all of a bad request.
        let _ = stream.write_all(bytes);
        Answer::read(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    pub(crate) fn has_line(&self, part: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(part))
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.stopper.stop();
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A request with a body, after which the connection closes.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(stream: &mut TcpStream) -> Answer {
        let mut bytes = Vec::new();
        // A reset after the response is as good an end as any.
        let _ = stream.read_to_end(&mut bytes);
        Answer::of(&bytes)
    }

    #[track_caller]
    pub(crate) fn of(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes);
        let mut text = &*text;
        // Interim responses come before the real one.
        while text.starts_with("HTTP/1.1 1") {
            text = text.split_once("\r\n\r\n").expect("an interim response ends").1;
        }
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no whole head: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers: BTreeMap<String, String> = lines.map(header).collect();
        let chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
        let body = if chunked { dechunked(body) } else { body.to_owned() };
        Answer { status, headers, body }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The data of all events.
    pub(crate) fn events(&self) -> Vec<String> {
        let blocks = self.body.split("\n\n").filter(|block| !block.is_empty());
        blocks
            .filter_map(|block| block.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned))
            .collect()
    }

    #[track_caller]
    pub(crate) fn is_error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let json = self.json();
        assert_eq!(json["error"]["strata"]["code"], code, "{}", self.body);
        json["error"].clone()
    }
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 || rest.len() < length {
            break;
        }
        whole.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap_or("");
    }
    whole
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(within: Duration, what: &str, is_so: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}

/// A file of a case of the reference data.
pub(crate) fn case(path: &str) -> Option<String> {
    let folder = match std::env::var_os("STRATA_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let path = folder.join("cases").join(path);
    if !path.exists() {
        println!("skipped: no {} (the reference data is kept beside the checkout)", path.display());
        return None;
    }
    Some(fs_err::read_to_string(path).unwrap())
}

pub(crate) fn question(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }] })
}
