//! The repository's own cases on every device at hand, and the runner that runs such folders.

mod folder;
mod runner;

use std::path::PathBuf;

/// The repository's own cases.
fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/cases")
}
