//! Disjoint writing: each worker owns a range of rows of the result, for all columns.

use core::marker::PhantomData;
use core::ops::Range;

/// Exclusive access to the elements `rows × 0..n_columns` of an F32 matrix in memory, whose rows are
/// contiguous (one column holds its rows side by side) and whose columns lie `column_stride`
/// elements apart.
#[derive(Debug)]
pub(crate) struct OutPart<'a> {
    first: *mut f32,
    column_stride: usize,
    rows: Range<usize>,
    n_columns: usize,
    memory: PhantomData<&'a mut [f32]>,
}

impl OutPart<'_> {
    /// # Safety
    /// `first` is element (0, 0), aligned for `f32`. Every element of `rows × 0..n_columns` lies in
    /// one live allocation for `'a`, and nobody else reads or writes those elements meanwhile.
    pub(crate) unsafe fn new(first: *mut f32, column_stride: usize, rows: Range<usize>, n_columns: usize) -> Self {
        OutPart { first, column_stride, rows, n_columns, memory: PhantomData }
    }

    /// All of a matrix that one thread holds: `rows` values a column, columns back to back.
    #[cfg(test)]
    pub(crate) fn whole(values: &mut [f32], rows: usize) -> OutPart<'_> {
        let n_columns = values.len().checked_div(rows).unwrap_or(0);
        // SAFETY: the slice is borrowed exclusively for `'a` and holds `rows · n_columns` elements.
        unsafe { OutPart::new(values.as_mut_ptr(), rows, 0..rows, n_columns) }
    }

    /// Writes `values` to rows `row..` of a column. Inlined, so that a length that is known becomes plain stores.
    #[inline]
    pub(crate) fn put(&mut self, column: usize, row: usize, values: &[f32]) {
        assert!(column < self.n_columns && self.rows.start <= row && row + values.len() <= self.rows.end);
        // SAFETY: `new`'s caller guarantees the element, which the assertion keeps inside the part.
        let target = unsafe { self.first.add(column * self.column_stride + row) };
        // SAFETY: as above for all of `values`; a borrowed slice cannot overlap memory that
        // `new`'s caller made exclusive.
        unsafe { core::ptr::copy_nonoverlapping(values.as_ptr(), target, values.len()) };
    }
}
