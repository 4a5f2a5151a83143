//! A Vulkan adapter for the tests; a software one is enough.

use std::{env, ffi::OsStr, fs, path::PathBuf, process::Stdio};

use crate::{apt, workspace::cargo};

/// The package of Debian and Ubuntu with the software driver.
const PACKAGE: &str = "mesa-vulkan-drivers";

/// Installs the software driver where no driver has told the Vulkan loader of itself.
///
/// # Errors
///
/// If none is there and none can be installed: one line that says what to do.
pub fn install_if_no_driver_is_there() -> Result<(), String> {
    if !cfg!(target_os = "linux") || driver_is_there() {
        return Ok(());
    }
    install("No Vulkan driver was found")
}

/// Makes sure that an adapter can really be opened, and says which.
///
/// # Errors
///
/// As [`install_if_no_driver_is_there`].
pub fn check_adapter() -> Result<(), String> {
    let mut adapter = adapter()?;
    if adapter.is_none() && cfg!(target_os = "linux") {
        install("No Vulkan adapter could be opened")?;
        adapter = self::adapter()?;
    }
    match adapter {
        Some(adapter) => {
            println!("Adapter for the tests: {adapter}");
            Ok(())
        }
        None => Err(format!("no adapter for the tests could be opened: {ADVICE}")),
    }
}

const ADVICE: &str = "install a Vulkan driver, such as the package mesa-vulkan-drivers of Debian and Ubuntu \
                      or vulkan-swrast of Arch, and run this again";

/// The adapter that wgpu opens; on Linux it must be Vulkan's.
fn adapter() -> Result<Option<String>, String> {
    let output = cargo("run")
        .args(["--quiet", "--bin", "conformance", "--", "--list-devices", "--device", "wgpu"])
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let adapter = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let right = !cfg!(target_os = "linux") || adapter.contains("Vulkan");
    Ok((output.status.success() && right).then_some(adapter))
}

/// Whether a driver's manifest stands where the Vulkan loader looks for it.
fn driver_is_there() -> bool {
    // Either variable replaces the folders.
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(files) = env::var_os(variable) {
            return env::split_paths(&files).any(|file| file.exists());
        }
    }
    let mut folders: Vec<PathBuf> =
        ["/etc", "/usr/share", "/usr/local/share", "/usr/local/etc"].map(PathBuf::from).into();
    if let Some(home) = env::var_os("HOME") {
        folders.push(PathBuf::from(home).join(".local/share"));
    }
    for variable in ["XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS"] {
        folders.extend(env::var_os(variable).iter().flat_map(env::split_paths));
    }
    folders.iter().any(|folder| {
        let manifests = fs::read_dir(folder.join("vulkan/icd.d"));
        let is_manifest = |path: PathBuf| path.extension() == Some(OsStr::new("json"));
        manifests.into_iter().flatten().flatten().any(|file| is_manifest(file.path()))
    })
}

/// Installs the software driver.
fn install(reason: &str) -> Result<(), String> {
    apt::install(PACKAGE, reason, ADVICE)
}
