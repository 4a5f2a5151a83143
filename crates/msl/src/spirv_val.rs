//! The validator of SPIR-V, Debian's spirv-tools.

use std::{path::Path, process::Command};

/// What the validator says against a file, its first line; `None` if nothing.
///
/// # Errors
///
/// If there is no validator.
pub fn validate(file: &Path) -> Result<Option<String>, String> {
    let output = Command::new("spirv-val")
        // What CubeCL compiles for: Vulkan 1.3, with the memory layouts that it asks of a device.
        .args(["--target-env", "vulkan1.3", "--scalar-block-layout"])
        .arg(file)
        .output()
        .map_err(|error| format!("spirv-val cannot be run, install spirv-tools: {error}"))?;
    match output.status.success() {
        true => Ok(None),
        false => {
            let said = [output.stdout, output.stderr].concat();
            Ok(Some(String::from_utf8_lossy(&said).lines().next().unwrap_or("rejected").to_string()))
        }
    }
}
