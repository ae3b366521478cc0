//! Memory is planned before it is taken: what each part of an engine needs, said in the words of
//! the flags, and where the tensors that live inside a step overlap each other.

use std::fmt;

use strata_backend_abi::StrataDType;

/// What an engine needs on its device, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    pub device: String,
    /// Weights that the device reads in the mapped file.
    pub weights_in_place: u64,
    /// Weights copied to the device.
    pub weights_copied: u64,
    pub kv: u64,
    /// Tensors that live inside a step.
    pub scratch: u64,
    /// Inputs, tables and logits.
    pub buffers: u64,
    /// What the plugin itself took when it compiled the programs; known once loaded.
    pub workspace: u64,
    /// Free on the device before loading.
    pub device_free: u64,
    /// To be left free.
    pub reserve: u64,
    /// Positions of one sequence.
    pub context: u64,
    pub n_sequences: u64,
    pub k_format: StrataDType,
    pub v_format: StrataDType,
    /// What was chosen or changed and why, a sentence each.
    pub notes: Vec<String>,
}

impl MemoryPlan {
    /// All bytes that must be taken. Weights used in place are not among them: the system can drop
    /// and reread their pages.
    pub fn needed(&self) -> u64 {
        self.weights_copied + self.kv + self.scratch + self.buffers + self.workspace
    }

    pub fn weights(&self) -> u64 {
        self.weights_in_place + self.weights_copied
    }

    pub(crate) fn cache_is_wider_than_f16(&self) -> bool {
        self.k_format == StrataDType::F32 || self.v_format == StrataDType::F32
    }

    /// The numbers by name, for messages.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("device", self.device.clone()),
            ("max-context", self.context.to_string()),
            ("kv", self.kv_words()),
            ("weights in place", format!("{} bytes", self.weights_in_place)),
            ("weights copied", format!("{} bytes", self.weights_copied)),
            ("kv cache", format!("{} bytes", self.kv)),
            ("scratch", format!("{} bytes", self.scratch)),
            ("inputs and logits", format!("{} bytes", self.buffers)),
            ("workspace", format!("{} bytes", self.workspace)),
            ("needed", format!("{} bytes", self.needed())),
            ("free", format!("{} bytes", self.device_free)),
            ("reserve", format!("{} bytes", self.reserve)),
        ]
    }

    /// The cache's formats as `--kv` takes them: `f16`, or `f16,f32` for keys and values.
    pub fn kv_words(&self) -> String {
        let [k, v] = [self.k_format, self.v_format].map(|dtype| dtype.name().to_ascii_lowercase());
        if k == v { k } else { format!("{k},{v}") }
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory on {}: {} free", self.device, mib(self.device_free))?;
        writeln!(
            f,
            "  weights {} ({} in place, {} copied)",
            mib(self.weights()),
            mib(self.weights_in_place),
            mib(self.weights_copied)
        )?;
        let sequences =
            if self.n_sequences == 1 { String::new() } else { format!(" × {} sequences", self.n_sequences) };
        writeln!(
            f,
            "  kv cache {} (--max-context {}{sequences}, --kv {})",
            mib(self.kv),
            self.context,
            self.kv_words()
        )?;
        writeln!(
            f,
            "  scratch {}, inputs and logits {}, workspace {}",
            mib(self.scratch),
            mib(self.buffers),
            mib(self.workspace)
        )?;
        write!(f, "  taken {}, reserve {}", mib(self.needed()), mib(self.reserve))?;
        for note in &self.notes {
            write!(f, "\n  {note}")?;
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// How long a scratch tensor is needed, in op numbers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// A multiple of the buffer alignment.
    pub(crate) bytes: u64,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Places each tensor so that no two that are needed at one time share a byte. Returns the offsets
/// and the bytes of the whole. In order of first need, each as low as it can go: few are needed at
/// one time, so this takes time in proportion to their number, whatever a file makes of it.
pub(crate) fn plan_scratch(lifetimes: &[Lifetime]) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|index| (lifetimes[*index].first, *index));
    let mut offsets = vec![0; lifetimes.len()];
    // Placed tensors that are still needed, in order of offset.
    let mut live: Vec<usize> = Vec::new();
    let mut total = 0;
    for index in order {
        let life = &lifetimes[index];
        live.retain(|other| lifetimes[*other].last >= life.first);
        let mut offset = 0;
        let mut at = live.len();
        for (place, other) in live.iter().enumerate() {
            if offset + life.bytes <= offsets[*other] {
                at = place;
                break;
            }
            offset = offsets[*other] + lifetimes[*other].bytes;
        }
        offsets[index] = offset;
        total = total.max(offset + life.bytes);
        live.insert(at, index);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tensors_needed_at_one_time_never_share_a_byte(
            lives in proptest::collection::vec((1u64..20, 0usize..40, 0usize..12), 1..60)
        ) {
            let lives: Vec<Lifetime> = lives
                .into_iter()
                .map(|(units, first, length)| Lifetime { bytes: units * 256, first, last: first + length })
                .collect();
            let (offsets, total) = plan_scratch(&lives);
            for (i, a) in lives.iter().enumerate() {
                prop_assert!(offsets[i] % 256 == 0 && offsets[i] + a.bytes <= total);
                for (j, b) in lives.iter().enumerate().skip(i + 1) {
                    let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                    let meet = a.first <= b.last && b.first <= a.last;
                    prop_assert!(apart || !meet, "{i} and {j} overlap");
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_room_for_two_links_only() {
        let chain: Vec<Lifetime> = (0..30).map(|i| Lifetime { bytes: 512, first: i, last: i + 1 }).collect();
        assert_eq!(plan_scratch(&chain).1, 1024);
    }
}
