//! Single mutants of sound packages: every one must be found, and nothing in the sound ones.
//!
//! Each mutant is one change to one package. Some are changes to the tree (and there those that only
//! one law can see: the manifest, descriptor and bills are made to fit again), some to the archive's
//! bytes, some to a release folder. All choices come from one seed.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and prints its counts")]

mod base;
mod release;
mod tree;
mod trees;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use strata_manifest::{BackendKind, UtcTime};
use strata_package::archive_write::Format;
use strata_package::verify::{Silent, VerifyOptions, verify};
use tree::{Tree, pack_gz, pack_zst};

/// A small generator of the xorshift family: the same mutants on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// One changed thing, laid out to be looked at.
enum Mutant {
    Archive(Format, Vec<u8>),
    Folder(Tree),
}

/// What was caught and what was not, by kind of change.
#[derive(Default)]
struct Tally {
    caught: BTreeMap<String, u64>,
    survived: Vec<String>,
    codes: BTreeMap<&'static str, u64>,
    /// Each mutant with what was found in it.
    told: Vec<(String, Vec<&'static str>)>,
}

/// Words (with `&` between) that a mutant's kind and change hold, and the code that is then among the findings.
const EXPECTED: &[(&str, &str)] = &[
    ("tar.gz tar tail", "S0502"),
    ("component.json.bak", "S0512"),
    ("manifest text: compact", "S0502"),
    ("manifest text: unknown schema", "S0511"),
    ("folder dropped&-cpu/component.json", "S0510"),
    ("folder dropped&-cpu/share/notes/one.md", "S0513"),
    ("content: a byte in", "S0514"),
    ("folder mode", "S0515"),
    ("law of ELF files: other version", "S0516"),
    ("law of ELF files: owner of the note", "S0517"),
    ("law of ELF files: build path RUNPATH", "S0519"),
    ("law of ELF files: executable stack", "S0521"),
    ("law of ELF files: second export", "S0522"),
    ("law of GPU code", "S0523"),
    ("descriptor: layout", "S0525"),
    ("stale bill", "S0526"),
    ("law of ELF files: build path text", "S0527"),
    ("law of ELF files: class", "S0528"),
    ("law of ELF files: machine", "S0536"),
    ("index says otherwise: manifest digest", "S0530"),
    ("key list: by a stranger", "S0567"),
    ("replayed", "S0568"),
];

impl Tally {
    fn count(&mut self, kind: &str, what: &str, found: Option<Vec<&'static str>>) {
        self.told.push((format!("{kind}: {what}"), found.clone().unwrap_or_default()));
        match found {
            Some(codes) => {
                *self.caught.entry(kind.to_owned()).or_default() += 1;
                for code in codes {
                    *self.codes.entry(code).or_default() += 1;
                }
            }
            None => self.survived.push(format!("{kind}: {what}")),
        }
    }
}

pub(crate) fn at() -> UtcTime {
    UtcTime::from_seconds(1_700_100_000)
}

/// The codes of what is found, or `None` when nothing is.
pub(crate) fn found(target: &Path, options: &VerifyOptions) -> Option<Vec<&'static str>> {
    match verify(target, options, &Silent) {
        Ok(report) if report.is_clean() => None,
        Ok(report) => Some(report.counts.keys().copied().collect()),
        Err(_) => Some(vec!["unreadable"]),
    }
}

struct Sound {
    name: &'static str,
    tree: Tree,
    archives: BTreeMap<Format, Vec<u8>>,
}

fn sound(scene: &Path, name: &'static str, kind: BackendKind) -> Option<Sound> {
    let folder = scene.join(name);
    fs_err::create_dir_all(&folder).unwrap();
    let component = base::package(&folder, kind)?;
    let archive = |format: Format| folder.join("out").join(format!("{}.{}", component.stem(), format.suffix()));
    let unpacked = folder.join("unpacked");
    fs_err::create_dir_all(&unpacked).unwrap();
    let digests = strata_package::index::Digests::of_file(&archive(Format::TarGz)).unwrap();
    strata_package::unpack::unpack(&archive(Format::TarGz), &unpacked, digests.size, digests.sha256).unwrap();
    let archives = Format::ALL.map(|format| (format, fs_err::read(archive(format)).unwrap()));
    Some(Sound { name, tree: Tree::read(&component, &unpacked), archives: BTreeMap::from(archives) })
}

/// False alarms: the sound packages in every form, and the writer of this test against the real one.
fn check_sound(sound: &Sound, scene: &Path) {
    let options = VerifyOptions::at(at());
    for format in Format::ALL {
        let ours = sound.tree.archive(format).unwrap();
        assert!(ours == sound.archives[&format], "this test does not write what the packager writes: {format:?}");
        let path = scene.join(format!("{}.{}", sound.tree.stem, format.suffix()));
        fs_err::write(&path, &ours).unwrap();
        assert_eq!(found(&path, &options), None, "{} as {format:?}", sound.name);
    }
    let folder = scene.join(format!("{}-folder", sound.name));
    fs_err::create_dir_all(&folder).unwrap();
    sound.tree.lay(&folder).unwrap();
    let report = verify(&folder, &options, &Silent).unwrap();
    assert!(report.is_clean(), "{} as a folder: {:?}", sound.name, report.findings);
    // Made to fit again without a change, it is what it was.
    let mut repaired = sound.tree.clone();
    repaired.repair(|_| {});
    assert_eq!(repaired.entries, sound.tree.entries);
}

/// Changes to the bytes of an archive: bits everywhere, and where headers lie; cuts, tails, doubled parts.
fn byte_mutants(sound: &Sound, rng: &mut Rng) -> Vec<(String, String, Mutant)> {
    let mut mutants = Vec::new();
    for (format, bytes) in &sound.archives {
        let mut add = |kind: &str, what: String, bytes: Vec<u8>| {
            mutants.push((format!("{} {kind}", format.suffix()), what, Mutant::Archive(*format, bytes)));
        };
        let flipped = |at: usize, bit: usize| {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            changed
        };
        // Every bit of the beginning and of the end, where headers and trailers are.
        for at in (0..40).chain(bytes.len() - 40..bytes.len()) {
            let bit = rng.below(8);
            add("bit of an edge", format!("byte {at} bit {bit}"), flipped(at, bit));
        }
        for _ in 0..90 {
            let (at, bit) = (rng.below(bytes.len()), rng.below(8));
            add("bit", format!("byte {at} bit {bit}"), flipped(at, bit));
        }
        for _ in 0..30 {
            let at = rng.below(bytes.len());
            add("cut", format!("{at} of {} bytes", bytes.len()), bytes[..at].to_vec());
        }
        for tail in [
            &b"\0"[..],
            b"\n",
            &[0; 512],
            &[0; 10_240],
            b"PK\x05\x06",
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0\0\0\0\0\0\0\0\0",
            b"\x28\xb5\x2f\xfd",
        ] {
            add("tail", format!("{} bytes more", tail.len()), [&bytes[..], tail].concat());
        }
        add("tail", "twice".to_owned(), [&bytes[..], bytes].concat());
        for _ in 0..20 {
            let (at, length) = (rng.below(bytes.len()), 1 + rng.below(64));
            let mut changed = bytes.clone();
            changed.splice(at..at, vec![0_u8; length]);
            add("inserted", format!("{length} zeros at {at}"), changed);
        }
    }
    // The same below the compression, compressed as it should be.
    let tar = sound.tree.tar();
    for (format, pack) in [(Format::TarGz, pack_gz as fn(&[u8]) -> Vec<u8>), (Format::TarZst, pack_zst)] {
        let mut add = |kind: &str, what: String, tar: &[u8]| {
            mutants.push((format!("{} {kind}", format.suffix()), what, Mutant::Archive(format, pack(tar))));
        };
        for _ in 0..150 {
            let (at, bit) = (rng.below(tar.len()), rng.below(8));
            let mut changed = tar.clone();
            changed[at] ^= 1 << bit;
            add("bit of the tar", format!("byte {at} bit {bit}"), &changed);
            // In a header, with a sum that is right.
            let header = rng.below(6) * 512;
            let at = header + rng.below(500);
            let mut changed = tar.clone();
            changed[at] ^= 1 << bit;
            if changed[header + 257..header + 262] == *b"ustar" {
                tree::sum(&mut changed[header..header + 512]);
            }
            // In the sum itself, the right sum takes it back.
            if changed != tar {
                add("bit of a tar header", format!("byte {at} bit {bit}"), &changed);
            }
        }
        for blocks in 1..12 {
            let mut changed = tar.clone();
            changed.extend(vec![0_u8; 512 * blocks]);
            add("tar tail", format!("{blocks} blocks more"), &changed);
            add("tar cut", format!("{blocks} blocks fewer"), &tar[..tar.len() - 512 * blocks]);
        }
    }
    mutants
}

#[test]
fn every_single_mutant_is_found_and_nothing_else() {
    let scene = tempfile::tempdir().unwrap();
    let kinds = [("cpu", BackendKind::Cpu), ("gpu", BackendKind::Hip)];
    let mut sounds = Vec::new();
    for (name, kind) in kinds {
        let Some(sound) = sound(scene.path(), name, kind) else { return };
        check_sound(&sound, scene.path());
        sounds.push(sound);
    }
    let mut rng = Rng(0x5714_7a00_0000_0001);
    let mut work: Vec<(PathBuf, String, String, Mutant)> = Vec::new();
    for sound in &sounds {
        let mut mutants = byte_mutants(sound, &mut rng);
        for (number, (kind, what, tree)) in trees::mutants(&sound.tree, scene.path(), &mut rng).into_iter().enumerate()
        {
            // Each tree goes into the next format that has room for it, so that all formats see all kinds.
            let formats = [0, 1, 2].map(|step| Format::ALL[(number + step) % 3]);
            let archive = formats.into_iter().find_map(|format| Some((format, tree.archive(format)?)));
            if let Some((format, bytes)) = archive {
                mutants.push((format!("{} {kind}", format.suffix()), what.clone(), Mutant::Archive(format, bytes)));
            }
            // A folder that was unpacked is called what its owner likes.
            if kind != "version of the top folder" {
                mutants.push((format!("folder {kind}"), what, Mutant::Folder(tree)));
            }
        }
        let stem = &sound.tree.stem;
        work.extend(mutants.into_iter().map(|(kind, what, mutant)| (PathBuf::from(stem), kind, what, mutant)));
    }
    let tally = Mutex::new(Tally::default());
    let next = Mutex::new(work.into_iter().enumerate());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, std::num::NonZero::get) {
            scope.spawn(|| {
                loop {
                    let Some((number, (stem, kind, what, mutant))) = next.lock().unwrap().next() else { break };
                    let folder = scene.path().join(format!("m{number}"));
                    fs_err::create_dir_all(&folder).unwrap();
                    let options = VerifyOptions { threads: 1, ..VerifyOptions::at(at()) };
                    let result = match mutant {
                        Mutant::Archive(format, bytes) => {
                            let path = folder.join(format!("{}.{}", stem.display(), format.suffix()));
                            fs_err::write(&path, bytes).unwrap();
                            Some(found(&path, &options))
                        }
                        Mutant::Folder(tree) => {
                            tree.lay(&folder.join("p")).map(|()| found(&folder.join("p"), &options))
                        }
                    };
                    if let Some(result) = result {
                        tally.lock().unwrap().count(&kind, &what, result);
                    }
                    let _ = fs_err::remove_dir_all(&folder);
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap();
    release::mutants(&scene.path().join("cpu/out"), scene.path(), &mut rng, &mut |kind, what, result| {
        tally.count(kind, what, result);
    });
    let caught: u64 = tally.caught.values().sum();
    for (kind, count) in &tally.caught {
        println!("{count:5} {kind}");
    }
    println!("findings by code: {:?}", tally.codes);
    println!(
        "mutants: {}, caught {caught}, survived {}, false alarms on 8 sound forms and 1 sound release: 0",
        caught + tally.survived.len() as u64,
        tally.survived.len()
    );
    each_has_its_code(&tally);
    assert!(tally.survived.is_empty(), "survived:\n{}", tally.survived.join("\n"));
    assert!(caught >= 2000, "only {caught} mutants");
}

/// What was found in a mutant is what was changed.
fn each_has_its_code(tally: &Tally) {
    let mut wrong = Vec::new();
    for (words, code) in EXPECTED {
        let mut told =
            tally.told.iter().filter(|(mutant, _)| words.split('&').all(|word| mutant.contains(word))).peekable();
        if told.peek().is_none() {
            wrong.push(format!("no mutant is called `{words}`"));
        }
        let without = told.filter(|(_, codes)| !codes.contains(code));
        wrong.extend(without.map(|(mutant, codes)| format!("{code} is not among the findings of {mutant}: {codes:?}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_cut_archive_with_its_own_digest_is_not_unpacked() {
    let scene = tempfile::tempdir().unwrap();
    let Some(sound) = sound(scene.path(), "cpu", BackendKind::Cpu) else { return };
    for (format, bytes) in &sound.archives {
        let cut = scene.path().join(format!("{}.{}", sound.tree.stem, format.suffix()));
        fs_err::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        let digests = strata_package::index::Digests::of_file(&cut).unwrap();
        let into = scene.path().join(format!("into-{}", format.suffix()));
        fs_err::create_dir_all(&into).unwrap();
        let error = strata_package::unpack::unpack(&cut, &into, digests.size, digests.sha256).unwrap_err();
        assert_eq!(strata_diag::Diagnose::code(&error).id, "S0535", "{error}");
    }
}
