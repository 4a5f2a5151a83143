//! Weights of the ONNX operators `GRU` and `RNN`.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::CellWeights;
use crate::Error;

/// The tensors of an ONNX `GRU` or `RNN` node. `G` is 3 for a GRU, with the gates `z, r, h` in this order, and
/// 1 for an RNN; `D` is 2 if the node is bidirectional, else 1.
#[derive(Clone, Debug)]
pub struct OnnxWeights {
    /// `W`, `[D, GH, I]`.
    pub w: Tensor<3>,
    /// `R`, `[D, GH, H]`.
    pub r: Tensor<3>,
    /// `B`, `[D, 2GH]`, the input biases before the recurrent ones; absent: zero.
    pub b: Option<Tensor<2>>,
}

/// The attributes of an ONNX `GRU` or `RNN` node, named and defaulting as there. Reads from a JSON object of
/// that form; members that are no attributes are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnnxAttributes {
    /// The activations of each direction in turn: for a GRU that of the gates and that of the candidate, for
    /// an RNN that of the state. Default: `Sigmoid, Tanh`, and `Tanh`.
    pub activations: Option<Vec<String>>,
    /// One α for each activation that takes one, in order. Default: the activations' own.
    pub activation_alpha: Option<Vec<f64>>,
    /// One β for each activation that takes one, in order. Default: the activations' own.
    pub activation_beta: Option<Vec<f64>>,
    /// A bound of the activations' inputs; not supported. Default: none.
    pub clip: Option<f64>,
    /// `forward`, `reverse` or `bidirectional`. Default: `forward`.
    pub direction: String,
    /// `H`; checked against `R` where present.
    pub hidden_size: Option<usize>,
    /// 0: `X` is `[T, N, I]`; 1: `X` is `[N, T, I]`. Default: 0.
    pub layout: i64,
    /// GRU only: whether the reset gate follows the recurrent product. Default: 0.
    pub linear_before_reset: i64,
}

impl Default for OnnxAttributes {
    fn default() -> Self {
        Self {
            activations: None,
            activation_alpha: None,
            activation_beta: None,
            clip: None,
            direction: "forward".into(),
            hidden_size: None,
            layout: 0,
            linear_before_reset: 0,
        }
    }
}

impl CellWeights {
    /// An ONNX `GRU` node. `X` and `Y` are time-major here whatever `layout` says: `Y` is the output as
    /// `[T, N, D, H]` with its middle axes swapped, and `Y_h`, `[D, N, H]`, the final state as `[N, D, H]` with its
    /// first two axes swapped.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the tensor or attribute, if a shape does not fit, the attribute `clip` is
    /// present, an activation is not among [`Activation`](crate::Activation)'s, or the two directions' differ.
    pub fn from_onnx_gru(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Self, Error> {
        let _ = (weights, attributes);
        todo!()
    }

    /// An ONNX `RNN` node; see [`from_onnx_gru`](Self::from_onnx_gru).
    ///
    /// # Errors
    ///
    /// As [`from_onnx_gru`](Self::from_onnx_gru).
    pub fn from_onnx_rnn(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Self, Error> {
        let _ = (weights, attributes);
        todo!()
    }
}
