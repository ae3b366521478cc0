//! S05xx: packages, manifests of components and releases, signatures.

super::codes! {}
