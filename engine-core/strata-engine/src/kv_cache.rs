//! The KV cache: where keys and values of each layer lie in the one cache buffer, and which pages
//! belong to which sequence. Sequences are data (a page table and a sequence number per token), so
//! that several can share a step. A `Session` has a fixed share of the pages; a `Scheduler` hands
//! them out as its requests need them (`batch/pages.rs`).

use strata_backend_abi::{SizedStruct, StrataDType, StrataTensor};

use crate::error::EngineError;
use crate::hyperparameters::Hyperparameters;
use crate::weights::align;

/// Cells of a page. Small, so that a short context does not pay for a long one's granule; large
/// enough that reading a page is one run of memory for each head.
pub(crate) const PAGE_CELLS: u64 = 64;

/// Storage formats of the cache, as `--kv` names them.
pub const CACHE_FORMATS: [StrataDType; 2] = [StrataDType::F16, StrataDType::F32];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachePart {
    Keys,
    Values,
}

/// Shapes and places of the whole cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheLayout {
    /// Positions that each sequence may have.
    pub(crate) context: u64,
    pub(crate) n_sequences: u64,
    pub(crate) pages_per_sequence: u64,
    pub(crate) k: StrataDType,
    pub(crate) v: StrataDType,
    head_dim_k: u64,
    head_dim_v: u64,
    n_heads: u64,
    n_cells: u64,
    k_bytes: u64,
    layer_bytes: u64,
    /// Of all layers.
    pub(crate) bytes: u64,
}

impl CacheLayout {
    pub(crate) fn new(
        hyper: &Hyperparameters,
        context: u64,
        n_sequences: u64,
        k: StrataDType,
        v: StrataDType,
    ) -> Result<CacheLayout, EngineError> {
        for (option, dtype) in [("--kv (keys)", k), ("--kv (values)", v)] {
            if !CACHE_FORMATS.contains(&dtype) {
                return Err(EngineError::BadOption {
                    option,
                    value: dtype.name().to_ascii_lowercase(),
                    why: "the cache is stored as f16 or f32".to_owned(),
                });
            }
        }
        let pages_per_sequence = context.div_ceil(PAGE_CELLS);
        let too_long = || EngineError::BadOption {
            option: "--max-context",
            value: context.to_string(),
            why: "a cache of that length has more than 2^63 bytes".to_owned(),
        };
        let cells = |dtype: StrataDType, dim: u64| {
            let n_cells = pages_per_sequence.checked_mul(PAGE_CELLS)?.checked_mul(n_sequences)?;
            let bytes = dtype.row_bytes(dim)?.checked_mul(hyper.n_heads_kv)?.checked_mul(n_cells)?;
            Some((n_cells, align(i64::try_from(bytes).ok()?.cast_unsigned())))
        };
        let (n_cells, k_bytes) = cells(k, hyper.head_dim_k).ok_or_else(too_long)?;
        let (_, v_bytes) = cells(v, hyper.head_dim_v).ok_or_else(too_long)?;
        let layer_bytes = k_bytes.checked_add(v_bytes).ok_or_else(too_long)?;
        let bytes = layer_bytes.checked_mul(hyper.n_layers).filter(|bytes| i64::try_from(*bytes).is_ok());
        Ok(CacheLayout {
            context,
            n_sequences,
            pages_per_sequence,
            k,
            v,
            head_dim_k: hyper.head_dim_k,
            head_dim_v: hyper.head_dim_v,
            n_heads: hyper.n_heads_kv,
            n_cells,
            k_bytes,
            layer_bytes,
            bytes: bytes.ok_or_else(too_long)?,
        })
    }

    /// The cache of one layer, [head dim, heads, cells]. Cells of one head lie next to each other:
    /// attention reads one head's keys of many positions, never many heads' of one position.
    pub(crate) fn tensor(&self, layer: u64, part: CachePart, buffer: u32) -> StrataTensor {
        let (dtype, dim, start) = match part {
            CachePart::Keys => (self.k, self.head_dim_k, 0),
            CachePart::Values => (self.v, self.head_dim_v, self.k_bytes),
        };
        let row = dtype.row_bytes(dim).unwrap_or(0);
        StrataTensor {
            struct_size: StrataTensor::SIZE,
            dtype: dtype as u32,
            buffer,
            flags: 0,
            offset: layer * self.layer_bytes + start,
            ne: [dim, self.n_heads, self.n_cells, 1],
            nb: [dtype.block_bytes() as u64, row * self.n_cells, row, row * self.n_cells * self.n_heads],
            dynamic: [0; 4],
        }
    }

    pub(crate) fn n_pages(&self) -> u64 {
        self.n_cells / PAGE_CELLS
    }

    /// Bytes of a page, over all layers.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_runs(0, PAGE_CELLS).map(|(_, bytes)| bytes).sum()
    }

    /// Where the first `cells` cells of a page lie in the cache buffer: (offset, bytes) of each run.
    pub(crate) fn page_runs(&self, page: u32, cells: u64) -> impl Iterator<Item = (u64, u64)> {
        let parts = [(self.k, self.head_dim_k, 0), (self.v, self.head_dim_v, self.k_bytes)];
        let layers = 0..self.bytes.checked_div(self.layer_bytes).unwrap_or(0);
        layers.flat_map(move |layer| {
            parts.into_iter().flat_map(move |(dtype, dim, start)| {
                let row = dtype.row_bytes(dim).unwrap_or(0);
                let first = layer * self.layer_bytes + start + u64::from(page) * PAGE_CELLS * row;
                (0..self.n_heads).map(move |head| (first + head * self.n_cells * row, cells * row))
            })
        })
    }

    pub(crate) fn page_table_bytes(&self) -> u64 {
        self.pages_per_sequence * self.n_sequences * 4
    }

    /// The page table: sequence s owns the pages from `s·pages_per_sequence` on.
    pub(crate) fn page_table(&self) -> Vec<u8> {
        (0..self.pages_per_sequence * self.n_sequences).flat_map(|page| (page as i32).to_le_bytes()).collect()
    }
}
