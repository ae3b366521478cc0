//! Any bytes as an archive: verified as through a pipe, then unpacked. The first byte says whether the
//! rest is taken as it is or compressed first, since no fuzzer finds its way through a checksum.
//! Whatever comes: a report whose words are printable, and nothing written beside the folder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use strata_manifest::{Sha256Digest, UtcTime};
use strata_package::archive_write::{Gzip, zstd};
use strata_package::unpack::unpack;
use strata_package::verify::{Silent, VerifyOptions, verify_stream};

fn wrapped(how: u8, bytes: &[u8]) -> Vec<u8> {
    match how % 3 {
        1 => {
            let mut gzip = Gzip::new(Vec::new()).unwrap();
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        }
        2 => {
            let mut zstd = zstd(Vec::new()).unwrap();
            zstd.write_all(bytes).unwrap();
            zstd.finish().unwrap()
        }
        _ => bytes.to_vec(),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let archive = wrapped(*how, bytes);
    let options = VerifyOptions::at(UtcTime::from_seconds(1_800_000_000));
    let report = verify_stream(archive.as_slice(), &options, &Silent).unwrap();
    for finding in &report.findings {
        let words = [Some(&finding.message), finding.path.as_ref()];
        assert!(words.into_iter().flatten().all(|word| !word.contains(['\n', '\r', '\x1b', '\0'])), "{finding:?}");
    }
    let room = tempfile::tempdir().unwrap();
    let (file, folder) = (room.path().join("a"), room.path().join("b"));
    std::fs::write(&file, &archive).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let (digest, size) = Sha256Digest::of_reader(archive.as_slice()).unwrap();
    let unpacked = unpack(&file, &folder, size, digest);
    // Packages of other people can be right and are not unpacked.
    if report.is_clean() && !report.components.is_empty() {
        unpacked.unwrap();
    }
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 2);
});
