//! Weights of Burn's own layers.
