//! Arrows: each crate depends on just the crates that its paragraph in docs/ARCHITECTURE.md lists
//! (`Depends on:`), rooms point one way, and no chain is longer than six crates.

use crate::workspace::root;
use anyhow::Context;
use cargo_metadata::{DependencyKind, Metadata};
use std::collections::{BTreeMap, BTreeSet};

/// Rooms in the order in which arrows may point: a room may use itself and those before it.
/// `backends` and `engine-core` meet only in the ABI crate.
const ROOMS: &[(&str, &[&str])] = &[
    ("manifests", &["manifests"]),
    ("packaging", &["packaging", "manifests"]),
    ("installer", &["installer", "packaging", "manifests"]),
    ("engine-core", &["engine-core", "packaging", "manifests"]),
    ("backends", &["backends"]),
    ("scripts", &["manifests", "packaging", "installer", "engine-core"]),
];
/// Edges between rooms that the table above would forbid.
const ROOM_EXCEPTIONS: &[(&str, &str)] = &[
    ("strata-backend-sdk", "strata-backend-abi"),
    ("strata-backend-cpu", "strata-backend-abi"),
    ("strata-backend-cpu", "strata-build-record"),
    ("strata-backend-cuda", "strata-backend-abi"),
    ("strata-gpu", "strata-backend-abi"),
    // Whether kernels can be compiled here is one question with one answer.
    ("xtask", "strata-kernel-build"),
    ("strata-backend-cuda", "strata-build-record"),
    ("strata-hip", "strata-backend-abi"),
    ("strata-backend-hip-gfx906", "strata-build-record"),
    ("strata-backend-hip-rx7900", "strata-build-record"),
    // One detector for setup, doctor and the run-time choice.
    ("strata", "strata-probe"),
];
/// Crates in the longest chain: strata → engine → plugin-host → manifest → diag, and xtask's own step.
const LONGEST_CHAIN: usize = 6;

pub(super) fn violations(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let graph = graph(metadata);
    let documented = documented()?;
    let mut found = Vec::new();
    for (name, (room, dependencies)) in &graph {
        let allowed = ROOMS.iter().find(|(from, _)| from == room).map_or(&[][..], |(_, to)| *to);
        for dependency in dependencies {
            let to = &graph[dependency].0;
            let excepted = ROOM_EXCEPTIONS.contains(&(name.as_str(), dependency.as_str()));
            if !excepted && !allowed.contains(&to.as_str()) {
                found.push(format!("{name} ({room}) must not depend on {dependency} ({to})"));
            }
        }
        match documented.get(name) {
            None => found.push(format!("docs/ARCHITECTURE.md has no heading `### {name}`")),
            Some(listed) if listed != dependencies => found.push(format!(
                "docs/ARCHITECTURE.md says that {name} depends on [{}], Cargo says [{}]",
                join(listed),
                join(dependencies)
            )),
            Some(_) => {}
        }
        let chain = longest_chain(&graph, name);
        if chain > LONGEST_CHAIN {
            found.push(format!("the chain of crates below {name} is {chain} long, {LONGEST_CHAIN} is the most"));
        }
    }
    found.extend(
        documented
            .keys()
            .filter(|name| !graph.contains_key(*name))
            .map(|name| format!("docs/ARCHITECTURE.md describes {name}, which does not exist")),
    );
    Ok(found)
}

type Graph = BTreeMap<String, (String, BTreeSet<String>)>;

/// Package → its room and the workspace crates it depends on (not for tests only).
fn graph(metadata: &Metadata) -> Graph {
    let names: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let rooms = metadata.packages.iter().map(|package| {
        let manifest = package.manifest_path.strip_prefix(&metadata.workspace_root).unwrap_or(&package.manifest_path);
        let room = manifest.components().next().map(|part| part.to_string()).unwrap_or_default();
        let dependencies = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .filter(|dependency| names.contains(dependency.name.as_str()))
            .map(|dependency| dependency.name.clone())
            .collect();
        (package.name.to_string(), (room, dependencies))
    });
    rooms.collect()
}

/// Crate → dependencies, from `### crate` headings and their `Depends on:` lines.
fn documented() -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let text = fs_err::read_to_string(root().join("docs/ARCHITECTURE.md")).context("docs/ARCHITECTURE.md")?;
    let mut crates = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            current = Some(name.trim().to_owned());
            crates.insert(name.trim().to_owned(), BTreeSet::new());
        } else if let (Some(name), Some(list)) = (&current, line.strip_prefix("Depends on:")) {
            let names =
                list.split(',').map(|part| part.trim().trim_matches(['`', '.'])).filter(|part| *part != "nothing");
            crates.insert(name.clone(), names.map(str::to_owned).collect());
        }
    }
    Ok(crates)
}

fn longest_chain(graph: &Graph, name: &str) -> usize {
    1 + graph[name].1.iter().map(|dependency| longest_chain(graph, dependency)).max().unwrap_or(0)
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
