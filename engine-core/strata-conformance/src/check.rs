//! The two checks of a case: values against the oracle, and the same bits whatever the batch,
//! the threads and the run.

use crate::bench::{Bench, Loaded, Stop, run};
use crate::case::{Case, Judge};
use crate::memory::Memory;
use crate::oracle::{self, Expected};
use crate::tolerance;
use std::ops::Range;
use strata_backend_abi::{StrataDType, StrataOpKind};

/// Patterns of undefined bytes: the first is NaN in every float format and -1 in I32, the second
/// a huge F32, a NaN F16 and a large I32.
const PATTERNS: [u8; 2] = [0xff, 0x7e];

/// How near a passing case came to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Worst {
    /// Greatest error as a share of what is allowed.
    pub of_allowed: f64,
    /// Greatest error relative to the root mean square of its row.
    pub relative: f64,
}

impl Worst {
    #[must_use]
    pub fn or(self, other: Worst) -> Worst {
        Worst { of_allowed: self.of_allowed.max(other.of_allowed), relative: self.relative.max(other.relative) }
    }
}

/// Results near the oracle's; nothing else written; undefined bytes without influence.
pub(crate) fn values(bench: &Bench, case: &Case) -> Result<Worst, Stop> {
    let before = case.memory(PATTERNS[0]);
    let after = run(bench.device(), case, &before)?;
    let worst = judge(case, &before, &after)?;
    let before = case.memory(PATTERNS[1]);
    let other = run(bench.device(), case, &before)?;
    same_rows(case, &after, &other, "with other bytes where nothing is defined")?;
    // Again, since arithmetic on NaNs may well write the very NaN that was there.
    untouched(case, &before, &other)?;
    Ok(worst)
}

/// What a run left in memory against what the oracle makes of the same start.
pub(crate) fn judge(case: &Case, before: &Memory, after: &Memory) -> Result<Worst, Stop> {
    let mut reference = before.clone();
    let mut worst = Worst::default();
    for (index, op) in case.ops.iter().enumerate() {
        let expected = oracle::run(op, &case.tensors, &case.scalars, &mut reference);
        if !case.checked.contains(&index) {
            continue;
        }
        let kind = StrataOpKind::from_number(op.kind).expect("cases use known ops");
        for result in &expected {
            worst = worst.or(compare(case, kind, stored_format(case, index), result, after)?);
        }
    }
    untouched(case, before, after)?;
    Ok(worst)
}

/// The format that decides the tolerance class: the weights', or the cache's.
fn stored_format(case: &Case, op: usize) -> StrataDType {
    let op = &case.ops[op];
    let slot = match StrataOpKind::from_number(op.kind) {
        Some(StrataOpKind::MatMul | StrataOpKind::ExpertMatMul) => 1,
        // Values matter as much as keys: the coarser of both.
        Some(StrataOpKind::Attention) => {
            let format = |slot: usize| StrataDType::from_number(case.tensors[op.operand[slot] as usize].dtype);
            return [format(2), format(3)].into_iter().flatten().max().expect("both operands are there");
        }
        _ => 0,
    };
    StrataDType::from_number(case.tensors[op.operand[slot] as usize].dtype).expect("cases use known formats")
}

fn compare(
    case: &Case,
    kind: StrataOpKind,
    stored: StrataDType,
    expected: &Expected,
    after: &Memory,
) -> Result<Worst, Stop> {
    let class = tolerance::class(kind, case.precise, stored);
    let mut worst = Worst::default();
    for (index, elements) in &expected.rows {
        let got = after.row(&expected.view, *index);
        let squares: f64 = elements.iter().map(|element| element.value * element.value).sum();
        let rms = (squares / elements.len() as f64).sqrt();
        for (i0, (element, got)) in elements.iter().zip(&got).enumerate() {
            let allowed = match case.judge {
                Judge::Table => tolerance::allowed(kind, class, expected.terms, element),
                Judge::RowScale(share) => share * rms,
            };
            let error = (got - element.value).abs();
            // Written so that a NaN is wrong.
            let right = error <= allowed || got.total_cmp(&element.value).is_eq();
            if !right {
                return Err(Stop::Failed(format!(
                    "element [{i0}, {}, {}, {}] of {kind:?} is {got:e}, expected {:e}; error {error:.3e}, allowed \
                     {allowed:.3e}, row's rms {rms:.3e}",
                    index[0], index[1], index[2], element.value
                )));
            }
            if error > 0.0 {
                // A row of subnormals that were flushed has no relative error to speak of.
                let relative = if rms > f64::from(f32::MIN_POSITIVE) { error / rms } else { 0.0 };
                worst = worst.or(Worst { of_allowed: error / allowed, relative });
            }
        }
    }
    Ok(worst)
}

/// Bytes that any op of the case writes.
fn written(case: &Case, memory: &Memory) -> Vec<(usize, Range<usize>)> {
    case.ops.iter().flat_map(|op| oracle::written(op, &case.tensors, &case.scalars, memory)).collect()
}

/// Every byte outside the results is as it was.
fn untouched(case: &Case, before: &Memory, after: &Memory) -> Result<(), Stop> {
    let mut masked = after.clone();
    for (buffer, range) in written(case, before) {
        masked.buffers[buffer][range.clone()].copy_from_slice(&before.buffers[buffer][range]);
    }
    for (buffer, (masked, before)) in masked.buffers.iter().zip(&before.buffers).enumerate() {
        if let Some(byte) = masked.iter().zip(before).position(|(now, then)| now != then) {
            return Err(Stop::Failed(format!(
                "byte {byte} of buffer {buffer} was written and belongs to no result ({})",
                nearest(case, buffer, byte)
            )));
        }
    }
    Ok(())
}

/// Says where a byte lies, in terms of the case's tensors.
fn nearest(case: &Case, buffer: usize, byte: usize) -> String {
    let starts = case
        .tensors
        .iter()
        .enumerate()
        .filter(|(_, tensor)| tensor.buffer as usize == buffer && tensor.offset as usize <= byte);
    starts.max_by_key(|(_, tensor)| tensor.offset).map_or("before every tensor".to_owned(), |(index, tensor)| {
        format!("{} bytes after the start of tensor {index}", byte - tensor.offset as usize)
    })
}

/// The judged results of `case` are the same in both memories, bit for bit.
fn same_rows(case: &Case, left: &Memory, right: &Memory, when: &str) -> Result<(), Stop> {
    for index in &case.checked {
        for (row, (buffer, range)) in
            oracle::written(&case.ops[*index], &case.tensors, &case.scalars, left).into_iter().enumerate()
        {
            let (left, right) = (&left.buffers[buffer][range.clone()], &right.buffers[buffer][range]);
            if let Some(byte) = left.iter().zip(right).position(|(left, right)| left != right) {
                return Err(Stop::Failed(format!("row {row} differs {when} (from byte {byte} of the row)")));
            }
        }
    }
    Ok(())
}

/// The same bits for every batch, thread count and run.
pub(crate) fn same_bits(bench: &Bench, case: &Case) -> Result<Worst, Stop> {
    let before = case.memory(PATTERNS[0]);
    let loaded = Loaded::new(bench.device(), case, &before)?;
    let mut program = loaded.compile(case)?;
    let base = loaded.run(&mut program, case)?;
    for again in 0..2 {
        loaded.write(&before)?;
        let repeated = loaded.run(&mut program, case)?;
        same_rows(case, &base, &repeated, &format!("in repeated run {}", again + 2))?;
    }
    for (threads, device) in bench.others() {
        let other = run(device, case, &before)?;
        same_rows(case, &base, &other, &format!("with {threads} threads instead of {}", crate::bench::THREADS[0]))?;
    }
    for count in token_counts(case.tokens()) {
        let fewer = case.with_tokens(count);
        let before = case.memory(PATTERNS[1]);
        loaded.write(&before)?;
        let after = loaded.run(&mut program, &fewer)?;
        let when = format!("when only the first {count} of {} tokens are in the step", case.tokens());
        same_rows(&fewer, &base, &after, &when)?;
        untouched(&fewer, &before, &after)?;
    }
    if case.carries_state {
        in_parts(bench, case, &base)?;
    } else {
        alone(bench, case, &before, &base)?;
    }
    Ok(Worst::default())
}

/// Batches to try of at most `tokens`: all small ones and both sides of the usual tile sizes.
fn token_counts(tokens: u64) -> Vec<u64> {
    (1..tokens).filter(|count| *count <= 9 || matches!(count, 15..=17 | 31..=33)).collect()
}

/// Slices of the step, each alone in its own program, give the rows they gave together.
fn alone(bench: &Bench, case: &Case, before: &Memory, base: &Memory) -> Result<(), Stop> {
    let tokens = case.tokens();
    let mut slices: Vec<(u64, u64)> = (0..tokens).map(|first| (first, 1)).collect();
    slices.extend([(1, 2), (2, 3), (3, 4), (1, 5), (2, 7), (1, 8)]);
    for (first, count) in slices.into_iter().filter(|(first, count)| first + count <= tokens) {
        let part = case.slice(first, count);
        let after = run(bench.device(), &part, before)?;
        let when = format!("when tokens {first} to {} of {tokens} are a step of their own", first + count - 1);
        same_rows(&part, base, &after, &when)?;
        untouched(&part, before, &after)?;
    }
    Ok(())
}

/// The step cut into smaller steps, run one after the other over the same cache.
fn in_parts(bench: &Bench, case: &Case, base: &Memory) -> Result<(), Stop> {
    let tokens = case.tokens();
    for size in [1, 2, 3, 5, 8, tokens - 1] {
        let loaded = Loaded::new(bench.device(), case, &case.memory(PATTERNS[1]))?;
        let mut first = 0;
        while first < tokens {
            let part = case.slice(first, size.min(tokens - first));
            let after = loaded.run(&mut loaded.compile(&part)?, &part)?;
            same_rows(&part, base, &after, &format!("when {tokens} tokens go in steps of {size}"))?;
            first += size;
        }
    }
    Ok(())
}
