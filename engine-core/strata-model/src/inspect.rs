//! What a model file is, as a typed summary: for `strata inspect`, as text or JSON.
//!
//! It only reports what the file says and what follows from it by arithmetic. Whether this build
//! can run the model is the engine's knowledge; it fills in [`Summary::verdict`]. Nothing is
//! printed here. Numbers come from an untrusted file, so all products are checked and a figure
//! that does not fit is simply not given.

mod render;

use crate::gguf::{Gguf, Value, type_name};
use std::path::PathBuf;
use strata_backend_abi::StrataDType;

/// Elements of an array that a summary shows.
const SHOWN_ELEMENTS: usize = 8;

/// Everything worth knowing about a model file without running it.
#[derive(Debug, Clone)]
pub struct Summary {
    pub version: u32,
    pub alignment: u64,
    /// Files of a split model, or the one file.
    pub parts: Vec<PartSummary>,
    pub architecture: Option<String>,
    /// `general.name`.
    pub name: Option<String>,
    /// `general.file_type` by the name that people know: `Q4_K_M`.
    pub file_type: Option<String>,
    /// Model and pre-tokenizer, as the file names them.
    pub tokenizer: Option<String>,
    pub vocabulary: Option<u64>,
    pub has_chat_template: bool,
    pub context_length: Option<u64>,
    pub layers: Option<u64>,
    pub embedding_length: Option<u64>,
    pub heads: Option<u64>,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of all readable tensors.
    pub tensor_bytes: u64,
    pub kv: Option<KvShape>,
    /// By bytes, greatest first.
    pub formats: Vec<FormatSummary>,
    /// In file order.
    pub tensors: Vec<TensorSummary>,
    /// In file order.
    pub metadata: Vec<MetadataSummary>,
    /// Whether this build can run it; `None` when nobody has looked.
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSummary {
    pub path: PathBuf,
    pub bytes: u64,
}

/// The engine's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub can_run: bool,
    /// Why not, one sentence each; or what is to be known when it can.
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatSummary {
    pub name: String,
    pub tensors: u64,
    pub elements: u64,
    /// `None` for formats that this build does not read.
    pub bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSummary {
    pub name: String,
    pub format: String,
    /// Contiguous dimension first.
    pub shape: Vec<u64>,
    /// `None` for formats that this build does not read.
    pub bytes: Option<u64>,
    pub part: usize,
}

#[derive(Debug, Clone)]
pub struct MetadataSummary {
    pub key: String,
    /// `u32`, `str`, `array of str`.
    pub value_type: String,
    pub value: Shown,
}

/// A metadata value as far as it is shown.
#[derive(Debug, Clone)]
pub enum Shown {
    Whole(Value),
    /// The first elements of an array of `len`.
    Array {
        len: usize,
        first: Vec<Value>,
    },
}

/// What one token takes in the KV cache, from the file's keys. Layers that keep only a window of
/// tokens take less than this in a long context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvShape {
    /// KV heads summed over all layers that have a cache.
    pub heads: u64,
    /// Elements of one head's key.
    pub key_length: u64,
    /// Elements of one head's value.
    pub value_length: u64,
}

impl KvShape {
    /// Bytes a token with keys and values stored in these formats; `None` when a head is no whole
    /// number of their blocks, or the product does not fit.
    pub fn bytes_per_token(&self, key: StrataDType, value: StrataDType) -> Option<u64> {
        let head = key.row_bytes(self.key_length)?.checked_add(value.row_bytes(self.value_length)?)?;
        head.checked_mul(self.heads)
    }

    /// Reads it from the keys of architectures with plain attention layers; `None` when they do
    /// not say enough or the architecture keeps something else than keys and values.
    fn of(gguf: &Gguf) -> Option<KvShape> {
        let number = |suffix: &str| gguf.arch_value(suffix).and_then(Value::as_u64);
        if gguf.arch_value("attention.kv_lora_rank").is_some() {
            return None;
        }
        let layers = number("block_count")?;
        let all_heads = number("attention.head_count");
        let head_length = || number("embedding_length")?.checked_div(all_heads?);
        let key_length = number("attention.key_length").or_else(head_length)?;
        let value_length = number("attention.value_length").or_else(head_length)?;
        // Of every `interval` layers of a hybrid model one has attention.
        let interval = number("full_attention_interval").unwrap_or(1);
        let heads = match gguf.arch_value("attention.head_count_kv") {
            Some(Value::Array(per_layer)) => {
                let counted = per_layer.len().min(usize::try_from(layers).unwrap_or(usize::MAX));
                let mut heads = (0..counted).map(|layer| per_layer.u64_at(layer));
                heads.try_fold(0_u64, |sum, heads| sum.checked_add(heads?))?
            }
            Some(value) => value.as_u64()?.checked_mul(layers.checked_div(interval)?)?,
            None => all_heads?.checked_mul(layers.checked_div(interval)?)?,
        };
        Some(KvShape { heads, key_length, value_length })
    }
}

impl Summary {
    pub fn of(gguf: &Gguf) -> Summary {
        let text = |key: &str| gguf.value(key).and_then(Value::as_str).map(str::to_owned);
        let number = |suffix: &str| gguf.arch_value(suffix).and_then(Value::as_u64);
        let tensors = tensors(gguf);
        Summary {
            version: gguf.version(),
            alignment: gguf.alignment(),
            parts: gguf.parts().iter().map(|p| PartSummary { path: p.path.clone(), bytes: p.file_bytes }).collect(),
            architecture: text("general.architecture"),
            name: text("general.name"),
            file_type: gguf.value("general.file_type").and_then(Value::as_u64).map(file_type_name),
            tokenizer: text("tokenizer.ggml.model").map(|model| match text("tokenizer.ggml.pre") {
                Some(pre) => format!("{model} ({pre})"),
                None => model,
            }),
            vocabulary: gguf.value("tokenizer.ggml.tokens").and_then(Value::as_array).map(|t| t.len() as u64),
            has_chat_template: text("tokenizer.chat_template").is_some(),
            context_length: number("context_length"),
            layers: number("block_count"),
            embedding_length: number("embedding_length"),
            heads: number("attention.head_count"),
            parameters: tensors.iter().map(elements).fold(0, u64::saturating_add),
            tensor_bytes: tensors.iter().filter_map(|tensor| tensor.bytes).sum(),
            kv: KvShape::of(gguf),
            formats: formats(&tensors),
            tensors,
            metadata: gguf.keys().map(|(key, value)| metadata(key, value)).collect(),
            verdict: None,
        }
    }

    /// Sum of all parts' sizes.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add)
    }
}

fn elements(tensor: &TensorSummary) -> u64 {
    // The parser refuses shapes whose product does not fit.
    tensor.shape.iter().product()
}

fn tensors(gguf: &Gguf) -> Vec<TensorSummary> {
    let readable = gguf.tensors().iter().map(|tensor| TensorSummary {
        name: tensor.name.clone(),
        format: tensor.dtype.name().to_owned(),
        shape: tensor.shape().to_vec(),
        bytes: Some(tensor.bytes),
        part: tensor.part,
    });
    let foreign = gguf.foreign_tensors().iter().map(|tensor| TensorSummary {
        name: tensor.name.clone(),
        format: type_name(tensor.type_number)
            .map_or_else(|| format!("type {}", tensor.type_number), |name| format!("{name} (unreadable)")),
        shape: tensor.shape().to_vec(),
        bytes: None,
        part: tensor.part,
    });
    readable.chain(foreign).collect()
}

fn formats(tensors: &[TensorSummary]) -> Vec<FormatSummary> {
    let mut formats: Vec<FormatSummary> = Vec::new();
    for tensor in tensors {
        let index = formats.iter().position(|format| format.name == tensor.format).unwrap_or_else(|| {
            formats.push(FormatSummary {
                name: tensor.format.clone(),
                tensors: 0,
                elements: 0,
                bytes: tensor.bytes.map(|_| 0),
            });
            formats.len() - 1
        });
        let format = &mut formats[index];
        format.tensors += 1;
        format.elements = format.elements.saturating_add(elements(tensor));
        format.bytes = format.bytes.zip(tensor.bytes).map(|(sum, bytes)| sum + bytes);
    }
    formats.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    formats
}

fn metadata(key: &str, value: &Value) -> MetadataSummary {
    let (value_type, value) = match value {
        Value::Array(array) => {
            let first = (0..array.len().min(SHOWN_ELEMENTS)).filter_map(|index| array.value_at(index)).collect();
            (format!("array of {}", array.element_type().name()), Shown::Array { len: array.len(), first })
        }
        scalar => (scalar.value_type().name().to_owned(), Shown::Whole(scalar.clone())),
    };
    MetadataSummary { key: key.to_owned(), value_type, value }
}

/// Names of `general.file_type`, from the format's definition.
fn file_type_name(number: u64) -> String {
    let name = match number {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4_MOE",
        39 => "NVFP4",
        _ => return format!("file type {number}"),
    };
    name.to_owned()
}
