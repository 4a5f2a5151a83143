//! Weights of Keras 3's `GRU` and `SimpleRNN` layers.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::CellWeights;
use crate::Error;

/// The bias of a Keras layer.
#[derive(Clone, Debug)]
pub enum KerasBias {
    /// `[GH]`: a `SimpleRNN`, or a `GRU` without `reset_after`.
    One(Tensor<1>),
    /// `[2, 3H]`, the input bias before the recurrent one: a `GRU` with `reset_after`.
    Two(Tensor<2>),
}

impl From<Tensor<1>> for KerasBias {
    fn from(bias: Tensor<1>) -> Self {
        Self::One(bias)
    }
}

impl From<Tensor<2>> for KerasBias {
    fn from(bias: Tensor<2>) -> Self {
        Self::Two(bias)
    }
}

/// The weights of a Keras `GRU` or `SimpleRNN` layer. `G` is 3 for a GRU, with the gates `z, r, h` in this
/// order, and 1 for a `SimpleRNN`.
#[derive(Clone, Debug)]
pub struct KerasCell {
    /// `[I, GH]`
    pub kernel: Tensor<2>,
    /// `[H, GH]`
    pub recurrent_kernel: Tensor<2>,
    /// Absent with `use_bias=False`.
    pub bias: Option<KerasBias>,
}

/// The options of a Keras `GRU` layer, named and defaulting as there. Reads from a JSON object such as the
/// layer's `get_config`; other members are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KerasGruConfig {
    /// `H`; checked against the weights where present.
    pub units: Option<usize>,
    /// The activation of the candidate. Default: `tanh`.
    pub activation: String,
    /// The activation of the gates. Default: `sigmoid`.
    pub recurrent_activation: String,
    /// Whether the reset gate follows the recurrent product. Default: true.
    pub reset_after: bool,
    /// Whether the layer walks from the last step to the first. Keras returns such a layer's outputs in the
    /// order it computed them; here they stand at their time index: `flip` them along the steps for Keras's
    /// order. Default: false.
    pub go_backwards: bool,
}

impl Default for KerasGruConfig {
    fn default() -> Self {
        Self {
            units: None,
            activation: "tanh".into(),
            recurrent_activation: "sigmoid".into(),
            reset_after: true,
            go_backwards: false,
        }
    }
}

/// The options of a Keras `SimpleRNN` layer, named and defaulting as there. Reads from a JSON object such as
/// the layer's `get_config`; other members are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KerasSimpleRnnConfig {
    /// `H`; checked against the weights where present.
    pub units: Option<usize>,
    /// The activation of the state. Default: `tanh`.
    pub activation: String,
    /// As [`KerasGruConfig::go_backwards`]. Default: false.
    pub go_backwards: bool,
}

impl Default for KerasSimpleRnnConfig {
    fn default() -> Self {
        Self { units: None, activation: "tanh".into(), go_backwards: false }
    }
}

/// A Keras `GRU` layer, or a `Bidirectional` one of two `GRU` layers.
#[derive(Clone, Debug)]
pub struct KerasGru {
    /// The layer, or the `forward_layer` of a `Bidirectional`.
    pub forward: KerasCell,
    /// The `backward_layer` of a `Bidirectional` with `merge_mode="concat"`.
    pub backward: Option<KerasCell>,
    /// The options.
    pub config: KerasGruConfig,
}

/// A Keras `SimpleRNN` layer, or a `Bidirectional` one of two `SimpleRNN` layers.
#[derive(Clone, Debug)]
pub struct KerasSimpleRnn {
    /// The layer, or the `forward_layer` of a `Bidirectional`.
    pub forward: KerasCell,
    /// The `backward_layer` of a `Bidirectional` with `merge_mode="concat"`.
    pub backward: Option<KerasCell>,
    /// The options.
    pub config: KerasSimpleRnnConfig,
}

impl CellWeights {
    /// A Keras `GRU` layer. Input and output are time-major here.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the weight or option, if a shape does not fit or an activation is not among
    /// [`Activation`](crate::Activation)'s.
    pub fn from_keras_gru(layer: KerasGru) -> Result<Self, Error> {
        let _ = layer;
        todo!()
    }

    /// A Keras `SimpleRNN` layer. Input and output are time-major here.
    ///
    /// # Errors
    ///
    /// As [`from_keras_gru`](Self::from_keras_gru).
    pub fn from_keras_simple_rnn(layer: KerasSimpleRnn) -> Result<Self, Error> {
        let _ = layer;
        todo!()
    }
}
