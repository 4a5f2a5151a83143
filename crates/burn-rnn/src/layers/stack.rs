//! Layers on top of each other.

use burn::tensor::Tensor;

use crate::{CellWeights, Error, Lengths};

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

/// `[D, N, H]` into `[N, D·H]`.
fn beside_each_other(state: Tensor<3>) -> Tensor<2> {
    let [directions, batch, hidden] = state.dims();
    match directions {
        1 => state.reshape([batch, hidden]),
        _ => state.swap_dims(0, 1).reshape([batch, directions * hidden]),
    }
}

/// `[N, D·H]` into `[D, N, H]`.
fn on_top_of_each_other(state: Tensor<2>, directions: usize) -> Tensor<3> {
    let [batch, channels] = state.dims();
    match directions {
        1 => state.reshape([1, batch, channels]),
        _ => state.reshape([batch, directions, channels / directions]).swap_dims(0, 1),
    }
}
