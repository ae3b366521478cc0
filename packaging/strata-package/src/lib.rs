//! How a package is made and proven: recipe, staged tree, canonical archive; the verifier; signing.
