//! `strata-faultd SCENARIO.json`: plays a scenario on loopback, prints each server's address, and goes on
//! until it is ended.

use std::process::ExitCode;
use strata_faultd::scenario::Playing;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a development tool's output")]
fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: strata-faultd SCENARIO.json");
        return ExitCode::from(2);
    };
    let playing =
        fs_err::read_to_string(&path).map_err(|error| error.to_string()).and_then(|text| Playing::start(&text));
    match playing {
        Ok(playing) => {
            for name in playing.names() {
                println!("{name} {}", playing.url(name));
            }
            loop {
                std::thread::park();
            }
        }
        Err(why) => {
            eprintln!("strata-faultd: {why}");
            ExitCode::FAILURE
        }
    }
}
