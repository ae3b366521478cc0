//! The HTTP server: OpenAI's and Anthropic's interfaces over one loaded model, health, figures and
//! the web page.
//!
//! It computes nothing and chooses no device: a [`Room`] answers, of which the program gives it one
//! once the model is loaded. It prints nothing; talk goes to a function of the caller's. It opens no
//! connection to anywhere. `strata serve` calls it.
//!
//! ```text
//! connection ─ guard ─ router ─ openai / anthropic ─ drive ─ Room ─ engine
//!   (wire)      (key)           (read)    (write)    (output)
//! ```

mod error;
mod options;
mod server;

mod app;
mod connection;
mod guard;
mod listen;
mod wire;

mod api_error;
mod body;
mod fields;
mod router;

mod anthropic;
mod blocks;
mod conversation;
mod drive;
mod openai;
mod output;
mod sse;

mod metrics;
mod page;
mod status;

mod engine_room;
mod room;

pub use app::Progress;
pub use engine_room::{EngineRoom, EngineRoomOptions};
pub use error::ServerError;
pub use listen::try_address;
pub use options::{Keys, Log, ServerOptions, addresses};
pub use room::{
    ActiveRequest, Ask, CacheUse, Chat, Choice, Event, Facts, Failure, FailureKind, Figures, Form, Rendered, Reporter,
    Room, ToolForm, Trouble,
};
pub use server::{Loader, Server, Stopper};
