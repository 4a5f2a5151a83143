//! What the conversions share: their errors, and the activations that frameworks name by words.

use burn::tensor::Tensor;

use crate::{Activation, Error};

/// The error of a weight or option that cannot be converted; reads as `tensor` followed by `problem`.
pub(crate) fn weight_error(tensor: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::Weight { tensor: tensor.into(), problem: problem.into() }
}

/// Checks a shape; `axes` names its axes as the framework lays them out.
pub(crate) fn check_shape<const D: usize>(
    name: impl Into<String>,
    tensor: &Tensor<D>,
    axes: &str,
    expected: [usize; D],
) -> Result<(), Error> {
    let got = tensor.dims();
    match got == expected {
        true => Ok(()),
        false => Err(weight_error(name, format!("must have the shape {axes} = {expected:?}, got {got:?}"))),
    }
}

/// The name of an axis of `gates · H` entries.
pub(crate) fn gates_axis(gates: usize) -> &'static str {
    match gates {
        1 => "H",
        3 => "3H",
        _ => unreachable!("a cell has one gate or three"),
    }
}

/// Zeros with the element type and the device of `like`.
pub(crate) fn zeros<const D: usize, const E: usize>(shape: [usize; D], like: &Tensor<E>) -> Tensor<D> {
    Tensor::zeros(shape, (&like.device(), like.dtype()))
}

/// Reads the name of an activation that takes no numbers. Letter case does not matter.
pub(crate) fn activation_named(name: &str) -> Option<Activation> {
    match name.to_ascii_lowercase().as_str() {
        "relu" => Some(Activation::Relu),
        "tanh" => Some(Activation::Tanh),
        "sigmoid" => Some(Activation::Sigmoid),
        _ => None,
    }
}
