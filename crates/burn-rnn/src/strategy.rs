//! Forcing a kernel strategy.

use std::sync::atomic::{AtomicU8, Ordering};

pub use cube_rnn::Strategy;

static FORCED: AtomicU8 = AtomicU8::new(0);

/// Forces the strategy of all kernels launched from now on, in the whole process; [`Strategy::Auto`] chooses
/// again for each problem. For benchmarks and tests: results differ by rounding only.
pub fn force_strategy(strategy: Strategy) {
    let position = Strategy::ALL.iter().position(|known| *known == strategy).expect("all are listed");
    FORCED.store(position as u8, Ordering::Relaxed);
}

/// The strategy in force.
pub(crate) fn forced_strategy() -> Strategy {
    Strategy::ALL[FORCED.load(Ordering::Relaxed) as usize]
}
