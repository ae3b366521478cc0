//! Which GPUs a file holds code for: AMD code objects and NVIDIA machine code by their ELF headers,
//! PTX by its `.target` line, NVIDIA's fat binaries and AMD's offload bundles by their tables,
//! compressed bundles by what is in them.
//!
//! A file is read once in windows, and each compressed bundle in it once more where it lies; memory is
//! a window and a decompressor's (zstd: at most 32 MiB). Formats: the AMDGPU
//! back end's user guide and the offload bundler's page in LLVM's documentation; fat binaries as
//! their headers show.

mod amd;

use memchr::memmem::Finder;
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};

const WINDOW: usize = 1 << 20;
/// What a table or header may reach over the end of a window.
const OVERLAP: usize = 16 << 10;
/// Most bytes that the compressed bundles of one file are unpacked to, together.
const MAX_BUNDLE_BYTES: u64 = 4 << 30;
/// Most compressed bundles of one file that are opened.
const MAX_BUNDLES: usize = 4096;
/// Largest window of a zstd bundle, as a power of two: 32 MiB, which zstd's level 20 takes (the GPU
/// compiler's own choice is level 3, which takes 2 MiB). A bundle that needs more is told as unreadable.
const BUNDLE_WINDOW_LOG: u32 = 25;
/// A bundle unpacks to at most this many times its size, and [`MAX_GROWTH_FREE`] more.
const MAX_GROWTH: u64 = 256;
const MAX_GROWTH_FREE: u64 = 16 << 20;
const MAX_TARGETS: usize = 1000;

const ELF: &[u8] = b"\x7fELF\x02\x01";
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const FAT_BINARY: &[u8] = &[0x50, 0xed, 0x55, 0xba, 1, 0];
const PTX: &[u8] = b".version ";

/// Targets of everything in a file, with feature bits: `gfx906:xnack-`, `sm_90`, `compute_80`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuFacts {
    pub targets: BTreeSet<String>,
    /// Code that is there and could not be read, one sentence each.
    pub unreadable: BTreeSet<String>,
}

impl GpuFacts {
    /// About how much memory they take.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.targets.iter().chain(&self.unreadable).map(|text| text.len() + 64).sum()
    }

    fn add(&mut self, target: Result<String, String>) {
        if self.targets.len() + self.unreadable.len() < MAX_TARGETS {
            match target {
                Ok(target) => self.targets.insert(target),
                Err(why) => self.unreadable.insert(why),
            };
        }
    }
}

/// Looks through all that is left in `reader`.
pub fn scan(reader: &mut (impl Read + Seek)) -> io::Result<GpuFacts> {
    let mut facts = GpuFacts::default();
    let start = reader.stream_position()?;
    let mut compressed = Vec::new();
    let end = start + scan_into(reader, &mut facts, Some(&mut compressed))?;
    let mut left = MAX_BUNDLE_BYTES;
    for bundle in compressed {
        reader.seek(SeekFrom::Start(start + bundle.at + bundle.header))?;
        let rest = (end - start).saturating_sub(bundle.at + bundle.header);
        bundle.unpack(&mut *reader, rest, &mut left, &mut facts)?;
    }
    Ok(facts)
}

/// Bytes that were read. Where compressed bundles begin goes into `compressed`; without it, they are
/// passed over: no runtime looks for one inside another.
fn scan_into(
    reader: &mut dyn Read,
    facts: &mut GpuFacts,
    mut compressed: Option<&mut Vec<Compressed>>,
) -> io::Result<u64> {
    let finders = [ELF, BUNDLE, COMPRESSED, FAT_BINARY, PTX].map(Finder::new);
    let mut window = vec![0_u8; WINDOW + OVERLAP];
    let (mut filled, mut base) = (0, 0_u64);
    loop {
        let count = fill(reader, &mut window[filled..])?;
        filled += count;
        let at_end = filled < window.len();
        // What begins in the last part is looked at when its rest is there.
        let begins = if at_end { filled } else { WINDOW };
        let bytes = &window[..filled];
        for (finder, magic) in finders.iter().zip([ELF, BUNDLE, COMPRESSED, FAT_BINARY, PTX]) {
            for at in finder.find_iter(bytes).take_while(|at| *at < begins) {
                match (magic, &mut compressed) {
                    (ELF, _) => code_object(&bytes[at..], facts),
                    (BUNDLE, _) => bundle(&bytes[at..], facts),
                    (FAT_BINARY, _) => fat_binary(&bytes[at..], facts),
                    (PTX, _) => facts.targets.extend(ptx_target(&bytes[at..])),
                    (_, Some(found)) => {
                        let begun = Compressed::begin(&bytes[at..], base + at as u64);
                        if found.len() < MAX_BUNDLES {
                            found.extend(begun);
                        } else if begun.is_some() {
                            facts.add(Err(format!("more than {MAX_BUNDLES} compressed offload bundles")));
                        }
                    }
                    (_, None) => {}
                }
            }
        }
        if at_end {
            return Ok(base + filled as u64);
        }
        window.copy_within(WINDOW.., 0);
        filled -= WINDOW;
        base += WINDOW as u64;
    }
}

fn fill(reader: &mut dyn Read, mut buffer: &mut [u8]) -> io::Result<usize> {
    let mut total = 0;
    while !buffer.is_empty() {
        match reader.read(buffer) {
            Ok(0) => break,
            Ok(count) => {
                total += count;
                buffer = &mut buffer[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// An ELF image for a GPU; one for a processor says nothing here.
fn code_object(image: &[u8], facts: &mut GpuFacts) {
    let (Some(machine), Some(flags), Some(abi_version)) = (half(image, 18), word(image, 48), image.get(8)) else {
        return;
    };
    match machine {
        224 => facts.add(amd::target(flags)),
        // From version 8 of its ABI on, the architecture's number lies one byte higher.
        190 => facts.add(Ok(format!("sm_{}", if *abi_version >= 8 { flags >> 8 & 0xff } else { flags & 0xff }))),
        _ => {}
    }
}

/// The table of an offload bundle: `hipv4-amdgcn-amd-amdhsa--gfx906:xnack-` names a target.
fn bundle(bytes: &[u8], facts: &mut GpuFacts) {
    let Some(count) = long(bytes, BUNDLE.len()).filter(|count| (1..=256).contains(count)) else { return };
    let mut at = BUNDLE.len() + 8;
    for _ in 0..count {
        let Some(size) = long(bytes, at + 16).filter(|size| *size <= 200) else { return };
        let Some(id) = bytes.get(at + 24..at + 24 + size as usize) else { return };
        at += 24 + size as usize;
        let id = String::from_utf8_lossy(id);
        if let Some((_, target)) = id.split_once("-amdgcn-amd-amdhsa-") {
            facts.add(Ok(target.trim_start_matches('-').to_owned()));
        }
    }
}

/// NVIDIA's fat binary: entries of PTX (1) and machine code (2), each with its architecture.
fn fat_binary(bytes: &[u8], facts: &mut GpuFacts) {
    let (Some(header), Some(size)) = (half(bytes, 6).map(usize::from), long(bytes, 8)) else { return };
    let mut at = header;
    let end = (header as u64).saturating_add(size);
    while (at as u64) < end {
        let (Some(kind), Some(entry_header), Some(entry_size), Some(arch)) =
            (half(bytes, at), word(bytes, at + 4), long(bytes, at + 8), word(bytes, at + 28))
        else {
            return;
        };
        match kind {
            1 if arch < 1000 => facts.add(Ok(format!("compute_{arch}"))),
            2 if arch < 1000 => facts.add(Ok(format!("sm_{arch}"))),
            _ => return,
        }
        let Some(next) =
            usize::try_from(entry_size).ok().and_then(|size| at.checked_add(entry_header as usize)?.checked_add(size))
        else {
            return;
        };
        if next <= at {
            return;
        }
        at = next;
    }
}

/// `compute_80` of a PTX text: its header is three lines, version, target and address size.
fn ptx_target(text: &[u8]) -> Option<String> {
    let head = &text[..text.len().min(200)];
    let head = std::str::from_utf8(head).or_else(|error| std::str::from_utf8(&head[..error.valid_up_to()])).ok()?;
    let mut lines = head.lines();
    let version = lines.next()?.strip_prefix(".version ")?.trim();
    let target = lines.next()?.strip_prefix(".target sm_")?.split([',', ' ']).next()?;
    let number = !version.is_empty() && version.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    (number && target.starts_with(|c: char| c.is_ascii_digit())).then(|| format!("compute_{target}"))
}

/// A compressed bundle, by its header.
struct Compressed {
    /// Where its header begins.
    at: u64,
    /// 0 zlib, 1 zstd.
    method: u16,
    /// Bytes of its header.
    header: u64,
    /// Bytes of header and content, where the format says so.
    total: Option<u64>,
}

impl Compressed {
    /// Version 1 has no sizes of its own, version 2 has 32-bit ones, version 3 64-bit ones. `None`: the
    /// letters stand there by chance, since no compressed stream follows.
    fn begin(bytes: &[u8], at: u64) -> Option<Compressed> {
        let (version, method) = (half(bytes, 4)?, half(bytes, 6)?);
        let (header, total) = match version {
            1 => (20, None),
            2 => (24, Some(u64::from(word(bytes, 8)?))),
            3 => (32, Some(long(bytes, 8)?)),
            _ => return None,
        };
        let stream = bytes.get(header as usize..)?;
        let begins = match method {
            0 => {
                stream.first().is_some_and(|byte| byte & 15 == 8)
                    && stream.get(..2).is_some_and(|two| u16::from_be_bytes([two[0], two[1]]).is_multiple_of(31))
            }
            1 => stream.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
            _ => false,
        };
        begins.then_some(Compressed { at, method, header, total })
    }

    /// Looks at what is in it; `rest` bytes are there behind its header, `left` more are unpacked of this file.
    fn unpack(&self, reader: impl Read, rest: u64, left: &mut u64, facts: &mut GpuFacts) -> io::Result<()> {
        let size = self.total.map_or(rest, |total| total.saturating_sub(self.header));
        if size > rest {
            facts.add(Err("a compressed offload bundle that ends early".to_owned()));
        }
        let content = reader.take(size.min(rest));
        let limit = MAX_GROWTH_FREE.saturating_add(size.min(rest).saturating_mul(MAX_GROWTH)).min(*left);
        let decoder: Box<dyn Read + '_> = if self.method == 0 {
            Box::new(flate2::read::ZlibDecoder::new(content))
        } else {
            let mut zstd = zstd::stream::read::Decoder::new(content)?.single_frame();
            zstd.window_log_max(BUNDLE_WINDOW_LOG)?;
            Box::new(zstd)
        };
        let mut limited = decoder.take(limit);
        match scan_into(&mut limited, facts, None) {
            Err(error) => facts.add(Err(format!("a compressed offload bundle that is damaged ({error})"))),
            Ok(_) if limited.limit() == 0 => {
                facts.add(Err("a compressed offload bundle that unpacks to more than is read".to_owned()));
            }
            Ok(_) => {}
        }
        *left -= limit - limited.limit();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    fn image(machine: u16, abi_version: u8, flags: u32) -> Vec<u8> {
        let mut image = vec![0_u8; 64];
        image[..6].copy_from_slice(ELF);
        image[8] = abi_version;
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image[48..52].copy_from_slice(&flags.to_le_bytes());
        image
    }

    fn targets(bytes: &[u8]) -> String {
        let facts = scan(&mut Cursor::new(bytes)).unwrap();
        assert!(facts.unreadable.is_empty(), "{facts:?}");
        facts.targets.into_iter().collect::<Vec<_>>().join(" ")
    }

    fn bundled(ids: &[&str]) -> Vec<u8> {
        let mut bytes = BUNDLE.to_vec();
        bytes.extend((ids.len() as u64).to_le_bytes());
        for id in ids {
            bytes.extend([4096_u64, 64, id.len() as u64].iter().flat_map(|value| value.to_le_bytes()));
            bytes.extend(id.as_bytes());
        }
        bytes
    }

    #[test]
    fn every_form_of_gpu_code_names_its_target() {
        assert_eq!(targets(&image(224, 3, 0x52f)), "gfx906");
        assert_eq!(targets(&image(224, 3, 0x62f)), "gfx906:xnack-");
        assert_eq!(targets(&image(190, 8, 0x0600_5a04)), "sm_90");
        assert_eq!(targets(&image(62, 0, 0)), "");
        assert_eq!(targets(b"//\n.version 8.0\n.target sm_80\n.address_size 64\n"), "compute_80");
        assert_eq!(
            targets(&bundled(&["host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx1100"])),
            "gfx1100"
        );
        let unknown = scan(&mut Cursor::new(image(224, 3, 0xfe))).unwrap();
        assert!(unknown.unreadable.iter().next().unwrap().contains("0xfe"));
    }

    #[test]
    fn a_fat_binary_is_read_by_its_entries() {
        let mut fat = FAT_BINARY.to_vec();
        fat.extend(16_u16.to_le_bytes());
        fat.extend(160_u64.to_le_bytes());
        for (kind, arch) in [(1_u16, 80_u32), (2, 90)] {
            let mut entry = vec![0_u8; 64 + 16];
            entry[..2].copy_from_slice(&kind.to_le_bytes());
            entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
            entry[8..16].copy_from_slice(&16_u64.to_le_bytes());
            entry[28..32].copy_from_slice(&arch.to_le_bytes());
            fat.extend(entry);
        }
        assert_eq!(targets(&fat), "compute_80 sm_90");
    }

    #[test]
    fn compressed_bundles_are_opened() {
        let mut plain = bundled(&["hipv4-amdgcn-amd-amdhsa--gfx906"]);
        plain.extend(image(224, 3, 0x041));
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&plain).unwrap();
        for (method, content) in [(0_u16, zlib.finish().unwrap()), (1, zstd::encode_all(plain.as_slice(), 3).unwrap())]
        {
            let mut file = vec![7_u8; 3000];
            file.extend(COMPRESSED);
            file.extend(2_u16.to_le_bytes());
            file.extend(method.to_le_bytes());
            file.extend((24 + content.len() as u32).to_le_bytes());
            file.extend((plain.len() as u32).to_le_bytes());
            file.extend([0; 8]);
            file.extend(&content);
            let whole = file.len();
            file.extend(vec![9_u8; 100]);
            assert_eq!(targets(&file), "gfx1100 gfx906", "method {method}");
            for damaged in [&file[..whole - 20], &[&file[..3030], &[0xff; 9], &file[3039..]].concat()] {
                let facts = scan(&mut Cursor::new(damaged)).unwrap();
                assert!(!facts.unreadable.is_empty(), "method {method}");
            }
        }
        assert_eq!(targets(b"CCOB by chance"), "");
    }

    #[test]
    fn a_compressed_bundle_that_grows_without_end_is_told_and_left() {
        let bomb = zstd::encode_all(io::repeat(0).take(200 << 20), 3).unwrap();
        assert!(bomb.len() < 100_000);
        let mut file = COMPRESSED.to_vec();
        file.extend([3, 0, 1, 0]);
        file.extend((32 + bomb.len() as u64).to_le_bytes());
        file.extend([0; 16]);
        file.extend(&bomb);
        let facts = scan(&mut Cursor::new(file)).unwrap();
        assert!(facts.unreadable.iter().any(|why| why.contains("more than is read")), "{facts:?}");
    }

    #[test]
    fn what_lies_across_windows_is_found_once_and_whole() {
        for shift in [0, 1, 10, 63, 64, OVERLAP, OVERLAP + 1] {
            let mut bytes = vec![0_u8; WINDOW + OVERLAP - shift];
            bytes.extend(image(224, 3, 0x52f));
            bytes.extend(vec![0; 2 * WINDOW]);
            bytes.extend(image(224, 3, 0x046));
            assert_eq!(targets(&bytes), "gfx1101 gfx906", "{shift}");
        }
    }

    /// What clang makes of an empty kernel for an AMD target; `None` (said) where there is no clang.
    fn compiled(folder: &std::path::Path, target: &str, flags: &[&str]) -> Option<Vec<u8>> {
        let (source, object) = (folder.join("k.cpp"), folder.join("k.out"));
        fs_err::write(&source, "extern \"C\" __attribute__((KERNEL)) void k(int *p) { *p = 1; }\n").unwrap();
        let mut clang = std::process::Command::new("clang-19");
        clang.args(flags).args(["-O1", "-o"]).arg(&object).arg(&source);
        match clang.output() {
            Err(_) => println!("skipped: clang-19 is not here"),
            Ok(output) if !output.status.success() => {
                println!(
                    "skipped: clang-19 compiles nothing for {target}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            Ok(_) => return Some(fs_err::read(object).unwrap()),
        }
        None
    }

    fn amd(folder: &std::path::Path, target: &str) -> Option<Vec<u8>> {
        let chip = format!("-mcpu={target}");
        let kernel = "-DKERNEL=amdgpu_kernel";
        compiled(
            folder,
            target,
            &["-x", "c++", "--target=amdgcn-amd-amdhsa", &chip, kernel, "-nogpulib", "-fuse-ld=lld-19"],
        )
    }

    #[test]
    fn compiled_code_names_its_target_also_bundled_compressed_and_linked_into_a_library() {
        let folder = tempfile::tempdir().unwrap();
        let chips = ["gfx906", "gfx906:sramecc+:xnack-", "gfx90a:xnack+", "gfx942", "gfx1100", "gfx1101", "gfx1201"];
        let mut all = Vec::new();
        for chip in chips {
            let Some(object) = amd(folder.path(), chip) else { return };
            assert_eq!(targets(&object), chip);
            all.extend(object);
        }
        let mut expected = chips;
        expected.sort_unstable();
        let content = zstd::encode_all(all.as_slice(), 3).unwrap();
        let mut bundle = [COMPRESSED, &[3, 0, 1, 0]].concat();
        bundle.extend((32 + content.len() as u64).to_le_bytes());
        bundle.extend((all.len() as u64).to_le_bytes());
        bundle.extend([0; 8]);
        bundle.extend(content);
        fs_err::write(folder.path().join("bundle"), bundle).unwrap();
        let source = folder.path().join("l.s");
        fs_err::write(&source, ".section .hip_fatbin,\"a\"\n.p2align 12\n.incbin \"bundle\"\n").unwrap();
        let mut clang = std::process::Command::new("clang-19");
        clang.args(["-shared", "-nostdlib", "-o", "l.so", "l.s"]).current_dir(folder.path());
        assert!(clang.status().unwrap().success());
        assert_eq!(targets(&fs_err::read(folder.path().join("l.so")).unwrap()), expected.join(" "));
    }

    #[test]
    fn compiled_ptx_names_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["-x", "c++", "--target=nvptx64-nvidia-cuda", "-march=sm_80", "-DKERNEL=nvptx_kernel", "-S"];
        let Some(text) = compiled(folder.path(), "sm_80", &flags) else { return };
        assert_eq!(targets(&text), "compute_80");
    }
}
