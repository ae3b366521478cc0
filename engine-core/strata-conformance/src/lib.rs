//! The conformance kit: every op of the plugin ABI, with every format and shape class, against a
//! plain scalar oracle, on any plugin, through `strata-plugin-host` as the product does it.
//!
//! A [`Case`] is a program with buffers and scalars ([`groups`] makes them all). The `oracle`
//! computes what must come out and how far rounding may move it, `tolerance` turns that into a
//! limit, `check` compares, [`Gaps`] says which failures are known, [`Report`] is the table.
//!
//! It shares no code with any plugin, and it does not measure speed. Called by the binary
//! `strata-conform` and by the test target `conformance`; docs/CONFORMANCE.md is for plugin authors.

mod bench;
mod blocks;
mod case;
mod cases;
mod check;
mod error;
mod gaps;
mod memory;
mod number;
mod oracle;
mod report;
mod rng;
pub mod tolerance;

pub use bench::Bench;
pub use case::Case;
pub use cases::{Check, Group, groups};
pub use check::Worst;
pub use error::ConformError;
pub use gaps::{Expect, Gap, Gaps};
pub use oracle::Element;
pub use report::{GroupReport, Report, Totals, Verdict, run_group};

#[cfg(test)]
mod self_checks;
