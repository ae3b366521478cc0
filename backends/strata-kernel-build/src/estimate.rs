//! What a card's datasheet allows for a few models: bytes and products a token against bandwidth and rates. No
//! measurement: an owner's first one can be compared with it.

use std::fmt::Write;

/// Figures of a datasheet.
struct Card {
    name: &'static str,
    /// Bytes a second, 10⁹.
    bandwidth: f64,
    /// Products of bytes a second, 10¹²: half of what vendors count as operations.
    products: f64,
    memory_gib: f64,
}

const CARDS: [Card; 3] = [
    Card { name: "MI50, Radeon Pro VII (gfx906)", bandwidth: 1024.0, products: 26.5, memory_gib: 16.0 },
    Card { name: "RX 7900 XTX (gfx1100)", bandwidth: 960.0, products: 61.4, memory_gib: 24.0 },
    Card { name: "RX 7900 XT (gfx1100)", bandwidth: 800.0, products: 51.6, memory_gib: 20.0 },
];

struct Model {
    name: &'static str,
    layers: f64,
    hidden: f64,
    heads: f64,
    kv_heads: f64,
    head: f64,
    /// Width of a gated unit, and how many of them a token goes through; of how many in all.
    width: f64,
    units: f64,
    all_units: f64,
    vocabulary: f64,
    /// Of a weight.
    bits: f64,
    format: &'static str,
}

const MODELS: [Model; 4] = [
    Model {
        name: "SmolLM2 135M",
        layers: 30.0,
        hidden: 576.0,
        heads: 9.0,
        kv_heads: 3.0,
        head: 64.0,
        width: 1536.0,
        units: 1.0,
        all_units: 1.0,
        vocabulary: 49_152.0,
        bits: 8.5,
        format: "Q8_0",
    },
    Model {
        name: "Qwen3 0.6B",
        layers: 28.0,
        hidden: 1024.0,
        heads: 16.0,
        kv_heads: 8.0,
        head: 128.0,
        width: 3072.0,
        units: 1.0,
        all_units: 1.0,
        vocabulary: 151_936.0,
        bits: 8.5,
        format: "Q8_0",
    },
    Model {
        name: "Qwen3 8B",
        layers: 36.0,
        hidden: 4096.0,
        heads: 32.0,
        kv_heads: 8.0,
        head: 128.0,
        width: 12_288.0,
        units: 1.0,
        all_units: 1.0,
        vocabulary: 151_936.0,
        bits: 4.5,
        format: "Q4_K",
    },
    Model {
        name: "Qwen3 30B-A3B",
        layers: 48.0,
        hidden: 2048.0,
        heads: 32.0,
        kv_heads: 4.0,
        head: 128.0,
        width: 768.0,
        units: 8.0,
        all_units: 128.0,
        vocabulary: 151_936.0,
        bits: 4.5,
        format: "Q4_K",
    },
];

impl Model {
    /// Weights of all layers with `units` gated units each.
    fn layers_with(&self, units: f64) -> f64 {
        let attention = self.hidden * self.head * (2.0 * self.heads + 2.0 * self.kv_heads);
        self.layers * (attention + 3.0 * self.hidden * self.width * units)
    }

    /// Products for one token: every weight that it goes through, the head too.
    fn products(&self) -> f64 {
        self.layers_with(self.units) + self.hidden * self.vocabulary
    }

    /// Bytes of the cache for a context, halves.
    fn cache(&self, context: f64) -> f64 {
        self.layers * 2.0 * self.kv_heads * self.head * 2.0 * context
    }

    fn weight_bytes(&self) -> f64 {
        (self.layers_with(self.all_units) + self.hidden * self.vocabulary) * self.bits / 8.0
    }
}

/// Share of a SIMD's instructions in the tiles of `mmt` that are products of four bytes: eight of them, a conversion and two
/// multiply-adds a group of 32.
const DOT_SHARE: f64 = 8.0 / 11.0;

pub(crate) fn write(page: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "## Estimates\n\n**Estimates, nothing measured.** Decoding: a token reads every weight that it goes through once, and the cache of 4,096 positions in F16; the bound is the\n\
        datasheet's bandwidth over that. The same kernels reach 52 % (Q4_K) to 85 % (Q8_0 head) of an H200's bandwidth. Prompts: products a token over the\n\
        datasheet's rate for bytes; on gfx906, where the same units do the {:.0} % of a tile's arithmetic that is not products, that share of it. Attention is left out of prompts.\n\
        Datasheet: MI50 and Radeon Pro VII 1,024 GB/s and 53 · 10¹² byte operations a second; RX 7900 XTX 960 GB/s, 122.8; RX 7900 XT 800 GB/s, 103.2.\n",
        100.0 * (1.0 - DOT_SHARE)
    );
    let _ = writeln!(
        page,
        "| model | weights | MiB of weights | products a token | bytes a token | card | decoding at most, tokens/s | prompt at most, tokens/s | fits |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for model in &MODELS {
        let bytes = model.products() * model.bits / 8.0 + model.cache(4096.0);
        for card in &CARDS {
            let share = if card.name.contains("gfx906") { DOT_SHARE } else { 1.0 };
            let decoding = card.bandwidth * 1e9 / bytes;
            let prompt = card.products * 1e12 * share / model.products();
            let needed = (model.weight_bytes() + model.cache(4096.0)) / f64::from(1_u32 << 30);
            let fits = if needed + 0.75 < card.memory_gib { "yes" } else { "two cards" };
            let _ = writeln!(
                page,
                "| {} | {} | {:.0} | {:.0} M | {:.0} M | {} | {} | {} | {fits} |",
                model.name,
                model.format,
                model.weight_bytes() / f64::from(1_u32 << 20),
                model.products() / 1e6,
                bytes / 1e6,
                card.name,
                two_digits(decoding),
                two_digits(prompt),
            );
        }
    }
}

/// An estimate does not deserve more.
fn two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    (value / unit).round() * unit
}
