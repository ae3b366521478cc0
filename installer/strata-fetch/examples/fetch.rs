//! `fetch URL FILE [CONNECTIONS]`: the engine alone, for measurements.

use std::path::Path;
use std::process::ExitCode;
use strata_fetch::{CancelFlag, Fetcher, Request, Settings, Silent};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a development tool's output")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let (Some(url), Some(to)) = (words.get(1), words.get(2)) else {
        eprintln!("usage: fetch URL FILE [CONNECTIONS]");
        return ExitCode::from(2);
    };
    let connections = words.get(3).and_then(|text| text.parse().ok()).unwrap_or(4);
    let settings = Settings { connections, ..Settings::from_environment() };
    let request =
        Request { name: to.clone(), sources: vec![url.clone()], to: Path::new(to).to_owned(), ..Request::default() };
    let fetched = Fetcher::new(settings).and_then(|fetcher| fetcher.fetch(&[request], &Silent, &CancelFlag::default()));
    match fetched {
        Ok(files) => {
            for file in files {
                println!("{} {}", file.sha256, file.size);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
