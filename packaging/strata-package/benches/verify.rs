//! How fast a package is verified, against the tools that people have: `cargo bench -p strata-package`.
//!
//! A package of generated data (4 GiB; `STRATA_BENCH_MIB` says another size) is laid out as a folder, read
//! once so that it lies in memory, and then verified, hashed by coreutils' `sha256sum`, hashed plainly by
//! the sha2 crate on all processors, compared with a tar of the same files by `tar -d`, and only read, in
//! turns. Each number is the best of three turns. The first line says how busy the machine was before.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use strata_manifest::{
    BuildRecord, CHUNK_BYTES, COMPONENT_FILE, Component, Document, FileMode, PackageFile, Role, Sha256Digest, UtcTime,
    Version,
};
use strata_package::sbom;
use strata_package::verify::{Silent, VerifyOptions, verify};

const MIB: u64 = 1 << 20;
const TURNS: usize = 3;

/// Bytes that look like nothing in particular, the same for the same seed.
fn write_data(path: &Path, size: u64, seed: u64) -> io::Result<PackageFile> {
    fs_err::create_dir_all(path.parent().unwrap_or(path))?;
    let mut file = fs_err::File::create(path)?;
    let (mut whole, mut chunks, mut state) = (Sha256::new(), Vec::new(), seed | 1);
    let mut left = size;
    while left > 0 {
        let mut chunk = vec![0_u8; left.min(CHUNK_BYTES) as usize];
        for word in chunk.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        whole.update(&chunk);
        chunks.push(Sha256Digest::of_bytes(&chunk));
        file.write_all(&chunk)?;
        left -= chunk.len() as u64;
    }
    Ok(PackageFile {
        path: "x".parse().map_err(io::Error::other)?,
        size,
        mode: FileMode::Plain,
        sha256: Sha256Digest::from_array(whole.finalize().into()),
        role: Role::Data,
        chunks: if size > CHUNK_BYTES { chunks } else { Vec::new() },
    })
}

/// Sizes of a package's files: few large ones, more middling ones, many small ones.
fn sizes(total: u64) -> Vec<u64> {
    let mut sizes = vec![total / 8, total / 8];
    sizes.extend(vec![total / 64; 32]);
    sizes.extend(vec![total / 1024; 256]);
    sizes
}

fn component(mut files: Vec<PackageFile>, folder: &Path) -> io::Result<Component> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let version = Version::current();
    let build = BuildRecord {
        schema: BuildRecord::SCHEMA.to_owned(),
        name: "bench".to_owned(),
        version: version.clone(),
        build_id: format!("{version}-bench"),
        commit: "unknown".to_owned(),
        dirty: false,
        target: "x86_64-unknown-linux-gnu".to_owned(),
        toolchain: "unknown".to_owned(),
        source_epoch: 1_700_000_000,
    };
    let mut component = Component {
        schema: Component::SCHEMA.to_owned(),
        component: "bench".to_owned(),
        backend: None,
        version,
        os: "linux".to_owned(),
        cpu_arch: "x86_64".to_owned(),
        source_epoch: build.source_epoch,
        build,
        abi: None,
        gpu_targets: Vec::new(),
        libc_floor: None,
        libstdcxx_floor: None,
        host_libraries: Vec::new(),
        third_party: Vec::new(),
        sboms: Vec::new(),
        files,
    };
    let bills = [(sbom::CYCLONEDX_FILE, sbom::cyclonedx(&component)), (sbom::SPDX_FILE, sbom::spdx(&component))];
    for (name, text) in bills {
        fs_err::write(folder.join(name), &text)?;
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
    Ok(component)
}

fn lay_out(folder: &Path, total: u64) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut paths) = (Vec::new(), Vec::new());
    for (index, size) in sizes(total).into_iter().enumerate() {
        let name = format!("data/{index:04}");
        let path = folder.join(&name);
        let file = write_data(&path, size, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1))?;
        files.push(PackageFile { path: name.parse().map_err(io::Error::other)?, ..file });
        paths.push(path);
    }
    let component = component(files, folder)?;
    fs_err::write(folder.join(COMPONENT_FILE), component.to_text())?;
    Ok(paths)
}

/// Each file by the next free thread.
fn on_all_processors(paths: &[PathBuf], work: impl Fn(&Path) -> io::Result<()> + Sync) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism()?.get();
    let one = || {
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(path)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread died"))?)
    })
}

fn through(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = fs_err::File::open(path)?;
    let mut buffer = vec![0; 512 << 10];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        take(&buffer[..count]);
    }
}

fn peak_mib() -> io::Result<u64> {
    let status = fs_err::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse().unwrap_or(0) / 1024)
}

fn done(command: &mut Command) -> io::Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?} failed"))) }
}

fn timed(best: &mut f64, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    work()?;
    *best = best.min(start.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> io::Result<()> {
    let mib = std::env::var("STRATA_BENCH_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(4096);
    let busy = fs_err::read_to_string("/proc/loadavg")?;
    let room = tempfile::tempdir()?;
    let paths = lay_out(room.path(), mib * MIB)?;
    let laid_out = peak_mib()?;
    let archive = tempfile::NamedTempFile::new()?;
    done(Command::new("tar").arg("-cf").arg(archive.path()).arg("-C").arg(room.path()).arg("."))?;
    let options = VerifyOptions::at(UtcTime::now());
    let [mut ours, mut sum, mut plain, mut read, mut compared] = [f64::INFINITY; 5];
    for _ in 0..TURNS {
        timed(&mut read, || on_all_processors(&paths, |path| through(path, |_| {})))?;
        timed(&mut ours, || {
            let report = verify(room.path(), &options, &Silent).map_err(io::Error::other)?;
            if report.is_clean() { Ok(()) } else { Err(io::Error::other(format!("{:?}", report.findings))) }
        })?;
        timed(&mut plain, || {
            on_all_processors(&paths, |path| {
                let mut hasher = Sha256::new();
                through(path, |bytes| hasher.update(bytes))?;
                std::hint::black_box(hasher.finalize());
                Ok(())
            })
        })?;
        timed(&mut sum, || done(Command::new("sha256sum").arg("--").args(&paths)))?;
        timed(&mut compared, || done(Command::new("tar").arg("-df").arg(archive.path()).arg("-C").arg(room.path())))?;
    }
    let rate = |seconds: f64| mib as f64 / seconds;
    let mut out = io::stdout().lock();
    writeln!(out, "load before: {}", busy.trim())?;
    writeln!(out, "{mib} MiB in {} files, best of {TURNS} turns", paths.len())?;
    for (name, seconds) in [
        ("verified (each file, and each 8 MiB piece of large ones)", ours),
        ("sha256sum of coreutils, one process", sum),
        ("`tar -d` against a tar of the same files, one process", compared),
        ("sha2 crate alone, all processors, files only", plain),
        ("read only, all processors", read),
    ] {
        writeln!(out, "{seconds:8.3} s {:7.0} MiB/s  {name}", rate(seconds))?;
    }
    writeln!(
        out,
        "{:.2} times sha256sum, {:.2} times `tar -d`, {:.2} times the sha2 crate alone",
        sum / ours,
        compared / ours,
        plain / ours
    )?;
    writeln!(out, "peak memory {} MiB ({laid_out} MiB when the package was laid out)", peak_mib()?)
}
