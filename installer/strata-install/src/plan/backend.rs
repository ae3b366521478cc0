//! Which backends: from what was asked for and the devices to plugins, with a reason for each device.
//! A GPU that is here and cannot be used is never passed over in silence.

use crate::InstallError;
use crate::error::UnusableDevice;
use crate::plan::machine::{DeviceState, Machine, MachineDevice};
use crate::plan::targets::Target;
use strata_manifest::plan::{PlannedBackend, PlannedDevice};
use strata_manifest::{Release, ReleaseComponent};

/// Words of `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendChoice {
    Auto,
    Cpu,
    Cuda,
    Hip,
}

impl BackendChoice {
    pub fn word(self) -> &'static str {
        match self {
            BackendChoice::Auto => "auto",
            BackendChoice::Cpu => "cpu",
            BackendChoice::Cuda => "cuda",
            BackendChoice::Hip => "hip",
        }
    }

    fn vendor_name(self) -> &'static str {
        match self {
            BackendChoice::Cuda => "NVIDIA",
            _ => "AMD",
        }
    }

    /// Whether this device is one that the choice is about.
    fn covers(self, device: &MachineDevice) -> bool {
        match self {
            BackendChoice::Auto => device.vendor.backend().is_some(),
            BackendChoice::Cpu => false,
            BackendChoice::Cuda | BackendChoice::Hip => device.vendor.backend() == Some(self.word()),
        }
    }
}

/// What the user said about GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuRequest {
    pub backend: BackendChoice,
    /// `--target`: install for a card that need not be here.
    pub target: Option<Target>,
    /// `--gpus`: numbers of the list, PCI addresses or unique ids.
    pub gpus: Vec<String>,
}

/// What was decided: GPU components in the order in which they are considered.
#[derive(Debug, Clone)]
pub struct Decision<'a> {
    pub planned: PlannedBackend,
    pub gpu_components: Vec<(&'a ReleaseComponent, String)>,
    pub devices: Vec<PlannedDevice>,
    pub warnings: Vec<String>,
}

/// Engine components for this system, in the release's order.
fn engines<'a>(release: &'a Release, machine: &Machine) -> Vec<&'a ReleaseComponent> {
    let fits = |component: &&ReleaseComponent| {
        component.component == "engine" && component.os == machine.os && component.cpu_arch == machine.cpu_arch
    };
    release.components.iter().filter(fits).collect()
}

/// Kind of a component's backend: `hip` of `hip-gfx906`.
pub fn kind(backend: &str) -> &str {
    backend.split('-').next().unwrap_or(backend)
}

fn kind_of_target(target: &Target) -> &'static str {
    target.vendor().backend().unwrap_or("cpu")
}

/// The component with the best code for a target, and why.
fn component_for<'a>(engines: &[&'a ReleaseComponent], target: &Target) -> Option<(&'a ReleaseComponent, String)> {
    let of_kind = engines.iter().filter(|engine| engine.backend.as_deref().map(kind) == Some(kind_of_target(target)));
    let best = of_kind.filter_map(|engine| Some((target.best(&engine.gpu_targets)?, *engine)));
    best.min_by_key(|((fitness, _), _)| *fitness).map(|((fitness, built), engine)| (engine, fitness.text(built)))
}

/// All engines of a release in words, for the message that none fits.
fn holds(engines: &[&ReleaseComponent]) -> Vec<String> {
    let words = |engine: &&ReleaseComponent| {
        let targets =
            if engine.gpu_targets.is_empty() { String::new() } else { format!(" ({})", engine.gpu_targets.join(" ")) };
        format!("{}{targets}", engine.backend.as_deref().unwrap_or("engine"))
    };
    engines.iter().map(words).collect()
}

/// Decides for an installation; refuses where nothing that was asked for can run.
pub fn decide<'a>(release: &'a Release, machine: &Machine, request: &GpuRequest) -> Result<Decision<'a>, InstallError> {
    let engines = engines(release, machine);
    let chosen_gpus = chosen_gpus(machine, &request.gpus)?;
    if let (Some(target), BackendChoice::Auto | BackendChoice::Cuda | BackendChoice::Hip) =
        (&request.target, request.backend)
    {
        return for_target(&engines, machine, request, target);
    }
    match request.backend {
        BackendChoice::Cpu => Ok(cpu(machine, request, "asked for with `--backend cpu`".to_owned(), Vec::new())),
        BackendChoice::Auto | BackendChoice::Cuda | BackendChoice::Hip => {
            for_devices(&engines, machine, request, chosen_gpus.as_deref())
        }
    }
}

/// Positions that `--gpus` names; `None` when it names none.
fn chosen_gpus(machine: &Machine, asked: &[String]) -> Result<Option<Vec<usize>>, InstallError> {
    let known = || {
        let line = |(index, device): (usize, &MachineDevice)| format!("{index}: {} at {}", device.name, device.uid);
        machine.devices.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let find = |name: &String| {
        let by_id = |device: &MachineDevice| {
            device.uid.eq_ignore_ascii_case(name) || device.other_ids.iter().any(|id| id.eq_ignore_ascii_case(name))
        };
        let index = machine.devices.iter().position(by_id).or_else(|| {
            let index: usize = name.parse().ok()?;
            (index < machine.devices.len()).then_some(index)
        });
        index.ok_or_else(|| InstallError::GpuChoice { asked: name.clone(), known: known() })
    };
    if asked.is_empty() { Ok(None) } else { asked.iter().map(find).collect::<Result<_, _>>().map(Some) }
}

fn planned_device(
    index: usize,
    device: &MachineDevice,
    used: bool,
    plugin: Option<&str>,
    reason: String,
) -> PlannedDevice {
    PlannedDevice {
        uid: device.uid.clone(),
        index: index as u64,
        name: device.name.clone(),
        target: device.target.clone(),
        state: device.state.word().to_owned(),
        plugin: plugin.map(str::to_owned),
        used,
        reason,
        advice: device.advice.clone(),
    }
}

fn cpu<'a>(machine: &Machine, request: &GpuRequest, reason: String, warnings: Vec<String>) -> Decision<'a> {
    let why = if request.backend == BackendChoice::Cpu {
        "the CPU was asked for"
    } else {
        "no plugin of this release drives it"
    };
    let devices = machine.devices.iter().enumerate();
    Decision {
        planned: PlannedBackend {
            asked: request.backend.word().to_owned(),
            chosen: "cpu".to_owned(),
            plugins: vec!["cpu".to_owned()],
            target: None,
            unproven: false,
            reason,
        },
        gpu_components: Vec::new(),
        devices: devices.map(|(index, device)| planned_device(index, device, false, None, why.to_owned())).collect(),
        warnings,
    }
}

/// `--target`: the card need not be here; if it is, and usable, the plugin is tried on it.
fn for_target<'a>(
    engines: &[&'a ReleaseComponent],
    machine: &Machine,
    request: &GpuRequest,
    target: &Target,
) -> Result<Decision<'a>, InstallError> {
    let kind = kind_of_target(target);
    if request.backend != BackendChoice::Auto && request.backend.word() != kind {
        return Err(InstallError::ComponentMissing {
            what: format!("{} code for {target}: that is a target of `--backend {kind}`", request.backend.word()),
            holds: holds(engines),
        });
    }
    let Some((component, fitness)) = component_for(engines, target) else {
        return Err(InstallError::ComponentMissing { what: format!("code for {target}"), holds: holds(engines) });
    };
    let plugin = component.backend.clone().unwrap_or_default();
    let runs_here = |device: &MachineDevice| {
        device.state == DeviceState::Usable
            && device
                .target
                .as_deref()
                .and_then(|text| Target::parse(text).ok())
                .is_some_and(|card| card.best(&component.gpu_targets).is_some())
    };
    let devices: Vec<PlannedDevice> = machine
        .devices
        .iter()
        .enumerate()
        .map(|(index, device)| {
            let used = runs_here(device);
            let reason = if used {
                format!("the plugin for {target} runs on it")
            } else {
                format!("not what `--target {target}` is for")
            };
            planned_device(index, device, used, used.then_some(plugin.as_str()), reason)
        })
        .collect();
    let unproven = !devices.iter().any(|device| device.used);
    let mut warnings = Vec::new();
    if unproven {
        warnings.push(format!(
            "no usable {target} card is here, so the plugin `{plugin}` cannot be tried: it is installed unproven"
        ));
    }
    Ok(Decision {
        planned: PlannedBackend {
            asked: format!("{} --target {target}", request.backend.word()),
            chosen: kind.to_owned(),
            plugins: vec![plugin, "cpu".to_owned()],
            target: Some(target.to_string()),
            unproven,
            reason: format!("asked for with `--target {target}`; {fitness}"),
        },
        gpu_components: vec![(component, format!("`--target {target}`: {fitness}"))],
        devices,
        warnings,
    })
}

/// One device against the release.
enum Standing<'a> {
    /// `--gpus` or `--backend` leave it out, or no backend is for its vendor.
    LeftOut(String),
    /// Usable, and the release has code for it.
    Runs(&'a ReleaseComponent, String),
    /// The release has no code for it, or nothing names its target.
    NoCode(String),
    /// The release has code for it and something on this machine stands in the way.
    Blocked(&'a ReleaseComponent, String),
}

fn standing<'a>(
    engines: &[&'a ReleaseComponent],
    request: &GpuRequest,
    chosen: Option<&[usize]>,
    index: usize,
    device: &MachineDevice,
) -> Standing<'a> {
    if chosen.is_some_and(|chosen| !chosen.contains(&index)) {
        return Standing::LeftOut("not named by `--gpus`".to_owned());
    }
    if !request.backend.covers(device) {
        return match device.vendor.backend() {
            Some(_) => Standing::LeftOut(format!("`--backend {}` is not for it", request.backend.word())),
            None => Standing::NoCode(format!("Strata has no backend for GPUs of {}", device.vendor.name())),
        };
    }
    let Some(target) = device.target.as_deref().and_then(|text| Target::parse(text).ok()) else {
        let why = format!("no source names its target, and none is guessed ({})", device.evidence);
        // With its driver at work the target would be known, and the release may well have code for it.
        let of_kind = |engine: &&&'a ReleaseComponent| engine.backend.as_deref().map(kind) == device.vendor.backend();
        let in_the_way = matches!(
            device.state,
            DeviceState::DriverMissing | DeviceState::NoPermission | DeviceState::DriverMismatched
        );
        return match engines.iter().find(of_kind).filter(|_| in_the_way) {
            Some(component) => Standing::Blocked(component, format!("{}: {why}", device.state.word())),
            None => Standing::NoCode(why),
        };
    };
    match component_for(engines, &target) {
        None => Standing::NoCode(format!("this release holds no code for {target}")),
        Some((component, fitness)) if device.state == DeviceState::Usable => Standing::Runs(component, fitness),
        Some((component, _)) => Standing::Blocked(component, format!("{}: {}", device.state.word(), device.evidence)),
    }
}

fn for_devices<'a>(
    engines: &[&'a ReleaseComponent],
    machine: &Machine,
    request: &GpuRequest,
    chosen: Option<&[usize]>,
) -> Result<Decision<'a>, InstallError> {
    let standings: Vec<Standing<'a>> = machine
        .devices
        .iter()
        .enumerate()
        .map(|(index, device)| standing(engines, request, chosen, index, device))
        .collect();
    let devices: Vec<PlannedDevice> = machine
        .devices
        .iter()
        .zip(&standings)
        .enumerate()
        .map(|(index, (device, standing))| match standing {
            Standing::LeftOut(why) | Standing::NoCode(why) => planned_device(index, device, false, None, why.clone()),
            Standing::Blocked(component, why) => {
                planned_device(index, device, false, component.backend.as_deref(), why.clone())
            }
            Standing::Runs(component, fitness) => {
                planned_device(index, device, true, component.backend.as_deref(), fitness.clone())
            }
        })
        .collect();
    let blocked: Vec<UnusableDevice> = machine
        .devices
        .iter()
        .zip(&standings)
        .filter_map(|(device, standing)| match standing {
            Standing::Blocked(_, why) => Some(unusable(device, why)),
            _ => None,
        })
        .collect();
    let named_and_not_running =
        chosen.is_some_and(|chosen| chosen.iter().any(|index| !matches!(standings[*index], Standing::Runs(..))));
    let mut plugins: Vec<(&ReleaseComponent, String, u64)> = Vec::new();
    for (device, standing) in machine.devices.iter().zip(&standings) {
        let Standing::Runs(component, fitness) = standing else { continue };
        let memory = device.memory_bytes.unwrap_or(0);
        match plugins.iter_mut().find(|(known, ..)| known.id() == component.id()) {
            Some((_, _, sum)) => *sum += memory,
            None => plugins.push((component, format!("{} at {}: {fitness}", device.name, device.uid), memory)),
        }
    }
    // The plugin whose cards have the most memory is considered first.
    plugins.sort_by_key(|(_, _, memory)| std::cmp::Reverse(*memory));
    if plugins.is_empty() || named_and_not_running {
        return none_runs(engines, machine, request, &standings, blocked, named_and_not_running);
    }
    let mut warnings: Vec<String> = blocked
        .iter()
        .map(|device| {
            format!(
                "{} at {} is left out: {}{}",
                device.name,
                device.uid,
                device.why,
                device.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default()
            )
        })
        .collect();
    warnings.extend(no_code_warnings(machine, &standings));
    let first = plugins[0].0.backend.clone().unwrap_or_default();
    let names: Vec<String> = plugins.iter().filter_map(|(component, ..)| component.backend.clone()).collect();
    let reason = match plugins.as_slice() {
        [(_, why, _)] => why.clone(),
        _ => format!(
            "cards for {} are here and usable; `{first}` comes first, its cards have the most memory",
            names.join(" and ")
        ),
    };
    Ok(Decision {
        planned: PlannedBackend {
            asked: request.backend.word().to_owned(),
            chosen: kind(&first).to_owned(),
            plugins: names.into_iter().chain(["cpu".to_owned()]).collect(),
            target: devices.iter().find(|device| device.used).and_then(|device| device.target.clone()),
            unproven: false,
            reason,
        },
        gpu_components: plugins.into_iter().map(|(component, why, _)| (component, why)).collect(),
        devices,
        warnings,
    })
}

fn unusable(device: &MachineDevice, why: &str) -> UnusableDevice {
    UnusableDevice {
        name: device.name.clone(),
        uid: device.uid.clone(),
        target: device.target.clone(),
        why: why.to_owned(),
        advice: device.advice.clone(),
    }
}

fn no_code_warnings(machine: &Machine, standings: &[Standing<'_>]) -> Vec<String> {
    let lines = machine.devices.iter().zip(standings).filter_map(|(device, standing)| match standing {
        Standing::NoCode(why) if device.vendor.backend().is_some() => {
            Some(format!("{} at {} is not used: {why}", device.name, device.uid))
        }
        _ => None,
    });
    lines.collect()
}

/// Nothing that was asked for runs: an error that says why, or the CPU with a reason where the
/// user left the choice to us and no card here could be made to work.
fn none_runs<'a>(
    engines: &[&'a ReleaseComponent],
    machine: &Machine,
    request: &GpuRequest,
    standings: &[Standing<'a>],
    mut blocked: Vec<UnusableDevice>,
    named: bool,
) -> Result<Decision<'a>, InstallError> {
    let backend = match request.backend {
        BackendChoice::Auto => blocked_backend(machine, standings),
        choice => choice.word(),
    };
    if named {
        // Whatever else stands in the way of a device that was named by hand is an error as well.
        blocked.extend(machine.devices.iter().zip(standings).filter_map(|(device, standing)| match standing {
            Standing::NoCode(why) => Some(unusable(device, why)),
            _ => None,
        }));
        blocked.extend(machine.devices.iter().zip(standings).filter_map(|(device, standing)| match standing {
            Standing::LeftOut(why) if why.starts_with("`--backend") => Some(unusable(device, why)),
            _ => None,
        }));
    }
    if !blocked.is_empty() {
        return Err(InstallError::DeviceUnusable { devices: blocked, backend });
    }
    let in_question = |device: &MachineDevice| request.backend.covers(device);
    match request.backend {
        BackendChoice::Cuda | BackendChoice::Hip => {
            let Some(device) = machine.devices.iter().find(|device| in_question(device)) else {
                let others = machine.devices.iter().map(|device| format!("{} at {}", device.name, device.uid));
                return Err(InstallError::NoDevice {
                    backend: request.backend.word(),
                    vendor: request.backend.vendor_name(),
                    looked_at: machine.looked_at.clone(),
                    others: others.collect(),
                });
            };
            let what = match &device.target {
                Some(target) => format!("code for {target} ({})", device.name),
                None => format!("code for {} at {}: no source names its target", device.name, device.uid),
            };
            Err(InstallError::ComponentMissing { what, holds: holds(engines) })
        }
        _ => {
            let reason = if machine.devices.is_empty() {
                format!("no GPU was found (looked at: {})", machine.looked_at.join(", "))
            } else {
                "no plugin of this release drives a GPU that is here".to_owned()
            };
            let mut decision = cpu(machine, request, reason, no_code_warnings(machine, standings));
            for (planned, standing) in decision.devices.iter_mut().zip(standings) {
                if let Standing::NoCode(why) | Standing::LeftOut(why) = standing {
                    planned.reason.clone_from(why);
                }
            }
            Ok(decision)
        }
    }
}

fn blocked_backend(machine: &Machine, standings: &[Standing<'_>]) -> &'static str {
    let mut both = machine.devices.iter().zip(standings);
    let first = both.find(|(_, standing)| matches!(standing, Standing::Blocked(..)));
    first.and_then(|(device, _)| device.vendor.backend()).unwrap_or("auto")
}

/// What to fetch for a machine that need not be this one: never refuses because of a device. The
/// second part says what will run where.
pub fn for_download<'a>(
    release: &'a Release,
    machine: &Machine,
    request: &GpuRequest,
) -> (Vec<(&'a ReleaseComponent, String)>, Vec<String>) {
    let engines = engines(release, machine);
    let mut picked: Vec<(&'a ReleaseComponent, String)> = Vec::new();
    let mut notes = Vec::new();
    let mut add = |component: &'a ReleaseComponent, why: String| {
        if !picked.iter().any(|(known, _)| known.id() == component.id()) {
            picked.push((component, why));
        }
    };
    if let Some(target) = &request.target {
        match component_for(&engines, target) {
            Some((component, fitness)) => add(component, format!("`--target {target}`: {fitness}")),
            None => notes.push(format!(
                "no engine of this release runs on {target} (it holds: {}); what is fetched runs on the CPU there",
                holds(&engines).join(", ")
            )),
        }
        return (picked, notes);
    }
    for device in machine.devices.iter().filter(|device| request.backend.covers(device)) {
        let target = device.target.as_deref().and_then(|text| Target::parse(text).ok());
        match target.as_ref().and_then(|target| component_for(&engines, target)) {
            Some((component, fitness)) => {
                if device.state != DeviceState::Usable {
                    notes.push(format!(
                        "{} at {} cannot be used yet ({}: {}); its engine is fetched all the same",
                        device.name,
                        device.uid,
                        device.state.word(),
                        device.evidence
                    ));
                }
                add(component, format!("{} at {}: {fitness}", device.name, device.uid));
            }
            None => notes.push(format!(
                "{} at {}{} would not run with this release (it holds: {}); models would run on the CPU",
                device.name,
                device.uid,
                device.target.as_ref().map(|target| format!(" ({target})")).unwrap_or_default(),
                holds(&engines).join(", ")
            )),
        }
    }
    if picked.is_empty() && matches!(request.backend, BackendChoice::Cuda | BackendChoice::Hip) {
        let kind_asked = request.backend.word();
        let of_kind = engines.iter().filter(|engine| engine.backend.as_deref().map(kind) == Some(kind_asked));
        let all: Vec<&ReleaseComponent> = of_kind.copied().collect();
        match all.as_slice() {
            [] => notes
                .push(format!("this release has no {kind_asked} engine (it holds: {})", holds(&engines).join(", "))),
            all => {
                for component in all {
                    picked.push((component, format!("`--backend {kind_asked}`, whatever the card")));
                }
            }
        }
    }
    (picked, notes)
}
