//! `strata verify-package --json`.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What was verified and what is wrong with it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VerifyReport {
    /// `strata-verify/1.0`.
    pub schema: &'static str,
    /// One for each path that was given.
    pub targets: Vec<VerifiedTarget>,
    /// Bits of all findings: 1 damaged, 2 untrusted, 4 incompatible, 8 not checkable.
    pub bits: u8,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VerifiedTarget {
    pub path: String,
    /// `archive`, `package folder`, `installation`, `release folder`, `list of sums`.
    pub kind: &'static str,
    pub bits: u8,
    /// Names of the components with their versions.
    pub components: Vec<VerifiedComponent>,
    /// Files whose content was hashed.
    pub files: u64,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// At most 5000; `counts` has all.
    pub findings: Vec<VerifyFinding>,
    /// By code.
    pub counts: BTreeMap<&'static str, FindingCount>,
    /// What a reader should know and is not wrong.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VerifiedComponent {
    pub id: String,
    pub version: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VerifyFinding {
    /// `S0512`.
    pub code: &'static str,
    /// `file-unlisted`.
    pub name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub message: String,
    pub facts: BTreeMap<&'static str, String>,
    /// What the file looks like, where its name tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_like: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FindingCount {
    pub findings: u64,
    /// Bytes of the files that they are about.
    pub bytes: u64,
}
