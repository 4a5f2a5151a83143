//! The kernels as Apple's compiler gets them, and a CPU that runs them.
//!
//! No Mac is needed: [`server::Device`] is a CubeCL device with the properties of an Apple GPU, which compiles what
//! is launched on it to Metal Shading Language, and [`stand_in::StandIn`] runs that text, compiled as C++.

pub mod apple;
pub mod clang;
mod cpp;
pub mod kernels;
mod program;
pub mod server;
mod signature;
pub mod stand_in;
pub mod text;
