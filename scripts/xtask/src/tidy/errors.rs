//! The error catalogue: ids are unique and ascending, every code has a page that opens with its
//! id and title, and every code is named in at least one test or is waiting for its issue.

use super::files::Source;
use crate::workspace::root;
use std::collections::BTreeSet;
use strata_diag::catalogue;

pub(super) fn violations(sources: &[Source]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    let mut names = BTreeSet::new();
    for code in catalogue::all() {
        if !ids.insert(code.id) || !names.insert(code.name) {
            found.push(format!("{} or `{}` stands twice in the catalogue", code.id, code.name));
        }
        let page = root().join(format!("docs/errors/{}.md", code.id));
        let expected = format!("# {}: {}\n", code.id, code.title);
        match fs_err::read_to_string(&page) {
            Ok(text) if text.starts_with(&expected) => {}
            Ok(_) => found.push(format!("docs/errors/{}.md does not open with `{}`", code.id, expected.trim_end())),
            Err(_) => found.push(format!("docs/errors/{}.md is missing", code.id)),
        }
        if !sources.iter().any(|source| is_tested(source, code.id, code.name)) {
            found.push(format!("{} (`{}`) is in no test", code.id, code.name));
        }
    }
    for entry in fs_err::read_dir(root().join("docs/errors"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let stem = name.trim_end_matches(".md");
        if name != "README.md" && !ids.contains(stem) {
            found.push(format!("docs/errors/{name} is the page of no code"));
        }
    }
    Ok(found)
}

/// Whether test code names the code: by id, by its constant or by its name.
fn is_tested(source: &Source, id: &str, name: &str) -> bool {
    let constant = name.replace('-', "_").to_uppercase();
    let tests =
        if source.path.contains("/tests/") || source.path.ends_with("_tests.rs") || source.path.ends_with("tests.rs") {
            source.text.as_str()
        } else {
            &source.text[source.without_tests().len()..]
        };
    [id, name, &constant].iter().any(|word| tests.contains(*word))
}
