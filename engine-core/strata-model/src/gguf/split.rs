//! Joins the parts of a split model. The first part holds all metadata; each part holds some of
//! the tensors and says its own number and how many parts there are. That a file is a part is read
//! from its keys, never from its name; the names of the other parts follow from its name.

use super::parse::{self, Header};
use super::{Gguf, Index, Mapping, Part};
use crate::ModelError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Digits of part numbers in file names: `model-00001-of-00003.gguf`.
const DIGITS: usize = 5;

pub(super) fn open(path: &Path) -> Result<Gguf, ModelError> {
    let given = OpenPart::open(path, 0)?;
    let Some(split) = given.split()? else { return join(given, Vec::new()) };
    let stem = part_name_stem(path, &split)?;
    let name_of = |index: u64| path.with_file_name(part_name(&stem, index + 1, split.count));

    let missing: Vec<PathBuf> = (0..split.count).map(name_of).filter(|part| !part.is_file()).collect();
    if !missing.is_empty() {
        return Err(ModelError::MissingParts { path: path.to_owned(), count: split.count, missing });
    }
    let open_part = |index: u64| {
        let part = OpenPart::open(&name_of(index), index as usize)?;
        let expected = format!("expected part {} of {}", index + 1, split.count);
        let problem = match part.split()? {
            Some(own) if own.count == split.count && own.index == index => return Ok(part),
            Some(own) => format!("it calls itself part {} of {}, {expected}", own.index + 1, own.count),
            None => format!("it does not call itself a part, {expected}"),
        };
        Err(ModelError::BadSplit { path: part.part.path, problem })
    };
    let first = open_part(0)?;
    let rest: Result<Vec<OpenPart>, ModelError> = (1..split.count).map(open_part).collect();
    join(first, rest?)
}

pub(super) fn from_bytes(label: &Path, bytes: Vec<u8>) -> Result<Gguf, ModelError> {
    let part = OpenPart::read(label, Mapping::from_memory(bytes), 0)?;
    match part.split()? {
        None => join(part, Vec::new()),
        Some(split) => Err(ModelError::BadSplit {
            path: label.to_owned(),
            problem: format!("it is part {} of {} and has no other parts beside it", split.index + 1, split.count),
        }),
    }
}

struct OpenPart {
    part: Part,
    header: Header,
}

/// What a file says about its place among the parts.
struct Split {
    /// From 0 on.
    index: u64,
    count: u64,
}

impl OpenPart {
    fn open(path: &Path, index: usize) -> Result<OpenPart, ModelError> {
        OpenPart::read(path, Mapping::open(path)?, index)
    }

    fn read(path: &Path, map: Mapping, index: usize) -> Result<OpenPart, ModelError> {
        let map = Arc::new(map);
        let header = parse::header(path, &map, index)?;
        Ok(OpenPart { part: Part { path: path.to_owned(), file_bytes: map.bytes().len() as u64, map }, header })
    }

    fn number(&self, key: &str) -> Result<Option<u64>, ModelError> {
        let Some((_, value)) = self.header.values.iter().find(|(name, _)| name == key) else { return Ok(None) };
        match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(ModelError::WrongType {
                path: self.part.path.clone(),
                key: key.to_owned(),
                expected: "a whole number from 0 on",
                got: value.brief(),
            }),
        }
    }

    /// `None` when the file is a whole model.
    fn split(&self) -> Result<Option<Split>, ModelError> {
        let count = self.number("split.count")?.unwrap_or(1);
        if count <= 1 {
            return Ok(None);
        }
        let index = self.number("split.no")?.unwrap_or(0);
        if index >= count || count > 99_999 {
            let problem = format!("it calls itself part {} of {count}", index.saturating_add(1));
            return Err(ModelError::BadSplit { path: self.part.path.clone(), problem });
        }
        Ok(Some(Split { index, count }))
    }
}

fn part_name(stem: &str, number: u64, count: u64) -> String {
    format!("{stem}-{number:0DIGITS$}-of-{count:0DIGITS$}.gguf")
}

/// The part of the file's name before `-00001-of-00003.gguf`, which must be there and be right.
fn part_name_stem(path: &Path, split: &Split) -> Result<String, ModelError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let expected = part_name("", split.index + 1, split.count);
    match name.strip_suffix(&expected) {
        Some(stem) => Ok(stem.to_owned()),
        None => Err(ModelError::BadSplit {
            path: path.to_owned(),
            problem: format!(
                "it is part {} of {}, so its name must end in `{expected}` for the other parts to be found",
                split.index + 1,
                split.count
            ),
        }),
    }
}

/// One model out of its parts, of which the first holds the metadata.
fn join(first: OpenPart, rest: Vec<OpenPart>) -> Result<Gguf, ModelError> {
    let announced = if rest.is_empty() { None } else { first.number("split.tensors.count")? };
    let Header { version, alignment, values, mut tensors, mut foreign } = first.header;
    let mut parts = vec![first.part];
    for OpenPart { part, header } in rest {
        parts.push(part);
        tensors.extend(header.tensors);
        foreign.extend(header.foreign);
    }
    let gguf = Gguf { parts, version, alignment, values: Index::new(values), tensors: Index::new(tensors), foreign };

    let bad = |place: String, problem: &str| ModelError::Bad {
        path: gguf.path().to_owned(),
        place,
        problem: problem.to_owned(),
    };
    if let Some(key) = gguf.values.duplicate() {
        return Err(bad(format!("key `{key}`"), "it occurs more than once"));
    }
    if let Some(name) = gguf.tensors.duplicate() {
        return Err(bad(format!("tensor `{name}`"), "it occurs more than once"));
    }
    let found = (gguf.tensors.items.len() + gguf.foreign.len()) as u64;
    match announced {
        Some(announced) if announced != found => Err(ModelError::BadSplit {
            path: gguf.path().to_owned(),
            problem: format!("it announces {announced} tensors in all parts, the parts hold {found}"),
        }),
        _ => Ok(gguf),
    }
}
