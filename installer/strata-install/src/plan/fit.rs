//! Whether a model fits a machine, in numbers: weights, KV cache and a margin against the memory
//! that is there.

use crate::error::bytes;
use strata_manifest::CatalogModel;
use strata_manifest::plan::{Fit, FitVerdict};

/// Context that the figures are for, when the model was made for more.
const CONTEXT: u64 = 8192;
/// Scratch memory, code and what a driver takes on each GPU.
const GPU_MARGIN: u64 = 768 << 20;
/// The program itself, scratch memory, and what the rest of a system needs.
const RAM_MARGIN: u64 = 1 << 30;

/// Memory that the plan counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub ram: Option<u64>,
    /// Sum over the GPUs that are used; `None` when a GPU's memory is not known.
    pub vram: Option<u64>,
    pub gpus: u64,
}

/// Judges one model.
pub fn judge(model: &CatalogModel, memory: Memory) -> Fit {
    let context = model.context.min(CONTEXT);
    let kv = model.kv_bytes_per_token.unwrap_or(0) * context;
    let need = Need {
        resident: model.bytes().saturating_sub(model.paged_bytes.unwrap_or(0)),
        experts: model.expert_bytes,
        kv,
        kv_words: if kv > 0 {
            format!("KV cache {} at {context} tokens", bytes(kv))
        } else {
            "KV cache not known beforehand".to_owned()
        },
    };
    let (verdict, text) = if memory.gpus > 0 { need.on_gpus(memory) } else { need.on_cpu(memory.ram) };
    Fit {
        verdict,
        text,
        weights_bytes: model.bytes(),
        kv_bytes: kv,
        context,
        ram_bytes: memory.ram,
        vram_bytes: if memory.gpus > 0 { memory.vram } else { None },
    }
}

/// What a model takes, bytes.
struct Need {
    /// Weights that have to be in some memory.
    resident: u64,
    experts: Option<u64>,
    kv: u64,
    kv_words: String,
}

impl Need {
    fn on_cpu(&self, ram: Option<u64>) -> (FitVerdict, String) {
        let need = self.in_ram();
        let parts = format!("weights {}, {}, margin {}", bytes(self.resident), self.kv_words, bytes(RAM_MARGIN));
        match ram {
            None => (
                FitVerdict::Unknown,
                format!("{} of memory needed ({parts}), and how much there is is not known", bytes(need)),
            ),
            Some(ram) if need <= ram => {
                (FitVerdict::Ram, format!("fits memory: {} of {} ({parts})", bytes(need), bytes(ram)))
            }
            Some(ram) => (
                FitVerdict::TooLarge,
                format!(
                    "too large: {} needed ({parts}) and {} there, {} short",
                    bytes(need),
                    bytes(ram),
                    bytes(need - ram)
                ),
            ),
        }
    }

    fn in_ram(&self) -> u64 {
        self.resident + self.kv + RAM_MARGIN
    }

    fn on_gpus(&self, memory: Memory) -> (FitVerdict, String) {
        let margin = GPU_MARGIN * memory.gpus;
        let need = self.resident + self.kv + margin;
        let on = if memory.gpus == 1 { "the GPU".to_owned() } else { format!("{} GPUs", memory.gpus) };
        let parts = format!("weights {}, {}, margin {}", bytes(self.resident), self.kv_words, bytes(margin));
        let Some(vram) = memory.vram else {
            let text = format!("{} on {on} needed ({parts}), and their memory is not known", bytes(need));
            return (FitVerdict::Unknown, text);
        };
        if need <= vram {
            return (FitVerdict::Gpu, format!("fits {on}: {} of {} ({parts})", bytes(need), bytes(vram)));
        }
        if let Some((experts, ram)) = self.experts.zip(memory.ram) {
            let rest = self.resident.saturating_sub(experts) + self.kv + margin;
            let host = experts + RAM_MARGIN;
            if rest <= vram && host <= ram {
                let text = format!(
                    "fits with its experts in the machine's memory: {} of {} there, {} of {} on {on}",
                    bytes(host),
                    bytes(ram),
                    bytes(rest),
                    bytes(vram)
                );
                return (FitVerdict::GpuAndRam, text);
            }
        }
        let there = memory.ram.map_or("an unknown amount".to_owned(), bytes);
        let host = self.in_ram();
        if memory.ram.is_some_and(|ram| host <= ram) {
            let text = format!(
                "too large for {on} ({} needed, {} there); on the CPU it fits: {} of {there}",
                bytes(need),
                bytes(vram),
                bytes(host)
            );
            return (FitVerdict::Ram, text);
        }
        let text = format!(
            "too large: {} needed on {on} and {} there; {} needed in the machine's memory and {there} there",
            bytes(need),
            bytes(vram),
            bytes(host)
        );
        (FitVerdict::TooLarge, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_manifest::Catalog;

    const GIB: u64 = 1 << 30;

    fn verdict(name: &str, ram: u64, vram: &[u64]) -> FitVerdict {
        let catalog = Catalog::built_in();
        let memory =
            Memory { ram: Some(ram * GIB), vram: Some(vram.iter().sum::<u64>() * GIB), gpus: vram.len() as u64 };
        judge(catalog.find(name).unwrap(), memory).verdict
    }

    #[test]
    fn models_are_judged_by_what_is_there() {
        assert_eq!(verdict("smollm2-135m", 4, &[]), FitVerdict::Ram);
        assert_eq!(verdict("qwen3-32b", 16, &[]), FitVerdict::TooLarge);
        assert_eq!(verdict("qwen3-14b", 32, &[24]), FitVerdict::Gpu);
        assert_eq!(verdict("qwen3-30b-a3b", 32, &[8]), FitVerdict::GpuAndRam);
        assert_eq!(verdict("qwen3-14b", 32, &[8]), FitVerdict::Ram);
        // The machine of the second report: two cards of 16 GB, 64 GB, the n-gram table stays on disk.
        assert_eq!(verdict("qwen3.8-flash-next-iq3_s", 62, &[16, 16]), FitVerdict::GpuAndRam);
        assert_eq!(verdict("qwen3.8-flash-next-iq3_s", 32, &[16, 16]), FitVerdict::TooLarge);
    }

    #[test]
    fn the_sentence_has_the_numbers() {
        let catalog = Catalog::built_in();
        let memory = Memory { ram: Some(GIB), vram: None, gpus: 0 };
        let fit = judge(catalog.find("qwen3-8b").unwrap(), memory);
        assert!(fit.text.contains("short") && fit.text.contains("1.00 GiB there"), "{}", fit.text);
        let memory = Memory { ram: None, vram: None, gpus: 1 };
        assert_eq!(judge(catalog.find("qwen3-8b").unwrap(), memory).verdict, FitVerdict::Unknown);
    }
}
