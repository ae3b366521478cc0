//! NVML through a child process: a program of ours opens the driver's library there and writes one line. What a
//! hanging or crashing driver does, it does to that child.

use super::{Asked, Memory, Row, Trouble, address, slice_memory};
use crate::{Options, Root, Sources};
use serde_json::Value;
use std::process::Command;
use strata_child::{Ending, Limits, NVML_LINE};
use strata_manifest::facts::MigFacts;

/// Numbers of NVML's that say which state a card is in.
pub(super) const NO_PERMISSION: i64 = 4;
pub(super) const LOST: i64 = 15;
pub(super) const MISMATCH: i64 = 18;
/// Memory of a card that has none of its own.
const NOT_SUPPORTED: i64 = 3;

const MAX_OUTPUT: usize = 256 << 10;
const MAX_DEVICES: usize = 256;
const MAX_SLICES: usize = 64;
/// A text of a driver is cut here.
const MAX_TEXT: usize = 200;

/// Asks about the cards at these addresses, or about all when there are none.
pub(super) fn ask(root: &Root, options: &Options, any_sign: bool, only: &[&str], sources: &mut Sources) -> Asked {
    let Some(helper) = &options.nvml else {
        let why = if root.is_live() {
            "not asked: the program that asks it is not here"
        } else {
            "not asked: these are files of another machine"
        };
        sources.gave("NVML", why);
        return Asked::default();
    };
    if !any_sign {
        sources.gave("NVML", "not asked: no NVIDIA card is on the bus and no driver is loaded");
        return Asked::default();
    }
    let mut command = Command::new(&helper.program);
    command.args(&helper.args).args(only).env("LC_ALL", "C");
    let limits = Limits { time: options.tool, output: MAX_OUTPUT };
    let asked = match strata_child::run(&mut command, limits) {
        Err(error) => Err(Trouble::words(format!("NVML's child cannot be started: {error}"))),
        Ok(ended) => {
            let line = String::from_utf8_lossy(&ended.out)
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line.split_once(NVML_LINE)?.1).ok())
                .next_back();
            match (line, ended.status) {
                (_, None) => Err(Trouble::words(format!("NVML did not answer within {} s", options.tool.as_secs()))),
                (Some(line), Some(_)) => read(&line),
                (None, Some(status)) => {
                    let (Ending::Own(how) | Ending::Outside(how)) = Ending::of(status);
                    Err(Trouble::words(format!("NVML gave no answer: {how}")))
                }
            }
        }
    };
    match asked {
        Ok(rows) => {
            sources.gave("NVML", format!("{} GPUs", rows.len()));
            Asked { rows, trouble: None }
        }
        Err(trouble) => {
            if trouble.absent {
                sources.gave("NVML", trouble.text.clone());
            } else {
                sources.failed("NVML", trouble.text.clone());
            }
            Asked { rows: Vec::new(), trouble: Some(trouble) }
        }
    }
}

fn read(line: &Value) -> Result<Vec<Row>, Trouble> {
    if let Some(failed) = line.get("failed") {
        return Err(trouble(failed, "NVML: "));
    }
    let driver = text(&line["driver"]);
    let devices = line["devices"].as_array().ok_or_else(|| Trouble::words("NVML's answer cannot be read"))?;
    let rows: Vec<Row> = devices.iter().take(MAX_DEVICES).filter_map(|device| row(device, driver.as_deref())).collect();
    if rows.is_empty() { Err(Trouble::words("NVML lists no card")) } else { Ok(rows) }
}

fn trouble(failed: &Value, prefix: &str) -> Trouble {
    let words = text(&failed["text"]).unwrap_or_else(|| "it gives no reason".to_owned());
    Trouble {
        code: failed["code"].as_i64(),
        absent: failed["absent"].as_bool() == Some(true),
        text: format!("{prefix}{words}"),
    }
}

fn text(value: &Value) -> Option<String> {
    let plain = |c: &char| !c.is_control();
    value
        .as_str()
        .map(|text| text.chars().filter(plain).take(MAX_TEXT).collect())
        .filter(|text: &String| !text.is_empty())
}

fn row(device: &Value, driver: Option<&str>) -> Option<Row> {
    let uuid = text(&device["uuid"]).filter(|uuid| uuid.starts_with("GPU-"));
    let bus = device["pci"].as_str().and_then(address);
    // A card without any identity cannot be told from another one.
    if uuid.is_none() && bus.is_none() {
        return None;
    }
    let total = device["memory"]["total"].as_u64();
    let memory = match (total, device["memory"]["code"].as_i64()) {
        (Some(total), _) => Memory::Bytes(total),
        (None, Some(NOT_SUPPORTED)) => Memory::Shared,
        _ => Memory::Unknown,
    };
    let capability = device["capability"].as_array().and_then(|pair| {
        let [major, minor] = pair.as_slice() else { return None };
        let (major, minor) = (major.as_u64()?, minor.as_u64()?);
        (major < 100 && minor < 10).then(|| format!("{major}{minor}"))
    });
    let slices = device["mig"].as_array().into_iter().flatten().take(MAX_SLICES).filter_map(slice);
    Some(Row {
        source: "NVML",
        uuid,
        name: text(&device["name"]).unwrap_or_else(|| "NVIDIA GPU".to_owned()),
        memory,
        used: total.zip(device["memory"]["free"].as_u64()).map(|(total, free)| total.saturating_sub(free)),
        capability,
        bus,
        driver: driver.map(str::to_owned),
        display: device["display"].as_bool(),
        mig: slices.collect(),
        trouble: device.get("failed").map(|failed| trouble(failed, "")),
    })
}

/// A slice's name ends with its profile: `NVIDIA H100 80GB HBM3 MIG 3g.40gb`.
fn slice(slice: &Value) -> Option<MigFacts> {
    let uuid = text(&slice["uuid"]).filter(|uuid| uuid.starts_with("MIG-"))?;
    let name = text(&slice["name"]).unwrap_or_default();
    let profile = name.rsplit_once("MIG ").map_or("", |(_, profile)| profile).to_owned();
    let memory = slice["memory"]["total"].as_u64().or_else(|| slice_memory(&profile));
    Some(MigFacts { uuid, profile, memory, visible: true })
}
