//! Burn modules.

mod gru;
mod parameters;
mod rnn;
mod stack;

use burn::nn::{Dropout, DropoutConfig};

pub use gru::{Gru, GruConfig};
pub use parameters::RecurrentParameters;
pub use rnn::{Rnn, RnnConfig};
pub use stack::forward_layers;

use crate::{
    Error,
    weights::{Directions, weight_error},
};

/// The largest probability that [`Dropout`] takes is below 1.
fn dropout(prob: f64) -> Result<Dropout, Error> {
    match (0.0..1.0).contains(&prob) {
        true => Ok(DropoutConfig::new(prob).init()),
        false => Err(weight_error("dropout", format!("must be from 0 up and below 1, got {prob}"))),
    }
}

/// The parameters of layers read from a framework, the first taking the input.
fn stacked(layers: Vec<Directions>) -> Result<Vec<RecurrentParameters>, Error> {
    let mut stacked: Vec<RecurrentParameters> = Vec::with_capacity(layers.len());
    let mut first = None;
    for (index, layer) in layers.into_iter().enumerate() {
        let weights = layer.update_gate_first().into_layer_weights();
        let [directions, _, hidden] = weights.recurrent_weight.dims();
        let [first_directions, first_hidden] = *first.get_or_insert([directions, hidden]);
        if [directions, hidden] != [first_directions, first_hidden] {
            return Err(weight_error(
                format!("layer {index}"),
                format!(
                    "must have the directions and hidden units of layer 0, {first_directions} and \
                     {first_hidden}, got {directions} and {hidden}"
                ),
            ));
        }
        let [_, features] = weights.input_weight.dims();
        if index > 0 && features != directions * hidden {
            return Err(weight_error(
                format!("layer {index}"),
                format!(
                    "must take the {} channels that the layer before it puts out, got {features} input \
                     features",
                    directions * hidden
                ),
            ));
        }
        stacked.push(RecurrentParameters::from_weights(weights));
    }
    Ok(stacked)
}

fn no_layer() -> Error {
    weight_error("layers", "must have at least one layer, got none")
}
