//! Writes seeds of the fuzz targets of packages, one folder for each target:
//! `cargo run -p strata-package --example package_seeds -- fuzz/corpus [PACKAGE…]`.
//!
//! Archives given behind it become seeds too, and the documents that lie in folders given behind it.

use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use strata_manifest::{COMPONENT_FILE, Component, Document, FileMode, PackageFile, Role, Sha256Digest};
use strata_package::archive_write::{Format, TarEncoder, ZipEncoder, write_archive};
use strata_package::sbom;

/// A manifest of one file, which holds five letters.
const COMPONENT: &str = r#"{
  "schema": "strata-component/1.0", "component": "engine", "backend": "cpu", "version": "0.1.0",
  "os": "linux", "cpu_arch": "x86_64", "source_epoch": 1700000000,
  "build": {
    "schema": "strata-build/1.0", "name": "engine-cpu", "version": "0.1.0", "build_id": "0.1.0-x", "commit": "unknown",
    "dirty": false, "target": "x86_64-unknown-linux-gnu", "toolchain": "unknown", "source_epoch": 1700000000
  },
  "abi": { "lowest": "1.0", "highest": "1.0", "layout_hash": "d682e856e4d7299c" },
  "gpu_targets": ["gfx906:xnack-", "sm_90"], "libc_floor": "2.34",
  "host_libraries": [{ "soname": "libc.so.6", "optional": false }],
  "third_party": [{
    "name": "cfg-if", "version": "1.0.5", "licence": "MIT", "licence_files": ["LICENSE"],
    "source": "pkg:cargo/cfg-if@1.0.5"
  }],
  "sboms": ["sbom.cdx.json"],
  "files": [{
    "path": "hello", "size": 5, "mode": "0644", "role": "data",
    "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
  }]
}"#;
const EPOCH: u64 = 1_700_000_000;

fn tar() -> io::Result<Vec<u8>> {
    let mut tar = TarEncoder::new(Vec::new(), EPOCH);
    tar.folder("x/")?;
    for (name, text) in files() {
        let mut reader = Cursor::new(text);
        tar.file(&name, text.len() as u64, FileMode::Plain, &mut reader)?;
    }
    tar.finish()
}

fn zip() -> io::Result<Vec<u8>> {
    let mut zip = ZipEncoder::new(Vec::new(), EPOCH);
    zip.folder("x/")?;
    for (name, text) in files() {
        zip.file(&name, text.len() as u64, FileMode::Plain, &mut || Ok(Box::new(Cursor::new(text))))?;
    }
    zip.finish()
}

fn files() -> [(String, &'static str); 3] {
    let long = format!("x/{}/{}", "l".repeat(90), "n".repeat(120));
    [
        (format!("x/{COMPONENT_FILE}"), COMPONENT),
        ("x/SHA256SUMS".to_owned(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n"),
        (long, "long"),
    ]
}

/// A package that is sound in every way, so that what the verifier does last is reached too; and its manifest.
fn sound(format: Format) -> io::Result<(Vec<u8>, Component)> {
    let mut component = Component::parse_unchecked(COMPONENT, Path::new(COMPONENT_FILE)).map_err(io::Error::other)?;
    component.abi = None;
    component.gpu_targets.clear();
    component.libc_floor = None;
    component.host_libraries.clear();
    component.third_party.clear();
    component.sboms.clear();
    let bills = [
        ("hello".to_owned(), "hello".to_owned()),
        (sbom::CYCLONEDX_FILE.to_owned(), sbom::cyclonedx(&component)),
        (sbom::SPDX_FILE.to_owned(), sbom::spdx(&component)),
    ];
    for (name, text) in &bills[1..] {
        let path: strata_manifest::PackagePath = name.parse().map_err(io::Error::other)?;
        component.sboms.push(path.clone());
        component.files.push(PackageFile {
            path,
            size: text.len() as u64,
            mode: FileMode::Plain,
            sha256: Sha256Digest::of_bytes(text.as_bytes()),
            role: Role::Sbom,
            chunks: Vec::new(),
        });
    }
    component.files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut open = |file: &PackageFile| -> io::Result<Box<dyn io::Read>> {
        let (_, text) = bills.iter().find(|(name, _)| name == file.path.as_str()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(text.clone())))
    };
    Ok((write_archive(&component, &mut open, format, Vec::new())?, component))
}

/// Headers of code for GPUs: AMD's and NVIDIA's ELF files, a bundle, a compressed one, a fat binary, PTX.
fn code() -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let mut image = vec![0_u8; 64];
    image[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x40");
    image[18] = 224;
    image[48..50].copy_from_slice(&[0x2f, 5]);
    let mut bundle = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    let id = "hipv4-amdgcn-amd-amdhsa--gfx906:sramecc+:xnack-";
    bundle.extend([1, 80, 64, id.len() as u64].iter().flat_map(|value| value.to_le_bytes()));
    bundle.extend(id.as_bytes());
    bundle.extend(&image);
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
    zstd.write_all(&bundle)?;
    let content = zstd.finish()?;
    let mut compressed = b"CCOB\x02\0\x01\0".to_vec();
    compressed.extend((24 + content.len() as u32).to_le_bytes());
    compressed.extend((bundle.len() as u32).to_le_bytes());
    compressed.extend([0; 8]);
    compressed.extend(content);
    let mut fat = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    fat.extend(80_u64.to_le_bytes());
    let mut entry = vec![0_u8; 80];
    entry[0] = 2;
    entry[4] = 64;
    entry[8] = 16;
    entry[28] = 90;
    fat.extend(entry);
    let ptx = b".version 8.0\n.target sm_80\n.address_size 64\n".to_vec();
    Ok(vec![("amd", image), ("bundle", bundle), ("compressed", compressed), ("fat", fat), ("ptx", ptx)])
}

const SUMS: [&str; 5] = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n",
    "\u{feff}E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855 *a b\r\n",
    "SHA256 (a) = e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
    "\\e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\\nb\\\\c\n",
    "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  - a\n-----BEGIN PGP SIGNATURE-----\n",
];

fn write(folder: &Path, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = folder.join(target);
    fs_err::create_dir_all(&folder)?;
    fs_err::write(folder.join(name), bytes)
}

/// Other people's files: archives as they are, documents, libraries.
fn given(folder: &Path, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return fs_err::read_dir(path)?.try_for_each(|entry| given(folder, &entry?.path()));
    }
    let bytes = fs_err::read(path)?;
    let name = path.to_string_lossy().replace('/', "_");
    if bytes.len() > 64 << 10 {
        return Ok(());
    }
    match bytes.as_slice() {
        [0x1f, 0x8b, ..] | [b'P', b'K', ..] | [0x28, 0xb5, ..] => {
            write(folder, "archive_read", &name, &[&[0], bytes.as_slice()].concat())
        }
        [0x7f, b'E', b'L', b'F', ..] => write(folder, "elf_gpu_parse", &name, &bytes),
        [b'{', ..] => write(folder, "component_parse", &name, &bytes),
        _ => Ok(()),
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().ok_or_else(|| io::Error::other("say which folder to write to"))?;
    for (name, how, bytes) in [("tar", 0, tar()?), ("tar.gz", 1, tar()?), ("tar.zst", 2, tar()?), ("zip", 0, zip()?)] {
        write(&folder, "archive_read", name, &[&[how], bytes.as_slice()].concat())?;
    }
    for format in [Format::TarGz, Format::TarZst, Format::Zip] {
        let (archive, component) = sound(format)?;
        write(&folder, "archive_read", &format!("sound.{}", format.suffix()), &[&[0], archive.as_slice()].concat())?;
        write(&folder, "component_parse", "sound.json", component.to_text().as_bytes())?;
    }
    write(&folder, "component_parse", "component.json", COMPONENT.as_bytes())?;
    for (name, bytes) in code()? {
        write(&folder, "elf_gpu_parse", name, &bytes)?;
    }
    for (index, list) in SUMS.iter().enumerate() {
        write(&folder, "sums_parse", &format!("list{index}"), list.as_bytes())?;
    }
    arguments.try_for_each(|path| given(&folder, &path))
}
