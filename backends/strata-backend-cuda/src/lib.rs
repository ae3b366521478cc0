//! The CUDA plugin.
