//! Plans for machines that nobody has: data in, data out.

use crate::support::{Site, all_packages, card, control, engine, machine, release, request};
use std::path::Path;
use strata_diag::Diagnose;
use strata_install::InstallError;
use strata_install::plan::backend::{BackendChoice, for_download};
use strata_install::plan::machine::{DeviceState, Machine, MachineDevice, Vendor};
use strata_install::plan::targets::Target;
use strata_install::plan::{Choices, Installed, Offered, Volume, Volumes, WantedModel};
use strata_manifest::plan::InstallPlan;
use strata_manifest::{Catalog, Release, Trust};

fn gfx906(state: DeviceState) -> MachineDevice {
    card(Vendor::Amd, "Radeon Pro VII", "0000:03:00.0", Some("gfx906:sramecc+:xnack-"), state)
}

fn plan(devices: Vec<MachineDevice>, backend: BackendChoice) -> Result<InstallPlan, InstallError> {
    let folder = tempfile::tempdir().unwrap();
    release(folder.path(), "0.1.0", 1, &all_packages("0.1.0"));
    let mut site = Site::new(&folder.path().join("prefix"));
    site.machine = machine(devices);
    site.gpu = request(backend);
    site.plan(folder.path())
}

fn plugins(plan: &InstallPlan) -> Vec<&str> {
    plan.backend.plugins.iter().map(String::as_str).collect()
}

#[test]
fn the_machine_decides_when_nothing_is_asked_for() {
    let usable = DeviceState::Usable;
    let rtx = |uid: &str, target: &str| card(Vendor::Nvidia, "RTX", uid, Some(target), usable);
    let rx = card(Vendor::Amd, "RX 7900 XTX", "0000:08:00.0", Some("gfx1100"), usable);
    let table: Vec<(Vec<MachineDevice>, &[&str])> = vec![
        (vec![], &["cpu"]),
        (vec![gfx906(usable)], &["hip-gfx906", "cpu"]),
        (vec![rx.clone()], &["hip-rx7900", "cpu"]),
        (vec![rtx("0000:01:00.0", "sm_89")], &["cuda", "cpu"]),
        (vec![gfx906(usable), rtx("0000:01:00.0", "sm_120")], &["hip-gfx906", "cuda", "cpu"]),
        (vec![gfx906(usable), rx], &["hip-gfx906", "hip-rx7900", "cpu"]),
        (vec![card(Vendor::Intel, "UHD", "0000:00:02.0", None, usable)], &["cpu"]),
        (vec![card(Vendor::Amd, "RX 580", "0000:01:00.0", Some("gfx803"), usable)], &["cpu"]),
        (vec![card(Vendor::Amd, "unknown", "0000:01:00.0", None, DeviceState::Undetermined)], &["cpu"]),
    ];
    for (devices, expected) in table {
        let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
        let plan = plan(devices, BackendChoice::Auto).unwrap();
        assert_eq!(plugins(&plan), expected, "{names:?}");
        // A card that is not used is named with a reason.
        assert!(plan.devices.iter().all(|device| !device.reason.is_empty()));
        assert!(plan.devices.iter().all(|device| device.used || expected == ["cpu"]), "{:?}", plan.devices);
    }
}

#[test]
fn a_gpu_that_is_here_and_unusable_is_never_passed_over_in_silence() {
    for state in [DeviceState::DriverMissing, DeviceState::NoPermission, DeviceState::DriverMismatched] {
        for backend in [BackendChoice::Auto, BackendChoice::Hip] {
            let error = plan(vec![gfx906(state)], backend).unwrap_err();
            assert_eq!(error.code().id, "S0707", "{error}");
            assert!(error.to_string().contains(state.word()), "{error}");
            let hints = error.hints();
            assert!(hints.contains(&"do what the test says".to_owned()), "{hints:?}");
            assert!(hints.iter().any(|hint| hint.contains("--backend hip --target gfx906")), "{hints:?}");
            assert!(hints.iter().any(|hint| hint.contains("--backend cpu") && hint.contains("--download-only")));
        }
        let cpu = plan(vec![gfx906(state)], BackendChoice::Cpu).unwrap();
        assert_eq!(plugins(&cpu), ["cpu"]);
    }
    // With another card that works, the broken one is a warning.
    let works = card(Vendor::Amd, "RX 7900 XTX", "0000:08:00.0", Some("gfx1100"), DeviceState::Usable);
    let plan = plan(vec![gfx906(DeviceState::NoPermission), works], BackendChoice::Auto).unwrap();
    assert_eq!(plugins(&plan), ["hip-rx7900", "cpu"]);
    assert!(plan.warnings[0].contains("Radeon Pro VII") && plan.warnings[0].contains("no permission"));
}

#[test]
fn hip_on_a_machine_without_an_amd_card_names_what_was_looked_at() {
    let nvidia = card(Vendor::Nvidia, "RTX 3090", "0000:01:00.0", Some("sm_86"), DeviceState::Usable);
    for devices in [vec![], vec![nvidia]] {
        let there = devices.len();
        let error = plan(devices, BackendChoice::Hip).unwrap_err();
        assert_eq!(error.code().id, "S0706");
        let text = strata_diag::Diagnostic::of(&error).to_text();
        assert!(text.contains("/sys/class/kfd/kfd/topology/nodes") && text.contains("--target gfx906"), "{text}");
        assert_eq!(text.contains("RTX 3090"), there == 1, "{text}");
    }
}

#[test]
fn a_target_can_be_installed_for_without_the_card() {
    let folder = tempfile::tempdir().unwrap();
    release(folder.path(), "0.1.0", 1, &all_packages("0.1.0"));
    let mut site = Site::new(&folder.path().join("prefix"));
    let table = [
        (BackendChoice::Hip, "gfx906", "hip-gfx906"),
        (BackendChoice::Auto, "gfx1101", "hip-rx7900"),
        (BackendChoice::Auto, "sm_90", "cuda"),
        (BackendChoice::Cuda, "12.0", "cuda"),
    ];
    for (backend, target, plugin) in table {
        site.gpu = request(backend);
        site.gpu.target = Some(Target::parse(target).unwrap());
        let plan = site.plan(folder.path()).unwrap();
        assert_eq!(plugins(&plan), [plugin, "cpu"]);
        assert!(plan.backend.unproven);
    }
    for (backend, target) in [(BackendChoice::Cuda, "gfx906"), (BackendChoice::Hip, "gfx1030")] {
        site.gpu = request(backend);
        site.gpu.target = Some(Target::parse(target).unwrap());
        let error = site.plan(folder.path()).unwrap_err();
        assert_eq!(error.code().id, "S0705", "{error}");
        assert!(error.facts()[0].1.contains("hip-rx7900 (gfx1100 gfx1101 gfx1102)"), "{:?}", error.facts());
    }
    // With the card here the plugin can be tried on it.
    site.machine.devices = vec![gfx906(DeviceState::Usable)];
    site.gpu = request(BackendChoice::Hip);
    site.gpu.target = Some(Target::parse("gfx906").unwrap());
    assert!(!site.plan(folder.path()).unwrap().backend.unproven);
    assert_eq!(Target::parse("rtx").unwrap_err().code().id, "S0708");
}

#[test]
fn gpus_are_chosen_by_number_address_or_unique_id() {
    let folder = tempfile::tempdir().unwrap();
    release(folder.path(), "0.1.0", 1, &all_packages("0.1.0"));
    let mut site = Site::new(&folder.path().join("prefix"));
    let mut second = gfx906(DeviceState::Usable);
    second.uid = "0000:83:00.0".to_owned();
    second.other_ids = vec!["0xa4c1".to_owned()];
    site.machine.devices = vec![gfx906(DeviceState::Usable), second];
    for (asked, used) in [("1", [false, true]), ("0000:03:00.0", [true, false]), ("0xA4C1", [false, true])] {
        site.gpu = request(BackendChoice::Hip);
        site.gpu.gpus = vec![asked.to_owned()];
        let plan = site.plan(folder.path()).unwrap();
        assert_eq!(plan.devices.iter().map(|device| device.used).collect::<Vec<_>>(), used, "{asked}");
    }
    site.gpu.gpus = vec!["2".to_owned()];
    let error = site.plan(folder.path()).unwrap_err();
    assert_eq!(error.code().id, "S0723");
    assert!(error.facts()[0].1.contains("1: Radeon Pro VII at 0000:83:00.0"), "{:?}", error.facts());
    // A card that was named and cannot be used is an error, though another one works.
    site.machine.devices[1].state = DeviceState::NoPermission;
    site.gpu.gpus = vec!["0".to_owned(), "1".to_owned()];
    assert_eq!(site.plan(folder.path()).unwrap_err().code().id, "S0707");
}

#[test]
fn downloads_never_depend_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let release = release(folder.path(), "0.1.0", 1, &all_packages("0.1.0"));
    let ids = |machine: &Machine, backend, target: Option<&str>| {
        let mut asked = request(backend);
        asked.target = target.map(|target| Target::parse(target).unwrap());
        let (picked, notes) = for_download(&release, machine, &asked);
        let ids: Vec<String> = picked.iter().map(|(component, _)| component.id()).collect();
        (ids.join(" "), notes.join("\n"))
    };
    let none = machine(Vec::new());
    assert_eq!(ids(&none, BackendChoice::Auto, None), (String::new(), String::new()));
    assert_eq!(ids(&none, BackendChoice::Hip, None).0, "engine-hip-gfx906 engine-hip-rx7900");
    assert_eq!(ids(&none, BackendChoice::Hip, Some("gfx906")).0, "engine-hip-gfx906");
    let (picked, notes) = ids(&none, BackendChoice::Auto, Some("gfx1030"));
    assert!(picked.is_empty() && notes.contains("runs on the CPU there"), "{notes}");
    let broken = machine(vec![gfx906(DeviceState::DriverMissing)]);
    let (picked, notes) = ids(&broken, BackendChoice::Auto, None);
    assert!(picked == "engine-hip-gfx906" && notes.contains("cannot be used yet"), "{notes}");
    let old = machine(vec![card(Vendor::Amd, "RX 580", "0000:01:00.0", Some("gfx803"), DeviceState::Usable)]);
    let (picked, notes) = ids(&old, BackendChoice::Auto, None);
    assert!(picked.is_empty() && notes.contains("RX 580") && notes.contains("would not run"), "{notes}");
}

fn with_models(release: &Release, machine: &Machine, names: &[&str], free: u64) -> Result<InstallPlan, InstallError> {
    let catalog = Catalog::built_in();
    let models: Vec<WantedModel> = names
        .iter()
        .map(|name| {
            let model = catalog.find(name).unwrap().clone();
            let places = model.files.iter().map(|file| (Path::new("/p/models").join(&file.name), false)).collect();
            WantedModel { model, reason: "asked for".to_owned(), places }
        })
        .collect();
    let choices = Choices {
        gpu: request(BackendChoice::Cpu),
        prefix: "/p".into(),
        models_dir: "/p/models".into(),
        again: false,
        allow_downgrade: false,
        link: false,
    };
    let volume = Some(Volume { id: 1, free });
    let volumes = Volumes { prefix: volume.clone(), models: volume };
    let offered = Offered { release, from: "here", trust: &Trust::Unsigned };
    let installed = Installed { receipt: None, highest_serial: 0, next_generation: 1 };
    strata_install::plan::plan(machine, offered, installed, &choices, &models, &volumes)
}

#[test]
fn disk_space_is_counted_before_the_first_byte() {
    let folder = tempfile::tempdir().unwrap();
    let release = release(folder.path(), "0.1.0", 1, &all_packages("0.1.0"));
    let none = machine(Vec::new());
    let fine = with_models(&release, &none, &["smollm2-135m"], 1 << 30).unwrap();
    assert!(fine.disk[0].needed > 98_362_432 && fine.disk.len() == 1, "{:?}", fine.disk);
    let error = with_models(&release, &none, &["qwen3.8-flash-next-iq3_s"], 40 << 30).unwrap_err();
    assert_eq!(error.code().id, "S0709");
    let text = strata_diag::Diagnostic::of(&error).to_text();
    assert!(
        text.contains("more are needed") && text.contains("free: 40.0 GiB") && text.contains("--models-dir"),
        "{text}"
    );
    let huge = with_models(&release, &none, &["qwen3.8-flash-next-iq3_s"], 400 << 30).unwrap();
    assert!(huge.models[0].fit.text.contains("fits memory") && huge.warnings.is_empty(), "{:?}", huge.models);
    let small = Machine { ram_bytes: Some(16 << 30), ..none };
    let huge = with_models(&release, &small, &["qwen3.8-flash-next-iq3_s"], 400 << 30).unwrap();
    assert!(huge.warnings[0].contains("too large"), "{:?}", huge.warnings);
}

#[test]
fn a_system_that_is_too_old_and_a_release_without_a_part_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(&folder.path().join("prefix"));
    let mut new = engine("0.1.0", "cpu", &[], "pass cpu");
    new.libc_floor = Some("2.38");
    release(&folder.path().join("new"), "0.1.0", 1, &[control("0.1.0"), new]);
    let error = site.plan(&folder.path().join("new")).unwrap_err();
    assert_eq!(error.code().id, "S0724", "{error}");
    release(&folder.path().join("part"), "0.1.0", 1, &[control("0.1.0")]);
    assert_eq!(site.plan(&folder.path().join("part")).unwrap_err().code().id, "S0705");
    release(&folder.path().join("all"), "0.1.0", 1, &all_packages("0.1.0"));
    site.machine.cpu_arch = "aarch64".to_owned();
    assert_eq!(site.plan(&folder.path().join("all")).unwrap_err().code().id, "S0705");
    let error = site.plan(&folder.path().join("absent")).unwrap_err();
    assert_eq!(error.code().id, "S0701", "{error}");
}

#[test]
fn the_plan_in_words_has_every_decision() {
    let mut devices = vec![gfx906(DeviceState::Usable)];
    devices.push(card(Vendor::Intel, "UHD 630", "0000:00:02.0", None, DeviceState::Usable));
    let plan = plan(devices, BackendChoice::Auto).unwrap();
    let text = strata_install::plan::to_text(&plan);
    for part in [
        "plan: install Strata 0.1.0",
        "why: nothing is installed here yet",
        "backend: hip (asked: auto): Radeon Pro VII at 0000:03:00.0: built for gfx906:sramecc+:xnack-",
        "device 0: Radeon Pro VII at 0000:03:00.0, gfx906:sramecc+:xnack-: usable; used",
        "device 1: UHD 630 at 0000:00:02.0: usable; not used: Strata has no backend for GPUs of Intel",
        "component engine-hip-gfx906: strata-engine-0.1.0-linux-x86_64-hip-gfx906.tar.gz",
        "steps: recover, stage, verify, prove, receipt, commit, models, switch, pin, finish",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
