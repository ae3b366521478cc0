//! The project's own CPU plugin, as cargo builds it.
