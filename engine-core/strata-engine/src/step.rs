//! One step on the device: the host's side of `program_run`. Nothing here allocates once the
//! engine is loaded.

use strata_backend_abi::{STRATA_N_SCALARS, StrataScalar};
use strata_plugin_host::{Buffer, Event, Program};

use crate::error::EngineError;
use crate::graph::{CHOICE_BYTES, CHOICE_LOGIT, InputLayout, StepLimits};
use crate::rope::RopeTable;

/// A compiled program with the layout of its inputs.
pub(crate) struct Stage {
    program: Program,
    limits: StepLimits,
    input: InputLayout,
}

impl Stage {
    pub(crate) fn new(program: Program, limits: StepLimits, input: InputLayout) -> Stage {
        Stage { program, limits, input }
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage")
            .field("name", &self.program.name())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Steps of one token that choose the next one on the device. Links take turns: each reads the token
/// that the other chose, so that one can be at work while the host reads what the other left.
pub(crate) struct Chain {
    links: Vec<(Stage, Event)>,
    /// Where the places of chosen tokens begin in the output buffer; link `i` reads place `i` and
    /// writes the other one.
    choices: u64,
    /// The step that was handed over and whose token the host has not read yet.
    ahead: Option<Ahead>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ahead {
    link: usize,
    /// What the step evaluates. The host has learnt it from the link before.
    row: StepRow,
}

impl Chain {
    pub(crate) fn new(links: Vec<(Stage, Event)>, choices: u64) -> Chain {
        Chain { links, choices, ahead: None }
    }

    fn place(&self, index: usize) -> u64 {
        self.choices + index as u64 * CHOICE_BYTES
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

/// Of which tokens of a step logits are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Last,
    All,
}

/// A token of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepRow {
    pub(crate) token: u32,
    pub(crate) position: u64,
    pub(crate) sequence: u32,
}

/// Runs steps. One per engine: steps of one device come one after another.
#[derive(Debug)]
pub(crate) struct Runner {
    /// Smallest first.
    stages: Vec<Stage>,
    /// `None` where the host gains nothing by it.
    chain: Option<Chain>,
    input: Buffer,
    output: Buffer,
    output_is_mapped: bool,
    rope: Vec<RopeTable>,
    n_vocab: usize,
    staging: Vec<u8>,
    /// Kept for their memory.
    rows: Vec<StepRow>,
    outputs: Vec<u32>,
    /// Only for devices whose output cannot be mapped.
    row: Vec<u8>,
}

impl Runner {
    pub(crate) fn new(
        stages: Vec<Stage>,
        chain: Option<Chain>,
        input: Buffer,
        output: Buffer,
        rope: Vec<RopeTable>,
        n_vocab: usize,
    ) -> Runner {
        let output_is_mapped = output.with_mapped(|_| ()).is_ok();
        // Tokens are read while a step is at work, which only mapped memory allows.
        let chain = chain.filter(|_| output_is_mapped);
        Runner {
            staging: vec![0; input.len() as usize],
            rows: Vec::new(),
            outputs: Vec::new(),
            row: if output_is_mapped { Vec::new() } else { vec![0; n_vocab * 4] },
            stages,
            chain,
            input,
            output,
            output_is_mapped,
            rope,
            n_vocab,
        }
    }

    /// Runs each program once, so that no request pays for pages, tables or captured graphs. The
    /// cache cell that it writes is written again before it is ever read.
    pub(crate) fn warm_up(&mut self) -> Result<(), EngineError> {
        for stage in 0..self.stages.len() {
            self.run_stage(stage, &[StepRow { token: 0, position: 0, sequence: 0 }], &[0])?;
        }
        // Both links, and the place of the first token.
        self.choose(StepRow { token: 0, position: 0, sequence: 0 }, true)?;
        if let Some(chain) = &mut self.chain {
            chain.ahead = None;
        }
        self.output.read(0, &mut [0; 4])?;
        Ok(())
    }

    /// Most tokens of a step.
    pub(crate) fn max_tokens(&self, wanted: Wanted) -> usize {
        let most = |stage: &Stage| match wanted {
            Wanted::Last => stage.limits.tokens,
            Wanted::All => stage.limits.tokens.min(stage.limits.outputs),
        };
        self.stages.iter().map(most).max().unwrap_or(0) as usize
    }

    /// Evaluates `tokens` at `first_position` and on of a sequence, at most `max_tokens` of them.
    /// Their logits can be read afterwards, row 0 and on.
    pub(crate) fn run(
        &mut self,
        tokens: &[u32],
        first_position: u64,
        sequence: u32,
        wanted: Wanted,
    ) -> Result<(), EngineError> {
        let row = |(i, token): (usize, &u32)| StepRow { token: *token, position: first_position + i as u64, sequence };
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        rows.extend(tokens.iter().enumerate().map(row));
        let first_output = if wanted == Wanted::All { 0 } else { rows.len() - 1 };
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.clear();
        outputs.extend(first_output as u32..rows.len() as u32);
        let done = self.run_rows(&rows, &outputs);
        (self.rows, self.outputs) = (rows, outputs);
        done
    }

    /// Evaluates tokens of any sequences, at most `max_tokens` of them, each sequence's in the order
    /// of its positions. The logits of the rows in `outputs` (at least one) can be read afterwards.
    pub(crate) fn run_rows(&mut self, rows: &[StepRow], outputs: &[u32]) -> Result<(), EngineError> {
        let (n, n_outputs) = (rows.len() as u64, outputs.len() as u64);
        let fits = |stage: &Stage| n <= stage.limits.tokens && n_outputs <= stage.limits.outputs;
        // The last is the largest; the callers keep to `max_tokens`.
        let stage = self.stages.iter().position(fits).unwrap_or(self.stages.len() - 1);
        self.run_stage(stage, rows, outputs)
    }

    fn run_stage(&mut self, stage: usize, rows: &[StepRow], outputs: &[u32]) -> Result<(), EngineError> {
        if let Some(chain) = &mut self.chain {
            chain.ahead = None;
        }
        let Stage { program, input, .. } = &mut self.stages[stage];
        write_i32(&mut self.staging, input.ids, rows.iter().map(|row| row.token.cast_signed()));
        let used = fill(&mut self.staging, input, &self.rope, rows, outputs);
        self.input.write(0, &self.staging[..used])?;
        program.run(&scalars(rows, outputs))?;
        Ok(())
    }

    /// Evaluates a token and gives the one with the greatest logit after it, and that logit; `None`
    /// where the device does not choose. With `goes_on` the step after it is handed over before this one is waited for; if it is not what is
    /// asked for next, it was in vain and does no harm: it wrote a cell that is written again before
    /// it is read.
    pub(crate) fn choose(&mut self, row: StepRow, goes_on: bool) -> Result<Option<(u32, f32)>, EngineError> {
        let Some(chain) = &mut self.chain else { return Ok(None) };
        let first = chain.place(0);
        let link = if let Some(ahead) = chain.ahead.take().filter(|ahead| ahead.row == row) {
            ahead.link
        } else {
            // Waits for what may still be at work.
            self.output.write(first, &row.token.to_le_bytes())?;
            self.hand_over(0, row)?;
            0
        };
        let next = 1 - link;
        let after = StepRow { position: row.position + 1, ..row };
        if goes_on {
            self.hand_over(next, after)?;
        }
        let Some(chain) = &mut self.chain else { return Ok(None) };
        chain.links[link].1.wait()?;
        let place = chain.place(next) as usize;
        let word = |bytes: &[u8], at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let (token, logit) = self.output.with_mapped(|bytes| {
            let logit = f32::from_le_bytes(word(bytes, place + CHOICE_LOGIT as usize));
            (u32::from_le_bytes(word(bytes, place)), logit)
        })?;
        chain.ahead = goes_on.then_some(Ahead { link: next, row: StepRow { token, ..after } });
        Ok(Some((token, logit)))
    }

    /// Enqueues a step of one token, whose id is in the link's place or will be.
    fn hand_over(&mut self, link: usize, row: StepRow) -> Result<(), EngineError> {
        let Some(chain) = &mut self.chain else { return Ok(()) };
        let (Stage { program, input, .. }, event) = &mut chain.links[link];
        let used = fill(&mut self.staging, input, &self.rope, &[row], &[0]);
        let from = input.positions as usize;
        self.input.write(input.positions, &self.staging[from..used])?;
        program.run_with(&scalars(&[row], &[0]), &[], Some(event))?;
        Ok(())
    }

    /// Waits for the step and copies one row of its logits.
    pub(crate) fn read_logits(&mut self, row: usize, logits: &mut [f32]) -> Result<(), EngineError> {
        let start = row * self.n_vocab * 4;
        if self.output_is_mapped {
            let end = start + self.n_vocab * 4;
            self.output.with_mapped(|bytes| from_le_bytes(&bytes[start..end], logits))?;
        } else {
            self.output.read(start as u64, &mut self.row)?;
            from_le_bytes(&self.row, logits);
        }
        Ok(())
    }
}

/// Everything that a step reads from the input buffer but the ids; up to where it is filled.
fn fill(staging: &mut [u8], input: &InputLayout, rope: &[RopeTable], rows: &[StepRow], outputs: &[u32]) -> usize {
    write_i32(staging, input.positions, rows.iter().map(|row| row.position as i32));
    write_i32(staging, input.sequences, rows.iter().map(|row| row.sequence.cast_signed()));
    write_i32(staging, input.out_rows, outputs.iter().map(|row| row.cast_signed()));
    let mut used = input.out_rows as usize + outputs.len() * 4;
    for (table, offset) in rope.iter().zip(&input.rope) {
        let row_bytes = table.n_pairs() * 8;
        let start = *offset as usize;
        used = start + rows.len() * row_bytes;
        for (row, bytes) in rows.iter().zip(staging[start..used].chunks_exact_mut(row_bytes)) {
            table.write_row(row.position, bytes);
        }
    }
    used
}

fn scalars(rows: &[StepRow], outputs: &[u32]) -> [i64; STRATA_N_SCALARS] {
    let length = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
    let mut scalars = [0; STRATA_N_SCALARS];
    scalars[StrataScalar::Tokens as usize] = rows.len() as i64;
    scalars[StrataScalar::Outputs as usize] = outputs.len() as i64;
    scalars[StrataScalar::KvLength as usize] = length as i64;
    scalars[StrataScalar::Position as usize] = rows.first().map_or(0, |row| row.position as i64);
    scalars
}

fn write_i32(staging: &mut [u8], offset: u64, values: impl Iterator<Item = i32>) {
    for (value, bytes) in values.zip(staging[offset as usize..].chunks_exact_mut(4)) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

fn from_le_bytes(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
}
