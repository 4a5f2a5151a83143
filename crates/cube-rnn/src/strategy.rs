//! Which kernel for which problem on which device: the one place that decides.

use cubecl::{ir::DeviceProperties, prelude::*};

use crate::{
    Cell, Sizes,
    plan::{Phase, Plan},
};

/// How the recurrence runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The one expected to be fastest.
    #[default]
    Auto,
    /// One cube owns some batch rows for the whole sequence: the state stays in shared memory, and the
    /// recurrent weight in registers where it fits. Falls back to [`Strategy::Steps`] where the hidden units
    /// outnumber a cube's units.
    Cube,
    /// One launch a step, the hidden units spread over the whole device.
    Steps,
}

impl core::str::FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "auto" => Ok(Self::Auto),
            "cube" => Ok(Self::Cube),
            "steps" => Ok(Self::Steps),
            _ => Err(format!("unknown strategy `{name}`, expected one of auto, cube, steps")),
        }
    }
}

/// Shared memory a kernel may use, in bytes: Metal's limit, which all devices have.
const SHARED_MEMORY: usize = 32 * 1024;

/// Weights a unit keeps in registers at most. With some 30 registers beside them, 512 units then fill a
/// register file of 64 Ki words.
const RESIDENT_WEIGHTS: usize = 96;

/// Multiply-adds of one cube in one launch: well below what a desktop's watchdog allows on a slow device.
const LAUNCH_WORK: usize = 500_000_000;

/// Whether a pass walks forward, with one product over the state, or back, with one over the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Forward,
    Backward,
}

/// What a device allows.
#[derive(Clone, Copy, Debug)]
struct Limits {
    units: usize,
    shared_memory: usize,
    /// Cubes that run at the same time.
    cubes: usize,
}

impl Limits {
    fn new(properties: &DeviceProperties) -> Self {
        let hardware = &properties.hardware;
        Self {
            units: (hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize).min(1024),
            shared_memory: hardware.max_shared_memory_size.min(SHARED_MEMORY),
            cubes: hardware.num_streaming_multiprocessors.unwrap_or(64) as usize,
        }
    }
}

/// The plan of a pass and how many steps one launch walks.
pub(crate) fn plan(
    properties: &DeviceProperties,
    cell: Cell,
    sizes: &Sizes,
    mask_steps: bool,
    pass: Pass,
    strategy: Strategy,
) -> (Plan, usize) {
    let limits = Limits::new(properties);
    let cube = plan_cube(&limits, cell, sizes, mask_steps, pass);
    match (strategy, cube) {
        (Strategy::Auto, Some(plan)) if plan.resident || sizes.hidden <= 256 => walk(plan, sizes),
        (Strategy::Cube, Some(plan)) => walk(plan, sizes),
        _ => (plan_steps(&limits, cell, sizes, mask_steps, pass), 1),
    }
}

fn walk(plan: Plan, sizes: &Sizes) -> (Plan, usize) {
    let work = plan.rows * sizes.hidden * plan.direction_gates();
    (plan, (LAUNCH_WORK / work).clamp(1, 4096))
}

/// One cube for some rows, if it can hold all hidden units.
fn plan_cube(limits: &Limits, cell: Cell, sizes: &Sizes, mask_steps: bool, pass: Pass) -> Option<Plan> {
    let hidden = sizes.hidden;
    if hidden > limits.units {
        return None;
    }
    let depth = depth(cell, hidden, pass);
    // Weights of one hidden unit.
    let weights = cell.gates() * hidden;
    let splits = (0..=5).map(|log| 1usize << log).take_while(|split| hidden * split <= limits.units);
    let resident =
        splits.clone().find(|split| weights.div_ceil(*split) <= RESIDENT_WEIGHTS && hidden * split <= 512);
    // Without residency: enough units to hide the latency of the weights' loads.
    let split = resident.unwrap_or_else(|| splits.clone().find(|split| hidden * split >= 256).unwrap_or(1));

    let wanted = (sizes.batch * cell.directions()).div_ceil(limits.cubes).next_power_of_two().min(8);
    let rows = [8, 4, 2, 1].into_iter().filter(|rows| *rows <= wanted);
    rows.map(|rows| Plan {
        cell,
        hidden,
        rows,
        units: hidden,
        split,
        resident: resident.is_some(),
        exchange: false,
        chunk: depth,
        phase: Phase::Whole,
        mask_steps,
    })
    .find(|plan| shared_memory(plan, pass) <= limits.shared_memory)
}

/// One launch a step, for anything.
fn plan_steps(limits: &Limits, cell: Cell, sizes: &Sizes, mask_steps: bool, pass: Pass) -> Plan {
    let hidden = sizes.hidden;
    let units = hidden.min(32);
    let split = (256.min(limits.units) / units).max(1).next_power_of_two().min(8);
    let split = if units * split > limits.units { split / 2 } else { split }.max(1);
    let rows = sizes.batch.min(8).next_power_of_two();
    Plan {
        cell,
        hidden,
        rows,
        units,
        split,
        resident: false,
        exchange: true,
        chunk: depth(cell, hidden, pass).min(256),
        phase: Phase::Whole,
        mask_steps,
    }
}

/// Terms of the longest product.
fn depth(cell: Cell, hidden: usize, pass: Pass) -> usize {
    match pass {
        Pass::Forward => hidden,
        Pass::Backward => (cell.gates() - cell.two_phase() as usize) * hidden,
    }
}

/// Bytes of shared memory that a plan's kernel declares.
fn shared_memory(plan: &Plan, pass: Pass) -> usize {
    let partials = match pass {
        Pass::Forward => plan.forward_product().partials(),
        Pass::Backward => plan.backward_product().partials(),
    };
    4 * (plan.rows * plan.chunk + partials)
}

/// The cubes of a plan and their units.
pub(crate) fn grid(plan: &Plan, sizes: &Sizes) -> (CubeCount, CubeDim) {
    let count = CubeCount::Static(
        sizes.hidden.div_ceil(plan.units) as u32,
        sizes.batch.div_ceil(plan.rows) as u32,
        plan.cell.directions() as u32,
    );
    (count, CubeDim::new_1d((plan.units * plan.split) as u32))
}
