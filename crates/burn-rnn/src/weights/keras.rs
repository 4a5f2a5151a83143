//! Weights of Keras 3's `GRU` and `SimpleRNN` layers.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    CellWeights, Direction, Directions,
    check::{activation_named, check_shape, gates_axis, weight_error},
};
use crate::{Activation, Cell, Error, GruDescriptor, SingleGateRnnDescriptor};

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
    /// The activation of the candidate; `None`: linear. Default: `tanh`.
    pub activation: Option<String>,
    /// The activation of the gates; `None`: linear. Default: `sigmoid`.
    pub recurrent_activation: Option<String>,
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
            activation: Some("tanh".into()),
            recurrent_activation: Some("sigmoid".into()),
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
    /// The activation of the state; `None`: linear. Default: `tanh`.
    pub activation: Option<String>,
    /// As [`KerasGruConfig::go_backwards`]. Default: false.
    pub go_backwards: bool,
}

impl Default for KerasSimpleRnnConfig {
    fn default() -> Self {
        Self { units: None, activation: Some("tanh".into()), go_backwards: false }
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
    /// A Keras `GRU` layer, with the gates in the order `z, r, h`. Input and output are time-major here.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the weight or option, if a shape does not fit or an activation is not among
    /// [`Activation`]'s.
    pub fn from_keras_gru(layer: KerasGru) -> Result<Self, Error> {
        Ok(gru_directions(layer)?.into_layer_weights().into_cell_weights())
    }

    /// A Keras `SimpleRNN` layer. Input and output are time-major here.
    ///
    /// # Errors
    ///
    /// As [`from_keras_gru`](Self::from_keras_gru).
    pub fn from_keras_simple_rnn(layer: KerasSimpleRnn) -> Result<Self, Error> {
        Ok(simple_rnn_directions(layer)?.into_layer_weights().into_cell_weights())
    }
}

/// A `GRU` layer.
pub(crate) fn gru_directions(layer: KerasGru) -> Result<Directions, Error> {
    let KerasGru { forward, backward, config } = layer;
    let gates = activation("recurrent_activation", &config.recurrent_activation)?;
    let descriptor = GruDescriptor {
        reverse: config.go_backwards,
        bidirectional: backward.is_some(),
        reset_after: config.reset_after,
        update_gate_activation: gates,
        reset_gate_activation: gates,
        output_gate_activation: activation("activation", &config.activation)?,
        ..Default::default()
    };
    directions(forward, backward, config.units, config.go_backwards, Cell::Gru(descriptor))
}

/// A `SimpleRNN` layer.
pub(crate) fn simple_rnn_directions(layer: KerasSimpleRnn) -> Result<Directions, Error> {
    let KerasSimpleRnn { forward, backward, config } = layer;
    let descriptor = SingleGateRnnDescriptor {
        reverse: config.go_backwards,
        bidirectional: backward.is_some(),
        activation: activation("activation", &config.activation)?,
        ..Default::default()
    };
    directions(forward, backward, config.units, config.go_backwards, Cell::SingleGate(descriptor))
}

fn activation(option: &str, name: &Option<String>) -> Result<Activation, Error> {
    let Some(name) = name else { return Ok(Activation::None) };
    match name.as_str() {
        "linear" => Ok(Activation::None),
        "hard_sigmoid" => Ok(Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }),
        name => activation_named(name).ok_or_else(|| {
            weight_error(
                option,
                format!("must be among linear, relu, tanh, sigmoid and hard_sigmoid, got {name:?}"),
            )
        }),
    }
}

fn directions(
    forward: KerasCell,
    backward: Option<KerasCell>,
    units: Option<usize>,
    go_backwards: bool,
    cell: Cell,
) -> Result<Directions, Error> {
    let gates = cell.gates();
    let hidden = forward.recurrent_kernel.dims()[0];
    let features = forward.kernel.dims()[0];
    let rows = gates * hidden;
    let axis = gates_axis(gates);
    if hidden == 0 {
        return Err(weight_error("recurrent_kernel", "must have H from 1 up, got H = 0"));
    }
    if features == 0 {
        return Err(weight_error("kernel", "must have I from 1 up, got I = 0"));
    }
    if let Some(units) = units
        && units != hidden
    {
        return Err(weight_error(
            "units",
            format!("must be the first axis of recurrent_kernel, {hidden}, got {units}"),
        ));
    }
    if go_backwards && backward.is_some() {
        return Err(weight_error("go_backwards", "must be false for the forward layer of a Bidirectional"));
    }

    let mut directions = Vec::with_capacity(cell.directions());
    for (weights, prefix) in [(Some(forward), ""), (backward, "backward_layer's ")] {
        let Some(weights) = weights else { continue };
        let name = |tensor: &str| format!("{prefix}{tensor}");
        let kernel = weights.kernel;
        let recurrent_kernel = weights.recurrent_kernel;
        check_shape(name("recurrent_kernel"), &recurrent_kernel, &format!("[H, {axis}]"), [hidden, rows])?;
        check_shape(name("kernel"), &kernel, &format!("[I, {axis}]"), [features, rows])?;
        let (input_bias, recurrent_bias) = match (weights.bias, cell.reset_after()) {
            (None, _) => (None, None),
            (Some(KerasBias::One(bias)), false) => {
                check_shape(name("bias"), &bias, &format!("[{axis}]"), [rows])?;
                (Some(bias), None)
            }
            (Some(KerasBias::Two(bias)), true) => {
                check_shape(name("bias"), &bias, &format!("[2, {axis}]"), [2, rows])?;
                let row = |index: usize| bias.clone().narrow(0, index, 1).reshape([rows]);
                (Some(row(0)), Some(row(1)))
            }
            (Some(KerasBias::One(bias)), true) => {
                let got = bias.dims();
                let problem =
                    format!("must have the shape [2, 3H] = [2, {rows}], as reset_after is true, got {got:?}");
                return Err(weight_error(name("bias"), problem));
            }
            (Some(KerasBias::Two(bias)), false) => {
                let got = bias.dims();
                let problem = format!(
                    "must have the shape [{axis}] = [{rows}], as there is no reset_after, got {got:?}"
                );
                return Err(weight_error(name("bias"), problem));
            }
        };
        directions.push(Direction {
            input_weight: kernel.transpose(),
            recurrent_weight: recurrent_kernel.transpose(),
            input_bias,
            recurrent_bias,
        });
    }
    Ok(Directions { cell, directions })
}
