//! Host facts below a given root: every GPU with a verdict and its evidence, processor, memory, disks.
