//! What is there already: nothing is hashed or fetched twice, and nothing that is broken counts.

use crate::support::{CHUNK, Notes, digest, names, request, settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strata_diag::Diagnose;
use strata_faultd::scenario::body;
use strata_faultd::{Faultd, Reply, part_of, whole};
use strata_fetch::{CancelFlag, FetchError, Fetched, Fetcher, Request, audit};
use strata_manifest::Sha256Digest;

const CHUNKS: usize = 24;

fn file(seed: &str) -> Arc<Vec<u8>> {
    Arc::new(body(&serde_json::json!({ "size": CHUNKS as u64 * CHUNK - 77, "seed": seed })))
}

fn pieces(file: &[u8]) -> Vec<Sha256Digest> {
    file.chunks(usize::try_from(CHUNK).unwrap()).map(digest).collect()
}

fn serve(file: &Arc<Vec<u8>>) -> Faultd {
    let file = Arc::clone(file);
    Faultd::start(move |asked| match asked.range {
        Some((first, last)) => part_of(&file, first, last, Some("\"x\"")),
        None => whole(&file, Some("\"x\"")),
    })
    .unwrap()
}

/// A server that gives `most` bytes and then nothing.
fn serve_some(file: &Arc<Vec<u8>>, most: u64) -> Faultd {
    let file = Arc::clone(file);
    Faultd::start(move |asked| {
        let (first, last) = asked.range.unwrap();
        let reply = part_of(&file, first, last, Some("\"x\""));
        let cut = usize::try_from(most.saturating_sub(first)).unwrap();
        Reply { cut: Some(cut.min(reply.body.len())), ..reply }
    })
    .unwrap()
}

fn run(request: &Request, patience: Duration) -> (Result<Fetched, FetchError>, Vec<String>) {
    let notes = Notes::default();
    let fetcher = Fetcher::new(settings(patience)).unwrap();
    let result = fetcher.fetch(std::slice::from_ref(request), &notes, &CancelFlag::default());
    (result.map(|mut got| got.remove(0)), notes.0.into_inner().unwrap())
}

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(10);

/// A folder in which two thirds of the file are, from an earlier run.
fn begun(file: &Arc<Vec<u8>>) -> (tempfile::TempDir, Request) {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_some(file, file.len() as u64 * 2 / 3);
    let request = Request {
        size: Some(file.len() as u64),
        sha256: Some(digest(file)),
        ..request(&format!("{}/m", server.url()), &folder.path().join("m"))
    };
    let error = run(&request, SHORT).0.unwrap_err();
    assert_eq!(error.code().id, "S0601");
    (folder, request)
}

fn at(request: &Request, server: &Faultd) -> Request {
    Request { sources: vec![format!("{}/m", server.url())], ..request.clone() }
}

fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let mut options = fs_err::OpenOptions::new();
    let file = options.read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.file().read_exact_at(&mut byte, at).unwrap();
    file.file().write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_resume_hashes_nothing_again_and_an_audit_does() {
    let file = file("state");
    for audited in [false, true] {
        let (folder, request) = begun(&file);
        let journal = fs_err::read_to_string(folder.path().join(".m.part.chunks")).unwrap();
        assert!(journal.contains("\nh 14 ") && journal.contains("\ns "), "{journal}");
        // A byte that was hashed and made durable: who reads it again would notice.
        flip(&folder.path().join(".m.part"), 2 * CHUNK + 5);
        let server = serve(&file);
        let (got, notes) = run(&Request { audit: audited, ..at(&request, &server) }, LONG);
        assert_eq!(got.unwrap().sha256, digest(&file));
        let sent = server.sent();
        let right = fs_err::read(folder.path().join("m")).unwrap() == *file;
        assert_eq!(right, audited, "{notes:?}");
        let missing = file.len() as u64 / 3 + CHUNK + if audited { CHUNK } else { 0 };
        assert!(sent <= missing + 3 * CHUNK, "{sent} bytes were sent, {missing} were missing");
        assert_eq!(audited, notes.iter().any(|note| note.contains("1 of 15 chunks")), "{notes:?}");
    }
}

#[test]
fn chunks_that_a_crash_of_the_machine_may_have_lost_are_compared_and_fetched_again() {
    let file = file("crash");
    let (folder, request) = begun(&file);
    let path = folder.path().join(".m.part.chunks");
    // As if nothing had been made durable since the beginning.
    let journal = fs_err::read_to_string(&path).unwrap();
    let lines: Vec<&str> = journal.lines().filter(|line| !line.starts_with("s ")).collect();
    fs_err::write(&path, lines.join("\n") + "\n").unwrap();
    for chunk in [1, 9] {
        flip(&folder.path().join(".m.part"), chunk * CHUNK + 100);
    }
    let server = serve(&file);
    let (got, notes) = run(&at(&request, &server), LONG);
    assert_eq!(got.unwrap().sha256, digest(&file), "{notes:?}");
    assert_eq!(fs_err::read(folder.path().join("m")).unwrap(), *file);
    assert!(notes.iter().any(|note| note.contains("did not survive a crash")), "{notes:?}");
    let missing = file.len() as u64 / 3 + 3 * CHUNK;
    assert!(server.sent() <= missing + 3 * CHUNK, "{} were sent, {missing} were missing", server.sent());
    assert_eq!(names(folder.path()), ["m"]);
}

#[test]
fn a_poisoned_mirror_is_caught_at_its_first_chunk_and_what_others_gave_stays() {
    let good = file("good");
    let mut bad = good.to_vec();
    bad[usize::try_from(16 * CHUNK).unwrap()] ^= 1;
    let (folder, mut request) = begun(&good);
    request.chunks = pieces(&good);
    let (poisoned, honest) = (serve(&Arc::new(bad)), serve(&good));
    request.sources = vec![format!("{}/m", poisoned.url()), format!("{}/m", honest.url())];
    let (got, notes) = run(&request, LONG);
    assert_eq!(got.unwrap().source, format!("{}/m", honest.url()));
    assert_eq!(fs_err::read(folder.path().join("m")).unwrap(), *good);
    assert!(notes.iter().any(|note| note.contains(&poisoned.url()) && note.contains("dropped")), "{notes:?}");
    let (sent, missing) = (honest.sent(), good.len() as u64 / 3 + CHUNK);
    assert!(sent <= missing + 4 * CHUNK, "{sent} were sent by the honest one, {missing} were missing");
    // Alone it is refused, and the place in the file is named.
    let only = Request { sources: vec![format!("{}/m", poisoned.url())], to: folder.path().join("n"), ..request };
    let error = run(&only, LONG).0.unwrap_err();
    assert_eq!(error.code().id, "S0604");
    assert!(format!("{:?}", error.facts()).contains(&format!("chunk 16 ({CHUNK} bytes from")), "{:?}", error.facts());
    // A server without parts is found out at that place too, not at the end.
    let cut = Arc::new(good.to_vec());
    let streamed = Faultd::start(move |_| {
        let mut bytes = cut.to_vec();
        bytes[100] ^= 1;
        Reply { drip: Some((CHUNK as usize, Duration::from_millis(20))), ..whole(&bytes, None) }
    })
    .unwrap();
    let error = run(&Request { sources: vec![streamed.url() + "/m"], ..only }, LONG).0.unwrap_err();
    assert_eq!(error.code().id, "S0604");
    assert!(streamed.sent() < good.len() as u64 / 2, "{} were sent", streamed.sent());
}

#[test]
fn files_at_hand_are_taken_over_chunk_by_chunk() {
    let wanted = file("wanted");
    let digests = pieces(&wanted);
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs_err::write(&path, bytes).unwrap();
        path
    };
    let half = wanted.len() / 2;
    // An older version differs in two places; a download of aria2c has holes; one of curl is a beginning.
    let mut old = wanted.to_vec();
    old[10] ^= 1;
    old[half] ^= 1;
    let mut holes = wanted.to_vec();
    holes[usize::try_from(4 * CHUNK).unwrap()..usize::try_from(8 * CHUNK).unwrap()].fill(0);
    let mut spoilt = wanted[..half].to_vec();
    spoilt[usize::try_from(CHUNK).unwrap()] ^= 1;
    let chunk = CHUNK;
    let all = wanted.len() as u64;
    for (name, bytes, known, most) in [
        ("curl", wanted[..half].to_vec(), false, all / 2 + chunk),
        ("curl-digests", wanted[..half].to_vec(), true, all / 2 + chunk),
        ("aria2", holes, false, 4 * chunk),
        ("old", old, true, 2 * chunk),
        ("finished", wanted.to_vec(), false, 0),
        // Nothing but the whole's digest finds this out: then what was taken over is fetched, and no more.
        ("spoilt", spoilt, false, all),
    ] {
        let server = serve(&wanted);
        let request = Request {
            size: Some(all),
            sha256: Some(digest(&wanted)),
            chunks: if known { digests.clone() } else { Vec::new() },
            adopt: vec![put(name, &bytes)],
            ..request(&format!("{}/m", server.url()), &folder.path().join(format!("{name}.gguf")))
        };
        let (got, notes) = run(&request, LONG);
        assert_eq!(got.unwrap().sha256, digest(&wanted), "{name}: {notes:?}");
        assert_eq!(fs_err::read(&request.to).unwrap(), *wanted, "{name}");
        // What is on its way when another connection takes a run over is sent for nothing.
        let most = if most > 4 * chunk { most + 6 * chunk } else { most };
        assert!(server.sent() <= most, "{name}: {} were sent, {most} were missing", server.sent());
        // What it was taken from is as it was.
        assert_eq!(fs_err::read(folder.path().join(name)).unwrap(), bytes, "{name}");
    }
    // Without a digest nothing tells what a file is worth.
    let server = serve(&wanted);
    let to = folder.path().join("unknown");
    let request = Request { adopt: vec![folder.path().join("curl")], ..request(&format!("{}/m", server.url()), &to) };
    let (got, notes) = run(&request, LONG);
    assert_eq!(got.unwrap().sha256, digest(&wanted));
    assert!(server.sent() >= all);
    assert!(notes.iter().any(|note| note.contains("it is fetched whole")), "{notes:?}");
    let absent = Request {
        adopt: vec![folder.path().join("absent")],
        size: Some(all),
        sha256: Some(digest(&wanted)),
        to: folder.path().join("z"),
        ..request
    };
    assert_eq!(run(&absent, LONG).0.unwrap_err().code().id, "S0003");
}

#[test]
fn only_the_broken_chunks_of_a_damaged_file_are_fetched() {
    let wanted = file("mend");
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&wanted);
    let plain = request(&format!("{}/m", server.url()), &folder.path().join("m"));
    let first = run(&plain, LONG).0.unwrap();
    let pin = first.locked.clone().unwrap();
    assert_eq!(pin.pieces.as_ref().unwrap().sums(pin.size).unwrap().len(), CHUNKS);
    assert_eq!(pin.etag.as_deref(), Some("\"x\""));
    for known in ["digests", "sums"] {
        flip(&plain.to, 3 * CHUNK + 1);
        flip(&plain.to, 20 * CHUNK + 1);
        let mut options = fs_err::OpenOptions::new();
        options.write(true).open(&plain.to).unwrap().set_len(wanted.len() as u64 - 1).unwrap();
        let chunks = if known == "digests" { pieces(&wanted) } else { Vec::new() };
        let found = audit(&plain.to, CHUNK, &chunks, Some(&pin), &CancelFlag::default()).unwrap();
        assert_ne!(found.sha256, digest(&wanted));
        if known == "digests" {
            assert_eq!(found.broken, [3, 20, 23]);
        }
        let server = serve(&wanted);
        let request = Request {
            sources: vec![format!("{}/m", server.url())],
            size: Some(pin.size),
            sha256: Some(pin.sha256),
            chunks,
            pin: Some(pin.clone()),
            mend: true,
            ..plain.clone()
        };
        let (got, notes) = run(&request, LONG);
        assert_eq!(got.unwrap().sha256, digest(&wanted), "{notes:?}");
        assert_eq!(fs_err::read(&plain.to).unwrap(), *wanted);
        assert!(notes.iter().any(|note| note.contains("3 of 24 chunks are broken")), "{notes:?}");
        assert!(server.sent() <= 3 * CHUNK, "{} were sent", server.sent());
        assert_eq!(names(folder.path()), ["m"]);
    }
    let whole = audit(&plain.to, CHUNK, &[], Some(&pin), &CancelFlag::default()).unwrap();
    assert_eq!((whole.sha256, whole.broken), (digest(&wanted), Vec::new()));
}

#[test]
fn without_digest_and_validator_nothing_is_joined_over_two_runs() {
    let file = file("nothing");
    let folder = tempfile::tempdir().unwrap();
    let some = |most: u64| {
        let file = Arc::clone(&file);
        Faultd::start(move |asked| {
            let (first, last) = asked.range.unwrap_or((0, None));
            let reply = part_of(&file, first, last, None);
            let cut = usize::try_from(most.saturating_sub(first)).unwrap();
            Reply { cut: Some(cut.min(reply.body.len())), ..reply }
        })
        .unwrap()
    };
    let (first, second) = (some(file.len() as u64 / 2), some(u64::MAX));
    let request = request(&format!("{}/m", first.url()), &folder.path().join("m"));
    assert_eq!(run(&request, SHORT).0.unwrap_err().code().id, "S0601");
    let (got, notes) = run(&at(&request, &second), LONG);
    assert_eq!(got.unwrap().sha256, digest(&file));
    assert!(second.sent() >= file.len() as u64);
    assert!(notes.iter().any(|note| note.contains("neither digest nor validator")), "{notes:?}");
}
