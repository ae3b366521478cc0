//! AMD's code objects: what the flags in their ELF header say. Numbers: the AMDGPU back end's user guide in
//! LLVM's documentation.

/// `gfx906:sramecc+:xnack-`; a feature that any setting is good for is not named.
pub(super) fn target(flags: u32) -> Result<String, String> {
    let machine = flags & 0xff;
    let known = AMD_MACHINES.iter().find(|(number, _)| *number == machine);
    let (_, name) = known.ok_or_else(|| format!("a code object for AMD machine {machine:#x}, which is not known"))?;
    let feature = |bits: u32, word: &str| match bits {
        2 => format!(":{word}-"),
        3 => format!(":{word}+"),
        _ => String::new(),
    };
    Ok(format!("{name}{}{}", feature(flags >> 10 & 3, "sramecc"), feature(flags >> 8 & 3, "xnack")))
}

const AMD_MACHINES: &[(u32, &str)] = &[
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3d, "gfx1035"),
    (0x3e, "gfx1034"),
    (0x3f, "gfx90a"),
    (0x41, "gfx1100"),
    (0x42, "gfx1013"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x45, "gfx1036"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x4a, "gfx1151"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
];

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn features_that_are_set_are_named() {
        for (flags, expected) in
            [(0x52f, "gfx906"), (0x62f, "gfx906:xnack-"), (0xf30, "gfx908:sramecc+:xnack+"), (0x041, "gfx1100")]
        {
            assert_eq!(target(flags).unwrap(), expected);
        }
        assert!(target(0xfe).unwrap_err().contains("0xfe"));
    }
}
