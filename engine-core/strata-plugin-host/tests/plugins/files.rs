//! What lies where a plugin should lie and is none: noticed before anything is opened.

use crate::support::{Folder, expect, told};
use std::os::unix::fs::symlink;
use strata_plugin_host::{OpenOptions, Plugin, PluginEntry};

fn with_bytes(bytes: &[u8]) -> Folder {
    let folder = Folder::new();
    fs_err::write(folder.library(), bytes).unwrap();
    folder.describe(|_| {});
    folder
}

#[test]
fn d03_other_files_in_the_folder_of_plugins() {
    let sound = Folder::compiled(&[]);
    let bytes = fs_err::read(sound.library()).unwrap();
    expect(with_bytes(b"this is no library\n").open(), "plugin-file", "it is no ELF file");
    expect(with_bytes(b"").open(), "plugin-file", "the file is empty");
    // The first 512 bytes of a library: the loader would die of SIGBUS.
    expect(with_bytes(&bytes[..512]).open(), "plugin-file", "it is cut off");
    expect(with_bytes(&bytes[..40]).open(), "plugin-file", "the ELF header is cut off");

    let folder = Folder::new();
    fs_err::create_dir(folder.library()).unwrap();
    folder.describe(|_| {});
    expect(folder.open(), "plugin-file", "it is no regular file");

    let dangling = Folder::new();
    symlink("nowhere.so", dangling.library()).unwrap();
    dangling.describe(|_| {});
    expect(dangling.open(), "plugin-file", "it is a link that leads nowhere");

    let absent = Folder::new();
    absent.describe(|_| {});
    expect(absent.open(), "plugin-file", "No such file");

    let helper = Folder::new();
    let source = helper.dir.path().join("helper.c");
    fs_err::write(&source, "int strata_helper(void) { return 1; }\n").unwrap();
    helper.compile(&source, &[], &[]);
    helper.describe(|_| {});
    expect(helper.open_probed(), "plugin-entry", "no plugin entry point");
    // Without a descriptor nothing is even looked at: no folder is ever scanned.
    expect(
        PluginEntry::from_descriptor(&helper.dir.path().join("notes.plugin.json")),
        "plugin-descriptor",
        "cannot read",
    );
    assert_eq!(sound.open_probed().unwrap().name(), "test");
}

#[test]
fn every_cut_of_a_real_library_is_an_error() {
    let bytes = fs_err::read(Folder::compiled(&[]).library()).unwrap();
    let mut results = Vec::new();
    for len in (0..bytes.len()).step_by(997) {
        // A file of its own each time: one that passes is mapped until the end of this process. In a child
        // first: a cut that the check misses must not end this test.
        results.push(told(with_bytes(&bytes[..len]).open_probed()));
    }
    // Symbol names and section headers lie behind what the loader maps; a cut there harms nobody.
    let n_refused = results.iter().filter(|result| result.starts_with("plugin-file ")).count();
    assert!(n_refused > results.len() / 2, "{results:?}");
    assert!(results[n_refused..].iter().all(|result| result == "no failure"), "{results:?}");
}

#[test]
fn wrong_digest_and_size() {
    let folder = Folder::compiled(&[]);
    let mut bytes = fs_err::read(folder.library()).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs_err::write(folder.library(), &bytes).unwrap();
    let error = expect(folder.open(), "plugin-digest", "is not the file that its descriptor names");
    let facts = strata_diag::Diagnose::facts(&error);
    assert_eq!((facts[0].0, facts[1].0, facts[0].1.len(), facts[1].1.len()), ("expected", "got", 64, 64));
    bytes.push(0);
    fs_err::write(folder.library(), &bytes).unwrap();
    expect(
        folder.open(),
        "plugin-digest",
        &format!("has {} bytes, its descriptor says {}", bytes.len(), bytes.len() - 1),
    );
}

#[test]
fn wrong_machine() {
    let folder = Folder::compiled(&[]);
    folder.describe(|descriptor| descriptor.cpu_arch = "sparc64".to_owned());
    expect(folder.open(), "plugin-arch", "is for processor sparc64");
    folder.describe(|descriptor| descriptor.os = "plan9".to_owned());
    expect(folder.open(), "plugin-arch", "is for operating system plan9");
    // The descriptor says this machine, the file another.
    let mut bytes = fs_err::read(folder.library()).unwrap();
    bytes[18] = 22;
    let other = with_bytes(&bytes);
    expect(other.open(), "plugin-arch", "is for processor ELF machine 22");
    bytes[4] = 1;
    expect(with_bytes(&bytes).open(), "plugin-arch", "a 32-bit or big-endian processor");
}

#[test]
fn newer_c_library() {
    let folder = Folder::compiled(&[]);
    folder.describe(|descriptor| descriptor.libc_floor = Some("9.99".to_owned()));
    expect(folder.open(), "plugin-libc", "needs glibc 9.99");
    folder.describe(|descriptor| descriptor.libc_floor = Some("2.2".to_owned()));
    folder.open().unwrap();
}

#[test]
fn the_library_is_a_plain_name_in_the_folder_of_its_descriptor() {
    let folder = Folder::compiled(&[]);
    for name in ["../libtest.so", "/lib/libtest.so", "sub/libtest.so", "./libtest.so", "", ".", "..", "libtest.so/"] {
        folder.describe(|descriptor| descriptor.library = name.to_owned());
        expect(folder.open(), "plugin-descriptor", "is no plain file name");
    }
    let elsewhere = Folder::new();
    symlink(folder.library(), elsewhere.library()).unwrap();
    elsewhere.describe(|_| {});
    expect(elsewhere.open(), "plugin-file", "it is a link out of its folder");
    // A link to another file of the same folder is how versions are named.
    let versioned = Folder::compiled(&[]);
    fs_err::rename(versioned.library(), versioned.dir.path().join("libtest.so.1")).unwrap();
    symlink("libtest.so.1", versioned.library()).unwrap();
    versioned.open().unwrap();
}

#[test]
fn descriptors_that_cannot_be_read() {
    let folder = Folder::compiled(&[]);
    for text in [
        "",
        "{",
        "[]",
        "{\"schema\": \"strata-plugin/9.0\"}",
        "{\"schema\": \"strata-receipt/1.0\"}",
        "{\"schema\": \"strata-plugin/1.0\"}",
    ] {
        fs_err::write(folder.descriptor(), text).unwrap();
        expect(folder.open(), "plugin-descriptor", "cannot use the plugin descriptor");
    }
}

#[test]
fn another_library_under_the_same_path_is_not_mistaken_for_the_first() {
    let folder = Folder::compiled(&[]);
    folder.open().unwrap();
    let second = Folder::compiled(&["FAULT_NUMBERS"]);
    fs_err::rename(second.library(), folder.library()).unwrap();
    folder.describe(|_| {});
    let opened = Plugin::open(&folder.entry().unwrap(), &OpenOptions::in_process());
    expect(opened, "plugin-load", "another library was opened from this path before");
}
