//! Fused GRU and single-gate RNN kernels for CubeCL.
mod activation;
mod cell;
mod forward;
mod plan;
mod product;
mod strategy;
pub use cell::*;
pub use forward::{ForwardInputs, ForwardOutputs, forward};
pub use plan::Sizes;
pub use strategy::Strategy;
