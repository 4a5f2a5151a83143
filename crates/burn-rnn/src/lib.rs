//! GRU and single-gate RNN for Burn, forward and gradients, with MPSGraph's semantics.

mod backends;
mod composed;
#[cfg(any(feature = "fusion", feature = "router"))]
mod custom;
mod descriptor;
mod error;
mod functional;
mod layers;
mod ops;
#[cfg(feature = "cubecl-backend")]
mod strategy;
mod weights;

#[cfg(feature = "router")]
pub use backends::router::register_recurrent_ops;
pub use descriptor::{Activation, Cell, GruDescriptor, SingleGateRnnDescriptor};
pub use error::Error;
pub use functional::{
    GruGradients, GruInputs, Lengths, Mask, RecurrentOutput, SingleGateRnnGradients, SingleGateRnnInputs,
    gru, gru_gradients, single_gate_rnn, single_gate_rnn_gradients,
};
pub use layers::{Gru, GruConfig, RecurrentParameters, Rnn, RnnConfig, forward_layers};
pub use ops::{
    RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved, WantedGradients,
};
#[cfg(feature = "cubecl-backend")]
pub use strategy::{Strategy, force_strategy};
pub use weights::{
    CellWeights, KerasBias, KerasCell, KerasGru, KerasGruConfig, KerasSimpleRnn, KerasSimpleRnnConfig,
    OnnxAttributes, OnnxWeights, PyTorchCell, PyTorchGru, PyTorchLayer, PyTorchRnn,
};
