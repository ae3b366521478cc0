//! Plan (pure), journal, stage, verify, one atomic switch, receipt; rollback and uninstall.
