//! What part of the machine this process may use: CPUs (affinity mask, cpusets and quotas of all
//! control groups above it), physical cores, fast and slow ones, and memory. From that the number
//! of worker threads and the sentence that says why.
//!
//! Everything is read below a root path, so a test lays out a small tree of proc and sys files.
//! All knowledge of the operating system is here, but for the calls that need `unsafe` (pool.rs).
//! A file that is missing or unreadable means "no such limit", never a failure. Called by
//! device.rs when a device is opened or its memory is asked for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A set of logical CPUs.
pub(crate) type CpuSet = BTreeSet<usize>;

/// More CPUs than any machine has: a bound on what a broken list can make us allocate.
const MOST_CPUS: usize = 16_384;

/// A core slower than this share of the fastest one counts as an efficiency core. Favoured cores
/// of one kind differ by less, dense and efficiency cores by more.
const EFFICIENCY_SHARE: f64 = 0.75;

/// One physical core: its logical CPUs that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Core {
    pub(crate) cpus: Vec<usize>,
    pub(crate) efficiency: bool,
}

/// The part of the machine that is ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topology {
    /// Physical cores with at least one usable logical CPU.
    pub(crate) cores: Vec<Core>,
    pub(crate) n_usable: usize,
    pub(crate) n_online: usize,
    /// CPU time per time that the tightest control group allows, and where that is said.
    pub(crate) quota: Option<(f64, PathBuf)>,
}

/// How many threads, where, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadChoice {
    pub(crate) n_threads: usize,
    /// CPUs that workers are kept on; empty when there is nothing to avoid.
    pub(crate) pin_to: Vec<usize>,
    /// One sentence for the report.
    pub(crate) sentence: String,
}

impl Topology {
    /// Reads the tree below `root` (`/` outside tests).
    pub(crate) fn read(root: &Path) -> Topology {
        let online = online_cpus(root);
        let mut usable = online.clone();
        if let Some(allowed) = affinity(root) {
            usable.retain(|cpu| allowed.contains(cpu));
        }
        let groups = ControlGroups::read(root);
        for allowed in groups.cpusets() {
            usable.retain(|cpu| allowed.contains(cpu));
        }
        if usable.is_empty() {
            // Contradicting files; the one CPU that we are running on is certainly there.
            usable.insert(online.first().copied().unwrap_or(0));
        }
        Topology {
            cores: physical_cores(root, &usable),
            n_usable: usable.len(),
            n_online: online.len(),
            quota: groups.quota(),
        }
    }

    /// One thread per physical performance core, no more than the quota has room for.
    /// `wanted` overrides; asking for more than there is costs a warning in the sentence.
    pub(crate) fn threads(&self, wanted: usize) -> ThreadChoice {
        let fast = self.cores.iter().filter(|core| !core.efficiency).count();
        let slow = self.cores.len() - fast;
        let mut why = format!("{} of {} usable CPUs", plural(self.cores.len(), "physical core"), self.n_usable);
        if self.n_usable < self.n_online {
            why = format!("{why} ({} online)", self.n_online);
        }
        if slow > 0 {
            why = format!("{why}, {fast} fast and {slow} efficiency cores");
        }
        let by_cores = if fast > 0 { fast } else { self.cores.len() };
        let by_quota = if let Some((quota, place)) = &self.quota {
            why = format!("{why}, quota {quota:.2} CPUs ({})", place.display());
            whole_threads(*quota)
        } else {
            why.push_str(", no quota");
            usize::MAX
        };
        let best = by_cores.min(by_quota).max(1);
        let n_threads = if wanted == 0 { best } else { wanted.min(MOST_CPUS) };
        let mut sentence = format!("{}: {why}", plural(n_threads, "thread"));
        if wanted > 0 && wanted != best {
            sentence = format!("{} as asked for, {best} would be chosen: {why}", plural(n_threads, "thread"));
        }
        if wanted > by_quota.min(self.n_usable) {
            sentence.push_str("; warning: more threads than usable CPUs, expect it to be slower");
        }
        let pin_to = if slow > 0 && fast > 0 && n_threads <= fast {
            self.cores.iter().filter(|core| !core.efficiency).flat_map(|core| core.cpus.iter().copied()).collect()
        } else {
            Vec::new()
        };
        ThreadChoice { n_threads, pin_to, sentence }
    }
}

/// A quota of 1.97 is meant as 2; one of 1.5 runs one thread without being stopped in every period.
fn whole_threads(quota: f64) -> usize {
    ((quota + 0.05).floor() as usize).max(1)
}

fn plural(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Memory that this process can have, in bytes: `(total, free)`, control groups considered.
pub(crate) fn memory(root: &Path) -> (u64, u64) {
    let text = read(&root.join("proc/meminfo")).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let mut total = field("MemTotal").unwrap_or(0);
    let mut free = field("MemAvailable").or_else(|| field("MemFree")).unwrap_or(0);
    for (limit, used) in ControlGroups::read(root).memory_limits() {
        total = total.min(limit);
        free = free.min(limit.saturating_sub(used));
    }
    (total, free.min(total))
}

/// The processor's marketing name, or its architecture when nothing says it.
pub(crate) fn cpu_name(root: &Path) -> String {
    let text = read(&root.join("proc/cpuinfo")).unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}

fn read(path: &Path) -> Option<String> {
    fs_err::read_to_string(path).ok()
}

/// `0-3,8,10-11`; anything that does not parse is left out.
fn parse_cpu_list(text: &str) -> CpuSet {
    let mut set = CpuSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            set.extend(first..=last.min(MOST_CPUS));
        }
    }
    set
}

fn online_cpus(root: &Path) -> CpuSet {
    let listed = read(&root.join("sys/devices/system/cpu/online")).map(|text| parse_cpu_list(&text));
    match listed {
        Some(set) if !set.is_empty() => set,
        _ => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

fn affinity(root: &Path) -> Option<CpuSet> {
    let status = read(&root.join("proc/self/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(parse_cpu_list(list))
}

/// Groups usable CPUs that share a core, in the order of each core's first CPU.
fn physical_cores(root: &Path, usable: &CpuSet) -> Vec<Core> {
    let mut taken = CpuSet::new();
    let mut cores = Vec::new();
    for &cpu in usable {
        if taken.contains(&cpu) {
            continue;
        }
        let topology = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        let siblings = read(&topology.join("core_cpus_list"))
            .or_else(|| read(&topology.join("thread_siblings_list")))
            .map(|text| parse_cpu_list(&text))
            .unwrap_or_default();
        let mut cpus: Vec<usize> = siblings.into_iter().filter(|sibling| usable.contains(sibling)).collect();
        if !cpus.contains(&cpu) {
            cpus = vec![cpu];
        }
        taken.extend(cpus.iter().copied());
        cores.push(Core { cpus, efficiency: false });
    }
    let speeds = core_speeds(root, &cores);
    let fastest = speeds.iter().flatten().copied().fold(0.0, f64::max);
    for (core, speed) in cores.iter_mut().zip(speeds) {
        core.efficiency = speed.is_some_and(|speed| speed < fastest * EFFICIENCY_SHARE);
    }
    cores
}

/// A relative speed for each core: its capacity as the kernel says it, else its kind on hybrid
/// machines, else its greatest clock.
fn core_speeds(root: &Path, cores: &[Core]) -> Vec<Option<f64>> {
    let number = |cpu: usize, file: &str| {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}")).join(file);
        read(&path)?.trim().parse::<f64>().ok().filter(|value| *value > 0.0)
    };
    let first = |core: &Core| core.cpus.first().copied().unwrap_or(0);
    let capacities: Vec<_> = cores.iter().map(|core| number(first(core), "cpu_capacity")).collect();
    if capacities.iter().all(Option::is_some) {
        return capacities;
    }
    if let Some(atoms) = read(&root.join("sys/devices/cpu_atom/cpus")).map(|text| parse_cpu_list(&text)) {
        return cores.iter().map(|core| Some(if atoms.contains(&first(core)) { 0.5 } else { 1.0 })).collect();
    }
    cores.iter().map(|core| number(first(core), "cpufreq/cpuinfo_max_freq")).collect()
}

/// The control groups that this process is in, each with the directories from its own up to the
/// hierarchy's mount point: a limit of any of them holds.
struct ControlGroups {
    unified: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
    cpuset: Vec<PathBuf>,
    memory: Vec<PathBuf>,
}

impl ControlGroups {
    fn read(root: &Path) -> ControlGroups {
        let membership = read(&root.join("proc/self/cgroup")).unwrap_or_default();
        let mounts = read(&root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let chain = |controller: &str| {
            let mount = mounts.iter().find(|mount| mount.carries(controller))?;
            let group = membership.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                let ours = if controller.is_empty() {
                    controllers.is_empty()
                } else {
                    controllers.split(',').any(|name| name == controller)
                };
                ours.then_some(path)
            })?;
            Some(mount.directories(root, group))
        };
        ControlGroups {
            unified: chain("").unwrap_or_default(),
            cpu: chain("cpu").unwrap_or_default(),
            cpuset: chain("cpuset").unwrap_or_default(),
            memory: chain("memory").unwrap_or_default(),
        }
    }

    fn cpusets(&self) -> Vec<CpuSet> {
        let unified = self.unified.iter().filter_map(|group| read(&group.join("cpuset.cpus.effective")));
        let older = self.cpuset.iter().filter_map(|group| {
            read(&group.join("cpuset.effective_cpus")).or_else(|| read(&group.join("cpuset.cpus")))
        });
        unified.chain(older).map(|text| parse_cpu_list(&text)).filter(|set| !set.is_empty()).collect()
    }

    fn quota(&self) -> Option<(f64, PathBuf)> {
        let unified = self.unified.iter().filter_map(|group| {
            let path = group.join("cpu.max");
            let text = read(&path)?;
            let (quota, period) = text.trim().split_once(' ')?;
            Some((share(quota, period)?, path))
        });
        let older = self.cpu.iter().filter_map(|group| {
            let path = group.join("cpu.cfs_quota_us");
            Some((share(&read(&path)?, &read(&group.join("cpu.cfs_period_us"))?)?, path))
        });
        unified.chain(older).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// `(limit, used)` of each group that has a limit.
    fn memory_limits(&self) -> Vec<(u64, u64)> {
        let files = |groups: &[PathBuf], limit: &str, used: &str| -> Vec<(u64, u64)> {
            let number = |path: PathBuf| read(&path)?.trim().parse::<u64>().ok();
            groups
                .iter()
                .filter_map(|group| Some((number(group.join(limit))?, number(group.join(used)).unwrap_or(0))))
                .collect()
        };
        let mut limits = files(&self.unified, "memory.max", "memory.current");
        limits.extend(files(&self.memory, "memory.limit_in_bytes", "memory.usage_in_bytes"));
        limits
    }
}

/// `quota / period` in CPUs; `max` and `-1` are no limit.
fn share(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// A line of `mountinfo` that mounts a control group hierarchy.
struct Mount {
    /// Which group of the hierarchy is seen at the mount point.
    group: String,
    point: String,
    /// Empty for the unified hierarchy.
    controllers: Vec<String>,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (group, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let kind = back.next()?;
        let controllers = match kind {
            "cgroup2" => Vec::new(),
            "cgroup" => back.nth(1)?.split(',').map(str::to_owned).collect(),
            _ => return None,
        };
        Some(Mount { group: group.to_owned(), point: point.to_owned(), controllers })
    }

    /// The empty name stands for the unified hierarchy.
    fn carries(&self, controller: &str) -> bool {
        if controller.is_empty() {
            self.controllers.is_empty()
        } else {
            self.controllers.iter().any(|name| name == controller)
        }
    }

    /// The directory of `group` and all above it, up to the mount point.
    fn directories(&self, root: &Path, group: &str) -> Vec<PathBuf> {
        let point = root.join(self.point.trim_start_matches('/'));
        let inside = group.strip_prefix(self.group.trim_end_matches('/')).unwrap_or("");
        let names: Vec<&str> = inside.split('/').filter(|name| !name.is_empty()).collect();
        if names.contains(&"..") {
            // The group lies outside what this namespace shows; the mount point is the nearest we can see.
            return vec![point];
        }
        (0..=names.len()).rev().map(|n| names[..n].iter().fold(point.clone(), |path, name| path.join(name))).collect()
    }
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
