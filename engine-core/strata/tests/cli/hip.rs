//! The HIP plugins as the product runs them, on a machine without an AMD card: program, plugin, HIP runtime. The
//! runtime is the software device, whose kernels are those of the plugin compiled for the processor, or AMD's own.
//!
//! `cargo xtask test-plugins` builds what is needed and names the folder for `STRATA_TEST_PLUGIN_DIR`.

use crate::support::{Ran, SMOLLM2, model, ran, strata, strata_with_plugin};
use serde_json::Value;
use std::path::PathBuf;

/// Folder of the plugins, the software device and the kernels for the processor.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("STRATA_TEST_PLUGIN_DIR").map(|folder| PathBuf::from(folder).join("hip"));
    let folder = folder.filter(|folder| folder.join("libamdhip64.so.7").exists());
    if folder.is_none() {
        println!("skipped: no HIP plugins in STRATA_TEST_PLUGIN_DIR (`cargo xtask test-plugins` builds them)");
    }
    folder
}

/// A command with the plugins named, over the software device with these settings.
fn hip(command: &str, plugins: &[&str], settings: &str) -> Option<assert_cmd::Command> {
    let folder = folder()?;
    let mut strata = strata();
    // What crashed or hung in one test must not be known to another.
    let state = tempfile::tempdir().unwrap().keep();
    strata.env("STRATA_STATE_DIR", state).env("STRATA_HIP_LIBRARY", folder.join("libamdhip64.so.7"));
    strata.env("STRATA_SOFTWARE_HIP", format!("memory=2048;kernels={};{settings}", folder.display()));
    strata.arg(command);
    for plugin in plugins {
        strata.arg("--plugin").arg(folder.join(format!("{plugin}.plugin.json")));
    }
    Some(strata)
}

const SHORT: [&str; 8] = ["--raw", "--temperature", "0", "--max-tokens", "3", "--precise", "--max-context", "64"];

/// Without an answer: three tokens of text cost some seconds, a refusal costs nothing.
fn refused(settings: &str, more: &[&str]) -> Option<Ran> {
    let model = model(SMOLLM2)?;
    let mut command = hip("run", &["hip-gfx906"], settings)?;
    let ran = ran(command.args(["--backend", "hip"]).arg(model).arg("Hi").args(SHORT).args(more));
    assert_eq!(ran.status, Some(1), "{settings}: {}", ran.err);
    assert!(ran.out.is_empty() && !ran.err.contains("panicked"), "{settings}: {}", ran.err);
    Some(ran)
}

/// The answer of the CPU plugin, token by token, on cards of both wave widths.
#[test]
fn a_model_gives_the_tokens_of_the_cpu_plugin() {
    let Some(model) = model(SMOLLM2) else { return };
    let prompt = ["The capital of France is", "--json"];
    let expected = ran(strata_with_plugin("run").arg(&model).args(prompt).args(SHORT)).json();
    for (plugin, target) in [("hip-gfx906", "gfx906:sramecc+:xnack-"), ("hip-rx7900", "gfx1100")] {
        let Some(mut command) = hip("run", &[plugin], &format!("target={target}")) else { return };
        let ran = ran(command.args(["--backend", "hip"]).arg(&model).args(prompt).args(SHORT));
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        let report = ran.json();
        assert_eq!(report["tokens"], expected["tokens"], "{plugin}");
        assert_eq!((&report["backend"]["arch"], &report["backend"]["uid"]), (&target.into(), &"0000:03:00.0".into()));
        assert!(ran.err.contains("no device like Software gfx"), "{}", ran.err);
    }
}

/// Codes S0313, S0316, S0318, S0319, S0328, S0331 where a card's runtime is what fails.
#[test]
fn each_fault_gives_its_message_and_a_clean_exit() {
    for (settings, code, words) in [
        ("devices=0", "S0313", &["[S0331]", "finds no card", "libamdhip64.so.7: hipInit answered 101"][..]),
        ("fail=hipGetDeviceCount:100", "S0313", &["[S0331]", "hipGetDeviceCount answered 100"]),
        ("fail=hipInit:999", "S0313", &["[S0328]", "does not start", "hipInit answered 999"]),
        ("version=40500000", "S0313", &["[S0328]", "HIP 4.5.0: too old"]),
        ("target=gfx1030", "S0316", &["Software gfx1030 (0000:03:00.0) (gfx1030): this plugin holds gfx906"]),
        ("fail=hipModuleLoadData:209", "S0316", &["loading kernel", "hipErrorNoBinaryForGpu"]),
        ("fail=hipModuleGetFunction:500", "S0313", &["[S0318]", "loading kernel", "hipErrorNotFound"]),
        ("memory=90", "S0402", &["and 94371840 are free", "weights copied"]),
        ("fail=hipMalloc:2:5", "S0319", &["hipErrorOutOfMemory", "are free", "on Software gfx906 (0000:03:00.0)"]),
        ("fail=kernel:719:60", "S0318", &["waiting for program", "hipErrorLaunchFailure"]),
        ("fail=hipModuleLaunchKernel:701:60", "S0318", &["in layer", "hipModuleLaunchKernel answered 701"]),
        ("fail=hipModuleLaunchKernel:719:60", "S0318", &["the device went away", "in layer"]),
    ] {
        let Some(ran) = refused(settings, &[]) else { return };
        assert!(ran.err.contains(&format!("error[{code}]")), "{settings}: {}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{settings}: no `{word}` in {}", ran.err);
        }
    }
    let Some(ran) = refused("memory=300", &["--vram-reserve-mib", "200"]) else { return };
    assert!(ran.err.contains("error[S0402]") && ran.err.contains("reserve: 209715200 bytes"), "{}", ran.err);
}

/// The runtime's library: absent, without a function, and AMD's own where it is installed.
#[test]
fn a_runtime_that_is_absent_or_finds_no_card_is_said_and_ends_cleanly() {
    let (Some(model), Some(folder)) = (model(SMOLLM2), folder()) else { return };
    let run = |library: &std::ffi::OsStr| {
        let mut command = hip("run", &["hip-gfx906"], "").unwrap();
        command.env("STRATA_HIP_LIBRARY", library).args(["--backend", "hip"]).arg(&model).arg("Hi").args(SHORT);
        let ran = ran(&mut command);
        assert_eq!(ran.status, Some(1), "{}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran.err
    };
    let absent = run("/no/such/libamdhip64.so.7".as_ref());
    assert!(absent.contains("the HIP runtime is not installed: there is no /no/such/libamdhip64.so.7"), "{absent}");

    let spoilt = tempfile::tempdir().unwrap().keep().join("libamdhip64.so.6");
    let mut bytes = fs_err::read(folder.join("libamdhip64.so.7")).unwrap();
    let name = b"\0hipEventRecord\0";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at + 1] = b'x';
    fs_err::write(&spoilt, bytes).unwrap();
    let without = run(spoilt.as_os_str());
    assert!(without.contains("has no function hipEventRecord: ROCm 5 or later is needed"), "{without}");

    let real = run(&std::env::var_os("STRATA_TEST_HIP_REAL").unwrap_or_else(|| "libamdhip64.so.5".into()));
    if real.contains("is not installed") {
        println!("skipped: AMD's own runtime is not installed (`apt install libamdhip64-5`)");
    } else {
        assert!(real.contains("libamdhip64.so.5") && real.contains("(hipError"), "{real}");
    }
}

/// With `--backend auto` the CPU computes and the reason is said.
#[test]
fn a_card_that_cannot_be_used_is_not_passed_over_in_silence() {
    let (Some(model), Some(mut command)) = (model(SMOLLM2), hip("run", &["hip-gfx906"], "target=gfx1030")) else {
        return;
    };
    let ran = ran(command.arg("--plugin").arg(crate::support::cpu_plugin()).arg(model).arg("Hi").args(SHORT));
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.err.contains("warning[S0316]") && ran.err.contains("backend: cpu on"), "{}", ran.err);
}

/// Two cards: the one whose address was named computes; two plugins: the one with code for the card.
#[test]
fn a_card_is_chosen_by_its_address_and_a_plugin_by_its_code() {
    let Some(model) = model(SMOLLM2) else { return };
    let settings = "devices=2;target=gfx1101";
    let Some(mut command) = hip("run", &["hip-gfx906", "hip-rx7900"], settings) else { return };
    let device = ["--backend", "hip", "--device", "0000:04:00.0", "--json", "--max-tokens", "1"];
    let short = ["--raw", "--temperature", "0", "--max-context", "64", "--backend-report"];
    let ran = ran(command.arg(model).arg("Hi").args(device).args(short));
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let backend = &ran.json()["backend"];
    assert_eq!((&backend["plugin"], &backend["uid"]), (&"hip-rx7900".into(), &"0000:04:00.0".into()));
    assert!(backend["report"].as_str().unwrap().ends_with("kernels gfx1101"), "{backend}");
    assert!(ran.err.contains("no code for gfx1101") || ran.err.contains("this plugin holds gfx906"), "{}", ran.err);
}

/// The table that an owner pastes into a report.
#[test]
fn the_selftest_finds_the_kernels_of_both_plugins_right() {
    for (plugin, target) in [("hip-gfx906", "gfx906:sramecc-:xnack-"), ("hip-rx7900", "gfx1102")] {
        let Some(mut command) = hip("doctor", &[plugin], &format!("target={target}")) else { return };
        let cpu = crate::support::cpu_plugin();
        let report = ran(command.arg("--plugin").arg(cpu).args(["--selftest", "--json"])).json();
        let rows = report["selftest"].as_array().unwrap();
        let of_card: Vec<&Value> =
            rows.iter().filter(|row| row["device"].as_str().unwrap().starts_with(plugin)).collect();
        assert!(of_card.len() >= 20, "{report:#}");
        for row in of_card {
            assert_eq!(row["result"], "right", "{row:#}");
        }
    }
}
