//! From a recipe to the list of files to pack: what each line claims, and what nothing claims.
//!
//! Nothing is copied: the list names the files where they are, and the archive writer fails when one
//! has changed since it was described. A file that no line claims stops the build where the recipe
//! says that a folder is packed whole; unbundled code objects beside built files stop it anywhere.

use crate::PackageError;
use crate::stray::looks_like;
use globset::{GlobBuilder, GlobMatcher};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use strata_manifest::{FileMode, PackagePath, Recipe, RecipeFile, Role};

/// Most entries that are looked at while globs are matched.
const MAX_ENTRIES: usize = 1_000_000;
/// How many unclaimed files a message names.
const NAMED: usize = 5;

/// Where a recipe's files lie.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    /// What `build:` stands for: the folder of built files.
    pub build: &'a Path,
    /// What `source:` stands for: the root of the source.
    pub source: &'a Path,
}

/// One file to pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    pub path: PackagePath,
    pub content: Content,
    pub mode: FileMode,
    pub role: Role,
}

/// Where a file's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// The files that a recipe's lines claim, sorted by path. `recipe_path` is for messages; with
/// `exact` the whole build folder counts as packed whole.
pub fn collect(
    recipe: &Recipe,
    recipe_path: &Path,
    folders: Folders<'_>,
    exact: bool,
) -> Result<Vec<Staged>, PackageError> {
    let wrong = |why: String| PackageError::Recipe { recipe: recipe_path.to_owned(), why };
    let mut staged: BTreeMap<String, Staged> = BTreeMap::new();
    let mut claimed: BTreeSet<PathBuf> = BTreeSet::new();
    for line in &recipe.files {
        let (root, glob) = match line.from.split_once(':') {
            Some(("build", glob)) => (folders.build, glob),
            Some(("source", glob)) => (folders.source, glob),
            _ => return Err(wrong(format!("`{}` starts neither with `build:` nor with `source:`", line.from))),
        };
        let pattern = Pattern::new(glob).map_err(&wrong)?;
        let found = pattern.matches(root)?;
        if found.is_empty() && !line.optional {
            let (recipe, from) = (recipe_path.display().to_string(), line.from.clone());
            return Err(PackageError::Missing { recipe, from, folder: root.to_owned() });
        }
        for relative in found {
            let source = root.join(&relative);
            // The first line that matches a file claims it.
            if !claimed.insert(source.clone()) {
                continue;
            }
            let path = target(line, &pattern, &relative).map_err(&wrong)?;
            let file = Staged { path, content: Content::File(source), mode: line.mode, role: line.role };
            if let Some(other) = staged.insert(file.path.as_str().to_owned(), file) {
                return Err(wrong(format!("two files would become `{}`", other.path)));
            }
        }
    }
    let mut wholes: Vec<PathBuf> = recipe.exact.iter().map(|folder| folders.build.join(folder)).collect();
    if exact {
        wholes.push(folders.build.to_owned());
    }
    check_unclaimed(recipe_path, folders.build, &wholes, &claimed)?;
    Ok(staged.into_values().collect())
}

fn target(line: &RecipeFile, pattern: &Pattern, relative: &str) -> Result<PackagePath, String> {
    let text = match line.to.strip_suffix('/') {
        Some(folder) => format!("{folder}/{}", relative.strip_prefix(&pattern.fixed).unwrap_or(relative)),
        None => line.to.clone(),
    };
    text.parse().map_err(|error: strata_manifest::BadPath| error.to_string())
}

/// A glob, split into the folders that it names and the part that varies.
struct Pattern {
    glob: String,
    /// Ends in `/`, or is empty.
    fixed: String,
    matcher: GlobMatcher,
}

impl Pattern {
    fn new(glob: &str) -> Result<Self, String> {
        let safe = !glob.is_empty() && !glob.starts_with('/') && !glob.split('/').any(|part| part == "..");
        if !safe {
            return Err(format!("`{glob}` leads out of its folder"));
        }
        let matcher = GlobBuilder::new(glob).literal_separator(true).build().map_err(|error| error.to_string())?;
        let varies = glob.find(['*', '?', '[', '{']).unwrap_or(glob.len());
        let fixed = glob[..varies].rfind('/').map_or(0, |slash| slash + 1);
        Ok(Pattern { glob: glob.to_owned(), fixed: glob[..fixed].to_owned(), matcher: matcher.compile_matcher() })
    }

    /// Files below `root` that match, relative to it, sorted.
    fn matches(&self, root: &Path) -> Result<Vec<String>, PackageError> {
        if !self.glob.contains(['*', '?', '[', '{']) {
            return Ok(if root.join(&self.glob).is_file() { vec![self.glob.clone()] } else { Vec::new() });
        }
        let depth =
            if self.glob.contains("**") { usize::MAX } else { self.glob[self.fixed.len()..].split('/').count() };
        let start = root.join(&self.fixed);
        let mut found = Vec::new();
        if start.is_dir() {
            for (path, kind) in walk(&start, depth)? {
                let relative = format!("{}{path}", self.fixed);
                if kind == Kind::File && self.matcher.is_match(&relative) {
                    found.push(relative);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An ordinary file, or a link to one.
    File,
    EmptyFolder,
    Other,
}

/// Everything below a folder, by relative path with `/`; folders that hold something are not listed themselves.
fn walk(start: &Path, depth: usize) -> Result<Vec<(String, Kind)>, PackageError> {
    let mut found = Vec::new();
    let mut pending = vec![(start.to_owned(), String::new(), depth)];
    while let Some((folder, prefix, depth)) = pending.pop() {
        let mut empty = true;
        for entry in fs_err::read_dir(&folder).map_err(PackageError::unreadable(&folder))? {
            let entry = entry.map_err(PackageError::unreadable(&folder))?;
            empty = false;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(PackageError::unreadable(entry.path()))?;
            if kind.is_dir() {
                if depth > 1 {
                    pending.push((entry.path(), format!("{name}/"), depth - 1));
                }
            } else {
                found.push((name, if entry.path().is_file() { Kind::File } else { Kind::Other }));
            }
            if found.len() > MAX_ENTRIES {
                let why = std::io::Error::other(format!("it holds more than {MAX_ENTRIES} files"));
                return Err(PackageError::Unreadable { path: start.to_owned(), source: why });
            }
        }
        if empty && !prefix.is_empty() {
            found.push((prefix, Kind::EmptyFolder));
        }
    }
    Ok(found)
}

fn check_unclaimed(
    recipe: &Path,
    build: &Path,
    wholes: &[PathBuf],
    claimed: &BTreeSet<PathBuf>,
) -> Result<(), PackageError> {
    let mut unclaimed: BTreeSet<PathBuf> = BTreeSet::new();
    for whole in wholes.iter().filter(|whole| whole.is_dir()) {
        let found = walk(whole, usize::MAX)?.into_iter().map(|(path, _)| whole.join(path));
        unclaimed.extend(found.filter(|path| !claimed.contains(path)));
    }
    // Beside built files: only what is known by its name, since a build folder holds much else.
    let beside: BTreeSet<&Path> =
        claimed.iter().filter(|path| path.starts_with(build)).filter_map(|path| path.parent()).collect();
    for folder in beside {
        for (name, kind) in walk(folder, 1)? {
            let path = folder.join(&name);
            if kind == Kind::File && looks_like(&name).is_some() && !claimed.contains(&path) {
                unclaimed.insert(path);
            }
        }
    }
    if unclaimed.is_empty() {
        return Ok(());
    }
    let size =
        |path: &Path| path.symlink_metadata().map_or(0, |metadata| if metadata.is_dir() { 0 } else { metadata.len() });
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let objects: Vec<&PathBuf> = unclaimed.iter().filter(|path| looks_like(&name(path)).is_some()).collect();
    let shown = |path: &PathBuf| {
        let relative = path.strip_prefix(build).unwrap_or(path).to_string_lossy().into_owned();
        (relative, looks_like(&name(path)))
    };
    Err(PackageError::Unclaimed {
        recipe: recipe.display().to_string(),
        folder: build.to_owned(),
        count: unclaimed.len(),
        bytes: unclaimed.iter().map(|path| size(path)).sum(),
        first: unclaimed.iter().take(NAMED).map(shown).collect(),
        code_objects: (objects.len(), objects.iter().map(|path| size(path)).sum()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_diag::Diagnose;

    fn lay(root: &Path, names: &[&str]) {
        for name in names {
            fs_err::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs_err::write(root.join(name), name).unwrap();
        }
    }

    fn recipe(lines: &str) -> Recipe {
        Recipe::parse(&format!("component = \"engine\"\nbackend = \"x\"\n{lines}"), Path::new("x.toml")).unwrap()
    }

    fn line(from: &str, to: &str) -> String {
        format!("[[file]]\nfrom = \"{from}\"\nto = \"{to}\"\nrole = \"data\"\n")
    }

    fn paths(root: &Path, recipe: &Recipe, exact: bool) -> Result<Vec<String>, PackageError> {
        let folders = Folders { build: root, source: root };
        collect(recipe, Path::new("x.toml"), folders, exact)
            .map(|all| all.iter().map(|file| file.path.to_string()).collect())
    }

    #[test]
    fn globs_claim_what_they_say_and_keep_the_varying_part() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        lay(root, &["lib/a.so", "lib/b.so", "lib/deep/c.so", "lib/deep/er/d.so", "top", "lib/n.txt"]);
        let claims = |from: &str, to: &str| paths(root, &recipe(&line(from, to)), false).unwrap();
        assert_eq!(claims("build:lib/*.so", "x/"), ["x/a.so", "x/b.so"]);
        assert_eq!(claims("build:lib/**/*.so", "x/"), ["x/a.so", "x/b.so", "x/deep/c.so", "x/deep/er/d.so"]);
        assert_eq!(claims("build:lib/deep/**", "x/"), ["x/c.so", "x/er/d.so"]);
        assert_eq!(claims("source:top", "bin/strata"), ["bin/strata"]);
        // The first line that matches a file claims it.
        let two = recipe(&(line("build:lib/a.so", "first/") + &line("build:lib/*.so", "x/")));
        assert_eq!(paths(root, &two, false).unwrap(), ["first/a.so", "x/b.so"]);
        let error = paths(root, &recipe(&line("build:absent*", "x/")), false).unwrap_err();
        assert_eq!(error.code().id, "S0562");
        let same = recipe(&(line("build:lib/a.so", "x/y") + &line("build:lib/b.so", "x/y")));
        assert_eq!(paths(root, &same, false).unwrap_err().code().id, "S0560");
        for bad in ["build:../x", "build:/etc/passwd", "build:"] {
            assert!(paths(root, &recipe(&line(bad, "x/")), false).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_nothing_claims_stops_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        lay(root, &["hip/k.so", "hip/.hidden", "other"]);
        fs_err::create_dir_all(root.join("hip/empty")).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.join("hip/link")).unwrap();
        let lines = line("build:hip/k.so", "lib/");
        assert_eq!(paths(root, &recipe(&lines), false).unwrap(), ["lib/k.so"]);
        let error = paths(root, &recipe(&format!("exact = [\"hip\"]\n{lines}")), false).unwrap_err();
        let PackageError::Unclaimed { count, first, .. } = &error else { panic!("{error}") };
        assert_eq!((*count, first[0].0.as_str()), (3, "hip/.hidden"), "{error:?}");
        let error = paths(root, &recipe(&lines), true).unwrap_err();
        let PackageError::Unclaimed { count, .. } = error else { panic!("{error}") };
        assert_eq!(count, 4);
    }

    /// The reported package: 1,080 unbundled code objects beside what the manifest listed.
    #[test]
    fn unbundled_code_objects_beside_built_files_stop_it_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        lay(root, &["strata", "deps/x"]);
        for i in 0..1080 {
            let arch = ["gfx1100", "gfx1101", "gfx1102"][i % 3];
            fs_err::write(root.join(format!("strata.{i}.hipv4-amdgcn-amd-amdhsa--{arch}")), [0; 100]).unwrap();
        }
        let error = paths(root, &recipe(&line("build:strata", "bin/strata")), false).unwrap_err();
        assert_eq!(error.code().id, "S0561");
        let text = strata_diag::Diagnostic::of(&error).to_text();
        for part in [
            "1080 files (108000 bytes)",
            "looks like an unbundled code object",
            "1080 files, 108000 bytes",
            "--save-temps",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
