//! What a cell computes, apart from its tensors.

use serde::{Deserialize, Serialize};

/// The function applied to a gate's pre-activation, or to the state of a single-gate RNN.
///
/// The same five as MPSGraph's `MPSGraphRNNActivation`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x`
    None,
    /// `max(x, 0)`
    Relu,
    /// `tanh(x)`
    Tanh,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `clamp(alpha * x + beta, 0, 1)`
    HardSigmoid {
        /// The slope; 0.2 in MPSGraph and ONNX, 1/6 in Keras 3 and PyTorch.
        alpha: f64,
        /// The value at zero; 0.5 everywhere.
        beta: f64,
    },
}

impl Activation {
    /// Hard sigmoid with MPSGraph's and ONNX's slope: `clamp(0.2 * x + 0.5, 0, 1)`.
    pub const HARD_SIGMOID: Self = Self::HardSigmoid { alpha: 0.2, beta: 0.5 };
}

/// Options of [`gru`](crate::gru) and [`gru_gradients`](crate::gru_gradients), after
/// `MPSGraphGRUDescriptor`.
///
/// ```
/// use burn_rnn::GruDescriptor;
///
/// // PyTorch's and cuDNN's GRU.
/// let descriptor = GruDescriptor {
///     reset_gate_first: true,
///     reset_after: true,
///     ..Default::default()
/// };
/// assert!(!descriptor.flip_z);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GruDescriptor {
    /// Walks the time steps from the last to the first. Ignored when `bidirectional`. Default: false.
    pub reverse: bool,
    /// Runs one cell in each direction and concatenates their channels, forward first. Default: false.
    pub bidirectional: bool,
    /// Returns `z_state`, the training state that [`gru_gradients`](crate::gru_gradients) takes.
    /// Autodiff keeps its own and does not need this. Default: false.
    pub training: bool,
    /// Order of the gates in every `3H` axis: `z, r, o` when false, `r, z, o` when true. Default: false.
    pub reset_gate_first: bool,
    /// Applies the reset gate after the recurrent product of the output gate instead of before it.
    ///
    /// - false: `c = (h ∘ r ∘ m) Roᵀ`
    /// - true: `c = ((h ∘ m) Roᵀ + secondary_bias) ∘ r`, the form of PyTorch and cuDNN
    ///
    /// Default: false.
    pub reset_after: bool,
    /// Which of the two mixed states the update gate `z` weighs.
    ///
    /// - false: `h[t] = z ∘ h[t-1] + (1 - z) ∘ o`, the form of PyTorch, cuDNN, Keras and ONNX
    /// - true: `h[t] = (1 - z) ∘ h[t-1] + z ∘ o`
    ///
    /// Apple's documentation contradicts itself here. These are the formulas of the operation's page
    /// (`MPSGraph.GRU`), to which the gradient operations refer; the page of the descriptor's property
    /// (`MPSGraphGRUDescriptor.flipZ`) gives them the other way round. The operation's page is
    /// followed. Default: false.
    pub flip_z: bool,
    /// Activation of the update gate `z`. Default: sigmoid.
    pub update_gate_activation: Activation,
    /// Activation of the reset gate `r`. Default: sigmoid.
    pub reset_gate_activation: Activation,
    /// Activation of the output gate `o`, the candidate state. Default: tanh.
    pub output_gate_activation: Activation,
    /// Clamps `h[t]` to `[-clip, clip]` after each step, as Burn's own layers do; the gradient passes
    /// inside the range only. Must be positive. Default: none.
    pub clip: Option<f64>,
}

impl Default for GruDescriptor {
    fn default() -> Self {
        Self {
            reverse: false,
            bidirectional: false,
            training: false,
            reset_gate_first: false,
            reset_after: false,
            flip_z: false,
            update_gate_activation: Activation::Sigmoid,
            reset_gate_activation: Activation::Sigmoid,
            output_gate_activation: Activation::Tanh,
            clip: None,
        }
    }
}

/// Options of [`single_gate_rnn`](crate::single_gate_rnn) and
/// [`single_gate_rnn_gradients`](crate::single_gate_rnn_gradients), after
/// `MPSGraphSingleGateRNNDescriptor`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SingleGateRnnDescriptor {
    /// Walks the time steps from the last to the first. Ignored when `bidirectional`. Default: false.
    pub reverse: bool,
    /// Runs one cell in each direction and concatenates their channels, forward first. Default: false.
    pub bidirectional: bool,
    /// Returns `z_state`, the pre-activations, which
    /// [`single_gate_rnn_gradients`](crate::single_gate_rnn_gradients) takes. Autodiff keeps its own and
    /// does not need this. Default: false.
    pub training: bool,
    /// Activation of the state. Default: relu.
    pub activation: Activation,
    /// Clamps `h[t]` to `[-clip, clip]` after each step, as Burn's own layers do; the gradient passes
    /// inside the range only. Must be positive. Default: none.
    pub clip: Option<f64>,
}

impl Default for SingleGateRnnDescriptor {
    fn default() -> Self {
        Self {
            reverse: false,
            bidirectional: false,
            training: false,
            activation: Activation::Relu,
            clip: None,
        }
    }
}

/// Either cell with its options: what the backend operations are told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cell", rename_all = "snake_case")]
pub enum Cell {
    /// A gated recurrent unit.
    Gru(GruDescriptor),
    /// A single-gate RNN.
    SingleGate(SingleGateRnnDescriptor),
}

impl Cell {
    /// Gates of the cell, hence the factor of `H` in its weights: 3 or 1.
    pub fn gates(&self) -> usize {
        match self {
            Self::Gru(_) => 3,
            Self::SingleGate(_) => 1,
        }
    }

    /// Directions the cell runs in: 2 if bidirectional, else 1.
    pub fn directions(&self) -> usize {
        1 + self.bidirectional() as usize
    }

    /// Whether both directions run.
    pub fn bidirectional(&self) -> bool {
        match self {
            Self::Gru(descriptor) => descriptor.bidirectional,
            Self::SingleGate(descriptor) => descriptor.bidirectional,
        }
    }

    /// Whether direction `direction` (0 or 1) walks from the last step to the first.
    pub fn walks_backwards(&self, direction: usize) -> bool {
        let reverse = match self {
            Self::Gru(descriptor) => descriptor.reverse,
            Self::SingleGate(descriptor) => descriptor.reverse,
        };
        if self.bidirectional() { direction == 1 } else { reverse }
    }

    /// Bound of the state's magnitude, if any.
    pub fn clip(&self) -> Option<f64> {
        match self {
            Self::Gru(descriptor) => descriptor.clip,
            Self::SingleGate(descriptor) => descriptor.clip,
        }
    }

    /// Whether the reset gate follows the recurrent product.
    pub fn reset_after(&self) -> bool {
        matches!(self, Self::Gru(descriptor) if descriptor.reset_after)
    }
}
