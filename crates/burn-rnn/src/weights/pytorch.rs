//! Weights of PyTorch's `torch.nn.GRU` and `torch.nn.RNN`, and of cuDNN, whose layout is the same.

use burn::tensor::Tensor;

use super::{
    CellWeights, Direction, Directions,
    check::{check_shape, gates_axis, weight_error},
};
use crate::{Activation, Cell, Error, GruDescriptor, SingleGateRnnDescriptor};

/// One direction of one layer of `torch.nn.GRU` or `torch.nn.RNN`: the entries of its state dict that end in
/// `_l{k}`, or `_l{k}_reverse`. `G` is 3 for a GRU, with the gates `r, z, n` in this order, and 1 for an RNN.
#[derive(Clone, Debug)]
pub struct PyTorchCell {
    /// `[GH, I]`
    pub weight_ih: Tensor<2>,
    /// `[GH, H]`
    pub weight_hh: Tensor<2>,
    /// `[GH]`; absent with `bias=False`.
    pub bias_ih: Option<Tensor<1>>,
    /// `[GH]`; absent with `bias=False`.
    pub bias_hh: Option<Tensor<1>>,
}

/// One layer of `torch.nn.GRU` or `torch.nn.RNN`.
#[derive(Clone, Debug)]
pub struct PyTorchLayer {
    /// The entries that end in `_l{k}`.
    pub forward: PyTorchCell,
    /// The entries that end in `_l{k}_reverse`; present with `bidirectional=True`.
    pub reverse: Option<PyTorchCell>,
}

/// A whole `torch.nn.GRU`.
#[derive(Clone, Debug)]
pub struct PyTorchGru {
    /// Its layers, the one that takes the input first.
    pub layers: Vec<PyTorchLayer>,
    /// Whether input and output are `[N, T, _]`; PyTorch's default is false.
    pub batch_first: bool,
    /// The probability of dropout between layers; PyTorch's default is 0.
    pub dropout: f64,
}

/// A whole `torch.nn.RNN`.
#[derive(Clone, Debug)]
pub struct PyTorchRnn {
    /// Its layers, the one that takes the input first.
    pub layers: Vec<PyTorchLayer>,
    /// [`Activation::Tanh`], PyTorch's default, or [`Activation::Relu`].
    pub nonlinearity: Activation,
    /// Whether input and output are `[N, T, _]`; PyTorch's default is false.
    pub batch_first: bool,
    /// The probability of dropout between layers; PyTorch's default is 0.
    pub dropout: f64,
}

impl CellWeights {
    /// One layer of a `torch.nn.GRU`.
    ///
    /// PyTorch's gates stand in the order `r, z, n`: `reset_gate_first`, and `reset_after`. The two biases of
    /// `r` and of `z` add up; `b_hn` is the secondary bias.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the tensor, if a shape does not fit.
    pub fn from_pytorch_gru(layer: PyTorchLayer) -> Result<Self, Error> {
        Ok(gru_directions(layer, "")?.into_layer_weights().into_cell_weights())
    }

    /// One layer of a `torch.nn.RNN` with this `nonlinearity`. The two biases add up.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the tensor, if a shape does not fit.
    pub fn from_pytorch_rnn(layer: PyTorchLayer, nonlinearity: Activation) -> Result<Self, Error> {
        Ok(rnn_directions(layer, nonlinearity, "")?.into_layer_weights().into_cell_weights())
    }
}

/// A layer of `torch.nn.GRU`; `suffix`, as in `_l0`, follows the tensors' names in errors.
pub(crate) fn gru_directions(layer: PyTorchLayer, suffix: &str) -> Result<Directions, Error> {
    let descriptor = GruDescriptor {
        bidirectional: layer.reverse.is_some(),
        reset_gate_first: true,
        reset_after: true,
        ..Default::default()
    };
    directions(layer, Cell::Gru(descriptor), suffix)
}

/// A layer of `torch.nn.RNN`; see [`gru_directions`].
pub(crate) fn rnn_directions(
    layer: PyTorchLayer,
    nonlinearity: Activation,
    suffix: &str,
) -> Result<Directions, Error> {
    let descriptor = SingleGateRnnDescriptor {
        bidirectional: layer.reverse.is_some(),
        activation: nonlinearity,
        ..Default::default()
    };
    directions(layer, Cell::SingleGate(descriptor), suffix)
}

fn directions(layer: PyTorchLayer, cell: Cell, suffix: &str) -> Result<Directions, Error> {
    let gates = cell.gates();
    let hidden = layer.forward.weight_hh.dims()[1];
    let features = layer.forward.weight_ih.dims()[1];
    if hidden == 0 {
        return Err(weight_error(format!("weight_hh{suffix}"), "must have H from 1 up, got H = 0"));
    }
    if features == 0 {
        return Err(weight_error(format!("weight_ih{suffix}"), "must have I from 1 up, got I = 0"));
    }

    let mut directions = Vec::with_capacity(cell.directions());
    let cells = [(Some(layer.forward), ""), (layer.reverse, "_reverse")];
    for (cell, reverse) in cells {
        let Some(cell) = cell else { continue };
        let rows = gates * hidden;
        let axis = gates_axis(gates);
        let name = |tensor: &str| format!("{tensor}{suffix}{reverse}");
        check_shape(name("weight_hh"), &cell.weight_hh, &format!("[{axis}, H]"), [rows, hidden])?;
        check_shape(name("weight_ih"), &cell.weight_ih, &format!("[{axis}, I]"), [rows, features])?;
        for (tensor, bias) in [("bias_ih", &cell.bias_ih), ("bias_hh", &cell.bias_hh)] {
            if let Some(bias) = bias {
                check_shape(name(tensor), bias, &format!("[{axis}]"), [rows])?;
            }
        }
        directions.push(Direction {
            input_weight: cell.weight_ih,
            recurrent_weight: cell.weight_hh,
            input_bias: cell.bias_ih,
            recurrent_bias: cell.bias_hh,
        });
    }
    Ok(Directions { cell, directions })
}
