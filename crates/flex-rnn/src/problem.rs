//! What is computed: sizes, options and tensors, as plain slices.

use std::mem::MaybeUninit;

/// The function applied to a gate's pre-activation, or to the state of a single-gate RNN.
#[derive(Clone, Copy, Debug, PartialEq)]
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
        /// The slope.
        alpha: f64,
        /// The value at zero.
        beta: f64,
    },
}

/// Options of a gated recurrent unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gru {
    /// Order of the gates along every `3H` axis: `z, r, o` when false, `r, z, o` when true.
    pub reset_gate_first: bool,
    /// Applies the reset gate after the recurrent product of the output gate instead of before it.
    pub reset_after: bool,
    /// `h = z∘h + (1-z)∘o` when false, `h = (1-z)∘h + z∘o` when true.
    pub flip_z: bool,
    /// Activation of the update gate `z`.
    pub update: Activation,
    /// Activation of the reset gate `r`.
    pub reset: Activation,
    /// Activation of the output gate `o`.
    pub output: Activation,
}

impl Gru {
    /// The positions of the update, the reset and the output gate along a `3H` axis, in units of `H`.
    pub(crate) fn positions(&self) -> [usize; 3] {
        if self.reset_gate_first { [1, 0, 2] } else { [0, 1, 2] }
    }
}

/// Either cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// A gated recurrent unit.
    Gru(Gru),
    /// A single-gate RNN with the activation of its state.
    SingleGate(Activation),
}

impl Cell {
    /// Gates of the cell: 3 or 1.
    pub fn gates(&self) -> usize {
        match self {
            Self::Gru(_) => 3,
            Self::SingleGate(_) => 1,
        }
    }
}

/// Sizes and options of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// Time steps, `T`.
    pub steps: usize,
    /// Batch rows, `N`.
    pub batch: usize,
    /// Input features, `I`; `D·GH` without an input weight.
    pub features: usize,
    /// Hidden units of one direction, `H`.
    pub hidden: usize,
    /// Walks the steps from the last to the first. Ignored when `bidirectional`.
    pub reverse: bool,
    /// Runs one cell in each direction, their channels side by side, forward first.
    pub bidirectional: bool,
    /// The cell.
    pub cell: Cell,
    /// Clamps the state to `[-clip, clip]` after each step.
    pub clip: Option<f64>,
}

impl Problem {
    /// Directions, `D`.
    pub fn directions(&self) -> usize {
        1 + self.bidirectional as usize
    }

    /// `D·H`
    pub fn state(&self) -> usize {
        self.directions() * self.hidden
    }

    /// `GH`
    pub fn direction_gates(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// `D·GH`
    pub fn all_gates(&self) -> usize {
        self.directions() * self.direction_gates()
    }

    /// Whether direction `direction` walks from the last step to the first.
    pub(crate) fn walks_backwards(&self, direction: usize) -> bool {
        if self.bidirectional { direction == 1 } else { self.reverse }
    }

    /// The positions of the cell's gates along a `GH` axis, in the order update, reset, output.
    pub(crate) fn positions(&self) -> Vec<usize> {
        match self.cell {
            Cell::Gru(gru) => gru.positions().to_vec(),
            Cell::SingleGate(_) => vec![0],
        }
    }

    /// The time step that a direction takes as its `index`-th.
    pub(crate) fn step(&self, direction: usize, index: usize) -> usize {
        if self.walks_backwards(direction) { self.steps - 1 - index } else { index }
    }
}

/// What multiplies the state before a step's recurrent product.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a, T> {
    /// `[N, D·H]`, the same at every step.
    Constant(&'a [T]),
    /// `[T, N, D·H]`, one for each step.
    PerStep(&'a [T]),
}

/// Inputs of a cell, each contiguous in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    /// `[T, N, I]`, or `[T, N, D·GH]` without `input_weight`. May be absent in [`backward`](crate::backward)
    /// if the gradient of `input_weight` is not wanted.
    pub source: Option<&'a [T]>,
    /// `[D, GH, H]`
    pub recurrent_weight: &'a [T],
    /// `[D·GH, I]`; absent: the identity.
    pub input_weight: Option<&'a [T]>,
    /// `[D·GH]`; absent: zero.
    pub bias: Option<&'a [T]>,
    /// `[N, D·H]`; absent: zero.
    pub init_state: Option<&'a [T]>,
    /// Absent: one.
    pub mask: Option<Mask<'a, T>>,
    /// `[D·H]`, with `reset_after` only; absent: zero.
    pub secondary_bias: Option<&'a [T]>,
    /// `[N]`, how many steps each row runs, at most `T`; absent: all.
    pub lengths: Option<&'a [usize]>,
}

/// Where [`forward`](crate::forward) writes. Every element gets written.
#[derive(Debug)]
pub struct Outputs<'a, T> {
    /// `[T, N, D·H]`
    pub output: &'a mut [MaybeUninit<T>],
    /// `[N, D·H]`, the state after the last step of each row and direction.
    pub final_state: &'a mut [MaybeUninit<T>],
    /// `[T, N, D·GH]`, if wanted: the activated gates of a GRU in the order of its weights, the
    /// pre-activation of a single-gate RNN.
    pub z_state: Option<&'a mut [MaybeUninit<T>]>,
}

/// What [`backward`](crate::backward) gets beside the inputs.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T> {
    /// `[T, N, D·GH]` as the forward operation wrote it.
    pub z_state: &'a [T],
    /// `[T, N, D·H]` as the forward operation wrote it. A GRU needs it.
    pub output: Option<&'a [T]>,
    /// `[T, N, D·H]`, the gradient of `output`; absent: zero.
    pub output_gradient: Option<&'a [T]>,
    /// `[N, D·H]`, the gradient of `final_state`; absent: zero.
    pub state_gradient: Option<&'a [T]>,
}

/// Where [`backward`](crate::backward) writes the gradients that are wanted. Every element gets written.
#[derive(Debug)]
pub struct Gradients<'a, T> {
    /// Of `source`.
    pub source: Option<&'a mut [MaybeUninit<T>]>,
    /// Of `recurrent_weight`.
    pub recurrent_weight: Option<&'a mut [MaybeUninit<T>]>,
    /// Of `input_weight`; needs `source`.
    pub input_weight: Option<&'a mut [MaybeUninit<T>]>,
    /// Of `bias`.
    pub bias: Option<&'a mut [MaybeUninit<T>]>,
    /// Of `init_state`.
    pub init_state: Option<&'a mut [MaybeUninit<T>]>,
    /// Of `secondary_bias`.
    pub secondary_bias: Option<&'a mut [MaybeUninit<T>]>,
}

impl<T> Default for Gradients<'_, T> {
    fn default() -> Self {
        Self {
            source: None,
            recurrent_weight: None,
            input_weight: None,
            bias: None,
            init_state: None,
            secondary_bias: None,
        }
    }
}
