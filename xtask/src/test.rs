//! `cargo xtask test`: everything that is tested, with the set-up it needs.

use std::process::ExitCode;

use clap::Args;

use crate::{
    clang, vulkan,
    workspace::{cargo, code, run, status},
};

/// Runs all tests: unit tests, conformance on Flex and on a Vulkan adapter, the kernels' Metal text on the CPU,
/// gradient checks, training.
///
/// A software adapter will do; the Metal text needs clang. Where they are missing, they are installed if apt-get may be
/// used.
#[derive(Args)]
pub struct Test {
    /// What to hand on to `cargo test`: the part of a test's name, or `-- --nocapture`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Test {
    pub fn run(self) -> Result<ExitCode, String> {
        // Before the long build, so that what is missing shows at once.
        vulkan::install_if_no_driver_is_there()?;
        clang::install_if_missing()?;
        let built = status(cargo("test").args(["--workspace", "--no-run"]))?;
        if !built.success() {
            return Ok(code(built));
        }
        vulkan::check_adapter()?;
        run(cargo("test").arg("--workspace").args(self.arguments))
    }
}
