//! Workspaces are slices of 64-byte lines; this file is what they are read as. All views are
//! between plain-data types whose size is a whole number of lines and whose alignment is a line's.

/// One cache line of workspace. Its contents mean something only to the plan that wrote it.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Line([u32; 16]);

/// Elements of a block of quantised activations, and of the stretch that weights are unpacked in.
pub(crate) const BLOCK: usize = 32;
/// Rows that a tile interleaves: the f32 lanes of a 256-bit register.
pub(crate) const TILE_ROWS: usize = 8;

/// 32 activations at 8 bits: element `i` is `q[i] · multiplier[i / 16] · unit`. One line, so that a
/// kernel finds all of a block behind one pointer.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ActivationBlock {
    /// -127..=127.
    pub(crate) q: [i8; BLOCK],
    pub(crate) unit: f32,
    /// `whole · unit`, rounded once.
    pub(crate) sum: f32,
    /// `weighted[0] + weighted[1]`.
    pub(crate) whole: i32,
    /// Per half, 1..=64, twice: the operand of a pairwise multiply-add.
    pub(crate) multiplier: [[i16; 2]; 2],
    /// Per half: `multiplier · Σ q`.
    pub(crate) weighted: [i32; 2],
    pub(crate) reserved: u32,
}

/// 32 weights of one row as whole numbers: weight `i` is
/// `scale · sub[i / 16] · values[i] + min · sub_min[i / 16]`.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WeightBlock {
    pub(crate) values: [i8; BLOCK],
    pub(crate) scale: f32,
    /// 0 in formats without minima.
    pub(crate) min: f32,
    /// 1 in formats with one scale a block.
    pub(crate) sub: [i16; 2],
    pub(crate) sub_min: [i16; 2],
    pub(crate) reserved: [u32; 4],
}

/// 32 columns of [`TILE_ROWS`] rows, unpacked for use with many tokens.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileBlock {
    /// `[group of 4 columns][row][column in the group]`.
    pub(crate) values: [[[u8; 4]; TILE_ROWS]; BLOCK / 4],
    pub(crate) scale: [f32; TILE_ROWS],
    pub(crate) min: [f32; TILE_ROWS],
}

/// What formats with two scales a block have beside their [`TileBlock`].
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileSubScales {
    pub(crate) sub: [[i32; TILE_ROWS]; 2],
    pub(crate) sub_min: [[i32; TILE_ROWS]; 2],
}

/// Lines of a [`TileBlock`].
pub(crate) const TILE_BLOCK_LINES: usize = size_of::<TileBlock>() / size_of::<Line>();
/// Lines of a [`TileSubScales`].
pub(crate) const TILE_SUB_LINES: usize = size_of::<TileSubScales>() / size_of::<Line>();

/// Lines that unpacking 32 columns of [`TILE_ROWS`] rows takes at most, in any variant.
pub(crate) const TILE_LINES: usize = TILE_BLOCK_LINES + TILE_SUB_LINES;

/// Types that lines may be read and written as.
///
/// # Safety
/// `#[repr(C)]`, every bit pattern valid, no padding, aligned no stricter than a line.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: floats take every bit pattern.
unsafe impl Plain for f32 {}
// SAFETY: 32 + 4 + 4 + 4 + 8 + 8 + 4 bytes of integers and floats fill its one line.
unsafe impl Plain for ActivationBlock {}
// SAFETY: 32 + 4 + 4 + 4 + 4 + 16 bytes of integers and floats fill its one line.
unsafe impl Plain for WeightBlock {}
// SAFETY: 256 + 32 + 32 bytes of integers and floats fill its five lines.
unsafe impl Plain for TileBlock {}
// SAFETY: 64 + 64 bytes of integers fill its two lines.
unsafe impl Plain for TileSubScales {}

const _: () = assert!(size_of::<ActivationBlock>() == 64 && size_of::<WeightBlock>() == 64);
const _: () = assert!(size_of::<TileBlock>() == 320 && size_of::<TileSubScales>() == 128);

/// The lines as whole `T`s; a remainder too short for one is left out.
pub(crate) fn view<T: Plain>(lines: &[Line]) -> &[T] {
    const { assert!(align_of::<T>() <= align_of::<Line>()) };
    let count = size_of_val(lines) / size_of::<T>();
    // SAFETY: the bytes are initialised and `count` of `T` fit into them; a line's alignment is
    // enough (asserted above) and `Plain` makes every bit pattern a value.
    unsafe { core::slice::from_raw_parts(lines.as_ptr().cast(), count) }
}

/// As [`view`], for writing.
pub(crate) fn view_mut<T: Plain>(lines: &mut [Line]) -> &mut [T] {
    const { assert!(align_of::<T>() <= align_of::<Line>()) };
    let count = size_of_val(lines) / size_of::<T>();
    // SAFETY: as in `view`; the exclusive borrow of the lines carries over, and whatever is
    // written is a valid line because a line is only integers.
    unsafe { core::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), count) }
}
