//! Weights of the ONNX operators `GRU` and `RNN`.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{
    CellWeights, Direction, Directions,
    check::{activation_named, check_shape, gates_axis, weight_error},
};
use crate::{Activation, Cell, Error, GruDescriptor, SingleGateRnnDescriptor};

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
    /// An ONNX `GRU` node, with the gates in the order `z, r, h`.
    ///
    /// The operation is time-major whatever `layout` says. `Y`, `[T, D, N, H]`, is its output read as `[T, N, D, H]`
    /// with the middle axes swapped; `Y_h` and `initial_h`, `[D, N, H]`, are its states read as `[N, D, H]` with the
    /// first two axes swapped.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the tensor or attribute, if a shape does not fit, an attribute has no meaning
    /// for the node, `clip` is present (which bounds the activations' inputs, not the state), an activation is
    /// not among [`Activation`]'s, or the activations of the two directions differ.
    pub fn from_onnx_gru(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Self, Error> {
        Ok(gru_directions(weights, attributes)?.into_layer_weights().into_cell_weights())
    }

    /// An ONNX `RNN` node; see [`from_onnx_gru`](Self::from_onnx_gru).
    ///
    /// # Errors
    ///
    /// As [`from_onnx_gru`](Self::from_onnx_gru).
    pub fn from_onnx_rnn(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Self, Error> {
        Ok(rnn_directions(weights, attributes)?.into_layer_weights().into_cell_weights())
    }
}

impl OnnxAttributes {
    /// Whether `X` and `Y` have their batch axis first.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`] if `layout` is neither 0 nor 1.
    pub fn batch_first(&self) -> Result<bool, Error> {
        match self.layout {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(weight_error("layout", format!("must be 0 or 1, got {other}"))),
        }
    }

    /// `(reverse, bidirectional)`
    fn directions(&self) -> Result<(bool, bool), Error> {
        match self.direction.as_str() {
            "forward" => Ok((false, false)),
            "reverse" => Ok((true, false)),
            "bidirectional" => Ok((false, true)),
            other => Err(weight_error(
                "direction",
                format!("must be forward, reverse or bidirectional, got {other:?}"),
            )),
        }
    }

    /// The `count` activations of a direction.
    fn activations(&self, defaults: &[Activation]) -> Result<Vec<Activation>, Error> {
        let count = defaults.len();
        let Some(names) = &self.activations else { return Ok(defaults.to_vec()) };
        let (_, bidirectional) = self.directions()?;
        let expected = if bidirectional { 2 * count } else { count };
        if names.len() != expected {
            return Err(weight_error(
                "activations",
                format!("must be {expected}, {count} a direction, got {}", names.len()),
            ));
        }
        let mut alphas = self.activation_alpha.iter().flatten().copied();
        let mut betas = self.activation_beta.iter().flatten().copied();
        let mut activations = Vec::with_capacity(expected);
        for name in names {
            let activation = if name.eq_ignore_ascii_case("HardSigmoid") {
                Activation::HardSigmoid {
                    alpha: alphas.next().unwrap_or(0.2),
                    beta: betas.next().unwrap_or(0.5),
                }
            } else {
                activation_named(name).ok_or_else(|| {
                    weight_error(
                        "activations",
                        format!("must be among Relu, Tanh, Sigmoid and HardSigmoid, got {name:?}"),
                    )
                })?
            };
            activations.push(activation);
        }
        let reverse = activations.split_off(count);
        if bidirectional && reverse != activations {
            return Err(weight_error(
                "activations",
                format!("must be the same in both directions, got {activations:?} and {reverse:?}"),
            ));
        }
        Ok(activations)
    }

    /// Refuses what is not computed.
    fn check(&self) -> Result<(), Error> {
        if let Some(clip) = self.clip {
            return Err(weight_error(
                "clip",
                format!(
                    "must be absent, as ONNX's clip bounds the inputs of the activations, which is not supported, \
                     got {clip}"
                ),
            ));
        }
        self.batch_first().map(|_| ())
    }
}

/// A `GRU` node.
pub(crate) fn gru_directions(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Directions, Error> {
    attributes.check()?;
    let (reverse, bidirectional) = attributes.directions()?;
    let activations = attributes.activations(&[Activation::Sigmoid, Activation::Tanh])?;
    let reset_after = match attributes.linear_before_reset {
        0 => false,
        1 => true,
        other => return Err(weight_error("linear_before_reset", format!("must be 0 or 1, got {other}"))),
    };
    let descriptor = GruDescriptor {
        reverse,
        bidirectional,
        reset_after,
        update_gate_activation: activations[0],
        reset_gate_activation: activations[0],
        output_gate_activation: activations[1],
        ..Default::default()
    };
    directions(weights, attributes, Cell::Gru(descriptor))
}

/// An `RNN` node.
pub(crate) fn rnn_directions(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Directions, Error> {
    attributes.check()?;
    let (reverse, bidirectional) = attributes.directions()?;
    let activations = attributes.activations(&[Activation::Tanh])?;
    if attributes.linear_before_reset != 0 {
        return Err(weight_error("linear_before_reset", "must be absent, as the operator RNN has none"));
    }
    let descriptor =
        SingleGateRnnDescriptor { reverse, bidirectional, activation: activations[0], ..Default::default() };
    directions(weights, attributes, Cell::SingleGate(descriptor))
}

fn directions(weights: OnnxWeights, attributes: &OnnxAttributes, cell: Cell) -> Result<Directions, Error> {
    let OnnxWeights { w, r, b } = weights;
    let (count, gates) = (cell.directions(), cell.gates());
    let hidden = r.dims()[2];
    let features = w.dims()[2];
    let rows = gates * hidden;
    let axis = gates_axis(gates);
    if hidden == 0 {
        return Err(weight_error("R", "must have H from 1 up, got H = 0"));
    }
    if features == 0 {
        return Err(weight_error("W", "must have I from 1 up, got I = 0"));
    }
    let direction = &attributes.direction;
    check_shape(
        "R",
        &r,
        &format!("[D, {axis}, H], as the direction is {direction},"),
        [count, rows, hidden],
    )?;
    check_shape("W", &w, &format!("[D, {axis}, I]"), [count, rows, features])?;
    if let Some(b) = &b {
        check_shape("B", b, &format!("[D, 2·{axis}]"), [count, 2 * rows])?;
    }
    if let Some(size) = attributes.hidden_size
        && size != hidden
    {
        return Err(weight_error("hidden_size", format!("must be the last axis of R, {hidden}, got {size}")));
    }

    let directions = (0..count)
        .map(|direction| {
            let bias = |start: usize| {
                let b = b.clone()?;
                Some(b.slice([direction..direction + 1, start..start + rows]).reshape([rows]))
            };
            Direction {
                input_weight: w.clone().narrow(0, direction, 1).reshape([rows, features]),
                recurrent_weight: r.clone().narrow(0, direction, 1).reshape([rows, hidden]),
                input_bias: bias(0),
                recurrent_bias: bias(rows),
            }
        })
        .collect();
    Ok(Directions { cell, directions })
}
