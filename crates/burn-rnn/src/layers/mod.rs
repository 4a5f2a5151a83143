//! Burn modules.

mod stack;

pub use stack::forward_layers;
