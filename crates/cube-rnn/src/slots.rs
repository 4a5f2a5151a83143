//! Values that the cubes of one launch hand each other, through a buffer with a slot for every step.
//!
//! A slot starts as [`MISSING`] and is written once, so a cube knows from a value alone that it has arrived: no
//! counters, no fences, and no cube waits for more than it reads. Waiting needs the cubes to run at the same time,
//! which no GPU interface promises: [`crate::residency`] finds out how many do. It is bounded all the same, so that
//! a mistake ends, and ends as a NaN.

use cubecl::{prelude::*, server::Handle};

use crate::launch::buffer;

/// Bits of what has not arrived: a NaN that no arithmetic makes.
pub(crate) const MISSING: u32 = 0xffff_ffff;

/// A NaN like any other.
const NAN: u32 = 0x7fc0_0000;

/// Looks at a slot before a unit gives up, some hundred milliseconds.
const PATIENCE: u32 = 1 << 18;

/// Units of a cube of [`prepare_slots`].
const UNITS: usize = 256;

/// How often a unit looks at a slot; nothing more once it gave up.
#[cube]
pub(crate) fn new_patience() -> Array<u32> {
    let mut patience = Array::<u32>::new(1usize);
    patience[0] = PATIENCE;
    patience
}

/// Hands a value on.
#[cube]
pub(crate) fn hand(slots: &[Atomic<u32>], position: usize, value: f32) {
    let bits = u32::reinterpret(value);
    slots[position].store(select(bits == MISSING, NAN, bits));
}

/// Reads `count` values at `positions` after `base` where they exist, zero where they don't. If `waits`, waits for
/// those that are missing.
#[cube]
pub(crate) fn receive(
    values: &mut Array<f32>,
    slots: &[Atomic<u32>],
    base: usize,
    positions: &Array<usize>,
    exist: &Array<bool>,
    patience: &mut Array<u32>,
    #[comptime] count: usize,
    #[comptime] waits: bool,
) {
    let mut bits = Array::<u32>::new(count);
    #[unroll]
    for i in 0..count {
        bits[i] = slots[base + positions[i]].load();
    }
    if comptime!(waits) {
        let mut missing = false;
        #[unroll]
        for i in 0..count {
            missing = missing || (exist[i] && bits[i] == MISSING);
        }
        let mut looks = patience[0];
        while missing && looks > 0 {
            missing = false;
            #[unroll]
            for i in 0..count {
                if exist[i] && bits[i] == MISSING {
                    bits[i] = slots[base + positions[i]].load();
                    missing = missing || bits[i] == MISSING;
                }
            }
            looks -= 1;
        }
        patience[0] = select(missing, 0u32, patience[0]);
    }
    #[unroll]
    for i in 0..count {
        values[i] = select(exist[i], f32::reinterpret(bits[i]), 0.0);
    }
}

/// Prepares `count` slots of `size` values for a launch: the first takes over what is in slot `last`, if that is
/// another, and the others are emptied.
pub(crate) fn prepare(client: &Client, slots: &Handle, size: usize, count: usize, last: usize) {
    let cubes = CubeCount::Static(size.div_ceil(UNITS) as u32, count as u32, 1);
    // SAFETY: the kernel accesses `count * size` elements.
    unsafe {
        prepare_slots::launch_unchecked(
            client,
            cubes,
            CubeDim::new_1d(UNITS as u32),
            buffer(slots, count * size),
            size as u32,
            last as u32,
        )
    }
}

#[cube(launch_unchecked)]
fn prepare_slots(slots: &mut [u32], size: u32, last: u32) {
    let position = CUBE_POS_X as usize * UNITS + UNIT_POS as usize;
    let size = size as usize;
    let slot = CUBE_POS_Y;
    if position < size && slot > 0 {
        let index = slot as usize * size + position;
        if slot == last {
            slots[position] = slots[index];
        }
        slots[index] = MISSING;
    }
}
