//! The devices that the tests run on.

use burn::tensor::{DType, Device};
use rnn_conformance::TestDevice;

/// A device with the element type to use there, and how close results are to come.
#[derive(Clone, Debug)]
pub struct Place {
    pub device: Device,
    pub dtype: DType,
    pub tolerance: f64,
}

/// Flex in f64, where mistakes show most clearly.
pub fn flex() -> Place {
    Place { device: Device::flex(), dtype: DType::F64, tolerance: 1e-12 }
}

/// The adapter in f32, with fusion and the kernels.
pub fn wgpu() -> Place {
    let device = TestDevice::open("wgpu").expect("cargo xtask test makes sure of an adapter");
    Place { device: device.device().clone(), dtype: DType::F32, tolerance: 2e-5 }
}

/// Both.
pub fn all() -> [Place; 2] {
    [flex(), wgpu()]
}
