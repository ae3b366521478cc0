//! Summary of a model.
