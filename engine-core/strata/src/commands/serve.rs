//! `strata serve`: a loaded model behind OpenAI's and Anthropic's interfaces and a web page.
//!
//! Everything that can be wrong with the line is found first, then the address is taken, then the
//! model is read, while `/health` already answers.

mod service;
mod unit;

use crate::cli::ServeArgs;
use crate::instances::{self, Registration};
use crate::model::{self, Loaded};
use crate::outcome::{Outcome, Stop};
use crate::{env, printer, settings};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use strata_diag::catalogue::general::INTERRUPTED;
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::{EngineOptions, SamplerSettings};
use strata_server::{EngineRoom, EngineRoomOptions, Progress, Room, Server, ServerOptions, addresses};

pub(crate) fn run(args: &ServeArgs) -> Outcome {
    if args.uninstall_service {
        return service::uninstall(args);
    }
    let begun = Instant::now();
    let sampling = settings::sampler_settings(&args.sampling)?;
    settings::engine_options(&args.engine)?;
    let options = server_options(args)?;
    options.check()?;
    if args.install_service {
        return service::install(args);
    }
    let path = model::find(args.model.as_deref(), args.engine.prefix.as_deref())?;
    let loading = Loading {
        path: path.clone(),
        name: model_name(args, &path),
        slots: args.slots,
        conversation_bytes: args.conversation_cache_mib << 20,
        sampling,
        backend: Arc::default(),
    };
    let (name, backend) = (loading.name.clone(), Arc::clone(&loading.backend));
    let mut note = None;
    let engine = args.engine.clone();
    let mut server =
        Server::start(options, Box::new(move |progress| loading.load(&engine, progress).map_err(diagnostic)))?;
    server.stop_on_signals()?;
    for address in server.addresses() {
        printer::talk(&format!("listening at http://{address} while `{}` is loaded", path.display()));
    }
    match server.wait_until_ready() {
        Ok(true) => {
            let seconds = begun.elapsed().as_secs_f64();
            note = register(&name, server.addresses(), &backend);
            for address in server.addresses() {
                printer::talk(&format!("ready after {seconds:.1} s: http://{address} (clients: http://{address}/v1)"));
            }
        }
        Ok(false) => printer::talk("stopped before the model was loaded"),
        // Connections that asked meanwhile get their answers; then the failure is the program's.
        Err(diagnostic) => {
            server.stopper().stop();
            server.stopper().stop();
            server.run();
            return Err(Stop::Failed(Box::new(diagnostic)));
        }
    }
    server.run();
    drop(note);
    Ok(ExitStatus::Done)
}

/// A note for `strata ps` and `strata stop`. Where none can be left the server serves all the same.
fn register(model: &str, addresses: &[SocketAddr], backend: &OnceLock<String>) -> Option<Registration> {
    let address = addresses.first()?.to_string();
    let backend = backend.get().map_or("", String::as_str);
    instances::register(model, &address, backend).unwrap_or_else(|problem| {
        printer::talk(&format!("note: `strata ps` will not list this server: {problem}"));
        None
    })
}

fn server_options(args: &ServeArgs) -> Outcome<ServerOptions> {
    let mut options = ServerOptions::new(addresses(&args.host, args.port)?, Arc::new(|line: &str| printer::talk(line)));
    if !args.no_api_key {
        let from_environment = args.api_key.is_none() && args.api_key_file.is_none();
        // A service has not the environment of the shell that installs it.
        let from_environment = from_environment && !args.install_service;
        let key = args.api_key.clone().or_else(|| env::api_key().filter(|_| from_environment));
        if let Some(key) = key {
            options.keys.add(&key)?;
        }
        if let Some(path) = &args.api_key_file
            && let Some(warning) = options.keys.add_file(path)?
        {
            printer::talk(&format!("note: {warning}"));
        }
    }
    options.no_key = args.no_api_key;
    options.hosts = args.allow_host.iter().cloned().collect();
    options.origins = args.cors_origin.iter().cloned().collect();
    options.most_body = args.max_body_mib << 20;
    options.most_waiting = args.max_queue;
    options.grace = Duration::from_secs(args.grace);
    options.page = !args.no_page;
    Ok(options)
}

/// The name that was asked for, that of an installed model, or the file's without its ending.
fn model_name(args: &ServeArgs, path: &Path) -> String {
    let given = args.model.as_deref().filter(|name| Path::new(name) != path && !name.contains('/'));
    let stem = || path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned());
    args.name.clone().or_else(|| given.map(str::to_owned)).unwrap_or_else(stem)
}

fn diagnostic(stop: Stop) -> Diagnostic {
    match stop {
        Stop::Failed(diagnostic) => *diagnostic,
        Stop::Gone => Diagnostic::new(INTERRUPTED, "nobody reads the output any more"),
    }
}

/// What the loading thread needs.
struct Loading {
    path: std::path::PathBuf,
    name: String,
    slots: u32,
    conversation_bytes: u64,
    sampling: SamplerSettings,
    /// What computes, once that is known.
    backend: Arc<OnceLock<String>>,
}

impl Loading {
    fn load(self, args: &crate::cli::EngineArgs, progress: &Progress) -> Outcome<Arc<dyn Room>> {
        let set = |options: &mut EngineOptions| options.sequences = self.slots;
        let loaded = Loaded::load_with(&self.path, args, set, |done, total| progress.set(done, total))?;
        let _ = self.backend.set(loaded.chosen.report().plugin);
        printer::talk(&loaded.chosen.line());
        printer::talk(&format!("{} --slots {}", loaded.settings_line(), self.slots));
        let options = EngineRoomOptions {
            model: self.name,
            created: created(&self.path),
            sampling: self.sampling,
            conversation_bytes: self.conversation_bytes,
            about: about(&loaded),
        };
        let Loaded { engine, gguf, tokenizer, .. } = loaded;
        Ok(Arc::new(EngineRoom::start(engine, gguf, tokenizer, options)?))
    }
}

/// When the file was made, seconds since 1970.
fn created(path: &Path) -> u64 {
    let modified = fs_err::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

/// Backend, settings and memory, in the words of the reports.
fn about(loaded: &Loaded) -> Map<String, Value> {
    let backend = loaded.chosen.report();
    let settings = loaded.settings_report();
    let plan = loaded.engine.plan();
    let mut about = Map::new();
    about.insert(
        "backend".to_owned(),
        json!({
            "plugin": backend.plugin,
            "device": backend.device,
            "arch": backend.arch,
            "uid": backend.uid,
            "report": backend.report,
            "asked": backend.asked,
            "reason": backend.reason,
            "warnings": backend.warnings,
        }),
    );
    about.insert(
        "settings".to_owned(),
        json!({ "max_context": settings.max_context, "kv": settings.kv, "precise": settings.precise }),
    );
    about.insert(
        "model_memory".to_owned(),
        json!({
            "device": plan.device,
            "weights": plan.weights(),
            "kv": plan.kv,
            "scratch": plan.scratch + plan.buffers,
            "workspace": plan.workspace,
            "device_free": plan.device_free,
            "reserve": plan.reserve,
        }),
    );
    about.insert("notes".to_owned(), json!(plan.notes));
    about
}
