//! The Rust text that a plugin includes: a `MODULES` list of `strata_gpu::Module` and why it is empty, if it is.

use std::fmt::Write;
use std::path::Path;

use crate::compile::Module;

pub(crate) fn write(path: &Path, modules: &[Module], not_built: Option<&str>) -> Result<(), String> {
    let text = text(modules, not_built);
    fs_err::write(path, text).map_err(|error| error.to_string())
}

fn text(modules: &[Module], not_built: Option<&str>) -> String {
    let mut text = String::from("// Written by strata-kernel-build.\n");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "pub(crate) const NOT_BUILT: Option<&str> = {not_built:?};");
    let images = modules.iter().flat_map(|module| &module.images).enumerate();
    for (index, (_, path)) in images {
        let path = path.display().to_string();
        let _ = writeln!(
            text,
            "static IMAGE_{index}: &strata_gpu::Aligned<[u8]> = &strata_gpu::Aligned(*include_bytes!({path:?}));"
        );
    }
    let mut index = 0;
    let _ = writeln!(text, "pub(crate) static MODULES: &[strata_gpu::Module] = &[");
    for module in modules {
        let _ = writeln!(
            text,
            "    strata_gpu::Module {{ name: {:?}, entries: &{:?}, images: &[",
            module.name, module.entries
        );
        for (target, _) in &module.images {
            let _ = writeln!(text, "        strata_gpu::Image {{ target: {target:?}, bytes: &IMAGE_{index}.0 }},");
            index += 1;
        }
        text.push_str("    ] },\n");
    }
    text.push_str("];\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_compiler_says_why() {
        let text = text(&[], Some("clang-19 was not found"));
        assert!(text.contains("NOT_BUILT: Option<&str> = Some(\"clang-19 was not found\")"), "{text}");
        assert!(text.contains("MODULES: &[strata_gpu::Module] = &[\n];"), "{text}");
    }

    #[test]
    fn modules_name_their_images() {
        let images = vec![("sm_90".to_owned(), "/out/norm.sm_90.cubin".into())];
        let module = Module { name: "norm".to_owned(), entries: vec!["rows".to_owned()], images };
        let text = text(&[module], None);
        assert!(text.contains("name: \"norm\", entries: &[\"rows\"]"), "{text}");
        assert!(text.contains("strata_gpu::Aligned(*include_bytes!(\"/out/norm.sm_90.cubin\"));"), "{text}");
        assert!(text.contains("target: \"sm_90\", bytes: &IMAGE_0.0"), "{text}");
    }
}
