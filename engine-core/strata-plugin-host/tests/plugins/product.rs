//! The project's own CPU plugin, as cargo builds it, through everything: descriptor, digest, child,
//! selection, device, program. `STRATA_TEST_PLUGIN_DIR` names the folder of its `cpu.plugin.json`;
//! without it the plugin is built into this build's own target directory.

use crate::support::{Folder, Library};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use strata_backend_abi::{StrataBufferKind, StrataDType};
use strata_plugin_host::select::{BackendRequest, Request, select};
use strata_plugin_host::{
    DeviceOptions, Dim, OpenOptions, PluginEntry, ProbeOptions, ProgramBuilder, ScalarMax, numeric_check,
};

/// A folder of its own for each test, since a process opens a path only once.
fn folder() -> Folder {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| match std::env::var_os("STRATA_TEST_PLUGIN_DIR") {
        Some(given) => {
            let entry = PluginEntry::from_descriptor(&Path::new(&given).join("cpu.plugin.json")).unwrap();
            entry.library_path()
        }
        None => build(),
    });
    let folder = Folder::named("cpu");
    fs_err::copy(library, folder.library()).unwrap();
    folder.describe(|_| {});
    folder
}

fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("a test lies in `<profile>/deps`");
    let target = profile.parent().expect("a profile's folder lies in the target directory");
    let mut build = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    build.args(["build", "--quiet", "--package", "strata-backend-cpu", "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    profile.join(Library::file_name("strata_backend_cpu"))
}

#[test]
fn the_cpu_plugin_is_tried_chosen_and_computes() {
    let folder = folder();
    let entries = vec![("cpu".to_owned(), folder.entry())];
    let options = OpenOptions::probed(folder.probe());
    let selected = select(&entries, &Request::of(BackendRequest::Auto), &options);
    println!("{}", selected.selection.to_text());
    assert!(selected.selection.warnings.is_empty(), "{:?}", selected.selection.warnings);
    let outcome = selected.plugin().unwrap().probe().unwrap().clone();
    println!("the child took {:.1} ms", outcome.took.as_secs_f64() * 1e3);
    // Milliseconds on an idle machine; the tests' own machine may be busy.
    assert!(!outcome.remembered && outcome.took < Duration::from_secs(5), "{outcome:?}");
    assert!(outcome.devices.iter().all(|device| device.failure.is_none()), "{outcome:?}");

    let device = selected.open(&DeviceOptions { n_threads: 2, ..DeviceOptions::default() }).unwrap();
    assert!(device.info().is_host_memory());
    println!("{}", device.report());
    numeric_check(&device).unwrap();

    let max = ScalarMax { tokens: 4, outputs: 1, kv_length: 16, position: 15 };
    let mut builder = ProgramBuilder::new("addition", max);
    let rows = [Dim::Fixed(100), Dim::TOKENS];
    let x = builder.tensor(StrataDType::F32, 0, 0, &rows);
    let out = builder.tensor(StrataDType::F32, 0, 2048, &rows);
    builder.add(out, x, x, 1.0);
    let spec = builder.finish();
    let buffer = device.alloc(StrataBufferKind::Device, 4096, "test").unwrap();
    let data: Vec<u8> = (0..400).flat_map(|i| (i as f32).to_le_bytes()).collect();
    buffer.write(0, &data).unwrap();
    device.compile(&spec, std::slice::from_ref(&buffer)).unwrap().run(&[4, 1, 1, 0]).unwrap();
    let mut sums = vec![0; 1600];
    buffer.read(2048, &mut sums).unwrap();
    for (i, sum) in sums.chunks_exact(4).enumerate() {
        assert_eq!(f32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]).to_bits(), (2.0 * i as f32).to_bits(), "{i}");
    }
}

/// d05 with real libraries: a GPU plugin that fails, and the CPU's.
#[test]
fn d05_a_failing_gpu_plugin_beside_the_cpu_s() {
    let gpu = Folder::compiled(&["FAULT_REFUSE_999"]);
    gpu.describe(|descriptor| descriptor.kind = strata_manifest::BackendKind::Cuda);
    let cpu = folder();
    let entries = vec![("test".to_owned(), gpu.entry()), ("cpu".to_owned(), cpu.entry())];
    let options = OpenOptions::probed(ProbeOptions { state_dir: None, ..cpu.probe() });
    let run = |backend| select(&entries, &Request::of(backend), &options).selection;

    let auto = run(BackendRequest::Auto);
    let text = auto.to_text();
    assert!(text.contains("chosen: cpu cpu"), "{text}");
    let said: Vec<&str> = auto.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("plugin `test` is not used") && said[0].contains("status 999"), "{said:?}");

    let asked = run(BackendRequest::Cuda);
    crate::support::expect(asked.outcome, "gpu-unavailable", "test: [S0308]");

    let cpu_only = run(BackendRequest::Cpu);
    assert!(cpu_only.outcome.is_ok() && cpu_only.warnings.is_empty());
    let text = cpu_only.to_text();
    assert!(text.contains("test: left alone: `--backend cpu` was asked for"), "{text}");
}

/// With `--backend cpu` the GPU's library is not even opened: one that ends the process is harmless.
#[test]
fn a_gpu_plugin_is_not_opened_for_the_cpu() {
    let gpu = Folder::compiled(&["FAULT_CONSTRUCTOR"]);
    gpu.describe(|descriptor| descriptor.kind = strata_manifest::BackendKind::Hip);
    let cpu = folder();
    let entries = vec![("test".to_owned(), gpu.entry()), ("cpu".to_owned(), cpu.entry())];
    let selected = select(&entries, &Request::of(BackendRequest::Cpu), &OpenOptions::in_process());
    assert!(selected.open(&DeviceOptions::default()).is_ok());
}
