//! The plugin's `simd` module without what needs the rest of the plugin.
#![expect(unsafe_code, reason = "the sources of the plugin's kernels")]

#[path = "../../src/simd/lines.rs"]
mod lines;
#[path = "../../src/simd/out.rs"]
mod out;
#[cfg(target_arch = "x86_64")]
#[path = "../../src/simd/x86/mod.rs"]
pub(crate) mod x86;

pub(crate) use lines::*;
pub(crate) use out::OutPart;

/// All of a matrix of `rows` values a column.
pub(crate) fn whole(values: &mut [f32], rows: usize) -> OutPart<'_> {
    let n_columns = values.len() / rows;
    // SAFETY: the slice is borrowed exclusively for as long and holds `rows · n_columns` elements.
    unsafe { OutPart::new(values.as_mut_ptr(), rows, 0..rows, n_columns) }
}
