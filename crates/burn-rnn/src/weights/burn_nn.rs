//! Weights of Burn's own layers.

use burn::{
    nn::{self, GateController, activation},
    tensor::Tensor,
};

use super::{
    Direction, Directions,
    check::{check_shape, weight_error},
};
use crate::{Activation, Cell, Error, GruDescriptor, SingleGateRnnDescriptor};

/// Burn's `Gru` in one direction, or two of them as its `BiGru` has.
pub(crate) fn gru_directions(
    forward: &nn::gru::Gru,
    reverse: Option<&nn::gru::Gru>,
) -> Result<Directions, Error> {
    let descriptor = |gru: &nn::gru::Gru| -> Result<GruDescriptor, Error> {
        let gates = activation("gate_activation", &gru.gate_activation)?;
        Ok(GruDescriptor {
            bidirectional: reverse.is_some(),
            reset_after: gru.reset_after,
            update_gate_activation: gates,
            reset_gate_activation: gates,
            output_gate_activation: activation("hidden_activation", &gru.hidden_activation)?,
            clip: gru.clip,
            ..Default::default()
        })
    };
    let cell = same_options(forward, reverse, descriptor)?;
    let directions = [Some(forward), reverse]
        .into_iter()
        .flatten()
        .map(|gru| {
            direction(
                &[&gru.update_gate, &gru.reset_gate, &gru.new_gate],
                &["update_gate", "reset_gate", "new_gate"],
                forward.d_hidden,
            )
        })
        .collect::<Result<_, _>>()?;
    Ok(Directions { cell: Cell::Gru(cell), directions })
}

/// Burn's `Rnn` in one direction, or two of them as its `BiRnn` has.
pub(crate) fn rnn_directions(forward: &nn::Rnn, reverse: Option<&nn::Rnn>) -> Result<Directions, Error> {
    let descriptor = |rnn: &nn::Rnn| -> Result<SingleGateRnnDescriptor, Error> {
        Ok(SingleGateRnnDescriptor {
            reverse: rnn.reverse,
            bidirectional: reverse.is_some(),
            activation: activation("hidden_activation", &rnn.hidden_activation)?,
            clip: rnn.clip,
            ..Default::default()
        })
    };
    let cell = same_options(forward, reverse, descriptor)?;
    let directions = [Some(forward), reverse]
        .into_iter()
        .flatten()
        .map(|rnn| direction(&[&rnn.gate], &["gate"], forward.d_hidden))
        .collect::<Result<_, _>>()?;
    Ok(Directions { cell: Cell::SingleGate(cell), directions })
}

/// The options of a layer, which both directions of a bidirectional one must share.
fn same_options<L, T: PartialEq + std::fmt::Debug>(
    forward: &L,
    reverse: Option<&L>,
    descriptor: impl Fn(&L) -> Result<T, Error>,
) -> Result<T, Error> {
    let options = descriptor(forward)?;
    if let Some(reverse) = reverse {
        let other = descriptor(reverse)?;
        if other != options {
            let problem = format!("must have the options of `forward`, {options:?}, got {other:?}");
            return Err(weight_error("reverse", problem));
        }
    }
    Ok(options)
}

/// Puts the gates of one direction together. Burn's weights are transposed: `[I, H]` and `[H, H]`.
fn direction(gates: &[&GateController], names: &[&str], hidden: usize) -> Result<Direction, Error> {
    let features = gates[0].input_transform.weight.dims()[0];
    for (gate, name) in gates.iter().zip(names) {
        let check = |linear: &nn::Linear, field: &str, shape: [usize; 2], axes: &str| {
            let name = format!("{name}.{field}");
            check_shape(format!("{name}.weight"), &linear.weight.val(), axes, shape)?;
            match &linear.bias {
                Some(bias) => check_shape(format!("{name}.bias"), &bias.val(), "[H]", [hidden]),
                None => Ok(()),
            }
        };
        check(&gate.input_transform, "input_transform", [features, hidden], "[I, H]")?;
        check(&gate.hidden_transform, "hidden_transform", [hidden, hidden], "[H, H]")?;
    }

    let inputs: Vec<_> = gates.iter().map(|gate| &gate.input_transform).collect();
    let recurrents: Vec<_> = gates.iter().map(|gate| &gate.hidden_transform).collect();
    Ok(Direction {
        input_weight: weight(&inputs),
        recurrent_weight: weight(&recurrents),
        input_bias: bias(&inputs, hidden),
        recurrent_bias: bias(&recurrents, hidden),
    })
}

fn weight(gates: &[&nn::Linear]) -> Tensor<2> {
    Tensor::cat(gates.iter().map(|linear| linear.weight.val().transpose()).collect(), 0)
}

/// The biases of all gates, zero where one has none; `None` if no gate has one.
fn bias(gates: &[&nn::Linear], hidden: usize) -> Option<Tensor<1>> {
    if gates.iter().all(|linear| linear.bias.is_none()) {
        return None;
    }
    let biases = gates.iter().map(|linear| match &linear.bias {
        Some(bias) => bias.val(),
        None => super::check::zeros([hidden], &linear.weight.val()),
    });
    Some(Tensor::cat(biases.collect(), 0))
}

fn activation(field: &str, layer: &activation::Activation) -> Result<Activation, Error> {
    match layer {
        activation::Activation::Identity(_) => Ok(Activation::None),
        activation::Activation::Relu(_) => Ok(Activation::Relu),
        activation::Activation::Tanh(_) => Ok(Activation::Tanh),
        activation::Activation::Sigmoid(_) => Ok(Activation::Sigmoid),
        activation::Activation::HardSigmoid(layer) => {
            Ok(Activation::HardSigmoid { alpha: layer.alpha, beta: layer.beta })
        }
        other => Err(weight_error(
            field,
            format!("must be among Identity, Relu, Tanh, Sigmoid and HardSigmoid, got {other:?}"),
        )),
    }
}
