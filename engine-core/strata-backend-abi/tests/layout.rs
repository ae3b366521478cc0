//! The recorded layouts: today's is committed as it is, and no later minor changes an earlier one.

#[cfg(test)]
mod tests {
    use strata_backend_abi::{STRATA_ABI_MAJOR, STRATA_ABI_MINOR, abi_version, layout, negotiate};

    fn recorded(minor: u32) -> &'static str {
        layout::recorded(abi_version(STRATA_ABI_MAJOR, minor)).expect("a recorded layout for every minor so far")
    }

    #[test]
    fn todays_layout_is_the_recorded_one() {
        let (today, minor) = (layout::text(), STRATA_ABI_MINOR);
        let hint = "within a published minor nothing changes: append in a new minor and run `cargo xtask gen`";
        assert_eq!(today, recorded(minor), "layouts/{STRATA_ABI_MAJOR}.{minor}.txt: {hint}");
        assert_eq!(layout::hash(), layout::hash_of(recorded(minor)));
        assert_eq!(layout::recorded(abi_version(STRATA_ABI_MAJOR, minor + 1)), None);
    }

    #[test]
    fn every_older_minor_is_a_prefix_of_todays() {
        for minor in 0..=STRATA_ABI_MINOR {
            assert_eq!(breaks(recorded(minor), &layout::text()), Vec::<String>::new(), "minor {minor}");
        }
    }

    /// A struct of the text: name, size, and its field lines.
    type Struct<'a> = (&'a str, u64, Vec<&'a str>);

    fn parse(text: &str) -> (Vec<Struct<'_>>, Vec<&str>) {
        let (mut structs, mut numbers) = (Vec::<Struct<'_>>::new(), Vec::new());
        for line in text.lines().skip(1) {
            if line.starts_with("  ") {
                structs.last_mut().expect("a field comes after its struct").2.push(line);
            } else if ["dtype ", "enum ", "const "].iter().any(|kind| line.starts_with(kind)) {
                numbers.push(line);
            } else {
                let (name, size) = line.split_once(' ').expect("a struct line");
                structs.push((name, size.parse().expect("a size"), Vec::new()));
            }
        }
        (structs, numbers)
    }

    /// What of the older layout the newer one does not keep.
    fn breaks(older: &str, newer: &str) -> Vec<String> {
        let ((old_structs, old_numbers), (structs, numbers)) = (parse(older), parse(newer));
        let mut broken = Vec::new();
        for (name, size, fields) in old_structs {
            match structs.iter().find(|(new_name, ..)| *new_name == name) {
                Some((_, new_size, new_fields)) if *new_size >= size && new_fields.starts_with(&fields) => {}
                _ => broken.push(name.to_owned()),
            }
        }
        broken.extend(old_numbers.iter().filter(|line| !numbers.contains(line)).map(|line| (*line).to_owned()));
        broken
    }

    #[test]
    fn the_comparison_sees_every_kind_of_break() {
        let old = "abi 1.0\nA 16\n  size 0\n  x 8\ndtype 2 Q4_0 32 18\nenum K 1 One\nconst C 4\n";
        let appended = "abi 1.1\nA 24\n  size 0\n  x 8\n  y 16\nB 8\n  size 0\ndtype 2 Q4_0 32 18\ndtype 3 Q 1 1\n\
                        enum K 1 One\nenum K 2 Two\nconst C 4\n";
        assert_eq!(breaks(old, appended), Vec::<String>::new());
        for (spoilt, expected) in [
            (old.replace("  x 8", "  x 4"), "A"),
            (old.replace("  x 8", "  z 8"), "A"),
            (old.replace("A 16", "A 8"), "A"),
            (old.replace("  size 0\n  x 8", "  y 0\n  size 4\n  x 8"), "A"),
            (old.replace("A 16", "Z 16"), "A"),
            (old.replace("32 18", "32 20"), "dtype 2 Q4_0 32 18"),
            (old.replace("1 One", "2 One"), "enum K 1 One"),
            (old.replace("C 4", "C 5"), "const C 4"),
        ] {
            assert_eq!(breaks(old, &spoilt), [expected], "{spoilt}");
        }
    }

    #[test]
    fn the_hash_tells_layouts_apart() {
        let text = layout::text();
        assert_eq!(layout::hash_of(&text), layout::hash());
        assert_ne!(layout::hash_of(&text.replace("  ne 24", "  ne 32")), layout::hash());
        // Known answers of FNV-1a with 64 bits: the offset basis, and one byte.
        assert_eq!(layout::hash_of(""), "cbf29ce484222325");
        assert_eq!(layout::hash_of("a"), "af63dc4c8601ec8c");
    }

    #[test]
    fn negotiation() {
        let v = abi_version;
        for (host, plugin, expected) in [
            // Same on both sides; either side newer: the lower minor.
            ((v(1, 0), v(1, 0)), (v(1, 0), v(1, 0)), Some(v(1, 0))),
            ((v(1, 0), v(1, 3)), (v(1, 0), v(1, 1)), Some(v(1, 1))),
            ((v(1, 0), v(1, 1)), (v(1, 0), v(1, 3)), Some(v(1, 1))),
            // A side that dropped old minors.
            ((v(1, 2), v(1, 5)), (v(1, 0), v(1, 2)), Some(v(1, 2))),
            ((v(1, 2), v(1, 5)), (v(1, 0), v(1, 1)), None),
            ((v(1, 0), v(1, 1)), (v(1, 2), v(1, 5)), None),
            // A host that speaks two majors takes a plugin of either.
            ((v(1, 0), v(2, 4)), (v(1, 0), v(1, 7)), Some(v(1, 7))),
            ((v(1, 0), v(2, 4)), (v(2, 0), v(2, 9)), Some(v(2, 4))),
            // No major in common.
            ((v(1, 0), v(1, 9)), (v(2, 0), v(2, 0)), None),
            ((v(3, 0), v(3, 0)), (v(2, 0), v(2, 9)), None),
        ] {
            assert_eq!(negotiate(host, plugin), expected, "host {host:x?} plugin {plugin:x?}");
        }
    }
}
