//! A code object as a loader sees it: for which target it is, and of each kernel the arguments, the
//! shared memory and the wave width that its notes tell.

use object::{Object, ObjectSection};

use crate::message_pack::{self, Value};

/// `EM_AMDGPU`.
const MACHINE: u16 = 224;
/// `NT_AMDGPU_METADATA`.
const METADATA: u32 = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// Offset and bytes of every argument that the caller gives.
    pub(crate) arguments: Vec<(usize, usize)>,
    /// Bytes of shared memory that the kernel declares.
    pub(crate) shared: u32,
    pub(crate) most_items: u32,
    pub(crate) wave: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeObject {
    /// `gfx906` or `gfx906:xnack-`.
    pub(crate) target: String,
    pub(crate) kernels: Vec<Kernel>,
}

/// Bytes of a whole ELF file whose first 64 bytes these are: up to the end of its section headers, which
/// linkers put last.
pub(crate) fn length(header: &[u8; 64]) -> Option<usize> {
    if header[..6] != *b"\x7fELF\x02\x01" || u16::from_le_bytes([header[18], header[19]]) != MACHINE {
        return None;
    }
    let at = |from: usize, n: usize| {
        header[from..from + n].iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte))
    };
    let sections = at(40, 8).checked_add(at(58, 2) * at(60, 2))?;
    usize::try_from(sections).ok().filter(|length| (64..1 << 30).contains(length))
}

impl CodeObject {
    pub(crate) fn read(bytes: &[u8]) -> Option<CodeObject> {
        let file = object::File::parse(bytes).ok()?;
        let notes = file.sections().find(|section| section.name() == Ok(".note"))?;
        let metadata = message_pack::read(metadata(notes.data().ok()?)?)?;
        let target = metadata.get("amdhsa.target")?.text()?.strip_prefix("amdgcn-amd-amdhsa--")?.to_owned();
        let kernels = metadata.get("amdhsa.kernels")?.list().iter().map(kernel).collect::<Option<Vec<Kernel>>>()?;
        Some(CodeObject { target, kernels })
    }

    /// Whether a card takes it: the same processor, and every feature that it names set so.
    pub(crate) fn fits(&self, card: &str) -> bool {
        let mut wanted = self.target.split(':');
        let mut has = card.split(':');
        wanted.next() == has.next() && wanted.all(|feature| has.clone().any(|set| set == feature))
    }
}

fn metadata(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name, body) = (word(0)? as usize, word(4)? as usize);
        let start = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(body)?;
        if word(8)? == METADATA && notes.get(12..12 + name)? == b"AMDGPU\0" {
            return notes.get(start..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn kernel(value: &Value) -> Option<Kernel> {
    let number = |key: &str| u32::try_from(value.get(key)?.number()?).ok();
    let mut arguments = Vec::new();
    for argument in value.get(".args").map_or(&[][..], Value::list) {
        if argument.get(".value_kind")?.text()?.starts_with("hidden_") {
            continue;
        }
        let size = |key: &str| usize::try_from(argument.get(key)?.number()?).ok();
        arguments.push((size(".offset")?, size(".size")?));
    }
    Some(Kernel {
        name: value.get(".name")?.text()?.to_owned(),
        arguments,
        shared: number(".group_segment_fixed_size")?,
        most_items: number(".max_flat_workgroup_size")?,
        wave: number(".wavefront_size")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_named_must_be_set_so() {
        let object = |target: &str| CodeObject { target: target.to_owned(), kernels: Vec::new() };
        assert!(object("gfx906").fits("gfx906:sramecc+:xnack-"));
        assert!(object("gfx906:xnack-").fits("gfx906:sramecc+:xnack-"));
        assert!(!object("gfx906:xnack+").fits("gfx906:sramecc+:xnack-"));
        assert!(!object("gfx900").fits("gfx906:sramecc+:xnack-"));
    }

    #[test]
    fn what_is_no_code_object_has_no_length() {
        let mut header = [0_u8; 64];
        assert_eq!(length(&header), None);
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 62;
        assert_eq!(length(&header), None);
        header[18] = 224;
        header[40] = 200;
        (header[58], header[60]) = (64, 2);
        assert_eq!(length(&header), Some(328));
    }
}
