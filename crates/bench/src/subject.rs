//! What can be timed: an implementation with its inputs on the device.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// What a forward pass returns.
pub struct ForwardResult {
    /// `[T, N, D·H]`
    pub output: Tensor<3>,
    /// `[N, D·H]`; a layer of Burn's returns none.
    pub final_state: Option<Tensor<2>>,
}

/// What a training step returns, each gradient with the shape that the reference has.
pub struct TrainResult {
    /// `[T, N, D·H]`
    pub output: Tensor<3>,
    /// `[T, N, I]`
    pub source: Option<Tensor<3>>,
    /// `[D, GH, H]`, or `[GH, H]` flat in the same order.
    pub recurrent_weight: Option<Tensor<3>>,
    /// `[D·GH, I]`
    pub input_weight: Option<Tensor<2>>,
    /// `[D·GH]`
    pub bias: Option<Tensor<1>>,
    /// `[D·H]`
    pub secondary_bias: Option<Tensor<1>>,
}

/// An implementation, ready to be called on inputs that are on the device.
pub trait Subject {
    /// Runs the sequence without autodiff.
    fn forward(&self) -> Result<Run, String>;

    /// Runs the sequence and its backward pass, for the gradients of every input and weight that an all-ones
    /// gradient of the output gives.
    fn train(&self) -> Result<Run, String>;

    /// Reads a run of `forward` as the reference is laid out.
    fn forward_result(&self, run: Run) -> ForwardResult;

    /// Reads a run of `train` as the reference is laid out.
    fn train_result(&self, run: Run) -> TrainResult;
}

/// What a timed call leaves: the tensors as the implementation has them, nothing rearranged.
pub struct Run {
    /// The output.
    pub output: Tensor<3>,
    /// The final state, if the implementation returns one.
    pub final_state: Option<Tensor<2>>,
    /// After a training step, the gradients.
    pub gradients: Option<burn::tensor::Gradients>,
}

/// Brings values to a device.
pub fn upload<const D: usize>(values: &[f32], shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, dtype))
}
