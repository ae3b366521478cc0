//! A server on loopback that misbehaves on purpose, for tests of the download engine: as a library, where
//! a closure answers each request, and as a program that plays a scenario file. Development only: it
//! speaks just enough HTTP/1.1, one thread a connection, and trusts its clients.

pub mod hub;
pub mod scenario;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// `Range: bytes=first-last`.
    pub range: Option<(u64, Option<u64>)>,
    /// Counted from 0 over the life of the server.
    pub number: u64,
}

/// What is sent, and how it goes wrong.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sent after the body: bytes of a file, for files that memory should not hold.
    pub file: Option<FilePart>,
    /// `Content-Length` to announce; `None`: the body's own.
    pub announce: Option<u64>,
    /// No `Content-Length` at all; the end of the connection ends the body.
    pub unannounced: bool,
    /// End the connection after so many bytes of the body.
    pub cut: Option<usize>,
    /// End it with a reset rather than in good order.
    pub reset: bool,
    /// Be silent for so long after the cut instead of ending.
    pub stall: Option<Duration>,
    /// Send so many bytes a pause of this length.
    pub drip: Option<(usize, Duration)>,
    /// Say nothing at all for so long before the answer.
    pub before: Duration,
}

/// Bytes of a file on disk.
#[derive(Debug, Clone)]
pub struct FilePart {
    pub path: std::path::PathBuf,
    pub first: u64,
    pub length: u64,
    /// Most bytes a second, over this connection.
    pub pace: Option<u64>,
}

type Handler = dyn Fn(&Asked) -> Reply + Send + Sync;

/// A running server; dropping it ends it.
pub struct Faultd {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<Asked>>>,
    /// Bytes of bodies that were sent.
    sent: Arc<AtomicU64>,
}

impl std::fmt::Debug for Faultd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faultd").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Faultd {
    /// Starts on a free port of loopback.
    pub fn start(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> std::io::Result<Faultd> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        Faultd::on(listener, Arc::new(handler))
    }

    pub(crate) fn on(listener: TcpListener, handler: Arc<Handler>) -> std::io::Result<Faultd> {
        let address = listener.local_addr()?;
        let server = Faultd {
            address,
            stop: Arc::new(AtomicBool::new(false)),
            requests: Arc::new(Mutex::new(Vec::new())),
            sent: Arc::new(AtomicU64::new(0)),
        };
        let (stop, requests, sent) = (Arc::clone(&server.stop), Arc::clone(&server.requests), Arc::clone(&server.sent));
        let count = Arc::new(AtomicU64::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (handler, requests) = (Arc::clone(&handler), Arc::clone(&requests));
                let (sent, count) = (Arc::clone(&sent), Arc::clone(&count));
                std::thread::spawn(move || {
                    // A client that goes away in the middle is what these tests are about.
                    let _ = serve(&stream, &*handler, &requests, &sent, &count);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(server)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Asked> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of bodies sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Faultd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    stream: &TcpStream,
    handler: &Handler,
    requests: &Mutex<Vec<Asked>>,
    sent: &AtomicU64,
    count: &AtomicU64,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream);
    while let Some(mut asked) = read_request(&mut reader)? {
        asked.number = count.fetch_add(1, Ordering::Relaxed);
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
        let reply = handler(&asked);
        if !write_reply(stream, &asked, &reply, sent)? {
            return Ok(());
        }
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.take(64 << 10).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.take(64 << 10).read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let range = headers.get("range").and_then(|text| {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()))
    });
    Ok(Some(Asked { method, path, headers, range, number: 0 }))
}

/// Whether the connection can carry another request.
fn write_reply(mut stream: &TcpStream, asked: &Asked, reply: &Reply, sent: &AtomicU64) -> std::io::Result<bool> {
    std::thread::sleep(reply.before);
    let mut head = format!("HTTP/1.1 {} X\r\n", reply.status);
    for (name, value) in &reply.headers {
        head = format!("{head}{name}: {value}\r\n");
    }
    if reply.unannounced {
        head += "Connection: close\r\n";
    } else {
        head = format!("{head}Content-Length: {}\r\n", reply.announce.unwrap_or(reply.length()));
    }
    head += "\r\n";
    stream.write_all(head.as_bytes())?;
    let body = if asked.method == "HEAD" { &[][..] } else { &reply.body[..] };
    let body = &body[..reply.cut.unwrap_or(body.len()).min(body.len())];
    let (bytes, pause) = reply.drip.unwrap_or((body.len(), Duration::ZERO));
    for piece in body.chunks(bytes.max(1)) {
        stream.write_all(piece)?;
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        std::thread::sleep(pause);
    }
    if let Some(part) = reply.file.as_ref().filter(|_| asked.method != "HEAD") {
        send_file(stream, part, sent)?;
    }
    if let Some(stall) = reply.stall {
        std::thread::sleep(stall);
        return Ok(false);
    }
    if reply.reset {
        // What the client has not read yet is lost with the connection.
        let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        return Ok(false);
    }
    let whole = reply.cut.is_none() && !reply.unannounced && reply.announce.is_none_or(|n| n == reply.length());
    Ok(whole)
}

impl Reply {
    fn length(&self) -> u64 {
        self.body.len() as u64 + self.file.as_ref().map_or(0, |part| part.length)
    }
}

/// From the file to the socket without a copy in between, where the system can do that.
fn send_file(mut stream: &TcpStream, part: &FilePart, sent: &AtomicU64) -> std::io::Result<()> {
    let mut file = fs_err::File::open(&part.path)?.into_file();
    file.seek(SeekFrom::Start(part.first))?;
    let began = Instant::now();
    let mut done = 0;
    while done < part.length {
        let piece = (part.length - done).min(256 << 10);
        let count = std::io::copy(&mut (&mut file).take(piece), &mut stream)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        done += count;
        sent.fetch_add(count, Ordering::Relaxed);
        if let Some(pace) = part.pace {
            let due = Duration::from_secs_f64(done as f64 / pace as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    Ok(())
}

/// The same of a file on disk of `size` bytes; `range` as it was asked for.
pub fn of_disk(path: &std::path::Path, size: u64, range: Option<(u64, Option<u64>)>, pace: Option<u64>) -> Reply {
    let mut headers =
        vec![("ETag".to_owned(), "\"disk\"".to_owned()), ("Accept-Ranges".to_owned(), "bytes".to_owned())];
    let (first, last) = range.map_or((0, size - 1), |(first, last)| (first, last.unwrap_or(size - 1).min(size - 1)));
    if first > last {
        return Reply {
            status: 416,
            headers: vec![("Content-Range".to_owned(), format!("bytes */{size}"))],
            ..Reply::default()
        };
    }
    if range.is_some() {
        headers.push(("Content-Range".to_owned(), format!("bytes {first}-{last}/{size}")));
    }
    let file = Some(FilePart { path: path.to_owned(), first, length: last - first + 1, pace });
    Reply { status: if range.is_some() { 206 } else { 200 }, headers, file, ..Reply::default() }
}

/// Bytes `first..=last` of a file as a well-behaved server sends them.
pub fn part_of(file: &[u8], first: u64, last: Option<u64>, etag: Option<&str>) -> Reply {
    let size = file.len() as u64;
    let tag = etag.map(|tag| ("ETag".to_owned(), tag.to_owned()));
    if first >= size {
        let range = ("Content-Range".to_owned(), format!("bytes */{size}"));
        return Reply { status: 416, headers: vec![range], ..Reply::default() };
    }
    let last = last.unwrap_or(size - 1).min(size - 1);
    let mut headers = vec![("Content-Range".to_owned(), format!("bytes {first}-{last}/{size}"))];
    headers.extend(tag);
    let body = file[usize::try_from(first).unwrap_or(0)..=usize::try_from(last).unwrap_or(0)].to_vec();
    Reply { status: 206, headers, body, ..Reply::default() }
}

/// The whole file.
pub fn whole(file: &[u8], etag: Option<&str>) -> Reply {
    let headers = etag.map(|tag| ("ETag".to_owned(), tag.to_owned())).into_iter().collect();
    Reply { status: 200, headers, body: file.to_vec(), ..Reply::default() }
}
