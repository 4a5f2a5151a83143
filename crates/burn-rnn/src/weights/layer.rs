//! A layer's weights, the redundant bias still apart.

use burn::tensor::Tensor;

use super::{CellWeights, check::zeros};
use crate::Cell;

/// [`CellWeights`] with the second bias of those gates whose two biases add up: what a layer's parameters
/// hold.
#[derive(Clone, Debug)]
pub(crate) struct LayerWeights {
    pub cell: Cell,
    /// `[D·GH, I]`
    pub input_weight: Tensor<2>,
    /// `[D, GH, H]`
    pub recurrent_weight: Tensor<3>,
    /// `[D·GH]`
    pub bias: Option<Tensor<1>>,
    /// `[D·GH]`; with `reset_after` `[D·2H]`, without the output gate's rows.
    pub recurrent_bias: Option<Tensor<1>>,
    /// `[D·H]`, with `reset_after` only.
    pub secondary_bias: Option<Tensor<1>>,
}

impl LayerWeights {
    /// Adds up the biases that the cell adds up.
    pub fn into_cell_weights(self) -> CellWeights {
        let [directions, rows, hidden] = self.recurrent_weight.dims();
        let recurrent_bias = self.recurrent_bias.map(|bias| match self.cell.reset_after() {
            true => {
                let gates = bias.reshape([directions, 2 * hidden]);
                let output = zeros([directions, hidden], &gates);
                Tensor::cat(vec![gates, output], 1).reshape([directions * rows])
            }
            false => bias,
        });
        let bias = match (self.bias, recurrent_bias) {
            (Some(bias), Some(recurrent_bias)) => Some(bias + recurrent_bias),
            (bias, recurrent_bias) => bias.or(recurrent_bias),
        };
        CellWeights {
            cell: self.cell,
            input_weight: self.input_weight,
            recurrent_weight: self.recurrent_weight,
            bias,
            secondary_bias: self.secondary_bias,
        }
    }
}
