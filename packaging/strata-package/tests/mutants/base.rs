//! The sound packages that are changed: a plugin for the CPU and one for a GPU, built from a few
//! lines of C by the builder itself.

use std::path::Path;
use std::process::Command;
use strata_manifest::{BackendKind, BuildRecord, Component, Document, PluginDescriptor, Sha256Digest, Version};
use strata_package::PackageError;
use strata_package::archive_write::Format;
use strata_package::build::{BuildOptions, PluginFacts, build};
use strata_package::stage::Folders;

/// Compiles a plugin-like library with a build record; `None` (said) without a C compiler.
pub(crate) fn library(path: &Path, version: &str, body: &str, flags: &[&str]) -> Option<()> {
    let record = BuildRecord {
        schema: BuildRecord::SCHEMA.to_owned(),
        name: "strata-backend-x".to_owned(),
        version: version.parse().unwrap(),
        build_id: format!("{version}-test"),
        commit: "0123456789012345678901234567890123456789".to_owned(),
        dirty: false,
        target: "x86_64-unknown-linux-gnu".to_owned(),
        toolchain: "rustc 1.90.0 (test)".to_owned(),
        source_epoch: 1_700_000_000,
    };
    let value: serde_json::Value = serde_json::from_str(&record.to_text()).unwrap();
    let text = value.to_string();
    let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
    let padded = text.len().next_multiple_of(4);
    let source = format!(
        "#include <stdint.h>\n#include <stdlib.h>\n\
         static const struct {{ uint32_t name, desc, kind; char owner[8]; unsigned char text[{padded}]; }} note\n\
         __attribute__((used, aligned(4), section(\".note.strata.build\"))) = {{ 7, {}, 1, \"Strata\", {{ {} }} }};\n\
         __attribute__((visibility(\"default\"))) int strata_backend_entry(char **argv) {{ return atoi(argv[0]); }}\n{body}\n",
        text.len(),
        bytes.join(","),
    );
    let file = path.with_extension("c");
    fs_err::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-Wl,--build-id=none", "-o"])
        .arg(path)
        .arg(&file)
        .args(flags);
    let output = cc.output();
    fs_err::remove_file(&file).unwrap();
    match output {
        Ok(output) if output.status.success() => Some(()),
        Ok(output) => panic!("cc: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: no C compiler: {error}");
            None
        }
    }
}

/// The header of an AMD code object, which is all that says its target.
pub(crate) fn code_object(flags: u32) -> Vec<u8> {
    let mut image = vec![0_u8; 4096];
    image[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\x40\x04\0\0\0\0\0\0\0");
    image[16..20].copy_from_slice(&[3, 0, 224, 0]);
    image[20] = 1;
    image[48..52].copy_from_slice(&flags.to_le_bytes());
    image[52..64].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, 0, 0, 0, 0]);
    for (at, byte) in image[64..].iter_mut().enumerate() {
        *byte = (at * 7 % 251) as u8;
    }
    image
}

#[expect(clippy::unnecessary_wraps, reason = "the builder's callback may fail")]
fn describe(facts: &PluginFacts<'_>) -> Result<PluginDescriptor, PackageError> {
    let bytes = fs_err::read(facts.library).unwrap();
    Ok(PluginDescriptor {
        schema: PluginDescriptor::SCHEMA.to_owned(),
        name: facts.name.to_owned(),
        version: Version::current(),
        kind: facts.kind,
        abi_lowest: "1.0".to_owned(),
        abi_highest: "1.1".to_owned(),
        layout_hash: "0123456789abcdef".to_owned(),
        os: "linux".to_owned(),
        cpu_arch: "x86_64".to_owned(),
        targets: facts.targets.clone(),
        library: "lib.so".to_owned(),
        sha256: Sha256Digest::of_bytes(&bytes),
        size: bytes.len() as u64,
        libc_floor: None,
        driver_floor: None,
        unproven: None,
    })
}

/// Builds `engine-cpu` or `engine-hip-gfx906` in all formats into `folder/out`.
pub(crate) fn package(folder: &Path, kind: BackendKind) -> Option<Component> {
    let name = if kind.is_gpu() { "hip-gfx906" } else { "cpu" };
    let inputs = folder.join("in");
    fs_err::create_dir_all(inputs.join("notes")).unwrap();
    library(&inputs.join("x.so"), &Version::current().to_string(), "", &[])?;
    fs_err::write(inputs.join("LICENSE"), "Permission is hereby granted.\n").unwrap();
    fs_err::write(inputs.join("notes/one.md"), "one\n".repeat(40)).unwrap();
    fs_err::write(inputs.join("notes/two.md"), "two\n".repeat(30)).unwrap();
    fs_err::write(inputs.join("notes/empty.md"), "").unwrap();
    fs_err::write(inputs.join("k.hsaco"), code_object(0x52f)).unwrap();
    let mut recipe = format!(
        "component = \"engine\"\nbackend = \"{name}\"\n\
         [[file]]\nfrom = \"build:x.so\"\nto = \"lib/strata/{name}/x.so\"\nrole = \"plugin\"\nmode = \"0755\"\n\
         [[file]]\nfrom = \"build:notes/*\"\nto = \"share/notes/\"\nrole = \"doc\"\n\
         [[file]]\nfrom = \"build:notes/*\"\nto = \"share/more/\"\nrole = \"doc\"\noptional = true\n\
         [[file]]\nfrom = \"source:LICENSE\"\nto = \"share/doc/strata-engine-{name}/LICENSE\"\nrole = \"license\"\n\
         [plugin]\nname = \"{name}\"\nkind = \"{}\"\nlibrary = \"lib/strata/{name}/x.so\"\n",
        kind.word()
    );
    if kind.is_gpu() {
        recipe += "[[file]]\nfrom = \"build:k.hsaco\"\nto = \"lib/strata/hip-gfx906/k.hsaco\"\nrole = \"kernel\"\n";
    }
    let path = folder.join("recipe.toml");
    fs_err::write(&path, recipe).unwrap();
    let options = BuildOptions {
        folders: Folders { build: &inputs, source: &inputs },
        out: &folder.join("out"),
        formats: &Format::ALL,
        exact: false,
        allow_build_paths: false,
        describe_plugin: &describe,
    };
    Some(build(&path, &options).unwrap().component)
}
