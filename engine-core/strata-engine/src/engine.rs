//! A model that is ready to run on one device. Loading is: read the metadata, lower both programs,
//! ask the device about every op, compare the plan with the memory, and only then take any.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strata_backend_abi::{StrataBufferKind, StrataDType, StrataDeviceKind, StrataOpKind, StrataStatus, StrataTensor};
use strata_model::gguf::{Gguf, Mapping};
use strata_model::quant;
use strata_plugin_host::{Buffer, Device, HostMemory, ProgramSpec, Support};

use crate::error::EngineError;
use crate::graph::{Lowered, N_OWN_BUFFERS, StepLimits};
use crate::hyperparameters::Hyperparameters;
use crate::kv_cache::{CacheLayout, PAGE_CELLS};
use crate::load::{Blueprint, EngineOptions, Reading};
use crate::memory::MemoryPlan;
use crate::probe::probe;
use crate::session::Session;
use crate::step::{Chain, Runner, Stage};
use crate::weights::{PartMode, Place};

/// Bytes that are copied to a device between two reports of progress.
const UPLOAD_CHUNK: usize = 16 << 20;

/// How far loading is: bytes of weights that are on the device, of all that must be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    pub done: u64,
    pub total: u64,
}

/// A loaded model. Cheap to clone; sessions keep it alive.
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
}

/// What all sessions of an engine share.
#[derive(Debug)]
pub(crate) struct Core {
    runner: Mutex<Runner>,
    free_sequences: Mutex<Vec<u32>>,
    pub(crate) hyper: Hyperparameters,
    pub(crate) plan: MemoryPlan,
    pub(crate) device: Device,
    n_sequences: u32,
    pub(crate) store: CacheStore,
    /// Buffers used in place hold the mappings; this holds the metadata.
    gguf: Arc<Gguf>,
}

/// The cache on the device and the table that says whose its pages are.
#[derive(Debug)]
pub(crate) struct CacheStore {
    pub(crate) buffer: Buffer,
    pub(crate) layout: CacheLayout,
    tables: Buffer,
    /// Offset in `tables`.
    page_table: u64,
}

impl CacheStore {
    /// Says which pages hold a sequence's positions from the first one on.
    pub(crate) fn write_page_row(&self, sequence: u32, pages: &[u32]) -> Result<(), EngineError> {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        let row = u64::from(sequence) * self.layout.pages_per_sequence * 4;
        Ok(self.tables.write(self.page_table + row, &bytes)?)
    }

    /// Gives each sequence its fixed share again.
    pub(crate) fn reset_page_table(&self) -> Result<(), EngineError> {
        Ok(self.tables.write(self.page_table, &self.layout.page_table())?)
    }
}

impl Engine {
    /// Loads a model. Everything that a request will need is taken here, so that none fails for
    /// want of memory later; what does not fit is refused with the numbers before any is taken.
    pub fn load(gguf: Arc<Gguf>, device: Device, options: &EngineOptions) -> Result<Engine, EngineError> {
        Engine::load_with_progress(gguf, device, options, &mut |_| {})
    }

    /// The same, with reports while weights are copied; none when they are used in place.
    pub fn load_with_progress(
        gguf: Arc<Gguf>,
        device: Device,
        options: &EngineOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Engine, EngineError> {
        let reading = Reading::new(&gguf, options)?;
        let imported = import(&gguf, &device, options)?;
        let modes: Vec<PartMode> =
            imported.iter().map(|part| if part.is_some() { PartMode::InPlace } else { PartMode::Copied }).collect();
        let (blueprint, mut plan) = plan(&gguf, &reading, &device, options, &modes)?;
        ask(&device, &blueprint.decode.1.spec)?;
        ask(&device, &blueprint.prefill.1.spec)?;
        let buffers = take(&device, &blueprint, imported)?;
        upload(&blueprint, &buffers, progress)?;

        let n_parts = blueprint.weights.n_parts();
        let [table_buffer, cache_buffer, input, _, output] = own_buffers(&buffers, n_parts).map(Buffer::clone);
        let Blueprint { cache, tables, decode, prefill, rope, choosing, choices, .. } = blueprint;
        let mut stages = Vec::with_capacity(2);
        for (limits, lowered) in [decode, prefill] {
            let program = device.compile(&lowered.spec, &buffers)?;
            let info = program.info()?;
            plan.workspace += info.workspace_bytes + info.constant_bytes;
            stages.push(Stage::new(program, limits, lowered.input));
        }
        let chain = chain(&device, choosing, choices, &buffers, &mut plan)?;
        let mut runner = Runner::new(stages, chain, input, output, rope, reading.hyper.n_vocab as usize);
        runner.warm_up()?;
        let n_sequences = cache.n_sequences as u32;
        let core = Core {
            runner: Mutex::new(runner),
            free_sequences: Mutex::new((0..n_sequences).rev().collect()),
            hyper: reading.hyper,
            plan,
            device,
            n_sequences,
            store: CacheStore { buffer: cache_buffer, layout: cache, tables: table_buffer, page_table: tables.pages },
            gguf,
        };
        Ok(Engine { core: Arc::new(core) })
    }

    /// What was planned and, for the workspace, what was taken.
    pub fn plan(&self) -> &MemoryPlan {
        &self.core.plan
    }

    pub fn hyperparameters(&self) -> &Hyperparameters {
        &self.core.hyper
    }

    pub fn device(&self) -> &Device {
        &self.core.device
    }

    pub fn gguf(&self) -> &Gguf {
        &self.core.gguf
    }

    /// Positions that each session may have.
    pub fn context(&self) -> u64 {
        self.core.plan.context
    }

    /// A sequence of its own, with an empty context. Fails when all are in use.
    pub fn session(&self) -> Result<Session, EngineError> {
        let sequence = lock(&self.core.free_sequences).pop();
        let sequence = sequence.ok_or(EngineError::NoFreeSession { sessions: self.core.n_sequences })?;
        Ok(Session::new(Arc::clone(&self.core), sequence))
    }
}

impl Engine {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Core {
    /// All sequences, when none is in use.
    pub(crate) fn take_all_sequences(&self) -> Result<u32, EngineError> {
        let mut free = lock(&self.free_sequences);
        if free.len() as u32 != self.n_sequences {
            return Err(EngineError::NoFreeSession { sessions: self.n_sequences });
        }
        free.clear();
        Ok(self.n_sequences)
    }

    pub(crate) fn runner(&self) -> MutexGuard<'_, Runner> {
        lock(&self.runner)
    }

    pub(crate) fn give_back(&self, sequence: u32) {
        lock(&self.free_sequences).push(sequence);
    }
}

/// A panic while a step was prepared leaves nothing half-written that the next one would read.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct PartMemory(Arc<Mapping>);

impl HostMemory for PartMemory {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Each part as a buffer, where the device computes in the host's memory anyway.
fn import(gguf: &Gguf, device: &Device, options: &EngineOptions) -> Result<Vec<Option<Buffer>>, EngineError> {
    let in_place = device.info().is_host_memory() && device.can_import() && !options.copy_weights;
    let part = |part: &strata_model::gguf::Part| {
        if in_place { device.import(Arc::new(PartMemory(Arc::clone(&part.map)))) } else { Ok(None) }
    };
    Ok(gguf.parts().iter().map(part).collect::<Result<_, _>>()?)
}

/// Lowers the programs for the context asked for, or for a shorter one when none was asked for
/// and the default does not fit.
fn plan<'g>(
    gguf: &'g Gguf,
    reading: &Reading,
    device: &Device,
    options: &EngineOptions,
    modes: &[PartMode],
) -> Result<(Blueprint<'g>, MemoryPlan), EngineError> {
    let free = device.memory()?.free;
    let available = free.saturating_sub(options.reserve_bytes);
    let mut notes = notes(reading, options);
    let mut context = reading.context;
    loop {
        let blueprint = Blueprint::new(gguf, reading, context, options, modes)?;
        let unused = blueprint.unused(gguf);
        let plan = memory_plan(&blueprint, device, options, free, notes.clone());
        if plan.needed() <= available {
            let plan = MemoryPlan { notes: closing_notes(notes, &plan, &unused), ..plan };
            return Ok((blueprint, plan));
        }
        let context_that_fits = context_that_fits(&plan, available, &reading.hyper);
        match context_that_fits {
            // The first try told what fits; a second failure would mean that it does not.
            Some(fits) if options.max_context.is_none() && fits < context => {
                notes.push(format!("--max-context is {fits} since {context} does not fit the memory"));
                context = fits;
            }
            _ => {
                let device = device.info().name.clone();
                return Err(EngineError::DoesNotFit { device, plan: Box::new(plan), available, context_that_fits });
            }
        }
    }
}

fn notes(reading: &Reading, options: &EngineOptions) -> Vec<String> {
    let trained = reading.hyper.n_context;
    match options.max_context {
        Some(context) if context > trained => {
            vec![format!("--max-context {context} is beyond the {trained} positions that the model was trained for")]
        }
        None if trained > reading.context => {
            vec![format!("--max-context is {} by default; the model was trained for {trained}", reading.context)]
        }
        _ => Vec::new(),
    }
}

fn closing_notes(mut notes: Vec<String>, plan: &MemoryPlan, unused: &[String]) -> Vec<String> {
    if plan.weights_in_place + plan.needed() > plan.device_free {
        notes.push(
            "the weights do not all fit the free memory: parts will be read from disk again and again".to_owned(),
        );
    }
    if let Some(first) = unused.first() {
        let more = if unused.len() > 1 { format!(" and {} more", unused.len() - 1) } else { String::new() };
        notes.push(format!("not used by this architecture: '{first}'{more}"));
    }
    notes
}

fn memory_plan(
    blueprint: &Blueprint<'_>,
    device: &Device,
    options: &EngineOptions,
    device_free: u64,
    notes: Vec<String>,
) -> MemoryPlan {
    let (weights_in_place, weights_copied) = blueprint.weights.bytes_by_mode();
    MemoryPlan {
        device: device.info().name.clone(),
        weights_in_place,
        weights_copied,
        kv: blueprint.cache.bytes,
        scratch: blueprint.scratch_bytes(),
        buffers: blueprint.input_bytes() + blueprint.output_bytes() + blueprint.tables.converted,
        workspace: 0,
        device_free,
        reserve: options.reserve_bytes,
        context: blueprint.cache.context,
        n_sequences: blueprint.cache.n_sequences,
        k_format: blueprint.cache.k,
        v_format: blueprint.cache.v,
        notes,
    }
}

/// The longest context, in whole pages, that would leave the plan within `available` bytes.
fn context_that_fits(plan: &MemoryPlan, available: u64, hyper: &Hyperparameters) -> Option<u64> {
    let rest = plan.needed() - plan.kv;
    let per_token = hyper.cache_bytes_per_token(plan.k_format, plan.v_format)?.checked_mul(plan.n_sequences)?;
    // Each layer's keys and values are padded to the buffer alignment, and the page table grows.
    let slack = hyper.n_layers * 1024 + plan.context / PAGE_CELLS * 4 * plan.n_sequences;
    let room = available.checked_sub(rest)?.checked_sub(slack)?;
    let pages = room.checked_div(per_token)? / PAGE_CELLS;
    (pages > 0).then_some(pages * PAGE_CELLS)
}

/// Asks the device about every kind of op in a program.
fn ask(device: &Device, spec: &ProgramSpec) -> Result<(), EngineError> {
    let probe = probe(spec);
    for (op, support) in probe.ops.iter().zip(device.supports_all(&probe)?) {
        let Support::No(reason) = support else { continue };
        let formats: Vec<&str> = op
            .operand
            .iter()
            .filter_map(|operand| probe.tensors.get(*operand as usize))
            .filter_map(|tensor: &StrataTensor| StrataDType::from_number(tensor.dtype))
            .map(StrataDType::name)
            .collect();
        return Err(EngineError::OpUnsupported {
            device: device.info().name.clone(),
            on_cpu: device.info().kind == StrataDeviceKind::Cpu,
            op: StrataOpKind::from_number(op.kind).unwrap_or(StrataOpKind::Copy),
            layer: u32::try_from(op.layer).ok(),
            formats: formats.join(", "),
            reason,
        });
    }
    Ok(())
}

/// The programs that choose their token themselves, where the host gains by it: on a device with
/// memory of its own, which can tell when a step is done while the next one waits already.
fn chain(
    device: &Device,
    choosing: [(StepLimits, Lowered); 2],
    choices: u64,
    buffers: &[Buffer],
    plan: &mut MemoryPlan,
) -> Result<Option<Chain>, EngineError> {
    if device.info().is_host_memory() || !device.has_events() {
        return Ok(None);
    }
    if device.supports_all(&probe(&choosing[0].1.spec))?.iter().any(|support| matches!(support, Support::No(_))) {
        return Ok(None);
    }
    let mut links = Vec::with_capacity(choosing.len());
    for (limits, lowered) in choosing {
        let Some(event) = device.event()? else { return Ok(None) };
        let program = device.compile(&lowered.spec, buffers)?;
        let info = program.info()?;
        plan.workspace += info.workspace_bytes + info.constant_bytes;
        links.push((Stage::new(program, limits, lowered.input), event));
    }
    Ok(Some(Chain::new(links, choices)))
}

/// Takes all memory, in the order of `Home`'s numbers.
fn take(device: &Device, blueprint: &Blueprint<'_>, imported: Vec<Option<Buffer>>) -> Result<Vec<Buffer>, EngineError> {
    let alloc = |bytes: u64, label: &str| device.alloc(StrataBufferKind::Device, bytes.max(1), label);
    let mut buffers = Vec::with_capacity(imported.len() + N_OWN_BUFFERS);
    for (part, buffer) in imported.into_iter().enumerate() {
        buffers.push(match buffer {
            Some(buffer) => buffer,
            None => alloc(blueprint.weights.part_buffer_bytes(part), "weights")?,
        });
    }
    buffers.push(alloc(blueprint.table_bytes(), "tables")?);
    buffers.push(alloc(blueprint.cache.bytes, "kv")?);
    buffers.push(alloc(blueprint.input_bytes(), "input")?);
    buffers.push(alloc(blueprint.scratch_bytes(), "scratch")?);
    // Logits are read after each step, best where they lie.
    let bytes = blueprint.output_bytes();
    buffers.push(match device.alloc(StrataBufferKind::HostVisible, bytes, "logits") {
        Err(error) if error.status() == Some(StrataStatus::Unsupported) => alloc(bytes, "logits")?,
        other => other?,
    });
    Ok(buffers)
}

/// The tables, cache, input, scratch and output buffers.
fn own_buffers(buffers: &[Buffer], n_parts: usize) -> [&Buffer; N_OWN_BUFFERS] {
    std::array::from_fn(|i| &buffers[n_parts + i])
}

/// Copies what is not used in place, and writes the tables that never change.
fn upload(
    blueprint: &Blueprint<'_>,
    buffers: &[Buffer],
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<(), EngineError> {
    let weights = &blueprint.weights;
    let tables = own_buffers(buffers, weights.n_parts())[0];
    let iota: Vec<u8> = (0..blueprint.tables.n_iota as i32).flat_map(i32::to_le_bytes).collect();
    tables.write(blueprint.tables.iota, &iota)?;
    tables.write(blueprint.tables.pages, &blueprint.cache.page_table())?;

    let total = weights.bytes_by_mode().1;
    let mut done = 0;
    for placement in weights.placements() {
        let data = weights.gguf().tensor_data(placement.tensor);
        match placement.weight.place {
            Place::Part(part) if weights.mode()[part] == PartMode::InPlace => {}
            Place::Part(part) => {
                for (i, chunk) in data.chunks(UPLOAD_CHUNK).enumerate() {
                    buffers[part].write(placement.weight.offset + (i * UPLOAD_CHUNK) as u64, chunk)?;
                    done += chunk.len() as u64;
                    progress(LoadProgress { done, total });
                }
            }
            Place::Converted => {
                let mut values = vec![0.0f32; placement.tensor.elements() as usize];
                quant::dequantise_row(placement.tensor.dtype, data, &mut values)?;
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                tables.write(blueprint.tables.converted + placement.weight.offset, &bytes)?;
                done += bytes.len() as u64;
                progress(LoadProgress { done, total });
            }
        }
    }
    Ok(())
}
