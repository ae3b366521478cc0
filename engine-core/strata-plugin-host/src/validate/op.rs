//! One op: operands present and in range, then shapes, formats and parameters as the description
//! of its kind says (strata-backend-abi, `StrataOpKind`), then what its results may overlap.

use super::overlap::overlaps;
use super::view::{Extent, View};
use super::{op_place, refuse};
use crate::signature::{Role, Signature, signature};
use crate::{PluginError, ProgramSpec};
use strata_backend_abi::{
    STRATA_NO_OPERAND, SizedStruct, StrataActivation, StrataDType, StrataOp, StrataOpKind, StrataScalar, StrataUnary,
};

/// What is wrong, without where.
type Rule = Result<(), String>;

/// An op whose operands are all there.
pub(super) struct OpCheck<'a> {
    spec: &'a ProgramSpec,
    index: usize,
    op: &'a StrataOp,
    kind: StrataOpKind,
    signature: Signature,
    /// By slot.
    views: Vec<Option<View>>,
}

impl<'a> OpCheck<'a> {
    pub(super) fn new(
        spec: &'a ProgramSpec,
        tensors: &[Option<View>],
        index: usize,
    ) -> Result<OpCheck<'a>, PluginError> {
        let op = spec.ops.get(index).ok_or_else(|| refuse(spec, format!("op {index}"), "there is no such op"))?;
        let place = |rule: String| refuse(spec, op_place(spec, index), rule);
        if op.struct_size != StrataOp::SIZE {
            return Err(place(format!("struct_size {}, this ABI has {}", op.struct_size, StrataOp::SIZE)));
        }
        let kind = StrataOpKind::from_number(op.kind).ok_or_else(|| place(format!("unknown op kind {}", op.kind)))?;
        let signature = signature(kind).ok_or_else(|| place("this op is only reserved".to_owned()))?;
        if op.flags != 0 {
            return Err(place(format!("unknown flags {:#x}", op.flags)));
        }
        let views = operands(&signature, op, tensors).map_err(place)?;
        unused_are_zero(&signature, op).map_err(place)?;
        Ok(OpCheck { spec, index, op, kind, signature, views })
    }

    pub(super) fn check(&self) -> Result<(), PluginError> {
        self.rules()
            .and_then(|()| self.overlaps())
            .map_err(|rule| refuse(self.spec, op_place(self.spec, self.index), rule))
    }

    fn rules(&self) -> Rule {
        use StrataOpKind as K;
        match self.kind {
            K::EmbeddingLookup => self.embedding_lookup(),
            K::RmsNorm => self.rms_norm(),
            K::MatMul => self.mat_mul(),
            K::Rope => self.rope(),
            K::KvStore => self.kv_store(),
            K::Attention => self.attention(),
            K::Glu => self.glu(),
            K::Add | K::Mul => self.add_mul(),
            K::Scale | K::Softmax => self.same_rows(),
            K::Unary => self.unary(),
            K::RouterTopK => self.router_top_k(),
            K::ExpertMatMul => self.expert_mat_mul(),
            K::ExpertCombine => self.expert_combine(),
            K::GatherRows => self.gather_rows(),
            K::Copy => self.copy(),
            K::ArgMax => self.arg_max(),
            K::L2Norm => self.not_negative(0).and_then(|()| self.same_rows()),
            // `signature` has none of these.
            K::GatedDeltaNet | K::ShortConv | K::HyperConnection => Err("this op is only reserved".to_owned()),
        }
    }

    // Rules by kind, in the order of their numbers.

    fn embedding_lookup(&self) -> Rule {
        let (out, table) = (self.view(0), self.view(1));
        self.rank(&[(0, 2), (1, 2)])?;
        self.f32(&[0])?;
        self.weights(1)?;
        self.equal(0, 0, table.dims[0])?;
        self.index_vector(2, out.dims[1])
    }

    fn rms_norm(&self) -> Rule {
        self.rank(&[(0, 3)])?;
        self.f32(&[0, 1])?;
        self.same_shape(0, 1)?;
        self.vector(2, self.view(0).dims[0])?;
        self.not_negative(0)
    }

    fn mat_mul(&self) -> Rule {
        let (w, x) = (self.view(1), self.view(2));
        self.rank(&[(0, 2), (1, 2), (2, 2)])?;
        self.f32(&[0])?;
        self.weights(1)?;
        self.format(2, &[StrataDType::F32, StrataDType::F16])?;
        self.equal(2, 0, w.dims[0])?;
        self.equal(0, 0, w.dims[1])?;
        self.equal(0, 1, x.dims[1])?;
        self.vector(3, w.dims[1])
    }

    fn rope(&self) -> Rule {
        let (out, rotated) = (self.view(0), self.op.int[1]);
        self.rank(&[(0, 3), (2, 3)])?;
        self.f32(&[0, 1, 2])?;
        self.same_shape(0, 1)?;
        self.fixed(0, 1)?;
        self.choice(0, 2)?;
        let head = out.dims[0].ne;
        let rotated = u64::try_from(rotated)
            .ok()
            .filter(|n| n.is_multiple_of(2) && (2..=head).contains(n))
            .ok_or_else(|| format!("rotated is {rotated}, an even number from 2 to {head} is needed"))?;
        self.equal(2, 0, Extent { ne: 2, dynamic: 0 })?;
        self.equal(2, 1, Extent { ne: rotated / 2, dynamic: 0 })?;
        self.index_vector(3, out.dims[2])
    }

    fn kv_store(&self) -> Rule {
        let (cache, x) = (self.view(0), self.view(1));
        self.rank(&[(0, 3), (1, 3)])?;
        self.not_indices(0)?;
        self.f32(&[1])?;
        self.equal(1, 0, cache.dims[0])?;
        self.fixed(0, 1)?;
        self.equal(1, 1, cache.dims[1])?;
        self.paging(0, (2, 3, 4), x.dims[2])
    }

    fn attention(&self) -> Rule {
        let (out, q, k, v) = (self.view(0), self.view(1), self.view(2), self.view(3));
        self.rank(&[(0, 3), (1, 3), (2, 3), (3, 3)])?;
        self.f32(&[0, 1])?;
        self.not_indices(2)?;
        self.not_indices(3)?;
        self.equal(2, 0, q.dims[0])?;
        self.equal(0, 0, v.dims[0])?;
        for slot in [0, 2, 3] {
            self.fixed(slot, 1)?;
        }
        self.equal(1, 1, out.dims[1])?;
        self.equal(3, 1, k.dims[1])?;
        self.equal(3, 2, k.dims[2])?;
        self.equal(1, 2, out.dims[2])?;
        let (heads, kv_heads) = (out.dims[1].ne, k.dims[1].ne);
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("{heads} heads are no multiple of {kv_heads} kv heads"));
        }
        self.vector(7, out.dims[1])?;
        self.not_negative(0)?;
        self.not_negative(1)?;
        if self.op.int[1] < 0 {
            return Err(format!("window is {}", self.op.int[1]));
        }
        self.paging(2, (4, 5, 6), out.dims[2])
    }

    fn glu(&self) -> Rule {
        self.rank(&[(0, 3)])?;
        self.f32(&[0, 1, 2])?;
        self.same_shape(0, 1)?;
        self.same_shape(0, 2)?;
        self.choice(0, 5)?;
        if self.op.int[0] == StrataActivation::SwigluOai as i64 {
            return self.positive(0);
        }
        Ok(())
    }

    fn add_mul(&self) -> Rule {
        let (out, b) = (self.view(0), self.view(2));
        self.rank(&[(0, 3), (2, 3)])?;
        self.f32(&[0, 1, 2])?;
        self.same_shape(0, 1)?;
        for k in 0..3 {
            if b.dims[k] != out.dims[k] && b.dims[k] != Extent::ONE {
                return Err(format!("dimension {k} of b is {}, {} or 1 is needed", b.dims[k], out.dims[k]));
            }
        }
        Ok(())
    }

    fn same_rows(&self) -> Rule {
        self.f32(&[0, 1])?;
        self.same_shape(0, 1)
    }

    fn unary(&self) -> Rule {
        self.same_rows()?;
        self.choice(0, 7)?;
        if self.op.int[0] == StrataUnary::Softcap as i64 {
            return self.positive(0);
        }
        Ok(())
    }

    fn router_top_k(&self) -> Rule {
        let (ids, weights, logits) = (self.view(0), self.view(1), self.view(2));
        self.rank(&[(0, 2), (1, 2), (2, 2)])?;
        self.format(0, &[StrataDType::I32])?;
        self.f32(&[1, 2])?;
        if weights.dims != ids.dims {
            return Err(format!("weights are {weights}, ids are {ids}"));
        }
        self.equal(2, 1, ids.dims[1])?;
        let (chosen, experts) = (ids.dims[0].ne, logits.dims[0].ne);
        self.fixed(0, 0)?;
        if chosen > experts {
            return Err(format!("{chosen} of {experts} experts"));
        }
        self.vector(3, logits.dims[0])?;
        self.choice(0, 4)?;
        self.choice(1, 2)?;
        self.not_negative(1)?;
        self.groups(chosen, experts)
    }

    fn groups(&self, chosen: u64, experts: u64) -> Rule {
        let (groups, kept) = (self.op.int[2], self.op.int[3]);
        if groups == 0 && kept == 0 {
            return Ok(());
        }
        let wrong = || format!("{kept} of {groups} groups of {experts} experts, of which {chosen} are chosen");
        let (Ok(groups), Ok(kept)) = (u64::try_from(groups), u64::try_from(kept)) else { return Err(wrong()) };
        let fits = groups > 0
            && experts.is_multiple_of(groups)
            && (1..=groups).contains(&kept)
            && (experts / groups).checked_mul(kept).is_some_and(|left| left >= chosen);
        if fits { Ok(()) } else { Err(wrong()) }
    }

    fn expert_mat_mul(&self) -> Rule {
        let (out, w, x) = (self.view(0), self.view(1), self.view(2));
        self.rank(&[(0, 3), (1, 3), (2, 3), (3, 2)])?;
        self.f32(&[0, 2])?;
        self.weights(1)?;
        self.equal(2, 0, w.dims[0])?;
        self.equal(0, 0, w.dims[1])?;
        self.fixed(0, 1)?;
        if x.dims[1] != out.dims[1] && x.dims[1] != Extent::ONE {
            return Err(format!("dimension 1 of x is {}, {} or 1 is needed", x.dims[1], out.dims[1]));
        }
        self.equal(2, 2, out.dims[2])?;
        self.format(3, &[StrataDType::I32])?;
        self.equal(3, 0, out.dims[1])?;
        self.equal(3, 1, out.dims[2])?;
        match &self.views[4] {
            Some(table) if table.dtype != StrataDType::I32 => Err(format!("table is {table}, I32 is needed")),
            Some(table) if !table.dims[0].is_fixed() || table.dims[1..] != [Extent::ONE; 3] => {
                Err(format!("table is {table}, one fixed dimension is needed"))
            }
            _ => Ok(()),
        }
    }

    fn expert_combine(&self) -> Rule {
        let (out, x) = (self.view(0), self.view(1));
        self.rank(&[(0, 2), (1, 3), (2, 2)])?;
        self.f32(&[0, 1, 2])?;
        self.equal(1, 0, out.dims[0])?;
        self.fixed(1, 1)?;
        self.equal(1, 2, out.dims[1])?;
        self.equal(2, 0, x.dims[1])?;
        self.equal(2, 1, out.dims[1])
    }

    fn gather_rows(&self) -> Rule {
        let (out, x) = (self.view(0), self.view(1));
        self.rank(&[(0, 2), (1, 2)])?;
        self.f32(&[0, 1])?;
        self.equal(0, 0, x.dims[0])?;
        self.index_vector(2, out.dims[1])
    }

    fn copy(&self) -> Rule {
        let formats = [StrataDType::F32, StrataDType::F16, StrataDType::BF16];
        self.format(0, &formats)?;
        self.format(1, &formats)?;
        self.same_shape(0, 1)
    }

    fn arg_max(&self) -> Rule {
        self.rank(&[(1, 2)])?;
        self.f32(&[1])?;
        self.index_vector(0, self.view(1).dims[1])
    }

    // Words of the rules. A slot that may be absent passes when it is.

    fn name(&self, slot: usize) -> &'static str {
        self.signature.operands[slot].name
    }

    /// A slot that `operands` found present.
    fn view(&self, slot: usize) -> &View {
        self.views[slot].as_ref().expect("`operands` refuses an op without a required operand")
    }

    fn rank(&self, most: &[(usize, usize)]) -> Rule {
        for (slot, rank) in most {
            if self.view(*slot).dims[*rank..].iter().any(|dim| *dim != Extent::ONE) {
                return Err(format!(
                    "{} is {}, at most {rank} dimensions are allowed",
                    self.name(*slot),
                    self.view(*slot)
                ));
            }
        }
        Ok(())
    }

    fn format(&self, slot: usize, allowed: &[StrataDType]) -> Rule {
        if allowed.contains(&self.view(slot).dtype) {
            return Ok(());
        }
        let names: Vec<&str> = allowed.iter().map(|dtype| dtype.name()).collect();
        Err(format!("{} is {}, {} is needed", self.name(slot), self.view(slot), names.join(" or ")))
    }

    fn f32(&self, slots: &[usize]) -> Rule {
        slots.iter().try_for_each(|slot| self.format(*slot, &[StrataDType::F32]))
    }

    fn not_indices(&self, slot: usize) -> Rule {
        if self.view(slot).dtype == StrataDType::I32 {
            return Err(format!("{} is I32, numbers are needed", self.name(slot)));
        }
        Ok(())
    }

    /// Any format of numbers, every dimension fixed.
    fn weights(&self, slot: usize) -> Rule {
        self.not_indices(slot)?;
        (0..4).try_for_each(|k| self.fixed(slot, k))
    }

    fn fixed(&self, slot: usize, k: usize) -> Rule {
        if self.view(slot).dims[k].is_fixed() {
            return Ok(());
        }
        Err(format!("dimension {k} of {} is dynamic", self.name(slot)))
    }

    fn equal(&self, slot: usize, k: usize, needed: Extent) -> Rule {
        let dim = self.view(slot).dims[k];
        if dim == needed {
            return Ok(());
        }
        Err(format!("dimension {k} of {} is {dim}, {needed} is needed", self.name(slot)))
    }

    fn same_shape(&self, slot: usize, other: usize) -> Rule {
        let (one, two) = (self.view(slot), self.view(other));
        if one.dims == two.dims {
            return Ok(());
        }
        Err(format!("{} is {one}, {} is {two}: the shapes must be equal", self.name(slot), self.name(other)))
    }

    /// F32, one fixed dimension.
    fn vector(&self, slot: usize, len: Extent) -> Rule {
        let Some(view) = &self.views[slot] else { return Ok(()) };
        if view.dtype == StrataDType::F32 && view.dims == [len, Extent::ONE, Extent::ONE, Extent::ONE] {
            return Ok(());
        }
        Err(format!("{} is {view}, F32 [{len}] is needed", self.name(slot)))
    }

    /// I32, one dimension that is `len` in each run or at least as long as `len` ever is.
    fn index_vector(&self, slot: usize, len: Extent) -> Rule {
        let view = self.view(slot);
        let long_enough = view.dims[0] == len || view.dims[0].is_fixed() && view.dims[0].ne >= len.ne;
        if view.dtype == StrataDType::I32 && view.dims[1..] == [Extent::ONE; 3] && long_enough {
            return Ok(());
        }
        Err(format!("{} is {view}, I32 [{len}] is needed", self.name(slot)))
    }

    fn choice(&self, int: usize, count: i64) -> Rule {
        let value = self.op.int[int];
        if (0..count).contains(&value) {
            return Ok(());
        }
        Err(format!("{} is {value}, this ABI knows 0 to {}", self.signature.ints[int], count - 1))
    }

    fn not_negative(&self, float: usize) -> Rule {
        // `unused_are_zero` has refused what is not finite.
        if self.op.float[float] >= 0.0 {
            return Ok(());
        }
        Err(format!("{} is {}", self.signature.floats[float], self.op.float[float]))
    }

    fn positive(&self, float: usize) -> Rule {
        if self.op.float[float] > 0.0 {
            return Ok(());
        }
        Err(format!("{} is {}, more than 0 is needed", self.signature.floats[float], self.op.float[float]))
    }

    /// Page size, page table, and the sequence and position of each token.
    fn paging(&self, cache: usize, (pages, sequence, position): (usize, usize, usize), tokens: Extent) -> Rule {
        let page = self.op.int[0];
        let page = u64::try_from(page)
            .ok()
            .filter(|page| page.is_power_of_two())
            .ok_or_else(|| format!("page_size is {page}, a power of two is needed"))?;
        self.fixed(cache, 2)?;
        let cells = self.view(cache).dims[2].ne;
        if !cells.is_multiple_of(page) {
            return Err(format!("{cells} cells are no whole number of pages of {page}"));
        }
        self.format(pages, &[StrataDType::I32])?;
        self.rank(&[(pages, 2)])?;
        self.fixed(pages, 0)?;
        self.fixed(pages, 1)?;
        let reach = self.view(pages).dims[0].ne.saturating_mul(page);
        let longest = self.spec.scalar_max.get(StrataScalar::KvLength as usize).copied().unwrap_or(0);
        if u64::try_from(longest).is_ok_and(|longest| longest > reach) {
            return Err(format!("the page table reaches {reach} positions, KvLength may be {longest}"));
        }
        self.index_vector(sequence, tokens)?;
        self.index_vector(position, tokens)
    }

    /// A result overlaps no other operand, except the same view where the op may work in place.
    fn overlaps(&self) -> Rule {
        for (slot, operand) in self.signature.operands.iter().enumerate() {
            if operand.role != Role::Result {
                continue;
            }
            let result = self.view(slot);
            for (other_slot, other_operand) in self.signature.operands.iter().enumerate() {
                let Some(other) = &self.views[other_slot] else { continue };
                let in_place = other_operand.role == Role::InPlace && result.is_same(other);
                if other_slot != slot && !in_place && overlaps(result, other) {
                    let (result, other) = (self.name(slot), self.name(other_slot));
                    return Err(format!("result {result} overlaps {other}"));
                }
            }
        }
        Ok(())
    }
}

fn operands(signature: &Signature, op: &StrataOp, tensors: &[Option<View>]) -> Result<Vec<Option<View>>, String> {
    let mut views = Vec::with_capacity(signature.operands.len());
    for (slot, tensor) in op.operand.into_iter().enumerate() {
        let Some(operand) = signature.operands.get(slot) else {
            if tensor == STRATA_NO_OPERAND {
                continue;
            }
            return Err(format!("operand slot {slot} is used, this op has {}", signature.operands.len()));
        };
        if tensor == STRATA_NO_OPERAND {
            if operand.role != Role::Optional {
                return Err(format!("operand {} is absent", operand.name));
            }
            views.push(None);
            continue;
        }
        match tensors.get(tensor as usize) {
            Some(Some(view)) => views.push(Some(*view)),
            _ => return Err(format!("operand {} is tensor {tensor} of {}", operand.name, tensors.len())),
        }
    }
    Ok(views)
}

/// Slots without a meaning are 0, so that a later version can give them one; no parameter is NaN or infinite.
fn unused_are_zero(signature: &Signature, op: &StrataOp) -> Rule {
    for (slot, value) in op.float.into_iter().enumerate() {
        match signature.floats.get(slot) {
            Some(name) if !value.is_finite() => return Err(format!("{name} is {value}")),
            None if value != 0.0 => return Err(format!("float {slot} is {value}, this op has no such parameter")),
            _ => {}
        }
    }
    match op.int.into_iter().enumerate().find(|(slot, value)| *slot >= signature.ints.len() && *value != 0) {
        Some((slot, value)) => Err(format!("int {slot} is {value}, this op has no such parameter")),
        None => Ok(()),
    }
}
