//! The kernels' text in Metal Shading Language: what it computes, and what it keeps clear of.

mod conformance;
mod errors;
mod limits;
mod support;
