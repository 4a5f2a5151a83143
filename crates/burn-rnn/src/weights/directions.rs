//! The form that all frameworks' weights have in common: per direction two matrices and two biases.

use burn::tensor::Tensor;

use super::{LayerWeights, check::zeros};
use crate::Cell;

/// One direction of a layer, its rows ordered as its cell's gates. The shapes have been checked.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    /// `[GH, I]`
    pub input_weight: Tensor<2>,
    /// `[GH, H]`
    pub recurrent_weight: Tensor<2>,
    /// `[GH]`, the bias beside the input product.
    pub input_bias: Option<Tensor<1>>,
    /// `[GH]`, the bias beside the recurrent product.
    pub recurrent_bias: Option<Tensor<1>>,
}

/// The directions of a layer, forward first.
#[derive(Clone, Debug)]
pub(crate) struct Directions {
    pub cell: Cell,
    pub directions: Vec<Direction>,
}

impl Directions {
    /// Brings a GRU's gates from the order `r, z, o` into `z, r, o`, that of the layers' parameters.
    pub fn update_gate_first(mut self) -> Self {
        let Cell::Gru(descriptor) = &mut self.cell else { return self };
        if !std::mem::take(&mut descriptor.reset_gate_first) {
            return self;
        }
        for direction in &mut self.directions {
            let hidden = direction.recurrent_weight.dims()[1];
            direction.input_weight = swap_gates(direction.input_weight.clone(), hidden);
            direction.recurrent_weight = swap_gates(direction.recurrent_weight.clone(), hidden);
            for bias in [&mut direction.input_bias, &mut direction.recurrent_bias] {
                *bias = bias.take().map(|bias| swap_gates(bias, hidden));
            }
        }
        self
    }

    /// Puts the directions together, the two biases of a gate still apart.
    pub fn into_layer_weights(self) -> LayerWeights {
        let Self { cell, directions } = self;
        let hidden = directions[0].recurrent_weight.dims()[1];
        let rows = cell.gates() * hidden;
        let input_weight = cat(directions.iter().map(|direction| direction.input_weight.clone()).collect());
        let recurrent_weight =
            directions.iter().map(|direction| direction.recurrent_weight.clone().unsqueeze()).collect();
        let recurrent_weight = cat(recurrent_weight);

        let bias = biases(&directions, rows, |direction| direction.input_bias.clone());
        let recurrent_bias = biases(&directions, rows, |direction| direction.recurrent_bias.clone());
        let (recurrent_bias, secondary_bias) = match recurrent_bias {
            Some(recurrent_bias) if cell.reset_after() => {
                // The output gate's stays apart from the sum: the reset gate multiplies it.
                let per_direction = recurrent_bias.reshape([directions.len(), rows]);
                let gates = per_direction.clone().narrow(1, 0, 2 * hidden);
                let output = per_direction.narrow(1, 2 * hidden, hidden);
                (Some(gates.reshape([-1])), Some(output.reshape([-1])))
            }
            recurrent_bias => (recurrent_bias, None),
        };
        LayerWeights { cell, input_weight, recurrent_weight, bias, recurrent_bias, secondary_bias }
    }
}

/// One of the two biases of all directions, `[D·GH]`; `None` if no direction has it.
fn biases(
    directions: &[Direction],
    rows: usize,
    bias: impl Fn(&Direction) -> Option<Tensor<1>>,
) -> Option<Tensor<1>> {
    let biases: Vec<_> = directions.iter().map(bias).collect();
    if biases.iter().all(Option::is_none) {
        return None;
    }
    let like = &directions[0].input_weight;
    Some(cat(biases.into_iter().map(|bias| bias.unwrap_or_else(|| zeros([rows], like))).collect()))
}

/// Swaps the first `hidden` rows with the second.
fn swap_gates<const D: usize>(tensor: Tensor<D>, hidden: usize) -> Tensor<D> {
    let gate = |index: usize| tensor.clone().narrow(0, index * hidden, hidden);
    Tensor::cat(vec![gate(1), gate(0), gate(2)], 0)
}

fn cat<const D: usize>(mut tensors: Vec<Tensor<D>>) -> Tensor<D> {
    match tensors.len() {
        1 => tensors.remove(0),
        _ => Tensor::cat(tensors, 0),
    }
}
