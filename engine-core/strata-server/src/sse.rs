//! Server-sent events: their text, and a body that they come through.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

/// Events that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    text: String,
}

impl Sse {
    /// An event without a name. JSON has no line ends of its own, so one line holds it.
    pub(crate) fn data(&mut self, value: &Value) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "data: {value}\n\n");
    }

    pub(crate) fn event(&mut self, name: &str, value: &Value) {
        let _ = write!(self.text, "event: {name}\ndata: {value}\n\n");
    }

    /// The end of a stream, as OpenAI's clients wait for it.
    pub(crate) fn done(&mut self) {
        self.text.push_str("data: [DONE]\n\n");
    }

    /// Nothing, which clients skip.
    pub(crate) fn comment(&mut self) {
        self.text.push_str(": still here\n\n");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.text))
    }
}

/// A body whose bytes come through a channel.
#[derive(Debug)]
pub(crate) struct ChannelBody {
    receiver: Receiver<Bytes>,
}

impl ChannelBody {
    pub(crate) fn new(receiver: Receiver<Bytes>) -> ChannelBody {
        ChannelBody { receiver }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
