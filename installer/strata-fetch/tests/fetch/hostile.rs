//! Servers and places that mean no good: bounded time, bounded memory, nothing written where it should not be.

use crate::support::{CHUNK, Notes, digest, fetch, names, request, settings};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_diag::Diagnose;
use strata_faultd::scenario::body;
use strata_faultd::{Faultd, Reply, part_of, whole};
use strata_fetch::{CancelFlag, Fetcher, Request, Settings};

/// A server that says whatever `speak` writes.
fn speaking(speak: impl Fn(&mut std::net::TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/m", listener.local_addr().unwrap());
    let speak = Arc::new(speak);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let speak = Arc::clone(&speak);
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = speak(&mut stream);
            });
        }
    });
    url
}

const SHORT: Duration = Duration::from_millis(900);

/// The code of the failure, which came in bounded time and left nothing behind.
fn refused(url: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let error = fetch(settings(SHORT), &request(url, &folder.path().join("m"))).unwrap_err();
    println!("{:?}: {error}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(8), "{error}: {:?}", began.elapsed());
    assert!(!folder.path().join("m").exists());
    error.code().id.to_owned()
}

#[test]
fn servers_that_mean_no_good_cost_bounded_time() {
    let endless_headers = speaking(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        for number in 0_u64.. {
            stream.write_all(format!("X-{number}: {}\r\n", "y".repeat(100)).as_bytes())?;
        }
        Ok(())
    });
    let slow_headers = speaking(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            stream.write_all(b"X")?;
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let informational = speaking(|stream| {
        loop {
            stream.write_all(&b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100))?;
            // Without a pause the HTTP library is busy for some 50 MB of them before it looks at the clock.
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let nothing_forever = speaking(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            // The start of a piece of no bytes, with an extension that does not end.
            stream.write_all(b"0;x")?;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let a_byte_at_a_time = speaking(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")?;
        loop {
            stream.write_all(b"x")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let lying_length =
        speaking(|stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\nonly this"));
    let no_http = speaking(|stream| stream.write_all(&vec![0xff; 100_000]));
    let two_lengths =
        speaking(|stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello"));
    for (what, url) in [
        ("endless headers", endless_headers),
        ("slow headers", slow_headers),
        ("hints without end", informational),
        ("nothing forever", nothing_forever),
        ("a byte at a time", a_byte_at_a_time),
        ("lying length", lying_length),
        ("no HTTP", no_http),
        ("two lengths", two_lengths),
    ] {
        assert_eq!(refused(&url), "S0601", "{what}");
    }
}

#[test]
fn redirections_that_lead_nowhere_end() {
    let send = |to: &'static str| {
        Faultd::start(move |asked| Reply {
            status: 302,
            headers: vec![("Location".to_owned(), to.replace("{n}", &asked.number.to_string()))],
            ..Reply::default()
        })
        .unwrap()
    };
    for to in ["/m", "/m{n}", "file:///etc/passwd", "", "//", "http://", "javascript:x", "gopher://x/"] {
        let server = send(to);
        assert_eq!(refused(&format!("{}/m", server.url())), "S0603", "{to}");
        assert!(server.requests().len() <= 11, "{to}: {}", server.requests().len());
    }
}

#[test]
fn ranges_that_lie_about_their_size_are_refused_before_they_are_believed() {
    for (range, size, code) in [
        ("bytes 0-16383/99999999999999", None, "S0601"),
        ("bytes 0-16383/17592186044416", None, "S0609"),
        ("bytes 0-16383/20000", Some(30_000), "S0604"),
        ("bytes 0-16383/16384", None, "S0603"),
    ] {
        // The last one says that this is all and sends less, again and again.
        let server = Faultd::start(move |_| Reply {
            status: 206,
            headers: vec![("Content-Range".to_owned(), range.to_owned())],
            body: vec![1; 100],
            ..Reply::default()
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let request = Request { size, ..request(&format!("{}/m", server.url()), &folder.path().join("m")) };
        let error = fetch(settings(SHORT), &request).unwrap_err();
        assert!(
            error.code().id == code || range.contains("99999999999999") && error.code().id == "S0603",
            "{range}: {error}"
        );
        assert!(!folder.path().join("m").exists());
    }
}

#[test]
fn a_place_that_is_no_file_is_refused_before_anything_comes() {
    let bytes = body(&serde_json::json!({ "size": 3 * CHUNK, "seed": "place" }));
    let file = bytes.clone();
    let server = Faultd::start(move |asked| match asked.range {
        Some((first, last)) => part_of(&file, first, last, Some("\"x\"")),
        None => whole(&file, Some("\"x\"")),
    })
    .unwrap();
    let url = format!("{}/m", server.url());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs_err::create_dir(path("folder")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for name in ["folder", "pipe"] {
        let error = fetch(settings(SHORT), &request(&url, &path(name))).unwrap_err();
        assert_eq!(error.code().id, "S0606", "{name}: {error}");
    }
    assert!(server.requests().is_empty());
    // A link's place is taken by the file; what it led to stays as it is.
    fs_err::write(path("kept"), "kept").unwrap();
    fs_err::os::unix::fs::symlink(path("kept"), path("link")).unwrap();
    assert_eq!(fetch(settings(SHORT), &request(&url, &path("link"))).unwrap().sha256, digest(&bytes));
    assert_eq!(
        (fs_err::read(path("kept")).unwrap(), fs_err::read(path("link")).unwrap()),
        (b"kept".to_vec(), bytes.clone())
    );
    // Links and pipes that somebody laid where the parts gather are not followed, and nobody waits at them.
    for (part, journal) in [(".a.part", ".a.part.chunks"), (".b.part.chunks", ".b.part")] {
        fs_err::os::unix::fs::symlink(path("kept"), path(part)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path(journal), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let name = part[1..2].to_owned();
        assert_eq!(fetch(settings(SHORT), &request(&url, &path(&name))).unwrap().sha256, digest(&bytes), "{part}");
    }
    assert_eq!(fs_err::read(path("kept")).unwrap(), b"kept");
    fs_err::os::unix::fs::symlink(path("kept"), path(".c.part.lock")).unwrap();
    assert_eq!(fetch(settings(SHORT), &request(&url, &path("c"))).unwrap_err().code().id, "S0606");
    // A disk that takes nothing.
    if std::path::Path::new("/dev/full").exists() {
        let error = fetch(settings(SHORT), &request(&url, std::path::Path::new("/proc/model.gguf"))).unwrap_err();
        assert_eq!(error.code().id, "S0606", "{error}");
    }
}

#[test]
fn ten_thousand_files_need_no_more_than_one_at_a_time() {
    let server = Faultd::start(|asked| {
        let bytes = asked.path.as_bytes();
        match asked.range {
            Some((first, last)) => part_of(bytes, first, last, Some("\"x\"")),
            None => whole(bytes, Some("\"x\"")),
        }
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let count = std::env::var("STRATA_FETCH_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let requests: Vec<Request> = (0..count)
        .map(|number| request(&format!("{}/file-{number}", server.url()), &folder.path().join(number.to_string())))
        .collect();
    let fetcher =
        Fetcher::new(Settings { stall: Duration::from_secs(5), ..settings(Duration::from_secs(20)) }).unwrap();
    let got = fetcher.fetch(&requests, &Notes::default(), &CancelFlag::default()).unwrap();
    assert_eq!((got.len(), names(folder.path()).len()), (count, count));
    let open = fs_err::read_dir("/proc/self/fd").unwrap().count();
    println!("{count} files, {open} open files at the end");
    assert!(open < 200, "{open}");
}
