//! A summary as text for people and as JSON for programs.

use super::{KvShape, Shown, Summary};
use crate::gguf::Value;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use strata_backend_abi::StrataDType;

/// KV storage that figures are given for.
const KV_FORMATS: [StrataDType; 2] = [StrataDType::F16, StrataDType::F32];
/// Characters of a text value that the text form shows.
const SHOWN_CHARS: usize = 80;

impl Summary {
    /// Lines for people. `all` adds every tensor; without it only the formats are summed up.
    pub fn to_text(&self, all: bool) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_head(&mut out);
        let _ = self.write_formats(&mut out);
        let _ = self.write_metadata(&mut out);
        if all {
            let _ = self.write_tensors(&mut out);
        }
        out
    }

    fn write_head(&self, out: &mut String) -> std::fmt::Result {
        let text = |text: &Option<String>| text.as_deref().map_or_else(|| "not given".to_owned(), printable);
        let number = |number: Option<u64>| number.map_or_else(|| "not given".to_owned(), |n| n.to_string());
        for part in &self.parts {
            writeln!(out, "file            {} ({} bytes)", part.path.display(), part.bytes)?;
        }
        writeln!(out, "format          GGUF {}, alignment {}", self.version, self.alignment)?;
        writeln!(out, "name            {}", text(&self.name))?;
        writeln!(out, "architecture    {}", text(&self.architecture))?;
        writeln!(out, "file type       {}", text(&self.file_type))?;
        writeln!(out, "tokenizer       {}, vocabulary {}", text(&self.tokenizer), number(self.vocabulary))?;
        writeln!(out, "chat template   {}", if self.has_chat_template { "yes" } else { "no" })?;
        writeln!(out, "parameters      {}", self.parameters)?;
        writeln!(out, "layers          {}", number(self.layers))?;
        writeln!(out, "hidden size     {}", number(self.embedding_length))?;
        writeln!(out, "heads           {}", number(self.heads))?;
        writeln!(out, "context         {}", number(self.context_length))?;
        writeln!(out, "weights         {} bytes ({})", self.tensor_bytes, mib(self.tensor_bytes))?;
        for format in KV_FORMATS {
            let Some(bytes) = self.kv.as_ref().and_then(|kv| kv.bytes_per_token(format, format)) else { continue };
            let whole = self.context_length.and_then(|n| bytes.checked_mul(n));
            let whole = whole.map_or_else(String::new, |whole| format!(", {} for the whole context", mib(whole)));
            writeln!(out, "KV cache {:<6} {bytes} bytes a token{whole}", format.name().to_lowercase())?;
        }
        if let Some(verdict) = &self.verdict {
            writeln!(out, "this build      {}", if verdict.can_run { "can run it" } else { "cannot run it" })?;
            for reason in &verdict.reasons {
                writeln!(out, "                {}", printable(reason))?;
            }
        }
        Ok(())
    }

    fn write_formats(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nformats")?;
        for format in &self.formats {
            let bytes = format.bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
            writeln!(
                out,
                "  {:<12} {:>5} tensors {:>15} elements {:>15} bytes",
                format.name, format.tensors, format.elements, bytes
            )?;
        }
        Ok(())
    }

    fn write_metadata(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nmetadata")?;
        for entry in &self.metadata {
            let value = match &entry.value {
                Shown::Whole(value) => value_text(value),
                Shown::Array { len, first } => {
                    let mut items: Vec<String> = first.iter().map(value_text).collect();
                    if *len > first.len() {
                        items.push("…".to_owned());
                    }
                    format!("{len}: [{}]", items.join(", "))
                }
            };
            writeln!(out, "  {} ({}) = {value}", printable(&entry.key), entry.value_type)?;
        }
        Ok(())
    }

    fn write_tensors(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\ntensors")?;
        for tensor in &self.tensors {
            let bytes = tensor.bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
            writeln!(out, "  {:<40} {:<8} {:?} {bytes} bytes", printable(&tensor.name), tensor.format, tensor.shape)?;
        }
        Ok(())
    }

    /// The whole summary; arrays are cut to their first elements, their length is given.
    pub fn to_json(&self) -> Json {
        let kv_per_token = |kv: &KvShape| {
            let entry = |format: StrataDType| {
                let bytes = kv.bytes_per_token(format, format);
                (format.name().to_lowercase(), bytes.map_or(Json::Null, Json::from))
            };
            Json::Object(KV_FORMATS.into_iter().map(entry).collect())
        };
        let parts = self.parts.iter().map(|part| json!({ "path": part.path.to_string_lossy(), "bytes": part.bytes }));
        let formats = self.formats.iter().map(|format| {
            json!({
                "format": format.name, "tensors": format.tensors, "elements": format.elements, "bytes": format.bytes,
            })
        });
        let tensors = self.tensors.iter().map(|tensor| {
            json!({
                "name": tensor.name, "format": tensor.format, "shape": tensor.shape, "bytes": tensor.bytes,
                "part": tensor.part,
            })
        });
        let metadata = self.metadata.iter().map(|entry| match &entry.value {
            Shown::Whole(value) => json!({ "key": entry.key, "type": entry.value_type, "value": value_json(value) }),
            Shown::Array { len, first } => json!({
                "key": entry.key, "type": entry.value_type, "length": len,
                "first": first.iter().map(value_json).collect::<Vec<_>>(),
            }),
        });
        let verdict = self.verdict.as_ref().map(|v| json!({ "can_run": v.can_run, "reasons": v.reasons }));
        json!({
            "format": "gguf",
            "version": self.version,
            "alignment": self.alignment,
            "parts": parts.collect::<Vec<_>>(),
            "file_bytes": self.file_bytes(),
            "name": self.name,
            "architecture": self.architecture,
            "file_type": self.file_type,
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocabulary,
            "chat_template": self.has_chat_template,
            "parameters": self.parameters,
            "layers": self.layers,
            "embedding_length": self.embedding_length,
            "heads": self.heads,
            "context_length": self.context_length,
            "tensor_bytes": self.tensor_bytes,
            "kv_bytes_per_token": self.kv.as_ref().map(kv_per_token),
            "verdict": verdict,
            "formats": formats.collect::<Vec<_>>(),
            "metadata": metadata.collect::<Vec<_>>(),
            "tensors": tensors.collect::<Vec<_>>(),
        })
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Str(text) => {
            let cut: String = text.chars().take(SHOWN_CHARS).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            format!("\"{}{more}\"", printable(&cut))
        }
        Value::Array(array) => format!("{array:?}"),
        Value::Bool(value) => value.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::U64(number) => number.to_string(),
        integer => integer.as_i64().unwrap_or_default().to_string(),
    }
}

/// Numbers that JSON has no form for (infinities, NaN) become their names.
fn value_json(value: &Value) -> Json {
    match value {
        Value::Str(text) => json!(text),
        Value::Array(array) => json!({ "type": array.element_type().name(), "length": array.len() }),
        Value::Bool(value) => json!(value),
        Value::F32(number) if number.is_finite() => json!(number),
        Value::F64(number) if number.is_finite() => json!(number),
        Value::F32(number) => json!(number.to_string()),
        Value::F64(number) => json!(number.to_string()),
        Value::U64(number) => json!(number),
        integer => json!(integer.as_i64()),
    }
}

/// Texts out of the file must not drive the terminal.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
