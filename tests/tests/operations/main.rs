//! The operations on the devices at hand: gradients, autodiff, what is refused, and the edges.

mod autodiff;
mod determinism;
mod devices;
mod edges;
mod errors;
mod gradients;
mod problem;
mod routed;
