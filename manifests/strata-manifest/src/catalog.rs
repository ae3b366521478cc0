//! The model catalog: models by the name that people type, where their files are and what they
//! need. `manifests/data/models.toml` is in every build; people write it, so unknown fields are errors.

use crate::{ManifestError, Sha256Digest};
use serde::Deserialize;
use std::path::Path;

/// The catalog of this build.
const BUILT_IN: &str = include_str!("../../data/models.toml");

/// Models by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// `strata-catalog/1.0`.
    pub schema: String,
    #[serde(rename = "model")]
    pub models: Vec<CatalogModel>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CatalogModel {
    /// What `--model` and `strata run` take: lower case, digits, `-`, `.`.
    pub name: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    /// For lists: family, size, weight format.
    pub title: String,
    /// `general.architecture` of the file.
    pub architecture: String,
    pub licence: String,
    /// Tokens that the model was made for.
    pub context: u64,
    /// Bytes of keys and values in f16 that one token of context takes; absent when it depends on the
    /// length or is not known.
    #[serde(default)]
    pub kv_bytes_per_token: Option<u64>,
    /// Bytes of the weights that may stay in the machine's memory while a GPU does the rest (experts).
    #[serde(default)]
    pub expert_bytes: Option<u64>,
    /// Bytes of the weights that may stay on disk and are read as they are needed (n-gram tables).
    #[serde(default)]
    pub paged_bytes: Option<u64>,
    /// Taken when nobody names a model.
    #[serde(default)]
    pub recommended: bool,
    /// What somebody should know before fetching it.
    #[serde(default)]
    pub note: Option<String>,
    #[serde(rename = "file")]
    pub files: Vec<CatalogFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CatalogFile {
    /// Name on disk.
    pub name: String,
    /// `pip:`, `hf:` or `https:`; several are parts that are joined in this order.
    pub sources: Vec<String>,
    /// Exact bytes; absent when only the source knows.
    #[serde(default)]
    pub size: Option<u64>,
    /// About how many bytes, where `size` is absent.
    #[serde(default)]
    pub about_bytes: Option<u64>,
    /// Absent when it comes from the source and is pinned in the lock file at the first fetch.
    #[serde(default)]
    pub sha256: Option<Sha256Digest>,
}

impl CatalogFile {
    /// Exact bytes if known, else about how many.
    pub fn bytes(&self) -> u64 {
        self.size.or(self.about_bytes).unwrap_or(0)
    }
}

impl CatalogModel {
    /// Bytes of all files, exact or about.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(CatalogFile::bytes).sum()
    }
}

impl Catalog {
    /// The catalog that this build carries.
    pub fn built_in() -> Catalog {
        Catalog::parse(BUILT_IN, Path::new("models.toml")).expect("a test reads the catalog of this build")
    }

    /// Parses and checks a catalog; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Catalog, ManifestError> {
        let malformed = |why: String| ManifestError::Malformed { path: path.to_owned(), why };
        let catalog: Catalog = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if catalog.schema != "strata-catalog/1.0" {
            return Err(ManifestError::WrongSchema {
                path: path.to_owned(),
                found: catalog.schema.chars().take(80).collect(),
                expected: "strata-catalog/1.0".to_owned(),
            });
        }
        let mut names = std::collections::BTreeSet::new();
        for model in &catalog.models {
            for name in std::iter::once(&model.name).chain(&model.aliases) {
                if !is_model_name(name) {
                    return Err(malformed(format!("`{name}` is no name of a model")));
                }
                if !names.insert(name.clone()) {
                    return Err(malformed(format!("two models are called `{name}`")));
                }
            }
            if model.files.is_empty() {
                return Err(malformed(format!("`{}` has no file", model.name)));
            }
            for file in &model.files {
                if file.sources.is_empty() || file.bytes() == 0 {
                    return Err(malformed(format!(
                        "file `{}` of `{}` lacks a source or a size",
                        file.name, model.name
                    )));
                }
                if !is_file_name(&file.name) {
                    return Err(malformed(format!("`{}` is no plain file name", file.name)));
                }
            }
        }
        Ok(catalog)
    }

    /// A model by its name or another name of it, whatever the case.
    pub fn find(&self, name: &str) -> Option<&CatalogModel> {
        let same = |other: &String| other.eq_ignore_ascii_case(name);
        self.models.iter().find(|model| same(&model.name) || model.aliases.iter().any(same))
    }

    /// Names that look like `name`, nearest first, at most three: for messages.
    pub fn near(&self, name: &str) -> Vec<&str> {
        let mut by_distance: Vec<(usize, &str)> =
            self.models.iter().map(|model| (distance(&model.name, name), model.name.as_str())).collect();
        by_distance.sort_unstable();
        let limit = name.chars().count() / 2 + 1;
        by_distance.into_iter().take_while(|(distance, _)| *distance <= limit).map(|(_, name)| name).take(3).collect()
    }
}

/// Lower-case letters, digits, `-`, `_` and `.`, not beginning with a dot: safe as a folder name too.
pub fn is_model_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    (1..=80).contains(&name.len()) && name.chars().all(good) && !name.starts_with('.')
}

fn is_file_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    (1..=200).contains(&name.len()) && name.chars().all(good) && !name.starts_with('.')
}

/// Edits between two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(80).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(80).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_catalog_is_sound() {
        let catalog = Catalog::built_in();
        assert!(catalog.models.iter().filter(|model| model.recommended).count() == 1);
        let smollm = catalog.find("SmolLM2-135m").unwrap();
        assert_eq!(smollm.bytes(), 98_362_432);
        assert!(smollm.files[0].sha256.is_some());
        assert_eq!(catalog.find("gemma3-270m").unwrap().files[0].sources.len(), 4);
        assert!(catalog.find("no such model").is_none());
        assert_eq!(catalog.near("smolm2-135m").first(), Some(&"smollm2-135m"));
        assert!(catalog.near("completely-different-thing-altogether-x").len() <= 3);
    }

    #[test]
    fn mistakes_are_named() {
        let base = BUILT_IN;
        for (from, to) in [
            ("strata-catalog/1.0", "strata-catalog/9.0"),
            ("name = \"smollm2-135m\"", "name = \"../x\""),
            ("name = \"smollm2-135m\"", "name = \"gemma3-270m\""),
            ("licence = ", "license = "),
            ("SmolLM2-135M-Instruct.Q4_1.gguf\"", "../evil.gguf\""),
        ] {
            assert!(base.contains(from), "{from}");
            assert!(Catalog::parse(&base.replacen(from, to, 1), Path::new("m.toml")).is_err(), "{to}");
        }
    }
}
