//! Which device computes, and why. The choice is a pure function of what is known about each
//! candidate ([`choose`]), so that it can be printed, tested and explained; [`select`] is the
//! little that opens plugins around it.
//!
//! Order: what was asked for explicitly, a device that a plugin was built for exactly, one that
//! its code runs on otherwise, the CPU. Equals go by the order of the receipt, then by the
//! plugin's own order of devices. What was asked for is never replaced by something else in
//! silence: a GPU that was asked for and cannot be used is an error, and one that merely could
//! have been used is a warning. With `--backend cpu` no GPU plugin is opened.

mod hardware;
mod report;
mod targets;

#[cfg(test)]
mod tests;

pub use hardware::{Hardware, hardware};
pub use targets::{TargetFit, target_fit};

use crate::{Device, DeviceInfo, DeviceOptions, OpenOptions, Plugin, PluginEntry, PluginError};
use std::path::Path;
use strata_diag::Diagnostic;
use strata_diag::catalogue::plugin as codes;
use strata_manifest::BackendKind;

/// The word of `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendRequest {
    Auto,
    Cpu,
    Cuda,
    Hip,
}

impl BackendRequest {
    pub fn word(self) -> &'static str {
        match self {
            BackendRequest::Auto => "auto",
            BackendRequest::Cpu => "cpu",
            BackendRequest::Cuda => "cuda",
            BackendRequest::Hip => "hip",
        }
    }

    fn wants(self, kind: BackendKind) -> bool {
        match self {
            BackendRequest::Auto => kind != BackendKind::Unknown,
            BackendRequest::Cpu => kind == BackendKind::Cpu,
            BackendRequest::Cuda => kind == BackendKind::Cuda,
            BackendRequest::Hip => kind == BackendKind::Hip,
        }
    }
}

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub backend: BackendRequest,
    /// `uid` of a device; only that one will do.
    pub device: Option<String>,
    /// A plugin's name (`hip-gfx906`) or a target of its code (`sm_86`); only that one will do.
    pub target: Option<String>,
}

impl Request {
    pub fn of(backend: BackendRequest) -> Request {
        Request { backend, device: None, target: None }
    }

    /// In the words of the flags.
    pub fn words(&self) -> String {
        let mut words = vec!["--backend", self.backend.word()];
        for (flag, value) in [("--device", &self.device), ("--target", &self.target)] {
            if let Some(value) = value {
                words.extend([flag, value]);
            }
        }
        words.join(" ")
    }

    /// A GPU or one certain device, and nothing else.
    fn is_explicit(&self) -> bool {
        self.backend != BackendRequest::Auto || self.device.is_some() || self.target.is_some()
    }
}

/// A plugin of the receipt and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub plugin: String,
    pub kind: BackendKind,
    pub targets: Vec<String>,
    /// Whether the machine has such hardware, as far as the bus tells.
    pub hardware: Hardware,
    pub state: CandidateState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CandidateState {
    /// Left alone, and why.
    NotOpened(String),
    Failed(Diagnostic),
    Open(Vec<DeviceCandidate>),
}

/// One device of an open plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCandidate {
    /// The plugin's own number for it.
    pub index: u32,
    /// `None` when the plugin cannot even describe it.
    pub info: Option<DeviceInfo>,
    pub failure: Option<Diagnostic>,
}

/// What the choice says about one device, or about a plugin without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub plugin: String,
    pub device: Option<String>,
    pub verdict: Verdict,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Chosen,
    /// It would have done.
    Usable,
    Unusable,
    /// Not looked at, or not what was asked for.
    LeftAlone,
}

/// The device that computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Position among the candidates.
    pub candidate: usize,
    /// The plugin's own number for the device.
    pub device: u32,
    /// One sentence.
    pub why: String,
}

/// The whole of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub request: Request,
    pub reasons: Vec<Reason>,
    /// Hardware that is there and is not used because something failed. To be shown always.
    pub warnings: Vec<Diagnostic>,
    /// What is worth a line: a slow first start, a card without a plugin.
    pub notes: Vec<String>,
    pub outcome: Result<Chosen, PluginError>,
}

/// One device with its place in the order.
struct Usable {
    candidate: usize,
    device: u32,
    reason: usize,
    /// GPU before CPU, then by fit.
    order: (bool, u8),
    fit: TargetFit,
    name: String,
}

/// Decides. Candidates are in the order of the receipt.
pub fn choose(candidates: &[Candidate], request: &Request) -> Selection {
    let mut selection = Selection {
        request: request.clone(),
        reasons: Vec::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
        outcome: Err(PluginError::NoBackend { reasons: Vec::new() }),
    };
    let mut usable = Vec::new();
    let mut failures = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        judge(index, candidate, request, &mut selection, &mut usable, &mut failures);
    }
    // The sort is stable: equals stay in the order of the receipt.
    usable.sort_by_key(|one| one.order);
    warn(&mut selection, candidates, &failures, &usable);
    let Some(best) = usable.first() else {
        selection.outcome = Err(refusal(&selection, &failures));
        return selection;
    };
    selection.reasons[best.reason].verdict = Verdict::Chosen;
    let kind = candidates[best.candidate].kind;
    let why = match (request.is_explicit(), kind) {
        (true, _) => format!("`{}` was asked for", request.words()),
        (false, BackendKind::Cpu) if candidates.iter().any(|other| other.kind.is_gpu()) => {
            "no GPU can be used".to_owned()
        }
        (false, BackendKind::Cpu) => "no plugin for a GPU is installed".to_owned(),
        (false, _) => best.fit.to_string(),
    };
    let idle = candidates.iter().filter(|other| other.kind.is_gpu()).map(|other| other.plugin.as_str());
    let idle = idle.collect::<Vec<_>>().join(", ");
    // Somebody installed it to be used: that it is not is said, also where no card is to blame for it.
    if kind == BackendKind::Cpu && !request.is_explicit() && selection.warnings.is_empty() && !idle.is_empty() {
        selection.notes.push(format!("{idle}: installed, and no card for it is here; the CPU computes"));
    }
    if best.fit.compiles_first() {
        selection.notes.push(format!("{}: {}; the first start is slow", best.name, best.fit));
    }
    selection.outcome = Ok(Chosen { candidate: best.candidate, device: best.device, why });
    selection
}

/// Why one device or plugin will not do.
struct Failure {
    candidate: usize,
    reason: usize,
    uid: Option<String>,
    diagnostic: Diagnostic,
}

fn judge(
    index: usize,
    candidate: &Candidate,
    request: &Request,
    selection: &mut Selection,
    usable: &mut Vec<Usable>,
    failures: &mut Vec<Failure>,
) {
    let mut say = |device: Option<String>, verdict, text: String| {
        selection.reasons.push(Reason { plugin: candidate.plugin.clone(), device, verdict, text });
        selection.reasons.len() - 1
    };
    if !request.backend.wants(candidate.kind) {
        say(None, Verdict::LeftAlone, unopened(request, candidate.kind));
        return;
    }
    let devices = match &candidate.state {
        CandidateState::NotOpened(why) => {
            say(None, Verdict::LeftAlone, why.clone());
            return;
        }
        CandidateState::Failed(diagnostic) => {
            let reason = say(None, Verdict::Unusable, reason_of(diagnostic));
            failures.push(Failure { candidate: index, reason, uid: None, diagnostic: diagnostic.clone() });
            return;
        }
        CandidateState::Open(devices) => devices,
    };
    if devices.is_empty() {
        say(None, Verdict::Unusable, "it sees no device".to_owned());
        return;
    }
    for device in devices {
        let uid = device.info.as_ref().map(|info| info.uid.clone());
        let label = Some(device.info.as_ref().map_or_else(|| format!("device {}", device.index), device_text));
        if let Some(diagnostic) = &device.failure {
            let reason = say(label, Verdict::Unusable, reason_of(diagnostic));
            failures.push(Failure { candidate: index, reason, uid, diagnostic: diagnostic.clone() });
            continue;
        }
        let Some(info) = &device.info else { continue };
        let fit = target_fit(candidate.kind, &candidate.targets, &info.arch);
        if let TargetFit::None(missing) = &fit {
            let reason = say(label, Verdict::Unusable, missing.clone());
            let diagnostic = Diagnostic::new(codes::ARCH_MISSING, missing.clone());
            failures.push(Failure { candidate: index, reason, uid, diagnostic });
            continue;
        }
        if let Some(other) = not_asked_for(request, candidate, info, &fit) {
            say(label, Verdict::LeftAlone, other);
            continue;
        }
        let rank = match fit {
            TargetFit::Exact(_) => 0,
            TargetFit::SameGeneration(_) => 1,
            TargetFit::Generic(_) | TargetFit::None(_) => 2,
        };
        let reason = say(label, Verdict::Usable, fit.to_string());
        let order = (!candidate.kind.is_gpu(), rank);
        usable.push(Usable { candidate: index, device: device.index, reason, order, fit, name: device_text(info) });
    }
}

/// Why a usable device is not the one that was asked for.
fn not_asked_for(request: &Request, candidate: &Candidate, info: &DeviceInfo, fit: &TargetFit) -> Option<String> {
    if let Some(uid) = &request.device
        && !uid.eq_ignore_ascii_case(&info.uid)
    {
        return Some(format!("device {uid} was asked for"));
    }
    let target = request.target.as_ref()?;
    let is_it = *target == candidate.plugin
        || matches!(fit, TargetFit::Exact(found) | TargetFit::SameGeneration(found) | TargetFit::Generic(found) if found == target);
    (!is_it).then(|| format!("target {target} was asked for"))
}

fn device_text(info: &DeviceInfo) -> String {
    format!("{} ({})", info.uid, info.name)
}

fn reason_of(diagnostic: &Diagnostic) -> String {
    format!("[{}] {}", diagnostic.code.id, diagnostic.message)
}

/// Says what is there and not used. A failure counts when the machine may have the hardware and
/// no other plugin makes use of that very device.
fn warn(selection: &mut Selection, candidates: &[Candidate], failures: &[Failure], usable: &[Usable]) {
    if selection.request.backend == BackendRequest::Cpu {
        return;
    }
    for failure in failures {
        let candidate = &candidates[failure.candidate];
        let served = failure.uid.as_ref().is_some_and(|uid| {
            usable.iter().any(|other| {
                device_info(&candidates[other.candidate], other.device).is_some_and(|info| info.uid == *uid)
            })
        });
        if served {
            continue;
        }
        let device = failure.uid.as_ref().map(|uid| format!(" on device {uid}")).unwrap_or_default();
        let message = format!("plugin `{}` is not used{device}: {}", candidate.plugin, failure.diagnostic.message);
        // A plugin without its driver is no news where there is nothing to drive.
        let is_news = candidate.hardware != Hardware::Absent
            || ![codes::DRIVER_UNUSABLE, codes::NO_DEVICE].contains(&failure.diagnostic.code);
        if is_news {
            selection.warnings.push(Diagnostic { message, ..failure.diagnostic.clone() });
        } else {
            selection.reasons[failure.reason].text += "; the machine has no such hardware";
        }
    }
    for candidate in candidates.iter().filter(|candidate| selection.request.backend.wants(candidate.kind)) {
        let CandidateState::Open(devices) = &candidate.state else { continue };
        if let (true, Hardware::Present(places)) = (devices.is_empty(), &candidate.hardware) {
            let message =
                format!("plugin `{}` sees no device, though the machine has {}", candidate.plugin, places.join(", "));
            let masks = "a mask such as `CUDA_VISIBLE_DEVICES`, `HIP_VISIBLE_DEVICES` or `ROCR_VISIBLE_DEVICES` hides \
                         devices; a container has to be given them";
            selection.warnings.push(Diagnostic::new(codes::GPU_UNAVAILABLE, message).hint(masks));
        }
    }
}

fn device_info(candidate: &Candidate, index: u32) -> Option<&DeviceInfo> {
    match &candidate.state {
        CandidateState::Open(devices) => devices.iter().find(|device| device.index == index)?.info.as_ref(),
        CandidateState::NotOpened(_) | CandidateState::Failed(_) => None,
    }
}

fn refusal(selection: &Selection, failures: &[Failure]) -> PluginError {
    let request = &selection.request;
    let mut reasons: Vec<String> = Vec::new();
    for reason in
        selection.reasons.iter().filter(|reason| reason.verdict != Verdict::LeftAlone || request.device.is_some())
    {
        let device = reason.device.as_ref().map(|device| format!(", {device}")).unwrap_or_default();
        reasons.push(format!("{}{device}: {}", reason.plugin, reason.text));
    }
    let gpu = matches!(request.backend, BackendRequest::Cuda | BackendRequest::Hip);
    if gpu || request.device.is_some() || request.target.is_some() {
        if reasons.is_empty() {
            reasons.push("no plugin of this kind is installed".to_owned());
        }
        let arch_missing =
            !failures.is_empty() && failures.iter().all(|failure| failure.diagnostic.code == codes::ARCH_MISSING);
        return PluginError::GpuUnavailable { asked: format!("`{}`", request.words()), reasons, arch_missing };
    }
    // One plugin and one reason: that is the error, with its own code.
    if let [only] = failures
        && request.backend == BackendRequest::Cpu
    {
        return PluginError::Reported(Box::new(only.diagnostic.clone()));
    }
    if reasons.is_empty() {
        reasons.push("no plugin is installed".to_owned());
    }
    PluginError::NoBackend { reasons }
}

/// A selection and what it needs to go on.
#[derive(Debug)]
pub struct Selected {
    pub selection: Selection,
    /// In the order of the candidates; `None` where nothing was opened.
    plugins: Vec<Option<Plugin>>,
}

impl Selected {
    /// The plugin of the chosen device.
    pub fn plugin(&self) -> Option<&Plugin> {
        self.plugins[self.selection.outcome.as_ref().ok()?.candidate].as_ref()
    }

    /// Opens the device that was chosen.
    pub fn open(&self, options: &DeviceOptions) -> Result<Device, PluginError> {
        let chosen = self.selection.outcome.as_ref().map_err(Clone::clone)?;
        let plugin = self.plugins[chosen.candidate].as_ref().ok_or_else(|| PluginError::InvalidCall {
            call: "Selected::open",
            reason: "the chosen plugin was not opened".to_owned(),
        })?;
        plugin.open_device(chosen.device, options)
    }
}

/// Opens the plugins that the request may need, in the order in which they would be chosen, and
/// chooses. `entries` are those of the receipt, also the ones that cannot be read.
pub fn select(
    entries: &[(String, Result<PluginEntry, PluginError>)],
    request: &Request,
    options: &OpenOptions,
) -> Selected {
    let root = Path::new("/");
    let mut plugins = vec![None; entries.len()];
    let mut candidates: Vec<Candidate> = entries
        .iter()
        .map(|(name, entry)| {
            let kind = entry.as_ref().map_or(BackendKind::Unknown, PluginEntry::kind);
            Candidate {
                plugin: name.clone(),
                kind,
                targets: entry.as_ref().map(|entry| entry.descriptor().targets.clone()).unwrap_or_default(),
                hardware: hardware(root, kind),
                state: CandidateState::NotOpened(unopened(request, kind)),
            }
        })
        .collect();
    // GPUs first: when one of them does, the CPU's plugin need not be opened.
    for gpus in [true, false] {
        for (index, (_, entry)) in entries.iter().enumerate() {
            let kind = candidates[index].kind;
            if kind.is_gpu() != gpus && kind != BackendKind::Unknown {
                continue;
            }
            match entry {
                Err(error) if gpus => candidates[index] = broken(&candidates[index], error, request),
                Ok(entry) if request.backend.wants(kind) => {
                    let (state, plugin) = open(entry, options);
                    candidates[index].state = state;
                    plugins[index] = plugin;
                }
                _ => {}
            }
        }
        let selection = choose(&candidates, request);
        if selection.outcome.is_ok() && gpus {
            return Selected { selection, plugins };
        }
    }
    let mut selection = choose(&candidates, request);
    uninstalled(&mut selection, &candidates, root);
    Selected { selection, plugins }
}

fn unopened(request: &Request, kind: BackendKind) -> String {
    match kind {
        BackendKind::Cpu if request.backend == BackendRequest::Auto => "a GPU comes first".to_owned(),
        BackendKind::Unknown => "a kind of plugin that this version does not know".to_owned(),
        _ => format!("`{}` was asked for", request.words()),
    }
}

/// A plugin whose descriptor cannot be read may be of any kind; it counts as of the kind asked for.
fn broken(candidate: &Candidate, error: &PluginError, request: &Request) -> Candidate {
    let kind = match request.backend {
        BackendRequest::Cuda => BackendKind::Cuda,
        BackendRequest::Hip => BackendKind::Hip,
        BackendRequest::Auto | BackendRequest::Cpu => BackendKind::Cpu,
    };
    Candidate { kind, state: CandidateState::Failed(Diagnostic::of(error)), ..candidate.clone() }
}

fn open(entry: &PluginEntry, options: &OpenOptions) -> (CandidateState, Option<Plugin>) {
    let failed = |error: &PluginError| CandidateState::Failed(Diagnostic::of(error));
    let plugin = match Plugin::open(entry, options) {
        Ok(plugin) => plugin,
        Err(error) => return (failed(&error), None),
    };
    let slots = match plugin.device_slots() {
        Ok(slots) => slots,
        Err(error) => return (failed(&error), Some(plugin)),
    };
    let devices = slots.into_iter().enumerate().map(|(index, slot)| {
        let index = index as u32;
        match slot {
            Err(error) => DeviceCandidate { index, info: None, failure: Some(Diagnostic::of(&error)) },
            Ok(info) => {
                let failure = plugin.passed_probe(&info).err().map(|error| Diagnostic::of(&error));
                DeviceCandidate { index, info: Some(info), failure }
            }
        }
    });
    (CandidateState::Open(devices.collect()), Some(plugin))
}

/// A card for which no plugin is installed.
fn uninstalled(selection: &mut Selection, candidates: &[Candidate], root: &Path) {
    for kind in [BackendKind::Cuda, BackendKind::Hip] {
        let is_installed = candidates.iter().any(|candidate| candidate.kind == kind);
        if is_installed || !selection.request.backend.wants(kind) {
            continue;
        }
        if let Hardware::Present(places) = hardware(root, kind) {
            let places = places.join(", ");
            selection
                .notes
                .push(format!("the machine has a GPU for `{}` ({places}), no plugin for it is installed", kind.word()));
        }
    }
}
