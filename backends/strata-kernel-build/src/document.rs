//! docs/AMD-KERNELS.md: how to launch each kernel, what the compiler made of it for each chip, and what the
//! datasheets of the cards allow. Everything in it is read from the sources and the code objects, or computed
//! from the figures beside it; a test compares.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::compile::clang;
use crate::host::declared;
use crate::inspect::{KernelFacts, ObjectFacts, argument_structs, code_objects};
use crate::{HIP_GFX906_TARGETS, HIP_RX7900_TARGETS, Target};

/// How a family of kernels is launched: a pattern of names, grid, block, dynamic shared memory.
const LAUNCHES: [(&str, &str, &str, &str); 27] = [
    (
        "mmv_*_t1, _t2, _t4, _t8",
        "Σ_p ceil(m[p] / rows), ceil(t / T); with act ≥ 0: ceil(m[0] / rows)",
        "128",
        "4 · rows · T · ceil(k / 256), twice that with act ≥ 0",
    ),
    ("mmx_*", "as mmv, T = 4", "128", "as mmv, T = 4"),
    ("mmt_*", "Σ_p ceil(m[p] / 64), ceil(t / 64)", "256", "0"),
    ("mmf_*_c1, _c8", "Σ_p ceil(m[p] / 4), ceil(t / 1), ceil(t / 8)", "128", "0"),
    ("mmf_*_tile", "Σ_p ceil(m[p] / 16), ceil(t / 8)", "128", "0"),
    ("moev_*, moex_*", "ceil(m / rows), k · t", "128", "4 · rows · ceil(kdim / 256), twice that with act ≥ 0"),
    ("moet_*", "ceil(m / 64), at least Σ_e ceil(slots of e / 64)", "256", "0"),
    ("moes", "1", "1024", "4 · (n_experts + 1)"),
    ("embed_*", "ceil(h / 8192), t", "128", "0"),
    ("quantise_q8, gated_q8", "ceil(k / 1024), t", "256", "0"),
    ("rows", "ne[1] · ne[2] · ne[3]", "32 where ne[0] ≤ 256, else 256", "0"),
    ("arg_max", "rows", "1024", "0"),
    ("norm_q8_1024", "rows of n ≤ 1024, a multiple of 32", "256", "0"),
    ("norm_q8_2048", "rows of 1024 < n ≤ 2048", "512", "0"),
    ("norm_q8_8192", "rows of 2048 < n ≤ 8192", "1024", "0"),
    ("binary, unary, copy", "ceil(ne[0] / 256), min(ne[1] · ne[2] · ne[3], 65535)", "256", "0"),
    ("rope", "heads, tokens", "64", "0"),
    ("kv_store", "heads, tokens", "64", "0"),
    ("heads", "ceil((n_q + 2 · n_kv) / 4), tokens", "128", "0"),
    ("attention_64", "query heads, tokens; d, dv ≤ 64", "128", "0"),
    ("attention_128", "query heads, tokens; d, dv ≤ 128", "128", "0"),
    ("attention_256", "query heads, tokens; d, dv ≤ 256", "128", "0"),
    ("attention_512", "query heads, tokens; d, dv ≤ 512", "128", "0"),
    (
        "attention_dot_*",
        "query heads, tokens; d = dv = the name's number, F16, rows of keys and values at 16 bytes",
        "128",
        "0",
    ),
    ("router", "tokens", "32", "0"),
    ("combine", "ceil(n / 256), tokens", "256", "0"),
    ("gather", "ceil(n / 256), rows", "256", "0"),
];

/// The page, and what it was made of; none without a compiler.
///
/// # Errors
/// As [`code_objects`].
pub fn amd_kernels_page(sources: &Path, out: &Path) -> Result<Option<(String, Vec<ObjectFacts>)>, String> {
    let targets: Vec<Target> = HIP_GFX906_TARGETS.into_iter().chain(HIP_RX7900_TARGETS).collect();
    let Some(objects) = code_objects(sources, out, &targets)? else { return Ok(None) };
    let Some(declared) = declared(sources, out, 64)? else { return Ok(None) };
    let mut page = introduction();
    launches(&mut page);
    let structs = argument_structs(sources)?;
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kernel in &declared {
        users.entry(&kernel.arguments).or_default().push(&kernel.name);
    }
    arguments(&mut page, &structs, &users);
    compiled(&mut page, &objects);
    crate::estimate::write(&mut page);
    Ok(Some((page, objects)))
}

/// The compiler's own name for itself.
pub fn compiler_version() -> Option<String> {
    let output = Command::new(clang()?).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

fn introduction() -> String {
    let compiler = compiler_version().unwrap_or_default();
    format!(
        "# The kernels as AMD's cards get them\n\n\
        Written by `cargo run -p strata-kernel-build --example amd_kernels -- docs/AMD-KERNELS.md`; a test compares. Compiler: {compiler}.\n\
        **No AMD card has run these kernels.** What is known without one: the tables below, read from the code objects; and that the same\n\
        sources, compiled for a processor with waves of 32 and 64 lanes, give what plain loops give (docs/KERNELS.md).\n\n\
        One code object a source file and target: `mmv_t1.gfx906.hsaco` and so on. Code object version 5. Kernels read nothing but their one\n\
        struct, which lies at offset 0 of the kernel arguments, the position registers (workgroup ids x, y, z and the work-item's id x), and shared\n\
        memory: no hidden argument, no dispatch packet, no scratch memory. Blocks have one dimension. A symbol `<name>.kd` is the descriptor.\n\n"
    )
}

fn launches(page: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "## Launch\n\nGrid in blocks, x then y (z = 1); block in work-items; dynamic shared memory in bytes, beside what the kernel declares.\n`*` is a weight format in lower case (`q4_k`), T the columns of a block. `rows` is an argument: any number of rows a block takes.\n"
    );
    let _ = writeln!(page, "| kernel | grid | block | dynamic shared memory |\n| --- | --- | --- | --- |");
    for (name, grid, block, shared) in LAUNCHES {
        let _ = writeln!(page, "| `{name}` | {grid} | {block} | {shared} |");
    }
    let _ = writeln!(
        page,
        "\nWeights are GGUF's blocks as they lie in a file. Rows begin at multiples of 16 bytes for Q4_K and Q5_K, of 4 for Q4_1, Q5_1, Q2_K, IQ4_XS and\n\
        IQ1_M, of 1 for MXFP4, of 2 for the others, of an element for plain types. `mmv`, `moev`: memory is readable from the multiple of 16 bytes before the\n\
        first weight to the one behind the last. Rounded activations: bytes [t][k] at 16 bytes, and per 32 of them (scale, scale · sum) as two floats; `quantise_q8`\n\
        makes both. Unused pointers are null, unused numbers 0. `act` is -1 or a StrataActivation (docs/ABI.md); then w[0] is the gate and w[1] the other.\n\
        Strides called `_nb` are bytes, `_stride` elements, `w_stride` and `w_expert_stride` bytes. Types: 0 F32, 1 F16, 30 BF16.\n"
    );
}

fn arguments(
    page: &mut String,
    structs: &BTreeMap<String, (Vec<crate::inspect::Field>, usize)>,
    users: &BTreeMap<&str, Vec<&str>>,
) {
    let _ = writeln!(page, "## Arguments\n\nLittle-endian, as C lays them out.\n");
    for (name, (fields, size)) in structs {
        let Some(users) = users.get(name.as_str()) else { continue };
        let mut families: Vec<String> = users.iter().map(|user| family(user)).collect();
        families.dedup();
        families.sort();
        families.dedup();
        let _ = writeln!(
            page,
            "### {name}, {size} bytes: {}\n\n| offset | type | field | |\n| --- | --- | --- | --- |",
            families.join(", ")
        );
        for field in fields {
            let _ = writeln!(page, "| {} | `{}` | `{}` | {} |", field.offset, field.kind, field.name, field.comment);
        }
        page.push('\n');
    }
}

/// `mmv_*_t1` for `mmv_q4_k_t1`.
fn family(kernel: &str) -> String {
    const FAMILIES: [&str; 9] = ["mmv_", "mmx_", "mmt_", "mmf_", "moev_", "moex_", "moet_", "embed_", "attention_dot_"];
    match FAMILIES.into_iter().find(|family| kernel.starts_with(family)) {
        Some(family) => format!("`{family}*`"),
        None => format!("`{kernel}`"),
    }
}

fn compiled(page: &mut String, objects: &[ObjectFacts]) {
    let of = |arch: &str| -> BTreeMap<&str, &KernelFacts> {
        let objects = objects.iter().filter(|object| object.arch == arch);
        objects.flat_map(|object| &object.kernels).map(|kernel| (kernel.name.as_str(), kernel)).collect()
    };
    let _ = writeln!(
        page,
        "## Code objects\n\n| target | flags | wave | kernels | spilled registers | scratch memory | most vector registers | most shared memory |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for arch in ["gfx906", "gfx1100", "gfx1101", "gfx1102"] {
        let kernels = of(arch);
        let flags = objects.iter().find(|object| object.arch == arch).map_or(0, |object| object.flags);
        let spills: u32 = kernels.values().map(|kernel| kernel.vgpr_spills + kernel.sgpr_spills).sum();
        let scratch: u32 = kernels.values().map(|kernel| kernel.scratch).sum();
        let vgprs = kernels.values().map(|kernel| kernel.vgprs).max().unwrap_or(0);
        let shared = kernels.values().map(|kernel| kernel.shared).max().unwrap_or(0);
        let wave = kernels.values().map(|kernel| kernel.wave).max().unwrap_or(0);
        let _ = writeln!(
            page,
            "| {arch} | {flags:#x} | {wave} | {} | {spills} | {scratch} | {vgprs} | {shared} |",
            kernels.len()
        );
    }
    let _ = writeln!(
        page,
        "\nPer kernel: vector and scalar registers, waves a SIMD that registers and declared shared memory allow, and the instructions that carry\nthe speed. Shared memory is the same for all targets; gfx1101 and gfx1102 differ from gfx1100 where it says so.\n"
    );
    let _ = writeln!(
        page,
        "| kernel | arguments | block | shared | gfx906: v, s | waves | v_dot4 / v_dot2 | gfx1100: v, s | waves | v_dot4 / v_dot2 / v_wmma | gfx1101, gfx1102 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let [old, new, second, third] = ["gfx906", "gfx1100", "gfx1101", "gfx1102"].map(of);
    for (name, kernel) in &old {
        let Some(on_new) = new.get(name) else { continue };
        let (others, same) = ([second.get(name), third.get(name)], |other: &KernelFacts| {
            (other.vgprs, other.sgprs, &other.counts) == (on_new.vgprs, on_new.sgprs, &on_new.counts)
        });
        let differs = others.iter().map(|other| match other {
            Some(other) if same(other) => "same".to_owned(),
            Some(other) => format!("{}, {}", other.vgprs, other.sgprs),
            None => "absent".to_owned(),
        });
        let differs = differs.collect::<Vec<_>>();
        let differs = if differs[0] == differs[1] { differs[0].clone() } else { differs.join(" / ") };
        let _ = writeln!(
            page,
            "| `{name}` | {} | {} | {} | {}, {} | {} | {} / {} | {}, {} | {} | {} / {} / {} | {differs} |",
            kernel.argument_bytes,
            kernel.most_items,
            kernel.shared,
            kernel.vgprs,
            kernel.sgprs,
            kernel.waves_per_simd("gfx906"),
            kernel.count("v_dot4"),
            kernel.count("v_dot2"),
            on_new.vgprs,
            on_new.sgprs,
            on_new.waves_per_simd("gfx1100"),
            on_new.count("v_dot4"),
            on_new.count("v_dot2"),
            on_new.count("v_wmma"),
        );
    }
    page.push('\n');
}
