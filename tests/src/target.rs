//! Where and in which element type cases run.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// A device and an element type.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Without autodiff.
    pub device: Device,
    pub dtype: DType,
    /// Whether autodiff recomputes what is cheap to compute instead of keeping it.
    pub checkpointing: bool,
}

impl Target {
    /// `device` with the autodiff that this target asks for.
    pub fn autodiff(&self) -> Device {
        match self.checkpointing {
            true => self.device.clone().autodiff().gradient_checkpointing(),
            false => self.device.clone().autodiff(),
        }
    }

    /// A tensor of a case on a device, in this target's element type.
    pub fn tensor<const D: usize>(&self, data: &TensorData, device: &Device) -> Tensor<D> {
        Tensor::from_data(data.clone().convert_dtype(self.dtype), (device, self.dtype))
    }
}
