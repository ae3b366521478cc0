//! The kit against itself, without a plugin: every case is a valid program, the oracle agrees with
//! answers worked out by hand, and a result that is wrong is noticed.

use crate::bench::Stop;
use crate::case::{Case, CaseBuilder, Dim, Place};
use crate::cases::groups;
use crate::check::judge;
use crate::memory::{Memory, View};
use crate::oracle;
use strata_backend_abi::{StrataActivation, StrataDType, StrataOpKind, StrataRopeStyle};

const T: Dim = Dim::Tokens;
const F32: StrataDType = StrataDType::F32;

/// Runs the case's ops by the oracle alone.
fn oracle_run(case: &Case) -> (Memory, Memory) {
    let before = case.memory(0xff);
    let mut after = before.clone();
    for op in &case.ops {
        oracle::run(op, &case.tensors, &case.scalars, &mut after);
    }
    (before, after)
}

/// The values of the last op's first result.
fn answer(builder: CaseBuilder) -> Vec<f64> {
    let case = builder.finish();
    let (_, after) = oracle_run(&case);
    let op = case.ops.last().expect("one op");
    let view = View::resolve(&case.tensors[op.operand[0] as usize], &case.scalars);
    view.rows().flat_map(|index| after.row(&view, index)).collect()
}

fn near(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{got:?}");
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{got} is not {expected}");
    }
}

fn listed(b: &mut CaseBuilder, dims: &[Dim], values: &[f64]) -> u32 {
    let id = b.tensor(Place::Scratch, F32, dims);
    b.fill_list(id, values);
    id
}

fn builder(tokens: u64) -> CaseBuilder {
    CaseBuilder::new("by hand", true, tokens, true)
}

#[test]
fn every_case_is_a_valid_program_and_passes_by_the_oracle() {
    let mut names = std::collections::BTreeSet::new();
    let mut n_cases = 0;
    for group in groups() {
        assert!(names.insert(group.name()), "two groups are called {}", group.name());
        let mut cases = std::collections::BTreeSet::new();
        for case in group.cases() {
            n_cases += 1;
            let sizes: Vec<u64> = case.memory(0).buffers.iter().map(|buffer| buffer.len() as u64).collect();
            let program = crate::bench::spec(&case);
            strata_plugin_host::validate(&program, &sizes)
                .unwrap_or_else(|error| panic!("{} {}: {error:?}", group.name(), case.name));
            let (before, mut after) = oracle_run(&case);
            for op in &case.ops {
                // Blocks of a quantised cache are the plugin's to choose, so the oracle leaves them out.
                let quantised = case.tensors[op.operand[0] as usize].dtype == StrataDType::Q8_0 as u32;
                if quantised {
                    store_q8_0(op, &case, &mut after);
                }
            }
            judge(&case, &before, &after).unwrap_or_else(|stop| panic!("{} {}: {stop:?}", group.name(), case.name));
            assert!(cases.insert(case.name.clone()), "two cases of {} are called {}", group.name(), case.name);
        }
    }
    assert!(n_cases > 2000, "{n_cases} cases");
}

/// Rounds rows to Q8_0 in the plainest way.
fn store_q8_0(op: &strata_backend_abi::StrataOp, case: &Case, memory: &mut Memory) {
    let mut scratch = memory.clone();
    for expected in oracle::run(op, &case.tensors, &case.scalars, &mut scratch) {
        for (index, row) in &expected.rows {
            let mut bytes = Vec::new();
            for block in row.chunks(32) {
                let greatest = block.iter().fold(0.0_f64, |greatest, element| greatest.max(element.value.abs()));
                let scale = crate::number::f64_to_f16(greatest / 127.0);
                bytes.extend(scale.to_le_bytes());
                let scale = crate::number::f16_to_f64(scale);
                let code =
                    |value: f64| if scale == 0.0 { 0 } else { (value / scale).round().clamp(-127.0, 127.0) as i8 };
                bytes.extend(block.iter().map(|element| code(element.value) as u8));
            }
            memory.buffers[expected.view.buffer][expected.view.row_range(*index)].copy_from_slice(&bytes);
        }
    }
}

#[test]
fn wrong_results_are_noticed() {
    for group in groups() {
        let case = group.cases().remove(0);
        let (before, good) = oracle_run(&case);
        let op = &case.ops[case.checked[0]];
        let (buffer, range) = oracle::written(op, &case.tensors, &case.scalars, &before).pop().expect("a result row");
        if case.tensors[op.operand[0] as usize].dtype == StrataDType::Q8_0 as u32 {
            continue;
        }
        let failed = |memory: &Memory| matches!(judge(&case, &before, memory), Err(Stop::Failed(_)));
        // A NaN in the last row (for I32: -1), the row not written at all, a byte beyond it.
        let mut spoiled = good.clone();
        spoiled.buffers[buffer][range.end - 4..range.end].fill(0xff);
        assert!(failed(&spoiled), "{}: NaN passes", group.name());
        let mut unwritten = good.clone();
        unwritten.buffers[buffer][range.clone()].copy_from_slice(&before.buffers[buffer][range.clone()]);
        assert!(failed(&unwritten), "{}: an unwritten row passes", group.name());
        let mut guard = good.clone();
        guard.buffers[buffer][0] ^= 1;
        assert!(failed(&guard), "{}: a write before the first tensor passes", group.name());
    }
}

#[test]
fn a_relative_error_of_one_in_a_thousand_fails_where_no_rounding_is_allowed() {
    for name in ["mat_mul::F32", "mat_mul::Q4_K", "attention::F32", "rms_norm::F32", "rope::F32", "glu::F32"] {
        let group = groups().into_iter().find(|group| group.name() == name).expect("the group is there");
        // Logits of hundreds magnify the roundings of f32 themselves to that size.
        for case in group.cases().into_iter().filter(|case| case.precise && !case.name.contains("spread")) {
            let (before, good) = oracle_run(&case);
            let op = &case.ops[0];
            let view = View::resolve(&case.tensors[op.operand[0] as usize], &case.scalars);
            let mut off = good.clone();
            let mut largest = 0.0_f64;
            for index in view.rows() {
                let row: Vec<f64> = good.row(&view, index);
                largest = row.iter().fold(largest, |greatest, value| greatest.max(value.abs()));
                off.store_row(&view, index, &row.iter().map(|value| value * 1.001).collect::<Vec<_>>());
            }
            if largest > 0.0 {
                assert!(matches!(judge(&case, &before, &off), Err(Stop::Failed(_))), "{name} {}", case.name);
            }
        }
    }
}

#[test]
fn a_quarter_turn_swaps_the_pair() {
    for (style, expected) in
        [(StrataRopeStyle::Norm, [-2.0, 1.0, -4.0, 3.0, 9.0]), (StrataRopeStyle::Neox, [-3.0, -4.0, 1.0, 2.0, 9.0])]
    {
        let mut b = builder(1);
        let dims = [Dim::Fixed(5), Dim::Fixed(1), T];
        let x = listed(&mut b, &dims, &[1.0, 2.0, 3.0, 4.0, 9.0]);
        let out = b.result(&dims);
        let table = listed(&mut b, &[Dim::Fixed(2), Dim::Fixed(2), Dim::Fixed(1)], &[0.0, 1.0, 0.0, 1.0]);
        let row = b.per_token(&[0.0]);
        let operands = [out, x, table, row].map(Some);
        b.op(StrataOpKind::Rope, &operands, &[], &[style as i64, 4]);
        near(&answer(b), &expected);
    }
}

#[test]
fn rows_by_hand() {
    let mut b = builder(1);
    let x = listed(&mut b, &[Dim::Fixed(2), T], &[0.0, 3.0_f64.ln()]);
    let out = b.result(&[Dim::Fixed(2), T]);
    b.op(StrataOpKind::Softmax, &[Some(out), Some(x)], &[1.0], &[]);
    near(&answer(b), &[0.25, 0.75]);

    let mut b = builder(1);
    let x = listed(&mut b, &[Dim::Fixed(2), T], &[3.0, 4.0]);
    let w = listed(&mut b, &[Dim::Fixed(2)], &[2.0, 1.0]);
    let out = b.result(&[Dim::Fixed(2), T]);
    b.op(StrataOpKind::RmsNorm, &[Some(out), Some(x), Some(w)], &[0.0], &[]);
    // mean of squares 12.5
    near(&answer(b), &[6.0 / 12.5_f64.sqrt(), 4.0 / 12.5_f64.sqrt()]);

    let mut b = builder(1);
    let x = listed(&mut b, &[Dim::Fixed(2), T], &[3.0, 4.0]);
    let out = b.result(&[Dim::Fixed(2), T]);
    b.op(StrataOpKind::L2Norm, &[Some(out), Some(x)], &[0.0], &[]);
    near(&answer(b), &[0.6, 0.8]);

    let mut b = builder(2);
    let x = listed(&mut b, &[Dim::Fixed(3), T], &[-1.0, -0.5, -0.5, 2.0, 2.0, 2.0]);
    let out = b.tensor(Place::Scratch, StrataDType::I32, &[T]);
    b.op(StrataOpKind::ArgMax, &[Some(out), Some(x)], &[], &[]);
    near(&answer(b), &[1.0, 0.0]);
}

#[test]
fn products_by_hand() {
    let mut b = builder(2);
    let out = b.result(&[Dim::Fixed(2), T]);
    let w = listed(&mut b, &[Dim::Fixed(3), Dim::Fixed(2)], &[1.0, 2.0, 3.0, -1.0, 0.0, 1.0]);
    let x = listed(&mut b, &[Dim::Fixed(3), T], &[1.0, 1.0, 1.0, 2.0, 0.0, -1.0]);
    let bias = listed(&mut b, &[Dim::Fixed(2)], &[10.0, 20.0]);
    b.op(StrataOpKind::MatMul, &[Some(out), Some(w), Some(x), Some(bias)], &[], &[]);
    near(&answer(b), &[16.0, 20.0, 9.0, 17.0]);

    // Two experts of one row each; expert 0 lies in slot 1, expert 1 is elsewhere.
    let mut b = builder(1);
    let out = b.result(&[Dim::Fixed(1), Dim::Fixed(2), T]);
    let w = listed(&mut b, &[Dim::Fixed(2), Dim::Fixed(1), Dim::Fixed(2)], &[100.0, 100.0, 2.0, 3.0]);
    let x = listed(&mut b, &[Dim::Fixed(2), Dim::Fixed(1), T], &[1.0, 10.0]);
    let ids = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Fixed(2), T]);
    b.fill_list(ids, &[1.0, 0.0]);
    let table = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Fixed(2)]);
    b.fill_list(table, &[1.0, -1.0]);
    b.op(StrataOpKind::ExpertMatMul, &[out, w, x, ids, table].map(Some), &[], &[]);
    near(&answer(b), &[0.0, 32.0]);

    let mut b = builder(1);
    let out = b.result(&[Dim::Fixed(2), T]);
    let x = listed(&mut b, &[Dim::Fixed(2), Dim::Fixed(2), T], &[1.0, 2.0, 10.0, 20.0]);
    let weights = listed(&mut b, &[Dim::Fixed(2), T], &[0.5, 0.25]);
    b.op(StrataOpKind::ExpertCombine, &[out, x, weights].map(Some), &[], &[]);
    near(&answer(b), &[3.0, 6.0]);
}

#[test]
fn attention_by_hand() {
    // One head, pages of two cells: positions 0 to 2 lie in cells 2, 3 and 0; the window hides
    // position 0. Logits ln 1 and ln 3 after the scale, and a sink of ln 4: shares 1/8 and 3/8.
    for (window, sink, expected) in [
        (2, None, [0.25 * 20.0 + 0.75 * 30.0]),
        (2, Some(4.0_f64.ln()), [0.125 * 20.0 + 0.375 * 30.0]),
        (0, None, [(10.0 * 5.0 + 20.0 + 3.0 * 30.0) / 9.0]),
    ] {
        let mut b = builder(1);
        let out = b.result(&[Dim::Fixed(1), Dim::Fixed(1), T]);
        let q = listed(&mut b, &[Dim::Fixed(1), Dim::Fixed(1), T], &[2.0]);
        let cell =
            |b: &mut CaseBuilder, values: [f64; 4]| listed(b, &[Dim::Fixed(1), Dim::Fixed(1), Dim::Fixed(4)], &values);
        let k = cell(&mut b, [3.0_f64.ln(), 7.0, 5.0_f64.ln(), 0.0]);
        let v = cell(&mut b, [30.0, 1e9, 10.0, 20.0]);
        let pages = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Fixed(2), Dim::Fixed(1)]);
        b.fill_list(pages, &[1.0, 0.0]);
        let sequence = b.per_token(&[0.0]);
        let position = b.per_token(&[2.0]);
        let sinks = sink.map(|sink| listed(&mut b, &[Dim::Fixed(1)], &[sink]));
        let operands = [Some(out), Some(q), Some(k), Some(v), Some(pages), Some(sequence), Some(position), sinks];
        b.op(StrataOpKind::Attention, &operands, &[0.5, 0.0], &[2, window]);
        near(&answer(b), &expected);
    }
}

#[test]
fn elementwise_by_hand() {
    let mut b = builder(1);
    let dims = [Dim::Fixed(3), T];
    let gate = listed(&mut b, &dims, &[0.0, 9.0, -1.0]);
    let up = listed(&mut b, &dims, &[5.0, -9.0, 0.0]);
    let out = b.result(&dims);
    let ints = [StrataActivation::SwigluOai as i64];
    b.op(StrataOpKind::Glu, &[out, gate, up].map(Some), &[7.0, 1.0], &ints);
    // The gate is cut at 7, the up value at -7: 7 · sigmoid(7) · (-7 + 1).
    near(&answer(b), &[0.0, -42.0 / (1.0 + (-7.0_f64).exp()), -1.0 / (1.0 + 1.0_f64.exp())]);

    let mut b = builder(2);
    let a = listed(&mut b, &[Dim::Fixed(2), T], &[1.0, 2.0, 3.0, 4.0]);
    let per_token = listed(&mut b, &[Dim::Fixed(1), T], &[10.0, 20.0]);
    let out = b.result(&[Dim::Fixed(2), T]);
    b.op(StrataOpKind::Add, &[out, a, per_token].map(Some), &[0.5], &[]);
    near(&answer(b), &[6.0, 7.0, 13.0, 14.0]);
}
