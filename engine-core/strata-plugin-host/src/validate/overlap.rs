//! Whether two views of one buffer share a byte. Exact for what programs hold (a part of each
//! row of a wider tensor beside another part of it); else it errs on the side of "yes".

use super::view::View;

pub(super) fn overlaps(a: &View, b: &View) -> bool {
    if a.buffer != b.buffer {
        return false;
    }
    let apart = a.offset + a.span <= b.offset || b.offset + b.span <= a.offset;
    !apart && !(1..4).any(|k| interleave(a, b, k))
}

/// Whether both repeat with one pitch, that of dimension k and all above, and keep to different
/// parts of each period.
fn interleave(a: &View, b: &View, k: usize) -> bool {
    let Some(pitch) = pitch(a, b, k) else { return false };
    let (Some(inner_a), Some(inner_b)) = (inner_span(a, k), inner_span(b, k)) else { return false };
    // A period begins wherever `a` does: views need not start at a multiple of the pitch.
    let start_b = if b.offset >= a.offset {
        (b.offset - a.offset) % pitch
    } else {
        (pitch - (a.offset - b.offset) % pitch) % pitch
    };
    inner_a <= start_b && start_b.checked_add(inner_b).is_some_and(|end_b| end_b <= pitch)
}

/// The common pitch: the smallest outer stride, of which every other outer stride is a multiple.
fn pitch(a: &View, b: &View, k: usize) -> Option<u64> {
    let strides =
        || [a, b].into_iter().flat_map(move |view| (k..4).filter(|j| view.dims[*j].ne > 1).map(|j| view.nb[j]));
    let pitch = strides().min()?;
    (pitch > 0 && strides().all(|stride| stride.is_multiple_of(pitch))).then_some(pitch)
}

fn inner_span(view: &View, k: usize) -> Option<u64> {
    (1..k).try_fold(view.row, |span, j| (view.dims[j].ne - 1).checked_mul(view.nb[j])?.checked_add(span))
}
