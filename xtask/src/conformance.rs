//! `cargo xtask conformance`: runs a folder of conformance cases on a device.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use crate::workspace::{cargo, root, run};

/// Runs every case file of a folder on a device, and says which fail, and by how much.
///
/// Ends with the line `N passed, N failed`, which counts case files. The exit code is 1 if a case failed or
/// could not be read, or if none was found. See tests/data/cases/README.md for the files.
#[derive(Args)]
pub struct Conformance {
    /// The folder of case files, `*.safetensors`. Default: the repository's own, tests/data/cases.
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Where to run them: flex, ndarray, wgpu, vulkan, metal, webgpu, cuda, rocm, cpu or tch; NAME-unfused
    /// leaves out fusion. Default: flex, and wgpu if there is an adapter.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The element type: f32, f64, f16 or bf16. Default: f32, on flex and ndarray f64 as well.
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
    /// How the kernels of a GPU run, instead of what suits each problem: cube, grid or steps.
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    /// How many steps one launch of a kernel walks at most, instead of as many as stay short.
    #[arg(long, value_name = "N")]
    steps_per_launch: Option<String>,
    /// Builds with optimisations.
    #[arg(long)]
    release: bool,
}

impl Conformance {
    pub fn run(self) -> Result<ExitCode, String> {
        let mut cargo = cargo("run");
        cargo.args(["--quiet", "--bin", "conformance"]);
        if self.release {
            cargo.arg("--release");
        }
        if let Some(feature) = self.device.as_deref().and_then(feature) {
            cargo.args(["--features", &format!("rnn-conformance/{feature}")]);
        }
        cargo.arg("--").arg("--cases").arg(self.cases.unwrap_or_else(|| root().join("tests/data/cases")));
        for (option, value) in [
            ("--device", self.device),
            ("--dtype", self.dtype),
            ("--strategy", self.strategy),
            ("--steps-per-launch", self.steps_per_launch),
        ] {
            if let Some(value) = value {
                cargo.args([option, &value]);
            }
        }
        run(&mut cargo)
    }
}

/// The feature that a device needs beyond those that are always there.
fn feature(device: &str) -> Option<&str> {
    let name = device.strip_suffix("-unfused").unwrap_or(device);
    ["vulkan", "metal", "webgpu", "cuda", "rocm", "cpu", "tch"].contains(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_asks_for_its_feature() {
        assert_eq!(feature("flex"), None);
        assert_eq!(feature("wgpu-unfused"), None);
        assert_eq!(feature("cuda"), Some("cuda"));
        assert_eq!(feature("vulkan-unfused"), Some("vulkan"));
    }
}
