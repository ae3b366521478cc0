//! One tensor: its fields make sense, and all of it lies within its buffer.

use super::refuse;
use crate::describe::{dimension_text, shape_text};
use crate::{PluginError, ProgramSpec};
use std::fmt;
use strata_backend_abi::{STRATA_TENSOR_CONSTANT, SizedStruct, StrataDType, StrataScalar, StrataTensor};

/// Buffers that a program may name when their sizes are not known yet.
const MAX_BUFFERS: u32 = 1 << 16;

/// One dimension: its greatest size, and the scalar (plus 1) that sets it in a run or 0.
/// Two dimensions are the same when both agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) ne: u64,
    pub(super) dynamic: u32,
}

impl Extent {
    pub(super) const ONE: Extent = Extent { ne: 1, dynamic: 0 };

    pub(super) fn is_fixed(self) -> bool {
        self.dynamic == 0
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dimension_text(self.ne, self.dynamic))
    }
}

/// A tensor that passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) index: usize,
    pub(super) dtype: StrataDType,
    pub(super) buffer: u32,
    pub(super) constant: bool,
    pub(super) offset: u64,
    pub(super) dims: [Extent; 4],
    pub(super) nb: [u64; 4],
    /// Bytes of a row.
    pub(super) row: u64,
    /// Bytes from the first to the last, that one included.
    pub(super) span: u64,
}

impl View {
    /// Checks tensor `index`; `buffer_bytes` is `None` while buffers do not exist.
    pub(super) fn check(spec: &ProgramSpec, index: usize, buffer_bytes: Option<&[u64]>) -> Result<View, PluginError> {
        let tensor = &spec.tensors[index];
        View::new(spec, index, tensor)
            .and_then(|view| view.within(buffer_bytes).map(|()| view))
            .map_err(|rule| refuse(spec, format!("tensor {index}"), rule))
    }

    fn new(spec: &ProgramSpec, index: usize, tensor: &StrataTensor) -> Result<View, String> {
        let StrataTensor { struct_size, dtype, buffer, flags, offset, ne, nb, dynamic } = *tensor;
        if struct_size != StrataTensor::SIZE {
            return Err(format!("struct_size {struct_size}, this ABI has {}", StrataTensor::SIZE));
        }
        let dtype = StrataDType::from_number(dtype).ok_or_else(|| format!("unknown format {dtype}"))?;
        if flags & !STRATA_TENSOR_CONSTANT != 0 {
            return Err(format!("unknown flags {flags:#x}"));
        }
        let constant = flags & STRATA_TENSOR_CONSTANT != 0;
        let mut dims = [Extent::ONE; 4];
        for k in 0..4 {
            dims[k] = Extent { ne: ne[k], dynamic: dynamic[k] };
            dimension(spec, k, dims[k])?;
        }
        if constant && dims.iter().any(|dim| !dim.is_fixed()) {
            return Err("a constant tensor with a dynamic dimension".to_owned());
        }
        // The row length belongs to the plan of a kernel; only a vector of indices is as long as the step.
        if !dims[0].is_fixed() && (dtype != StrataDType::I32 || ne[1..] != [1, 1, 1]) {
            return Err("dimension 0 is dynamic and it is no vector of indices (I32, one dimension)".to_owned());
        }
        let row = dtype
            .row_bytes(ne[0])
            .ok_or_else(|| format!("a row of {} elements is no whole number of {dtype} blocks", ne[0]))?;
        let mut view = View { index, dtype, buffer, constant, offset, dims, nb, row, span: 0 };
        view.strides()?;
        view.span = view.extent()?;
        Ok(view)
    }

    fn strides(&self) -> Result<(), String> {
        let block = self.dtype.block_bytes() as u64;
        if self.nb[0] != block {
            return Err(format!("nb[0] is {}, {} needs {block}: rows are contiguous", self.nb[0], self.dtype));
        }
        let unit = if self.dtype.is_quantised() { u64::from(block.is_multiple_of(2)) + 1 } else { block };
        if !self.offset.is_multiple_of(unit) {
            return Err(format!("offset {} is no multiple of {unit}", self.offset));
        }
        for k in 1..4 {
            if self.dims[k].ne > 1 && !self.nb[k].is_multiple_of(block) {
                return Err(format!("nb[{k}] is {}, no multiple of {block}", self.nb[k]));
            }
        }
        // From the smallest stride up, each step must be as long as all that lies below it.
        let mut outer: Vec<usize> = (1..4).filter(|k| self.dims[*k].ne > 1).collect();
        outer.sort_by_key(|k| self.nb[*k]);
        let mut below = self.row;
        for k in outer {
            if self.nb[k] < below {
                return Err(format!("nb[{k}] is {}, elements would share bytes (at least {below} needed)", self.nb[k]));
            }
            let steps = (self.dims[k].ne - 1).checked_mul(self.nb[k]).and_then(|steps| steps.checked_add(below));
            below = steps.ok_or_else(|| format!("{} · nb[{k}] does not fit 64 bits", self.dims[k].ne))?;
        }
        Ok(())
    }

    fn extent(&self) -> Result<u64, String> {
        let mut span = self.row;
        for k in 1..4 {
            let steps = (self.dims[k].ne - 1).checked_mul(self.nb[k]);
            span = steps.and_then(|steps| span.checked_add(steps)).ok_or("its size does not fit 64 bits")?;
        }
        self.offset.checked_add(span).ok_or("its end does not fit 64 bits")?;
        Ok(span)
    }

    fn within(&self, buffer_bytes: Option<&[u64]>) -> Result<(), String> {
        let Some(sizes) = buffer_bytes else {
            return if self.buffer < MAX_BUFFERS { Ok(()) } else { Err(format!("buffer {}", self.buffer)) };
        };
        let size = *sizes
            .get(self.buffer as usize)
            .ok_or_else(|| format!("buffer {}, the program has {}", self.buffer, sizes.len()))?;
        let end = self.offset + self.span;
        if end > size {
            return Err(format!("bytes {} to {end} of buffer {}, which has {size}", self.offset, self.buffer));
        }
        Ok(())
    }

    /// Whether both are the very same view.
    pub(super) fn is_same(&self, other: &View) -> bool {
        let strides_agree = (1..4).all(|k| self.dims[k].ne == 1 || self.nb[k] == other.nb[k]);
        self.dtype == other.dtype
            && self.buffer == other.buffer
            && self.offset == other.offset
            && self.dims == other.dims
            && strides_agree
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ne, dynamic) = (self.dims.map(|dim| dim.ne), self.dims.map(|dim| dim.dynamic));
        f.write_str(&shape_text(self.dtype as u32, ne, dynamic))
    }
}

fn dimension(spec: &ProgramSpec, k: usize, dim: Extent) -> Result<(), String> {
    if dim.ne == 0 {
        return Err(format!("dimension {k} is 0"));
    }
    if dim.is_fixed() {
        return Ok(());
    }
    let scalar = dim.dynamic as usize - 1;
    let Some(max) = spec.scalar_max.get(scalar) else {
        return Err(format!("dimension {k} is set by scalar {scalar}, the program has {}", spec.scalar_max.len()));
    };
    if scalar == StrataScalar::Position as usize {
        return Err(format!("dimension {k} is set by the position, which counts nothing"));
    }
    if u64::try_from(*max) != Ok(dim.ne) {
        return Err(format!("dimension {k} is {}, its scalar's greatest value is {max}", dim.ne));
    }
    Ok(())
}
