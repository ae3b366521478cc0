//! The unsafe half of the boundary: every read and write through a pointer that came from the
//! host. The functions here check what can be checked (null, sizes, strides, lengths) and rely on
//! the host for the rest: that a pointer it passes is valid for the length it says.
#![expect(unsafe_code, reason = "reads and writes through the host's pointers")]

use core::ffi::c_void;

use strata_backend_abi::{
    STRATA_ABI_MINOR, SizedStruct, StrataBufferDesc, StrataDeviceInfo, StrataDeviceOptions, StrataEntryArgs,
    StrataEntryResult, StrataMemoryInfo, StrataOp, StrataProgramDesc, StrataProgramInfo, StrataRunArgs, StrataStr,
    StrataTensor, StrataTextOut, read_sized,
};

use crate::{Failure, Result};

/// A struct of the ABI and the size that it had in the first minor of this major: what every host
/// has at least. Fields that later minors append are optional and read as zero.
pub(crate) trait Wire: SizedStruct {
    const NAME: &'static str;
    const LEAST: u32;
}

macro_rules! wire {
    ($($name:ident = $least:literal),* $(,)?) => {$(
        impl Wire for $name {
            const NAME: &'static str = stringify!($name);
            const LEAST: u32 = $least;
        }
        // In the first minor the two are the same; afterwards the struct may only grow.
        const _: () = assert!(<$name as SizedStruct>::SIZE >= $least);
        const _: () = assert!(STRATA_ABI_MINOR > 0 || <$name as SizedStruct>::SIZE == $least);
    )*};
}

wire! {
    StrataTensor = 104,
    StrataOp = 176,
    StrataProgramDesc = 80,
    StrataProgramInfo = 24,
    StrataRunArgs = 48,
    StrataDeviceInfo = 96,
    StrataDeviceOptions = 32,
    StrataMemoryInfo = 32,
    StrataBufferDesc = 32,
    StrataEntryArgs = 56,
    StrataEntryResult = 32,
}

fn check_size<T: Wire>(declared: u32) -> Result<()> {
    if declared < T::LEAST {
        let (name, least) = (T::NAME, T::LEAST);
        return Err(Failure::host_bug(format_args!("{name} says {declared} bytes, the least is {least}")));
    }
    Ok(())
}

fn null(what: &str) -> Failure {
    Failure::host_bug(format_args!("{what} is a null pointer"))
}

/// Reads a struct that the host wrote.
///
/// # Safety
/// `source` is null, or valid for reading as many bytes as its `struct_size` says.
pub(crate) unsafe fn read<T: Wire>(source: *const T) -> Result<T> {
    if source.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: not null, so the caller guarantees at least the size field.
    check_size::<T>(unsafe { source.cast::<u32>().read_unaligned() })?;
    // SAFETY: the caller guarantees as many bytes as the size field says.
    Ok(unsafe { read_sized(source) })
}

/// Whether a struct that the host wants filled in is there and large enough; done before the work,
/// so that a call with a bad result place changes nothing.
///
/// # Safety
/// `target` is null, or valid for reading its size field.
pub(crate) unsafe fn check_target<T: Wire>(target: *const T) -> Result<()> {
    if target.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: not null, so the caller guarantees at least the size field.
    check_size::<T>(unsafe { target.cast::<u32>().read_unaligned() })
}

/// Fills in a struct of the host's, at most as many bytes as the host's `struct_size` says; that
/// field itself stays as the host set it.
///
/// # Safety
/// `target` is null, or valid for reading and writing as many bytes as its `struct_size` says.
pub(crate) unsafe fn write<T: Wire>(target: *mut T, value: &T) -> Result<()> {
    const HEAD: usize = size_of::<u32>();
    // SAFETY: the caller guarantees the size field of a `target` that is not null.
    unsafe { check_target(target) }?;
    // SAFETY: as above.
    let declared = unsafe { target.cast::<u32>().read_unaligned() } as usize;
    let bytes = declared.min(size_of::<T>()) - HEAD;
    let source = core::ptr::from_ref(value).cast::<u8>().wrapping_add(HEAD);
    let target = target.cast::<u8>().wrapping_add(HEAD);
    // SAFETY: source: within `value`. Target: within the `declared` bytes that the caller
    // guarantees. They do not overlap: one is the host's, one is on our stack.
    unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
    Ok(())
}

/// Writes one plain result.
///
/// # Safety
/// `target` is null, or valid for writing a `T`.
pub(crate) unsafe fn put<T: Copy>(target: *mut T, value: T, what: &str) -> Result<()> {
    if target.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, so the caller guarantees room for a `T`.
    unsafe { target.write_unaligned(value) };
    Ok(())
}

/// Whether a place for a plain result is there; done before the work.
pub(crate) fn check_place<T>(target: *const T, what: &str) -> Result<()> {
    if target.is_null() { Err(null(what)) } else { Ok(()) }
}

/// Writes text into the caller's place: the first `capacity` bytes of it, and its whole length.
/// The cut may fall inside a character.
///
/// # Safety
/// `out` is null, or valid for reading and writing, and its `data` is null or valid for writing
/// `capacity` bytes.
pub(crate) unsafe fn put_text(out: *mut StrataTextOut, text: &str) {
    if out.is_null() {
        return;
    }
    // SAFETY: not null, so the caller guarantees a whole struct.
    let mut place = unsafe { out.read_unaligned() };
    let room = usize::try_from(place.capacity).unwrap_or(usize::MAX);
    if !place.data.is_null() {
        let bytes = text.len().min(room);
        // SAFETY: `bytes` is within the text and within the `capacity` that the caller guarantees.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), place.data, bytes) };
    }
    place.len = text.len() as u64;
    // SAFETY: as the read above.
    unsafe { out.write_unaligned(place) };
}

/// Borrows the host's bytes for reading. No bytes may come with a null pointer.
///
/// # Safety
/// `data` is null, or valid for reading `bytes` bytes that stay unchanged for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, bytes: u64, what: &str) -> Result<&'a [u8]> {
    let len = length(data, bytes, 1, what)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null (checked by `length`), the caller guarantees the length.
    Ok(unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len) })
}

/// Borrows the host's bytes for writing. No bytes may come with a null pointer.
///
/// # Safety
/// `data` is null, or valid for reading and writing `bytes` bytes that nobody else touches for `'a`.
pub(crate) unsafe fn bytes_mut<'a>(data: *mut c_void, bytes: u64, what: &str) -> Result<&'a mut [u8]> {
    let len = length(data, bytes, 1, what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null (checked by `length`), the caller guarantees the length.
    Ok(unsafe { core::slice::from_raw_parts_mut(data.cast::<u8>(), len) })
}

/// Copies an array of plain values (handles, scalars) out of the host's memory.
///
/// # Safety
/// `data` is null, or valid for reading `count` values of a type for which all bytes are valid.
pub(crate) unsafe fn array<T: Copy>(data: *const T, count: u32, what: &str) -> Result<Vec<T>> {
    let count = length(data.cast(), u64::from(count), size_of::<T>(), what)?;
    let mut values = room_for(count)?;
    for index in 0..count {
        // SAFETY: `index` is within the `count` values that the caller guarantees.
        values.push(unsafe { data.wrapping_add(index).read_unaligned() });
    }
    Ok(values)
}

/// Copies an array of structs out, each read by its own size, with the writer's stride between them.
///
/// # Safety
/// `data` is null, or valid for reading `count` times `stride` bytes.
pub(crate) unsafe fn strided<T: Wire>(data: *const T, count: u32, stride: u32) -> Result<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if stride < T::LEAST {
        let (name, least) = (T::NAME, T::LEAST);
        return Err(Failure::host_bug(format_args!("the stride of {name} is {stride} bytes, the least is {least}")));
    }
    let count = length(data.cast(), u64::from(count), stride as usize, T::NAME)?;
    let mut values = room_for(count)?;
    for index in 0..count {
        let source = data.cast::<u8>().wrapping_add(index * stride as usize).cast::<T>();
        // SAFETY: `index` is within the `count` elements that the caller guarantees, and an
        // element's size field lies in its first four bytes.
        let declared = unsafe { source.cast::<u32>().read_unaligned() };
        if declared > stride {
            let name = T::NAME;
            return Err(Failure::host_bug(format_args!(
                "{name} {index} says {declared} bytes, more than its stride of {stride}"
            )));
        }
        check_size::<T>(declared)?;
        // SAFETY: `declared` bytes are within the stride, which the caller guarantees.
        values.push(unsafe { read_sized(source) });
    }
    Ok(values)
}

/// Text of the host's, as it is.
///
/// # Safety
/// `text.data` is null, or valid for reading `text.len` bytes that stay unchanged for `'a`.
pub(crate) unsafe fn text<'a>(text: StrataStr, what: &str) -> Result<&'a str> {
    // SAFETY: the caller guarantees pointer and length.
    let bytes = unsafe { bytes(text.data.cast(), text.len, what) }?;
    core::str::from_utf8(bytes).map_err(|_| Failure::host_bug(format_args!("{what} is not UTF-8")))
}

/// An empty vector with room, or `OutOfMemory` where a plain one would end the process.
fn room_for<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match values.try_reserve_exact(count) {
        Ok(()) => Ok(values),
        Err(_) => Err(Failure::out_of_memory(format!("no memory for {count} elements of the call's arguments"))),
    }
}

/// The element count as a length in memory, if pointer and size make sense.
fn length(data: *const c_void, count: u64, element: usize, what: &str) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    if data.is_null() {
        return Err(null(what));
    }
    let fits = |count: usize| count.checked_mul(element).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    match usize::try_from(count) {
        Ok(count) if fits(count) => Ok(count),
        _ => Err(Failure::host_bug(format_args!("{what} has {count} elements, more than memory can hold"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct that has grown since its first minor: what none of the ABI's has done yet.
    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Grown {
        struct_size: u32,
        first: u32,
        appended: u64,
    }

    // SAFETY: `#[repr(C)]`, starts with its size, integers only.
    unsafe impl SizedStruct for Grown {
        const SIZE: u32 = size_of::<Grown>() as u32;
    }

    impl Wire for Grown {
        const NAME: &'static str = "Grown";
        const LEAST: u32 = 8;
    }

    const VALUE: Grown = Grown { struct_size: Grown::SIZE, first: 7, appended: 8 };

    #[test]
    fn an_older_host_gets_what_it_knows_and_no_more() {
        for (declared, expected) in [(8, (7, 99)), (16, (7, 8)), (400, (7, 8))] {
            let mut place = Grown { struct_size: declared, first: 99, appended: 99 };
            // SAFETY: no more than the struct's own bytes are written, whatever it says.
            unsafe { write(&raw mut place, &VALUE) }.unwrap();
            assert_eq!((place.first, place.appended), expected, "a host that says {declared} bytes");
            assert_eq!(place.struct_size, declared);
        }
        let mut place = Grown { struct_size: 7, first: 99, appended: 99 };
        // SAFETY: as above.
        let failure = unsafe { write(&raw mut place, &VALUE) }.unwrap_err();
        assert_eq!(failure.text, "host bug: Grown says 7 bytes, the least is 8");
        assert_eq!(place.first, 99);
    }

    #[test]
    fn an_older_host_is_read_with_zeros_behind() {
        let older = Grown { struct_size: 8, first: 7, appended: 99 };
        // SAFETY: the struct is ours.
        assert_eq!(unsafe { read(&raw const older) }, Ok(Grown { struct_size: 8, first: 7, appended: 0 }));
        let two = [older, older];
        // SAFETY: as above, two elements at the struct's own size.
        let list = unsafe { strided(two.as_ptr(), 2, Grown::SIZE) }.unwrap();
        assert!(list.iter().all(|element| (element.first, element.appended) == (7, 0)));
    }
}
