//! Weights of a cell as tensors, and their conversion from other frameworks' layouts.

pub(crate) mod burn_nn;
mod check;
mod directions;
pub(crate) mod keras;
mod layer;
pub(crate) mod onnx;
pub(crate) mod pytorch;

use burn::tensor::Tensor;

pub(crate) use check::weight_error;
pub(crate) use directions::{Direction, Directions};
pub use keras::{KerasBias, KerasCell, KerasGru, KerasGruConfig, KerasSimpleRnn, KerasSimpleRnnConfig};
pub(crate) use layer::LayerWeights;
pub use onnx::{OnnxAttributes, OnnxWeights};
pub use pytorch::{PyTorchCell, PyTorchGru, PyTorchLayer, PyTorchRnn};

use crate::{Cell, Error, GruInputs, Lengths, RecurrentOutput, SingleGateRnnInputs, gru, single_gate_rnn};

/// One recurrent layer as tensors: what it computes, and its weights in the layout of [`gru`] and
/// [`single_gate_rnn`], except that the recurrent weight always has its axis of directions.
///
/// The conversions are made of differentiable tensor operations: with tracked tensors as their source, a
/// backward pass through [`forward`](Self::forward) yields the gradients of those tensors.
///
/// `I` input features, `H` hidden units, `G` gates (3 for a GRU, 1 for a single-gate RNN), `D` directions (2
/// if bidirectional, else 1).
#[derive(Clone, Debug)]
pub struct CellWeights {
    /// The cell and its options.
    pub cell: Cell,
    /// `[D·GH, I]`
    pub input_weight: Tensor<2>,
    /// `[D, GH, H]`
    pub recurrent_weight: Tensor<3>,
    /// `[D·GH]`; absent: zero.
    pub bias: Option<Tensor<1>>,
    /// `[D·H]`, of a GRU with `reset_after` only; absent: zero.
    pub secondary_bias: Option<Tensor<1>>,
}

impl CellWeights {
    /// Runs the cell over all steps.
    ///
    /// - `source`: `[T, N, I]`
    /// - `init_state`: `[N, D·H]`, the directions side by side; `None`: zero.
    /// - `lengths`: `[N]`, how many steps each row runs; `None`: all.
    ///
    /// # Errors
    ///
    /// Those of [`gru`] and [`single_gate_rnn`].
    pub fn forward(
        &self,
        source: Tensor<3>,
        init_state: Option<Tensor<2>>,
        lengths: Option<Lengths>,
    ) -> Result<RecurrentOutput, Error> {
        let [directions, rows, hidden] = self.recurrent_weight.dims();
        match directions {
            1 => {
                let recurrent_weight = self.recurrent_weight.clone().reshape([rows, hidden]);
                self.run(recurrent_weight, source, init_state, lengths)
            }
            _ => self.run(self.recurrent_weight.clone(), source, init_state, lengths),
        }
    }

    fn run<const R: usize>(
        &self,
        recurrent_weight: Tensor<R>,
        source: Tensor<3>,
        init_state: Option<Tensor<2>>,
        lengths: Option<Lengths>,
    ) -> Result<RecurrentOutput, Error> {
        let input_weight = Some(self.input_weight.clone());
        let bias = self.bias.clone();
        match &self.cell {
            Cell::Gru(descriptor) => gru(
                GruInputs {
                    input_weight,
                    bias,
                    init_state,
                    lengths,
                    secondary_bias: self.secondary_bias.clone(),
                    ..GruInputs::new(source, recurrent_weight)
                },
                descriptor,
            ),
            Cell::SingleGate(descriptor) => single_gate_rnn(
                SingleGateRnnInputs {
                    input_weight,
                    bias,
                    init_state,
                    lengths,
                    ..SingleGateRnnInputs::new(source, recurrent_weight)
                },
                descriptor,
            ),
        }
    }

    /// Hidden units of one direction, `H`.
    pub fn d_hidden(&self) -> usize {
        self.recurrent_weight.dims()[2]
    }

    /// Input features, `I`.
    pub fn d_input(&self) -> usize {
        self.input_weight.dims()[1]
    }
}
