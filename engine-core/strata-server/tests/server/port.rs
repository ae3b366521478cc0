//! Addresses that are taken, that do not exist, that need a key.

use crate::support::Script;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strata_diag::Diagnose;
use strata_server::{Server, ServerError, ServerOptions};

fn start(address: &str) -> (Result<Server, ServerError>, bool) {
    static NOBODY: AtomicBool = AtomicBool::new(false);
    NOBODY.store(false, Ordering::SeqCst);
    let options = ServerOptions::new(vec![address.parse().unwrap()], Arc::new(|_| {}));
    let touched = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&touched);
    let server = Server::start(
        options,
        Box::new(move |_| {
            mark.store(true, Ordering::SeqCst);
            Ok(Arc::new(crate::support::Scripted::new(Script::default(), Arc::default())))
        }),
    );
    (server, touched.load(Ordering::SeqCst))
}

#[test]
fn e22_port_taken() {
    for held in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let Ok(holder) = TcpListener::bind(held) else {
            println!("skipped: this machine has no {held}");
            continue;
        };
        let port = holder.local_addr().unwrap().port();
        let begun = Instant::now();
        let (server, touched) = start(&format!("127.0.0.1:{port}"));
        let error = server.err().unwrap_or_else(|| panic!("{held} was shared"));
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert!(!touched, "the model is not read");
        assert_eq!(error.code().id, "S0801");
        let text = error.to_string();
        assert!(text.contains("127.0.0.1") && text.contains(&port.to_string()), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        assert!(error.hints()[0].contains("--port"));
    }
}

#[test]
fn e22_two_at_once_and_again_after_a_stop() {
    let (first, _) = start("127.0.0.1:0");
    let first = first.unwrap();
    let address = first.addresses()[0].to_string();
    let (second, _) = start(&address);
    assert_eq!(second.err().unwrap().code().id, "S0801");
    // A connection that the server closes first lies in TIME_WAIT afterwards.
    let stopper = first.stopper();
    {
        use std::io::{Read, Write};
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
    }
    stopper.stop();
    first.run();
    let (again, _) = start(&address);
    let again = again.unwrap();
    again.stopper().stop();
    again.run();
}

#[test]
fn an_address_of_nobody_here_is_refused() {
    // An address for documentation, which no machine has.
    let mut options = ServerOptions::new(vec!["192.0.2.1:0".parse().unwrap()], Arc::new(|_| {}));
    options.no_key = true;
    let error = Server::start(options, Box::new(|_| panic!("not reached"))).err().unwrap();
    assert_eq!(error.code().id, "S0802");
    let (server, _) = start("0.0.0.0:0");
    let error = server.err().unwrap();
    assert_eq!(error.code().id, "S0803");
    assert!(error.hints().iter().any(|hint| hint.contains("--no-api-key")));
    let bad = strata_server::Keys::default().add("short").unwrap_err();
    assert_eq!(bad.code().id, "S0804");
}
