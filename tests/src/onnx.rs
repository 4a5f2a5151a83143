//! Cases from ONNX: a `GRU` or `RNN` node.

use serde::Deserialize;

use crate::case::{Case, CaseError, check_integers};

/// Attributes of an ONNX node, named as in the standard and with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Onnx {
    /// Which operator.
    pub op: Operator,
    /// Hidden units of one direction.
    pub hidden_size: usize,
    /// Which directions run. Default: forward.
    #[serde(default)]
    pub direction: Direction,
    /// Whether a GRU applies the reset gate after the recurrent product. Default: 0.
    #[serde(default)]
    pub linear_before_reset: u8,
    /// The activations of each direction: for a GRU those of the gates and of the output gate, else one.
    /// Default: sigmoid and tanh; tanh.
    #[serde(default)]
    pub activations: Option<Vec<String>>,
    /// The α of those activations that have one.
    #[serde(default)]
    pub activation_alpha: Option<Vec<f64>>,
    /// The β of those activations that have one.
    #[serde(default)]
    pub activation_beta: Option<Vec<f64>>,
    /// Whether the batch is the first axis. Default: 0.
    #[serde(default)]
    pub layout: u8,
}

/// An ONNX operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Operator {
    /// `GRU`
    #[serde(rename = "GRU")]
    Gru,
    /// `RNN`
    #[serde(rename = "RNN")]
    Rnn,
}

/// The attribute `direction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the first step to the last.
    #[default]
    Forward,
    /// From the last step to the first.
    Reverse,
    /// Both.
    Bidirectional,
}

impl Onnx {
    pub(crate) fn check(&self, case: &Case) -> Result<(), CaseError> {
        for (option, value) in [("linear_before_reset", self.linear_before_reset), ("layout", self.layout)] {
            if value > 1 {
                return Err(CaseError::Metadata(format!("`{option}` must be 0 or 1, got {value}")));
            }
        }
        for (name, rank, required) in [
            ("X", 3, true),
            ("W", 3, true),
            ("R", 3, true),
            ("B", 2, false),
            ("sequence_lens", 1, false),
            ("initial_h", 3, false),
        ] {
            match case.input(name, &[rank])? {
                Some(data) => check_integers(name, data, name == "sequence_lens")?,
                None if required => return Err(CaseError::tensor(name, "is missing")),
                None => {}
            }
        }
        case.allow(
            |name| ["X", "W", "R", "B", "sequence_lens", "initial_h"].contains(&name),
            |name| ["Y", "Y_h"].contains(&name),
        )
    }
}
