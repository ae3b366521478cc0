//! `serve FILE`: serves one file with ranges on loopback, for measurements; prints its address, then every
//! second how many bytes it has sent.

use std::process::ExitCode;
use strata_faultd::{Faultd, part_of, whole};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a development tool's output")]
fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: serve FILE");
        return ExitCode::from(2);
    };
    let served = fs_err::read(&path).and_then(|file| {
        Faultd::start(move |asked| match asked.range {
            Some((first, last)) => part_of(&file, first, last, Some("\"measured\"")),
            None => whole(&file, Some("\"measured\"")),
        })
    });
    match served {
        Ok(server) => {
            println!("{}/file", server.url());
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
                println!("{}", server.sent());
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
