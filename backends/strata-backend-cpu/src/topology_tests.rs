//! Small made-up machines.

use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new(cpus: usize) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.file("sys/devices/system/cpu/online", &format!("0-{}\n", cpus - 1))
    }

    fn file(self, path: &str, text: &str) -> Tree {
        let path = self.0.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
        self
    }

    /// `pairs` hyper-threads per core: CPU n and n + half are siblings.
    fn siblings(mut self, cpus: usize) -> Tree {
        let half = cpus / 2;
        for cpu in 0..cpus {
            let first = cpu % half;
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            self = self.file(&path, &format!("{first},{}\n", first + half));
        }
        self
    }

    fn read(&self) -> Topology {
        Topology::read(self.0.path())
    }
}

#[test]
fn plain_machine() {
    let choice = Tree::new(2).read().threads(0);
    assert_eq!(choice.n_threads, 2);
    assert_eq!(choice.sentence, "2 threads: 2 physical cores of 2 usable CPUs, no quota");
    assert!(choice.pin_to.is_empty());
}

#[test]
fn hyper_threads_share_a_core() {
    let choice = Tree::new(8).siblings(8).read().threads(0);
    assert_eq!(choice.sentence, "4 threads: 4 physical cores of 8 usable CPUs, no quota");
}

#[test]
fn affinity_mask_leaves_cpus_out() {
    let tree = Tree::new(8).siblings(8).file("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0,4,5\n");
    let choice = tree.read().threads(0);
    assert_eq!(choice.sentence, "2 threads: 2 physical cores of 3 usable CPUs (8 online), no quota");
}

const MOUNT_V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

#[test]
fn quota_of_a_parent_group_holds() {
    let tree = Tree::new(8)
        .file("proc/self/mountinfo", MOUNT_V2)
        .file("proc/self/cgroup", "0::/a/b\n")
        .file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
        .file("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    let choice = tree.read().threads(0);
    assert_eq!(choice.n_threads, 1);
    assert!(choice.sentence.contains("quota 1.50 CPUs"), "{}", choice.sentence);
    assert!(choice.sentence.contains("cgroup/a/cpu.max"), "{}", choice.sentence);
}

#[test]
fn cpuset_of_the_group_holds() {
    let tree = Tree::new(8)
        .file("proc/self/mountinfo", MOUNT_V2)
        .file("proc/self/cgroup", "0::/a\n")
        .file("sys/fs/cgroup/a/cpuset.cpus.effective", "2-4\n");
    assert_eq!(tree.read().threads(0).n_threads, 3);
}

#[test]
fn older_hierarchies() {
    let mounts = "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  32 23 0:28 /docker/x /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    let tree = Tree::new(16)
        .file("proc/self/mountinfo", mounts)
        .file("proc/self/cgroup", "4:cpuset:/docker/x\n3:cpu,cpuacct:/docker/x\n")
        .file("sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n")
        .file("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n")
        .file("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "300000\n")
        .file("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
    let topology = tree.read();
    assert_eq!(topology.n_usable, 8);
    assert_eq!(topology.threads(0).n_threads, 3);
}

#[test]
fn efficiency_cores_are_left_out() {
    let mut tree = Tree::new(6);
    for (cpu, capacity) in [1024, 1024, 1000, 500, 500, 500].iter().enumerate() {
        tree = tree.file(&format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"), &format!("{capacity}\n"));
    }
    let choice = tree.read().threads(0);
    assert_eq!(
        choice.sentence,
        "3 threads: 6 physical cores of 6 usable CPUs, 3 fast and 3 efficiency cores, no quota"
    );
    assert_eq!(choice.pin_to, [0, 1, 2]);
    assert!(tree.read().threads(6).pin_to.is_empty());
}

#[test]
fn hybrid_machine_by_kind_and_by_clock() {
    let by_kind = Tree::new(4).file("sys/devices/cpu_core/cpus", "0-1\n").file("sys/devices/cpu_atom/cpus", "2-3\n");
    assert_eq!(by_kind.read().threads(0).n_threads, 2);
    let mut by_clock = Tree::new(3);
    for (cpu, clock) in [5_100_000, 4_900_000, 3_300_000].iter().enumerate() {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq");
        by_clock = by_clock.file(&path, &format!("{clock}\n"));
    }
    assert_eq!(by_clock.read().threads(0).n_threads, 2);
}

#[test]
fn asking_for_more_is_a_warning() {
    let choice = Tree::new(2).read().threads(5);
    assert_eq!(choice.n_threads, 5);
    assert!(choice.sentence.starts_with("5 threads as asked for, 2 would be chosen"), "{}", choice.sentence);
    assert!(choice.sentence.contains("warning"), "{}", choice.sentence);
    assert!(!Tree::new(2).read().threads(1).sentence.contains("warning"));
}

#[test]
fn broken_files_are_no_limits() {
    let tree = Tree::new(2)
        .file("proc/self/status", "Cpus_allowed_list:\tfoo,9-\n")
        .file("proc/self/mountinfo", "garbage\n30 23\n")
        .file("proc/self/cgroup", ":::\n0::/../..\n");
    // The mask names no CPU at all: the first one is taken.
    assert_eq!(tree.read().n_usable, 1);
}

#[test]
fn memory_is_bounded_by_the_group() {
    let tree = Tree::new(2)
        .file("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 100 kB\nMemAvailable:  6000 kB\n")
        .file("proc/self/mountinfo", MOUNT_V2)
        .file("proc/self/cgroup", "0::/a/b\n")
        .file("sys/fs/cgroup/a/b/memory.max", "max\n")
        .file("sys/fs/cgroup/a/memory.max", "4096000\n")
        .file("sys/fs/cgroup/a/memory.current", "1024000\n");
    assert_eq!(memory(tree.0.path()), (4_096_000, 3_072_000));
}

#[test]
fn this_machine_has_a_core() {
    let choice = Topology::read(Path::new("/")).threads(0);
    assert!(choice.n_threads >= 1);
}
