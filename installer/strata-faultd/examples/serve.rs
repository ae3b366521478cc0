//! `serve FILE`: serves one file with ranges on loopback, for measurements; prints its address, then every
//! second how many bytes it has sent.

use std::process::ExitCode;
use strata_faultd::{Faultd, of_disk};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a development tool's output")]
fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(std::path::PathBuf::from) else {
        eprintln!("usage: serve FILE");
        return ExitCode::from(2);
    };
    let served = fs_err::metadata(&path).and_then(|metadata| {
        let size = metadata.len();
        Faultd::start(move |asked| of_disk(&path, size, asked.range, None))
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
