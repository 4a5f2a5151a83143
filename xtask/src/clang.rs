//! A clang for the tests that run the kernels' Metal text on the CPU.

use std::process::{Command, Stdio};

use crate::apt;

/// The oldest version that will do: older ones have no 16-bit floats on every processor.
const OLDEST: u32 = 15;

/// Packages of Debian and Ubuntu with a clang, in the order in which they are tried: the default one may be too old.
const PACKAGES: [&str; 3] = ["clang", "clang-19", "clang-16"];

const ADVICE: &str = "install clang, version 15 or newer, such as the package clang of Debian, Ubuntu or Arch, and run this again";

/// Installs clang where there is none, or none that is new enough.
///
/// # Errors
///
/// If there is none and none can be installed: one line that says what to do.
pub fn install_if_missing() -> Result<(), String> {
    // Elsewhere these tests do not run.
    if !cfg!(unix) || is_there() {
        return Ok(());
    }
    let mut done = Err(String::new());
    for package in PACKAGES {
        done = apt::install(package, "No clang was found that is new enough", ADVICE);
        if is_there() {
            return Ok(());
        }
    }
    done.and_then(|()| Err(format!("the clang that was installed is too old: {ADVICE}")))
}

/// Whether there is one under a name that the tests look for.
fn is_there() -> bool {
    let names = (OLDEST..40).map(|version| format!("clang-{version}")).chain(["clang".into()]);
    names.into_iter().any(|name| {
        let output = Command::new(name).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        output.is_ok_and(|output| is_new_enough(&String::from_utf8_lossy(&output.stdout)))
    })
}

/// Whether `clang --version` says that it is new enough.
fn is_new_enough(said: &str) -> bool {
    let version =
        said.split_once("clang version ").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
    version.is_some_and(|version: u32| version >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert!(is_new_enough("Debian clang version 19.1.7 (3)\nTarget: x86_64-pc-linux-gnu"));
        assert!(is_new_enough("Apple clang version 16.0.0 (clang-1600.0.26.6)"));
        assert!(!is_new_enough("Debian clang version 14.0.6"));
        assert!(!is_new_enough(""));
    }
}
