//! S07xx: detecting (S0740 and up) and installing.

super::codes! {}
