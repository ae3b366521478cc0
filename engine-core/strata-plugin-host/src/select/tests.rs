//! The choice as text: machines in, reasoning out.

use super::*;
use strata_backend_abi::StrataDeviceKind;
use strata_diag::{Diagnose, ExitStatus};

fn device(index: u32, uid: &str, arch: &str) -> DeviceCandidate {
    let kind = if uid == "cpu" { StrataDeviceKind::Cpu } else { StrataDeviceKind::Gpu };
    let info = DeviceInfo {
        index,
        kind,
        flags: 0,
        name: format!("card {index}"),
        arch: arch.to_owned(),
        uid: uid.to_owned(),
        driver: String::new(),
        memory_total: 1 << 30,
        memory_free: 1 << 30,
    };
    DeviceCandidate { index, info: Some(info), failure: None }
}

fn candidate(plugin: &str, kind: BackendKind, targets: &str, state: CandidateState) -> Candidate {
    let targets = targets.split(',').map(str::to_owned).collect();
    let hardware =
        if kind == BackendKind::Cpu { Hardware::Unknown } else { Hardware::Present(vec!["0000:01:00.0".into()]) };
    Candidate { plugin: plugin.to_owned(), kind, targets, hardware, state }
}

fn cpu() -> Candidate {
    candidate("cpu", BackendKind::Cpu, "x86_64", CandidateState::Open(vec![device(0, "cpu", "x86-64 avx2 fma")]))
}

fn failed(code: &'static strata_diag::Code, message: &str) -> CandidateState {
    CandidateState::Failed(Diagnostic::new(code, message))
}

fn cuda(targets: &str, devices: Vec<DeviceCandidate>) -> Candidate {
    candidate("cuda", BackendKind::Cuda, targets, CandidateState::Open(devices))
}

/// The report, the warnings and the error's code.
fn told(candidates: &[Candidate], request: &Request) -> String {
    let selection = choose(candidates, request);
    // The same again: the choice depends on its arguments only.
    assert_eq!(choose(candidates, request), selection);
    let mut out = selection.to_text();
    for warning in &selection.warnings {
        out = format!("{out}warning {}: {}\n", warning.code.id, warning.message);
    }
    if let Err(error) = &selection.outcome {
        out = format!("{out}error {}\n", error.code().id);
        assert_eq!(error.code().exit, ExitStatus::Failed);
    }
    out
}

#[test]
fn a_gpu_that_fails_is_a_warning_by_default_an_error_when_asked_for_and_nothing_with_cpu() {
    let gpu = candidate("cuda", BackendKind::Cuda, "sm_86", failed(codes::PLUGIN_REFUSED, "status 999"));
    let machine = [gpu, cpu()];
    assert_eq!(
        told(&machine, &Request::of(BackendRequest::Auto)),
        "\
asked: --backend auto
  cuda: unusable: [S0308] status 999
  cpu cpu (card 0): chosen: built for x86_64
chosen: cpu cpu (card 0): no GPU can be used
warning S0308: plugin `cuda` is not used: status 999
"
    );
    assert_eq!(
        told(&machine, &Request::of(BackendRequest::Cuda)),
        "\
asked: --backend cuda
  cuda: unusable: [S0308] status 999
  cpu: left alone: `--backend cuda` was asked for
chosen: none: `--backend cuda` was asked for and cannot be used
warning S0308: plugin `cuda` is not used: status 999
error S0313
"
    );
    let unopened = candidate("cuda", BackendKind::Cuda, "sm_86", CandidateState::NotOpened("whatever".into()));
    assert_eq!(
        told(&[unopened, cpu()], &Request::of(BackendRequest::Cpu)),
        "\
asked: --backend cpu
  cuda: left alone: `--backend cpu` was asked for
  cpu cpu (card 0): chosen: built for x86_64
chosen: cpu cpu (card 0): `--backend cpu` was asked for
"
    );
    let error = choose(&machine, &Request::of(BackendRequest::Cuda)).outcome.unwrap_err();
    assert_eq!(error.facts(), [("candidate", "cuda: [S0308] status 999".to_owned())]);
}

#[test]
fn hardware_that_is_not_there_is_no_warning() {
    let driver = || failed(codes::DRIVER_UNUSABLE, "no libcuda.so.1");
    let mut gpu = candidate("cuda", BackendKind::Cuda, "sm_86", driver());
    assert!(told(&[gpu.clone(), cpu()], &Request::of(BackendRequest::Auto)).contains("warning S0328"));
    gpu.hardware = Hardware::Unknown;
    assert!(told(&[gpu.clone(), cpu()], &Request::of(BackendRequest::Auto)).contains("warning S0328"));
    gpu.hardware = Hardware::Absent;
    let text = told(&[gpu.clone(), cpu()], &Request::of(BackendRequest::Auto));
    assert!(!text.contains("warning"), "{text}");
    // A line all the same: somebody installed it to be used.
    let notes = |request| choose(&[gpu.clone(), cpu()], &Request::of(request)).notes;
    assert_eq!(notes(BackendRequest::Auto), ["cuda: installed, and no card for it is here; the CPU computes"]);
    assert!(notes(BackendRequest::Cpu).is_empty());
    assert!(text.contains("cuda: unusable: [S0328] no libcuda.so.1; the machine has no such hardware"), "{text}");
    // A crash is the plugin's fault, whatever is in the machine, and an unknown refusal may be anything.
    gpu.state = failed(codes::PLUGIN_REFUSED, "status 999");
    assert!(told(&[gpu.clone(), cpu()], &Request::of(BackendRequest::Auto)).contains("warning S0308"));
    gpu.state = failed(codes::PLUGIN_CRASHED, "SIGSEGV");
    assert!(told(&[gpu, cpu()], &Request::of(BackendRequest::Auto)).contains("warning S0310"));
}

#[test]
fn a_plugin_that_sees_no_device_although_there_is_one() {
    let mut gpu = cuda("sm_86", Vec::new());
    let text = told(&[gpu.clone(), cpu()], &Request::of(BackendRequest::Auto));
    assert!(
        text.contains("warning S0313: plugin `cuda` sees no device, though the machine has 0000:01:00.0"),
        "{text}"
    );
    gpu.hardware = Hardware::Absent;
    let text = told(&[gpu.clone(), cpu()], &Request::of(BackendRequest::Auto));
    assert!(!text.contains("warning"), "{text}");
    let text = told(&[gpu], &Request::of(BackendRequest::Cuda));
    assert!(text.contains("error S0313"), "{text}");
}

#[test]
fn order_is_exact_then_same_generation_then_generic_then_cpu_and_ties_keep_the_receipt() {
    let choice = |candidates: &[Candidate]| {
        let chosen = choose(candidates, &Request::of(BackendRequest::Auto)).outcome.unwrap();
        format!("{} {}", candidates[chosen.candidate].plugin, chosen.device)
    };
    let generic = cuda("compute_80", vec![device(0, "a", "sm_86")]);
    let near = candidate("near", BackendKind::Cuda, "sm_80", CandidateState::Open(vec![device(0, "a", "sm_86")]));
    let exact = candidate("exact", BackendKind::Cuda, "sm_86", CandidateState::Open(vec![device(0, "a", "sm_86")]));
    assert_eq!(choice(&[cpu(), generic.clone(), near.clone(), exact.clone()]), "exact 0");
    assert_eq!(choice(&[cpu(), generic.clone(), near.clone()]), "near 0");
    assert_eq!(choice(&[cpu(), generic]), "cuda 0");
    assert_eq!(choice(&[cpu()]), "cpu 0");
    let twin = Candidate { plugin: "twin".into(), ..exact.clone() };
    assert_eq!(choice(&[twin.clone(), exact.clone()]), "twin 0");
    assert_eq!(choice(&[exact, twin]), "exact 0");
    assert_eq!(
        choice(&[cuda("sm_86", vec![device(0, "a", "sm_80"), device(1, "b", "sm_86"), device(2, "c", "sm_86")])]),
        "cuda 1"
    );
}

#[test]
fn one_device_or_target_may_be_asked_for() {
    let machine = [
        cuda("sm_80,sm_86", vec![device(0, "GPU-1", "sm_86"), device(1, "GPU-2", "sm_80")]),
        candidate(
            "hip-gfx906",
            BackendKind::Hip,
            "gfx906",
            CandidateState::Open(vec![device(0, "0000:03:00.0", "gfx906")]),
        ),
        cpu(),
    ];
    let choice = |request: Request| {
        choose(&machine, &request)
            .outcome
            .map(|chosen| format!("{} {}", machine[chosen.candidate].plugin, chosen.device))
    };
    let auto = Request::of(BackendRequest::Auto);
    assert_eq!(choice(auto.clone()).unwrap(), "cuda 0");
    assert_eq!(choice(Request { device: Some("gpu-2".into()), ..auto.clone() }).unwrap(), "cuda 1");
    assert_eq!(choice(Request { device: Some("cpu".into()), ..auto.clone() }).unwrap(), "cpu 0");
    assert_eq!(choice(Request { target: Some("hip-gfx906".into()), ..auto.clone() }).unwrap(), "hip-gfx906 0");
    assert_eq!(choice(Request { target: Some("sm_80".into()), ..auto.clone() }).unwrap(), "cuda 1");
    let absent = Request { device: Some("GPU-9".into()), ..auto };
    let error = choice(absent.clone()).unwrap_err();
    assert_eq!(error.code(), codes::GPU_UNAVAILABLE);
    assert!(
        error.facts().iter().any(|(_, fact)| fact == "cuda, GPU-1 (card 0): device GPU-9 was asked for"),
        "{error:?}"
    );
    // Never a second choice in silence.
    let elsewhere = Request { device: Some("GPU-1".into()), ..Request::of(BackendRequest::Hip) };
    assert_eq!(choice(elsewhere).unwrap_err().code(), codes::GPU_UNAVAILABLE);
}

#[test]
fn a_card_that_another_plugin_serves_is_no_warning() {
    let state = |arch| CandidateState::Open(vec![device(0, "0000:03:00.0", arch)]);
    let machine = [
        candidate("hip-rx7900", BackendKind::Hip, "gfx1100", state("gfx906")),
        candidate("hip-gfx906", BackendKind::Hip, "gfx906", state("gfx906")),
        cpu(),
    ];
    let text = told(&machine, &Request::of(BackendRequest::Auto));
    assert!(text.contains("hip-rx7900 0000:03:00.0 (card 0): unusable: no code for gfx906"), "{text}");
    assert!(text.contains("chosen: hip-gfx906"), "{text}");
    assert!(!text.contains("warning"), "{text}");
    let text = told(&machine[..1], &Request::of(BackendRequest::Auto));
    assert!(text.contains("warning S0316") && text.contains("error S0314"), "{text}");
}

#[test]
fn nothing_at_all() {
    let refused = candidate("cpu", BackendKind::Cpu, "x86_64", failed(codes::CPU_UNSUPPORTED, "the CPU lacks sse4_2"));
    let text = told(&[refused], &Request::of(BackendRequest::Cpu));
    assert!(text.ends_with("chosen: none: the CPU lacks sse4_2\nerror S0315\n"), "{text}");
    assert!(told(&[], &Request::of(BackendRequest::Auto)).ends_with("error S0314\n"));
    let error = choose(&[cpu()], &Request::of(BackendRequest::Hip)).outcome.unwrap_err();
    assert_eq!(error.code(), codes::GPU_UNAVAILABLE);
    assert_eq!(error.facts(), [("candidate", "no plugin of this kind is installed".to_owned())]);
}

#[test]
fn the_report_is_also_json() {
    let json = choose(&[cpu()], &Request::of(BackendRequest::Auto)).to_json();
    assert_eq!(json["asked"], "--backend auto");
    assert_eq!(json["chosen"], "cpu");
    assert_eq!(json["candidates"][0]["verdict"], "chosen");
    assert_eq!(json["warnings"].as_array().unwrap().len(), 0);
}

/// d04: the plugin fits the vendor, not the generation. A row holds the plugin's targets, the card
/// or cards and the plan.
const MATRIX: &str = "\
sm_70,sm_75,sm_80,sm_86,sm_89,ptx_89\t8.6\tcuda
sm_70,sm_75,sm_80,sm_86,sm_89,ptx_89\t8.7\tcuda (sm_86 code runs on 8.7)
sm_70,sm_75,sm_80,sm_86,sm_89,ptx_89\t12.0\tcuda through PTX; slow first start said
sm_70,sm_75,sm_80,sm_86,sm_89\t12.0\tcpu: no code for 12.0
sm_70,sm_75\t6.1\tcpu: no code for 6.1
sm_70,sm_75\t5.2\tcpu: no code for 5.2
sm_80\t7.5\tcpu: no code for 7.5
sm_90a\t10.0\tcpu: sm_90a runs on 9.0 only
sm_70,sm_80\t6.1 and 8.6\tcuda on the second card only
";

#[test]
fn d04_no_kernel_image() {
    for row in MATRIX.lines() {
        let columns: Vec<&str> = row.split('\t').collect();
        let [targets, cards, plan] = columns[..] else { panic!("{row}") };
        let cards = cards.split(" and ").enumerate();
        let devices: Vec<_> = cards.map(|(i, card)| device(i as u32, &format!("GPU-{i}"), card)).collect();
        let n_cards = devices.len();
        let machine = [cuda(targets, devices), cpu()];
        let auto = choose(&machine, &Request::of(BackendRequest::Auto));
        let text = told(&machine, &Request::of(BackendRequest::Auto));
        let chosen = auto.outcome.unwrap();
        let backend = machine[chosen.candidate].plugin.as_str();
        assert_eq!(backend, if plan.starts_with("cpu") { "cpu" } else { "cuda" }, "{row}\n{text}");
        if let Some(at) = plan.find("no code for ") {
            assert!(text.contains(&plan[at..]), "{row}\n{text}");
        }
        if plan.contains("code runs on") {
            assert!(text.contains("sm_86 code runs on it"), "{row}\n{text}");
        }
        if plan.contains("slow first start") {
            assert!(text.contains("through PTX (ptx_89)") && text.contains("the first start is slow"), "{row}\n{text}");
        }
        if plan.contains("second card only") {
            assert_eq!((chosen.device, n_cards), (1, 2), "{row}");
        }
        let asked = choose(&machine, &Request::of(BackendRequest::Cuda)).outcome;
        if backend == "cpu" {
            // On the CPU with a warning that says so, and an error of its own kind when the GPU was asked for.
            assert!(text.contains("warning S0316: plugin `cuda` is not used on device GPU-0: no code for"), "{text}");
            assert_eq!(asked.unwrap_err().code(), codes::ARCH_MISSING, "{row}");
        } else {
            assert_eq!(asked.unwrap().device, chosen.device, "{row}");
        }
    }
}
