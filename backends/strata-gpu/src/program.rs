//! A compiled program: its planned steps, and recordings of the runs that come often.

use std::collections::HashMap;
use std::sync::Arc;

use strata_backend_sdk::abi::StrataOpKind;
use strata_backend_sdk::{Failure, ProgramInfo, ProgramView, Result};

use crate::driver::{Driver, DriverError, LaunchCall};
use crate::kernels::KernelTable;
use crate::memory::{Block, Buffer, Core};
use crate::plan::{self, Launch, Step};
use crate::view::Run;

/// Runs of more tokens are long enough to hide their launches.
const MOST_RECORDED_TOKENS: u64 = 16;
/// Recordings kept; the oldest goes first.
const MOST_RECORDINGS: usize = 32;

/// Ready to run.
#[derive(Debug)]
pub struct Program<D: Driver> {
    core: Arc<Core<D>>,
    name: String,
    steps: Vec<Step>,
    /// Kind and layer of each op, for messages.
    ops: Vec<(StrataOpKind, i32)>,
    n_scalars: usize,
    recordings: HashMap<Run, u64>,
    order: Vec<Run>,
    info: ProgramInfo,
    _workspace: Block<D>,
    _buffers: Vec<Arc<Buffer<D>>>,
}

impl<D: Driver> Program<D> {
    pub(crate) fn compile(
        core: &Arc<Core<D>>,
        kernels: &KernelTable,
        program: &ProgramView<'_>,
        buffers: &[Arc<Buffer<D>>],
    ) -> Result<Program<D>> {
        let sizes = plan::Sizes::of(program, kernels)?;
        let label = format!("the workspace of program {}", program.name);
        let workspace = core.take(sizes.bytes(), &label)?;
        if sizes.done_bytes() > 0 {
            let cleared = core.driver.clear(sizes.done_at(workspace.address), sizes.done_bytes());
            cleared.map_err(|error| core.failure(&format!("clearing {label}"), &error))?;
        }
        let steps = plan::plan(core, kernels, program, buffers, &sizes, workspace.address)?;
        let most = Run::new(&program.scalar_max);
        let mut launches = Vec::new();
        let one = Run { scalars: most.scalars.map(|value| value.min(1)) };
        for step in &steps {
            (step.emit)(&one, &mut launches);
        }
        let info =
            ProgramInfo { n_launches: launches.len() as u32, workspace_bytes: workspace.bytes, constant_bytes: 0 };
        let kind = |index: usize| (program.kind(index).unwrap_or(StrataOpKind::Copy), program.ops[index].layer);
        Ok(Program {
            core: Arc::clone(core),
            name: program.name.to_owned(),
            steps,
            ops: (0..program.ops.len()).map(kind).collect(),
            n_scalars: program.scalar_max.len(),
            recordings: HashMap::new(),
            order: Vec::new(),
            info,
            _workspace: workspace,
            _buffers: buffers.to_vec(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn info(&self) -> ProgramInfo {
        self.info
    }

    /// Enqueues one run.
    pub(crate) fn run(&mut self, scalars: &[i64]) -> Result<()> {
        if scalars.len() != self.n_scalars {
            let n = self.n_scalars;
            return Err(Failure::host_bug(format_args!("a run with {} scalars of a program with {n}", scalars.len())));
        }
        let mut run = Run::new(scalars);
        // What the launches do not depend on must not make a recording of its own.
        run.scalars[3] = 0;
        run.scalars[2] = plan::reach_class(run.scalars[2]);
        if self.n_scalars == 0 || !self.core.driver.card().can_record || run.tokens() > MOST_RECORDED_TOKENS {
            return self.enqueue(&run);
        }
        let graph = match self.recordings.get(&run) {
            Some(graph) => *graph,
            None => self.record(&run)?,
        };
        self.core.driver.replay(graph).map_err(|error| self.failure("starting a recorded run", &error))
    }

    fn record(&mut self, run: &Run) -> Result<u64> {
        // A run that cannot be enqueued says so best outside a recording.
        self.core.driver.begin_capture().map_err(|error| self.failure("recording a run", &error))?;
        let enqueued = self.enqueue(run);
        let graph = self.core.driver.end_capture();
        enqueued?;
        let graph = graph.map_err(|error| self.failure("recording a run", &error))?;
        if self.order.len() >= MOST_RECORDINGS
            && let Some(old) = self.recordings.remove(&self.order.remove(0))
        {
            let _ = self.core.driver.synchronize();
            self.core.driver.free_graph(old);
        }
        self.order.push(*run);
        self.recordings.insert(*run, graph);
        Ok(graph)
    }

    fn enqueue(&self, run: &Run) -> Result<()> {
        let early = self.core.driver.card().early_launch;
        let mut launches: Vec<Launch> = Vec::new();
        for step in &self.steps {
            launches.clear();
            (step.emit)(run, &mut launches);
            for launch in &launches {
                if launch.grid.contains(&0) {
                    continue;
                }
                let call = LaunchCall {
                    function: launch.function,
                    grid: launch.grid,
                    block: launch.block,
                    shared: launch.shared,
                    params: &launch.params,
                    early,
                };
                self.core.driver.launch(&call).map_err(|error| self.op_failure(step.op, &error))?;
            }
        }
        Ok(())
    }

    fn failure(&self, doing: &str, error: &DriverError) -> Failure {
        self.core.failure(&format!("{doing} of program {}", self.name), error)
    }

    fn op_failure(&self, op: usize, error: &DriverError) -> Failure {
        let (kind, layer) = self.ops.get(op).copied().unwrap_or((StrataOpKind::Copy, -1));
        let layer = if layer < 0 { String::new() } else { format!(" in layer {layer}") };
        self.core.failure(&format!("{kind:?} (op {op}{layer}) of program {}", self.name), error)
    }
}

impl<D: Driver> Drop for Program<D> {
    fn drop(&mut self) {
        // Its work may still be under way; an error shows at the next call.
        let _ = self.core.driver.synchronize();
        for graph in self.recordings.values() {
            self.core.driver.free_graph(*graph);
        }
    }
}
