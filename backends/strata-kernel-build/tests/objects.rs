//! What the compiler made for each of AMD's targets: flags, wave width, arguments, registers, shared memory, no
//! spills, no scratch memory, nothing read of how the launch was made, and the instructions that carry the speed.
//! And that docs/AMD-KERNELS.md says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use strata_kernel_build::inspect::{KernelFacts, ObjectFacts};
use strata_kernel_build::{amd_kernels_page, compiler_version};

/// What a workgroup may have on both chips.
const MOST_SHARED: u32 = 64 << 10;

#[test]
fn code_objects_are_what_the_cards_need() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-objects");
    let made = amd_kernels_page(&root.join("backends/kernels"), &out).unwrap_or_else(|error| panic!("{error}"));
    let Some((page, objects)) = made else {
        eprintln!("skipped: clang-19 was not found");
        return;
    };
    let mut wrong = Vec::new();
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for object in &objects {
        let (flags, wave) = match object.arch {
            "gfx906" => (0x52f, 64),
            "gfx1100" => (0x41, 32),
            "gfx1101" => (0x46, 32),
            "gfx1102" => (0x47, 32),
            other => panic!("{other}"),
        };
        if object.flags != flags {
            wrong.push(format!("{}.{}: flags {:#x}, not {flags:#x}", object.module, object.arch, object.flags));
        }
        for kernel in &object.kernels {
            names.entry(object.arch).or_default().insert(&kernel.name);
            let faults = faults(object, kernel, wave);
            wrong.extend(faults.into_iter().map(|fault| format!("{} {}: {fault}", object.arch, kernel.name)));
        }
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
    let first = names.values().next().expect("targets").clone();
    assert!(names.values().all(|of_target| *of_target == first), "targets differ in their kernels");
    eprintln!("{} kernels for each of {} targets", first.len(), names.len());
    documented(&root.join("docs/AMD-KERNELS.md"), &page, &first);
}

fn faults(object: &ObjectFacts, kernel: &KernelFacts, wave: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut fault = |is: bool, text: String| {
        if is {
            found.push(text);
        }
    };
    fault(kernel.wave != wave, format!("a wave of {}", kernel.wave));
    fault(kernel.hidden_arguments != 0, format!("{} hidden arguments", kernel.hidden_arguments));
    let sizes = (kernel.argument_bytes, kernel.struct_bytes);
    fault(sizes.0 != sizes.1.next_multiple_of(8), format!("{} bytes of arguments, a struct of {}", sizes.0, sizes.1));
    fault(
        kernel.vgpr_spills + kernel.sgpr_spills != 0,
        format!("{} registers spilled", kernel.vgpr_spills + kernel.sgpr_spills),
    );
    fault(kernel.scratch != 0, format!("{} bytes of scratch memory", kernel.scratch));
    fault(kernel.vgprs > 256 || kernel.sgprs > 106, format!("{} and {} registers", kernel.vgprs, kernel.sgprs));
    fault(kernel.shared > MOST_SHARED, format!("{} bytes of shared memory", kernel.shared));
    let old = object.arch == "gfx906";
    for (families, instruction) in [
        (&["mmv_", "moev_"][..], if old { "v_dot4_i32_i8" } else { "v_dot4_i32_iu8" }),
        (&["mmt_", "moet_"][..], if old { "v_dot4_i32_i8" } else { "v_wmma_" }),
        (&["attention_dot_"][..], "v_dot2"),
    ] {
        let wants = families.iter().any(|family| kernel.name.starts_with(family));
        fault(wants && kernel.count(instruction) == 0, format!("no {instruction}"));
    }
    found
}

/// The page in the repository names every kernel; with the compiler that made it, it is the same to the letter.
#[expect(clippy::print_stderr, reason = "says what is not compared and why")]
fn documented(path: &Path, page: &str, kernels: &BTreeSet<&str>) {
    let committed = fs_err::read_to_string(path).expect("the page is there");
    let missing: Vec<&&str> = kernels.iter().filter(|kernel| !committed.contains(&format!("| `{kernel}` |"))).collect();
    assert!(missing.is_empty(), "docs/AMD-KERNELS.md lacks {missing:?}: make it again as its second line says");
    let compiler = compiler_version().unwrap_or_default();
    if !committed.contains(&format!("Compiler: {compiler}.")) {
        eprintln!("numbers are not compared: the page was made by another compiler than {compiler}");
        return;
    }
    let differs = committed.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        committed == page,
        "docs/AMD-KERNELS.md is not current, first {differs:?}: make it again as its second line says"
    );
}
