//! The recurrence: a cube walks its batch rows and hidden units through the steps.

use cubecl::prelude::*;

use crate::{
    Cell, Gru, Kind,
    activation::{activate, clamp_state},
    plan::{Phase, Plan},
    product::{Product, accumulate, clear, load_weight, share_sums, whole_sum},
};

/// What the kernel reads. `GH` and `D·GH` as in [`Plan`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct WalkInputs<E: Float> {
    /// `[T, N, D·GH]`, the input product of all steps.
    pub projected: Box<[E]>,
    /// `[D, H, GH]`, the recurrent weight with its terms as rows.
    pub weight: Box<[E]>,
    /// `[D·GH]`
    pub bias: ComptimeOption<Box<[E]>>,
    /// `[D·H]`
    pub secondary_bias: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]`
    pub init_state: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]` or `[T, N, D·H]`
    pub mask: ComptimeOption<Box<[E]>>,
    /// `[N]`
    pub lengths: ComptimeOption<Box<[i32]>>,
}

/// What the kernel writes.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct WalkOutputs<E: Float> {
    /// `[T, N, D·H]`
    pub output: Box<[E]>,
    /// `[N, D·H]`, written with the last step.
    pub final_state: Box<[E]>,
    /// `[T, N, D·GH]`
    pub z_state: ComptimeOption<Box<[E]>>,
    /// `[2, N, D·H]`, the state between launches, if there are several: after an even number of steps first,
    /// after an odd one second.
    pub state: ComptimeOption<Box<[f32]>>,
    /// `[2, N, D·H]`, what two phases hand on: the reset state and the update gate.
    pub handed: ComptimeOption<Box<[f32]>>,
}

/// Where a unit's result belongs.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Place {
    /// Row of the cube.
    pub row: usize,
    /// Hidden unit of the cube.
    pub column: usize,
    /// Batch row.
    pub batch: usize,
    /// Hidden unit.
    pub unit: usize,
    /// Whether both exist.
    pub exists: bool,
}

/// The `q`-th result that the unit finishes.
#[cube]
pub(crate) fn place(batch: usize, #[comptime] q: usize, #[comptime] plan: Plan) -> Place {
    let units = comptime!(plan.units);
    let index = comptime!(q * plan.units * plan.split) + UNIT_POS as usize;
    let row = index / units;
    let column = index % units;
    let batch_row = CUBE_POS_Y as usize * plan.rows + row;
    let unit = CUBE_POS_X as usize * units + column;
    let exists = row < plan.rows && batch_row < batch && unit < plan.hidden;
    Place { row, column, batch: select(exists, batch_row, 0), unit: select(exists, unit, 0), exists }
}

/// Whether the cube's direction walks from the last step to the first.
#[cube]
pub(crate) fn walks_backwards(#[comptime] cell: Cell) -> bool {
    if comptime!(cell.bidirectional) { CUBE_POS_Z == 1 } else { comptime!(cell.reverse).runtime() }
}

/// The time index of the `index`-th step that the direction walks.
#[cube]
pub(crate) fn time_of(index: usize, steps: usize, #[comptime] cell: Cell) -> usize {
    select(walks_backwards(cell), steps - 1 - index, index)
}

/// The mask's value, one without a mask.
#[cube]
pub(crate) fn mask_at<E: Float>(
    mask: &ComptimeOption<Box<[E]>>,
    time: usize,
    row: usize,
    channel: usize,
    batch: usize,
    #[comptime] plan: Plan,
) -> f32 {
    #[comptime]
    match mask {
        ComptimeOption::Some(mask) => {
            let row = if comptime!(plan.mask_steps) { time * batch + row } else { row };
            f32::cast_from(mask[row * plan.state() + channel])
        }
        ComptimeOption::None => 1.0f32.runtime(),
    }
}

/// Whether the row runs the step at this time.
#[cube]
pub(crate) fn runs(lengths: &ComptimeOption<Box<[i32]>>, time: usize, row: usize) -> bool {
    #[comptime]
    match lengths {
        ComptimeOption::Some(lengths) => (time as i32) < lengths[row],
        ComptimeOption::None => true.runtime(),
    }
}

/// The value of what may be absent, then zero.
#[cube]
pub(crate) fn optional<E: Float>(values: &ComptimeOption<Box<[E]>>, index: usize) -> f32 {
    #[comptime]
    match values {
        ComptimeOption::Some(values) => f32::cast_from(values[index]),
        ComptimeOption::None => 0.0f32.runtime(),
    }
}

/// Walks the steps `first..last` of `steps`.
#[cube(launch_unchecked)]
pub(crate) fn walk_forward<E: Float>(
    inputs: &WalkInputs<E>,
    outputs: &mut WalkOutputs<E>,
    steps: u32,
    batch: u32,
    first: u32,
    last: u32,
    #[comptime] plan: Plan,
    #[define(E)] _dtype: ElemType,
) {
    let steps = steps as usize;
    let batch = batch as usize;
    let product = comptime!(plan.forward_product());
    let candidate = comptime!(plan.candidate_product());
    let channels = comptime!(plan.state());
    let direction = CUBE_POS_Z as usize;
    let channel_base = direction * plan.hidden;

    // As one of `split` units that share a column of the product.
    let column = UNIT_POS as usize % plan.units;
    let share = UNIT_POS as usize / plan.units;
    let unit = CUBE_POS_X as usize * plan.units + column;
    let unit = select(unit < plan.hidden, unit, 0);
    let weight_base = direction * comptime!(plan.hidden * plan.direction_gates()) + unit;
    let candidate_base = weight_base + comptime!(2 * plan.hidden);

    let mut enter = Shared::<[f32]>::new_slice(comptime!(plan.rows * plan.chunk));
    let mut partials = Shared::<[f32]>::new_slice(product.partials());
    let mut sums = Array::<f32>::new(product.sums());
    let resident = load_weight::<E>(&inputs.weight, weight_base, share, product);
    let resident_candidate = load_weight::<E>(
        &inputs.weight,
        candidate_base,
        share,
        comptime!(candidate_or_none(&plan, candidate)),
    );

    // The states that this unit finishes, and the update gates between two phases.
    let mut held = Array::<f32>::new(product.finished());
    let mut updates = Array::<f32>::new(product.finished());
    #[unroll]
    for q in 0..product.finished() {
        let at = place(batch, q, plan);
        let index = at.batch * channels + channel_base + at.unit;
        held[q] = state_before::<E>(inputs, &outputs.state, first as usize, index, batch, plan);
    }
    if comptime!(!plan.exchange) {
        let time = time_of(first as usize, steps, plan.cell);
        load_state::<E>(&mut enter, inputs, &outputs.state, first as usize, 0, time, batch, plan);
        sync_cube();
    }

    for index in first as usize..last as usize {
        let time = time_of(index, steps, plan.cell);
        let next = select(index + 1 < steps, index + 1, index);
        let next_time = time_of(next, steps, plan.cell);

        if comptime!(plan.phase != Phase::Second) {
            clear(&mut sums, product);
            if comptime!(plan.exchange) {
                let mut from = 0usize.runtime();
                while from < plan.hidden {
                    load_state::<E>(&mut enter, inputs, &outputs.state, index, from, time, batch, plan);
                    sync_cube();
                    let depth = select(from + plan.chunk < plan.hidden, plan.chunk, plan.hidden - from);
                    let base = weight_base + from * plan.direction_gates();
                    accumulate::<E>(
                        &mut sums,
                        &enter,
                        &inputs.weight,
                        &resident,
                        base,
                        share,
                        depth,
                        plan.chunk,
                        product,
                    );
                    sync_cube();
                    from += plan.chunk;
                }
            } else {
                accumulate::<E>(
                    &mut sums,
                    &enter,
                    &inputs.weight,
                    &resident,
                    weight_base,
                    share,
                    plan.hidden,
                    plan.chunk,
                    product,
                );
            }
            share_sums(&sums, &mut partials, column, share, product);
        }

        #[comptime]
        match plan.cell.kind {
            Kind::SingleGate(activation) =>
            {
                #[unroll]
                for q in 0..product.finished() {
                    let at = place(batch, q, plan);
                    let channel = channel_base + at.unit;
                    let sum = whole_sum(&sums, &partials, at.row, at.column, q, 0usize, product);
                    let row = time * batch + at.batch;
                    let x = f32::cast_from(inputs.projected[row * channels + channel])
                        + optional::<E>(&inputs.bias, channel);
                    let z = x + sum;
                    let h = clamp_state(activate(z, activation), plan.cell.clip);
                    let running = runs(&inputs.lengths, time, at.batch);
                    if at.exists {
                        #[comptime]
                        match &mut outputs.z_state {
                            ComptimeOption::Some(z_state) => {
                                z_state[row * channels + channel] = E::cast_from(select(running, z, 0.0));
                            }
                            ComptimeOption::None => {}
                        }
                        outputs.output[row * channels + channel] = E::cast_from(select(running, h, 0.0));
                    }
                    held[q] = select(running, h, held[q]);
                }
            }
            Kind::Gru(gru) => {
                let gate_base = direction * plan.direction_gates();
                let gates = comptime!(plan.gates());
                if comptime!(plan.cell.two_phase()) {
                    if comptime!(plan.phase != Phase::Second) {
                        // The reset state takes the place of the state in shared memory.
                        #[unroll]
                        for q in 0..product.finished() {
                            let at = place(batch, q, plan);
                            let row = time * batch + at.batch;
                            let base = row * gates + gate_base + at.unit;
                            let z = gate::<E>(
                                inputs,
                                base,
                                &at,
                                gate_base,
                                &sums,
                                &partials,
                                q,
                                comptime!(gru.update_gate()),
                                comptime!(gru.update_gate_activation),
                                plan,
                                product,
                            );
                            let r = gate::<E>(
                                inputs,
                                base,
                                &at,
                                gate_base,
                                &sums,
                                &partials,
                                q,
                                comptime!(gru.reset_gate()),
                                comptime!(gru.reset_gate_activation),
                                plan,
                                product,
                            );
                            let channel = channel_base + at.unit;
                            let mask = mask_at::<E>(&inputs.mask, time, at.batch, channel, batch, plan);
                            let reset = held[q] * mask * r;
                            updates[q] = z;
                            let running = runs(&inputs.lengths, time, at.batch);
                            if at.exists {
                                #[comptime]
                                match &mut outputs.z_state {
                                    ComptimeOption::Some(z_state) => {
                                        z_state[base + comptime!(gru.update_gate() * plan.hidden)] =
                                            E::cast_from(select(running, z, 0.0));
                                        z_state[base + comptime!(gru.reset_gate() * plan.hidden)] =
                                            E::cast_from(select(running, r, 0.0));
                                    }
                                    ComptimeOption::None => {}
                                }
                                #[comptime]
                                match &mut outputs.handed {
                                    ComptimeOption::Some(handed) => {
                                        handed[at.batch * channels + channel] = reset;
                                        handed[(batch + at.batch) * channels + channel] = z;
                                    }
                                    ComptimeOption::None => {
                                        enter[at.row * plan.chunk + at.unit] = reset;
                                    }
                                }
                            } else if comptime!(!plan.exchange) {
                                // A row past the batch: finite, and read by nobody else.
                                if at.row < plan.rows && at.column < plan.units {
                                    enter[at.row * plan.chunk + at.column] = 0.0;
                                }
                            }
                        }
                        sync_cube();
                    }
                    if comptime!(plan.phase != Phase::First) {
                        clear(&mut sums, candidate);
                        #[comptime]
                        match &outputs.handed {
                            ComptimeOption::Some(handed) => {
                                let mut from = 0usize.runtime();
                                while from < plan.hidden {
                                    load_rows(&mut enter, handed, from, batch, plan);
                                    sync_cube();
                                    let depth = select(
                                        from + plan.chunk < plan.hidden,
                                        plan.chunk,
                                        plan.hidden - from,
                                    );
                                    let base = candidate_base + from * plan.direction_gates();
                                    accumulate::<E>(
                                        &mut sums,
                                        &enter,
                                        &inputs.weight,
                                        &resident_candidate,
                                        base,
                                        share,
                                        depth,
                                        plan.chunk,
                                        candidate,
                                    );
                                    sync_cube();
                                    from += plan.chunk;
                                }
                                #[unroll]
                                for q in 0..product.finished() {
                                    let at = place(batch, q, plan);
                                    updates[q] =
                                        handed[(batch + at.batch) * channels + channel_base + at.unit];
                                }
                            }
                            ComptimeOption::None => {
                                accumulate::<E>(
                                    &mut sums,
                                    &enter,
                                    &inputs.weight,
                                    &resident_candidate,
                                    candidate_base,
                                    share,
                                    plan.hidden,
                                    plan.chunk,
                                    candidate,
                                );
                            }
                        }
                        share_sums(&sums, &mut partials, column, share, candidate);
                    }
                }
                if comptime!(plan.phase != Phase::First) {
                    #[unroll]
                    for q in 0..product.finished() {
                        let at = place(batch, q, plan);
                        let channel = channel_base + at.unit;
                        let row = time * batch + at.batch;
                        let base = row * gates + gate_base + at.unit;
                        let position = comptime!(2 * plan.hidden);
                        let x = f32::cast_from(inputs.projected[base + position])
                            + optional::<E>(&inputs.bias, gate_base + at.unit + position);
                        let running = runs(&inputs.lengths, time, at.batch);

                        let c = if comptime!(plan.cell.two_phase()) {
                            whole_sum(&sums, &partials, at.row, at.column, q, 0usize, candidate)
                        } else {
                            let z = gate::<E>(
                                inputs,
                                base,
                                &at,
                                gate_base,
                                &sums,
                                &partials,
                                q,
                                comptime!(gru.update_gate()),
                                comptime!(gru.update_gate_activation),
                                plan,
                                product,
                            );
                            let r = gate::<E>(
                                inputs,
                                base,
                                &at,
                                gate_base,
                                &sums,
                                &partials,
                                q,
                                comptime!(gru.reset_gate()),
                                comptime!(gru.reset_gate_activation),
                                plan,
                                product,
                            );
                            let sum = whole_sum(&sums, &partials, at.row, at.column, q, 2usize, product);
                            updates[q] = z;
                            if at.exists {
                                #[comptime]
                                match &mut outputs.z_state {
                                    ComptimeOption::Some(z_state) => {
                                        z_state[base + comptime!(gru.update_gate() * plan.hidden)] =
                                            E::cast_from(select(running, z, 0.0));
                                        z_state[base + comptime!(gru.reset_gate() * plan.hidden)] =
                                            E::cast_from(select(running, r, 0.0));
                                    }
                                    ComptimeOption::None => {}
                                }
                            }
                            (sum + optional::<E>(&inputs.secondary_bias, channel)) * r
                        };
                        let z = updates[q];
                        let o = activate(x + c, comptime!(gru.output_gate_activation));
                        let h = clamp_state(mix(z, held[q], o, gru), plan.cell.clip);
                        if at.exists {
                            #[comptime]
                            match &mut outputs.z_state {
                                ComptimeOption::Some(z_state) => {
                                    z_state[base + position] = E::cast_from(select(running, o, 0.0));
                                }
                                ComptimeOption::None => {}
                            }
                            outputs.output[row * channels + channel] = E::cast_from(select(running, h, 0.0));
                        }
                        held[q] = select(running, h, held[q]);
                    }
                }
            }
        }

        if comptime!(plan.phase != Phase::First) {
            #[unroll]
            for q in 0..product.finished() {
                let at = place(batch, q, plan);
                let channel = channel_base + at.unit;
                if at.exists {
                    if comptime!(plan.exchange) {
                        keep_state::<E>(
                            outputs,
                            index + 1,
                            at.batch * channels + channel,
                            batch,
                            held[q],
                            plan,
                        );
                    } else {
                        let mask = mask_at::<E>(&inputs.mask, next_time, at.batch, channel, batch, plan);
                        enter[at.row * plan.chunk + at.unit] = held[q] * mask;
                    }
                }
            }
            if comptime!(!plan.exchange) {
                sync_cube();
            }
        }
    }

    if comptime!(plan.phase != Phase::First) {
        #[unroll]
        for q in 0..product.finished() {
            let at = place(batch, q, plan);
            let index = at.batch * channels + channel_base + at.unit;
            if at.exists {
                if comptime!(!plan.exchange) {
                    keep_state::<E>(outputs, last as usize, index, batch, held[q], plan);
                }
                if last as usize == steps {
                    outputs.final_state[index] = E::cast_from(held[q]);
                }
            }
        }
    }
}

/// The candidate's product where it has one of its own.
fn candidate_or_none(plan: &Plan, candidate: Product) -> Product {
    Product { resident: candidate.resident && plan.cell.two_phase(), ..candidate }
}

/// One gate's value.
#[cube]
fn gate<E: Float>(
    inputs: &WalkInputs<E>,
    base: usize,
    at: &Place,
    gate_base: usize,
    sums: &Array<f32>,
    partials: &Shared<[f32]>,
    #[comptime] q: usize,
    #[comptime] position: usize,
    #[comptime] activation: crate::Activation,
    #[comptime] plan: Plan,
    #[comptime] product: Product,
) -> f32 {
    let offset = comptime!(position * plan.hidden);
    let sum = whole_sum(sums, partials, at.row, at.column, q, position, product);
    let x = f32::cast_from(inputs.projected[base + offset])
        + optional::<E>(&inputs.bias, gate_base + at.unit + offset);
    activate(x + sum, activation)
}

/// The update gate's mix of the previous state and the candidate.
#[cube]
pub(crate) fn mix(z: f32, h: f32, o: f32, #[comptime] gru: Gru) -> f32 {
    if comptime!(gru.flip_z) { (1.0 - z) * h + z * o } else { z * h + (1.0 - z) * o }
}

/// The state before the `index`-th step.
#[cube]
fn state_before<E: Float>(
    inputs: &WalkInputs<E>,
    state: &ComptimeOption<Box<[f32]>>,
    index: usize,
    channel: usize,
    batch: usize,
    #[comptime] plan: Plan,
) -> f32 {
    let mut value = 0.0f32;
    if index == 0 {
        value = optional::<E>(&inputs.init_state, channel);
    } else {
        #[comptime]
        match state {
            ComptimeOption::Some(state) => {
                value = state[(index % 2) * batch * plan.state() + channel];
            }
            ComptimeOption::None => {}
        }
    }
    value
}

/// Writes the state after `index` steps for another launch.
#[cube]
fn keep_state<E: Float>(
    outputs: &mut WalkOutputs<E>,
    index: usize,
    channel: usize,
    batch: usize,
    value: f32,
    #[comptime] plan: Plan,
) {
    #[comptime]
    match &mut outputs.state {
        ComptimeOption::Some(state) => {
            state[(index % 2) * batch * plan.state() + channel] = value;
        }
        ComptimeOption::None => {}
    }
}

/// Brings the masked states of the cube's rows, from hidden unit `from` on, to shared memory.
#[cube]
fn load_state<E: Float>(
    enter: &mut Shared<[f32]>,
    inputs: &WalkInputs<E>,
    state: &ComptimeOption<Box<[f32]>>,
    index: usize,
    from: usize,
    time: usize,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let total = comptime!(plan.rows * plan.chunk);
    let mut position = UNIT_POS as usize;
    while position < total {
        let row = CUBE_POS_Y as usize * plan.rows + position / plan.chunk;
        let unit = from + position % plan.chunk;
        let channel = CUBE_POS_Z as usize * plan.hidden + unit;
        let mut value = 0.0f32;
        if row < batch && unit < plan.hidden {
            value = state_before::<E>(inputs, state, index, row * plan.state() + channel, batch, plan)
                * mask_at::<E>(&inputs.mask, time, row, channel, batch, plan);
        }
        enter[position] = value;
        position += comptime!(plan.units * plan.split);
    }
}

/// Brings `[N, D·H]` of the cube's rows, from hidden unit `from` on, to shared memory.
#[cube]
fn load_rows(enter: &mut Shared<[f32]>, values: &[f32], from: usize, batch: usize, #[comptime] plan: Plan) {
    let total = comptime!(plan.rows * plan.chunk);
    let mut index = UNIT_POS as usize;
    while index < total {
        let row = CUBE_POS_Y as usize * plan.rows + index / plan.chunk;
        let unit = from + index % plan.chunk;
        let mut value = 0.0f32;
        if row < batch && unit < plan.hidden {
            value = values[row * plan.state() + CUBE_POS_Z as usize * plan.hidden + unit];
        }
        enter[index] = value;
        index += comptime!(plan.units * plan.split);
    }
}
