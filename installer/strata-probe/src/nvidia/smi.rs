//! nvidia-smi in a child process, wherever it lies (WSL keeps it outside PATH). A row of its answer counts only
//! when every field is what it should be.

use super::{Asked, Memory, Row, Trouble, slice_memory};
use crate::tool::{self, Answer};
use crate::{Root, Sources};
use std::path::PathBuf;
use std::time::Duration;
use strata_manifest::facts::MigFacts;

/// Columns that are asked for.
const COLUMNS: [&str; 8] =
    ["index", "uuid", "name", "memory.total", "memory.free", "compute_cap", "pci.bus_id", "driver_version"];
/// Where it may lie beside PATH.
const FOLDERS: [&str; 4] = ["usr/bin", "usr/local/bin", "usr/lib/wsl/lib", "opt/nvidia/bin"];

/// Asks for every card.
pub(super) fn ask(root: &Root, limit: Duration, sources: &mut Sources) -> Asked {
    let Some(program) = find(root) else {
        sources.gave("nvidia-smi", "not found");
        return Asked { rows: Vec::new(), trouble: Some(Trouble::absent("nvidia-smi is not installed")) };
    };
    let name = program.display().to_string();
    let query = format!("--query-gpu={}", COLUMNS.join(","));
    let (mut rows, trouble) = match tool::ask(&program, &[&query, "--format=csv,noheader,nounits"], limit) {
        Ok(answer) => rows(&answer, sources, &name),
        Err(why) => {
            sources.failed(&name, why.clone());
            (Vec::new(), Some(format!("nvidia-smi: {why}")))
        }
    };
    if !rows.is_empty()
        && let Ok(list) = tool::ask(&program, &["-L"], limit)
    {
        add_slices(&mut rows, &list.out);
    }
    Asked { rows, trouble: trouble.map(Trouble::words) }
}

fn find(root: &Root) -> Option<PathBuf> {
    let of_path = root.variable("PATH").unwrap_or_default().split(':').filter(|folder| folder.starts_with('/'));
    // A PATH of the machine itself means its folders below the root; one that leads there already is taken as it is.
    let below = |folder: &str| {
        let path = PathBuf::from(folder);
        if path.starts_with(root.path()) { path } else { root.below(folder) }
    };
    let folders = of_path.map(below).chain(FOLDERS.iter().map(|folder| root.below(folder)));
    folders.map(|folder| folder.join("nvidia-smi")).find(|program| program.is_file())
}

/// Reads rows; what cannot be read is said, and a tool that gives no row at all has failed.
fn rows(answer: &Answer, sources: &mut Sources, name: &str) -> (Vec<Row>, Option<String>) {
    let mut rows = Vec::new();
    for line in answer.out.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match row(line, &COLUMNS) {
            Ok(row) => rows.push(row),
            Err(why) => sources
                .failed(name, format!("a line was left aside ({why}): {}", line.chars().take(120).collect::<String>())),
        }
    }
    if rows.is_empty() {
        let words = format!("{} {}", answer.out.trim(), answer.err.trim());
        let words: String = words.trim().chars().take(200).collect();
        let why = match answer.status {
            Some(0) if words.is_empty() => "it ended well and said nothing".to_owned(),
            Some(0) => format!("it gave no row that can be read: {words}"),
            Some(status) => format!("it ended with status {status}: {words}"),
            None => "it was ended by a signal".to_owned(),
        };
        sources.failed(name, why.clone());
        return (rows, Some(format!("nvidia-smi: {why}")));
    }
    sources.gave(name, format!("{} GPUs", rows.len()));
    (rows, None)
}

/// One line against the columns that were asked for. A field that is not what its column holds refuses the row.
fn row(line: &str, columns: &[&str]) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != columns.len() {
        return Err(format!("{} fields, {} were asked for", fields.len(), columns.len()));
    }
    let field = |name: &str| columns.iter().position(|column| *column == name).map(|at| fields[at]);
    let marker = |text: &str| text.starts_with('[') && text.ends_with(']');
    let number = |name: &str| match field(name) {
        None => Ok(None),
        Some(text) if marker(text) => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name} is `{text}`")),
    };
    let memory = match field("memory.total") {
        Some("[N/A]" | "[Not Supported]") => Memory::Shared,
        Some(text) if marker(text) => Memory::Unknown,
        _ => number("memory.total")?.map_or(Memory::Unknown, |mib| Memory::Bytes(mib.saturating_mul(1 << 20))),
    };
    let used = match (memory, number("memory.free")?) {
        (Memory::Bytes(total), Some(free)) => Some(total.saturating_sub(free.saturating_mul(1 << 20))),
        _ => None,
    };
    let capability = match field("compute_cap") {
        Some(text) if !marker(text) => {
            let (major, minor) = text.split_once('.').ok_or_else(|| format!("compute_cap is `{text}`"))?;
            let digits = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit());
            if !digits(major) || !digits(minor) {
                return Err(format!("compute_cap is `{text}`"));
            }
            Some(format!("{major}{minor}"))
        }
        _ => None,
    };
    let uuid = field("uuid").filter(|text| !marker(text)).map(str::to_owned);
    if uuid.as_ref().is_some_and(|uuid| !uuid.starts_with("GPU-")) {
        return Err(format!("uuid is `{}`", uuid.unwrap_or_default()));
    }
    if field("index").is_some_and(|text| text.parse::<u32>().is_err()) {
        return Err(format!("index is `{}`", field("index").unwrap_or_default()));
    }
    let name = field("name").unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let bus = field("pci.bus_id").filter(|text| !marker(text)).map(address).transpose()?;
    let driver = field("driver_version").filter(|text| !marker(text)).map(str::to_owned);
    Ok(Row { source: "nvidia-smi", uuid, name, memory, used, capability, bus, driver, ..Row::default() })
}

/// `00000000:01:00.0` as sysfs writes it.
fn address(text: &str) -> Result<String, String> {
    super::address(text).ok_or_else(|| format!("pci.bus_id is `{text}`"))
}

/// Slices of divided cards, out of `nvidia-smi -L`.
fn add_slices(rows: &mut [Row], list: &str) {
    let uuid = |line: &str| Some(line.split_once("UUID: ")?.1.trim_end_matches(')').trim().to_owned());
    let mut card: Option<usize> = None;
    for line in list.lines() {
        let text = line.trim();
        if text.starts_with("GPU ") {
            card = uuid(text).and_then(|uuid| rows.iter().position(|row| row.uuid.as_ref() == Some(&uuid)));
        } else if let (Some(rest), Some(card), Some(uuid)) = (text.strip_prefix("MIG "), card, uuid(text)) {
            let profile = rest.split_whitespace().next().unwrap_or_default().to_owned();
            rows[card].mig.push(MigFacts { memory: slice_memory(&profile), uuid, profile, visible: true });
        }
    }
}
