//! Cargo on the whole workspace.
//!
//! The features of a dependency depend on which packages a command names. All commands here name the
//! workspace, so that Burn is built once for all of them.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
};

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// `cargo COMMAND` on the whole workspace.
pub fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg(command).arg("--manifest-path").arg(root().join("Cargo.toml"));
    // What cargo has said to this program of its own package is not for the next cargo: build scripts that
    // watch these variables, ring's for one, would run again, and most of Burn be built anew.
    for (variable, _) in env::vars_os() {
        if variable.to_str().is_some_and(is_about_this_package) {
            cargo.env_remove(variable);
        }
    }
    // Where nothing sets this, a software Vulkan driver complains of it as of an error.
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        cargo.env("XDG_RUNTIME_DIR", env::temp_dir());
    }
    cargo
}

/// Whether cargo sets this variable for a program it runs, to tell it of its package.
fn is_about_this_package(variable: &str) -> bool {
    const NAMES: [&str; 5] =
        ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_CRATE_NAME", "CARGO_BIN_NAME", "OUT_DIR"];
    NAMES.contains(&variable) || variable.starts_with("CARGO_PKG_")
}

/// Runs a command and hands on its exit code.
pub fn run(command: &mut Command) -> Result<ExitCode, String> {
    Ok(code(status(command)?))
}

/// Runs a command and says how it ended.
pub fn status(command: &mut Command) -> Result<ExitStatus, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.status().map_err(|error| format!("cannot run {program}: {error}"))
}

/// The exit code to hand on; that of a command which a signal ended is 1.
pub fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_cargo_is_not_told_of_this_package() {
        let cargo = cargo("run");
        let removed: Vec<_> = cargo.get_envs().filter(|(_, value)| value.is_none()).collect();
        // Cargo has set these for this test.
        for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            assert!(removed.iter().any(|(name, _)| *name == variable), "{variable}");
        }
        assert!(!removed.iter().any(|(name, _)| *name == "CARGO_TARGET_DIR"));
    }
}
