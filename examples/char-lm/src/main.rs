//! Trains a character-level language model and writes a sample of what it has learnt.

use std::process::ExitCode;

use char_lm::{Arguments, run};
use clap::Parser;

fn main() -> ExitCode {
    // SAFETY: no other thread has been started yet.
    unsafe { prepare_environment() };
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Sets what libraries read from the environment.
///
/// # Safety
///
/// No other thread may be running.
unsafe fn prepare_environment() {
    // Burn reads an optimiser's saved state onto its default device, whichever one trains; it must be one that
    // every machine has.
    #[cfg(feature = "flex")]
    unsafe {
        std::env::set_var("BURN_DEVICE", "flex");
    }
    // Without a folder here, the Wayland library that looks for adapters prints an error that isn't one.
    #[cfg(all(feature = "wgpu", target_os = "linux"))]
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", std::env::temp_dir()) };
    }
}
