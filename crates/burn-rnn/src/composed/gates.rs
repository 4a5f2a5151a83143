//! Gates: where their rows are, their activations and the derivatives of these.

use burn::{
    backend::{
        Backend, TensorMetadata, get_device_settings,
        tensor::{BoolTensor, FloatTensor},
    },
    tensor::Scalar,
};

use super::narrow;
use crate::{Activation, GruDescriptor};

/// The position of each gate along a `3H` axis, in units of `H`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateOrder {
    pub update: usize,
    pub reset: usize,
    pub output: usize,
}

impl GateOrder {
    pub fn new(descriptor: &GruDescriptor) -> Self {
        match descriptor.reset_gate_first {
            false => Self { update: 0, reset: 1, output: 2 },
            true => Self { update: 1, reset: 0, output: 2 },
        }
    }

    /// The update and the reset gate in the order of the weights.
    pub fn arrange<T>(&self, update: T, reset: T) -> [T; 2] {
        if self.update == 0 { [update, reset] } else { [reset, update] }
    }
}

/// One gate's channels of `[_, 3H]`.
pub(super) fn gate<B: Backend>(gates: &FloatTensor<B>, position: usize, hidden: usize) -> FloatTensor<B> {
    let dim = gates.shape().num_dims() - 1;
    narrow::<B>(gates.clone(), dim, position * hidden, hidden)
}

/// `1 - tensor`
pub(super) fn complement<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_add_scalar(B::float_neg(tensor), 1f32.into())
}

/// The activation's value.
pub(super) fn activate<B: Backend>(activation: Activation, x: FloatTensor<B>) -> FloatTensor<B> {
    match activation {
        Activation::None => x,
        Activation::Relu => B::relu(x),
        Activation::Tanh => B::float_tanh(x),
        // Not the backend's own: its default computes in f32 whatever the element type.
        Activation::Sigmoid => {
            let half = B::float_tanh(B::float_mul_scalar(x, 0.5f32.into()));
            B::float_add_scalar(B::float_mul_scalar(half, 0.5f32.into()), 0.5f32.into())
        }
        Activation::HardSigmoid { alpha, beta } => {
            let line = B::float_add_scalar(B::float_mul_scalar(x, alpha.into()), beta.into());
            B::float_clamp(line, 0f32.into(), 1f32.into())
        }
    }
}

/// `gradient` times the activation's derivative, both at the point where the activation's value is `y`.
pub(super) fn activation_gradient<B: Backend>(
    activation: Activation,
    y: FloatTensor<B>,
    gradient: FloatTensor<B>,
) -> FloatTensor<B> {
    match activation {
        Activation::None => gradient,
        Activation::Relu => keep_where::<B>(above::<B>(y, 0.0), gradient),
        Activation::Tanh => {
            let slope = complement::<B>(B::float_mul(y.clone(), y));
            B::float_mul(gradient, slope)
        }
        Activation::Sigmoid => {
            let slope = B::float_mul(complement::<B>(y.clone()), y);
            B::float_mul(gradient, slope)
        }
        Activation::HardSigmoid { alpha, .. } => {
            let inside = B::bool_and(above::<B>(y.clone(), 0.0), above::<B>(B::float_neg(y), -1.0));
            B::float_mul_scalar(keep_where::<B>(inside, gradient), alpha.into())
        }
    }
}

/// Clamps a state to `[-clip, clip]`.
pub(super) fn clip_state<B: Backend>(clip: Option<f64>, state: FloatTensor<B>) -> FloatTensor<B> {
    match clip {
        Some(clip) => B::float_clamp(state, (-clip).into(), clip.into()),
        None => state,
    }
}

/// `gradient` where the state before clamping is inside the range, else zero.
pub(super) fn clip_gradient<B: Backend>(
    clip: Option<f64>,
    unclipped: impl FnOnce() -> FloatTensor<B>,
    gradient: FloatTensor<B>,
) -> FloatTensor<B> {
    match clip {
        Some(clip) => {
            let magnitude = B::float_abs(unclipped());
            let dtype = get_device_settings::<B>(&magnitude.device()).bool_dtype;
            keep_where::<B>(B::float_lower_equal_elem(magnitude, clip.into(), dtype), gradient)
        }
        None => gradient,
    }
}

fn above<B: Backend>(tensor: FloatTensor<B>, bound: f32) -> BoolTensor<B> {
    let dtype = get_device_settings::<B>(&tensor.device()).bool_dtype;
    B::float_greater_elem(tensor, Scalar::from(bound), dtype)
}

fn keep_where<B: Backend>(condition: BoolTensor<B>, tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mask_fill(tensor, B::bool_not(condition), 0f32.into())
}
