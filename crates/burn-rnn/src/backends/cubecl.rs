//! CubeCL.

use burn_cubecl::CubeBackend;

use crate::RecurrentOps;

impl RecurrentOps for CubeBackend {}
