//! Which kernel for which problem on which device: the one place that decides.

use std::num::NonZero;

use cubecl::{ir::DeviceProperties, prelude::*};

use crate::{
    Cell, Sizes,
    plan::{Phase, Plan},
    product::Product,
    residency::resident_cubes,
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
    /// The hidden units spread over the whole device, the recurrent weight in its registers; the cubes meet
    /// between steps. Only where they are known to run at the same time, and with `reset_after`; elsewhere
    /// falls back to [`Strategy::Steps`].
    Grid,
    /// One launch a step, the hidden units spread over the whole device.
    Steps,
}

/// What a caller may set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Default: [`Strategy::Auto`].
    pub strategy: Strategy,
    /// Steps that one launch walks at most. Default: as many as stay well below what a desktop's watchdog
    /// allows.
    pub steps_per_launch: Option<NonZero<usize>>,
}

impl From<Strategy> for Options {
    fn from(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Cube, Self::Grid, Self::Steps];
}

impl core::str::FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "auto" => Ok(Self::Auto),
            "cube" => Ok(Self::Cube),
            "grid" => Ok(Self::Grid),
            "steps" => Ok(Self::Steps),
            _ => Err(format!("unknown strategy `{name}`, expected one of auto, cube, grid, steps")),
        }
    }
}

/// Shared memory a kernel may use, in bytes: Metal's limit, which all devices have.
const SHARED_MEMORY: usize = 32 * 1024;

/// How a cube keeps weights in registers: its units, and the weights of each. With what a unit needs beside them
/// both fill a register file of 64 Ki words, the second with more room for the sums of several rows.
const ONE_ROW: (usize, usize) = (512, 96);
const SEVERAL_ROWS: (usize, usize) = (256, 192);

/// Sums that a unit has in a row where it can: so many multiply-adds follow from each factor read.
const ROW_SUMS: usize = 6;

/// Bytes of the buffer through which cubes that meet hand values on in one launch.
const SLOTS: usize = 64 << 20;

/// Multiply-adds of one cube in one launch: well below what a desktop's watchdog allows on a slow device.
const LAUNCH_WORK: usize = 500_000_000;

/// Hidden units up to which one cube that streams the weight from the cache beats a launch for each step.
const STREAMED_HIDDEN: usize = 256;

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
    /// Shared memory that every device has.
    shared_memory: usize,
    /// Shared memory of this device.
    all_shared_memory: usize,
    /// Cubes that run at the same time.
    cubes: usize,
}

impl Limits {
    fn new(properties: &DeviceProperties) -> Self {
        let hardware = &properties.hardware;
        Self {
            units: (hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize).min(1024),
            all_shared_memory: hardware.max_shared_memory_size,
            shared_memory: hardware.max_shared_memory_size.min(SHARED_MEMORY),
            cubes: hardware.num_streaming_multiprocessors.unwrap_or(64) as usize,
        }
    }
}

/// The plan of a pass and how many steps one launch walks.
pub(crate) fn plan(
    client: &Client,
    cell: Cell,
    sizes: &Sizes,
    mask_steps: bool,
    pass: Pass,
    options: &Options,
) -> (Plan, usize) {
    let limits = Limits::new(client.properties());
    let cube = || plan_cube(&limits, cell, sizes, mask_steps, pass);
    let grid = || plan_grid(&limits, resident_cubes(client), cell, sizes, mask_steps, pass);
    let plan = match options.strategy {
        Strategy::Auto => cube()
            .filter(|plan| plan.resident)
            .or_else(grid)
            .or_else(|| cube().filter(|_| sizes.hidden <= STREAMED_HIDDEN)),
        Strategy::Cube => cube(),
        Strategy::Grid => grid(),
        Strategy::Steps => None,
    };
    match plan {
        Some(plan) => {
            let steps = options.steps_per_launch.map_or_else(|| steps_per_launch(&plan), NonZero::get);
            (plan, if plan.meets { steps.min(slots(&plan, sizes, pass)) } else { steps })
        }
        None => (plan_steps(&limits, cell, sizes, mask_steps, pass), 1),
    }
}

fn steps_per_launch(plan: &Plan) -> usize {
    let work = plan.rows * plan.tiles * plan.units * plan.direction_gates();
    (LAUNCH_WORK / work).clamp(1, 4096)
}

/// Steps of cubes that meet whose values fit [`SLOTS`].
fn slots(plan: &Plan, sizes: &Sizes, pass: Pass) -> usize {
    let slot = 4 * sizes.batch * plan.cell.directions() * depth(plan.cell, plan.hidden, pass);
    (SLOTS / slot).saturating_sub(1).max(1)
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
    let wanted = (sizes.batch * cell.directions()).div_ceil(limits.cubes).next_power_of_two().min(8);
    let (most_units, most_weights) = if wanted == 1 { ONE_ROW } else { SEVERAL_ROWS };
    let resident =
        splits.clone().find(|split| weights.div_ceil(*split) <= most_weights && hidden * split <= most_units);
    // Without residency: enough units to hide the latency of the weights' loads.
    let split = resident.unwrap_or_else(|| splits.clone().find(|split| hidden * split >= 256).unwrap_or(1));

    let rows = [8, 4, 2, 1].into_iter().filter(|rows| *rows <= wanted);
    rows.map(|rows| Plan {
        cell,
        hidden,
        rows,
        units: hidden,
        split,
        columns: 1,
        resident: resident.is_some(),
        tiles: 1,
        exchange: false,
        meets: false,
        chunk: depth,
        phase: Phase::Whole,
        mask_steps,
    })
    .flat_map(|plan| share_columns(plan, pass))
    .find(|plan| shared_memory(plan, pass) <= limits.shared_memory)
}

/// The plan with several columns for each unit of the cube, as many as [`ROW_SUMS`] allows, then fewer, down to one.
fn share_columns(plan: Plan, pass: Pass) -> impl Iterator<Item = Plan> {
    let product = product(&plan, pass);
    let fits = move |columns: usize| {
        plan.resident
            && product.outputs * columns <= ROW_SUMS
            && plan.units.is_multiple_of(columns)
            && product.depth.is_multiple_of(plan.split * columns)
    };
    [4, 2, 1].into_iter().filter(move |columns| *columns == 1 || fits(*columns)).map(move |columns| Plan {
        columns,
        split: plan.split * columns,
        ..plan
    })
}

/// The hidden units spread over cubes that run at the same time, if there are enough of them.
fn plan_grid(
    limits: &Limits,
    resident: usize,
    cell: Cell,
    sizes: &Sizes,
    mask_steps: bool,
    pass: Pass,
) -> Option<Plan> {
    if cell.two_phase() {
        return None;
    }
    let hidden = sizes.hidden;
    let weights = cell.gates() * hidden;
    let (most_units, most_weights) = SEVERAL_ROWS;
    let split = weights.div_ceil(most_weights).next_power_of_two();
    let units = (limits.units.min(most_units) / split).min(hidden);
    if units == 0 {
        return None;
    }
    let cubes = hidden.div_ceil(units);
    // A cube that has all hidden units waits for no other.
    let resident = if cubes == 1 { limits.cubes } else { resident };
    let groups = resident / (cubes * cell.directions());
    if groups == 0 {
        return None;
    }
    let group_rows = sizes.batch.div_ceil(groups);
    [4, 2, 1]
        .into_iter()
        .filter(|rows| *rows <= group_rows.next_power_of_two())
        .map(|rows| Plan {
            cell,
            hidden,
            rows,
            units,
            split,
            columns: 1,
            resident: true,
            tiles: group_rows.div_ceil(rows),
            exchange: true,
            meets: true,
            chunk: depth(cell, hidden, pass),
            phase: Phase::Whole,
            mask_steps,
        })
        .flat_map(|plan| share_columns(plan, pass))
        .find(|plan| shared_memory(plan, pass) <= limits.all_shared_memory)
}

/// One launch a step, for anything.
fn plan_steps(limits: &Limits, cell: Cell, sizes: &Sizes, mask_steps: bool, pass: Pass) -> Plan {
    let hidden = sizes.hidden;
    let units = hidden.min(32);
    let split = (256.min(limits.units) / units).max(1).next_power_of_two().min(8);
    let split = if units * split > limits.units { split / 2 } else { split }.max(1);
    let plan = |rows| Plan {
        cell,
        hidden,
        rows,
        units,
        split,
        columns: 1,
        resident: false,
        tiles: 1,
        exchange: true,
        meets: false,
        chunk: depth(cell, hidden, pass).min(256),
        phase: Phase::Whole,
        mask_steps,
    };
    let wanted = sizes.batch.min(8).next_power_of_two();
    let rows = [8, 4, 2].into_iter().filter(|rows| *rows <= wanted);
    rows.map(plan).find(|plan| shared_memory(plan, pass) <= limits.shared_memory).unwrap_or_else(|| plan(1))
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
    4 * (plan.rows * plan.chunk + product(plan, pass).partials())
}

/// The pass's first product.
fn product(plan: &Plan, pass: Pass) -> Product {
    match pass {
        Pass::Forward => plan.forward_product(),
        Pass::Backward => plan.backward_product(),
    }
}

/// The cubes of a plan and their units.
pub(crate) fn grid(plan: &Plan, sizes: &Sizes) -> (CubeCount, CubeDim) {
    let count = CubeCount::Static(
        sizes.hidden.div_ceil(plan.units) as u32,
        sizes.batch.div_ceil(plan.rows * plan.tiles) as u32,
        plan.cell.directions() as u32,
    );
    (count, CubeDim::new_1d(plan.cube_units() as u32))
}
