//! What can be wrong with a call.

use burn::tensor::{DType, Device};

/// Why a recurrent operation was refused. Nothing has been launched when one is returned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's shape does not fit the others.
    #[error("`{tensor}` must have the shape {expected}, got {got:?}")]
    Shape {
        /// The tensor, named as in the function's inputs.
        tensor: &'static str,
        /// The axes with their sizes, as in `[N, H] = [4, 8]`.
        expected: String,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A tensor has the wrong number of axes.
    #[error("`{tensor}` must have rank {expected} {reason}, got rank {got} with the shape {shape:?}")]
    Rank {
        /// The tensor, named as in the function's inputs.
        tensor: &'static str,
        /// The rank it must have.
        expected: usize,
        /// What asks for that rank.
        reason: &'static str,
        /// Its rank.
        got: usize,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A tensor's element type differs from that of `source`.
    #[error("`{tensor}` must have the element type of `source`, {expected:?}, got {got:?}")]
    DTypeMismatch {
        /// The tensor, named as in the function's inputs.
        tensor: &'static str,
        /// The element type of `source`.
        expected: DType,
        /// Its element type.
        got: DType,
    },
    /// The device cannot compute with this element type.
    #[error(
        "`{tensor}` must have an element type that {device:?} computes with (f64, f32, f16 or bf16, where \
         the device has it), got {got:?}"
    )]
    UnsupportedDType {
        /// The tensor, named as in the function's inputs.
        tensor: &'static str,
        /// Its element type.
        got: DType,
        /// Its device.
        device: Device,
    },
    /// A tensor is on another device than `source`.
    #[error("`{tensor}` must be on the device of `source`, {expected:?}, got {got:?}")]
    DeviceMismatch {
        /// The tensor, named as in the function's inputs.
        tensor: &'static str,
        /// The device of `source`.
        expected: Device,
        /// Its device.
        got: Device,
    },
    /// A secondary bias came with a descriptor whose `reset_after` is false.
    #[error("`secondary_bias` must be absent without `reset_after`, got one with the shape {got:?}")]
    SecondaryBiasWithoutResetAfter {
        /// Its shape.
        got: Vec<usize>,
    },
    /// A sequence length is negative or above the number of steps.
    #[error("`lengths` must be from 0 to T = {steps}, got {got} in row {row}")]
    LengthOutOfRange {
        /// The batch row.
        row: usize,
        /// Its length.
        got: i64,
        /// The number of time steps of `source`.
        steps: usize,
    },
    /// The lengths could not be read from their device, which checking them needs.
    #[error("`lengths` must be readable to be checked, got: {reason}; give them as a slice instead")]
    UnreadableLengths {
        /// What the device said.
        reason: String,
    },
    /// A number in the descriptor is out of its range.
    #[error("`{option}` must be {expected}, got {got}")]
    Option {
        /// The option, named as in the descriptor.
        option: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        got: f64,
    },
    /// A tensor has more elements than the kernels can address.
    #[error("`{tensor}` must have fewer than 2³² elements, got {got:?}")]
    TooLarge {
        /// The tensor, named as in the function's inputs.
        tensor: &'static str,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A weight given to a conversion does not describe a cell that can be run.
    #[error("`{tensor}` {problem}")]
    Weight {
        /// The weight, named as in the framework it comes from.
        tensor: String,
        /// What was expected and what came.
        problem: String,
    },
}
