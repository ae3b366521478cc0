//! Whom we trust: a trust root names the keys that may sign the key list, the key list names the
//! keys that may sign a release. So a release key can be replaced or withdrawn without a new
//! program. Keys are minisign's public keys (Ed25519) in their base64 form.

use crate::{Document, UtcTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name of the key list in a release folder; its signature by a root key is `keys.json.minisig`.
pub const KEYS_FILE: &str = "keys.json";

/// The trust root: built into the installer, or a file given to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrustRoot {
    /// `strata-trust-root/1.0`.
    pub schema: String,
    /// Any one of these signs the key list.
    pub roots: Vec<PublicKey>,
}

/// The list of keys that may sign a release, itself signed by a root key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyList {
    /// `strata-keys/1.0`.
    pub schema: String,
    /// Rollback counter: who has seen a number refuses a list with a lower one.
    pub serial: u64,
    pub created: UtcTime,
    pub expires: UtcTime,
    pub keys: Vec<PublicKey>,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublicKey {
    /// The key's number as minisign prints it: 16 upper-case hexadecimal digits.
    pub id: String,
    /// The second line of a `.pub` file.
    pub public: String,
    /// For people: whose it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Withdrawn: its signatures count no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

impl Document for TrustRoot {
    const SCHEMA: &'static str = "strata-trust-root/1.0";

    fn faults(&self) -> Vec<String> {
        let mut faults = key_faults(&self.roots);
        if self.roots.is_empty() {
            faults.push("it names no root key".to_owned());
        }
        faults
    }
}

impl Document for KeyList {
    const SCHEMA: &'static str = "strata-keys/1.0";

    fn faults(&self) -> Vec<String> {
        let mut faults = key_faults(&self.keys);
        if self.expires <= self.created {
            faults.push(format!("it expires at {}, not after {}, when it was made", self.expires, self.created));
        }
        faults
    }
}

fn key_faults(keys: &[PublicKey]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for key in keys {
        let upper_hex = |c: u8| c.is_ascii_digit() || (b'A'..=b'F').contains(&c);
        if key.id.len() != 16 || !key.id.bytes().all(upper_hex) {
            faults.push(format!("`{}` is no key id", key.id.escape_default()));
        }
        if !ids.insert(key.id.as_str()) {
            faults.push(format!("key {} is listed twice", key.id));
        }
    }
    faults
}
