//! Names and listings that come from elsewhere: what is fetched of them, and where it may lie.

use crate::support::{case, hub, settings};
use std::time::Duration;
use strata_diag::Diagnose;
use strata_fetch::{CancelFlag, Fetcher, Settings, Silent};
use strata_manifest::PackagePath;

#[test]
fn a_split_model_is_all_of_its_shards() {
    let Some(path) = case("b21-split-model/listing.json") else { return };
    let rows: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
    for row in rows.as_array().unwrap() {
        let names: Vec<&str> = row["files"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let files: Vec<(String, Vec<u8>)> =
            names.iter().map(|name| ((*name).to_owned(), format!("bytes of {name}").into_bytes())).collect();
        let hub = hub(files);
        let fetcher = Fetcher::new(Settings { hub: hub.url(), ..settings(Duration::from_secs(2)) }).unwrap();
        let want = row["want"].as_str().map(|want| format!(":{want}")).unwrap_or_default();
        let got = fetcher.hub(&format!("o/r{want}"), &Silent, &CancelFlag::default());
        if let Some(expected) = row["expect"].as_array() {
            let got: Vec<String> = got.unwrap().into_iter().map(|file| file.path).collect();
            assert_eq!(got, expected.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>(), "{row}");
            // Whichever shard is named, the set is meant.
            let one = fetcher.hub(&format!("o/r@main/{}", got[got.len() - 1]), &Silent, &CancelFlag::default());
            assert_eq!(one.unwrap().into_iter().map(|file| file.path).collect::<Vec<_>>(), got);
        } else {
            let (error, text) = (got.unwrap_err(), row["expect"].as_str().unwrap());
            let code = if text.contains("ambiguous") { "S0612" } else { "S0611" };
            assert_eq!(error.code().id, code, "{text}: {error}");
            let all = format!("{error} {:?}", error.facts());
            for word in ["Q4, Q8", "shard 2 of 3", "joined", "1..2"].iter().filter(|word| text.contains(**word)) {
                let word = word.replace("1..2", "from 1 to 2");
                assert!(all.contains(&word), "{all}");
            }
            let asked = hub.requests();
            assert!(asked.iter().all(|asked| asked.path.starts_with("/api/")), "something was fetched");
        }
    }
}

#[test]
fn a_name_from_the_network_is_a_plain_path_or_refused() {
    let Some(path) = case("b23-unsafe-file-names/names.tsv") else { return };
    let text = fs_err::read_to_string(path).unwrap();
    for line in text.lines() {
        let mut cells = line.split('\t');
        let (system, name, expected) =
            (cells.next().unwrap(), cells.next().unwrap().replace("\\u0000", "\0"), cells.next().unwrap_or_default());
        let local = name.parse::<PackagePath>();
        // Rows for Windows are held everywhere: a model folder may lie on a disk that Windows reads too.
        let refused = expected.contains("refuse");
        match local {
            Ok(path) => {
                assert!(!refused, "{system} {name:?} is taken as {path}");
                let below = path.below(std::path::Path::new("/models"));
                assert!(below.starts_with("/models") && below != std::path::Path::new("/models"), "{name:?}");
                assert_eq!(path.as_str(), name);
            }
            Err(why) => assert!(refused, "{system} {name:?} is refused: {why}"),
        }
    }
}
