//! Installing packages of Debian and Ubuntu.

use std::process::{Command, Stdio};

/// Installs a package with apt-get, as root or where sudo asks for no password. `reason` says what was not found,
/// `advice` what to do where this fails.
///
/// # Errors
///
/// If the package cannot be installed: one line with the advice.
pub fn install(package: &str, reason: &str, advice: &str) -> Result<(), String> {
    let Some(prefix) = may_use_apt() else {
        return Err(format!("{}, and apt-get may not be used here: {advice}", lower(reason)));
    };
    println!("{reason}: installing {package} with apt-get.");
    let apt = |arguments: &[&str]| {
        let words = prefix.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet=2"]);
        let mut words = words.chain(arguments);
        let mut command = Command::new(words.next().expect("at least env"));
        command.args(words).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    // Lists may be out of date, or missing altogether.
    let installed = apt(&["update"]) && apt(&["install", "--yes", "--no-install-recommends", package]);
    match installed {
        true => Ok(()),
        false => Err(format!("apt-get could not install {package}: {advice}")),
    }
}

/// What must stand before `apt-get`; `None` if it may not be used.
fn may_use_apt() -> Option<&'static [&'static str]> {
    let succeeds = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        output.ok().filter(|output| output.status.success())
    };
    succeeds("apt-get", &["--version"])?;
    let user = succeeds("id", &["-u"])?;
    if user.stdout.trim_ascii() == b"0" {
        return Some(&[]);
    }
    succeeds("sudo", &["-n", "true"]).map(|_| &["sudo", "-n"][..])
}

fn lower(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_goes_on_as_part_of_a_sentence() {
        assert_eq!(lower("No clang was found"), "no clang was found");
        assert_eq!(lower(""), "");
    }
}
