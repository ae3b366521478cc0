//! Ways to a file: names and addresses that do not answer, the hub and its store, addresses that expire.

use crate::support::{CHUNK, COMMIT, Notes, digest, fetch, hub, request, settings};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strata_diag::Diagnose;
use strata_faultd::hub::Large;
use strata_faultd::scenario::body;
use strata_faultd::{Faultd, Reply, part_of, whole};
use strata_fetch::{CancelFlag, Fetcher, Names, Request, Settings, Silent};

const LONG: Duration = Duration::from_secs(10);

fn file(seed: &str, chunks: u64) -> Vec<u8> {
    body(&serde_json::json!({ "size": chunks * CHUNK + 5, "seed": seed }))
}

#[test]
fn a_black_holed_address_costs_a_moment_and_not_the_file() {
    let file = file("eyes", 6);
    let bytes = file.clone();
    let server = Faultd::start(move |asked| match asked.range {
        Some((first, last)) => part_of(&bytes, first, last, Some("\"x\"")),
        None => whole(&bytes, Some("\"x\"")),
    })
    .unwrap();
    // A listener of IPv6 whose queue is full: what knocks there hears nothing, not even a refusal.
    let Ok(hole) = rustix::net::socket(rustix::net::AddressFamily::INET6, rustix::net::SocketType::STREAM, None) else {
        println!("skipped: no IPv6");
        return;
    };
    let address = std::net::SocketAddrV6::new(Ipv6Addr::LOCALHOST, server.address().port(), 0, 0);
    rustix::net::sockopt::set_ipv6_v6only(&hole, true).unwrap();
    if rustix::net::bind(&hole, &address).is_err() || rustix::net::listen(&hole, 0).is_err() {
        println!("skipped: no IPv6");
        return;
    }
    let mut knocking = Vec::new();
    let timeout = Duration::from_millis(300);
    while let Ok(stream) = TcpStream::connect_timeout(&address.into(), timeout) {
        knocking.push(stream);
        assert!(knocking.len() < 100, "the queue does not fill");
    }
    let names = Names::new(|_| Ok(vec![IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)]));
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://model.example:{}/m", server.address().port());
    let began = Instant::now();
    let slow = Settings { names: Some(names), connect: LONG, stall: LONG, ..settings(LONG) };
    let got = fetch(slow, &request(&url, &folder.path().join("m"))).unwrap();
    assert_eq!(got.sha256, digest(&file));
    println!("fetched in {:?} past a black hole with {} knocking", began.elapsed(), knocking.len());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn names_that_are_gone_for_a_while_are_waited_for() {
    let file = file("dns", 12);
    let bytes = file.clone();
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let server = Faultd::start(move |asked| {
        let (first, last) = asked.range.unwrap();
        let reply = part_of(&bytes, first, last, Some("\"x\""));
        // Every connection is cut, so that every further byte needs the name again.
        let cut = (counted.fetch_add(1, Ordering::Relaxed) < 12).then_some(CHUNK as usize / 2);
        Reply { cut, ..reply }
    })
    .unwrap();
    let (began, asked) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let failures = Arc::clone(&asked);
    let names = Names::new(move |_| {
        let since = began.elapsed();
        if (Duration::from_millis(30)..Duration::from_secs(2)).contains(&since) {
            failures.fetch_add(1, Ordering::Relaxed);
            return Err(std::io::Error::other("Temporary failure in name resolution"));
        }
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    });
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://model.example:{}/m", server.address().port());
    let names = Settings { names: Some(names), ..settings(LONG) };
    let got = fetch(names, &request(&url, &folder.path().join("m"))).unwrap();
    assert_eq!(got.sha256, digest(&file));
    println!("{} questions for the name failed", asked.load(Ordering::Relaxed));
    assert!(asked.load(Ordering::Relaxed) > 2);
}

#[test]
fn signed_addresses_are_made_anew_and_neither_told_nor_kept() {
    let large = file("signed", 30);
    let hub = hub(vec![("m.gguf".to_owned(), large.clone())]);
    hub.change(|repository| {
        repository.uses = 2;
        repository.token = Some("hf_secret".to_owned());
    });
    let folder = tempfile::tempdir().unwrap();
    let request = request("hf:o/r@main/m.gguf", &folder.path().join("m.gguf"));
    let with = |hub_token: Option<&str>, patience| Settings {
        hub: hub.url(),
        hub_token: hub_token.map(str::to_owned),
        ..settings(patience)
    };
    let notes = Notes::default();
    let cancel = CancelFlag::default();
    let got = Fetcher::new(with(Some("hf_secret"), LONG))
        .unwrap()
        .fetch(std::slice::from_ref(&request), &notes, &cancel)
        .unwrap();
    assert_eq!(got[0].sha256, digest(&large));
    let locked = got[0].locked.clone().unwrap();
    assert_eq!(locked.resolved.as_deref(), Some(&*format!("hf:o/r@{COMMIT}/m.gguf")));
    let said = format!("{:?} {locked:?} {:?}", notes.0.lock().unwrap(), got[0]);
    assert!(!said.contains("secret"), "{said}");
    assert!(hub.store().requests().iter().all(|asked| !asked.headers.contains_key("authorization")));
    assert!(hub.requests().iter().all(|asked| asked.headers["authorization"] == "Bearer hf_secret"));
    let signatures: std::collections::BTreeSet<String> =
        hub.store().requests().into_iter().map(|asked| asked.path).collect();
    assert!(signatures.len() > 3, "{signatures:?}");
    // An unfinished file's journal holds nothing secret either.
    let stopped = Request { to: folder.path().join("n.gguf"), ..request.clone() };
    let stop = CancelFlag::default();
    let later = stop.clone();
    let slow = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(60));
        later.cancel();
    });
    let _ = Fetcher::new(with(Some("hf_secret"), LONG)).unwrap().fetch(&[stopped], &notes, &stop);
    slow.join().unwrap();
    for entry in fs_err::read_dir(folder.path()).unwrap() {
        let bytes = fs_err::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"secret"));
    }
    // Who may not have it is told so at once, in the hub's own words.
    for (token, terms, status) in [(None, false, 401), (Some("other"), false, 401), (Some("hf_secret"), true, 403)] {
        hub.change(|repository| repository.terms = terms);
        let request = Request { to: folder.path().join("x"), ..request.clone() };
        let began = Instant::now();
        let error = fetch(with(token, LONG), &request).unwrap_err();
        assert_eq!(error.code().id, "S0602", "{error}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        assert!(format!("{:?}", error.facts()).contains("restricted"), "{:?}", error.facts());
        assert!(error.hints()[0].contains("HF_TOKEN") && began.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn a_store_that_refuses_for_good_is_believed_after_some_tries() {
    let store = Faultd::start(|_| Reply { status: 403, ..Reply::default() }).unwrap();
    let address = store.url();
    let origin = Faultd::start(move |_| Reply {
        status: 302,
        headers: vec![("Location".to_owned(), format!("{address}/x?sig=secret"))],
        ..Reply::default()
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = fetch(settings(LONG), &request(&format!("{}/m", origin.url()), &folder.path().join("m"))).unwrap_err();
    assert_eq!(error.code().id, "S0602", "{error}");
    assert!(!error.to_string().contains("secret") && store.requests().len() < 10);
}

#[test]
fn the_hubs_branch_may_move_on_while_a_lock_holds_what_was() {
    let (old, new) = (file("old", 4), file("new", 4));
    let hub = hub(vec![("Q4/m.gguf".to_owned(), old.clone())]);
    hub.change(|repository| repository.page = 1);
    hub.change(|repository| repository.small.push(("README.md".to_owned(), b"# a model".to_vec())));
    let fetcher = Fetcher::new(Settings { hub: hub.url(), ..settings(LONG) }).unwrap();
    let files = fetcher.hub("o/r:Q4", &Silent, &CancelFlag::default()).unwrap();
    assert_eq!((files.len(), files[0].size, files[0].path.as_str()), (1, old.len() as u64, "Q4/m.gguf"));
    let folder = tempfile::tempdir().unwrap();
    let wanted =
        |name: &str| Request { pin: files[0].pin.clone(), ..request(&files[0].source, &folder.path().join(name)) };
    let before = hub.requests().len();
    let got = fetcher.fetch(&[wanted("m.gguf")], &Silent, &CancelFlag::default()).unwrap();
    assert_eq!(got[0].sha256, digest(&old));
    // What is pinned is asked for by its commit, and nobody asks what it is.
    let asked: Vec<String> = hub.requests().split_off(before).into_iter().map(|asked| asked.path).collect();
    assert!(asked.iter().all(|path| path.contains(&format!("/resolve/{COMMIT}/"))), "{asked:?}");
    assert!(hub.requests()[before..].iter().all(|asked| asked.method == "GET"));
    let other = "f".repeat(40);
    hub.change(|repository| {
        repository.files = vec![Large::new("Q4/m.gguf", new.clone())];
        repository.commit.clone_from(&other);
    });
    // The old commit is gone from this hub: with the lock that is an error, without it the new file comes.
    let error = fetcher.fetch(&[wanted("n.gguf")], &Silent, &CancelFlag::default()).unwrap_err();
    assert_eq!(error.code().id, "S0602", "{error}");
    let free = Request { pin: None, ..wanted("n.gguf") };
    let got = fetcher.fetch(&[free], &Silent, &CancelFlag::default()).unwrap();
    assert_eq!(got[0].sha256, digest(&new));
    assert!(got[0].locked.as_ref().unwrap().resolved.as_ref().unwrap().contains(&other));
    // A file that is no large one has no SHA-256 at the hub; it comes all the same.
    let small = request("hf:o/r@main/README.md", &folder.path().join("README.md"));
    assert_eq!(fetcher.fetch(&[small], &Silent, &CancelFlag::default()).unwrap()[0].size, 9);
    for (source, code) in [("hf:o/r@main/absent.gguf", "S0602"), ("hf:o/other@main/m.gguf", "S0602")] {
        let request = request(source, &folder.path().join("absent"));
        let error = fetcher.fetch(&[request], &Silent, &CancelFlag::default()).unwrap_err();
        assert_eq!(error.code().id, code, "{error}");
    }
}

#[test]
fn a_hub_that_is_away_for_a_moment_is_asked_again() {
    let large = file("away", 2);
    let hub = hub(vec![("m.gguf".to_owned(), large.clone())]);
    let (target, count) = (hub.url(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&count);
    // In front of the hub, a gateway that is overloaded at first.
    let gate = Faultd::start(move |asked| {
        if counted.fetch_add(1, Ordering::Relaxed) < 3 {
            return Reply { status: 503, ..Reply::default() };
        }
        let location = format!("{target}{}", asked.path);
        Reply { status: 307, headers: vec![("Location".to_owned(), location)], ..Reply::default() }
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { hub: gate.url(), ..settings(LONG) };
    let got = fetch(settings, &request("hf:o/r@main/m.gguf", &folder.path().join("m.gguf"))).unwrap();
    assert_eq!(got.sha256, digest(&large));
}
