//! What the kernels compute, fixed when they are compiled.

/// A number that is part of a kernel's identity: compared and hashed by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Constant(u64);

impl Constant {
    /// The value.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Constant {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl core::fmt::Debug for Constant {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// A gate's activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
        alpha: Constant,
        /// The value at zero.
        beta: Constant,
    },
}

/// A GRU's options, see `burn_rnn::GruDescriptor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gru {
    /// Order of the gates in the weights: r, z, o instead of z, r, o.
    pub reset_gate_first: bool,
    /// Applies the reset gate after the recurrent product.
    pub reset_after: bool,
    /// Swaps the roles of z and 1 - z.
    pub flip_z: bool,
    /// Activation of the update gate.
    pub update_gate_activation: Activation,
    /// Activation of the reset gate.
    pub reset_gate_activation: Activation,
    /// Activation of the output gate.
    pub output_gate_activation: Activation,
}

impl Gru {
    /// Position of the update gate in the weights.
    pub fn update_gate(&self) -> usize {
        self.reset_gate_first as usize
    }

    /// Position of the reset gate in the weights.
    pub fn reset_gate(&self) -> usize {
        1 - self.update_gate()
    }
}

/// Either cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A gated recurrent unit.
    Gru(Gru),
    /// A single-gate RNN with this activation.
    SingleGate(Activation),
}

/// A cell with what both kinds share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// GRU or single-gate RNN.
    pub kind: Kind,
    /// Walks from the last step to the first; ignored when bidirectional.
    pub reverse: bool,
    /// Runs in both directions.
    pub bidirectional: bool,
    /// Bound of the state's magnitude.
    pub clip: Option<Constant>,
}

impl Cell {
    /// Gates, `G`: 3 or 1.
    pub fn gates(&self) -> usize {
        match self.kind {
            Kind::Gru(_) => 3,
            Kind::SingleGate(_) => 1,
        }
    }

    /// Directions, `D`: 2 or 1.
    pub fn directions(&self) -> usize {
        1 + self.bidirectional as usize
    }

    /// Whether a step needs the reset gate of every unit before the output gate's product.
    pub fn two_phase(&self) -> bool {
        matches!(self.kind, Kind::Gru(gru) if !gru.reset_after)
    }
}
