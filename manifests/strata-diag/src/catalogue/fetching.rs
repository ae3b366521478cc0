//! S06xx: fetching.

super::codes! {}
