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

/// Flex, which has its own implementation, in f64, where mistakes show most clearly.
pub fn flex() -> Place {
    Place { device: Device::flex(), dtype: DType::F64, tolerance: 1e-12 }
}

/// NdArray, which runs the composed implementation, in f64.
pub fn ndarray() -> Place {
    let device = TestDevice::open("ndarray").expect("always there");
    Place { device: device.device().clone(), dtype: DType::F64, tolerance: 1e-12 }
}

/// The adapter in f32, with fusion and the kernels.
pub fn wgpu() -> Place {
    let device = TestDevice::open("wgpu").expect("cargo xtask test makes sure of an adapter");
    Place { device: device.device().clone(), dtype: DType::F32, tolerance: 2e-5 }
}

/// One device for each implementation.
pub fn all() -> [Place; 3] {
    [flex(), ndarray(), wgpu()]
}
