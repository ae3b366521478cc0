//! Build-script helper: compiles `backends/kernels` with clang for a GPU target.
