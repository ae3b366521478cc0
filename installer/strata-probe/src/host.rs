//! System, processor, memory, disks.

use crate::Root;
use std::collections::BTreeSet;
use std::io::Read;
use strata_manifest::facts::{CpuFacts, DiskFacts, MemoryFacts, OsFacts};

/// Of the C library only so much is looked through for its version.
const MAX_LIBC: u64 = 16 << 20;
const LIBC: [&str; 6] = [
    "lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib/x86_64-linux-gnu/libc.so.6",
    "lib64/libc.so.6",
    "usr/lib64/libc.so.6",
    "usr/lib/libc.so.6",
    "lib/aarch64-linux-gnu/libc.so.6",
];

pub(crate) fn os(root: &Root) -> OsFacts {
    let kernel = root.text("proc/sys/kernel/osrelease");
    let release = root.text("etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    OsFacts {
        name: "linux".to_owned(),
        wsl: kernel.as_deref().is_some_and(|kernel| kernel.to_ascii_lowercase().contains("microsoft")),
        kernel,
        distribution: pretty.map(|text| text.trim_matches('"').to_owned()),
        libc: LIBC.iter().find_map(|path| libc_version(root, path)),
        container: container(root),
    }
}

/// The library says its version in a text that has stood there for decades.
fn libc_version(root: &Root, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    fs_err::File::open(root.below(path)).ok()?.take(MAX_LIBC).read_to_end(&mut bytes).ok()?;
    let mark = b"stable release version ";
    let at = bytes.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let text: String = bytes[at..].iter().take(16).map(|byte| char::from(*byte)).collect();
    let version: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let version = version.trim_end_matches('.').to_owned();
    version.contains('.').then_some(version)
}

fn container(root: &Root) -> Option<String> {
    if root.exists(".dockerenv") {
        return Some("docker".to_owned());
    }
    if root.exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    let groups = root.text("proc/1/cgroup").unwrap_or_default();
    let known = ["docker", "lxc", "kubepods", "containerd"].into_iter().find(|name| groups.contains(name));
    known.map(str::to_owned).or_else(|| root.text("run/systemd/container"))
}

pub(crate) fn cpu(root: &Root) -> CpuFacts {
    let info = root.text("proc/cpuinfo").unwrap_or_default();
    let field = |block: &str, name: &str| {
        let value = |line: &str| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned());
        block.lines().find_map(value)
    };
    let blocks: Vec<&str> = info.split("\n\n").filter(|block| block.contains("processor")).collect();
    let cores: BTreeSet<(Option<String>, String)> =
        blocks.iter().filter_map(|block| Some((field(block, "physical id"), field(block, "core id")?))).collect();
    let flags = blocks.first().and_then(|block| field(block, "flags")).unwrap_or_default();
    let flags: BTreeSet<&str> = flags.split_whitespace().collect();
    let logical = (!blocks.is_empty()).then_some(blocks.len() as u64);
    CpuFacts {
        arch: std::env::consts::ARCH.to_owned(),
        model: blocks.first().and_then(|block| field(block, "model name")),
        isa_level: isa_level(&flags).map(str::to_owned),
        features: FEATURES.iter().filter(|name| flags.contains(**name)).map(|name| (*name).to_owned()).collect(),
        physical_cores: if cores.is_empty() { logical } else { Some(cores.len() as u64) },
        logical_cpus: logical,
        usable_cpus: allowed(root).or(logical),
        quota: quota(root),
        efficiency_cpus: root.text("sys/devices/cpu_atom/cpus").map(|list| count(&list)),
        numa_nodes: Some(root.names("sys/devices/system/node").iter().filter(|name| is_node(name)).count() as u64)
            .filter(|count| *count > 0),
    }
}

const FEATURES: [&str; 12] = [
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
];

fn is_node(name: &str) -> bool {
    name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
}

fn isa_level(flags: &BTreeSet<&str>) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().all(|name| flags.contains(name));
    let levels: [(&str, &[&str]); 4] = [
        ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"]),
        ("x86-64-v3", &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"]),
        ("x86-64-v2", &["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
        ("x86-64-v1", &["sse2"]),
    ];
    levels.into_iter().find(|(_, names)| has(names)).map(|(level, _)| level)
}

/// `0-3,8` has five.
fn count(list: &str) -> u64 {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        Some((last + 1).saturating_sub(first).min(1 << 16))
    };
    list.split(',').filter_map(part).sum()
}

fn allowed(root: &Root) -> Option<u64> {
    let status = root.text("proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(count(list.trim())).filter(|count| *count > 0)
}

/// The groups of this process from its own up to the top.
fn groups(root: &Root) -> Vec<String> {
    let text = root.text("proc/self/cgroup").unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let mut folders = Vec::new();
    let mut path = own.trim_matches('/');
    loop {
        folders.push(format!("sys/fs/cgroup/{path}"));
        match path.rsplit_once('/') {
            Some((parent, _)) => path = parent,
            None if !path.is_empty() => path = "",
            None => return folders,
        }
    }
}

/// The tightest CPU limit of this group and those above it.
fn quota(root: &Root) -> Option<f64> {
    let limit = |folder: &String| {
        let text = root.text(&format!("{folder}/cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        let (quota, period) = (quota.parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
        (period > 0.0).then_some(quota / period)
    };
    groups(root).iter().filter_map(limit).min_by(f64::total_cmp)
}

pub(crate) fn memory(root: &Root) -> MemoryFacts {
    let text = root.text("proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let total = field("MemTotal");
    let limits = groups(root).into_iter().filter_map(|folder| root.number(&format!("{folder}/memory.max")));
    MemoryFacts {
        total,
        available: field("MemAvailable"),
        limit: limits.min().filter(|limit| total.is_none_or(|total| *limit < total)),
    }
}

/// Volumes of the folders that Strata writes to; only of the machine itself.
pub(crate) fn disks(root: &Root) -> Vec<DiskFacts> {
    if !root.is_live() {
        return Vec::new();
    }
    let home = root.variable("HOME").filter(|home| home.starts_with('/')).map(str::to_owned);
    let mut seen = BTreeSet::new();
    let disk = |path: String| {
        let volume = rustix::fs::statvfs(path.as_str()).ok()?;
        let device = rustix::fs::stat(path.as_str()).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let queue = |folder: &str| root.number(&format!("sys/dev/block/{major}:{minor}/{folder}queue/rotational"));
        seen.insert(device).then(|| DiskFacts {
            path,
            total: volume.f_blocks.saturating_mul(volume.f_frsize),
            free: volume.f_bavail.saturating_mul(volume.f_frsize),
            rotational: queue("").or_else(|| queue("../")).map(|value| value == 1),
        })
    };
    ["/".to_owned()].into_iter().chain(home).filter_map(disk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, expected) in [("0-3,8", 5), ("0", 1), ("", 0), ("5-2", 0), ("x-y", 0), ("0-99999999999", 65536)] {
            assert_eq!(count(list), expected, "{list}");
        }
    }

    #[test]
    fn levels_need_all_their_flags() {
        let flags = |text: &'static str| text.split(' ').collect::<BTreeSet<_>>();
        assert_eq!(isa_level(&flags("sse2")), Some("x86-64-v1"));
        assert_eq!(isa_level(&flags("sse2 cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3")), Some("x86-64-v2"));
        assert_eq!(isa_level(&flags("avx avx2 bmi1 bmi2 f16c fma abm movbe")), Some("x86-64-v3"));
        assert_eq!(isa_level(&BTreeSet::new()), None);
    }
}
