//! Raw memory and the views into it: the one place where an address becomes a slice.
//!
//! The rules that make this sound, and who keeps them:
//! - The host validates a program: every view lies inside its buffer (checked here once more when
//!   a view is made, since it costs nothing then), outputs overlap inputs only where the op says so.
//! - program.rs orders stages: what one stage writes is read by later stages only.
//! - Within a stage each chunk writes rows of its own (the op's partition), and reads, of what the
//!   stage writes, only those.
//!
//! A slice of shared memory is handed out only for operands that the stage does not write
//! (weights, caches, prepared activations); whatever may be updated in place goes through
//! [`View::load`] and [`View::store`], which copy. Called by buffer.rs, program.rs and ops/.
#![expect(unsafe_code, reason = "maps memory and makes slices of it")]

use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};
use strata_backend_abi::{StrataDType, StrataTensor};
use strata_backend_sdk::{Failure, ForeignMemory, Result};

use crate::simd::Line;
use crate::simd::OutPart;

/// A range of host memory, ours or borrowed from the host.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    bytes: usize,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// An anonymous mapping of this many bytes, unmapped on drop.
    Mapped(usize),
    /// The host's, never written. Kept because its life is what keeps the bytes valid.
    Foreign(#[expect(dead_code, reason = "held for its lifetime")] ForeignMemory),
    /// No bytes at all.
    Empty,
}

// SAFETY: the memory is reached through copies and slices whose exclusiveness the module's rules give.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// Start of a buffer without bytes: aligned, never read.
const NO_BYTES: usize = 4096;

impl HostMemory {
    /// Zeroed memory, aligned to a page; pages are taken when they are first touched.
    pub(crate) fn map(bytes: usize) -> std::io::Result<HostMemory> {
        if bytes == 0 {
            let start = std::ptr::without_provenance_mut(NO_BYTES);
            return Ok(HostMemory { start, bytes, origin: Origin::Empty });
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping at an address of the system's choice touches nothing of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(HostMemory { start: start.cast(), bytes, origin: Origin::Mapped(bytes) })
    }

    /// The host's memory, used in place.
    pub(crate) fn foreign(memory: ForeignMemory) -> HostMemory {
        let start = memory.as_ptr().cast_mut();
        HostMemory { start, bytes: memory.len(), origin: Origin::Foreign(memory) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.origin, Origin::Foreign(_))
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.start
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset} of a buffer of {}", self.bytes);
        self.start.wrapping_add(offset)
    }

    /// Address of `n` elements at `offset`, checked to be inside and aligned.
    fn elements<T>(&self, offset: usize, n: usize) -> *mut T {
        let start = self.at(offset, n * size_of::<T>()).cast::<T>();
        assert!(start.is_aligned(), "elements at {offset} are not aligned");
        start
    }

    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let source = self.at(offset, out.len());
        // SAFETY: `at` checked the range; `out` is a slice of its own.
        unsafe { std::ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) };
    }

    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        assert!(self.is_writable(), "a write to imported memory");
        let target = self.at(offset, data.len());
        // SAFETY: `at` checked the range; the device's calls come one at a time, and stages write disjoint ranges.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target, data.len()) };
    }

    pub(crate) fn copy(&self, offset: usize, source: &HostMemory, source_offset: usize, bytes: usize) {
        assert!(self.is_writable(), "a copy to imported memory");
        let target = self.at(offset, bytes);
        let source = source.at(source_offset, bytes);
        // SAFETY: `at` checked both ranges; `copy` allows that they overlap.
        unsafe { std::ptr::copy(source, target, bytes) };
    }

    /// Bytes that no running stage writes.
    fn shared(&self, offset: usize, bytes: usize) -> &[u8] {
        let start = self.at(offset, bytes);
        // SAFETY: `at` checked the range; the module's rules say that the stage does not write it.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Origin::Mapped(bytes) = self.origin {
            // SAFETY: the mapping is ours, of this size, and nobody holds a slice of it any more.
            unsafe { libc::munmap(self.start.cast(), bytes) };
        }
    }
}

/// A dimension's extent: fixed, or the value of a scalar in a run, at most `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) most: usize,
    pub(crate) scalar: Option<usize>,
}

impl Extent {
    pub(crate) const ONE: Extent = Extent { most: 1, scalar: None };

    pub(crate) fn value(self, scalars: &[i64]) -> usize {
        match self.scalar {
            None => self.most,
            Some(index) => usize::try_from(scalars.get(index).copied().unwrap_or(0)).unwrap_or(0).min(self.most),
        }
    }
}

/// Index of a row: dimensions 1 to 3.
pub(crate) type RowIndex = [usize; 3];

/// A strided view of typed elements in a buffer.
#[derive(Debug, Clone)]
pub(crate) struct View {
    memory: Arc<HostMemory>,
    offset: usize,
    pub(crate) dtype: StrataDType,
    pub(crate) ne: [usize; 4],
    nb: [usize; 4],
    scalar: [Option<usize>; 4],
    /// Bytes from the first element to the end of the last.
    span: usize,
}

impl View {
    /// Reads a tensor description; fails when it does not fit its buffer.
    pub(crate) fn new(tensor: &StrataTensor, memory: &Arc<HostMemory>) -> Result<View> {
        let shape = Shape::new(tensor)?;
        let offset = usize::try_from(tensor.offset).map_err(|_| Failure::host_bug("an offset past 64 bits"))?;
        let end = offset.checked_add(shape.span).filter(|end| *end <= memory.len());
        if end.is_none() {
            return Err(Failure::host_bug(format_args!(
                "a tensor of {} bytes at {offset} does not fit a buffer of {}",
                shape.span,
                memory.len()
            )));
        }
        let view = View {
            memory: Arc::clone(memory),
            offset,
            dtype: shape.dtype,
            ne: shape.ne,
            nb: shape.nb,
            scalar: shape.scalar,
            span: shape.span,
        };
        let unit = shape.dtype.block_bytes();
        let plain = !shape.dtype.is_quantised();
        let address = memory.address().addr().wrapping_add(offset);
        if plain && (!address.is_multiple_of(unit) || shape.nb[1..].iter().any(|step| !step.is_multiple_of(unit))) {
            return Err(Failure::host_bug(format_args!("a {} tensor whose elements are not aligned", shape.dtype)));
        }
        Ok(view)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.memory.is_writable()
    }

    pub(crate) fn extent(&self, dimension: usize) -> Extent {
        Extent { most: self.ne[dimension], scalar: self.scalar[dimension] }
    }

    pub(crate) fn stride(&self, dimension: usize) -> usize {
        self.nb[dimension]
    }

    /// Whether two views have bytes in common, taking each as one range.
    pub(crate) fn overlaps(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
            && self.offset < other.offset + other.span
            && other.offset < self.offset + self.span
    }

    /// Whether both views are the same elements in the same order.
    pub(crate) fn same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
            && (self.offset, self.dtype, self.ne, self.nb) == (other.offset, other.dtype, other.ne, other.nb)
    }

    /// Start and length in the buffer of everything at one index of dimension `unit`, at index 0.
    pub(crate) fn unit_range(&self, unit: usize) -> (usize, usize) {
        let beyond = self.ne[unit].saturating_sub(1) * self.nb[unit];
        (self.offset, self.span.saturating_sub(beyond))
    }

    fn row_offset(&self, row: RowIndex) -> usize {
        let mut offset = self.offset;
        for (dimension, index) in row.into_iter().enumerate() {
            assert!(index < self.ne[dimension + 1], "row {row:?} of a tensor of {:?}", self.ne);
            offset += index * self.nb[dimension + 1];
        }
        offset
    }

    fn row_bytes(&self) -> usize {
        self.ne[0] / self.dtype.block_len() * self.dtype.block_bytes()
    }

    /// The bytes of a row of an operand that the stage does not write.
    pub(crate) fn bytes(&self, row: RowIndex) -> &[u8] {
        self.memory.shared(self.row_offset(row), self.row_bytes())
    }

    /// All rows along dimension 1 at the given indices of dimensions 2 and 3, as one slice; rows lie `stride(1)` apart.
    pub(crate) fn matrix(&self, outer: [usize; 2]) -> &[u8] {
        let start = self.row_offset([0, outer[0], outer[1]]);
        self.memory.shared(start, (self.ne[1] - 1) * self.nb[1] + self.row_bytes())
    }

    /// A row of an F32 operand that the stage does not write.
    pub(crate) fn floats(&self, row: RowIndex) -> &[f32] {
        assert_eq!(self.dtype, StrataDType::F32, "format of a float operand");
        let bytes = self.bytes(row);
        // SAFETY: `new` checked that F32 rows are aligned; any bits are a float; the length is whole elements.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 4) }
    }

    /// A row of a 16-bit operand that the stage does not write, as bits.
    pub(crate) fn halves(&self, row: RowIndex) -> &[u16] {
        assert_eq!(self.dtype.block_bytes(), 2, "format of a 16-bit operand");
        let bytes = self.bytes(row);
        // SAFETY: `new` checked that rows of plain types are aligned; any bits are a u16.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 2) }
    }

    /// `n` rows of a 16-bit operand that the stage does not write, from `row` on along `dimension`,
    /// as bits; and how many elements lie from one row to the next.
    pub(crate) fn half_rows(&self, row: RowIndex, dimension: usize, n: usize) -> (&[u16], usize) {
        assert_eq!(self.dtype.block_bytes(), 2, "format of a 16-bit operand");
        let mut last = row;
        last[dimension - 1] += n - 1;
        let (start, end) = (self.row_offset(row), self.row_offset(last) + self.row_bytes());
        let bytes = self.memory.shared(start, end - start);
        // SAFETY: `new` checked that rows of plain types are aligned; any bits are a u16.
        let halves = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 2) };
        (halves, self.nb[dimension] / 2)
    }

    /// Copies elements `start..start + out.len()` of a row, converted to F32.
    pub(crate) fn load(&self, row: RowIndex, start: usize, out: &mut [f32]) {
        match self.dtype {
            StrataDType::F32 => {
                let source = self.elements::<f32>(row, start, out.len());
                // SAFETY: `elements` checked the range; `out` is a slice of its own.
                unsafe { std::ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) };
            }
            StrataDType::F16 | StrataDType::BF16 => {
                let source = self.elements::<u16>(row, start, out.len());
                for (index, value) in out.iter_mut().enumerate() {
                    let element = source.wrapping_add(index);
                    // SAFETY: `elements` checked the range and the alignment.
                    let bits = unsafe { element.read() };
                    *value = widen(self.dtype, bits);
                }
            }
            other => panic!("elements of {other} are read in blocks"),
        }
    }

    /// Writes elements `start..start + values.len()` of a row, converted from F32.
    pub(crate) fn store(&self, row: RowIndex, start: usize, values: &[f32]) {
        assert!(self.is_writable(), "an output in imported memory");
        match self.dtype {
            StrataDType::F32 => {
                let target = self.elements::<f32>(row, start, values.len());
                // SAFETY: `elements` checked the range; this chunk alone writes the row.
                unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), target, values.len()) };
            }
            StrataDType::F16 | StrataDType::BF16 => {
                let target = self.elements::<u16>(row, start, values.len());
                for (index, value) in values.iter().enumerate() {
                    let bits = match self.dtype {
                        StrataDType::F16 => f16::from_f32(*value).to_bits(),
                        _ => bf16::from_f32(*value).to_bits(),
                    };
                    let element = target.wrapping_add(index);
                    // SAFETY: `elements` checked range and alignment; this chunk alone writes the row.
                    unsafe { element.write(bits) };
                }
            }
            other => panic!("elements of {other} cannot be written one by one"),
        }
    }

    /// Writes 16-bit elements of a whole row.
    pub(crate) fn store_halves(&self, row: RowIndex, values: &[u16]) {
        assert_eq!(self.dtype.block_bytes(), 2, "format of a 16-bit operand");
        assert!(self.is_writable(), "an output in imported memory");
        let target = self.elements::<u16>(row, 0, values.len());
        // SAFETY: `elements` checked range and alignment; this chunk alone writes the row.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), target, values.len()) };
    }

    pub(crate) fn load_i32(&self, row: RowIndex, index: usize) -> i32 {
        assert_eq!(self.dtype, StrataDType::I32, "format of an index operand");
        // SAFETY: `elements` checked the range and the alignment.
        unsafe { self.elements::<i32>(row, index, 1).read() }
    }

    pub(crate) fn store_i32(&self, row: RowIndex, index: usize, value: i32) {
        assert_eq!(self.dtype, StrataDType::I32, "format of an index operand");
        assert!(self.is_writable(), "an output in imported memory");
        // SAFETY: `elements` checked range and alignment; this chunk alone writes the row.
        unsafe { self.elements::<i32>(row, index, 1).write(value) };
    }

    fn elements<T>(&self, row: RowIndex, start: usize, n: usize) -> *mut T {
        assert!(start + n <= self.ne[0], "elements {start}..{} of a row of {}", start + n, self.ne[0]);
        self.memory.elements(self.row_offset(row) + start * size_of::<T>(), n)
    }

    /// Exclusive access to `rows` of every column of an F32 result `[M, columns]`. Columns lie
    /// `column_dimension`'s stride apart.
    pub(crate) fn out_part(&self, rows: Range<usize>, n_columns: usize, column_dimension: usize) -> OutPart<'_> {
        assert!(self.dtype == StrataDType::F32 && self.is_writable(), "a result that is no F32 output");
        assert!(rows.end <= self.ne[0] && n_columns <= self.columns(column_dimension), "a part past the result");
        let start = self.memory.elements::<f32>(self.offset, self.span / 4);
        // SAFETY: `new` checked the view's range and alignment; rows of different chunks are disjoint.
        unsafe { OutPart::new(start, self.nb[column_dimension] / 4, rows, n_columns) }
    }

    /// Columns that lie at even distance when counted along `column_dimension`: of `[M, k, T]`
    /// taken along dimension 1 all `k·T`, if the outer dimension continues the inner one.
    fn columns(&self, column_dimension: usize) -> usize {
        let mut n = self.ne[column_dimension];
        for dimension in column_dimension + 1..4 {
            if self.ne[dimension] > 1 && self.nb[dimension] == self.nb[column_dimension] * n {
                n *= self.ne[dimension];
            }
        }
        n
    }
}

/// The 16-bit float formats' value.
pub(crate) fn widen(dtype: StrataDType, bits: u16) -> f32 {
    if dtype == StrataDType::F16 { f16::from_bits(bits).to_f32() } else { bf16::from_bits(bits).to_f32() }
}

/// Shape of a tensor, checked for arithmetic that wraps. Needs no buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) dtype: StrataDType,
    pub(crate) ne: [usize; 4],
    pub(crate) nb: [usize; 4],
    pub(crate) scalar: [Option<usize>; 4],
    pub(crate) span: usize,
}

impl Shape {
    pub(crate) fn new(tensor: &StrataTensor) -> Result<Shape> {
        let dtype = StrataDType::from_number(tensor.dtype)
            .ok_or_else(|| Failure::unsupported(format!("element format {} is not known here", tensor.dtype)))?;
        let size = |value: u64| usize::try_from(value).map_err(|_| Failure::host_bug("a size past the address space"));
        let mut ne = [1; 4];
        let mut nb = [0; 4];
        let row = dtype.row_bytes(tensor.ne[0]);
        let mut span = row.ok_or_else(|| {
            Failure::host_bug(format_args!("rows of {} elements are no whole {dtype} blocks", tensor.ne[0]))
        })?;
        for dimension in 0..4 {
            ne[dimension] = size(tensor.ne[dimension])?;
            nb[dimension] = size(tensor.nb[dimension])?;
            if dimension > 0 {
                let beyond = tensor.ne[dimension].saturating_sub(1).checked_mul(tensor.nb[dimension]);
                span = beyond
                    .and_then(|beyond| span.checked_add(beyond))
                    .ok_or_else(|| Failure::host_bug("a tensor whose size wraps"))?;
            }
        }
        if ne.contains(&0) {
            span = 0;
        }
        let scalar = tensor.dynamic.map(|scalar| (scalar as usize).checked_sub(1));
        Ok(Shape { dtype, ne, nb, scalar, span: size(span)? })
    }
}

/// Workspace rows of whole cache lines: prepared activations.
#[derive(Debug, Clone)]
pub(crate) struct LineRows {
    memory: Arc<HostMemory>,
    offset: usize,
    n_rows: usize,
    lines_per_row: usize,
}

impl LineRows {
    /// `offset` is a multiple of a line; `memory` is page-aligned like all of ours.
    pub(crate) fn new(memory: &Arc<HostMemory>, offset: usize, n_rows: usize, lines_per_row: usize) -> LineRows {
        let bytes = n_rows * lines_per_row * size_of::<Line>();
        assert!(offset.is_multiple_of(align_of::<Line>()) && memory.is_writable());
        memory.at(offset, bytes);
        LineRows { memory: Arc::clone(memory), offset, n_rows, lines_per_row }
    }

    /// Whether both are the same memory.
    pub(crate) fn same(&self, other: &LineRows) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.offset == other.offset
    }

    /// Lets `write` fill one row. This chunk alone writes it.
    pub(crate) fn fill<R>(&self, row: usize, write: impl FnOnce(&mut [Line]) -> R) -> R {
        assert!(row < self.n_rows, "row {row} of {} workspace rows", self.n_rows);
        let offset = self.offset + row * self.lines_per_row * size_of::<Line>();
        let start = self.memory.elements::<Line>(offset, self.lines_per_row);
        // SAFETY: in range and aligned; lines are plain bytes; this chunk alone has the row.
        write(unsafe { std::slice::from_raw_parts_mut(start, self.lines_per_row) })
    }

    /// The first `n_rows` rows, which no running stage writes.
    pub(crate) fn rows(&self, n_rows: usize) -> &[Line] {
        assert!(n_rows <= self.n_rows, "{n_rows} of {} workspace rows", self.n_rows);
        let lines = n_rows * self.lines_per_row;
        let start = self.memory.elements::<Line>(self.offset, lines);
        // SAFETY: in range and aligned; lines are plain bytes; nobody writes them now.
        unsafe { std::slice::from_raw_parts(start, lines) }
    }
}

/// Workspace rows of floats: partial results of a stage that a later one reads.
#[derive(Debug, Clone)]
pub(crate) struct FloatRows {
    memory: Arc<HostMemory>,
    offset: usize,
    n_rows: usize,
    row_len: usize,
}

impl FloatRows {
    pub(crate) fn new(memory: &Arc<HostMemory>, offset: usize, n_rows: usize, row_len: usize) -> FloatRows {
        assert!(offset.is_multiple_of(align_of::<f32>()) && memory.is_writable());
        memory.at(offset, n_rows * row_len * size_of::<f32>());
        FloatRows { memory: Arc::clone(memory), offset, n_rows, row_len }
    }

    /// Lets `write` fill one row. This chunk alone writes it.
    pub(crate) fn fill<R>(&self, row: usize, write: impl FnOnce(&mut [f32]) -> R) -> R {
        assert!(row < self.n_rows, "row {row} of {} workspace rows", self.n_rows);
        let start = self.memory.elements::<f32>(self.offset + row * self.row_len * size_of::<f32>(), self.row_len);
        // SAFETY: in range and aligned; any bits are a float; this chunk alone has the row.
        write(unsafe { std::slice::from_raw_parts_mut(start, self.row_len) })
    }

    /// A row that no running stage writes.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.n_rows, "row {row} of {} workspace rows", self.n_rows);
        let start = self.memory.elements::<f32>(self.offset + row * self.row_len * size_of::<f32>(), self.row_len);
        // SAFETY: in range and aligned; any bits are a float; nobody writes it now.
        unsafe { std::slice::from_raw_parts(start, self.row_len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: StrataDType, offset: u64, ne: [u64; 4]) -> StrataTensor {
        let mut nb = [dtype.block_bytes() as u64; 4];
        nb[1] = dtype.row_bytes(ne[0]).unwrap();
        nb[2] = nb[1].wrapping_mul(ne[1]);
        nb[3] = nb[2].wrapping_mul(ne[2]);
        StrataTensor {
            struct_size: size_of::<StrataTensor>() as u32,
            dtype: dtype as u32,
            buffer: 0,
            flags: 0,
            offset,
            ne,
            nb,
            dynamic: [0; 4],
        }
    }

    #[test]
    fn memory_is_zeroed_and_aligned() {
        let memory = HostMemory::map(10_000).unwrap();
        assert_eq!(memory.address().addr() % 256, 0);
        let mut bytes = [1; 100];
        memory.read(9_900, &mut bytes);
        assert_eq!(bytes, [0; 100]);
        assert_eq!(HostMemory::map(0).unwrap().len(), 0);
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert!(HostMemory::map(usize::MAX / 2).is_err());
    }

    #[test]
    fn a_view_past_its_buffer_is_refused() {
        let memory = Arc::new(HostMemory::map(1024).unwrap());
        assert!(View::new(&tensor(StrataDType::F32, 0, [16, 16, 1, 1]), &memory).is_ok());
        assert!(View::new(&tensor(StrataDType::F32, 4, [16, 16, 1, 1]), &memory).is_err());
        assert!(View::new(&tensor(StrataDType::F32, u64::MAX, [16, 1, 1, 1]), &memory).is_err());
        assert!(View::new(&tensor(StrataDType::F32, 0, [16, u64::MAX / 4, 1, 1]), &memory).is_err());
        assert!(View::new(&tensor(StrataDType::F32, 2, [16, 1, 1, 1]), &memory).is_err());
    }

    #[test]
    fn load_and_store_convert() {
        let memory = Arc::new(HostMemory::map(1024).unwrap());
        for dtype in [StrataDType::F32, StrataDType::F16, StrataDType::BF16] {
            let view = View::new(&tensor(dtype, 256, [8, 3, 2, 1]), &memory).unwrap();
            view.store([2, 1, 0], 1, &[1.0, -2.5]);
            let mut out = [9.0; 4];
            view.load([2, 1, 0], 0, &mut out);
            assert_eq!(out, [0.0, 1.0, -2.5, 0.0]);
        }
    }

    #[test]
    fn ranges_and_overlap() {
        let memory = Arc::new(HostMemory::map(4096).unwrap());
        let view = |offset, ne| View::new(&tensor(StrataDType::F32, offset, ne), &memory).unwrap();
        let a = view(0, [4, 8, 2, 1]);
        assert_eq!(a.unit_range(2), (0, 128));
        assert!(a.overlaps(&view(240, [4, 1, 1, 1])));
        assert!(!a.overlaps(&view(256, [4, 1, 1, 1])));
        assert!(a.same(&view(0, [4, 8, 2, 1])));
        assert!(!a.same(&view(0, [4, 16, 1, 1])));
    }
}
