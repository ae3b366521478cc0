//! `strata-setup install` and everything that is said with the same flags: plan, dry run, update.

use crate::ask::Asker;
use crate::cli::{BackendArg, InstallArgs};
use crate::commands::download;
use crate::context::{Context, own_prefix};
use crate::fetching::{Network, Wanted};
use crate::models::{Request, Shelf};
use crate::outcome::Outcome;
use crate::source::{self, Opened};
use crate::{env, facts, fetching, printer};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use strata_diag::catalogue::general::BAD_OPTION;
use strata_diag::catalogue::installing::SELF_UPDATE;
use strata_diag::{Diagnostic, ExitStatus};
use strata_install::plan::backend::{BackendChoice, GpuRequest};
use strata_install::plan::machine::Machine;
use strata_install::plan::targets::Target;
use strata_install::plan::{Choices, Installed, Offered, Volume, Volumes, WantedModel, fit, to_text};
use strata_install::{
    Apply, ArchiveSource, Disk, Folder, InstallError, InstallRoot, ModelFile, Placing, apply, bytes, volume_of,
};
use strata_manifest::plan::{InstallPlan, PlanAction};
use strata_manifest::setup_report::InstalledReport;
use strata_manifest::{Receipt, Sha256Digest, UtcTime};

/// Everything that an installation is decided from.
struct Scene<'a> {
    context: &'a Context,
    args: &'a InstallArgs,
    root: InstallRoot,
    models_dir: PathBuf,
    installed: Option<Receipt>,
    opened: Opened,
    machine: Machine,
}

pub(crate) fn run(context: &Context, args: &InstallArgs) -> Outcome {
    if args.download_only {
        return download::run(context, args);
    }
    if args.to.is_some() || args.print {
        return Err(Diagnostic::new(BAD_OPTION, "`--to` and `--print` are for `--download-only`")
            .hint("fetch into a folder: `strata-setup --download-only --to DIR`")
            .hint("where to install is said by `--prefix DIR`, where models go by `--models-dir DIR`")
            .into());
    }
    let root = InstallRoot::new(&prefix(context, args)?)?;
    wait_turn(context, args, &root)?;
    if let Some(stopped) = strata_install::stopped(&root) {
        printer::talk(&format!("note: an earlier {} stopped at step `{}`", stopped.action, stopped.step));
    }
    let (pins, installed) = source::known(&root)?;
    let index = root.downloads().join("index");
    let opened = source::open(args, &pins, installed.as_ref(), &index, &context.progress)?;
    let machine = facts::machine(args.root.as_deref())?.machine;
    let models_dir = match &args.models_dir {
        Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        None => root.models(),
    };
    if args.models_dir.is_some() && models_dir.to_str().is_none() {
        let message = format!("`{}` is no UTF-8, and the list of models holds only such paths", models_dir.display());
        return Err(Diagnostic::new(BAD_OPTION, message).hint("name another folder: `--models-dir DIR`").into());
    }
    let scene = Scene { context, args, root, models_dir, installed, opened, machine };
    scene.run()
}

/// With `--wait`, another run comes to its end first: what it leaves is what is planned from.
fn wait_turn(context: &Context, args: &InstallArgs, root: &InstallRoot) -> Outcome<()> {
    if !context.patience().is_zero() && !args.dry_run && root.state().join("lock").is_file() {
        drop(strata_install::lock(root, &Disk::real(), context.patience())?);
    }
    Ok(())
}

/// `self-update`: the newest release of what is installed, chosen as it was chosen then.
pub(crate) fn self_update(context: &Context, args: &InstallArgs) -> Outcome {
    if context.common.prefix.is_none() && own_prefix().is_none() {
        return Err(Diagnostic::new(SELF_UPDATE, "this program lies in no installation, and none is named")
            .hint("name it: `strata-setup self-update --prefix DIR`")
            .into());
    }
    let root = context.root()?;
    let (_, receipt) = root.require_installed()?;
    let mut args = InstallArgs { no_model: args.model.is_empty(), ..args.clone() };
    if let Some(record) = receipt.install.filter(|_| args.backend == BackendArg::Auto && args.target.is_none()) {
        // `hip --target gfx906` is how the words were recorded.
        let mut words = record.backend_asked.split(" --target ");
        args.backend = match words.next() {
            Some("cpu") => BackendArg::Cpu,
            Some("cuda") => BackendArg::Cuda,
            Some("hip") => BackendArg::Hip,
            _ => BackendArg::Auto,
        };
        args.target = words.next().map(str::to_owned);
        args.allow_unproven |= !record.unproven.is_empty();
    }
    run(context, &args)
}

fn prefix(context: &Context, args: &InstallArgs) -> Outcome<PathBuf> {
    let default = context.prefix()?;
    let asked = context.common.prefix.is_none() && !args.dry_run && context.asker.is_person() && own_prefix().is_none();
    if !asked {
        return Ok(default);
    }
    let text = context.asker.text("Where to install", &default.display().to_string(), "--prefix DIR")?;
    Ok(expanded(&text))
}

/// `~/x` as a shell would take it.
fn expanded(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(text),
    }
}

/// The words of the command line for the planner.
pub(crate) fn gpu_request(args: &InstallArgs) -> Outcome<GpuRequest> {
    Ok(GpuRequest {
        backend: match args.backend {
            BackendArg::Auto => BackendChoice::Auto,
            BackendArg::Cpu => BackendChoice::Cpu,
            BackendArg::Cuda => BackendChoice::Cuda,
            BackendArg::Hip => BackendChoice::Hip,
        },
        target: args.target.as_deref().map(Target::parse).transpose()?,
        gpus: args.gpus.clone(),
    })
}

impl Scene<'_> {
    fn run(&self) -> Outcome {
        let asker = self.context.asker;
        let mut gpu = gpu_request(self.args)?;
        let shelf = Shelf::open(self.args, &self.opened, (&self.models_dir, &self.context.progress))?;
        if !self.args.dry_run && asker.is_person() {
            self.talk_about_machine();
            gpu = self.ask_backend(gpu)?;
        }
        let requests = self.requests(&shelf)?;
        let link = self.args.link || self.ask_link()?;
        let plan = match self.plan(&gpu, &requests, link) {
            Err(InstallError::DeviceUnusable { devices, backend }) if asker.is_person() && !self.args.dry_run => {
                let error = InstallError::DeviceUnusable { devices, backend };
                gpu = self.ask_way_out(&gpu, error)?;
                self.plan(&gpu, &requests, link)?
            }
            plan => plan?,
        };
        if self.args.dry_run {
            self.context.answer(&to_text(&plan), &plan)?;
            return Ok(ExitStatus::Done);
        }
        printer::talk(&to_text(&plan));
        if asker.is_person() && !asker.confirm("Go on?", true, "--yes")? {
            printer::talk("nothing was changed");
            return Ok(ExitStatus::Done);
        }
        let (applied, placed) = self.carry_out(&plan, &requests, link)?;
        self.report(&plan, &applied, &placed)
    }

    fn talk_about_machine(&self) {
        for (index, device) in self.machine.devices.iter().enumerate() {
            let target = device.target.as_deref().unwrap_or("target unknown");
            printer::talk(&format!(
                "GPU {index}: {} at {} ({target}): {}",
                device.name,
                device.uid,
                device.state.word()
            ));
        }
        if self.machine.devices.is_empty() {
            printer::talk("no GPU was found");
        }
    }

    fn ask_backend(&self, mut gpu: GpuRequest) -> Outcome<GpuRequest> {
        if gpu.backend != BackendChoice::Auto || gpu.target.is_some() || self.machine.devices.is_empty() {
            return Ok(gpu);
        }
        let choices = [
            (BackendChoice::Auto, "whatever the cards that are here need"),
            (BackendChoice::Cpu, "the processor only"),
            (BackendChoice::Cuda, "NVIDIA cards"),
            (BackendChoice::Hip, "AMD cards"),
        ];
        let lines: Vec<String> = choices.iter().map(|(choice, what)| format!("{}: {what}", choice.word())).collect();
        let answer = self.context.asker.select("What shall compute", &lines, 0, "--backend auto|cpu|cuda|hip")?;
        gpu.backend = choices.get(answer).map_or(BackendChoice::Auto, |(choice, _)| *choice);
        Ok(gpu)
    }

    /// A card stands in the way: a person may go on without it or install for it unproven.
    fn ask_way_out(&self, gpu: &GpuRequest, error: InstallError) -> Outcome<GpuRequest> {
        printer::talk(&Diagnostic::of(&error).to_text());
        let InstallError::DeviceUnusable { devices, .. } = &error else { return Err(error.into()) };
        let target = devices.iter().find_map(|device| device.target.clone());
        let mut choices = vec!["stop here".to_owned(), "go on with the processor only".to_owned()];
        choices.extend(target.as_ref().map(|target| format!("install for {target} all the same, unproven")));
        let answer = self.context.asker.select("What now", &choices, 0, "--backend cpu, or --target TARGET")?;
        match (answer, target) {
            (1, _) => Ok(GpuRequest { backend: BackendChoice::Cpu, target: None, gpus: Vec::new() }),
            (2, Some(target)) => {
                Ok(GpuRequest { target: Some(Target::parse(&target)?), gpus: Vec::new(), backend: gpu.backend })
            }
            _ => Err(error.into()),
        }
    }

    /// Which models: those named; those of a download folder; else a question.
    fn requests(&self, shelf: &Shelf<'_>) -> Outcome<Vec<Request>> {
        if self.args.no_model {
            return Ok(Vec::new());
        }
        if !self.args.model.is_empty() {
            return self.args.model.iter().map(|name| shelf.find(name)).collect();
        }
        let there = shelf.downloaded_names();
        if !there.is_empty() {
            return there.iter().map(|name| shelf.find(name)).collect();
        }
        let has_models = !self.root.model_store()?.models.is_empty();
        if has_models || self.args.offline || self.args.dry_run || self.context.asker == Asker::Nobody {
            return Ok(Vec::new());
        }
        self.ask_model(shelf)
    }

    fn ask_model(&self, shelf: &Shelf<'_>) -> Outcome<Vec<Request>> {
        let memory = facts::memory(&self.machine);
        let models = &shelf.catalog.models;
        let mut lines: Vec<String> = models
            .iter()
            .map(|model| format!("{} ({}): {}", model.name, bytes(model.bytes()), fit::judge(model, memory).text))
            .collect();
        lines.push("none".to_owned());
        let default = models.iter().position(|model| model.recommended).unwrap_or(models.len());
        let answer = self.context.asker.select("Which model", &lines, default, "--model NAME, or --no-model")?;
        models.get(answer).map(|model| shelf.find(&model.name)).into_iter().collect()
    }

    fn ask_link(&self) -> Outcome<bool> {
        let Some(folder) = env::program_folder() else { return Ok(false) };
        let ask = self.context.asker.is_person() && !self.args.dry_run && !folder.join("strata").is_symlink();
        if !ask {
            return Ok(false);
        }
        self.context.asker.confirm(&format!("Link `strata` into {}", folder.display()), true, "--link")
    }

    fn plan(&self, gpu: &GpuRequest, requests: &[Request], link: bool) -> Result<InstallPlan, InstallError> {
        let wanted: Vec<WantedModel> =
            requests.iter().map(|request| request.wanted(&self.models_dir, &self.root)).collect::<Result<_, _>>()?;
        let choices = Choices {
            gpu: gpu.clone(),
            prefix: self.root.path().to_owned(),
            models_dir: self.models_dir.clone(),
            again: self.args.again || self.is_damaged(),
            allow_downgrade: self.args.allow_downgrade,
            link,
        };
        let installed = Installed {
            receipt: self.installed.as_ref(),
            highest_serial: strata_install::Pins::read(&self.root)?.highest_serial,
            next_generation: self.root.next_generation(),
        };
        let offered = Offered { release: &self.opened.release, from: &self.opened.from, trust: &self.opened.trust };
        let volume = |path: &Path| volume_of(path).map(|(id, free)| Volume { id, free });
        let volumes = Volumes { prefix: volume(self.root.path()), models: volume(&self.models_dir) };
        strata_install::plan::plan(&self.machine, offered, installed, &choices, &wanted, &volumes)
    }

    /// A generation with missing or cut files is laid out once more rather than kept.
    fn is_damaged(&self) -> bool {
        let current = self.root.current_generation().filter(|_| self.installed.is_some());
        let damaged = current.is_some_and(|number| !strata_install::looks_whole(&self.root, number));
        if damaged {
            printer::talk("note: files of what is installed are missing or cut: it is installed once more");
        }
        damaged
    }

    fn carry_out(
        &self,
        plan: &InstallPlan,
        requests: &[Request],
        link: bool,
    ) -> Outcome<(strata_install::Applied, Vec<Placing>)> {
        let network = Network::new(self.args, Some(&self.models_dir));
        let archives = if plan.action == PlanAction::Keep { Vec::new() } else { self.archives(plan, &network)? };
        let mut placed = Vec::new();
        for request in requests {
            let fetched = bring(request, &self.models_dir, &self.root, &network, self.context)?;
            placed.push(request.placing(&self.models_dir, &fetched));
        }
        let link = if link { env::program_folder().map(|folder| folder.join("strata")) } else { None };
        let work = Apply {
            root: &self.root,
            disk: &Disk::real(),
            plan,
            archives: &archives,
            models: &placed,
            pins: &self.opened.pins,
            allow_unproven: self.args.allow_unproven,
            keep_archives: !self.args.no_keep_archives,
            link: link.as_deref(),
            now: UtcTime::now().seconds(),
            patience: self.context.patience(),
            proof_limit: env::proof_limit(),
        };
        Ok((apply(&work, &self.context.progress)?, placed))
    }

    /// What the index says of the pieces of an archive.
    fn chunks(&self, sha256: &Sha256Digest) -> Vec<Sha256Digest> {
        let found = self.opened.release.files().find(|file| file.sha256 == *sha256);
        found.map(|file| file.chunks.clone()).unwrap_or_default()
    }

    /// Archives of the plan: in the folder, kept, or fetched.
    fn archives(&self, plan: &InstallPlan, network: &Network) -> Outcome<Vec<ArchiveSource>> {
        let kept = Folder::new(&self.root.archives());
        let into = self.root.downloads();
        let mut found = Vec::new();
        let mut wanted = Vec::new();
        for part in &plan.components {
            let right = |path: &PathBuf| fs_err::metadata(path).is_ok_and(|metadata| metadata.len() == part.size);
            let there =
                [&self.opened.folder, &kept].into_iter().filter_map(|folder| folder.find(&part.source)).find(right);
            match (there, &self.opened.base) {
                (Some(path), _) => found.push(ArchiveSource { id: part.id(), path }),
                // The same component is installed and whole: it is copied, with its digests checked.
                (None, _) if part.kept && !self.is_damaged() => {}
                (None, None) if !source::is_address(&part.source) => {
                    let cut = self.opened.folder.find(&part.source).and_then(|path| fs_err::metadata(path).ok());
                    return Err(InstallError::ArchiveAbsent {
                        name: part.archive.clone(),
                        folder: self.opened.folder.path().to_owned(),
                        cut: cut.map(|metadata| (metadata.len(), part.size)),
                    }
                    .into());
                }
                (None, base) => {
                    let address = match base {
                        Some(base) if !source::is_address(&part.source) => format!("{base}{}", part.source),
                        _ => part.source.clone(),
                    };
                    let to = into.join(&part.archive);
                    found.push(ArchiveSource { id: part.id(), path: to.clone() });
                    wanted.push(Wanted {
                        name: part.archive.clone(),
                        sources: vec![address],
                        size: Some(part.size),
                        about_bytes: part.size,
                        sha256: Some(part.sha256),
                        to,
                        chunks: self.chunks(&part.sha256),
                        ..Wanted::default()
                    });
                }
            }
        }
        fetching::fetch(&wanted, network, &self.context.progress)?;
        Ok(found)
    }

    fn report(&self, plan: &InstallPlan, applied: &strata_install::Applied, placed: &[Placing]) -> Outcome {
        for note in &applied.notes {
            printer::talk(&format!("note: {note}"));
        }
        let linked = plan.steps.iter().any(|step| step.step == strata_install::Step::Link.name());
        if let Some(folder) = env::program_folder().filter(|folder| linked && !is_on_path(folder)) {
            printer::talk(&format!("note: {} is not on PATH; `strata` is found after adding it", folder.display()));
        }
        for device in applied.proven.iter().filter(|device| device.passed) {
            printer::talk(&format!("plugin {} passed its check on {}", device.plugin, device.uid));
        }
        let program = self.root.current().join("bin/strata");
        let program = crate::interrupt::quoted(&program.display().to_string());
        let mut text = match plan.action {
            PlanAction::Keep => format!("Strata {} is installed in {}\n", plan.release.version, plan.prefix),
            _ => format!(
                "installed Strata {} in {} as generation {}\n",
                plan.release.version, plan.prefix, applied.generation
            ),
        };
        for model in placed {
            let _ = writeln!(
                text,
                "model {} is ready: `{program} run {} \"Why is the sky blue?\"`",
                model.name, model.name
            );
        }
        if placed.is_empty() {
            let _ = writeln!(
                text,
                "run a model: `{program} run MODEL`; get one: `strata-setup --model NAME --prefix {}`",
                plan.prefix
            );
        }
        let report = InstalledReport {
            schema: "strata-installed/1.0",
            version: plan.release.version.clone(),
            prefix: self.root.path().to_owned(),
            generation: applied.generation,
            program: self.root.current().join("bin/strata"),
            proven: applied.proven.clone(),
            unproven: applied.unproven.clone(),
            models: placed.iter().map(|model| model.name.clone()).collect(),
            notes: applied.notes.clone(),
        };
        self.context.answer(&text, &report)?;
        self.offer_start(placed)
    }

    /// In front of a person the first answer is one key away.
    fn offer_start(&self, placed: &[Placing]) -> Outcome {
        let Some(model) = placed.first() else { return Ok(ExitStatus::Done) };
        if self.args.no_start || self.context.common.json || !self.context.asker.is_person() {
            return Ok(ExitStatus::Done);
        }
        if self.context.asker.confirm(&format!("Chat with {} now?", model.name), false, "--no-start")? {
            let program = self.root.current().join("bin/strata");
            let _ = std::process::Command::new(program).arg("run").arg(&model.name).status();
        }
        Ok(ExitStatus::Done)
    }
}

fn is_on_path(folder: &Path) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|entry| entry == folder))
}

/// Brings the files of a model that are nowhere yet; by file what was brought and checked.
pub(crate) fn bring(
    request: &Request,
    models_dir: &Path,
    root: &InstallRoot,
    network: &Network,
    context: &Context,
) -> Outcome<Vec<Option<ModelFile>>> {
    let store = root.model_store()?;
    let known: Vec<_> =
        store.models.iter().filter(|model| model.name == request.model.name).flat_map(|model| &model.files).collect();
    let places = request.places(models_dir);
    let mut brought = Vec::new();
    let files = request.model.files.iter().zip(&request.local).zip(&request.known);
    for (((file, local), known_of_it), to) in files.zip(places) {
        if local.is_some() {
            brought.push(None);
            continue;
        }
        let listed = known.iter().find(|stored| root.models().join(&stored.path) == to);
        if let Some(stored) = listed {
            let same = file.sha256.is_none_or(|sha256| sha256 == stored.sha256)
                && fs_err::metadata(&to).is_ok_and(|metadata| metadata.len() == stored.size);
            if same {
                // It was checked when it came; `strata-setup repair` and `fetch` read it again.
                let expected = Some((stored.size, stored.sha256));
                brought.push(Some(ModelFile {
                    from: to.clone(),
                    to,
                    expected,
                    checked: true,
                    adopted: stored.adopted,
                }));
                continue;
            }
        }
        let wanted = Wanted {
            name: file.name.clone(),
            sources: file.sources.clone(),
            size: file.size,
            about_bytes: file.bytes(),
            sha256: file.sha256,
            to: to.clone(),
            chunks: known_of_it.chunks.clone(),
            in_lock: true,
            pin: known_of_it.pin.clone(),
            mend: false,
        };
        let got = fetch_file(&wanted, network, context)?;
        let expected = Some((got.size, got.sha256));
        brought.push(Some(ModelFile { from: to.clone(), to, expected, checked: true, adopted: false }));
    }
    Ok(brought)
}

/// One file of a model; several sources of a catalog file are parts that are joined.
pub(crate) fn fetch_file(wanted: &Wanted, network: &Network, context: &Context) -> Outcome<fetching::Got> {
    let progress = &context.progress;
    if wanted.sources.len() < 2 {
        let mut got = fetching::fetch(std::slice::from_ref(wanted), network, progress)?;
        return got
            .pop()
            .ok_or_else(|| Diagnostic::new(strata_diag::catalogue::installing::MODEL_FILE, "nothing came").into());
    }
    if let (Some(size), Some(_)) = (wanted.size, wanted.sha256) {
        let there = fs_err::metadata(&wanted.to).is_ok_and(|metadata| metadata.len() == size);
        if there
            && fetching::digest(&wanted.to, &wanted.name, progress)?
                == (size, wanted.sha256.unwrap_or_else(|| Sha256Digest::of_bytes(b"")))
        {
            return Ok(fetching::Got {
                path: wanted.to.clone(),
                size,
                sha256: wanted.sha256.unwrap_or_else(|| Sha256Digest::of_bytes(b"")),
            });
        }
    }
    let folder = wanted.to.with_file_name(format!(".{}.parts", wanted.name));
    let parts: Vec<Wanted> = wanted
        .sources
        .iter()
        .enumerate()
        .map(|(index, source)| Wanted {
            name: format!("{} (part {} of {})", wanted.name, index + 1, wanted.sources.len()),
            sources: vec![source.clone()],
            size: None,
            about_bytes: wanted.about_bytes / wanted.sources.len() as u64,
            sha256: None,
            to: folder.join(format!("part-{index}")),
            in_lock: wanted.in_lock,
            ..Wanted::default()
        })
        .collect();
    let got = fetching::fetch(&parts, network, progress)?;
    let paths: Vec<PathBuf> = got.into_iter().map(|part| part.path).collect();
    let joined = fetching::join(&paths, wanted, progress)?;
    let _ = fs_err::remove_dir_all(&folder);
    Ok(joined)
}
