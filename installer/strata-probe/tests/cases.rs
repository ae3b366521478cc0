//! Machines of public reports, from the reference data beside the checkout (skipped where it is absent), and
//! the same kinds of machine written here.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and says what it skips")]

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_manifest::HostFacts;
use strata_manifest::facts::{GpuFacts, GpuState, GpuVendor};
use strata_probe::{Helper, Options, Root, probe};

fn case(path: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let found = shared.join("cases").join(path);
    if !found.exists() {
        println!("skipped: no {}", found.display());
        return None;
    }
    Some(found)
}

/// Lays `{path: text | {text, mode} | {link}}` below a folder.
fn lay(tree: &Map<String, Value>, folder: &Path) {
    for (path, content) in tree {
        let path = folder.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some(target) = content["link"].as_str() {
            std::os::unix::fs::symlink(target, path).unwrap();
            continue;
        }
        fs_err::write(&path, content.as_str().or(content["text"].as_str()).unwrap()).unwrap();
        if let Some(mode) = content["mode"].as_str() {
            let mode = u32::from_str_radix(mode, 8).unwrap();
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

struct Machine(tempfile::TempDir);

impl Machine {
    fn new(tree: &Value) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        lay(tree.as_object().unwrap(), folder.path());
        Machine(folder)
    }

    fn of_case(path: &str) -> Option<Machine> {
        let text = fs_err::read_to_string(case(path)?).unwrap();
        Some(Machine::new(&serde_json::from_str(&text).unwrap()))
    }

    fn facts(&self, variables: &[(&str, &str)]) -> HostFacts {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let root = Root::at(self.0.path()).with_variables(variables);
        probe(&root, &Options { tool: Duration::from_secs(5), nvml: None })
    }
}

fn visible(facts: &HostFacts) -> Vec<&GpuFacts> {
    facts.gpus.iter().filter(|gpu| gpu.visible).collect()
}

fn tool_answering(query: &str, list: &str) -> Value {
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*query-gpu*) cat <<'A'\n{query}\nA\n;;\n*-L*) cat <<'A'\n{list}\nA\n;;\nesac\n"
    );
    json!({ "usr/bin/nvidia-smi": { "text": script, "mode": "0755" } })
}

#[test]
fn one_card_is_read_like_several_and_no_target_is_guessed() {
    let Some(one) = Machine::of_case("a03-single-gpu-no-guess/tree-one.json") else { return };
    let facts = one.facts(&[]);
    assert_eq!(facts.gpus.len(), 1);
    assert_eq!(
        (facts.gpus[0].target.as_deref(), facts.gpus[0].plugin.as_deref()),
        (Some("gfx906"), Some("hip-gfx906"))
    );
    let unreadable = Machine::of_case("a03-single-gpu-no-guess/tree-unreadable.json").unwrap().facts(&[]);
    assert_eq!(unreadable.gpus.len(), 1);
    assert_eq!((&unreadable.gpus[0].target, &unreadable.gpus[0].plugin), (&None, &None));
    assert!(unreadable.gpus[0].evidence[0].contains("properties are empty"), "{:?}", unreadable.gpus[0]);
    assert!(unreadable.sources.iter().any(|source| source.failed));
}

#[test]
fn wsl_keeps_its_tools_elsewhere() {
    let Some(machine) = Machine::of_case("a07-wsl-nvidia-smi-path/tree.json") else { return };
    let path = machine.0.path().join("usr/bin").display().to_string();
    let facts = machine.facts(&[("PATH", &path)]);
    let gpu = &facts.gpus[0];
    assert_eq!((facts.gpus.len(), gpu.vendor, gpu.name.as_str()), (1, GpuVendor::Nvidia, "NVIDIA Example 4060"));
    assert_eq!((gpu.target.as_deref(), gpu.memory.total), (Some("sm_89"), Some(8188 << 20)));
    assert!(facts.os.wsl && gpu.state == GpuState::Usable);
}

#[test]
fn an_amd_card_behind_dxg_is_not_determinable_and_not_absent() {
    let Some(machine) = Machine::of_case("a08-wsl-amd-dxg/tree.json") else { return };
    let facts = machine.facts(&[]);
    assert_eq!((facts.gpus.len(), facts.gpus[0].state, &facts.gpus[0].target), (1, GpuState::Undetermined, &None));
    assert!(facts.gpus[0].evidence[0].contains("/dev/dxg"));
}

#[test]
fn answers_of_the_tool_count_row_by_row() {
    let good = "0, GPU-00000000-1111-2222-3333-555555555555, NVIDIA Example 3090, 24576, 24000, 8.6, 00000000:01:00.0, 550.90.07";
    let gpus = |query: &str| Machine::new(&tool_answering(query, "")).facts(&[]);
    let facts = gpus(&format!("WARNING: infoROM is corrupted at gpu 0000:01:00.0\n{good}"));
    assert_eq!((facts.gpus.len(), facts.gpus[0].pci.as_deref()), (1, Some("0000:01:00.0")));
    assert_eq!(facts.gpus[0].memory.vram_used, Some(576 << 20));
    for bad in [
        "",
        "No devices were found",
        &format!("{good}, Enabled"),
        &good.replace("8.6", "eight"),
        &good.replace("24576", "12ab4"),
    ] {
        let facts = gpus(bad);
        assert_eq!(facts.gpus.len(), 0, "{bad}");
        assert!(facts.sources.iter().any(|source| source.failed && source.name.ends_with("nvidia-smi")), "{bad}");
    }
    // Markers in brackets are answers too.
    let shared = gpus(&good.replace("24576, 24000", "[N/A], [N/A]"));
    assert!(shared.gpus[0].memory.shared && shared.gpus[0].integrated);
    let denied = gpus(&good.replace("24576, 24000", "[Insufficient Permissions], [Insufficient Permissions]"));
    assert_eq!((denied.gpus.len(), denied.gpus[0].memory.total, denied.gpus[0].memory.shared), (1, None, false));
    for (file, count) in [("blank.txt", 0), ("extra-column.txt", 0), ("warn-first.txt", 1), ("words.txt", 0)] {
        let Some(path) = case(&format!("a12-nvsmi-unreadable/{file}")) else { return };
        assert_eq!(gpus(fs_err::read_to_string(path).unwrap().trim_end()).gpus.len(), count, "{file}");
    }
}

#[test]
fn a_tool_that_hangs_or_fails_hides_nothing() {
    let tree = json!({
        "usr/bin/nvidia-smi": { "text": "#!/bin/sh\nexec sleep 60\n", "mode": "0755" },
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:01:00.0/device": "0x2684\n",
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    });
    let machine = Machine::new(&tree);
    let root = Root::at(machine.0.path()).with_variables(BTreeMap::new());
    let facts = probe(&root, &Options { tool: Duration::from_millis(300), nvml: None });
    assert_eq!((facts.gpus.len(), facts.gpus[0].state), (1, GpuState::DriverMissing));
    assert!(facts.gpus[0].evidence[0].contains("did not answer"), "{:?}", facts.gpus[0].evidence);
    let mut tree = tree;
    tree["usr/bin/nvidia-smi"]["text"] =
        json!("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n");
    let facts = Machine::new(&tree).facts(&[]);
    assert_eq!(facts.gpus[0].state, GpuState::DriverMismatched);
    assert!(facts.gpus[0].advice.as_deref().unwrap().contains("restart"));
    tree["sys/bus/pci/devices/0000:01:00.0/uevent"] = json!("DRIVER=nouveau\n");
    tree["usr/bin/nvidia-smi"] = json!("not executable");
    assert_eq!(Machine::new(&tree).facts(&[]).gpus[0].state, GpuState::DriverMissing);
}

#[test]
fn a_slice_has_its_own_size_and_is_no_card() {
    let Some(folder) = case("a10-mig-slice-memory") else { return };
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
    let machine = Machine::new(&tool_answering(read("query.csv").trim_end(), read("list.txt").trim_end()));
    let facts = machine.facts(&[("CUDA_VISIBLE_DEVICES", "MIG-aaaaaaaa-0000-0000-0000-000000000002")]);
    assert_eq!((facts.gpus.len(), facts.gpus[0].mig.len()), (1, 2));
    let shown: Vec<_> = facts.gpus[0].mig.iter().filter(|slice| slice.visible).collect();
    assert_eq!((shown.len(), shown[0].uuid.as_str()), (1, "MIG-aaaaaaaa-0000-0000-0000-000000000002"));
    assert_eq!(shown[0].memory, Some(71 << 30));
}

#[test]
fn a_number_is_no_row_of_the_list() {
    let Some(folder) = case("a14-cuda-ordinal-vs-row") else { return };
    let rows = fs_err::read_to_string(folder.join("rows.csv")).unwrap();
    let machine = Machine::new(&tool_answering(rows.trim_end(), ""));
    let names = |devices: Option<&str>, order: Option<&str>| {
        let mut variables = Vec::new();
        variables.extend(devices.map(|value| ("CUDA_VISIBLE_DEVICES", value)));
        variables.extend(order.map(|value| ("CUDA_DEVICE_ORDER", value)));
        let facts = machine.facts(&variables);
        let names = visible(&facts).iter().map(|gpu| gpu.name.clone()).collect::<Vec<_>>();
        (names, facts.masks.first().map(|mask| mask.effect.clone()).unwrap_or_default())
    };
    let pci = Some("PCI_BUS_ID");
    assert_eq!(names(Some("0"), pci).0, ["NVIDIA Example 1660"]);
    assert_eq!(names(Some("1"), pci).0, ["NVIDIA Example 4090"]);
    let (both, effect) = names(Some("0"), None);
    assert!(both.len() == 2 && effect.contains("only the runtime knows"), "{both:?} {effect}");
    assert_eq!(names(Some("GPU-00000000-0000-0000-0000-000000004090"), None).0, ["NVIDIA Example 4090"]);
    assert_eq!(names(Some("GPU-00000000-0000-0000-0000-00000000409"), None).0, ["NVIDIA Example 4090"]);
    for (value, why) in [("GPU-0", "fits 2 devices"), ("7", "names no device"), ("", "an empty list hides all")] {
        let (none, effect) = names(Some(value), pci);
        assert!(none.is_empty() && effect.contains(why), "{value}: {none:?} {effect}");
    }
}

#[test]
fn two_masks_in_a_row() {
    let Some(machine) = Machine::of_case("a15-rocr-and-hip-masks/tree.json") else { return };
    let addresses = |rocr: Option<&str>, hip: Option<&str>| {
        let mut variables = Vec::new();
        variables.extend(rocr.map(|value| ("ROCR_VISIBLE_DEVICES", value)));
        variables.extend(hip.map(|value| ("HIP_VISIBLE_DEVICES", value)));
        let facts = machine.facts(&variables);
        let shown: Vec<String> = visible(&facts).iter().filter_map(|gpu| gpu.pci.clone()).collect();
        (shown, facts.masks)
    };
    let (none, masks) = addresses(Some("1"), Some("1"));
    assert!(none.is_empty() && masks.len() == 2, "{none:?}");
    assert!(masks.iter().all(|mask| mask.effect.contains("nothing is left")), "{masks:?}");
    assert_eq!(addresses(Some("1"), Some("0")).0, ["0000:0d:00.0"]);
    assert_eq!(addresses(None, Some("0")).0.len(), 1);
    assert_eq!(addresses(Some("GPU-00000000000000c3"), None).0, ["0000:43:00.0"]);
    assert_eq!(addresses(Some("0,2"), Some("1")).0, ["0000:43:00.0"]);
    assert_eq!(addresses(Some("2,2"), None).0.len(), 1);
    for value in ["x", "-1"] {
        let (none, masks) = addresses(Some(value), None);
        assert!(none.is_empty() && masks[0].effect.contains(&format!("`{value}`")), "{masks:?}");
    }
}

#[test]
fn a_card_is_known_by_its_unique_id() {
    let (Some(before), Some(after)) = (
        Machine::of_case("a16-external-card-moves/before.json"),
        Machine::of_case("a16-external-card-moves/after.json"),
    ) else {
        return;
    };
    let find =
        |facts: &HostFacts, id: &str| facts.gpus.iter().find(|gpu| gpu.unique_id.as_deref() == Some(id)).cloned();
    let (before, after) = (before.facts(&[]), after.facts(&[]));
    let (old, new) = (find(&before, "0xa4").unwrap(), find(&after, "0xa4").unwrap());
    assert_eq!(new.pci.as_deref(), Some("0000:41:00.0"));
    assert_eq!(old.name, new.name);
    assert_ne!(find(&before, "0xe1").unwrap().pci, find(&after, "0xe1").unwrap().pci);
}

#[test]
fn an_apu_is_more_than_its_carve_out_and_a_card_is_not() {
    let (Some(apu), Some(card)) =
        (Machine::of_case("a17-apu-memory/tree-apu.json"), Machine::of_case("a17-apu-memory/tree-dgpu.json"))
    else {
        return;
    };
    let (apu, card) = (apu.facts(&[]), card.facts(&[]));
    assert_eq!(apu.gpus[0].memory.total, Some(98_247_376_896));
    assert_eq!(apu.gpus[0].memory.vram, Some(536_870_912));
    assert!(apu.gpus[0].memory.shared && apu.gpus[0].integrated);
    assert_eq!(card.gpus[0].memory.total, Some(17_163_091_968));
    assert!(!card.gpus[0].memory.shared);
}

fn amd_on_the_bus(driver: &str) -> Value {
    json!({
        "dev/null": "",
        "sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
        "sys/bus/pci/devices/0000:03:00.0/device": "0x66a1\n",
        "sys/bus/pci/devices/0000:03:00.0/class": "0x038000\n",
        "sys/bus/pci/devices/0000:03:00.0/uevent": driver,
    })
}

#[test]
fn a_card_without_its_driver_is_named_by_the_table() {
    for (driver, evidence) in
        [("", "no driver has it"), ("DRIVER=vfio-pci\n", "`vfio-pci` has it"), ("DRIVER=amdgpu\n", "does not list it")]
    {
        let facts = Machine::new(&amd_on_the_bus(driver)).facts(&[]);
        let gpu = &facts.gpus[0];
        assert_eq!((gpu.state, gpu.target.as_deref()), (GpuState::DriverMissing, Some("gfx906")), "{driver}");
        assert!(gpu.evidence.iter().any(|line| line.contains(evidence)) && gpu.advice.is_some(), "{:?}", gpu.evidence);
    }
}

#[test]
fn a_container_that_was_not_given_the_device_says_so() {
    let mut tree = amd_on_the_bus("DRIVER=amdgpu\n");
    tree["sys/class/kfd/kfd/topology/nodes/1/gpu_id"] = json!("33001\n");
    tree["sys/class/kfd/kfd/topology/nodes/1/properties"] = json!(
        "simd_count 240\ngfx_target_version 90006\nvendor_id 4098\ndevice_id 26273\nlocation_id 768\ndomain 0\ndrm_render_minor 128\nunique_id 164\n"
    );
    let facts = Machine::new(&tree).facts(&[]);
    assert_eq!((facts.gpus.len(), facts.gpus[0].state), (1, GpuState::NoPermission));
    assert!(facts.gpus[0].advice.as_deref().unwrap().contains("--device /dev/kfd"));
    tree["dev/kfd"] = json!("");
    let facts = Machine::new(&tree).facts(&[]);
    assert!(facts.gpus[0].evidence.iter().any(|line| line.contains("/dev/dri/renderD128 is not there")));
    tree["dev/dri/renderD128"] = json!("");
    assert_eq!(Machine::new(&tree).facts(&[]).gpus[0].state, GpuState::Usable);
}

#[test]
fn limits_of_control_groups_count_up_to_the_top() {
    let tree = json!({
        "proc/meminfo": "MemTotal: 65536000 kB\nMemAvailable: 60000000 kB\n",
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/memory.max": "8589934592\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "proc/self/status": "Cpus_allowed_list:\t0-3\n",
        "etc/os-release": "PRETTY_NAME=\"Example Linux 1\"\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Example\nphysical id\t: 0\ncore id\t: 0\nflags\t\t: sse2 avx2\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t: 0\nflags\t: sse2\n",
        "sys/devices/cpu_atom/cpus": "4-7\n",
    });
    let facts = Machine::new(&tree).facts(&[]);
    assert_eq!((facts.memory.limit, facts.memory.usable()), (Some(8 << 30), Some(8 << 30)));
    assert_eq!(facts.cpu.quota, Some(1.5));
    assert_eq!((facts.cpu.physical_cores, facts.cpu.logical_cpus, facts.cpu.usable_cpus), (Some(1), Some(2), Some(4)));
    assert_eq!((facts.cpu.efficiency_cpus, facts.os.distribution.as_deref()), (Some(4), Some("Example Linux 1")));
}

#[test]
fn garbage_below_the_root_is_survived() {
    let tree = json!({
        "sys/bus/pci/devices/x/vendor": "no number",
        "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "99999999999999999999999",
        "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 18446744073709551615\nlocation_id 18446744073709551615\nsimd_count 1\n\u{0}\u{1}",
        "sys/class/kfd/kfd/topology/nodes/nonsense/properties": "x",
        "proc/cpuinfo": ":::\n\n\n::",
        "proc/meminfo": "MemTotal: many\n",
        "proc/self/cgroup": "0::/../../..\n",
        "sys/class/drm/card0/device/vendor": "0x1002",
    });
    let facts =
        Machine::new(&tree).facts(&[("ROCR_VISIBLE_DEVICES", ",,,"), ("HIP_VISIBLE_DEVICES", "99999999999999999999")]);
    assert_eq!(facts.gpus.len(), 1);
    assert_eq!(facts.gpus[0].target, None);
}

#[test]
fn this_machine_is_looked_at_quickly() {
    let started = std::time::Instant::now();
    let facts = probe(&Root::live(), &Options::default());
    assert!(facts.memory.total.is_some() && facts.cpu.logical_cpus.is_some());
    println!("this machine: {} GPUs, libc {:?}, {:?}", facts.gpus.len(), facts.os.libc, started.elapsed());
}

/// A program in the place of `strata internal-nvml`.
fn nvml(folder: &Path, script: &str) -> Helper {
    let program = folder.join("helper");
    fs_err::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Helper { program, args: vec!["internal-nvml".into()] }
}

fn nvidia_on_the_bus(device: &str, driver: &str) -> Value {
    json!({
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\n",
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:01:00.0/device": device,
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
        "sys/bus/pci/devices/0000:01:00.0/uevent": driver,
    })
}

fn asked_through_nvml(tree: &Value, script: &str) -> HostFacts {
    let (machine, tools) = (Machine::new(tree), tempfile::tempdir().unwrap());
    let root = Root::at(machine.0.path()).with_variables(BTreeMap::new());
    let options = Options { tool: Duration::from_secs(2), nvml: Some(nvml(tools.path(), script)) };
    probe(&root, &options)
}

#[test]
fn nvml_answers_before_nvidia_smi_is_asked() {
    let line = json!({
        "driver": "570.86.15",
        "devices": [{
            "pci": "00000000:01:00.0", "uuid": "GPU-1", "name": "NVIDIA Example 4090",
            "memory": { "total": 25_757_220_864_u64, "free": 25_000_000_000_u64 },
            "capability": [8, 9], "display": true,
            "mig": [{ "uuid": "MIG-1", "name": "NVIDIA Example MIG 3g.20gb", "memory": { "code": 3 } }],
        }],
    });
    let mut tree = nvidia_on_the_bus("0x2684\n", "DRIVER=nvidia\n");
    tree["usr/bin/nvidia-smi"] = json!({ "mode": "0755", "text": "#!/bin/sh\ntouch $(dirname $0)/asked\n" });
    let facts = asked_through_nvml(&tree, &format!("echo driver talk; echo 'strata-nvml-line {line}'"));
    let gpu = &facts.gpus[0];
    assert_eq!((facts.gpus.len(), gpu.pci.as_deref(), gpu.state), (1, Some("0000:01:00.0"), GpuState::Usable));
    assert_eq!(
        (gpu.target.as_deref(), gpu.display, gpu.driver.as_deref()),
        (Some("sm_89"), Some(true), Some("570.86.15"))
    );
    assert_eq!((gpu.memory.total, gpu.memory.vram_used), (Some(25_757_220_864), Some(757_220_864)));
    assert_eq!((gpu.mig[0].profile.as_str(), gpu.mig[0].memory), ("3g.20gb", Some(20 << 30)));
    assert!(!facts.sources.iter().any(|source| source.name.contains("nvidia-smi")), "{:?}", facts.sources);
    // A machine without memory of its own, and a driver that is older than what the plugin needs.
    let old = r#"strata-nvml-line {"driver":"450.51","devices":[{"pci":"0000:01:00.0","name":"x","memory":{"code":3},"capability":[8,6]}]}"#;
    let facts = asked_through_nvml(&tree, &format!("echo '{old}'"));
    assert!(facts.gpus[0].memory.shared);
    assert_eq!(facts.gpus[0].state, GpuState::DriverMismatched);
    assert!(facts.gpus[0].evidence.iter().any(|line| line.contains("450.51 is older than")), "{:?}", facts.gpus[0]);
}

#[test]
fn what_nvml_says_of_itself_decides_the_state() {
    let tree = nvidia_on_the_bus("0x2684\n", "DRIVER=nvidia\n");
    let failed = |code: i64, text: &str| {
        format!(r#"echo 'strata-nvml-line {{"failed":{{"code":{code},"text":"{text}"}}}}'; exit 1"#)
    };
    for (script, state, words) in [
        (failed(18, "Driver/library version mismatch"), GpuState::DriverMismatched, "restart the machine"),
        (failed(4, "Insufficient Permissions"), GpuState::NoPermission, "nvidiactl"),
        (failed(999, "Unknown Error"), GpuState::DriverMismatched, "of one version"),
        ("kill -SEGV $$".to_owned(), GpuState::DriverMismatched, "of one version"),
        ("exec sleep 60".to_owned(), GpuState::DriverMismatched, "of one version"),
        ("echo strata-nvml-line [7]; exit 0".to_owned(), GpuState::DriverMismatched, "of one version"),
    ] {
        let facts = asked_through_nvml(&tree, &script);
        let gpu = &facts.gpus[0];
        assert_eq!((facts.gpus.len(), gpu.state), (1, state), "{script}: {gpu:?}");
        assert!(gpu.advice.as_deref().unwrap().contains(words), "{script}: {:?}", gpu.advice);
        // The chip is known by its id, so the backend can be named all the same.
        assert_eq!((gpu.target.as_deref(), gpu.plugin.as_deref()), (Some("sm_89"), Some("cuda")), "{script}");
    }
    // One card of two fell off the bus.
    let mut two = tree;
    for file in ["vendor", "device", "class", "uevent"] {
        two[format!("sys/bus/pci/devices/0000:02:00.0/{file}")] =
            two[format!("sys/bus/pci/devices/0000:01:00.0/{file}")].clone();
    }
    let line = r#"strata-nvml-line {"driver":"570.86.15","devices":[{"pci":"0000:01:00.0","name":"a","capability":[8,9]},{"pci":"0000:02:00.0","failed":{"code":15,"text":"GPU is lost"}}]}"#;
    let facts = asked_through_nvml(&two, &format!("echo '{line}'"));
    let states: Vec<GpuState> = facts.gpus.iter().map(|gpu| gpu.state).collect();
    assert_eq!(states, [GpuState::Usable, GpuState::DriverMissing]);
    assert!(facts.gpus[1].advice.as_deref().unwrap().contains("xid"), "{:?}", facts.gpus[1]);
}

#[test]
fn a_card_that_sleeps_is_not_woken() {
    let mut tree = nvidia_on_the_bus("0x2684\n", "DRIVER=nvidia\n");
    tree["sys/bus/pci/devices/0000:01:00.0/power/runtime_status"] = json!("suspended\n");
    tree["sys/bus/pci/devices/0000:01:00.0/current_link_speed"] = json!("2.5 GT/s PCIe\n");
    tree["sys/bus/pci/devices/0000:01:00.0/current_link_width"] = json!("16\n");
    tree["proc/driver/nvidia/gpus/0000:01:00.0/information"] =
        json!("Model: \t NVIDIA Example 4090\nGPU UUID: \t GPU-7\n");
    tree["usr/bin/nvidia-smi"] = json!({ "mode": "0755", "text": "#!/bin/sh\nexit 1\n" });
    let facts = asked_through_nvml(&tree, "exit 1");
    let gpu = &facts.gpus[0];
    assert!(gpu.asleep && gpu.state == GpuState::Usable && gpu.link.is_none(), "{gpu:?}");
    assert_eq!((gpu.name.as_str(), gpu.target.as_deref()), ("NVIDIA Example 4090", Some("sm_89")));
    assert!(!facts.sources.iter().any(|source| source.failed), "{:?}", facts.sources);
    // Of two, only the one that is awake is asked about.
    for (file, text) in [("vendor", "0x10de"), ("device", "0x2684"), ("class", "0x030000"), ("uevent", "DRIVER=nvidia")]
    {
        tree[format!("sys/bus/pci/devices/0000:02:00.0/{file}")] = json!(text);
    }
    let script =
        r#"echo "strata-nvml-line {\"devices\":[{\"pci\":\"$2\",\"name\":\"asked $#\",\"capability\":[8,9]}]}""#;
    let facts = asked_through_nvml(&tree, script);
    let named: Vec<&str> = facts.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    assert_eq!(named, ["NVIDIA Example 4090", "asked 2"]);
    assert_eq!(facts.gpus[1].pci.as_deref(), Some("0000:02:00.0"));
}

#[test]
fn a_backend_without_a_card_is_absent_with_what_was_looked_at() {
    let facts = Machine::new(&amd_on_the_bus("DRIVER=amdgpu\n")).facts(&[]);
    let states: Vec<(&str, GpuState)> =
        facts.backends.iter().map(|backend| (backend.backend.as_str(), backend.state)).collect();
    assert_eq!(states, [("cuda", GpuState::Absent), ("hip", GpuState::DriverMissing)]);
    let cuda = &facts.backends[0];
    assert!(cuda.evidence.iter().any(|line| line.contains("/sys/bus/pci/devices: 1 devices")), "{:?}", cuda.evidence);
    assert!(cuda.advice.as_deref().unwrap().contains("--target"), "{:?}", cuda.advice);
    // The revision tells cards apart that share an id.
    let mut pro = amd_on_the_bus("");
    pro["sys/bus/pci/devices/0000:03:00.0/revision"] = json!("0x06\n");
    assert_eq!(Machine::new(&pro).facts(&[]).gpus[0].name, "Radeon Pro VII");
}

#[test]
fn a_container_that_was_not_given_an_nvidia_card_says_so() {
    let mut tree = nvidia_on_the_bus("0x2684\n", "DRIVER=nvidia\n");
    tree["dev/null"] = json!("");
    let facts = Machine::new(&tree).facts(&[]);
    assert_eq!(facts.gpus[0].state, GpuState::NoPermission);
    assert!(facts.gpus[0].advice.as_deref().unwrap().contains("--gpus all"), "{:?}", facts.gpus[0]);
}

#[test]
fn bracketed_markers_are_answers_and_garbage_is_refused() {
    let Some(folder) = case("a09-nvsmi-na-memory") else { return };
    // The case asks four columns; ours are those among others.
    let facts = |file: &str| {
        let text = fs_err::read_to_string(folder.join(file)).unwrap();
        let fields: Vec<&str> = text.trim().split(", ").collect();
        let [name, total, used, capability] = fields.as_slice() else { panic!("{text}") };
        let row = format!("0, GPU-1, {name}, {total}, {used}, {capability}, 00000000:01:00.0, 550.90.07");
        let mut tree = tool_answering(&row, "");
        tree["proc/meminfo"] = json!("MemTotal: 1000 kB\n");
        Machine::new(&tree).facts(&[])
    };
    let unified = facts("unified.csv");
    assert_eq!(
        (unified.gpus.len(), unified.gpus[0].memory.total, unified.gpus[0].memory.shared),
        (1, Some(1_024_000), true)
    );
    let denied = facts("denied.csv");
    assert_eq!((denied.gpus.len(), denied.gpus[0].memory.total, denied.gpus[0].memory.shared), (1, None, false));
    let garbage = facts("garbage.csv");
    assert_eq!(garbage.gpus.len(), 0);
    let why = garbage.sources.iter().find(|source| source.failed).unwrap();
    assert!(why.result.contains("memory.total is `12ab4`"), "{why:?}");
}
