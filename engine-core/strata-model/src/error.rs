//! What can be wrong with a model file. Variants carry the facts; codes and hints are in the
//! [`Diagnose`] implementation. Tokenizer and template failures are not here but in `TextError`.

use std::path::PathBuf;
use strata_diag::catalogue::{general, model};
use strata_diag::{Code, Diagnose};

/// A model file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    #[error("cannot read the model file `{}`", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    /// The first bytes are no GGUF header. `found` says what they look like instead.
    #[error("`{}` is not a GGUF model: it starts with {found}", path.display())]
    NotAModel { path: PathBuf, found: String, looks_like: crate::gguf::LooksLike },

    #[error("`{}` is GGUF version {version}; this build reads versions 2 and 3", path.display())]
    UnsupportedVersion { path: PathBuf, version: u32 },

    #[error("`{}` is a big-endian GGUF file (version {version}); this build reads little-endian ones", path.display())]
    BigEndian { path: PathBuf, version: u32 },

    /// The file ends before something that its own header announces.
    #[error(
        "`{}` is truncated: {what} needs {}{needed} bytes, the file has {present}",
        path.display(),
        if *at_least { "at least " } else { "" }
    )]
    Truncated {
        path: PathBuf,
        /// `tensor `x``, `key `y``, `the header`.
        what: String,
        /// File size in bytes that is needed.
        needed: u64,
        /// More may be needed after that: the file ends inside its header.
        at_least: bool,
        /// File size in bytes.
        present: u64,
    },

    /// The file's size is no longer what it was when it was opened.
    #[error("`{}` changed while it was in use: it had {opened} bytes and has {now} now", path.display())]
    Changed { path: PathBuf, opened: u64, now: u64 },

    /// A read from the file failed while it was in use, though its size is right again or still.
    #[error("a part of `{}` could not be read while it was in use", path.display())]
    ReadFault { path: PathBuf },

    /// A number in the file cannot be: it wraps, exceeds what any model has, or contradicts another.
    #[error("`{}`: {place}: {problem}", path.display())]
    Bad {
        path: PathBuf,
        /// `tensor `x``, `key `y``, `header`.
        place: String,
        /// The offending numbers and what is wrong with them.
        problem: String,
    },

    #[error("`{}`: key `{key}` is {got}, expected {expected}", path.display())]
    WrongType { path: PathBuf, key: String, expected: &'static str, got: String },

    #[error("`{}` has no key `{key}`", path.display())]
    MissingKey { path: PathBuf, key: String },

    #[error("`{}` has no tensor `{tensor}`", path.display())]
    MissingTensor { path: PathBuf, tensor: String },

    #[error(
        "`{}`: tensor `{tensor}` has the format {}, number {number}, which this build does not read",
        path.display(),
        name.unwrap_or("that has no known name")
    )]
    UnsupportedTensorType { path: PathBuf, tensor: String, number: u32, name: Option<&'static str> },

    #[error("`{}`: tensor `{tensor}` has the shape {got}, expected {expected}", path.display())]
    BadShape { path: PathBuf, tensor: String, expected: String, got: String },

    #[error("`{}`: the architecture `{architecture}` is not one that this build can run", path.display())]
    UnsupportedArch {
        path: PathBuf,
        architecture: String,
        /// Those that it can.
        known: String,
    },

    /// A split model of which parts are absent.
    #[error(
        "`{}` is one part of {count}; {} of them cannot be found, first `{}`",
        path.display(), missing.len(), missing.first().map(|p| p.display().to_string()).unwrap_or_default()
    )]
    MissingParts { path: PathBuf, count: u64, missing: Vec<PathBuf> },

    /// The parts of a split model do not belong together.
    #[error("`{}`: {problem}", path.display())]
    BadSplit { path: PathBuf, problem: String },

    /// A row given to the dequantiser is no whole number of blocks or does not match its output.
    #[error("{data} bytes of {dtype} do not make {elements} elements")]
    RowSize { dtype: strata_backend_abi::StrataDType, data: usize, elements: usize },
}

impl ModelError {
    /// The file that it is about, when it is about one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            ModelError::Io { path, .. }
            | ModelError::NotAModel { path, .. }
            | ModelError::UnsupportedVersion { path, .. }
            | ModelError::BigEndian { path, .. }
            | ModelError::Truncated { path, .. }
            | ModelError::Changed { path, .. }
            | ModelError::ReadFault { path }
            | ModelError::Bad { path, .. }
            | ModelError::WrongType { path, .. }
            | ModelError::MissingKey { path, .. }
            | ModelError::MissingTensor { path, .. }
            | ModelError::UnsupportedTensorType { path, .. }
            | ModelError::BadShape { path, .. }
            | ModelError::UnsupportedArch { path, .. }
            | ModelError::MissingParts { path, .. }
            | ModelError::BadSplit { path, .. } => Some(path),
            ModelError::RowSize { .. } => None,
        }
    }
}

/// How many absent parts are listed before the rest is only counted.
const LISTED_PARTS: usize = 8;

impl Diagnose for ModelError {
    fn code(&self) -> &'static Code {
        match self {
            ModelError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => general::MODEL_NOT_FOUND,
            ModelError::Io { .. } | ModelError::ReadFault { .. } => general::FILE_UNREADABLE,
            ModelError::NotAModel { .. } => model::NOT_A_MODEL,
            ModelError::UnsupportedVersion { .. } | ModelError::BigEndian { .. } => model::UNSUPPORTED_GGUF_VERSION,
            ModelError::Truncated { .. } | ModelError::Changed { .. } => model::TRUNCATED_MODEL,
            ModelError::Bad { .. } | ModelError::WrongType { .. } => model::BAD_MODEL,
            ModelError::MissingKey { .. } => model::MISSING_KEY,
            ModelError::MissingTensor { .. } => model::MISSING_TENSOR,
            ModelError::UnsupportedTensorType { .. } => model::UNSUPPORTED_TENSOR_TYPE,
            ModelError::BadShape { .. } | ModelError::RowSize { .. } => model::BAD_TENSOR_SHAPE,
            ModelError::UnsupportedArch { .. } => model::UNSUPPORTED_ARCH,
            ModelError::MissingParts { .. } | ModelError::BadSplit { .. } => model::SPLIT_INCOMPLETE,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts: Vec<(&'static str, String)> =
            self.path().map(|path| ("file", path.display().to_string())).into_iter().collect();
        match self {
            ModelError::Io { .. } | ModelError::ReadFault { .. } | ModelError::RowSize { .. } => {}
            ModelError::NotAModel { found, .. } => facts.push(("starts with", found.clone())),
            ModelError::UnsupportedVersion { version, .. } | ModelError::BigEndian { version, .. } => {
                facts.push(("version", version.to_string()));
            }
            ModelError::Truncated { what, needed, at_least, present, .. } => {
                facts.push(("needed by", what.clone()));
                facts.push(("needed bytes", format!("{}{needed}", if *at_least { "at least " } else { "" })));
                facts.push(("present bytes", present.to_string()));
            }
            ModelError::Changed { opened, now, .. } => {
                facts.push(("needed bytes", opened.to_string()));
                facts.push(("present bytes", now.to_string()));
            }
            ModelError::Bad { place, problem, .. } => {
                facts.push(("place", place.clone()));
                facts.push(("problem", problem.clone()));
            }
            ModelError::WrongType { key, expected, got, .. } => {
                facts.push(("key", key.clone()));
                facts.push(("expected", (*expected).to_owned()));
                facts.push(("got", got.clone()));
            }
            ModelError::MissingKey { key, .. } => facts.push(("key", key.clone())),
            ModelError::MissingTensor { tensor, .. } => facts.push(("tensor", tensor.clone())),
            ModelError::UnsupportedTensorType { tensor, number, name, .. } => {
                facts.push(("tensor", tensor.clone()));
                facts.push(("format", format!("{} ({number})", name.unwrap_or("unknown"))));
            }
            ModelError::BadShape { tensor, expected, got, .. } => {
                facts.push(("tensor", tensor.clone()));
                facts.push(("expected", expected.clone()));
                facts.push(("got", got.clone()));
            }
            ModelError::UnsupportedArch { architecture, known, .. } => {
                facts.push(("architecture", architecture.clone()));
                facts.push(("known", known.clone()));
            }
            ModelError::MissingParts { count, missing, .. } => {
                facts.push(("parts", count.to_string()));
                for path in missing.iter().take(LISTED_PARTS) {
                    facts.push(("missing", path.display().to_string()));
                }
                if missing.len() > LISTED_PARTS {
                    facts.push(("missing", format!("and {} more", missing.len() - LISTED_PARTS)));
                }
            }
            ModelError::BadSplit { problem, .. } => facts.push(("problem", problem.clone())),
        }
        facts
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            ModelError::NotAModel { looks_like, .. } => looks_like.hint(),
            ModelError::UnsupportedVersion { .. } => {
                "convert the model again with a current converter, or fetch a newer file of it"
            }
            ModelError::BigEndian { .. } => "fetch the little-endian file of this model; it is the usual one",
            ModelError::Truncated { .. } => {
                "most likely the download stopped early: fetch the file again and compare its size with the source's"
            }
            ModelError::Changed { .. } => {
                "something wrote to the file or is still downloading it: start again when it is whole"
            }
            ModelError::ReadFault { .. } => {
                "the file was changed for a moment, or its disk fails: see the system's log"
            }
            ModelError::Bad { .. } => "the file is damaged or was made wrongly: compare its digest with the source's",
            ModelError::UnsupportedTensorType { .. } => {
                "choose a file of this model in another format, for example Q4_K_M or Q8_0"
            }
            ModelError::UnsupportedArch { .. } | ModelError::MissingTensor { .. } => {
                "the file itself is whole; `strata inspect FILE` lists what it holds"
            }
            ModelError::MissingParts { .. } => "put all parts into one folder under their original names",
            ModelError::BadSplit { .. } => "fetch all parts of one and the same model and keep their original names",
            ModelError::Io { .. }
            | ModelError::WrongType { .. }
            | ModelError::MissingKey { .. }
            | ModelError::BadShape { .. }
            | ModelError::RowSize { .. } => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}
