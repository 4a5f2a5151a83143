//! Inputs that both cells share.

use burn::tensor::{Int, Tensor};

/// What multiplies the state before a step's recurrent product; it gets no gradient.
///
/// The two shapes are this project's choice: Apple's pages leave the mask's shape open.
#[derive(Clone, Debug)]
pub enum Mask {
    /// `[N, D·H]`, the same at every step.
    Constant(Tensor<2>),
    /// `[T, N, D·H]`, one for each step.
    PerStep(Tensor<3>),
}

impl From<Tensor<2>> for Mask {
    fn from(mask: Tensor<2>) -> Self {
        Self::Constant(mask)
    }
}

impl From<Tensor<3>> for Mask {
    fn from(mask: Tensor<3>) -> Self {
        Self::PerStep(mask)
    }
}

/// How many steps each batch row runs, from 0 to `T`.
///
/// Row `n` runs its first `lengths[n]` steps: outputs past them are zero, the state is held, and the
/// reverse direction starts at step `lengths[n] - 1`. These are the semantics of PyTorch's packed
/// sequences.
#[derive(Clone, Debug)]
pub enum Lengths {
    /// On the host, one for each row. Checked without waiting for the device.
    Host(Vec<i64>),
    /// `[N]` on any device. Checking them waits for the device.
    Device(Tensor<1, Int>),
}

impl From<Tensor<1, Int>> for Lengths {
    fn from(lengths: Tensor<1, Int>) -> Self {
        Self::Device(lengths)
    }
}

impl From<Vec<usize>> for Lengths {
    fn from(lengths: Vec<usize>) -> Self {
        lengths.as_slice().into()
    }
}

impl From<&[usize]> for Lengths {
    fn from(lengths: &[usize]) -> Self {
        // A length past i64::MAX is above any T, as is i64::MAX itself.
        let lengths = lengths.iter().map(|&length| length.try_into().unwrap_or(i64::MAX));
        Self::Host(lengths.collect())
    }
}

impl<const N: usize> From<[usize; N]> for Lengths {
    fn from(lengths: [usize; N]) -> Self {
        lengths.as_slice().into()
    }
}

/// Outputs of a forward operation. `T` steps, `N` batch rows, `H` hidden units, `G` gates (3 for a GRU,
/// 1 for a single-gate RNN), `D` directions (2 if bidirectional, else 1).
#[derive(Clone, Debug)]
pub struct RecurrentOutput {
    /// `[T, N, D·H]`, the state after each step, at the time index of the input it belongs to in either
    /// direction; the directions side by side, forward first.
    pub output: Tensor<3>,
    /// `[N, D·H]`, the state after the last step that each row and direction runs.
    pub final_state: Tensor<2>,
    /// `[T, N, D·GH]`, the training state, if the descriptor's `training` asked for it. Opaque for a GRU;
    /// the pre-activation `z` for a single-gate RNN.
    pub z_state: Option<Tensor<3>>,
}
