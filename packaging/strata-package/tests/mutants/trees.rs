//! Changes to the tree of a package.

use crate::Rng;
use crate::base::{code_object, library};
use crate::tree::{MANIFEST, Node, Tree};
use std::path::Path;
use strata_manifest::{Document, HostLibrary, PluginDescriptor, Role, Version};

/// A kind of change, what was changed, and the changed tree.
pub(crate) type Changed = Vec<(&'static str, String, Tree)>;

pub(crate) fn mutants(sound: &Tree, scene: &Path, rng: &mut Rng) -> Changed {
    let mut changed = Changed::new();
    added(sound, &mut changed);
    taken(sound, rng, &mut changed);
    turned(sound, rng, &mut changed);
    stated(sound, &mut changed);
    manifest(sound, &mut changed);
    laws(sound, scene, &mut changed);
    changed
}

/// What nobody listed.
fn added(sound: &Tree, changed: &mut Changed) {
    let file = || Node::File(0o644, b"unlisted".to_vec());
    let backend = sound.component().backend.unwrap_or_default();
    let plugin = format!("lib/strata/{backend}/x.so");
    for path in [
        "stray",
        ".hidden",
        "share/notes/.hidden",
        "share/notes/three.md",
        "zzz",
        "component.json.bak",
        "COMPONENT.JSON",
        "a/b/c/d/e/f",
        "share/notes/ONE.md",
        "share/Notes/one.md",
        "share/notes/one.md ",
        "share/notes/one.md.",
        "share/notes/nul",
        "share/notes/aux.txt",
        "share/notes/c:x",
        "share/notes/a\\b",
        "share/notes/\u{e9}",
        "share/notes/e\u{301}",
        "share/notes/\u{202e}x",
        "share/notes/a\nb",
        "share/notes/a\u{7f}",
        "../evil",
        "share/../../evil",
        "/evil",
        "share//double",
        "share/./dot",
        "share/notes/*",
        "share/notes/\u{feff}one.md",
        "strata.1.hipv4-amdgcn-amd-amdhsa--gfx1100",
        "lib/x.host-x86_64-unknown-linux-gnu-",
        "MANIFEST.sha256",
    ] {
        let mut tree = sound.clone();
        tree.add(path, file());
        changed.push(("added file", path.escape_debug().to_string(), tree));
    }
    for path in ["empty/", "share/empty/", ".git/", "share/notes/deep/er/"] {
        let mut tree = sound.clone();
        tree.add(path, Node::Folder(0o755));
        changed.push(("added folder", path.to_owned(), tree));
    }
    for (kind, target) in [
        (b'2', "one.md"),
        (b'2', "../../../etc/passwd"),
        (b'2', "/etc/passwd"),
        (b'2', "nowhere"),
        (b'2', "link"),
        (b'1', &*plugin),
        (b'1', "../evil"),
        (b'3', ""),
        (b'4', ""),
        (b'6', ""),
        (b'7', ""),
        (b'g', ""),
    ] {
        let mut tree = sound.clone();
        tree.add("share/notes/link", Node::Other(kind, target.to_owned()));
        changed.push(("added link or device", format!("{} {target}", kind as char), tree));
    }
    let mut outside = sound.clone();
    outside.entries.push(("other-folder/x".to_owned(), file()));
    changed.push(("second top folder", "a file".to_owned(), outside));
    let mut outside = sound.clone();
    outside.entries.push(("zz-beside".to_owned(), file()));
    changed.push(("second top folder", "a file beside it".to_owned(), outside));
}

/// What is missing, doubled, elsewhere, or in another order.
fn taken(sound: &Tree, rng: &mut Rng, changed: &mut Changed) {
    for at in sound.places(false) {
        let name = sound.entries[at].0.clone();
        if matches!(sound.entries[at].1, Node::File(..)) {
            let mut tree = sound.clone();
            tree.entries.remove(at);
            changed.push(("dropped", name.clone(), tree));
            let mut tree = sound.clone();
            tree.entries[at].1 = Node::Folder(0o755);
            tree.entries[at].0 += "/";
            changed.push(("folder instead of file", name.clone(), tree));
            for target in ["one.md", "/etc/hostname"] {
                let mut tree = sound.clone();
                tree.entries[at].1 = Node::Other(b'2', target.to_owned());
                changed.push(("link instead of file", format!("{name} to {target}"), tree));
            }
            for end in ["x", ".old", "~"] {
                let mut tree = sound.clone();
                tree.entries[at].0 += end;
                changed.push(("renamed", format!("{name}{end}"), tree));
            }
            let mut tree = sound.clone();
            let (folder, last) = name.rsplit_once('/').unwrap();
            tree.entries[at].0 = format!("{folder}/{}", last.to_uppercase());
            if tree.entries[at].0 != name {
                changed.push(("case of a name", name.clone(), tree));
            }
        }
        let mut tree = sound.clone();
        let entry = tree.entries[at].clone();
        tree.entries.insert(at + 1, entry.clone());
        if matches!(entry.1, Node::File(..)) {
            changed.push(("twice", name.clone(), tree.clone()));
            tree.entries[at + 1].1 = Node::File(0o644, b"another".to_vec());
            changed.push(("twice, unlike", name.clone(), tree));
        }
    }
    // Order and content of two.
    let places = sound.places(true);
    for _ in 0..25 {
        let (a, b) = (places[rng.below(places.len())], places[rng.below(places.len())]);
        if sound.entries[a].1 != sound.entries[b].1 {
            let mut tree = sound.clone();
            let node = tree.entries[a].1.clone();
            tree.entries[a].1 = std::mem::replace(&mut tree.entries[b].1, node);
            changed.push(("swapped contents", format!("{} and {}", sound.entries[a].0, sound.entries[b].0), tree));
        }
    }
}

/// Bits of contents and modes.
fn turned(sound: &Tree, rng: &mut Rng, changed: &mut Changed) {
    let places = sound.places(true);
    for round in 0..90 {
        let at = places[round % places.len()];
        let mut tree = sound.clone();
        let (name, Node::File(_, bytes)) = &mut tree.entries[at] else { continue };
        if bytes.is_empty() {
            bytes.push(b'x');
            changed.push(("content", format!("a byte in {name}"), tree.clone()));
            continue;
        }
        let (byte, bit) = (rng.below(bytes.len()), rng.below(8));
        match round % 3 {
            0 => bytes[byte] ^= 1 << bit,
            1 => bytes.truncate(byte),
            _ => bytes.push(0),
        }
        // A changed manifest may well say the same: blanks, or a digit of a build that is no claim here.
        let name = name.clone();
        changed.push(("content", format!("{name} at {byte} bit {bit}, way {}", round % 3), tree));
    }
    for at in 1..sound.entries.len() {
        for mode in [0o600, 0o664, 0o666, 0o700, 0o775, 0o777, 0o4755, 0o2755, 0o1755, 0o000, 0o644, 0o755] {
            let mut tree = sound.clone();
            let (name, node) = &mut tree.entries[at];
            let (Node::File(own, _) | Node::Folder(own)) = node else { continue };
            // A folder that cannot be read or a file without any permission is another matter for root.
            if *own == mode || mode == 0 {
                continue;
            }
            *own = mode;
            let what = format!("{name} {mode:04o}");
            changed.push(("mode", what, tree));
        }
    }
}

/// A version elsewhere than it was, with everything made to fit again.
fn stated(sound: &Tree, changed: &mut Changed) {
    let current = Version::current().to_string();
    for other in ["0.1.45", "9.9.9", "0.1.0-rc.1", "0.1.0+1"] {
        if other == current {
            continue;
        }
        let version: Version = other.parse().unwrap();
        let mut tree = sound.clone();
        tree.stem = tree.stem.replace(&current, other);
        let (old, new) = (format!("{}/", sound.stem), format!("{}/", tree.stem));
        for (name, _) in &mut tree.entries {
            *name = name.replacen(&old, &new, 1);
        }
        changed.push(("version of the top folder", other.to_owned(), tree));
        for (place, kind) in [
            (0, "version of the manifest"),
            (1, "version of the manifest and its record"),
            (2, "version of the descriptor"),
        ] {
            let mut tree = sound.clone();
            let path = descriptor(sound);
            match place {
                0 => {
                    let text = String::from_utf8(tree.bytes(MANIFEST).to_vec()).unwrap();
                    let text =
                        text.replacen(&format!("\"version\": \"{current}\""), &format!("\"version\": \"{other}\""), 1);
                    tree.set(MANIFEST, text.into_bytes());
                }
                1 => tree.repair(|component| {
                    component.version = version.clone();
                    component.build.version = version.clone();
                }),
                _ => {
                    let text = String::from_utf8(tree.bytes(&path).to_vec()).unwrap();
                    tree.set(&path, text.replacen(&current, other, 1).into_bytes());
                    tree.repair(|_| {});
                }
            }
            changed.push((kind, other.to_owned(), tree));
        }
    }
    for field in ["commit", "build_id", "target", "toolchain", "name", "dirty", "schema"] {
        let mut tree = sound.clone();
        tree.repair(|component| match field {
            "commit" => component.build.commit = "f".repeat(40),
            "build_id" => "0.1.0-other".clone_into(&mut component.build.build_id),
            "name" => "engine".clone_into(&mut component.build.name),
            "dirty" => component.build.dirty = true,
            "schema" => "strata-build/1.1".clone_into(&mut component.build.schema),
            "target" => "aarch64-unknown-linux-gnu".clone_into(&mut component.build.target),
            _ => "rustc 1.0.0".clone_into(&mut component.build.toolchain),
        });
        changed.push(("build record", field.to_owned(), tree));
    }
    let mut tree = sound.clone();
    tree.repair(|component| component.source_epoch += 2);
    changed.push(("build record", "source date".to_owned(), tree));
}

fn descriptor(sound: &Tree) -> String {
    let component = sound.component();
    component.files.iter().find(|file| file.role == Role::Descriptor).unwrap().path.to_string()
}

/// Statements of the manifest that the files do not bear out; digests and bills fit.
fn manifest(sound: &Tree, changed: &mut Changed) {
    let gpu = !sound.component().gpu_targets.is_empty();
    let mut add = |what: &str, change: &dyn Fn(&mut strata_manifest::Component)| {
        let mut tree = sound.clone();
        tree.repair(change);
        changed.push(("statement", what.to_owned(), tree));
    };
    add("libc floor lower", &|component| component.libc_floor = Some("2.2".to_owned()));
    add("libc floor none", &|component| component.libc_floor = None);
    add("host library dropped", &|component| component.host_libraries.retain(|library| library.soname != "libc.so.6"));
    add("host library added", &|component| {
        component.host_libraries.push(HostLibrary { soname: "libm.so.6".to_owned(), optional: false });
    });
    add("host library unknown", &|component| {
        component.host_libraries.push(HostLibrary { soname: "libzz.so.1".to_owned(), optional: true });
    });
    add("abi lowest", &|component| "2.0".clone_into(&mut component.abi.as_mut().unwrap().lowest));
    add("abi highest", &|component| "9.0".clone_into(&mut component.abi.as_mut().unwrap().highest));
    add("abi layout", &|component| component.abi.as_mut().unwrap().layout_hash = "0".repeat(16));
    add("abi none", &|component| component.abi = None);
    add("gpu target more", &|component| component.gpu_targets.push("sm_90".to_owned()));
    if gpu {
        add("gpu target none", &|component| component.gpu_targets.clear());
        add("gpu target other", &|component| component.gpu_targets = vec!["gfx1100".to_owned()]);
        add("gpu target feature", &|component| component.gpu_targets = vec!["gfx906:xnack-".to_owned()]);
    }
    // Bills that are not the manifest's, listed with their right digests.
    for sbom in sound.component().sboms {
        for (from, to) in [("\"name\"", "\"Name\""), (": ", ":  "), ("2023", "2024")] {
            let mut tree = sound.clone();
            let text = String::from_utf8(tree.bytes(sbom.as_str()).to_vec()).unwrap();
            assert!(text.contains(from));
            tree.set(sbom.as_str(), text.replacen(from, to, 1).into_bytes());
            let mut component = tree.component();
            for file in &mut component.files {
                let bytes = tree.bytes(file.path.as_str());
                (file.size, file.sha256) = (bytes.len() as u64, strata_manifest::Sha256Digest::of_bytes(bytes));
            }
            tree.set(MANIFEST, component.to_text().into_bytes());
            changed.push(("stale bill", format!("{sbom} {from}"), tree));
        }
    }
    // The same manifest in other words is not the packager's text.
    let text = String::from_utf8(sound.bytes(MANIFEST).to_vec()).unwrap();
    for (what, other) in [
        ("compact", serde_json::from_str::<serde_json::Value>(&text).unwrap().to_string()),
        ("no newline", text.trim_end().to_owned()),
        ("two newlines", format!("{text}\n")),
        ("unknown schema", text.replacen("strata-component/1.0", "strata-component/2.0", 1)),
        ("field twice", text.replacen('{', "{\n  \"os\": \"linux\",", 1)),
        ("empty", String::new()),
        ("not JSON", "{".to_owned()),
        ("a file less", text.replacen("share/notes/one.md", "share/notes/0ne.md", 1)),
    ] {
        let mut tree = sound.clone();
        tree.set(MANIFEST, other.into_bytes());
        changed.push(("manifest text", what.to_owned(), tree));
    }
    // The descriptor says something else than the manifest, with its right digest.
    let path = descriptor(sound);
    for field in ["name", "library", "abi", "layout", "targets", "os", "cpu", "floor", "kind"] {
        let mut tree = sound.clone();
        let text = String::from_utf8(tree.bytes(&path).to_vec()).unwrap();
        let mut descriptor = PluginDescriptor::parse(&text, Path::new(&path)).unwrap();
        match field {
            "name" => "other".clone_into(&mut descriptor.name),
            "library" => "y.so".clone_into(&mut descriptor.library),
            "abi" => "1.9".clone_into(&mut descriptor.abi_highest),
            "layout" => descriptor.layout_hash = "f".repeat(16),
            "targets" => descriptor.targets = vec!["gfx1100".to_owned()],
            "os" => "windows".clone_into(&mut descriptor.os),
            "cpu" => "aarch64".clone_into(&mut descriptor.cpu_arch),
            "floor" => descriptor.libc_floor = Some("2.99".to_owned()),
            _ => descriptor.kind = strata_manifest::BackendKind::Cuda,
        }
        if field == "kind" && gpu {
            continue;
        }
        tree.set(&path, descriptor.to_text().into_bytes());
        if field != "library" {
            tree.repair(|_| {});
        }
        changed.push(("descriptor", field.to_owned(), tree));
    }
}

/// What is wrong in the files themselves, listed as they are.
fn laws(sound: &Tree, scene: &Path, changed: &mut Changed) {
    let component = sound.component();
    let plugin = component.files.iter().find(|file| file.role == Role::Plugin).unwrap().path.to_string();
    let current = Version::current().to_string();
    let file = scene.join("law.so");
    let export = "__attribute__((visibility(\"default\"))) int another(void) { return 1; }";
    for (what, version, body, flags) in [
        ("other version", "0.1.45", "", &[][..]),
        ("build path RUNPATH", &current, "", &["-Wl,-rpath,/home/builder/rocm/lib"]),
        ("RUNPATH up and out", &current, "", &["-Wl,-rpath,$ORIGIN/../../../../lib"]),
        ("empty RUNPATH part", &current, "", &["-Wl,-rpath,$ORIGIN:"]),
        ("old RPATH", &current, "", &["-Wl,--disable-new-dtags", "-Wl,-rpath,/usr/local/lib"]),
        ("second export", &current, export, &[]),
        ("executable stack", &current, "", &["-Wl,-z,execstack"]),
        ("needs another", &current, "double f(double x); double g(double x);", &["-Wl,--no-as-needed", "-lm"]),
        (
            "build path text",
            &current,
            "__attribute__((used)) static const char where[] = \"/home/somebody/strata/src/lib.rs\";",
            &[],
        ),
    ] {
        if library(&file, version, body, flags).is_some() {
            let mut tree = sound.clone();
            tree.set(&plugin, fs_err::read(&file).unwrap());
            tree.repair(|_| {});
            changed.push(("law of ELF files", what.to_owned(), tree));
        }
    }
    // A record that is no record, and none.
    let sound_bytes = sound.bytes(&plugin).to_vec();
    let note = sound_bytes.windows(6).position(|window| window == b"Strata").unwrap();
    for (what, at, byte) in
        [("owner of the note", note, b'X'), ("text of the note", note + 8, b'['), ("machine", 18, 183), ("class", 4, 1)]
    {
        let mut bytes = sound_bytes.clone();
        bytes[at] = byte;
        let mut tree = sound.clone();
        tree.set(&plugin, bytes);
        tree.repair(|_| {});
        changed.push(("law of ELF files", what.to_owned(), tree));
    }
    for text in ["#!/bin/sh\n", ""] {
        let mut tree = sound.clone();
        tree.set(&plugin, text.as_bytes().to_vec());
        tree.repair(|_| {});
        changed.push(("law of ELF files", format!("a plugin that is {text:?}"), tree));
    }
    if let Some(kernel) =
        component.files.iter().find(|file| file.role == Role::Kernel).map(|file| file.path.to_string())
    {
        for (what, flags) in [
            ("gfx1100", 0x41),
            ("gfx906:xnack-", 0x62f),
            ("gfx906:xnack+", 0x72f),
            ("gfx906:sramecc-:xnack any", 0x92f),
            ("unknown machine", 0x5fe),
            ("gfx908", 0x530),
        ] {
            let mut tree = sound.clone();
            tree.set(&kernel, code_object(flags));
            tree.repair(|_| {});
            changed.push(("law of GPU code", what.to_owned(), tree));
        }
        let mut two = sound.clone();
        two.set(&kernel, [code_object(0x52f), code_object(0x541)].concat());
        two.repair(|_| {});
        changed.push(("law of GPU code", "a second target".to_owned(), two));
        let mut none = sound.clone();
        none.set(&kernel, b"no code at all".to_vec());
        none.repair(|_| {});
        changed.push(("law of GPU code", "none".to_owned(), none));
    }
}
