//! `cargo xtask msl`: the text of every kernel in Metal Shading Language.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use crate::workspace::{cargo, run};

/// Writes the text of every kernel that the crate can launch, as Apple's compiler gets it.
///
/// NAME.msl.metal is what CubeCL makes of a kernel with Burn's feature `metal`; NAME.wgsl its WGSL and NAME.naga.metal what
/// naga makes of that, which wgpu hands to Metal without the feature. Needs no Mac.
#[derive(Args)]
pub struct Msl {
    /// The folder to write to; made if need be.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Also writes NAME.spv, the SPIR-V of Burn's feature `vulkan`, and hands each to spirv-val.
    #[arg(long)]
    spirv: bool,
}

impl Msl {
    pub fn run(self) -> Result<ExitCode, String> {
        let mut cargo = cargo("run");
        cargo.args(["--quiet", "--bin", "msl"]);
        if self.spirv {
            // SPIR-V is a feature of CubeCL's core: this package alone, so that Burn isn't built anew with it.
            cargo.args(["--package", "rnn-msl", "--features", "spirv"]);
        }
        cargo.arg("--").arg("--out").arg(self.out);
        if self.spirv {
            cargo.arg("--spirv");
        }
        run(&mut cargo)
    }
}
