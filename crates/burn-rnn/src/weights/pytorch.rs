//! Weights of PyTorch's `torch.nn.GRU` and `torch.nn.RNN`, and of cuDNN, whose layout is the same.

use burn::tensor::Tensor;

use super::CellWeights;
use crate::{Activation, Error};

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
        let _ = layer;
        todo!()
    }

    /// One layer of a `torch.nn.RNN` with this `nonlinearity`. The two biases add up.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the tensor, if a shape does not fit.
    pub fn from_pytorch_rnn(layer: PyTorchLayer, nonlinearity: Activation) -> Result<Self, Error> {
        let _ = (layer, nonlinearity);
        todo!()
    }
}
