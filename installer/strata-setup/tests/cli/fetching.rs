//! What the download engine can do, through the command line: lock files, the hub, files at hand, mending.

use crate::support::{Scene, done, refused};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use strata_faultd::hub::{Hub, Large, Repository};
use strata_manifest::{Document, Lock, Sha256Digest};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const CHUNK: u64 = 8 << 20;

/// Two and a half chunks of bytes.
fn shard(seed: u32) -> Vec<u8> {
    let page: Vec<u8> =
        (0..1000_u32).flat_map(|number| (number.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes()).collect();
    let pages = (0..5_300_u32).flat_map(|number| [number.to_le_bytes().to_vec(), page.clone()]);
    pages.collect::<Vec<_>>().concat()
}

fn hub() -> Hub {
    let files = vec![
        ("m-Q4_0-00001-of-00002.gguf".to_owned(), shard(1)),
        ("m-Q4_0-00002-of-00002.gguf".to_owned(), shard(2)),
        ("m-Q8_0.gguf".to_owned(), shard(3)),
    ];
    Hub::start(Repository { uses: 1, ..Repository::new("o/r", COMMIT, files) }).unwrap()
}

fn fetch(scene: &Scene, hub: &Hub, to: &str, model: &str, more: &[&str]) -> assert_cmd::Command {
    let mut command = scene.setup(&["fetch", "--backend", "cpu", "--allow-unsigned", "--model", model]);
    command.arg("--release").arg(scene.path("0.1.0")).arg("--to").arg(scene.path(to));
    command.arg("--root").arg(scene.path("root")).args(more).env("HF_ENDPOINT", hub.url());
    command
}

fn lock_of(path: &Path) -> Lock {
    Lock::read(path).unwrap()
}

#[test]
fn a_lock_file_pins_what_the_hub_said_and_locked_takes_nothing_else() {
    let (scene, hub) = (Scene::new(), hub());
    refused(&mut fetch(&scene, &hub, "a", "hf:o/r", &[]), 2, "S0612");
    refused(&mut fetch(&scene, &hub, "a", "hf:o/r:Q4_0", &["--locked"]), 1, "S0610");
    done(&mut fetch(&scene, &hub, "a", "hf:o/r:Q4_0", &[]));
    for (name, seed) in [("m-Q4_0-00001-of-00002.gguf", 1), ("m-Q4_0-00002-of-00002.gguf", 2)] {
        assert_eq!(fs_err::read(scene.path("a/models").join(name)).unwrap(), shard(seed), "{name}");
    }
    assert!(!scene.path("a/models/m-Q8_0.gguf").exists());
    let path = scene.path("a/models/strata.lock");
    let lock = lock_of(&path);
    assert_eq!(lock.files.len(), 2);
    let first = &lock.files[0];
    assert_eq!(first.source, "hf:o/r@main/m-Q4_0-00001-of-00002.gguf");
    assert_eq!(first.resolved.as_deref(), Some(&*format!("hf:o/r@{COMMIT}/m-Q4_0-00001-of-00002.gguf")));
    assert_eq!((first.size, first.sha256), (shard(1).len() as u64, Sha256Digest::of_bytes(&shard(1))));
    assert_eq!(first.pieces.as_ref().unwrap().sums(first.size).unwrap().len(), 3);
    assert!(!fs_err::read_to_string(&path).unwrap().contains("secret"));

    // Somebody pushes other bytes: with the lock the same command refuses them rather than taking them.
    hub.change(|repository| repository.files[0] = Large::new("m-Q4_0-00001-of-00002.gguf", shard(9)));
    let with_lock = ["--lock", path.to_str().unwrap(), "--locked"];
    let told = refused(&mut fetch(&scene, &hub, "b", "hf:o/r:Q4_0", &with_lock), 1, "S0604");
    assert!(told.err.contains("--update"), "{}", told.err);
    // The other half is taken over from what is there, without a byte from the store.
    let before = hub.store().sent();
    let one = "hf:o/r@main/m-Q4_0-00002-of-00002.gguf";
    let adopt = ["--adopt", &scene.text("a/models")];
    hub.change(|repository| repository.files[0] = Large::new("m-Q4_0-00001-of-00002.gguf", shard(1)));
    done(&mut fetch(&scene, &hub, "c", one, &[&with_lock[..], &adopt[..]].concat()));
    assert_eq!(hub.store().sent(), before);
    assert_eq!(fs_err::read(scene.path("c/models/m-Q4_0-00002-of-00002.gguf")).unwrap(), shard(2));
    // `--update` writes down what is there now.
    hub.change(|repository| repository.files[2] = Large::new("m-Q8_0.gguf", shard(7)));
    let update = ["--lock", path.to_str().unwrap(), "--update"];
    done(&mut fetch(&scene, &hub, "d", "hf:o/r@main/m-Q8_0.gguf", &update));
    assert_eq!(
        lock_of(&path).find("hf:o/r@main/m-Q8_0.gguf", "m-Q8_0.gguf").unwrap().sha256,
        Sha256Digest::of_bytes(&shard(7))
    );
}

#[test]
fn a_damaged_model_is_mended_chunk_by_chunk() {
    let (scene, hub) = (Scene::new(), hub());
    let mut install = scene.install("0.1.0", &["--model", "hf:o/r@main/m-Q8_0.gguf"]);
    done(install.env("HF_ENDPOINT", hub.url()));
    let model: PathBuf = scene.prefix().join("models/m-Q8_0.gguf");
    assert_eq!(fs_err::read(&model).unwrap(), shard(3));
    assert!(scene.prefix().join("models/strata.lock").is_file());
    let repair = |more: &[&str]| {
        let mut command = scene.setup(&["repair"]);
        command.arg("--prefix").arg(scene.prefix()).args(more).env("HF_ENDPOINT", hub.url());
        command
    };
    let told = done(&mut repair(&[]));
    assert!(told.out.contains("models: 1 files") && told.out.contains("all are as fetched"), "{}", told.out);
    let mut options = fs_err::OpenOptions::new();
    options.write(true).open(&model).unwrap().file().write_all_at(b"damaged", CHUNK + 7).unwrap();
    let told = crate::support::ran(&mut repair(&["--dry-run"]));
    assert_eq!(told.status, Some(1));
    assert!(told.out.contains("1 of its 8 MiB chunks are broken"), "{}", told.out);
    let before = hub.store().sent();
    let told = done(repair(&["--json"]).env("HF_ENDPOINT", hub.url()));
    let report = told.json();
    assert_eq!(report["mended_models"][0], model.to_str().unwrap(), "{report}");
    assert_eq!(hub.store().sent() - before, CHUNK);
    assert_eq!(fs_err::read(&model).unwrap(), shard(3));
    // One that is gone is fetched whole; nothing stays behind when all is removed.
    fs_err::remove_file(&model).unwrap();
    done(&mut repair(&[]));
    assert_eq!(fs_err::read(&model).unwrap(), shard(3));
    let mut uninstall = scene.setup(&["uninstall", "--models", "--yes"]);
    done(uninstall.arg("--prefix").arg(scene.prefix()));
    assert!(!scene.prefix().join("models").exists());
}
