//! The validator of SPIR-V, Debian's spirv-tools.

use std::{path::Path, process::Command};

/// What the validator says of a file.
pub enum Verdict {
    /// Nothing against it.
    Valid,
    /// It is older than bfloat in SPIR-V, which the file uses.
    TooNew,
    /// What is wrong, in a line.
    Wrong(String),
}

/// How a validator that does not know bfloat rejects it: by the number of its capability.
const BFLOAT_UNKNOWN: &str = "Invalid capability operand: 5116";

/// Hands a file to the validator.
///
/// # Errors
///
/// If there is no validator.
pub fn validate(file: &Path) -> Result<Verdict, String> {
    let output = Command::new("spirv-val")
        // What CubeCL compiles for: Vulkan 1.3, with the memory layouts that it asks of a device.
        .args(["--target-env", "vulkan1.3", "--scalar-block-layout", "--workgroup-scalar-block-layout"])
        .arg(file)
        .output()
        .map_err(|error| format!("spirv-val cannot be run, install spirv-tools: {error}"))?;
    if output.status.success() {
        return Ok(Verdict::Valid);
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    match said.contains(BFLOAT_UNKNOWN) {
        true => Ok(Verdict::TooNew),
        false => Ok(Verdict::Wrong(said.lines().next().unwrap_or("rejected").into())),
    }
}
