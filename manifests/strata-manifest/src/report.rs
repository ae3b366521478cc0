//! What commands print with `--json`: one type a command, so that scripts can rely on it.
