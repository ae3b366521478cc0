//! Sum lists: the dialects, a public case, and the stock tool.

use super::*;
use std::process::Command;

const ONE: &str = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
const TWO: &str = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35";

fn names(sums: &Sums) -> Vec<Option<String>> {
    let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
    sums.entries.iter().map(|entry| entry.name.as_ref().map(text)).collect()
}

fn only(text: &str) -> (Option<String>, Sha256Digest) {
    let sums = parse(text.as_bytes());
    assert_eq!((sums.entries.len(), sums.unreadable.len()), (1, 0), "{text:?}: {sums:?}");
    (names(&sums).remove(0), sums.entries[0].digest)
}

#[test]
fn every_dialect_says_the_same() {
    let upper = ONE.to_ascii_uppercase();
    let lines = [
        format!("{ONE}  a b.bin\n"),
        format!("{ONE} *a b.bin\n"),
        format!("{ONE} a b.bin"),
        format!("{upper}  a b.bin\r\n"),
        format!("\u{feff}{ONE}  a b.bin\r\n"),
        format!("SHA256 (a b.bin) = {ONE}\n"),
        format!("SHA2-256(a b.bin)= {upper}\n"),
        format!("sha256 (a b.bin) = {ONE}\r\n"),
        format!("# made by hand\n\n{ONE}  a b.bin\n"),
    ];
    for line in lines {
        assert_eq!(only(&line), (Some("a b.bin".to_owned()), ONE.parse().unwrap()), "{line:?}");
    }
    assert_eq!(only(&format!("SHA256 (x) = (y) = {ONE}")).0.unwrap(), "x) = (y");
    assert_eq!(only(&format!("{ONE}\n")).0, None);
    let wide: Vec<u8> = "\u{feff}"
        .encode_utf16()
        .chain(format!("{ONE}  a b.bin\r\n").encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(names(&parse(&wide)), [Some("a b.bin".to_owned())]);
}

#[test]
fn what_is_no_sha256_is_told_and_not_passed() {
    let text = format!(
        "{}  md5.bin\nSHA512 (x) = {ONE}{TWO}\nnot a sum\n\\{ONE}  bad\\q\n{}  short\n{ONE}  a\n{TWO}  a\n{TWO}  b\n",
        &ONE[..32],
        &ONE[..63]
    );
    let sums = parse(text.as_bytes());
    assert_eq!(names(&sums), [Some("b".to_owned())]);
    let why: Vec<(usize, Unread)> = sums.unreadable.iter().map(|line| (line.line, line.why)).collect();
    assert_eq!(
        why,
        [
            (1, Unread::OtherAlgorithm),
            (2, Unread::OtherAlgorithm),
            (3, Unread::UnknownForm),
            (4, Unread::BadName),
            (5, Unread::UnknownForm),
            (7, Unread::Contradiction)
        ]
    );
    for empty in ["", "\n\n", "# nothing\n", "\u{feff}"] {
        assert_eq!(parse(empty.as_bytes()), Sums::default(), "{empty:?}");
    }
}

#[test]
fn a_signed_text_is_read_and_said_to_be_unchecked() {
    let text = format!(
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{ONE}  a\n-----BEGIN PGP SIGNATURE-----\n\niQEzBAEBCAAdFiEE\n-----END PGP SIGNATURE-----\n"
    );
    let sums = parse(text.as_bytes());
    assert_eq!(names(&sums), [Some("a".to_owned())]);
    assert_eq!((sums.unreadable.len(), sums.notes.len()), (0, 1));
}

/// Case b20: names with blanks, marks, other scripts and escapes, written by GNU sha256sum.
#[test]
fn case_b20_sums_names() {
    let shared = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let case = shared.join("cases/b20-sums-names");
    let Ok(files) = fs_err::read_to_string(case.join("files.json")) else {
        println!("skipped: {} is not here", case.display());
        return;
    };
    let files: BTreeMap<String, String> = serde_json::from_str(&files).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in &files {
        fs_err::write(folder.path().join(name), content).unwrap();
    }
    let sums = read(&case.join("SUMS")).unwrap();
    assert_eq!(sums.unreadable, []);
    let all = check(&sums, folder.path(), &[]);
    assert_eq!(all.len(), files.len());
    assert!(all.iter().all(|check| check.result == SumResult::Verified), "{all:?}");
    // By name, each file alone.
    for name in files.keys() {
        let one = check(&sums, folder.path(), &[folder.path().join(name)]);
        assert_eq!(one[0].result, SumResult::Verified, "{name:?}");
    }
}

#[test]
fn files_that_differ_are_absent_or_lead_outside_are_each_named() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("good"), "1").unwrap();
    fs_err::write(folder.path().join("bad"), "3").unwrap();
    fs_err::create_dir(folder.path().join("folder")).unwrap();
    let text = format!("{ONE}  good\n{TWO}  bad\n{ONE}  gone\n{ONE}  ../good\n{ONE}  /etc/hostname\n{ONE}  folder\n");
    let results = |files: &[PathBuf]| -> Vec<SumResult> {
        check(&parse(text.as_bytes()), folder.path(), files).into_iter().map(|check| check.result).collect()
    };
    let all = results(&[]);
    assert_eq!(all[0], SumResult::Verified);
    assert!(matches!(all[1], SumResult::Differs { .. }));
    assert_eq!(all[2..5], [SumResult::Absent, SumResult::LeadsOutside, SumResult::LeadsOutside]);
    assert!(matches!(all[5], SumResult::Unreadable { .. }));
    assert_eq!(results(&[folder.path().join("other")]), [SumResult::NotListed]);
}

/// A digest that stands alone is for the one file that was given, never for several.
#[test]
fn a_digest_alone_is_for_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs_err::write(&path, "1").unwrap();
    let sums = parse(ONE.as_bytes());
    assert_eq!(check(&sums, folder.path(), std::slice::from_ref(&path))[0].result, SumResult::Verified);
    let two = check(&sums, folder.path(), &[path.clone(), path]);
    assert!(two.iter().all(|check| check.result == SumResult::NotListed));
    assert!(check(&sums, folder.path(), &[]).is_empty());
}

/// The stock tool's own output, for names that it escapes and names that it does not.
#[test]
fn the_stock_tool_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["plain", "two words", "back\\slash", "new\nline", "carriage\rreturn", "(x) = y", "*star", " blank"];
    for (index, name) in names.iter().enumerate() {
        fs_err::write(folder.path().join(name), index.to_string()).unwrap();
    }
    for flags in [&[][..], &["-b"], &["--tag"]] {
        let output = Command::new("sha256sum").args(flags).arg("--").args(names).current_dir(folder.path()).output();
        let Ok(output) = output else {
            println!("skipped: sha256sum is not here");
            return;
        };
        let sums = parse(&output.stdout);
        let all = check(&sums, folder.path(), &[]);
        assert_eq!(all.len(), names.len(), "{flags:?}: {sums:?}");
        assert!(all.iter().all(|check| check.result == SumResult::Verified), "{flags:?}: {all:?}");
    }
}

#[test]
fn a_name_with_two_digests_is_not_believed_however_often_one_comes() {
    for text in [format!("{ONE}  a\n{TWO}  a\n{TWO}  a\n"), format!("{ONE}  a\n{TWO}  ./a\n{TWO}  a\n{ONE}  a\n")] {
        let sums = parse(text.as_bytes());
        assert!(sums.entries.is_empty(), "{sums:?}");
        assert!(sums.unreadable.iter().any(|line| line.why == Unread::Contradiction));
    }
}
