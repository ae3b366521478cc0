//! What files promise each other: versions, needed libraries, floors, GPU code, plugins, bills of
//! material. Read out of the files, never by running or loading one.

use super::VerifyOptions;
use super::finding::{Finding, Report};
use super::inventory::{Inventory, Item};
use crate::elf::{self, ElfFacts};
use crate::sbom;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use strata_diag::catalogue::packages::{
    BAD_RUNPATH, BUILD_PATH, DESCRIPTOR_WRONG, ELF_UNREADABLE, ELF_UNSAFE, GPU_TARGETS, KERNEL_FILES_MISSING,
    LIBC_FLOOR, LIBRARY_MISSING, LICENCE_MISSING, MANIFEST_INVALID, PLUGIN_EXPORTS, RECORD_MISSING, SBOM_DIFFERS,
    VERSION_DIFFERS, WRONG_PROCESSOR,
};
use strata_manifest::{BuildRecord, Component, Document, PluginDescriptor, Role, Sha256Digest};

/// The one name that a plugin exports.
const PLUGIN_ENTRY: &str = "strata_backend_entry";
/// Libraries that every host has, and the GPU runtimes that a plugin opens at run time.
const HOSTS: &[&str] = &[
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libamdhip64.so.5",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
];
/// Loaders that the hosts of our packages have.
const LOADERS: &[&str] = &["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

type Elves<'i> = BTreeMap<&'i str, &'i ElfFacts>;

/// All laws that a manifest of ours brings.
pub(super) fn check(inventory: &Inventory, options: &VerifyOptions, report: &mut Report) {
    let Some(manifest) = &inventory.manifest else { return };
    let component = &manifest.component;
    own_record(component, report);
    let elves = elves(inventory, report);
    for (path, facts) in &elves {
        let role = component.file(path).map_or(Role::Unknown, |file| file.role);
        properties(path, facts, role, report);
        processor(path, facts, component, report);
        if matches!(role, Role::Binary | Role::Plugin) {
            record(path, facts, component, report);
        }
        let content = inventory.items.get(*path).and_then(|item| item.content.as_ref());
        match content.and_then(|content| content.build_path.as_ref()) {
            Some(home) if options.build_paths => {
                report.note(format!("`{path}` holds a path of the machine where it was built: `{home}`"));
            }
            Some(home) => {
                let message = "it holds a path of the machine where it was built";
                report.add(Finding::new(BUILD_PATH, Some(path.as_bytes()), message).fact("path in it", home));
            }
            None => {}
        }
    }
    for file in component.files.iter().filter(|file| matches!(file.role, Role::Binary | Role::Plugin)) {
        let item = inventory.items.get(file.path.as_str()).and_then(|item| item.content.as_ref());
        if item.is_some_and(|content| content.elf.is_none()) {
            let message = "it is listed as a program or plugin and is no ELF file, so it carries no build record";
            report.add(Finding::new(RECORD_MISSING, Some(file.path.as_str().as_bytes()), message));
        }
    }
    let declared: BTreeSet<&str> = component.host_libraries.iter().map(|library| library.soname.as_str()).collect();
    needed(inventory, &elves, &declared, report);
    host_list(component, &elves, inventory, report);
    floor(component.libc_floor.as_deref(), "GLIBC_", "glibc", &elves, report);
    floor(component.libstdcxx_floor.as_deref(), "GLIBCXX_", "libstdc++", &elves, report);
    gpu(inventory, component, report);
    kernel_files(inventory, component, report);
    descriptors(inventory, component, &elves, report);
    bills(inventory, component, report);
    for part in component.third_party.iter().filter(|part| part.licence_files.is_empty()) {
        let message = format!("no licence text is named for `{} {}`", part.name, part.version);
        report.add(Finding::new(LICENCE_MISSING, None, message).fact("licence", &part.licence));
    }
}

/// The laws that hold for everybody's files.
pub(super) fn foreign(inventory: &Inventory, report: &mut Report) {
    let elves = elves(inventory, report);
    for (path, facts) in &elves {
        runpath(path, facts, report);
    }
    let hosts: BTreeSet<&str> = HOSTS.iter().copied().collect();
    needed(inventory, &elves, &hosts, report);
}

fn elves<'i>(inventory: &'i Inventory, report: &mut Report) -> Elves<'i> {
    let mut elves = BTreeMap::new();
    for (path, item) in &inventory.items {
        let Some(content) = &item.content else { continue };
        match content.elf.as_deref() {
            Some(Ok(facts)) => {
                elves.insert(path.as_str(), facts);
            }
            Some(Err(why)) => {
                let finding = Finding::new(ELF_UNREADABLE, Some(path.as_bytes()), "its headers cannot be read");
                report.add(finding.fact("because", why));
            }
            None => {}
        }
        for why in content.gpu.iter().flat_map(|gpu| &gpu.unreadable) {
            report.add(Finding::new(
                GPU_TARGETS,
                Some(path.as_bytes()),
                format!("it holds GPU code that cannot be read: {why}"),
            ));
        }
    }
    elves
}

/// The manifest's own record must be the component's, and from the date that its entries have.
fn own_record(component: &Component, report: &mut Report) {
    let build = &component.build;
    let pairs = [
        ("name", build.name.clone(), component.id()),
        ("source date", build.source_epoch.to_string(), component.source_epoch.to_string()),
    ];
    for (what, got, expected) in pairs {
        if got != expected {
            let finding = Finding::new(MANIFEST_INVALID, None, format!("the {what} of its build record is another"));
            report.add(finding.fact("expected", expected).fact("got", got));
        }
    }
}

fn processor(path: &str, facts: &ElfFacts, component: &Component, report: &mut Report) {
    if facts.machine != component.cpu_arch {
        let finding = Finding::new(WRONG_PROCESSOR, Some(path.as_bytes()), "it is for another processor");
        report.add(finding.fact("expected", &component.cpu_arch).fact("got", &facts.machine));
    }
}

fn properties(path: &str, facts: &ElfFacts, role: Role, report: &mut Report) {
    runpath(path, facts, report);
    if let Some(loader) = facts.interpreter.as_deref().filter(|loader| !LOADERS.contains(loader)) {
        let message = format!("it asks for the loader `{loader}`, which hosts do not have");
        report.add(Finding::new(LIBRARY_MISSING, Some(path.as_bytes()), message).fact("loaders", LOADERS.join(" ")));
    }
    let mut unsafe_because = |what: &str| report.add(Finding::new(ELF_UNSAFE, Some(path.as_bytes()), what));
    if facts.executable_stack {
        unsafe_because("its stack may hold code");
    }
    if facts.text_relocations {
        unsafe_because("its code is changed while it is loaded");
    }
    if role == Role::Plugin && facts.static_tls {
        unsafe_because("it takes room in the static thread-local block");
    }
    if role == Role::Plugin && (facts.export_count != 1 || facts.exports != [PLUGIN_ENTRY]) {
        let shown: Vec<&str> = facts.exports.iter().map(String::as_str).take(8).collect();
        let finding = Finding::new(PLUGIN_EXPORTS, Some(path.as_bytes()), "it does not export just its entry");
        report.add(
            finding
                .fact("expected", PLUGIN_ENTRY)
                .fact("got", format!("{} ({})", shown.join(", "), facts.export_count)),
        );
    }
}

fn runpath(path: &str, facts: &ElfFacts, report: &mut Report) {
    for (tag, entry) in
        facts.rpath.iter().map(|entry| ("RPATH", entry)).chain(facts.runpath.iter().map(|entry| ("RUNPATH", entry)))
    {
        if !stays_inside(path, entry) {
            let finding =
                Finding::new(BAD_RUNPATH, Some(path.as_bytes()), format!("its {tag} leads out of the package"));
            report.add(finding.fact("entry", entry));
        }
    }
}

/// `$ORIGIN/../lib` of `bin/x` stays; an absolute folder, an empty entry (the current folder) and
/// more steps up than there are folders do not.
fn stays_inside(path: &str, entry: &str) -> bool {
    let rest = entry.strip_prefix("$ORIGIN").or_else(|| entry.strip_prefix("${ORIGIN}"));
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) else { return false };
    let mut depth = path.matches('/').count() as i64;
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            part if part.contains('$') => return false,
            _ => depth += 1,
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

fn record(path: &str, facts: &ElfFacts, component: &Component, report: &mut Report) {
    let at = Some(path.as_bytes());
    let Some(text) = &facts.record else {
        report.add(Finding::new(RECORD_MISSING, at, "it carries no build record"));
        return;
    };
    let record = match BuildRecord::parse(text, Path::new(path)) {
        Ok(record) => record,
        Err(error) => {
            report.add(Finding::new(RECORD_MISSING, at, "its build record cannot be read").fact("because", error));
            return;
        }
    };
    let build = &component.build;
    let pairs = [
        ("schema", record.schema, build.schema.clone()),
        ("flag of changed files", record.dirty.to_string(), build.dirty.to_string()),
        ("version", record.version.to_string(), component.version.to_string()),
        ("build id", record.build_id, build.build_id.clone()),
        ("commit", record.commit, build.commit.clone()),
        ("target", record.target, build.target.clone()),
        ("toolchain", record.toolchain, build.toolchain.clone()),
        ("source epoch", record.source_epoch.to_string(), build.source_epoch.to_string()),
    ];
    for (what, own, manifest) in pairs {
        if own != manifest {
            let finding =
                Finding::new(VERSION_DIFFERS, at, format!("its record and the manifest differ in the {what}"));
            report.add(finding.fact("build record in the file", own).fact("component.json", manifest));
        }
    }
}

/// Every library that is asked for is in the package under that name, or declared.
fn needed(inventory: &Inventory, elves: &Elves<'_>, declared: &BTreeSet<&str>, report: &mut Report) {
    let names: BTreeSet<&str> =
        inventory.items.keys().map(|path| path.rsplit('/').next().unwrap_or_default()).collect();
    let mut sonames: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, facts) in elves {
        if let Some(soname) = &facts.soname {
            sonames.insert(soname, path);
        }
    }
    for (path, facts) in elves {
        for library in &facts.needed {
            let library = library.as_str();
            if names.contains(library) || declared.contains(library) {
                continue;
            }
            let mut finding =
                Finding::new(LIBRARY_MISSING, Some(path.as_bytes()), format!("it needs `{library}`, which nobody has"));
            if let Some(holder) = sonames.get(library) {
                finding = finding.fact("but", format!("`{holder}` has that SONAME and lies under another name"));
            }
            // `libx.so.6` where `libx.so.7` is.
            let stem = library.split(".so").next().unwrap_or_default();
            let alike = names.iter().chain(declared).find(|name| name.starts_with(&format!("{stem}.so")));
            if let Some(alike) = alike {
                finding = finding.fact("found instead", alike);
            }
            report.add(finding);
        }
    }
}

/// The declared host libraries are just the needed ones, and all of them are libraries that hosts have.
fn host_list(component: &Component, elves: &Elves<'_>, inventory: &Inventory, report: &mut Report) {
    let needed: BTreeSet<&str> = elves.values().flat_map(|facts| facts.needed.iter().map(String::as_str)).collect();
    let packed: BTreeSet<&str> =
        inventory.items.keys().map(|path| path.rsplit('/').next().unwrap_or_default()).collect();
    for library in &component.host_libraries {
        let name = library.soname.as_str();
        if !HOSTS.contains(&name) {
            let message = format!("`{name}` is declared as the host's, and not every host has it");
            report.add(Finding::new(LIBRARY_MISSING, None, message));
        }
        if !library.optional && !needed.contains(name) || packed.contains(name) {
            let message =
                format!("`{name}` is declared as the host's, and no file of the package needs it of the host");
            report.add(Finding::new(LIBRARY_MISSING, None, message));
        }
    }
}

fn floor(declared: Option<&str>, prefix: &str, what: &str, elves: &Elves<'_>, report: &mut Report) {
    for (path, facts) in elves {
        let versions = facts.versions.iter().map(|(_, version)| version.as_str());
        let Some(measured) = elf::floor(versions, prefix) else { continue };
        let higher = declared.and_then(elf::numbers).is_none_or(|declared| elf::numbers(&measured) > Some(declared));
        if higher {
            let message = format!("it needs {prefix}{measured}, more than the {what} that is promised");
            let finding = Finding::new(LIBC_FLOOR, Some(path.as_bytes()), message);
            report
                .add(finding.fact("needs", format!("{prefix}{measured}")).fact("promised", declared.unwrap_or("none")));
        }
    }
    // Somebody may promise less than could be: hosts are turned away that would do, and none is misled.
    let versions = elves.values().flat_map(|facts| &facts.versions).map(|(_, version)| version.as_str());
    let highest = elf::floor(versions, prefix);
    if let Some(declared) = declared
        && elf::numbers(declared) > highest.as_deref().and_then(elf::numbers)
    {
        let needed = highest.map_or("none".to_owned(), |highest| format!("{prefix}{highest}"));
        report.note(format!("{what} {declared} is promised, and the most that a file needs is {needed}"));
    }
}

fn gpu(inventory: &Inventory, component: &Component, report: &mut Report) {
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, item) in &inventory.items {
        for target in item.content.iter().filter_map(|content| content.gpu.as_ref()).flat_map(|gpu| &gpu.targets) {
            found.entry(target).or_insert(path);
        }
    }
    for (target, path) in &found {
        if !component.gpu_targets.iter().any(|declared| declared == target) {
            let message = format!("it holds code for {target}, which is not declared");
            report.add(
                Finding::new(GPU_TARGETS, Some(path.as_bytes()), message)
                    .fact("declared", component.gpu_targets.join(" ")),
            );
        }
    }
    for target in component.gpu_targets.iter().filter(|target| !found.contains_key(target.as_str())) {
        let found: Vec<&str> = found.keys().copied().collect();
        let message = format!("{target} is declared, and no file holds code for it");
        report.add(Finding::new(GPU_TARGETS, None, message).fact("found", found.join(" ")));
    }
}

/// A packed rocBLAS looks for `rocblas/library` beside itself: the lazy index of the target and at least
/// one object, or one `.kpack` of the target.
fn kernel_files(inventory: &Inventory, component: &Component, report: &mut Report) {
    let libraries =
        inventory.items.keys().filter(|path| path.rsplit('/').next().unwrap_or_default().starts_with("librocblas.so"));
    for library in libraries {
        let folder = library.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let folder = format!("{folder}rocblas/library/");
        for target in component.gpu_targets.iter().filter(|target| target.starts_with("gfx")) {
            let base = target.split(':').next().unwrap_or_default();
            let names: Vec<&str> = inventory.items.keys().filter_map(|path| path.strip_prefix(&folder)).collect();
            let of_target = |name: &&&str| mentions(name, base);
            let has =
                |ends: &[&str]| names.iter().filter(of_target).any(|name| ends.iter().any(|end| name.ends_with(end)));
            if has(&[".kpack"]) {
                continue;
            }
            let index = format!("TensileLibrary_lazy_{base}.dat");
            let missing = if !names.contains(&index.as_str()) {
                index
            } else if !has(&[".co", ".hsaco"]) {
                format!("*{base}*.co")
            } else {
                continue;
            };
            let message = format!("it looks for `{folder}{missing}` on {base}, which is not there");
            report.add(Finding::new(KERNEL_FILES_MISSING, Some(library.as_bytes()), message));
        }
    }
}

/// Whether a name holds the target as a word: `gfx90` is not `gfx906`.
fn mentions(name: &str, target: &str) -> bool {
    name.match_indices(target)
        .any(|(at, _)| !name[at + target.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()))
}

fn descriptors(inventory: &Inventory, component: &Component, elves: &Elves<'_>, report: &mut Report) {
    let mut described = BTreeSet::new();
    for (path, item) in inventory.items.iter().filter(|(path, _)| path.ends_with(".plugin.json")) {
        let text = item.content.as_ref().and_then(|content| content.text.as_deref()).unwrap_or_default();
        match PluginDescriptor::parse(text, Path::new(path)) {
            Ok(descriptor) => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let library = format!("{folder}/{}", descriptor.library);
                descriptor_facts(
                    path,
                    &descriptor,
                    inventory.items.get(&library),
                    component,
                    elves.get(library.as_str()),
                    report,
                );
                described.insert(library);
            }
            Err(error) => {
                let finding = Finding::new(DESCRIPTOR_WRONG, Some(path.as_bytes()), "it cannot be read");
                report.add(finding.fact("because", error));
            }
        }
    }
    for file in component.files.iter().filter(|file| file.role == Role::Plugin) {
        if !described.contains(file.path.as_str()) {
            let message = "a plugin without a descriptor";
            report.add(Finding::new(DESCRIPTOR_WRONG, Some(file.path.as_str().as_bytes()), message));
        }
    }
}

fn descriptor_facts(
    path: &str,
    descriptor: &PluginDescriptor,
    library: Option<&Item>,
    component: &Component,
    elf: Option<&&ElfFacts>,
    report: &mut Report,
) {
    let at = Some(path.as_bytes());
    if descriptor.version != component.version {
        let finding = Finding::new(VERSION_DIFFERS, at, "the descriptor and the manifest differ in the version");
        report.add(finding.fact("descriptor", &descriptor.version).fact("component.json", &component.version));
    }
    let content = library.and_then(|item| item.content.as_ref());
    let (sha256, size) = content.map_or((String::from("no such file"), 0), |content| {
        (content.digests.sha256.to_string(), content.digests.size)
    });
    let abi = component.abi.as_ref();
    let abi =
        |field: fn(&strata_manifest::AbiRange) -> &String| abi.map_or("none".to_owned(), |abi| field(abi).clone());
    let targets = if descriptor.kind.is_gpu() { component.gpu_targets.join(" ") } else { component.cpu_arch.clone() };
    let floor = elf.and_then(|facts| elf::floor(facts.versions.iter().map(|(_, version)| version.as_str()), "GLIBC_"));
    let pairs = [
        ("library's digest", descriptor.sha256.to_string(), sha256),
        ("library's size", descriptor.size.to_string(), size.to_string()),
        ("name", descriptor.name.clone(), component.backend.clone().unwrap_or_default()),
        ("lowest ABI", descriptor.abi_lowest.clone(), abi(|abi| &abi.lowest)),
        ("highest ABI", descriptor.abi_highest.clone(), abi(|abi| &abi.highest)),
        ("ABI layout", descriptor.layout_hash.clone(), abi(|abi| &abi.layout_hash)),
        ("targets", descriptor.targets.join(" "), targets),
        ("system", descriptor.os.clone(), component.os.clone()),
        ("processor", descriptor.cpu_arch.clone(), component.cpu_arch.clone()),
        ("glibc floor", descriptor.libc_floor.clone().unwrap_or_default(), floor.unwrap_or_default()),
    ];
    for (what, said, found) in pairs {
        if said != found {
            let finding = Finding::new(DESCRIPTOR_WRONG, at, format!("the descriptor's {what} is not the package's"));
            report.add(finding.fact("descriptor", said).fact("package", found));
        }
    }
}

/// Bills of material are functions of the manifest: made again and compared byte by byte.
fn bills(inventory: &Inventory, component: &Component, report: &mut Report) {
    let mut bare = component.clone();
    bare.sboms.clear();
    bare.files.retain(|file| file.role != Role::Sbom);
    for path in &component.sboms {
        let made = match path.file_name() {
            sbom::CYCLONEDX_FILE => sbom::cyclonedx(&bare),
            sbom::SPDX_FILE => sbom::spdx(&bare),
            _ => {
                report.add(Finding::new(SBOM_DIFFERS, Some(path.as_str().as_bytes()), "it is no bill that is known"));
                continue;
            }
        };
        let content = inventory.items.get(path.as_str()).and_then(|item| item.content.as_ref());
        let expected = Sha256Digest::of_bytes(made.as_bytes());
        if content.is_some_and(|content| content.digests.sha256 != expected) {
            report.add(Finding::new(
                SBOM_DIFFERS,
                Some(path.as_str().as_bytes()),
                "it is not the manifest's bill of material",
            ));
        }
    }
    for file in component.files.iter().filter(|file| file.role == Role::Sbom) {
        if !component.sboms.contains(&file.path) {
            report.add(Finding::new(
                SBOM_DIFFERS,
                Some(file.path.as_str().as_bytes()),
                "it is not among the manifest's bills",
            ));
        }
    }
    if component.sboms.len() != 2 {
        let finding = Finding::new(SBOM_DIFFERS, None, "a package has two bills of material");
        report.add(finding.fact("got", component.sboms.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_paths_stay_inside() {
        for (path, entry, inside) in [
            ("lib/a.so", "$ORIGIN", true),
            ("lib/a.so", "${ORIGIN}/x", true),
            ("bin/a", "$ORIGIN/../lib", true),
            ("bin/a", "$ORIGIN/../../lib", false),
            ("a.so", "$ORIGIN/..", false),
            ("a.so", "", false),
            ("a.so", "/opt/rocm/lib", false),
            ("a.so", "$ORIGINAL", false),
            ("a.so", "lib", false),
            ("lib/a.so", "$ORIGIN/$LIB", false),
        ] {
            assert_eq!(stays_inside(path, entry), inside, "{path} {entry}");
        }
    }

    #[test]
    fn a_target_is_a_whole_word() {
        assert!(mentions("TensileLibrary_gfx906.co", "gfx906"));
        assert!(mentions("Kernels.so-000-gfx906-xnack-.hsaco", "gfx906"));
        assert!(!mentions("x_gfx90a.co", "gfx90") && !mentions("x_gfx906.co", "gfx90"));
    }
}
