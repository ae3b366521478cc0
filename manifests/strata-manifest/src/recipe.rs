//! A recipe: which files go into a package, and what each of them is. People write it (TOML), so an
//! unknown field is a mistake and refused. Whatever can be read out of the files themselves
//! (versions, GPU targets, needed libraries) has no field here.

use crate::{BackendKind, FileMode, HostLibrary, ManifestError, PackagePath, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// No recipe comes near this.
const MAX_RECIPE_BYTES: u64 = 1 << 20;

/// `packaging/recipes/NAME.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// `control` or `engine`.
    pub component: String,
    /// Part of the package's name, and of its paths, for a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(default = "linux")]
    pub os: String,
    #[serde(default = "x86_64")]
    pub cpu_arch: String,
    /// Cargo packages that are linked into what is packed: their dependencies are the third-party parts.
    #[serde(default)]
    pub crates: Vec<String>,
    /// Folders of the build folder that are packed whole: a file in one that no line claims stops the build.
    /// `.` is the build folder itself.
    #[serde(default)]
    pub exact: Vec<String>,
    /// What goes in. Each file is claimed by the first line that matches it.
    #[serde(rename = "file")]
    pub files: Vec<RecipeFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<RecipePlugin>,
    /// Libraries that are opened at run time; those that the files name as needed are found by themselves.
    #[serde(default)]
    pub host_libraries: Vec<HostLibrary>,
    /// Parts by others that Cargo does not know.
    #[serde(default, rename = "third_party")]
    pub third_party: Vec<RecipePart>,
    /// File with a licence text, below the source folder, for a part that carries none; by the part's name.
    #[serde(default)]
    pub licence_texts: BTreeMap<String, String>,
}

/// One `[[file]]` line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipeFile {
    /// `build:GLOB` in the folder of built files, `source:GLOB` in the source. `*` does not cross a `/`, `**` does.
    pub from: String,
    /// Path in the package; one that ends in `/` is a folder below which each file keeps the part of its
    /// path that the glob's fixed beginning does not name.
    pub to: String,
    pub role: Role,
    #[serde(default = "plain")]
    pub mode: FileMode,
    /// No file need match.
    #[serde(default)]
    pub optional: bool,
}

/// The plugin in the package: what its descriptor cannot read from the library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipePlugin {
    /// What the library's own table says: `cpu`, `cuda`, `hip-gfx906`.
    pub name: String,
    pub kind: BackendKind,
    /// Path in the package; the descriptor `NAME.plugin.json` is written beside it.
    pub library: PackagePath,
    /// Lowest driver version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_floor: Option<String>,
    /// What the plugin has not been run on, for its descriptor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
}

/// A part that is not a crate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipePart {
    pub name: String,
    pub version: String,
    /// SPDX licence expression.
    pub licence: String,
    /// Files with the licence's text, below the build folder (`build:`) or the source (`source:`).
    pub licence_files: Vec<String>,
    /// Package URL, or the address of its source.
    pub source: String,
}

fn linux() -> String {
    "linux".to_owned()
}

fn x86_64() -> String {
    "x86_64".to_owned()
}

fn plain() -> FileMode {
    FileMode::Plain
}

impl Recipe {
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let unreadable = |source| ManifestError::Unreadable { path: path.to_owned(), source };
        let bytes = fs_err::metadata(path).map_err(unreadable)?.len();
        if bytes > MAX_RECIPE_BYTES {
            return Err(ManifestError::TooLarge { path: path.to_owned(), bytes, limit: MAX_RECIPE_BYTES });
        }
        Self::parse(&fs_err::read_to_string(path).map_err(unreadable)?, path)
    }

    /// Parses a text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ManifestError> {
        let malformed = |why: String| ManifestError::Malformed { path: path.to_owned(), why };
        let recipe: Recipe = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        for file in &recipe.files {
            if !file.from.starts_with("build:") && !file.from.starts_with("source:") {
                return Err(malformed(format!("`{}` starts neither with `build:` nor with `source:`", file.from)));
            }
            let target = file.to.strip_suffix('/').unwrap_or(&file.to);
            target.parse::<PackagePath>().map_err(|error| malformed(error.to_string()))?;
            if file.role == Role::Unknown {
                return Err(malformed(format!("`{}` has a role that does not exist", file.from)));
            }
        }
        Ok(recipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
component = "engine"
backend = "cpu"
crates = ["strata-backend-cpu"]
[[file]]
from = "build:libx.so"
to = "lib/strata/cpu/"
role = "plugin"
mode = "0755"
[plugin]
name = "cpu"
kind = "cpu"
library = "lib/strata/cpu/libx.so"
"#;

    #[test]
    fn a_recipe_is_read_and_a_typing_mistake_refused() {
        let recipe = Recipe::parse(GOOD, Path::new("r.toml")).unwrap();
        assert_eq!((recipe.os.as_str(), recipe.files[0].mode), ("linux", FileMode::Executable));
        for (from, to) in [
            ("crates =", "crate ="),
            ("mode =", "mod ="),
            ("kind = \"cpu\"", "kind = \"cpu\"\ngpu_targets = [\"gfx906\"]"),
            ("build:", "bulid:"),
            ("\"lib/strata/cpu/\"", "\"../cpu/\""),
            ("\"plugin\"\nmode", "\"plugins\"\nmode"),
            ("0755", "4755"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            assert!(Recipe::parse(&text, Path::new("r.toml")).is_err(), "{to}");
        }
    }
}
