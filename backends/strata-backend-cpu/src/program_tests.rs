//! Programs of several ops.
