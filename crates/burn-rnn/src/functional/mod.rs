//! The operations of MPSGraph, checked.

mod check;
mod gru;
mod inputs;
mod single_gate_rnn;

pub use gru::{GruGradients, GruInputs, gru, gru_gradients};
pub use inputs::{Lengths, Mask, RecurrentOutput};
pub use single_gate_rnn::{
    SingleGateRnnGradients, SingleGateRnnInputs, single_gate_rnn, single_gate_rnn_gradients,
};
