//! Layers on top of each other.

use burn::{nn::Dropout, tensor::Tensor};

use super::RecurrentParameters;
use crate::{Cell, CellWeights, Error, Lengths};

/// What [`Gru`](super::Gru) and [`Rnn`](super::Rnn) have in common, borrowed for a call.
pub(super) struct Stack<'a> {
    pub layers: &'a [RecurrentParameters],
    pub cell: Cell,
    pub dropout: &'a Dropout,
    pub batch_first: bool,
}

impl Stack<'_> {
    /// Runs the layers on `[N, T, I]` or `[T, N, I]`.
    pub fn forward(
        &self,
        input: Tensor<3>,
        state: Option<Tensor<3>>,
        lengths: Option<Lengths>,
    ) -> Result<(Tensor<3>, Tensor<3>), Error> {
        let d_input = self.layers[0].d_input();
        let [first, second, features] = input.dims();
        if features != d_input {
            let axes = if self.batch_first { "[N, T, d_input]" } else { "[T, N, d_input]" };
            return Err(Error::Shape {
                tensor: "input",
                expected: format!("{axes} = {:?}", [first, second, d_input]),
                got: input.dims().to_vec(),
            });
        }
        let swap = |sequence: Tensor<3>| if self.batch_first { sequence.swap_dims(0, 1) } else { sequence };
        let (output, state) = self.forward_time_major(swap(input), state, lengths)?;
        Ok((swap(output), state))
    }

    /// Runs one time step: `[N, I]` to `[N, H]`.
    ///
    /// # Panics
    ///
    /// If a shape does not fit, or if the output of a step depends on later steps.
    pub fn step(&self, input: Tensor<2>, state: Option<Tensor<3>>) -> (Tensor<2>, Tensor<3>) {
        if self.cell.bidirectional() || self.cell.walks_backwards(0) {
            panic!("`step` must be called on a layer that walks forwards only, got {:?}", self.cell);
        }
        let [batch, features] = input.dims();
        let d_input = self.layers[0].d_input();
        if features != d_input {
            let error = Error::Shape {
                tensor: "input",
                expected: format!("[N, d_input] = {:?}", [batch, d_input]),
                got: input.dims().to_vec(),
            };
            panic!("{error}");
        }
        let result = self.forward_time_major(on_top_of_each_other(input, 1), state, None);
        let (output, state) = unwrap(result);
        (beside_each_other(output), state)
    }

    fn forward_time_major(
        &self,
        input: Tensor<3>,
        state: Option<Tensor<3>>,
        lengths: Option<Lengths>,
    ) -> Result<(Tensor<3>, Tensor<3>), Error> {
        let weights: Vec<_> = self.layers.iter().map(|layer| layer.weights(self.cell)).collect();
        forward_layers(&weights, input, state, lengths, |sequence| self.dropout.forward(sequence))
    }
}

/// Layers panic where the functional operations return an error, as Burn's layers do.
pub(super) fn unwrap<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs `layers` on top of each other, the first on `input`, each other one on the output of the one before
/// it, with `between` (dropout, say) applied to that output.
///
/// - `input`: `[T, N, I]`
/// - `state`: `[L·D, N, H]` for `L` layers, as PyTorch's `h_0`: the directions of the first layer, those of
///   the second, and so on; `None`: zero.
/// - `lengths`: `[N]`, how many steps each row runs; `None`: all.
///
/// Returns the last layer's output, `[T, N, D·H]`, and the final states of all, `[L·D, N, H]`, PyTorch's `h_n`.
///
/// # Errors
///
/// Those of [`gru`](crate::gru) and [`single_gate_rnn`](crate::single_gate_rnn); [`Error::Shape`] for `state`.
///
/// # Panics
///
/// If there is no layer, or if the layers differ in `H` or `D`.
pub fn forward_layers(
    layers: &[CellWeights],
    input: Tensor<3>,
    state: Option<Tensor<3>>,
    lengths: Option<Lengths>,
    between: impl Fn(Tensor<3>) -> Tensor<3>,
) -> Result<(Tensor<3>, Tensor<3>), Error> {
    let [directions, _, hidden] = layers.first().expect("at least one layer").recurrent_weight.dims();
    for layer in layers {
        let [other_directions, _, other_hidden] = layer.recurrent_weight.dims();
        assert_eq!([other_directions, other_hidden], [directions, hidden], "[D, H] of all layers");
    }
    let batch = input.dims()[1];
    let expected = [layers.len() * directions, batch, hidden];
    if let Some(state) = &state
        && state.dims() != expected
    {
        return Err(Error::Shape {
            tensor: "state",
            expected: format!("[num_layers·D, N, H] = {expected:?}"),
            got: state.dims().to_vec(),
        });
    }
    let lengths = match lengths {
        Some(lengths) if layers.len() > 1 => Some(on_the_host(lengths)?),
        lengths => lengths,
    };

    let mut sequence = input;
    let mut final_states = Vec::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        if index > 0 {
            sequence = between(sequence);
        }
        let init_state = state.as_ref().map(|state| {
            let state = match layers.len() {
                1 => state.clone(),
                _ => state.clone().narrow(0, index * directions, directions),
            };
            beside_each_other(state)
        });
        let output = layer.forward(sequence, init_state, lengths.clone())?;
        sequence = output.output;
        final_states.push(on_top_of_each_other(output.final_state, directions));
    }
    let final_state = match final_states.len() {
        1 => final_states.remove(0),
        _ => Tensor::cat(final_states, 0),
    };
    Ok((sequence, final_state))
}

/// Reads lengths once for all layers.
fn on_the_host(lengths: Lengths) -> Result<Lengths, Error> {
    match lengths {
        Lengths::Host(_) => Ok(lengths),
        Lengths::Device(tensor) => {
            let data = tensor
                .try_into_data()
                .map_err(|error| Error::UnreadableLengths { reason: error.to_string() })?;
            Ok(Lengths::Host(data.iter::<i64>().collect()))
        }
    }
}

/// `[D, N, H]` into `[N, D·H]`. To `reshape` a 0 says "as before", so that an empty batch must come first in it.
fn beside_each_other(state: Tensor<3>) -> Tensor<2> {
    let [directions, batch, hidden] = state.dims();
    match directions {
        1 if batch > 0 => state.squeeze_dim(0),
        _ => state.swap_dims(0, 1).reshape([batch, directions * hidden]),
    }
}

/// `[N, D·H]` into `[D, N, H]`.
fn on_top_of_each_other(state: Tensor<2>, directions: usize) -> Tensor<3> {
    let [batch, channels] = state.dims();
    match directions {
        1 if batch > 0 => state.unsqueeze_dim(0),
        _ => state.reshape([batch, directions, channels / directions]).swap_dims(0, 1),
    }
}
