//! Element formats. Numbers and block layouts are those of GGUF (`ggml_type`), so a mapped
//! tensor crosses without conversion; formats of our own start at 0x10000.

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $len:literal, $bytes:literal;)*) => {
        /// Element format of a tensor; the number is GGUF's tensor type.
        #[repr(u32)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum StrataDType { $($(#[$doc])* $name = $number),* }

        impl StrataDType {
            /// Every format of this ABI version.
            pub const ALL: &'static [StrataDType] = &[$(StrataDType::$name),*];

            /// The name people know: `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(StrataDType::$name => $text),* }
            }

            /// Elements in a block (1 for plain types).
            pub const fn block_len(self) -> usize {
                match self { $(StrataDType::$name => $len),* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(StrataDType::$name => $bytes),* }
            }

            /// The format with this GGUF number.
            pub const fn from_number(number: u32) -> Option<StrataDType> {
                match number { $($number => Some(StrataDType::$name),)* _ => None }
            }
        }
    };
}

dtypes! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q2K = 10, "Q2_K", 256, 84;
    Q3K = 11, "Q3_K", 256, 110;
    Q4K = 12, "Q4_K", 256, 144;
    Q5K = 13, "Q5_K", 256, 176;
    Q6K = 14, "Q6_K", 256, 210;
    IQ2XXS = 16, "IQ2_XXS", 256, 66;
    IQ2XS = 17, "IQ2_XS", 256, 74;
    IQ3XXS = 18, "IQ3_XXS", 256, 98;
    IQ1S = 19, "IQ1_S", 256, 50;
    IQ4NL = 20, "IQ4_NL", 32, 18;
    IQ3S = 21, "IQ3_S", 256, 110;
    IQ2S = 22, "IQ2_S", 256, 82;
    IQ4XS = 23, "IQ4_XS", 256, 136;
    I32 = 26, "I32", 1, 4;
    IQ1M = 29, "IQ1_M", 256, 56;
    BF16 = 30, "BF16", 1, 2;
    MXFP4 = 39, "MXFP4", 32, 17;
}

impl StrataDType {
    /// Bytes of a row of `n` elements, or `None` when `n` is no whole number of blocks or the
    /// product does not fit 64 bits.
    pub const fn row_bytes(self, n: u64) -> Option<u64> {
        let block = self.block_len() as u64;
        if !n.is_multiple_of(block) {
            return None;
        }
        (n / block).checked_mul(self.block_bytes() as u64)
    }

    /// Whether elements are packed in blocks with shared scales.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }
}

impl core::fmt::Display for StrataDType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}
