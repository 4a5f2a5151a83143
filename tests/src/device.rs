//! Devices by name, for runners.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use burn::{
    backend::DispatchDevice,
    tensor::{
        DType, Device, DeviceKind,
        wgpu::{WgpuBackend, WgpuInitError},
    },
};
use burn_autodiff::Autodiff;
use burn_cubecl::CubeBackend;

use crate::{
    Case, CaseError, Outcome, Report, run_case, run_case_on_backend, run_folder, run_folder_on_backend,
};

/// What the name of a device ends with if fusion is to be left out.
const UNFUSED: &str = "-unfused";

/// Why a device can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such name.
    #[error("there is no device `{name}`: choose one of {}", TestDevice::names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The suite was built without the feature that the device needs.
    #[error("the device `{name}` needs the suite to be built with `--features {name}`")]
    NotBuilt {
        /// The name, and that of the feature.
        name: String,
    },
    /// The device runs operations one by one anyway.
    #[error("the device `{name}` has no fusion that could be left out")]
    NoFusion {
        /// The name without its ending.
        name: String,
    },
    /// This machine doesn't have it.
    #[error("the device `{name}` is not available: {reason}")]
    Unavailable {
        /// The name.
        name: String,
        /// What its driver said.
        reason: String,
    },
}

/// A device that a runner can name, with fusion or without.
///
/// A device of a GPU fuses operations where the crate feature `fusion` is on, as it is here. With the
/// ending `-unfused` the cases run on the backend below fusion.
#[derive(Clone, Debug)]
pub struct TestDevice {
    name: String,
    device: Device,
    /// The graphics API, where there is a choice.
    api: Option<String>,
    fusion: bool,
}

impl TestDevice {
    /// The names of the devices that this build can open.
    pub fn names() -> Vec<&'static str> {
        let mut names = vec!["flex", "ndarray", "wgpu", "wgpu-unfused"];
        for (built, pair) in [
            (cfg!(feature = "vulkan"), ["vulkan", "vulkan-unfused"]),
            (cfg!(feature = "metal"), ["metal", "metal-unfused"]),
            (cfg!(feature = "webgpu"), ["webgpu", "webgpu-unfused"]),
            (cfg!(feature = "cuda"), ["cuda", "cuda-unfused"]),
            (cfg!(feature = "rocm"), ["rocm", "rocm-unfused"]),
            (cfg!(feature = "cpu"), ["cpu", "cpu-unfused"]),
        ] {
            if built {
                names.extend(pair);
            }
        }
        if cfg!(feature = "tch") {
            names.push("tch");
        }
        names
    }

    /// Opens a device. The environment variable `CUBECL_WGPU_DEFAULT_DEVICE` chooses among several adapters,
    /// as everywhere in Burn.
    ///
    /// # Errors
    ///
    /// A [`DeviceError`] if there is no such name, or this build or this machine doesn't have the device.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        let (base, fusion) = match name.strip_suffix(UNFUSED) {
            Some(base) => (base, false),
            None => (name, true),
        };
        let (device, api) = device(base)?;
        if !fusion && !matches!(device.as_dispatch(), DispatchDevice::Cube(_)) {
            return Err(DeviceError::NoFusion { name: base.into() });
        }
        Ok(Self { name: name.into(), device, api, fusion })
    }

    /// The name it was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device, whether with fusion or not.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs every case of a folder in the element type `dtype`; see [`run_folder`].
    ///
    /// # Errors
    ///
    /// A [`CaseError`] if the folder can't be read.
    pub fn run_folder(&self, folder: &Path, dtype: DType) -> Result<Report, CaseError> {
        match self.device.as_dispatch() {
            DispatchDevice::Cube(device) if !self.fusion => {
                run_folder_on_backend::<Autodiff<CubeBackend>>(folder, device, dtype)
            }
            _ => run_folder(folder, &self.device, dtype),
        }
    }

    /// Runs one case in the element type `dtype`.
    pub fn run_case(&self, case: &Case, dtype: DType) -> Outcome {
        match self.device.as_dispatch() {
            DispatchDevice::Cube(device) if !self.fusion => {
                run_case_on_backend::<Autodiff<CubeBackend>>(case, device, dtype)
            }
            _ => run_case(case, &self.device, dtype),
        }
    }
}

impl fmt::Display for TestDevice {
    /// The name, and what the device calls itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.device.identity().map(|identity| identity.name).into_iter().chain(self.api.clone());
        match about.collect::<Vec<_>>() {
            about if about.is_empty() => write!(f, "{}", self.name),
            about => write!(f, "{} ({})", self.name, about.join(", ")),
        }
    }
}

/// A device, and its graphics API.
fn device(name: &str) -> Result<(Device, Option<String>), DeviceError> {
    let device = match name {
        "wgpu" => return wgpu(name, WgpuBackend::Auto),
        "vulkan" if cfg!(feature = "vulkan") => return wgpu(name, WgpuBackend::Vulkan),
        "metal" if cfg!(feature = "metal") => return wgpu(name, WgpuBackend::Metal),
        "webgpu" if cfg!(feature = "webgpu") => return wgpu(name, WgpuBackend::WebGpu),
        "flex" => Device::flex(),
        "ndarray" => ndarray(),
        #[cfg(feature = "cuda")]
        "cuda" => Device::cuda(0),
        #[cfg(feature = "rocm")]
        "rocm" => Device::rocm(0),
        #[cfg(feature = "cpu")]
        "cpu" => Device::cpu(),
        #[cfg(feature = "tch")]
        "tch" => libtorch(),
        "vulkan" | "metal" | "webgpu" | "cuda" | "rocm" | "cpu" | "tch" => {
            return Err(DeviceError::NotBuilt { name: name.into() });
        }
        _ => return Err(DeviceError::Unknown { name: name.into() }),
    };
    Ok((device, None))
}

// Burn has set an end to these two backends, but has them still.
#[allow(deprecated)]
fn ndarray() -> Device {
    Device::ndarray()
}

#[cfg(feature = "tch")]
#[allow(deprecated)]
fn libtorch() -> Device {
    Device::libtorch()
}

/// Opens an adapter, once in a process: a second attempt would be refused.
fn wgpu(name: &str, api: WgpuBackend) -> Result<(Device, Option<String>), DeviceError> {
    type Opened = Result<(Device, Option<String>), DeviceError>;
    static OPENED: Mutex<BTreeMap<String, Opened>> = Mutex::new(BTreeMap::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let open = || match Device::wgpu_options().graphics_api(api).init_with_setup() {
        Ok((device, setup)) => Ok((device, Some(format!("{:?}", setup.backend)))),
        // Somebody else in this process was first.
        Err(WgpuInitError::Registration { .. }) if api == WgpuBackend::Auto => {
            Ok((Device::wgpu(DeviceKind::DefaultDevice), None))
        }
        Err(error) => Err(DeviceError::Unavailable { name: name.into(), reason: error.to_string() }),
    };
    opened.entry(name.into()).or_insert_with(open).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_go_by_name() {
        let flex = TestDevice::open("flex").unwrap();
        assert_eq!(flex.name(), "flex");
        assert_eq!(flex.device(), &Device::flex());
        assert_eq!(flex.to_string(), "flex");
        assert_eq!(TestDevice::open("ndarray").unwrap().device(), &ndarray());
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let error = |name| TestDevice::open(name).unwrap_err().to_string();
        assert!(error("tpu").contains("`tpu`") && error("tpu").contains("wgpu-unfused"));
        assert!(error("flex-unfused").contains("`flex` has no fusion"));
        if !cfg!(feature = "cuda") {
            assert!(error("cuda").contains("--features cuda"));
            assert!(error("cuda-unfused").contains("--features cuda"));
        }
    }
}
