//! One connection's socket, and whether anybody is still at its other end.
//!
//! A client that closes its connection and one that only says that it has nothing more to send look
//! the same from here: the end of what can be read. Telling them apart takes sending something, to
//! which a closed socket answers with a reset. So once the end was seen, an interim response (`102`)
//! is sent every half second until the response begins, and afterwards the stream's own comments
//! come as often. Ordinary clients never get to see either.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How often the other end is looked at while a request is worked on.
const LOOK: Duration = Duration::from_millis(250);
/// How often something is sent to find out whether it is still there.
const PROBE: Duration = Duration::from_millis(500);
/// A client that takes nothing of a response for so long is given up.
const STALLED: Duration = Duration::from_secs(120);
const INTERIM: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// What connection, requests and responses tell each other.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Requests that are being worked on, bodies included. At most one, but for its last moments.
    busy: AtomicUsize,
    /// The head of the response went to the connection: nothing may come between its bytes.
    responding: AtomicBool,
    /// An HTTP/1.0 client, which knows no interim responses.
    is_old: AtomicBool,
    /// The client sends nothing more, and may have gone.
    half_closed: AtomicBool,
    /// Since when the socket takes no bytes.
    blocked: Mutex<Option<Instant>>,
    started: tokio::sync::Notify,
}

impl Wire {
    /// The client sends nothing more: a stream should send something now and then.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.half_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn begin_response(&self) {
        self.responding.store(true, Ordering::SeqCst);
    }

    /// A request is being worked on until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>, is_old: bool) -> Busy {
        self.responding.store(false, Ordering::SeqCst);
        self.is_old.store(is_old, Ordering::SeqCst);
        self.busy.fetch_add(1, Ordering::SeqCst);
        self.started.notify_one();
        Busy(Arc::clone(self))
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    /// Waits until the client of a request that is being worked on has gone.
    pub(crate) async fn wait_for_gone(&self, stream: &TcpStream) {
        let mut last_probe = None;
        loop {
            if !self.is_busy() {
                self.started.notified().await;
                continue;
            }
            tokio::time::sleep(LOOK).await;
            if self.is_busy() && self.has_gone(stream, &mut last_probe) {
                return;
            }
        }
    }

    fn has_gone(&self, stream: &TcpStream, last_probe: &mut Option<Instant>) -> bool {
        let blocked = *self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        if blocked.is_some_and(|since| since.elapsed() > STALLED) {
            return true;
        }
        // A reset shows as an error of the socket, whatever lies unread in it.
        if !matches!(stream.take_error(), Ok(None)) {
            return true;
        }
        if !read_closed(stream) {
            return false;
        }
        self.half_closed.store(true, Ordering::SeqCst);
        if self.responding.load(Ordering::SeqCst) {
            return false;
        }
        if self.is_old.load(Ordering::SeqCst) {
            return true;
        }
        if last_probe.is_some_and(|last| last.elapsed() < PROBE) {
            return false;
        }
        *last_probe = Some(Instant::now());
        // Some 25 bytes into an empty socket: never taken in part.
        matches!(stream.try_write(INTERIM), Err(error) if error.kind() != ErrorKind::WouldBlock)
    }
}

/// Whether the other end said that nothing more comes, even when something is still unread.
fn read_closed(stream: &TcpStream) -> bool {
    let ready = std::pin::pin!(stream.ready(Interest::READABLE));
    let mut nobody = Context::from_waker(std::task::Waker::noop());
    match ready.poll(&mut nobody) {
        Poll::Ready(Ok(ready)) => ready.is_read_closed(),
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

/// A request that is being worked on.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Wire>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The socket as the HTTP side reads and writes it, while others look at it.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) wire: Arc<Wire>,
}

impl AsyncRead for SharedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl SharedSocket {
    /// Writes with `write` as soon as the socket takes something.
    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let blocked = |since| *self.wire.blocked.lock().unwrap_or_else(PoisonError::into_inner) = since;
        loop {
            match self.stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    let mut blocked = self.wire.blocked.lock().unwrap_or_else(PoisonError::into_inner);
                    blocked.get_or_insert_with(Instant::now);
                    return Poll::Pending;
                }
            }
            match write(&self.stream) {
                Ok(count) => {
                    blocked(None);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket that is closed already is as shut as it can be.
        let _ = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

/// Reads on for a moment what a client still sends, so that closing does not destroy the response
/// that is on its way to it.
pub(crate) async fn linger(stream: &TcpStream) {
    const LONGEST: Duration = Duration::from_secs(2);
    const MOST: usize = 256 << 20;
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
    let drain = async {
        let mut scrap = vec![0; 64 << 10];
        let mut total = 0;
        while total < MOST && stream.readable().await.is_ok() {
            match stream.try_read(&mut scrap) {
                Ok(0) => return,
                Ok(count) => total += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    let _ = tokio::time::timeout(LONGEST, drain).await;
}
