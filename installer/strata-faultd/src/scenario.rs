//! Scenario files: bodies made from a seed, and rules of which the first that matches answers. The same form
//! as the reference data's player reads: `status`, `headers` with `{origin} {start} {last} {size}`, `body`, `send`,
//! `length`, `cut`, `stall`, `trickle`, and the conditions `phase`, `range`, `if_range`, `auth`, `times`.

use crate::{Asked, Faultd, Reply};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A scenario that is being played: one server a name.
#[derive(Debug)]
pub struct Playing {
    servers: BTreeMap<String, Faultd>,
    phase: Arc<AtomicU64>,
}

impl Playing {
    /// Starts every server of the scenario. The error is a sentence.
    pub fn start(text: &str) -> Result<Playing, String> {
        let scenario: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let bodies = scenario["bodies"].as_object().ok_or("it has no bodies")?;
        let bodies: BTreeMap<String, Vec<u8>> = bodies.iter().map(|(name, spec)| (name.clone(), body(spec))).collect();
        let listed = scenario["servers"].as_object().ok_or("it has no servers")?;
        let mut listeners = Vec::new();
        let mut addresses = BTreeMap::new();
        for (name, rules) in listed {
            let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            addresses.insert(name.clone(), format!("http://{address}"));
            listeners.push((name.clone(), listener, rules.clone()));
        }
        let (bodies, addresses) = (Arc::new(bodies), Arc::new(addresses));
        let phase = Arc::new(AtomicU64::new(1));
        let mut servers = BTreeMap::new();
        for (name, listener, rules) in listeners {
            let player = Player {
                bodies: Arc::clone(&bodies),
                addresses: Arc::clone(&addresses),
                phase: Arc::clone(&phase),
                rules,
                used: Mutex::new(BTreeMap::new()),
            };
            let server = Faultd::on(listener, Arc::new(move |asked: &Asked| player.answer(asked)));
            servers.insert(name, server.map_err(|error| error.to_string())?);
        }
        Ok(Playing { servers, phase })
    }

    /// Address of a server.
    pub fn url(&self, name: &str) -> String {
        self.servers.get(name).map(Faultd::url).unwrap_or_default()
    }

    pub fn server(&self, name: &str) -> Option<&Faultd> {
        self.servers.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    pub fn set_phase(&self, phase: u64) {
        self.phase.store(phase, Ordering::Relaxed);
    }
}

/// A text, or bytes of a size: block i is SHA-256 of `seed:i`.
pub fn body(spec: &Value) -> Vec<u8> {
    if let Some(text) = spec["text"].as_str() {
        return text.as_bytes().to_vec();
    }
    let size = usize::try_from(spec["size"].as_u64().unwrap_or(0)).unwrap_or(0);
    let seed = spec["seed"].as_str().unwrap_or_default();
    let blocks = (0..size.div_ceil(32)).flat_map(|index| Sha256::digest(format!("{seed}:{index}")).to_vec());
    blocks.take(size).collect()
}

struct Player {
    bodies: Arc<BTreeMap<String, Vec<u8>>>,
    addresses: Arc<BTreeMap<String, String>>,
    phase: Arc<AtomicU64>,
    rules: Value,
    /// By path and rule: how often it answered.
    used: Mutex<BTreeMap<(String, usize), u64>>,
}

impl Player {
    fn answer(&self, asked: &Asked) -> Reply {
        if let Some(phase) = asked.path.strip_prefix("/__phase/").and_then(|phase| phase.parse().ok()) {
            self.phase.store(phase, Ordering::Relaxed);
            return Reply { status: 200, ..Reply::default() };
        }
        let path = asked.path.split('?').next().unwrap_or_default();
        let rules = self.rules[path].as_array().cloned().unwrap_or_default();
        for (index, rule) in rules.iter().enumerate() {
            if self.matches(rule, asked, (path, index)) {
                return self.reply(rule, asked);
            }
        }
        Reply { status: 404, ..Reply::default() }
    }

    fn matches(&self, rule: &Value, asked: &Asked, (path, index): (&str, usize)) -> bool {
        let has = |name: &str| asked.headers.contains_key(name);
        let wants = |key: &str, is: bool| rule[key].as_bool().is_none_or(|wanted| wanted == is);
        let phase = self.phase.load(Ordering::Relaxed);
        let fits = rule["phase"].as_u64().is_none_or(|wanted| wanted == phase)
            && wants("range", has("range"))
            && wants("if_range", has("if-range"))
            && wants("auth", has("authorization"));
        if !fits {
            return false;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let count = used.entry((path.to_owned(), index)).or_insert(0);
        *count += 1;
        rule["times"].as_u64().is_none_or(|times| *count <= times)
    }

    fn reply(&self, rule: &Value, asked: &Asked) -> Reply {
        let empty = Vec::new();
        let body = rule["body"].as_str().and_then(|name| self.bodies.get(name)).unwrap_or(&empty);
        let size = body.len();
        let (first, last) = asked.range.unwrap_or((0, None));
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX).min(size);
        let sent = match &rule["send"] {
            Value::String(how) if how == "none" => 0..0,
            Value::String(how) if how == "asked" => {
                number(first)..last.map_or(size, |last| number(last.saturating_add(1))).max(number(first))
            }
            Value::Array(ends) => {
                let end = |at: usize| number(ends.get(at).and_then(Value::as_u64).unwrap_or(0));
                end(0)..end(1).max(end(0))
            }
            _ => 0..size,
        };
        let filled = |text: &str| {
            let last = last.unwrap_or(u64::MAX).min(size.saturating_sub(1) as u64);
            let mut text = text.replace("{start}", &first.to_string()).replace("{size}", &size.to_string());
            text = text.replace("{last}", &last.to_string());
            for (name, address) in self.addresses.iter() {
                text = text.replace(&format!("{{{name}}}"), address);
            }
            text
        };
        let headers = rule["headers"].as_object().into_iter().flatten();
        let seconds = |key: &str| rule[key].as_f64().map(Duration::from_secs_f64);
        Reply {
            status: rule["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200),
            headers: headers.filter_map(|(name, value)| Some((name.clone(), filled(value.as_str()?)))).collect(),
            body: body[sent].to_vec(),
            announce: rule["length"].as_u64(),
            unannounced: rule["length"].as_i64() == Some(-1),
            cut: rule["cut"].as_u64().map(number),
            stall: seconds("stall"),
            drip: rule["trickle"].as_u64().map(|rate| (number(rate / 10).max(1), Duration::from_millis(100))),
            ..Reply::default()
        }
    }
}
