//! Seeded runs against a server with every fault that the engine knows of: no corrupt file, no wrong end.

use crate::support::{CHUNK, Notes, digest, fetch, names, request, settings};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strata_diag::Diagnose;
use strata_faultd::scenario::body;
use strata_faultd::{Asked, Faultd, Reply, part_of, whole};
use strata_fetch::{CancelFlag, Fetcher, Request};

fn pieces(file: &[u8]) -> Vec<strata_manifest::Sha256Digest> {
    file.chunks(usize::try_from(CHUNK).unwrap()).map(digest).collect()
}

/// A small generator: the same seed, the same faults.
fn random(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const FAULTS: [&str; 20] = [
    "cut",
    "reset",
    "stall",
    "503",
    "429 with Retry-After",
    "500",
    "range ignored",
    "other start",
    "short 206",
    "long 206",
    "416",
    "weak ETag",
    "no ETag",
    "gzip",
    "HTML",
    "drip",
    "early end",
    "changed ETag",
    "wrong length",
    "redirected",
];

/// One answer with a fault; most answers have none.
fn faulty(file: &[u8], asked: &Asked, seed: u64, counts: &[AtomicU64]) -> Reply {
    let roll = random(seed ^ random(asked.number));
    let etag = Some("\"v1\"");
    let good = |etag| match asked.range {
        Some((first, last)) => part_of(file, first, last, etag),
        None => whole(file, etag),
    };
    let mut reply = good(etag);
    // Two answers of five have a fault, and whatever it is, after 200 requests the server behaves.
    if roll % 5 > 1 || asked.number > 200 {
        return reply;
    }
    let fault = (roll >> 8) as usize % FAULTS.len();
    counts[fault].fetch_add(1, Ordering::Relaxed);
    let at = (roll >> 16) as usize % reply.body.len().max(1);
    match FAULTS[fault] {
        "cut" => reply.cut = Some(at),
        "reset" => (reply.cut, reply.reset) = (Some(at), true),
        "stall" => (reply.cut, reply.stall) = (Some(at), Some(Duration::from_millis(500))),
        "503" => reply = Reply { status: 503, ..Reply::default() },
        "429 with Retry-After" => {
            reply = Reply { status: 429, headers: vec![("Retry-After".to_owned(), "0".to_owned())], ..Reply::default() }
        }
        "500" => reply = Reply { status: 500, body: b"oops".to_vec(), ..Reply::default() },
        "range ignored" => reply = whole(file, etag),
        "other start" => {
            let first = asked.range.map_or(0, |(first, _)| first);
            reply = part_of(file, first / 2 + 1, Some(first / 2 + CHUNK), etag);
        }
        "short 206" => {
            if let Some((first, last)) = asked.range {
                reply = part_of(file, first, last.map(|last| first + (last - first) / 2), etag);
            }
        }
        "long 206" => {
            if let Some((first, last)) = asked.range {
                reply = part_of(file, first, last.map(|last| last + 4096), etag);
            }
        }
        "416" => reply = Reply { status: 416, ..Reply::default() },
        "weak ETag" => reply = good(Some("W/\"v1\"")),
        "no ETag" => reply = good(None),
        "gzip" => reply.headers.push(("Content-Encoding".to_owned(), "gzip".to_owned())),
        "HTML" => {
            let headers = vec![("Content-Type".to_owned(), "text/html".to_owned())];
            reply = Reply { status: 200, headers, body: b"<html>please log in</html>".to_vec(), ..Reply::default() };
        }
        // Another version of the same length, for one answer: its bytes are the old ones, so no digest tells.
        "changed ETag" => reply = good(Some("\"v2\"")),
        "wrong length" => {
            if let Some((first, last)) = asked.range {
                reply = part_of(file, first, last, etag);
                for (name, value) in &mut reply.headers {
                    if name == "Content-Range" {
                        *value = value.replace(&format!("/{}", file.len()), &format!("/{}", file.len() + 1));
                    }
                }
            }
        }
        "redirected" => {
            let headers = vec![("Location".to_owned(), format!("{}?moved", asked.path.split('?').next().unwrap()))];
            reply = Reply { status: 302, headers, ..Reply::default() };
        }
        "drip" => reply.drip = Some((8 << 10, Duration::from_millis(1))),
        _ => reply.announce = Some(reply.body.len() as u64 + 1),
    }
    reply
}

/// Runs of the quick matrix; `STRATA_FETCH_RUNS` makes it longer.
fn runs() -> u64 {
    std::env::var("STRATA_FETCH_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// Runs at the same time; most of a run is waiting.
const AT_ONCE: u64 = 8;

/// One file over a server with faults, as a person fetches it whose network shows a page now and then: the same command
/// again. Says in which run it was done.
fn one_run(seed: u64, counts: &Arc<Vec<AtomicU64>>) -> String {
    let size = 1 + random(seed) % (9 * CHUNK);
    let file = Arc::new(body(&serde_json::json!({ "size": size, "seed": seed.to_string() })));
    let (served, counted) = (Arc::clone(&file), Arc::clone(counts));
    let server = Faultd::start(move |asked| faulty(&served, asked, seed, &counted)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("model.gguf");
    let pinned = !random(seed ^ 0x4d).is_multiple_of(3);
    let chunks = if random(seed ^ 0x77).is_multiple_of(2) { pieces(&file) } else { Vec::new() };
    let request = Request {
        size: pinned.then_some(size),
        sha256: pinned.then(|| digest(&file)),
        chunks,
        ..request(&format!("{}/model.gguf", server.url()), &to)
    };
    for try_number in 1..=40 {
        match fetch(settings(Duration::from_secs(5)), &request) {
            Ok(got) => {
                assert_eq!((got.size, got.sha256), (size, digest(&file)), "seed {seed}");
                assert_eq!(fs_err::read(&to).unwrap(), *file, "seed {seed}");
                assert_eq!(names(folder.path()), ["model.gguf"], "seed {seed}");
                let run = if try_number > 3 { "4 to 40".to_owned() } else { try_number.to_string() };
                return format!("done in run {run}");
            }
            Err(error) => {
                assert!(!to.exists(), "seed {seed}: {error}");
                assert!(["S0601", "S0603", "S0604"].contains(&error.code().id), "seed {seed}: {error}");
            }
        }
    }
    panic!("seed {seed}: never done");
}

#[test]
fn seeded_faults_give_no_corrupt_file_and_no_wrong_end() {
    let counts: Arc<Vec<AtomicU64>> = Arc::new(FAULTS.iter().map(|_| AtomicU64::new(0)).collect());
    let (next, all) = (AtomicU64::new(0), runs());
    let ends: Mutex<BTreeMap<String, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= all {
                        return;
                    }
                    let end = one_run(seed, &counts);
                    *ends.lock().unwrap().entry(end).or_insert(0) += 1;
                }
            });
        }
    });
    let ends = ends.into_inner().unwrap();
    assert_eq!(ends.values().sum::<u64>(), all);
    println!("{all} runs, 0 corrupt files, 0 wrong ends: {ends:?}");
    for (name, count) in FAULTS.iter().zip(counts.iter()) {
        println!("  {name}: {}", count.load(Ordering::Relaxed));
    }
}

#[test]
fn a_poisoned_mirror_is_named_and_dropped() {
    let file = Arc::new(body(&serde_json::json!({ "size": 5 * CHUNK + 9, "seed": "good" })));
    let mut bad = file.to_vec();
    bad[3 * usize::try_from(CHUNK).unwrap()] ^= 1;
    let serve = |file: Vec<u8>| {
        Faultd::start(move |asked| match asked.range {
            Some((first, last)) => part_of(&file, first, last, Some("\"x\"")),
            None => whole(&file, Some("\"x\"")),
        })
        .unwrap()
    };
    let (poisoned, good) = (serve(bad), serve(file.to_vec()));
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("model.gguf");
    let request = Request {
        sources: vec![format!("{}/m", poisoned.url()), format!("{}/m", good.url())],
        size: Some(file.len() as u64),
        sha256: Some(digest(&file)),
        ..request("", &to)
    };
    let notes = Notes::default();
    let fetcher = Fetcher::new(settings(Duration::from_secs(2))).unwrap();
    let got = fetcher.fetch(std::slice::from_ref(&request), &notes, &CancelFlag::default()).unwrap();
    assert_eq!(got[0].source, format!("{}/m", good.url()));
    let notes = notes.0.lock().unwrap();
    assert!(notes.iter().any(|note| note.contains(&poisoned.url()) && note.contains("dropped")), "{notes:?}");
    assert_eq!(fs_err::read(to).unwrap(), *file);
}

#[test]
fn a_stopped_fetch_goes_on_without_what_it_has() {
    let file = Arc::new(body(&serde_json::json!({ "size": 40 * CHUNK, "seed": "resume" })));
    let served = Arc::clone(&file);
    let server = Faultd::start(move |asked| {
        let (first, last) = asked.range.unwrap_or((0, None));
        Reply { drip: Some((2048, Duration::from_millis(8))), ..part_of(&served, first, last, Some("\"x\"")) }
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let request =
        Request { size: Some(file.len() as u64), ..request(&format!("{}/m", server.url()), &folder.path().join("m")) };
    let mut kills = 0;
    let got = loop {
        let cancel = CancelFlag::default();
        let fetcher = Fetcher::new(settings(Duration::from_secs(5))).unwrap();
        let stopper = cancel.clone();
        let timer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(120));
            stopper.cancel();
        });
        let result = fetcher.fetch(std::slice::from_ref(&request), &Notes::default(), &cancel);
        timer.join().unwrap();
        match result {
            Ok(mut got) => break got.remove(0),
            Err(error) => assert_eq!(error.code().id, "S0007", "{error}"),
        }
        kills += 1;
        assert!(kills < 100, "it makes no progress");
    };
    assert_eq!(got.sha256, digest(&file));
    let extra = server.sent() - file.len() as u64;
    println!("{kills} stops, {extra} bytes more than the file's {}", file.len());
    assert!(kills > 2 && extra <= kills * 3 * CHUNK, "{kills} stops, {extra} bytes more");
}

#[test]
fn hours_of_bad_network_end_in_a_file() {
    let file = Arc::new(body(&serde_json::json!({ "size": 46 * CHUNK, "seed": "ninety" })));
    let served = Arc::clone(&file);
    // Answers break off until there were ninety cuts, some within a chunk and some behind one.
    let cuts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&cuts);
    let server = Faultd::start(move |asked| {
        let (first, last) = asked.range.unwrap_or((0, None));
        let mut reply = part_of(&served, first, last, Some("\"x\""));
        if counted.load(Ordering::Relaxed) < 90 && reply.body.len() > 4096 {
            counted.fetch_add(1, Ordering::Relaxed);
            reply.cut = Some(4096 + usize::try_from(random(asked.number) % 8192).unwrap());
        }
        reply
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let request = request(&format!("{}/m", server.url()), &folder.path().join("m"));
    let got = fetch(settings(Duration::from_secs(10)), &request).unwrap();
    assert_eq!(got.sha256, digest(&file));
    println!("one run over {} cuts", cuts.load(Ordering::Relaxed));
    assert_eq!(cuts.load(Ordering::Relaxed), 90);
    // What was there already is not sent again: a cut costs nothing.
    assert!(server.sent() <= file.len() as u64 + 3 * CHUNK, "{} sent", server.sent());
}

#[test]
fn a_name_that_does_not_resolve_is_waited_for_and_then_said() {
    let folder = tempfile::tempdir().unwrap();
    let request = request("http://no-such-host.invalid/model.gguf", &folder.path().join("m"));
    let error = fetch(settings(Duration::from_millis(300)), &request).unwrap_err();
    assert_eq!(error.code().id, "S0601", "{error}");
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    for bad in ["ftp://x.example/a", "hf:owner", "no address", "file:///etc/passwd"] {
        let request = Request { sources: vec![bad.to_owned()], ..request.clone() };
        assert_eq!(fetch(settings(Duration::ZERO), &request).unwrap_err().code().id, "S0607", "{bad}");
    }
    let request = Request { sources: vec!["pip:evil;rm==1/x".to_owned()], ..request };
    assert_eq!(fetch(settings(Duration::ZERO), &request).unwrap_err().code().id, "S0607");
}

#[test]
fn a_folder_that_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("file"), "x").unwrap();
    let request = request("http://127.0.0.1:9/m", &folder.path().join("file/m"));
    assert_eq!(fetch(settings(Duration::ZERO), &request).unwrap_err().code().id, "S0606");
}

#[test]
fn a_file_for_which_there_is_no_room_is_refused_before_its_first_byte() {
    let size = 1_u64 << 43;
    let server = Faultd::start(move |asked| {
        let range = ("Content-Range".to_owned(), format!("bytes 0-{}/{size}", CHUNK - 1));
        let body = vec![7; usize::try_from(asked.range.unwrap().1.unwrap() + 1).unwrap()];
        Reply { status: 206, headers: vec![range], body, ..Reply::default() }
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let request = request(&format!("{}/m", server.url()), &folder.path().join("m"));
    let error = fetch(settings(Duration::ZERO), &request).unwrap_err();
    assert_eq!(error.code().id, "S0609", "{error}");
    assert!(error.to_string().contains(&format!("{size} are needed")), "{error}");
    assert!(names(folder.path()).is_empty());
}
