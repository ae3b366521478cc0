//! Whether an op can be computed on this card, and the reason when it cannot. `op_supported` and
//! `program_compile` both ask; what passes here plans.

use strata_backend_sdk::abi::{StrataDType, StrataOpKind};
use strata_backend_sdk::{Failure, ProgramView, Result};

use crate::kernels::KernelTable;
use crate::plan::format_name;
use crate::view::View;

/// Experts that the router's shared memory has room for.
const MOST_EXPERTS: u64 = 1024;
/// Longest head that attention has a kernel for.
const MOST_HEAD: u64 = 512;

pub(crate) fn check(program: &ProgramView<'_>, index: usize, kernels: &KernelTable) -> Result<()> {
    let op = program.ops.get(index).ok_or_else(|| Failure::host_bug(format_args!("there is no op {index}")))?;
    let kind = StrataOpKind::from_number(op.kind)
        .ok_or_else(|| Failure::unsupported(format!("op {} is not known to this plugin", op.kind)))?;
    if program.scalar_max.len() > 4 {
        return Err(Failure::unsupported(format!("a program with {} scalars", program.scalar_max.len())));
    }
    let ask = Ask { program, index, kind, kernels };
    match kind {
        StrataOpKind::EmbeddingLookup => {
            ask.floats(&[0])?;
            ask.kernel(&format!("embed_{}", format_name(ask.view(1)?.dtype)))
        }
        StrataOpKind::RmsNorm | StrataOpKind::L2Norm | StrataOpKind::Softmax => {
            ask.floats(&[0, 1]).and_then(|()| ask.kernel("rows"))
        }
        StrataOpKind::GatherRows => ask.floats(&[0, 1]).and_then(|()| ask.kernel("gather")),
        StrataOpKind::Scale => ask.floats(&[0, 1]).and_then(|()| ask.kernel("unary")),
        StrataOpKind::Unary => {
            ask.parameter(0..=6).and_then(|()| ask.floats(&[0, 1])).and_then(|()| ask.kernel("unary"))
        }
        StrataOpKind::Add | StrataOpKind::Mul => ask.floats(&[0, 1, 2]).and_then(|()| ask.kernel("binary")),
        StrataOpKind::Glu => {
            ask.parameter(0..=4).and_then(|()| ask.floats(&[0, 1, 2])).and_then(|()| ask.kernel("binary"))
        }
        StrataOpKind::ExpertCombine => ask.floats(&[0, 1, 2]).and_then(|()| ask.kernel("combine")),
        StrataOpKind::ArgMax => ask.floats(&[1]).and_then(|()| ask.kernel("arg_max")),
        StrataOpKind::Copy => ask.copy(),
        StrataOpKind::MatMul => ask.product(),
        StrataOpKind::ExpertMatMul => ask.expert_product(),
        StrataOpKind::Rope => {
            ask.parameter(0..=1).and_then(|()| ask.floats(&[0, 1, 2])).and_then(|()| ask.kernel("rope"))
        }
        StrataOpKind::KvStore => ask.cache(0).and_then(|()| ask.floats(&[1])).and_then(|()| ask.kernel("kv_store")),
        StrataOpKind::Attention => ask.attention(),
        StrataOpKind::RouterTopK => ask.router(),
        StrataOpKind::GatedDeltaNet | StrataOpKind::ShortConv | StrataOpKind::HyperConnection => {
            Err(Failure::unsupported(format!("{kind:?} is not computed by this version")))
        }
    }
}

struct Ask<'a> {
    program: &'a ProgramView<'a>,
    index: usize,
    kind: StrataOpKind,
    kernels: &'a KernelTable,
}

impl Ask<'_> {
    fn view(&self, slot: usize) -> Result<View> {
        match self.program.operand(self.index, slot) {
            Some(tensor) => View::shape(tensor),
            None => Err(Failure::host_bug(format_args!("{:?} without an operand in slot {slot}", self.kind))),
        }
    }

    fn kernel(&self, name: &str) -> Result<()> {
        if self.kernels.has(name) {
            return Ok(());
        }
        Err(Failure::unsupported(format!("{:?}: this plugin has no kernel {name}", self.kind)))
    }

    fn floats(&self, slots: &[usize]) -> Result<()> {
        for slot in slots {
            let dtype = self.view(*slot)?.dtype;
            if dtype != StrataDType::F32 {
                let text = format!("{:?} with {dtype} in slot {slot}; it takes F32", self.kind);
                return Err(Failure::unsupported(text));
            }
        }
        Ok(())
    }

    fn parameter(&self, known: std::ops::RangeInclusive<i64>) -> Result<()> {
        let value = self.program.ops[self.index].int[0];
        if known.contains(&value) {
            return Ok(());
        }
        Err(Failure::unsupported(format!("{:?} number {value} is not known to this plugin", self.kind)))
    }

    fn copy(&self) -> Result<()> {
        for slot in [0, 1] {
            let dtype = self.view(slot)?.dtype;
            if !matches!(dtype, StrataDType::F32 | StrataDType::F16 | StrataDType::BF16) {
                return Err(Failure::unsupported(format!("Copy of {dtype}; it takes F32, F16 and BF16")));
            }
        }
        self.kernel("copy")
    }

    fn product(&self) -> Result<()> {
        self.floats(&[0])?;
        let x = self.view(2)?.dtype;
        if !matches!(x, StrataDType::F32 | StrataDType::F16) {
            return Err(Failure::unsupported(format!("MatMul of activations in {x}; it takes F32 and F16")));
        }
        let w = self.view(1)?;
        let format = format_name(w.dtype);
        if !self.program.precise && w.dtype.is_quantised() && self.kernels.has(&format!("mmv_{format}_t1")) {
            return Ok(());
        }
        self.kernel(&format!("mmx_{format}"))
    }

    fn expert_product(&self) -> Result<()> {
        self.floats(&[0, 2])?;
        let (out, w) = (self.view(0)?, self.view(1)?);
        if out.ne[2] > 1 && out.nb[2] != out.ne[1] * out.nb[1] {
            let text = "ExpertMatMul into tokens that do not follow one another: their rows must be evenly spaced";
            return Err(Failure::unsupported(text));
        }
        let format = format_name(w.dtype);
        if !self.program.precise && w.dtype.is_quantised() && self.kernels.has(&format!("moev_{format}")) {
            return Ok(());
        }
        self.kernel(&format!("moex_{format}"))
    }

    fn cache(&self, slot: usize) -> Result<()> {
        let dtype = self.view(slot)?.dtype;
        if matches!(dtype, StrataDType::F32 | StrataDType::F16 | StrataDType::BF16) {
            return Ok(());
        }
        Err(Failure::unsupported(format!("{:?} with a cache in {dtype}; it takes F32, F16 and BF16", self.kind)))
    }

    fn attention(&self) -> Result<()> {
        self.cache(2)?;
        self.cache(3)?;
        self.floats(&[0, 1])?;
        let longest = self.view(1)?.ne[0].max(self.view(0)?.ne[0]);
        if longest > MOST_HEAD {
            return Err(Failure::unsupported(format!("Attention with heads of {longest}; at most {MOST_HEAD}")));
        }
        self.kernel("attention_64")
    }

    fn router(&self) -> Result<()> {
        self.parameter(0..=3)?;
        self.floats(&[1, 2])?;
        let experts = self.view(2)?.ne[0];
        if experts > MOST_EXPERTS {
            return Err(Failure::unsupported(format!("RouterTopK over {experts} experts; at most {MOST_EXPERTS}")));
        }
        self.kernel("router")
    }
}
