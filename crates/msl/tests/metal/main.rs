//! The kernels' text in Metal Shading Language: what it computes, and what it keeps clear of.

// The stand-in's scheduler is written for such systems.
#![cfg(unix)]

mod conformance;
mod errors;
mod limits;
mod support;
