//! Devices by name.

use burn::tensor::{Device, DeviceKind, FloatDType, wgpu::WgpuBackend};

use crate::problem::Precision;

/// A device with what it is called.
pub struct Opened {
    /// The device.
    pub device: Device,
    /// Its name as given, with what it says of itself.
    pub name: String,
}

/// Devices that need a feature of their name.
const FEATURES: [&str; 6] = ["vulkan", "metal", "webgpu", "cuda", "rocm", "cpu"];

/// Opens the device `name`, as in `flex`, `vulkan` or `vulkan:1` for the second discrete GPU.
pub fn open(name: &str) -> Result<Opened, String> {
    let (backend, index) = match name.split_once(':') {
        Some((backend, index)) => {
            let index: usize =
                index.parse().map_err(|_| format!("`{index}` in `{name}` is not a device's number"))?;
            (backend, Some(index))
        }
        None => (name, None),
    };
    let device = match backend {
        "flex" => Ok(Device::flex()),
        "wgpu" => wgpu(WgpuBackend::Auto, index),
        #[cfg(feature = "vulkan")]
        "vulkan" => wgpu(WgpuBackend::Vulkan, index),
        #[cfg(feature = "metal")]
        "metal" => wgpu(WgpuBackend::Metal, index),
        #[cfg(feature = "webgpu")]
        "webgpu" => wgpu(WgpuBackend::WebGpu, index),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(index.unwrap_or(0))),
        #[cfg(feature = "rocm")]
        "rocm" => Ok(Device::rocm(index.unwrap_or(0))),
        #[cfg(feature = "cpu")]
        "cpu" => Ok(Device::cpu()),
        _ if FEATURES.contains(&backend) => Err(format!(
            "this build has no {backend}: build it with `cargo build --release -p bench --features {backend}`"
        )),
        _ => Err(format!("there is no device `{name}`; there is flex, wgpu, {}", FEATURES.join(", "))),
    }?;
    let name = match device.identity() {
        Some(identity) => format!("{name} ({}, {})", identity.name, identity.fingerprint),
        None => name.to_string(),
    };
    Ok(Opened { device, name })
}

fn wgpu(api: WgpuBackend, index: Option<usize>) -> Result<Device, String> {
    let kind = index.map_or(DeviceKind::DefaultDevice, DeviceKind::DiscreteGpu);
    Device::wgpu_options()
        .device_kind(kind)
        .graphics_api(api)
        .init()
        .map_err(|error| format!("the device cannot be opened: {error}"))
}

/// Makes `precision` the type that layers on `device` create their tensors with. To be called before any
/// tensor is made.
pub fn set_default(device: &Device, precision: Precision) -> Result<(), String> {
    let dtype = match precision {
        Precision::F32 => FloatDType::F32,
        Precision::F16 => FloatDType::F16,
        Precision::Bf16 => FloatDType::BF16,
    };
    device.clone().configure(dtype).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_device_is_named() {
        let error = |name| open(name).err().expect("not a device");
        assert!(error("toaster").starts_with("there is no device `toaster`"));
        assert!(error("wgpu:x").starts_with("`x` in `wgpu:x`"));
        #[cfg(not(feature = "rocm"))]
        assert!(error("rocm").ends_with("--features rocm`"));
    }

    #[test]
    fn flex_is_always_there() {
        assert_eq!(open("flex").expect("built in").name, "flex");
    }
}
