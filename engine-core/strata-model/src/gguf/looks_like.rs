//! What a file that is not GGUF looks like by its first bytes, so that the message can say what
//! went wrong when it was fetched or chosen.

/// Known other contents of a file that was taken for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LooksLike {
    /// GGML, GGMF, GGJT: the formats before GGUF.
    OldGgml,
    WebPage,
    GitLfsPointer,
    Archive,
    Safetensors,
    Unknown,
}

impl LooksLike {
    pub(super) fn guess(bytes: &[u8]) -> LooksLike {
        let start = &bytes[..bytes.len().min(256)];
        let text = start.trim_ascii_start().to_ascii_lowercase();
        if [b"lmgg", b"fmgg", b"tjgg", b"algg"].iter().any(|magic| start.starts_with(*magic)) {
            LooksLike::OldGgml
        } else if text.starts_with(b"<!doctype") || text.starts_with(b"<html") || text.starts_with(b"<?xml") {
            LooksLike::WebPage
        } else if start.starts_with(b"version https://git-lfs") {
            LooksLike::GitLfsPointer
        } else if start.starts_with(b"PK\x03\x04") || start.starts_with(b"\x1f\x8b") || start.starts_with(b"7z\xbc\xaf")
        {
            LooksLike::Archive
        } else if start.len() > 8 && start[8] == b'{' && start[6..8] == [0, 0] {
            LooksLike::Safetensors
        } else {
            LooksLike::Unknown
        }
    }

    /// What to do about it.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            LooksLike::OldGgml => "this is a GGML file from before GGUF: fetch a GGUF file of this model",
            LooksLike::WebPage => {
                "this is a web page: the download was answered with a page; use the file's direct address"
            }
            LooksLike::GitLfsPointer => {
                "this is a git-lfs pointer and not the model: run `git lfs pull` or fetch the file itself"
            }
            LooksLike::Archive => "this is an archive: unpack it first",
            LooksLike::Safetensors => "this looks like a safetensors file: fetch a GGUF file of this model",
            LooksLike::Unknown => "give a `.gguf` file, or the name of an installed model",
        }
    }
}
