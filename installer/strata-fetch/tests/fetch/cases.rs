//! Downloads of public reports: the reference data's scenarios, played by strata-faultd.

use crate::support::{case, digest, fetch, names, request, settings};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_diag::Diagnose;
use strata_faultd::scenario::{Playing, body};
use strata_fetch::{CancelFlag, FetchError, Fetcher, Observer, Request};

const SHORT: Duration = Duration::from_millis(400);

struct Play {
    playing: Playing,
    folder: tempfile::TempDir,
}

impl Play {
    fn of(path: &str) -> Option<Play> {
        let text = fs_err::read_to_string(case(path)?).unwrap();
        Some(Play { playing: Playing::start(&text).unwrap(), folder: tempfile::tempdir().unwrap() })
    }

    fn request(&self) -> Request {
        request(&format!("{}/model.gguf", self.playing.url("origin")), &self.to())
    }

    fn to(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }

    /// Run 1 is cut off in phase 1, run 2 meets phase 2.
    fn first_run_is_cut(&self) {
        let error = fetch(settings(SHORT), &self.request()).unwrap_err();
        assert_eq!(error.code().id, "S0601", "{error}");
        assert!(!self.to().exists());
        self.playing.set_phase(2);
    }
}

fn v1() -> Vec<u8> {
    body(&serde_json::json!({ "size": 100_000, "seed": "v1" }))
}

fn content(path: &Path) -> Vec<u8> {
    fs_err::read(path).unwrap()
}

#[test]
fn what_a_server_sends_after_a_cut_is_never_joined_blindly() {
    for path in
        ["b01-range-ignored/scenario.json", "b03-206-other-start/from-zero.json", "b03-206-other-start/overlap.json"]
    {
        let Some(play) = Play::of(path) else { return };
        play.first_run_is_cut();
        let got = fetch(settings(SHORT), &play.request()).unwrap();
        assert_eq!((got.size, content(&play.to()) == v1()), (100_000, true), "{path}");
        assert_eq!(names(play.folder.path()), ["model.gguf"], "{path}");
    }
}

#[test]
fn a_416_means_what_the_numbers_say() {
    let Some(long) = Play::of("b04-416-when-complete/long.json") else { return };
    long.first_run_is_cut();
    let got = fetch(settings(SHORT), &long.request()).unwrap();
    assert_eq!(got.size, 30_000);
    assert_eq!(got.sha256.to_string(), "1bfc8755814b458410cae25635da06d709a5b57a93df63f88249faad526fa864");
    for path in ["b04-416-when-complete/with-range.json", "b04-416-when-complete/bare.json"] {
        let play = Play::of(path).unwrap();
        play.playing.set_phase(2);
        assert_eq!(fetch(settings(SHORT), &play.request()).unwrap().sha256, digest(&v1()), "{path}");
    }
}

/// Puts a folder in the place of the file when the last byte is there, so that the run ends before the rename.
struct InTheWay(PathBuf);

impl Observer for InTheWay {
    fn advance(&self, _name: &str, done: u64) {
        if done == 100_000 {
            let _ = fs_err::create_dir(&self.0);
        }
    }
}

#[test]
fn a_complete_part_is_hashed_and_named_without_another_byte() {
    for path in ["b04-416-when-complete/with-range.json", "b04-416-when-complete/bare.json"] {
        let Some(play) = Play::of(path) else { return };
        let fetcher = Fetcher::new(settings(SHORT)).unwrap();
        let stopped = fetcher.fetch(&[play.request()], &InTheWay(play.to()), &CancelFlag::default());
        assert_eq!(stopped.unwrap_err().code().id, "S0606", "{path}");
        fs_err::remove_dir(play.to()).unwrap();
        play.playing.set_phase(2);
        let (before, asked) = {
            let server = play.playing.server("origin").unwrap();
            (server.sent(), server.requests().len())
        };
        let got = fetch(settings(SHORT), &play.request()).unwrap();
        let server = play.playing.server("origin").unwrap();
        assert_eq!((server.sent() - before, server.requests().len() - asked), (0, 0), "{path}");
        assert_eq!((got.sha256, content(&play.to()) == v1()), (digest(&v1()), true), "{path}");
        assert_eq!(names(play.folder.path()), ["model.gguf"], "{path}");
    }
}

#[test]
fn a_file_that_changed_is_fetched_whole_or_refused() {
    for path in ["b06-etag-changed/obeys.json", "b06-etag-changed/ignores.json"] {
        let Some(play) = Play::of(path) else { return };
        play.first_run_is_cut();
        let v2 = body(&serde_json::json!({ "size": 100_000, "seed": "v2" }));
        let got = fetch(settings(SHORT), &play.request()).unwrap();
        assert_eq!(got.sha256, digest(&v2), "{path}");
        let pinned = Play::of(path).unwrap();
        pinned.first_run_is_cut();
        let request = Request { sha256: Some(digest(&v1())), size: Some(100_000), ..pinned.request() };
        let error = fetch(settings(SHORT), &request).unwrap_err();
        assert_eq!(error.code().id, "S0604", "{error}");
        assert!(!pinned.to().exists());
    }
}

#[test]
fn a_page_is_no_model() {
    for (name, what) in
        [("page", "a web page"), ("lying", "a web page"), ("json", "a JSON text"), ("empty", "nothing at all")]
    {
        let Some(play) = Play::of(&format!("b08-page-instead-of-model/{name}.json")) else { return };
        let error = fetch(settings(SHORT), &play.request()).unwrap_err();
        assert_eq!(error.code().id, "S0603", "{error}");
        let host = play.playing.url("origin").replace("http://", "");
        assert!(error.to_string().contains(what) && error.to_string().contains(&host), "{error}");
        assert!(!play.to().exists(), "{name}");
    }
}

#[test]
fn a_token_stays_at_its_host() {
    let Some(play) = Play::of("b09-auth-across-hosts/scenario.json") else { return };
    let request = Request { authorization: Some("Bearer secret".to_owned()), ..play.request() };
    assert_eq!(fetch(settings(SHORT), &request).unwrap().sha256, digest(&v1()));
    let asked = |name: &str| play.playing.server(name).unwrap().requests();
    assert!(asked("origin").iter().all(|asked| asked.headers.contains_key("authorization")));
    assert!(!asked("cdn").is_empty() && asked("cdn").iter().all(|asked| !asked.headers.contains_key("authorization")));
    let error =
        fetch(settings(SHORT), &Request { to: play.folder.path().join("other"), ..play.request() }).unwrap_err();
    assert!(matches!(error, FetchError::Status { status: 401, .. }), "{error}");
    assert_eq!(error.code().id, "S0602");
}

#[test]
fn two_at_once_make_one_file() {
    let Some(play) = Play::of("b13-two-at-once/scenario.json") else { return };
    let requests: Vec<Request> = (0..3).map(|_| play.request()).collect();
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            requests.iter().map(|request| scope.spawn(|| fetch(settings(Duration::from_secs(20)), request))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for result in results {
        assert_eq!(result.unwrap().sha256, digest(&content(&play.to())));
    }
    assert_eq!(names(play.folder.path()), ["model.gguf"]);
    // A lock file that a killed run left says nothing.
    fs_err::write(play.folder.path().join(".again.gguf.part.lock"), "4711").unwrap();
    let again = Request { to: play.folder.path().join("again.gguf"), ..play.request() };
    fetch(settings(Duration::from_secs(20)), &again).unwrap();
}
