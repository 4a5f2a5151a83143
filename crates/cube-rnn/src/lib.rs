//! Fused GRU and single-gate RNN kernels for CubeCL.
//!
//! The input product `x Wᵀ` of all steps is one large matrix product, left to the caller, as are the products
//! that make weight gradients. Here is what is sequential: [`forward`] walks the steps and [`backward`] walks
//! them back, each in as few launches as the device allows; [`entered`] tells what the recurrent products were
//! made of. All take contiguous buffers and a [`cubecl`] client, and launch asynchronously.
//!
//! States and sums are f32 whatever the buffers hold; there are no float atomics, so equal inputs give equal
//! bits. [`Strategy`] says how the work is laid out on a device.

mod activation;
mod backward;
mod cell;
mod factors;
mod forward;
mod launch;
mod plan;
mod product;
mod residency;
mod slots;
mod strategy;
pub use backward::{BackwardInputs, BackwardOutputs, EnteredInputs, EnteredOutputs, backward, entered};
pub use cell::*;
pub use forward::{ForwardInputs, ForwardOutputs, forward};
pub use plan::Sizes;
pub use strategy::{Options, Strategy};
