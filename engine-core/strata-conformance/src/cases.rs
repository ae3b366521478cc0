//! The catalogue: groups of cases, one group per op and format, each case a shape class.
//!
//! A group makes its cases when asked, so that only one group's buffers exist at a time.

mod attention;
mod elementwise;
mod experts;
mod matmul;
mod rows;
mod step;

use crate::case::{Case, CaseBuilder};
use std::fmt;
use strata_backend_abi::StrataDType;

/// What is asked of a group's cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Results are near the oracle's, nothing else is written, undefined bytes do not matter.
    Values,
    /// The same bits for every batch, thread count and run.
    SameBits,
}

/// All cases of one op with one format.
pub struct Group {
    pub op: &'static str,
    pub format: String,
    pub check: Check,
    make: Box<dyn Fn() -> Vec<Case> + Send + Sync>,
}

impl Group {
    pub(crate) fn new(
        op: &'static str,
        format: impl Into<String>,
        check: Check,
        make: impl Fn() -> Vec<Case> + Send + Sync + 'static,
    ) -> Group {
        Group { op, format: format.into(), check, make: Box::new(make) }
    }

    pub fn cases(&self) -> Vec<Case> {
        (self.make)()
    }

    /// `mat_mul::Q4_K`, or `mat_mul.same_bits::Q4_K`: what a filter is matched against.
    pub fn name(&self) -> String {
        let check = match self.check {
            Check::Values => "",
            Check::SameBits => ".same_bits",
        };
        format!("{}{check}::{}", self.op, self.format)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Every group, in the order of the ops' numbers.
pub fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    rows::groups(&mut groups);
    matmul::groups(&mut groups);
    attention::groups(&mut groups);
    elementwise::groups(&mut groups);
    experts::groups(&mut groups);
    step::groups(&mut groups);
    groups
}

/// Every format that weights come in.
pub(crate) fn weight_formats() -> impl Iterator<Item = StrataDType> {
    StrataDType::ALL.iter().copied().filter(|dtype| *dtype != StrataDType::I32)
}

/// Builds a case in both modes.
fn both_modes(cases: &mut Vec<Case>, name: &str, tokens: u64, build: impl Fn(&mut CaseBuilder)) {
    for precise in [true, false] {
        // Whether T is compiled in or told per run alternates with the shapes.
        let dynamic = (name.len() + usize::from(precise)).is_multiple_of(2) || tokens > 9;
        cases.push(one(name, precise, tokens, dynamic, |b| {
            if b.rng.chance(0.4) {
                b.long_vectors();
            }
            build(b);
        }));
    }
}

fn one(name: &str, precise: bool, tokens: u64, dynamic: bool, build: impl Fn(&mut CaseBuilder)) -> Case {
    let mut builder = CaseBuilder::new(name, precise, tokens, dynamic);
    build(&mut builder);
    builder.finish()
}
