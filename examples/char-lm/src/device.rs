//! Where to compute.

use anyhow::{Result, bail};
use burn::tensor::Device;
use clap::ValueEnum;

/// A device, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// A GPU where there is one, else Flex.
    Auto,
    /// The CPU.
    Flex,
    /// Any graphics API, with kernels in WGSL unless another feature is built in.
    Wgpu,
    /// Vulkan, with kernels in SPIR-V.
    Vulkan,
    /// Metal, with kernels in MSL.
    Metal,
    /// CUDA.
    Cuda,
}

/// The device and what to call it.
///
/// # Errors
///
/// If the device is not built in, naming the feature it takes, or if there is none on this machine.
pub fn choose(choice: DeviceChoice) -> Result<(Device, String)> {
    match choice {
        DeviceChoice::Auto => auto(),
        DeviceChoice::Flex => flex(),
        DeviceChoice::Wgpu => wgpu(),
        DeviceChoice::Vulkan => vulkan(),
        DeviceChoice::Metal => metal(),
        DeviceChoice::Cuda => cuda(),
    }
}

/// The error for a device that takes a feature that is not built in.
#[allow(dead_code, reason = "unused when everything is built in")]
fn not_built_in<T>(feature: &str) -> Result<T> {
    bail!(
        "this build has no {feature}; build it in with: cargo run --release -p char-lm --features {feature} -- \
         --device {feature}"
    )
}

fn auto() -> Result<(Device, String)> {
    #[cfg(feature = "cuda")]
    if let Ok(found) = cuda() {
        return Ok(found);
    }
    #[cfg(feature = "wgpu")]
    if let Some((device, kind)) = adapters::gpu(&Device::enumerate(burn::tensor::DeviceType::Wgpu)) {
        let name = adapters::describe(&device, kind);
        return Ok((device, name));
    }
    match flex() {
        Ok((device, name)) => Ok((device, format!("{name}, as there is no GPU that this build can use"))),
        Err(_) => bail!(
            "there is no GPU that this build can use, and it has no flex; build it with --features flex"
        ),
    }
}

fn flex() -> Result<(Device, String)> {
    #[cfg(not(feature = "flex"))]
    return not_built_in("flex");
    #[cfg(feature = "flex")]
    Ok((Device::flex(), "Flex, on the CPU".into()))
}

fn wgpu() -> Result<(Device, String)> {
    #[cfg(not(feature = "wgpu"))]
    return not_built_in("wgpu");
    #[cfg(feature = "wgpu")]
    {
        let devices = Device::enumerate(burn::tensor::DeviceType::Wgpu);
        let found = adapters::gpu(&devices).or_else(|| adapters::any(&devices));
        let Some((device, kind)) = found else {
            bail!("wgpu finds no adapter on this machine; --device flex computes on the CPU")
        };
        let name = adapters::describe(&device, kind);
        Ok((device, name))
    }
}

fn vulkan() -> Result<(Device, String)> {
    #[cfg(not(feature = "vulkan"))]
    return not_built_in("vulkan");
    #[cfg(feature = "vulkan")]
    {
        // Software drivers are left out: their SPIR-V front ends crash on these kernels.
        let devices = Device::enumerate(burn::tensor::DeviceType::Vulkan);
        let Some((device, kind)) = adapters::gpu_through(&devices, Device::vulkan) else {
            bail!("Vulkan finds no GPU on this machine; --device wgpu also runs on a software driver")
        };
        let name = adapters::describe(&device, kind);
        Ok((device, name))
    }
}

fn metal() -> Result<(Device, String)> {
    #[cfg(not(feature = "metal"))]
    return not_built_in("metal");
    #[cfg(feature = "metal")]
    {
        let devices = Device::enumerate(burn::tensor::DeviceType::Metal);
        let Some((device, kind)) = adapters::gpu_through(&devices, Device::metal) else {
            bail!("Metal finds no GPU on this machine; --device flex computes on the CPU")
        };
        let name = adapters::describe(&device, kind);
        Ok((device, name))
    }
}

fn cuda() -> Result<(Device, String)> {
    #[cfg(not(feature = "cuda"))]
    return not_built_in("cuda");
    #[cfg(feature = "cuda")]
    match Device::enumerate(burn::tensor::DeviceType::Cuda).first() {
        Some(device) => {
            let name = device.identity().map_or("a GPU".into(), |identity| identity.name);
            Ok((device.clone(), format!("{name}, through CUDA")))
        }
        None => bail!("CUDA finds no GPU on this machine; --device flex computes on the CPU"),
    }
}

/// wgpu's adapters, which tell by their kind whether they are GPUs.
#[cfg(feature = "wgpu")]
mod adapters {
    use burn::tensor::{Device, DeviceKind};

    /// A GPU among `devices`, the fastest kind first. A software driver is no GPU.
    pub fn gpu(devices: &[Device]) -> Option<(Device, &'static str)> {
        gpu_through(devices, Device::wgpu)
    }

    /// [`gpu`] on one graphics API.
    pub fn gpu_through(
        devices: &[Device],
        device: impl Fn(DeviceKind) -> Device,
    ) -> Option<(Device, &'static str)> {
        of_kinds(
            devices,
            device,
            &[
                (DeviceKind::DiscreteGpu(0), "discrete GPU"),
                (DeviceKind::IntegratedGpu(0), "integrated GPU"),
                (DeviceKind::VirtualGpu(0), "virtual GPU"),
            ],
        )
    }

    /// What is there if there is no GPU.
    pub fn any(devices: &[Device]) -> Option<(Device, &'static str)> {
        let device = devices.first()?.clone();
        let kind = match device == Device::wgpu(DeviceKind::Cpu) {
            true => "software driver, slow",
            false => "adapter of an unknown kind",
        };
        Some((device, kind))
    }

    fn of_kinds(
        devices: &[Device],
        device: impl Fn(DeviceKind) -> Device,
        kinds: &[(DeviceKind, &'static str)],
    ) -> Option<(Device, &'static str)> {
        kinds.iter().find_map(|(kind, name)| {
            let device = device(kind.clone());
            devices.contains(&device).then_some((device, *name))
        })
    }

    /// The adapter's name, its kind and what kernels are compiled for.
    pub fn describe(device: &Device, kind: &str) -> String {
        let name = device.identity().map_or("unnamed".into(), |identity| identity.name);
        format!("{name} ({kind}), through wgpu")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "flex")]
    #[test]
    fn flex_is_on_every_machine() {
        let (device, name) = choose(DeviceChoice::Flex).unwrap();
        assert_eq!(device, Device::flex());
        assert_eq!(name, "Flex, on the CPU");
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_missing_feature_is_named() {
        let error = choose(DeviceChoice::Cuda).unwrap_err().to_string();
        assert!(error.starts_with("this build has no cuda; build it in with: cargo run"), "{error}");
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_software_driver_is_no_gpu() {
        use burn::tensor::DeviceKind;
        let software = Device::wgpu(DeviceKind::Cpu);
        assert_eq!(adapters::gpu(std::slice::from_ref(&software)), None);
        assert_eq!(
            adapters::any(std::slice::from_ref(&software)),
            Some((software.clone(), "software driver, slow"))
        );
        let both = [software, Device::wgpu(DeviceKind::IntegratedGpu(0))];
        assert_eq!(adapters::gpu(&both), Some((both[1].clone(), "integrated GPU")));
    }
}
