//! Programs of several ops: what is fused, what must not be, and that neither changes a bit.

use super::*;
use crate::ops::testing::{Machine, Operand};
use strata_backend_abi::{StrataActivation, StrataDType, StrataOp, StrataTensor};

const TOKENS: u64 = 8;

/// Collects a program's tensors and ops.
#[derive(Default)]
struct Program {
    tensors: Vec<StrataTensor>,
    ops: Vec<StrataOp>,
}

impl Program {
    fn op(&mut self, kind: StrataOpKind, operands: &[&Operand], floats: &[f32], ints: &[i64]) {
        let slots: Vec<u32> = operands
            .iter()
            .map(|operand| {
                self.tensors.push(operand.tensor);
                self.tensors.len() as u32 - 1
            })
            .collect();
        self.ops.push(Machine::describe(kind, &slots, floats, ints));
    }
}

fn value(i: usize) -> f32 {
    ((i * 43 % 127) as f32 - 63.0) / 40.0
}

fn weights(machine: &Machine, k: u64, m: u64, seed: usize) -> Operand {
    machine.raw(StrataDType::Q8_0, [k, m, 1, 1], |block, bytes| {
        bytes[..2].copy_from_slice(&half::f16::from_f32(0.01).to_le_bytes());
        for (i, byte) in bytes[2..].iter_mut().enumerate() {
            *byte = (((block + seed) * 97 + i * 31) % 251) as u8;
        }
    })
}

fn per_token(machine: &Machine, n: u64) -> Operand {
    machine.floats([n, TOKENS, 1, 1]).dynamic(1, 0)
}

/// A feed-forward block with a residual, over some of sixteen tokens of a table.
fn block(n_workers: usize, ids: &[i32]) -> (u32, Vec<f32>) {
    let mut machine = Machine::with_workers(n_workers);
    let mut all_ids = ids.to_vec();
    all_ids.resize(TOKENS as usize, 0);
    let ids_operand = machine.indices(&all_ids);
    let table = machine.floats_with([64, 16, 1, 1], value);
    let gamma = machine.floats_with([64, 1, 1, 1], |i| 1.0 + value(i) / 8.0);
    let (gate_w, up_w, down_w) =
        (weights(&machine, 64, 96, 1), weights(&machine, 64, 96, 2), weights(&machine, 96, 64, 3));
    let (x, n, y) = (per_token(&machine, 64), per_token(&machine, 64), per_token(&machine, 64));
    let (gate, up, mixed) = (per_token(&machine, 96), per_token(&machine, 96), per_token(&machine, 96));
    let mut program = Program::default();
    program.op(StrataOpKind::EmbeddingLookup, &[&x, &table, &ids_operand], &[1.0], &[]);
    program.op(StrataOpKind::RmsNorm, &[&n, &x, &gamma], &[1e-5], &[]);
    program.op(StrataOpKind::MatMul, &[&gate, &gate_w, &n], &[], &[]);
    // Stands between two products of the same activations, and depends on the first only.
    program.op(StrataOpKind::Scale, &[&gate, &gate], &[1.5], &[]);
    program.op(StrataOpKind::MatMul, &[&up, &up_w, &n], &[], &[]);
    program.op(StrataOpKind::Glu, &[&mixed, &gate, &up], &[], &[StrataActivation::Silu as i64]);
    program.op(StrataOpKind::MatMul, &[&y, &down_w, &mixed], &[], &[]);
    program.op(StrataOpKind::Add, &[&x, &x, &y], &[1.0], &[]);
    let launches = machine.program(program.tensors, program.ops, &[ids.len() as i64]).unwrap();
    (launches, machine.read(&x)[..64 * ids.len()].to_vec())
}

#[test]
fn a_block_is_fused_and_keeps_its_bits() {
    let ids = [3, 15, 0, 7, 7, 1];
    let (launches, all) = block(2, &ids);
    // Lookup + norm + prepare; gate + up; scale + glu + prepare; down; add.
    assert_eq!(launches, 5);
    assert!(all.iter().all(|value| value.is_finite()) && all.iter().any(|value| *value != 0.0));
    assert_eq!(block(1, &ids).1, all);
    assert_eq!(block(3, &ids).1, all);
    for (token, id) in ids.iter().enumerate() {
        assert_eq!(block(2, &[*id]).1, all[token * 64..(token + 1) * 64], "token {token} alone");
    }
}

#[test]
fn no_tokens_are_no_work() {
    assert!(block(2, &[]).1.is_empty());
}

#[test]
fn memory_used_again_with_other_strides_is_not_fused() {
    let mut machine = Machine::new();
    let z = machine.floats([64, TOKENS, 1, 1]);
    let x = z.part(0, [16, TOKENS, 1, 1], [4, 64, 512, 512]);
    machine.fill(&x, value);
    let u = machine.floats([16, TOKENS, 1, 1]);
    let p = machine.floats_with([64, TOKENS, 1, 1], |i| i as f32);
    let before = machine.read(&x);
    let mut program = Program::default();
    program.op(StrataOpKind::Scale, &[&u, &x], &[2.0], &[]);
    // The result lies over the scaled input, four times as wide: its first row covers four of that one's.
    program.op(StrataOpKind::Copy, &[&z, &p], &[], &[]);
    let launches = machine.program(program.tensors, program.ops, &[]).unwrap();
    assert_eq!(launches, 2);
    assert_eq!(machine.read(&u), before.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    assert_eq!(machine.read(&z), machine.read(&p));
}

#[test]
fn a_copy_is_prepared_again_after_its_tensor_changed() {
    let mut machine = Machine::new();
    let w = weights(&machine, 64, 32, 5);
    let x = machine.floats_with([64, TOKENS, 1, 1], value);
    let (a, b) = (machine.floats([32, TOKENS, 1, 1]), machine.floats([32, TOKENS, 1, 1]));
    let mut program = Program::default();
    program.op(StrataOpKind::MatMul, &[&a, &w, &x], &[], &[]);
    program.op(StrataOpKind::Scale, &[&x, &x], &[-1.0], &[]);
    program.op(StrataOpKind::MatMul, &[&b, &w, &x], &[], &[]);
    machine.program(program.tensors, program.ops, &[]).unwrap();
    let negated: Vec<f32> = machine.read(&b).into_iter().map(|value| -value).collect();
    assert_eq!(machine.read(&a), negated);
}

#[test]
fn a_product_that_feeds_another_does_not_join_it() {
    let mut machine = Machine::new();
    let w = weights(&machine, 64, 64, 5);
    let x = machine.floats_with([64, TOKENS, 1, 1], value);
    let (a, b) = (machine.floats([64, TOKENS, 1, 1]), machine.floats([64, TOKENS, 1, 1]));
    let mut program = Program::default();
    program.op(StrataOpKind::MatMul, &[&a, &w, &x], &[], &[]);
    program.op(StrataOpKind::MatMul, &[&b, &w, &a], &[], &[]);
    let launches = machine.program(program.tensors, program.ops, &[]).unwrap();
    assert_eq!(launches, 4);
    let alone = machine.floats([64, TOKENS, 1, 1]);
    machine.op(StrataOpKind::MatMul, &[&alone, &w, &a], &[], &[]).unwrap();
    assert_eq!(machine.read(&alone), machine.read(&b));
}

#[test]
fn unsupported_ops_say_why() {
    let mut machine = Machine::new();
    let q8 = machine.plain(StrataDType::Q8_0, [32, 1, 4, 1]);
    let x = machine.floats([32, 1, 1, 1]);
    let (table, sequence, position) = (machine.indices(&[0]), machine.indices(&[0]), machine.indices(&[0]));
    let failure = machine.op(StrataOpKind::KvStore, &[&q8, &x, &table, &sequence, &position], &[], &[4]).unwrap_err();
    assert_eq!(failure.status, StrataStatus::Unsupported);
    assert_eq!(failure.text, "KvStore with a cache in Q8_0; it takes F32, F16 and BF16");
    let failure = machine.op(StrataOpKind::GatedDeltaNet, &[&x], &[], &[]).unwrap_err();
    assert_eq!(failure.text, "GatedDeltaNet is not computed by this version");
    let failure = machine.op(StrataOpKind::Glu, &[&x, &x, &x], &[], &[77]).unwrap_err();
    assert_eq!(failure.text, "activation 77 is not known to this plugin");
}
