//! How many cubes of a launch run at the same time.
//!
//! No GPU interface tells, and WebGPU and Metal promise no progress to cubes that wait for each other. Where a
//! runtime is known to start all cubes that fit, a trial finds out how many do.

use std::{collections::HashMap, sync::Mutex};

use cubecl::{ir::PciVendor, prelude::*};

/// Looks at the counter before a cube gives up, some hundred milliseconds.
const PATIENCE: u32 = 1 << 18;

/// Units and words of shared memory of a cube in the trial: with more than half of what a multiprocessor has,
/// no two cubes share one.
const UNITS: u32 = 1024;

/// Cubes that all run at the same time with up to 1,024 units each, 0 where that is not known.
pub(crate) fn resident_cubes(client: &Client) -> usize {
    static KNOWN: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

    if !starts_all_that_fit(client) {
        return 0;
    }
    let device = format!("{} {:?}", client.name(), client.properties().identity);
    let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *known.get_or_insert_default().entry(device).or_insert_with(|| {
        [128, 64, 32, 16, 8, 4].into_iter().find(|cubes| all_meet(client, *cubes)).unwrap_or(0)
    })
}

/// Runtimes and vendors whose scheduler gives every started cube its turn.
fn starts_all_that_fit(client: &Client) -> bool {
    let vendor = client.properties().identity.physical.as_ref().and_then(|physical| physical.vendor);
    match client.name() {
        "cuda" | "hip" => true,
        "wgpu<spirv>" => matches!(vendor, Some(PciVendor::Nvidia)),
        _ => false,
    }
}

/// Whether that many cubes meet, twice.
fn all_meet(client: &Client, cubes: usize) -> bool {
    let counters = client.create_from_slice(&[0; 4]);
    let failures = client.create_from_slice(&[0; 4]);
    // SAFETY: the kernel accesses the one element of each buffer.
    unsafe {
        trial::launch_unchecked(
            client,
            CubeCount::Static(cubes as u32, 1, 1),
            CubeDim::new_1d(UNITS.min(client.properties().hardware.max_units_per_cube)),
            BufferArg::from_raw_parts(counters, 1),
            BufferArg::from_raw_parts(failures.clone(), 1),
        )
    };
    client.read_one(failures).is_ok_and(|failures| failures.iter().all(|byte| *byte == 0))
}

#[cube(launch_unchecked)]
fn trial(counters: &[Atomic<u32>], failures: &[Atomic<u32>]) {
    for round in 0..2u32 {
        if UNIT_POS == 0 {
            let expected = (round + 1) * CUBE_COUNT_X;
            let mut met = counters[0].fetch_add(1u32) + 1 >= expected;
            let mut looks = 0u32;
            while !met && looks < PATIENCE {
                met = counters[0].load() >= expected;
                looks += 1;
            }
            if !met {
                failures[0].fetch_add(1u32);
            }
        }
        sync_cube();
    }
}
