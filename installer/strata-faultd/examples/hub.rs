//! `hub FOLDER`: the stand-in hub with the files of a folder as repository `o/r`, for trying clients out; prints
//! what `HF_ENDPOINT` is set to, then every second how many bytes the store has sent.

use std::process::ExitCode;
use std::time::Duration;
use strata_faultd::hub::{Hub, Repository};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a development tool's output")]
fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: hub FOLDER");
        return ExitCode::from(2);
    };
    let started = fs_err::read_dir(folder).and_then(|entries| {
        let file = |entry: std::io::Result<fs_err::DirEntry>| {
            let path = entry?.path();
            Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), fs_err::read(&path)?))
        };
        let files = entries.map(file).collect::<std::io::Result<Vec<_>>>()?;
        // About 25 MB a second over a connection: slow enough to be stopped in the middle.
        let drip = Some((256 << 10, Duration::from_millis(10)));
        Hub::start(Repository { drip, ..Repository::new("o/r", &"0123456789".repeat(4), files) })
    });
    match started {
        Ok(hub) => {
            println!("{}", hub.url());
            loop {
                std::thread::sleep(Duration::from_secs(1));
                println!("{}", hub.store().sent());
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
