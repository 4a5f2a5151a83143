//! Fused GRU and single-gate RNN kernels for CubeCL.
mod activation;
mod backward;
mod cell;
mod forward;
mod launch;
mod meeting;
mod plan;
mod product;
mod residency;
mod strategy;
pub use backward::{BackwardInputs, BackwardOutputs, EnteredInputs, EnteredOutputs, backward, entered};
pub use cell::*;
pub use forward::{ForwardInputs, ForwardOutputs, forward};
pub use plan::Sizes;
pub use strategy::{Options, Strategy};
