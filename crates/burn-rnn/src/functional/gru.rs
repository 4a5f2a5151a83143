//! The gated recurrent unit.

use burn::tensor::Tensor;

use super::check::{Checked, Unchecked, present};
use crate::{Cell, Error, GruDescriptor, Lengths, Mask, RecurrentOutput};

/// Inputs of a GRU. `T` steps, `N` batch rows, `I` input features, `H` hidden units, `D` directions (2 if
/// bidirectional, else 1); `R` is the rank of `recurrent_weight`, 3 if bidirectional, else 2.
///
/// The gates of every `3H` axis are ordered `z, r, o`, or `r, z, o` with `reset_gate_first`. All tensors have
/// the element type and the device of `source`.
#[derive(Clone, Debug)]
pub struct GruInputs<const R: usize> {
    /// `[T, N, I]`; without `input_weight`, `[T, N, D·3H]`.
    pub source: Tensor<3>,
    /// `[3H, H]`; bidirectional, `[2, 3H, H]`.
    pub recurrent_weight: Tensor<R>,
    /// `[D·3H, I]`. Default: absent, the identity.
    pub input_weight: Option<Tensor<2>>,
    /// `[D·3H]`. Default: absent, zero.
    pub bias: Option<Tensor<1>>,
    /// `[N, D·H]`, the state before the first step. Default: absent, zero.
    pub init_state: Option<Tensor<2>>,
    /// `[N, D·H]` or `[T, N, D·H]`. Default: absent, one.
    pub mask: Option<Mask>,
    /// `[D·H]`, only with `reset_after`. Default: absent, zero.
    pub secondary_bias: Option<Tensor<1>>,
    /// `[N]`, how many steps each row runs. Default: absent, all.
    pub lengths: Option<Lengths>,
}

impl<const R: usize> GruInputs<R> {
    /// Inputs with all that is optional absent.
    pub fn new(source: Tensor<3>, recurrent_weight: Tensor<R>) -> Self {
        Self {
            source,
            recurrent_weight,
            input_weight: None,
            bias: None,
            init_state: None,
            mask: None,
            secondary_bias: None,
            lengths: None,
        }
    }

    /// Sets `input_weight`, `[D·3H, I]`.
    pub fn with_input_weight(mut self, input_weight: Tensor<2>) -> Self {
        self.input_weight = Some(input_weight);
        self
    }

    /// Sets `bias`, `[D·3H]`.
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

    /// Sets `secondary_bias`, `[D·H]`.
    pub fn with_secondary_bias(mut self, secondary_bias: Tensor<1>) -> Self {
        self.secondary_bias = Some(secondary_bias);
        self
    }

    /// Sets `lengths`, `[N]`.
    pub fn with_lengths(mut self, lengths: impl Into<Lengths>) -> Self {
        self.lengths = Some(lengths.into());
        self
    }

    fn check(self, descriptor: &GruDescriptor) -> Result<Checked, Error> {
        let inputs = Unchecked {
            source: self.source,
            recurrent_weight: self.recurrent_weight,
            input_weight: self.input_weight,
            bias: self.bias,
            init_state: self.init_state,
            mask: self.mask,
            secondary_bias: self.secondary_bias,
            lengths: self.lengths,
        };
        Checked::new(inputs, Cell::Gru(*descriptor))
    }
}

/// Gradients of a GRU's inputs, each with its input's shape, for exactly the inputs that were present.
#[derive(Clone, Debug)]
pub struct GruGradients<const R: usize> {
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
    /// Of `secondary_bias`.
    pub secondary_bias: Option<Tensor<1>>,
}

/// Runs a GRU over `T` steps, as MPSGraph's `GRU` operation does. For t = 0 … T-1, each gate with its own
/// `H` rows of the input weight `W`, the recurrent weight `R` and the bias `b`, with the mask `m` and the
/// secondary bias `b2`:
///
/// ```text
/// z[t] = fz( x[t] Wzᵀ + (h[t-1]∘m) Rzᵀ + bz )
/// r[t] = fr( x[t] Wrᵀ + (h[t-1]∘m) Rrᵀ + br )
/// c[t] = (h[t-1]∘r[t]∘m) Roᵀ                        reset_after = false
/// c[t] = ( (h[t-1]∘m) Roᵀ + b2 ) ∘ r[t]             reset_after = true
/// o[t] = fo( x[t] Woᵀ + c[t] + bo )
/// h[t] = z[t]∘h[t-1] + (1-z[t])∘o[t]                flip_z = false
/// h[t] = (1-z[t])∘h[t-1] + z[t]∘o[t]                flip_z = true
/// ```
///
/// The formulas are those of Apple's page on
/// [`MPSGraph.GRU`](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraph).
/// `clip` and `lengths` are additions, see [`GruDescriptor::clip`] and [`Lengths`].
///
/// With `T = 0` or `N = 0` the output is empty and the final state is the initial one.
///
/// # Errors
///
/// An [`Error`] that names the tensor or option, what was expected and what came: a shape or rank that does
/// not fit, an element type or device other than that of `source`, an element type that the device does not
/// compute with, a secondary bias without `reset_after`, a length outside 0 to `T`, a `clip` that is not
/// above 0, a tensor of 2³² elements or more.
pub fn gru<const R: usize>(
    inputs: GruInputs<R>,
    descriptor: &GruDescriptor,
) -> Result<RecurrentOutput, Error> {
    Ok(inputs.check(descriptor)?.forward(descriptor.training))
}

/// Computes the gradients of [`gru`]'s inputs, as MPSGraph's `GRUGradients` operation does. Needs no
/// autodiff, and is itself not differentiable.
///
/// - `source_gradient`: `[T, N, D·H]`, the gradient of the first output, `output`.
/// - `z_state`: `[T, N, D·3H]`, from [`gru`] with the same inputs, and `training` set.
/// - `output_fwd`: `[T, N, D·H]`, the first output itself.
/// - `state_gradient`: `[N, D·H]`, the gradient of `final_state`; `None`: zero.
///
/// # Errors
///
/// As [`gru`], and for the tensors above.
pub fn gru_gradients<const R: usize>(
    inputs: GruInputs<R>,
    source_gradient: Tensor<3>,
    z_state: Tensor<3>,
    output_fwd: Tensor<3>,
    state_gradient: Option<Tensor<2>>,
    descriptor: &GruDescriptor,
) -> Result<GruGradients<R>, Error> {
    let gradients =
        inputs.check(descriptor)?.backward(source_gradient, z_state, Some(output_fwd), state_gradient)?;
    Ok(GruGradients {
        source: present(gradients.source),
        recurrent_weight: present(gradients.recurrent_weight),
        input_weight: gradients.input_weight.map(Tensor::from_dispatch),
        bias: gradients.bias.map(Tensor::from_dispatch),
        init_state: gradients.init_state.map(Tensor::from_dispatch),
        secondary_bias: gradients.secondary_bias.map(Tensor::from_dispatch),
    })
}
