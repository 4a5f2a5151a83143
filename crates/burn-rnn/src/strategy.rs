//! Forcing how kernels run.

use std::sync::{Mutex, PoisonError};

pub use cube_rnn::{Options as KernelOptions, Strategy};

static FORCED: Mutex<KernelOptions> =
    Mutex::new(KernelOptions { strategy: Strategy::Auto, steps_per_launch: None });

/// Forces the strategy of all kernels launched from now on, in the whole process; `Strategy::Auto` chooses again
/// for each problem. For benchmarks and tests: results differ by rounding only.
///
/// With fusion, kernels are launched when their stream is drained, so synchronise the device first.
pub fn force_strategy(options: impl Into<KernelOptions>) {
    *FORCED.lock().unwrap_or_else(PoisonError::into_inner) = options.into();
}

/// The options in force.
pub(crate) fn forced_options() -> KernelOptions {
    *FORCED.lock().unwrap_or_else(PoisonError::into_inner)
}
