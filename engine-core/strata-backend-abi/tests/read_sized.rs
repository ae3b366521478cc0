//! Reading structs of another length than ours, which is what keeps versions compatible.

#[cfg(test)]
#[expect(unsafe_code, reason = "calls the function under test with structs of the test's own")]
mod tests {
    use strata_backend_abi::{SizedStruct, read_sized};

    /// What this side knows.
    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Known {
        struct_size: u32,
        first: u32,
        second: u64,
        third: u64,
    }

    // SAFETY: `#[repr(C)]`, starts with its size, integers only.
    unsafe impl SizedStruct for Known {
        const SIZE: u32 = size_of::<Known>() as u32;
    }

    /// Bytes of a struct whose size field says `declared`, in a place that has no alignment.
    fn read(declared: u32, there: usize) -> Known {
        let mut bytes = vec![0_u8; 1];
        bytes.extend(declared.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(8_u64.to_ne_bytes());
        bytes.extend(9_u64.to_ne_bytes());
        bytes.extend([0xee; 16]);
        bytes.truncate(1 + there);
        bytes.shrink_to_fit();
        // SAFETY: `there` bytes are there, and the declared size is not more.
        unsafe { read_sized(bytes.as_ptr().wrapping_add(1).cast()) }
    }

    #[test]
    fn the_same_length() {
        assert_eq!(read(24, 24), Known { struct_size: 24, first: 7, second: 8, third: 9 });
    }

    #[test]
    fn a_longer_one_is_cut() {
        assert_eq!(read(40, 40), Known { struct_size: 40, first: 7, second: 8, third: 9 });
    }

    #[test]
    fn the_missing_tail_of_a_shorter_one_is_zero() {
        assert_eq!(read(16, 16), Known { struct_size: 16, first: 7, second: 8, third: 0 });
        assert_eq!(read(8, 8), Known { struct_size: 8, first: 7, second: 0, third: 0 });
        assert_eq!(read(4, 4), Known { struct_size: 4, first: 0, second: 0, third: 0 });
        // What lies behind the declared size is not read, even where there is more.
        assert_eq!(read(8, 24), Known { struct_size: 8, first: 7, second: 0, third: 0 });
    }

    #[test]
    fn a_size_below_the_size_field_reads_nothing_else() {
        assert_eq!(read(0, 4), Known { struct_size: 0, first: 0, second: 0, third: 0 });
    }
}
