//! One op of each kind, shape and format of a program: enough to ask a device about all of it,
//! since an answer depends on nothing else.

use std::collections::BTreeSet;

use strata_backend_abi::{STRATA_NO_OPERAND, StrataOp, StrataTensor};
use strata_plugin_host::ProgramSpec;

/// The program with each op only once, first occurrence, in order.
pub(crate) fn probe(spec: &ProgramSpec) -> ProgramSpec {
    let mut seen = BTreeSet::new();
    let mut probe = ProgramSpec {
        name: spec.name.clone(),
        precise: spec.precise,
        scalar_max: spec.scalar_max.clone(),
        ..ProgramSpec::default()
    };
    for op in &spec.ops {
        if !seen.insert(signature(spec, op)) {
            continue;
        }
        let mut op = *op;
        for operand in op.operand.iter_mut().filter(|operand| **operand != STRATA_NO_OPERAND) {
            probe.tensors.push(spec.tensors[*operand as usize]);
            *operand = probe.tensors.len() as u32 - 1;
        }
        probe.ops.push(op);
    }
    probe
}

/// Everything that an answer may depend on: not the layer, not where the tensors lie.
fn signature(spec: &ProgramSpec, op: &StrataOp) -> Vec<u64> {
    let mut signature = vec![u64::from(op.kind), u64::from(op.flags)];
    signature.extend(op.float.iter().map(|float| u64::from(float.to_bits())));
    signature.extend(op.int.iter().map(|int| int.cast_unsigned()));
    for operand in op.operand {
        let Some(tensor) = spec.tensors.get(operand as usize) else {
            signature.push(u64::MAX);
            continue;
        };
        let StrataTensor { dtype, flags, ne, nb, dynamic, .. } = tensor;
        signature.extend([u64::from(*dtype), u64::from(*flags)]);
        signature.extend(ne.iter().chain(nb));
        signature.extend(dynamic.map(u64::from));
    }
    signature
}
