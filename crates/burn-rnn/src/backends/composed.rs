//! Backends that run the composed operations as they are.

use crate::RecurrentOps;

#[cfg(feature = "ndarray")]
impl RecurrentOps for burn::backend::NdArray {}

#[cfg(feature = "tch")]
impl RecurrentOps for burn::backend::LibTorch {}
