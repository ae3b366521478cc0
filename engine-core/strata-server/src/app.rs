//! What all requests share: the room once it is there, the queue's places, figures, the last
//! requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use strata_diag::catalogue::serving::{NOT_READY, SERVER_FULL};
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::room::{Place, Places, Room};

/// Finished requests that `/v1/status` tells of.
const RECENT: usize = 32;

/// Where the server is in its life.
#[derive(Clone)]
pub(crate) enum Phase {
    Loading,
    Ready(Arc<dyn Room>),
    Stopping,
}

/// How far loading is; the loader writes it, `/health` tells it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Bytes that are loaded, of all.
    pub fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// How far stopping is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Stage {
    Running,
    /// Nothing new is taken; what goes on may end.
    Draining,
    /// What still goes on is ended.
    Ending,
}

pub(crate) struct App {
    pub(crate) options: ServerOptions,
    pub(crate) progress: Arc<Progress>,
    pub(crate) places: Places,
    pub(crate) metrics: Metrics,
    pub(crate) started: Instant,
    pub(crate) stage: watch::Sender<Stage>,
    phase: RwLock<Phase>,
    recent: Mutex<VecDeque<Recent>>,
    /// Seconds that answers took lately.
    usual_seconds: Mutex<f64>,
}

/// A request that is over, for the table of `/v1/status`.
#[derive(Debug, Clone)]
pub(crate) struct Recent {
    pub(crate) id: String,
    pub(crate) path: &'static str,
    pub(crate) outcome: String,
    pub(crate) prompt: u64,
    pub(crate) reused: u64,
    pub(crate) generated: u64,
    pub(crate) seconds: f64,
    pub(crate) first_token_seconds: Option<f64>,
    pub(crate) prompt_rate: Option<f64>,
    pub(crate) decode_rate: Option<f64>,
    /// When it ended.
    pub(crate) ended: Instant,
}

impl App {
    pub(crate) fn new(options: ServerOptions) -> App {
        App {
            options,
            progress: Arc::default(),
            places: Places::default(),
            metrics: Metrics::default(),
            started: Instant::now(),
            stage: watch::Sender::new(Stage::Running),
            phase: RwLock::new(Phase::Loading),
            recent: Mutex::default(),
            usual_seconds: Mutex::new(1.0),
        }
    }

    pub(crate) fn log(&self, line: &str) {
        (self.options.log)(line);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        *self.phase.write().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// The room, once the model is loaded and until the server stops.
    pub(crate) fn room(&self) -> Result<Arc<dyn Room>, ApiError> {
        let not = |message: &str, seconds| {
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, NOT_READY, message);
            Err(error.named("not_ready").retry_after(seconds))
        };
        match self.phase() {
            Phase::Ready(room) => Ok(room),
            Phase::Loading => not("the model is still loading", 2),
            Phase::Stopping => not("the server is stopping", 5),
        }
    }

    /// Places for so many answers, or the refusal of a full queue.
    pub(crate) fn places(&self, room: &dyn Room, n: usize) -> Result<Vec<Place>, ApiError> {
        let most = room.facts().slots + self.options.most_waiting;
        self.places.take(n, most).ok_or_else(|| {
            let taken = self.places.taken();
            let message = format!(
                "{taken} requests are being answered or wait, {n} more make more than the {most} that this server takes"
            );
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, SERVER_FULL, message)
                .named("rate_limit_exceeded")
                .retry_after(self.wait_seconds(taken, room.facts().slots))
        })
    }

    /// After how many seconds a place will be free, by what answers took lately.
    fn wait_seconds(&self, taken: usize, slots: usize) -> u64 {
        let usual = *self.usual_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = taken.saturating_sub(slots) as f64;
        (usual * (1.0 + waiting / slots.max(1) as f64) / 2.0).ceil().clamp(1.0, 60.0) as u64
    }

    /// Notes a request that is over.
    pub(crate) fn note(&self, recent: Recent) {
        {
            let mut usual = self.usual_seconds.lock().unwrap_or_else(PoisonError::into_inner);
            *usual = 0.8 * *usual + 0.2 * recent.seconds;
        }
        let mut list = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() == RECENT {
            list.pop_front();
        }
        list.push_back(recent);
    }

    /// The last requests, the latest first.
    pub(crate) fn recent(&self) -> Vec<Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
