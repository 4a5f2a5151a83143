//! The single-gate (simple, Elman) RNN.

use burn::tensor::Tensor;

use super::check::{Checked, Unchecked, present};
use crate::{Cell, Error, Lengths, Mask, RecurrentOutput, SingleGateRnnDescriptor};

/// Inputs of a single-gate RNN. `T` steps, `N` batch rows, `I` input features, `H` hidden units, `D`
/// directions (2 if bidirectional, else 1); `R` is the rank of `recurrent_weight`, 3 if bidirectional, else 2.
///
/// All tensors have the element type and the device of `source`.
#[derive(Clone, Debug)]
pub struct SingleGateRnnInputs<const R: usize> {
    /// `[T, N, I]`; without `input_weight`, `[T, N, D·H]`.
    pub source: Tensor<3>,
    /// `[H, H]`; bidirectional, `[2, H, H]`.
    pub recurrent_weight: Tensor<R>,
    /// `[D·H, I]`. Default: absent, the identity.
    pub input_weight: Option<Tensor<2>>,
    /// `[D·H]`. Default: absent, zero.
    pub bias: Option<Tensor<1>>,
    /// `[N, D·H]`, the state before the first step. Default: absent, zero.
    pub init_state: Option<Tensor<2>>,
    /// `[N, D·H]` or `[T, N, D·H]`. Default: absent, one.
    pub mask: Option<Mask>,
    /// `[N]`, how many steps each row runs. Default: absent, all.
    pub lengths: Option<Lengths>,
}

impl<const R: usize> SingleGateRnnInputs<R> {
    /// Inputs with all that is optional absent.
    pub fn new(source: Tensor<3>, recurrent_weight: Tensor<R>) -> Self {
        Self {
            source,
            recurrent_weight,
            input_weight: None,
            bias: None,
            init_state: None,
            mask: None,
            lengths: None,
        }
    }

    /// Sets `input_weight`, `[D·H, I]`.
    pub fn with_input_weight(mut self, input_weight: Tensor<2>) -> Self {
        self.input_weight = Some(input_weight);
        self
    }

    /// Sets `bias`, `[D·H]`.
    pub fn with_bias(mut self, bias: Tensor<1>) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Sets `init_state`, `[N, D·H]`.
    pub fn with_init_state(mut self, init_state: Tensor<2>) -> Self {
        self.init_state = Some(init_state);
        self
    }

    /// Sets `mask`, `[N, D·H]` or `[T, N, D·H]`.
    pub fn with_mask(mut self, mask: impl Into<Mask>) -> Self {
        self.mask = Some(mask.into());
        self
    }

    /// Sets `lengths`, `[N]`.
    pub fn with_lengths(mut self, lengths: impl Into<Lengths>) -> Self {
        self.lengths = Some(lengths.into());
        self
    }

    fn check(self, descriptor: &SingleGateRnnDescriptor) -> Result<Checked, Error> {
        let inputs = Unchecked {
            source: self.source,
            recurrent_weight: self.recurrent_weight,
            input_weight: self.input_weight,
            bias: self.bias,
            init_state: self.init_state,
            mask: self.mask,
            secondary_bias: None,
            lengths: self.lengths,
        };
        Checked::new(inputs, Cell::SingleGate(*descriptor))
    }
}

/// Gradients of a single-gate RNN's inputs, each with its input's shape, for exactly the inputs that were
/// present.
#[derive(Clone, Debug)]
pub struct SingleGateRnnGradients<const R: usize> {
    /// Of `source`.
    pub source: Tensor<3>,
    /// Of `recurrent_weight`.
    pub recurrent_weight: Tensor<R>,
    /// Of `input_weight`.
    pub input_weight: Option<Tensor<2>>,
    /// Of `bias`.
    pub bias: Option<Tensor<1>>,
    /// Of `init_state`.
    pub init_state: Option<Tensor<2>>,
}

/// Runs a single-gate RNN over `T` steps, as MPSGraph's `singleGateRNN` operation does. For t = 0 … T-1,
/// with the input weight `W`, the recurrent weight `R`, the bias `b` and the mask `m`:
///
/// ```text
/// z[t] = x[t] Wᵀ + (h[t-1]∘m) Rᵀ + b
/// h[t] = activation(z[t])
/// ```
///
/// The formulas are those of Apple's page on
/// [`MPSGraph.singleGateRNN`](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraph).
/// `clip` and `lengths` are additions, see [`SingleGateRnnDescriptor::clip`] and [`Lengths`].
///
/// With `T = 0` or `N = 0` the output is empty and the final state is the initial one.
///
/// # Errors
///
/// An [`Error`] that names the tensor or option, what was expected and what came: a shape or rank that does
/// not fit, an element type or device other than that of `source`, an element type that the device does not
/// compute with, a length outside 0 to `T`, a `clip` that is not above 0, a tensor of 2³² elements or more.
pub fn single_gate_rnn<const R: usize>(
    inputs: SingleGateRnnInputs<R>,
    descriptor: &SingleGateRnnDescriptor,
) -> Result<RecurrentOutput, Error> {
    Ok(inputs.check(descriptor)?.forward(descriptor.training))
}

/// Computes the gradients of [`single_gate_rnn`]'s inputs, as MPSGraph's `singleGateRNNGradients` operation
/// does. Needs no autodiff, and is itself not differentiable.
///
/// - `source_gradient`: `[T, N, D·H]`, the gradient of the first output, `output`.
/// - `z_state`: `[T, N, D·H]`, from [`single_gate_rnn`] with the same inputs, and `training` set.
/// - `state_gradient`: `[N, D·H]`, the gradient of `final_state`; `None`: zero.
///
/// # Errors
///
/// As [`single_gate_rnn`], and for the tensors above.
pub fn single_gate_rnn_gradients<const R: usize>(
    inputs: SingleGateRnnInputs<R>,
    source_gradient: Tensor<3>,
    z_state: Tensor<3>,
    state_gradient: Option<Tensor<2>>,
    descriptor: &SingleGateRnnDescriptor,
) -> Result<SingleGateRnnGradients<R>, Error> {
    let gradients = inputs.check(descriptor)?.backward(source_gradient, z_state, None, state_gradient)?;
    Ok(SingleGateRnnGradients {
        source: present(gradients.source),
        recurrent_weight: present(gradients.recurrent_weight),
        input_weight: gradients.input_weight.map(Tensor::from_dispatch),
        bias: gradients.bias.map(Tensor::from_dispatch),
        init_state: gradients.init_state.map(Tensor::from_dispatch),
    })
}
