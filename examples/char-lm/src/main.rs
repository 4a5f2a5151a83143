//! Trains a character-level language model and writes a sample of what it has learnt.

use std::process::ExitCode;

use char_lm::{Arguments, run};
use clap::Parser;

fn main() -> ExitCode {
    // Burn reads an optimiser's saved state onto its default device, whichever one trains; it must be one that
    // every machine has.
    #[cfg(feature = "flex")]
    // SAFETY: no other thread has been started yet.
    unsafe {
        std::env::set_var("BURN_DEVICE", "flex");
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
