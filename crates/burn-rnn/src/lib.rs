//! Recurrent layers for Burn on any GPU: GRU and single-gate RNN, forward and gradients, as fused kernels.
//!
//! - [`Gru`] and [`Rnn`] are Burn modules, with the conversions `from_pytorch`, `from_onnx`, `from_keras` and
//!   `from_burn`.
//! - [`gru`], [`gru_gradients`], [`single_gate_rnn`] and [`single_gate_rnn_gradients`] are the operations of
//!   Apple's MPSGraph, on [`Tensor`](burn::tensor::Tensor)s of any device. Under autodiff they are one
//!   differentiable node that keeps its training state by itself.
//! - [`RecurrentOps`] is the backend extension behind them, with a default body for any backend.
//!
//! No execution backend is enabled by default: select `flex`, `wgpu` or another with this crate's feature of
//! that name, as Burn's own features do not reach the kernels here.
//!
//! # Remote execution and capture
//!
//! The operations are recorded as custom operations `rnn::recurrent_forward` and `rnn::recurrent_backward`. A
//! server, or an interpreter of captured graphs, enables `router` and installs `register_recurrent_ops` in its
//! registry; a client enables `remote` or `capture`.

// Burn has deprecated its NdArray backend; it is supported here for as long as it is there.
#![cfg_attr(feature = "ndarray", allow(deprecated))]

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
pub use strategy::{KernelOptions, Strategy, force_strategy};
pub use weights::{
    CellWeights, KerasBias, KerasCell, KerasGru, KerasGruConfig, KerasSimpleRnn, KerasSimpleRnnConfig,
    OnnxAttributes, OnnxWeights, PyTorchCell, PyTorchGru, PyTorchLayer, PyTorchRnn,
};
