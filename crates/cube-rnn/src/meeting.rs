//! A barrier between the cubes of one launch.
//!
//! It needs all of them to run at the same time, which no GPU interface promises: [`crate::residency`] finds
//! out how many do. Waiting is bounded all the same, so that a mistake ends.

use cubecl::prelude::*;

/// Looks at the counter before a cube gives up, some hundred milliseconds.
const PATIENCE: u32 = 1 << 18;

/// Prepares `all_met`, of one element, for [`meet`].
#[cube]
pub(crate) fn expect_all(all_met: &mut Shared<[u32]>) {
    if UNIT_POS == 0 {
        all_met[0] = 1u32;
    }
}

/// Waits until `expected` cubes have arrived at `counters[group]`, in this and all earlier meetings together.
/// Returns whether they did, in every meeting so far: a cube that gave up once does not wait again. What units
/// wrote through atomics before is then seen by all of the cubes.
///
/// All units of the cube must come here.
#[cube]
pub(crate) fn meet(
    counters: &[Atomic<u32>],
    group: usize,
    expected: u32,
    all_met: &mut Shared<[u32]>,
) -> bool {
    sync_storage();
    if UNIT_POS == 0 {
        let arrived = counters[group].fetch_add(1u32) + 1;
        let gave_up = all_met[0] == 0u32;
        let mut met = arrived >= expected;
        let mut looks = 0u32;
        while !met && !gave_up && looks < PATIENCE {
            met = counters[group].load() >= expected;
            looks += 1;
        }
        all_met[0] = select(met && !gave_up, 1u32, 0u32);
    }
    sync_cube();
    all_met[0] == 1u32
}
