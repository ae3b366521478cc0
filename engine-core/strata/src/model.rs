//! From what the user named to a loaded engine: file, device, tokenizer, weights.

use crate::cli::EngineArgs;
use crate::device::{self, Chosen};
use crate::outcome::Outcome;
use crate::prefix::{self, Prefix};
use crate::{printer, settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_diag::Diagnostic;
use strata_engine::{Engine, EngineError, EngineOptions, can_run};
use strata_manifest::report::{MemoryReport, SettingsReport};
use strata_model::gguf::Gguf;
use strata_model::tokenizer::Tokenizer;
use strata_plugin_host::abi::StrataDeviceKind;

/// The file that the user means; the only installed model when none is named.
pub(crate) fn find(model: Option<&str>, asked_prefix: Option<&Path>) -> Outcome<PathBuf> {
    let prefix = Prefix::find(asked_prefix)?;
    let model = match model {
        Some(model) => model.to_owned(),
        None => prefix::default_model(prefix.as_ref())?,
    };
    Ok(prefix::model_path(&model, prefix.as_ref())?)
}

/// A model on a device, ready for sessions.
pub(crate) struct Loaded {
    pub(crate) gguf: Arc<Gguf>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) engine: Engine,
    pub(crate) chosen: Chosen,
    precise: bool,
}

/// Tokens of a step while a prompt is read on a GPU: enough rows to fill a large card's multiprocessors.
const GPU_BATCH: u64 = 2048;

impl Loaded {
    /// As [`Loaded::load_with`]. `needed_context` is what the command itself requires when the user
    /// asks for nothing.
    pub(crate) fn load(path: &Path, args: &EngineArgs, needed_context: Option<u64>) -> Outcome<Loaded> {
        let set = |options: &mut EngineOptions| options.max_context = options.max_context.or(needed_context);
        Loaded::load_with(path, args, set, |_, _| {})
    }

    /// Checks settings, then the file, then the device, and loads last: each failure comes before
    /// the slower step after it. `set` may change the options; `progress` hears of bytes that are
    /// loaded, of all.
    pub(crate) fn load_with(
        path: &Path,
        args: &EngineArgs,
        set: impl FnOnce(&mut EngineOptions),
        progress: impl Fn(u64, u64),
    ) -> Outcome<Loaded> {
        let mut options = settings::engine_options(args)?;
        set(&mut options);
        let about = |error: EngineError| Diagnostic::of(&error).fact("model", path.display());
        let gguf = Arc::new(Gguf::open(path)?);
        // Before the tokenizer: a missing tensor or an unknown architecture says more about a file
        // than a tokenizer that such a file often lacks too.
        can_run(&gguf, &options).map_err(about)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let prefix = Prefix::find(args.prefix.as_deref())?;
        let chosen = device::choose(args, prefix.as_ref())?;
        if chosen.device.info().kind == StrataDeviceKind::Gpu {
            options.max_batch = GPU_BATCH;
        }
        let mut last_percent = 0;
        let engine = Engine::load_with_progress(Arc::clone(&gguf), chosen.device.clone(), &options, &mut |loaded| {
            progress(loaded.done, loaded.total);
            let percent = loaded.done * 100 / loaded.total.max(1);
            if percent >= last_percent + 10 {
                last_percent = percent;
                printer::talk(&format!("loading weights: {percent} %"));
            }
        })
        .map_err(about)?;
        for note in engine.plan().notes.iter().chain(tokenizer.notes()) {
            printer::talk(&format!("note: {note}"));
        }
        Ok(Loaded { gguf, tokenizer, engine, chosen, precise: args.precise })
    }

    /// Settings as resolved, in the words of the flags.
    pub(crate) fn settings_line(&self) -> String {
        let plan = self.engine.plan();
        let precise = if self.precise { " --precise" } else { "" };
        format!("settings: --max-context {} --kv {}{precise}", plan.context, plan.kv_words())
    }

    /// Settings as resolved, for reports.
    pub(crate) fn settings_report(&self) -> SettingsReport {
        let plan = self.engine.plan();
        SettingsReport {
            max_context: plan.context,
            kv: plan.kv_words(),
            precise: self.precise,
            memory: MemoryReport {
                weights: plan.weights(),
                kv: plan.kv,
                scratch: plan.scratch + plan.buffers,
                workspace: plan.workspace,
            },
        }
    }
}
