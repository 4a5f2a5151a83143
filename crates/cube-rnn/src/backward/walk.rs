//! The recurrence walked back: a cube carries the gradient of its batch rows and hidden units.
//!
//! Iteration `n` multiplies what iteration `n - 1` handed on, adds it to the carried gradient, and takes step
//! `T - 1 - n` apart. One iteration past the last step leaves the initial state's gradient.

use cubecl::prelude::*;

use crate::{
    Activation, Cell, Constant, Gru, Kind,
    activation::{activate, clamp_state, slope},
    forward::{Place, mask_at, mix, optional, place, runs, time_of, walks_backwards},
    plan::{Phase, Plan},
    product::{Product, accumulate, clear, load_weight, share_sums, whole_sum},
};

/// What the kernel reads. `GH` and `D·GH` as in [`Plan`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct WalkInputs<E: Float> {
    /// `[T, N, D·GH]`
    pub z_state: Box<[E]>,
    /// `[D, GH, H]`
    pub weight: Box<[E]>,
    /// `[T, N, D·H]`, of a GRU.
    pub output: ComptimeOption<Box<[E]>>,
    /// `[T, N, D·H]`, the output gate's recurrent product without its bias, with `reset_after`.
    pub candidate: ComptimeOption<Box<[E]>>,
    /// `[D·H]`
    pub secondary_bias: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]`
    pub init_state: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]` or `[T, N, D·H]`
    pub mask: ComptimeOption<Box<[E]>>,
    /// `[N]`
    pub lengths: ComptimeOption<Box<[i32]>>,
    /// `[T, N, D·H]`
    pub output_gradient: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]`
    pub state_gradient: ComptimeOption<Box<[E]>>,
}

/// What the kernel writes.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct WalkOutputs<E: Float> {
    /// `[T, N, D·GH]`, of the gates' pre-activations.
    pub gates: Box<[E]>,
    /// `[T, N, D·H]`, of the output gate's recurrent product, with `reset_after`.
    pub candidate: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]`, written by the last iteration.
    pub init_state: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]`, the carried gradient between launches, if there are several.
    pub carried: ComptimeOption<Box<[f32]>>,
    /// `[2, N, D, depth]`, what enters the next product, between launches that exchange it.
    pub passed: ComptimeOption<Box<[f32]>>,
    /// `[N, D·H]`, what two phases hand on: the output gate's gradient.
    pub handed: ComptimeOption<Box<[f32]>>,
}

/// A step of a row as the backward pass meets it.
#[derive(CubeType, Clone, Copy)]
struct Step {
    /// Order in which the forward pass met it.
    index: usize,
    /// Time index.
    time: usize,
    /// Whether the row runs it.
    running: bool,
    /// Row of `[T, N, _]`.
    row: usize,
}

#[cube]
fn step_at<E: Float>(
    inputs: &WalkInputs<E>,
    at: &Place,
    index: usize,
    steps: usize,
    batch: usize,
    #[comptime] cell: Cell,
) -> Step {
    let time = time_of(index, steps, cell);
    Step { index, time, running: runs(&inputs.lengths, time, at.batch), row: time * batch + at.batch }
}

/// The state before a GRU's step.
#[cube]
pub(crate) fn previous_state<E: Float>(
    output: &ComptimeOption<Box<[E]>>,
    init_state: &ComptimeOption<Box<[E]>>,
    lengths: &ComptimeOption<Box<[i32]>>,
    index: usize,
    row: usize,
    channel: usize,
    steps: usize,
    batch: usize,
    #[comptime] plan: Plan,
) -> f32 {
    let mut value = 0.0f32;
    if starts(lengths, index, row, steps, plan.cell) {
        value = optional::<E>(init_state, row * plan.state() + channel);
    } else {
        let before = time_of(index - 1, steps, plan.cell);
        value = optional::<E>(output, (before * batch + row) * plan.state() + channel);
    }
    value
}

/// Whether the row starts with this step: walking backwards, each at its own last one.
#[cube]
pub(crate) fn starts(
    lengths: &ComptimeOption<Box<[i32]>>,
    index: usize,
    row: usize,
    steps: usize,
    #[comptime] cell: Cell,
) -> bool {
    #[comptime]
    match lengths {
        ComptimeOption::Some(lengths) => {
            let last = time_of(index, steps, cell) as i32 + 1 == lengths[row];
            index == 0 || (walks_backwards(cell) && last)
        }
        ComptimeOption::None => index == 0,
    }
}

/// The gradient where the state before clamping is inside the range, else zero.
#[cube]
fn clip_gradient(gradient: f32, unclipped: f32, #[comptime] clip: Option<Constant>) -> f32 {
    match comptime!(clip) {
        Some(clip) => select(unclipped.abs() <= comptime!(clip.get() as f32), gradient, 0.0),
        None => gradient,
    }
}

/// The gates of a step and the state before it.
#[derive(CubeType, Clone, Copy)]
struct Gates {
    z: f32,
    r: f32,
    o: f32,
    previous: f32,
    masked: f32,
    mask: f32,
}

#[cube]
fn read_gates<E: Float>(
    inputs: &WalkInputs<E>,
    at: &Place,
    step: &Step,
    steps: usize,
    batch: usize,
    #[comptime] gru: Gru,
    #[comptime] plan: Plan,
) -> Gates {
    let direction = CUBE_POS_Z as usize;
    let base = step.row * plan.gates() + direction * plan.direction_gates() + at.unit;
    let channel = direction * plan.hidden + at.unit;
    let previous = previous_state::<E>(
        &inputs.output,
        &inputs.init_state,
        &inputs.lengths,
        step.index,
        at.batch,
        channel,
        steps,
        batch,
        plan,
    );
    let mask = mask_at::<E>(&inputs.mask, step.time, at.batch, channel, batch, plan);
    Gates {
        z: f32::cast_from(inputs.z_state[base + comptime!(gru.update_gate() * plan.hidden)]),
        r: f32::cast_from(inputs.z_state[base + comptime!(gru.reset_gate() * plan.hidden)]),
        o: f32::cast_from(inputs.z_state[base + comptime!(2 * plan.hidden)]),
        previous,
        masked: previous * mask,
        mask,
    }
}

/// What a step makes of the state's gradient.
#[derive(CubeType, Clone, Copy)]
struct Taken {
    /// Of the update gate's pre-activation.
    dz: f32,
    /// Of the output gate's pre-activation.
    d_o: f32,
    /// Of the state before, past the gates.
    direct: f32,
}

#[cube]
fn take_apart(
    gradient: f32,
    gates: &Gates,
    #[comptime] gru: Gru,
    #[comptime] clip: Option<Constant>,
) -> Taken {
    let gradient = clip_gradient(gradient, mix(gates.z, gates.previous, gates.o, gru), clip);
    let difference = gates.previous - gates.o;
    let keeps = if comptime!(gru.flip_z) { 1.0 - gates.z } else { gates.z };
    let takes = if comptime!(gru.flip_z) { gates.z } else { 1.0 - gates.z };
    let difference = if comptime!(gru.flip_z) { -difference } else { difference };
    Taken {
        dz: gradient * difference * slope(gates.z, comptime!(gru.update_gate_activation)),
        d_o: gradient * takes * slope(gates.o, comptime!(gru.output_gate_activation)),
        direct: gradient * keeps,
    }
}

/// The gradient of the state after a step: the carried one and the output's.
#[cube]
fn state_gradient<E: Float>(
    inputs: &WalkInputs<E>,
    carried: f32,
    step: &Step,
    at: &Place,
    #[comptime] plan: Plan,
) -> f32 {
    let channel = CUBE_POS_Z as usize * plan.hidden + at.unit;
    let gradient = carried + optional::<E>(&inputs.output_gradient, step.row * plan.state() + channel);
    select(step.running && at.exists, gradient, 0.0)
}

/// Hands a value on to the next product, as its term `position * H + unit`.
#[cube]
fn pass<E: Float>(
    enter: &mut Shared<[f32]>,
    outputs: &mut WalkOutputs<E>,
    at: &Place,
    slot: usize,
    #[comptime] position: usize,
    value: f32,
    #[comptime] plan: Plan,
) {
    let depth = comptime!(plan.backward_product().depth);
    let term = comptime!(position * plan.hidden) + at.unit;
    if at.exists {
        #[comptime]
        match &mut outputs.passed {
            ComptimeOption::Some(passed) => {
                let row = slot + at.batch * comptime!(plan.cell.directions()) + CUBE_POS_Z as usize;
                passed[row * depth + term] = value;
            }
            ComptimeOption::None => {
                enter[at.row * plan.chunk + term] = value;
            }
        }
    }
}

#[cube]
fn store<E: Float>(values: &mut ComptimeOption<Box<[E]>>, index: usize, value: f32, at: &Place) {
    #[comptime]
    match values {
        ComptimeOption::Some(values) => {
            if at.exists {
                values[index] = E::cast_from(value);
            }
        }
        ComptimeOption::None => {}
    }
}

/// Walks the iterations `first..last` of `steps + 1`.
#[cube(launch_unchecked)]
pub(crate) fn walk_backward<E: Float>(
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
    let product = comptime!(plan.backward_product());
    let candidate = comptime!(plan.backward_candidate_product());
    let channels = comptime!(plan.state());
    let direction = CUBE_POS_Z as usize;
    let channel_base = direction * plan.hidden;
    let gate_base = direction * plan.direction_gates();

    let column = UNIT_POS as usize % plan.units;
    let share = UNIT_POS as usize / plan.units;
    let unit = CUBE_POS_X as usize * plan.units + column;
    let unit = select(unit < plan.hidden, unit, 0);
    let weight_base = direction * comptime!(plan.direction_gates() * plan.hidden) + unit;
    let candidate_base = weight_base + comptime!(2 * plan.hidden * plan.hidden);

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

    // Of the state before the step that was last taken apart, as far as it is known: without its product.
    let mut carried = Array::<f32>::new(product.finished());
    #[unroll]
    for q in 0..product.finished() {
        let at = place(batch, q, plan);
        let index = at.batch * channels + channel_base + at.unit;
        let mut value = 0.0f32;
        if first == 0 && comptime!(plan.phase != Phase::Second) {
            value = optional::<E>(&inputs.state_gradient, index);
        } else {
            value = optional::<f32>(&outputs.carried, index);
        }
        carried[q] = value;
    }
    if comptime!(!plan.exchange) {
        // Nothing enters the first product; between launches, what was passed on is in global memory.
        #[comptime]
        match &outputs.passed {
            ComptimeOption::Some(passed) => {
                load_passed(&mut enter, passed, first as usize, 0, first == 0, batch, plan);
            }
            ComptimeOption::None => {
                fill(&mut enter, plan);
            }
        }
        sync_cube();
    }

    for iteration in first as usize..last as usize {
        let next_slot = ((iteration + 1) % 2) * batch * comptime!(plan.cell.directions());
        if comptime!(plan.phase != Phase::Second) {
            clear(&mut sums, product);
            if comptime!(plan.exchange) {
                #[comptime]
                match &outputs.passed {
                    ComptimeOption::Some(passed) => {
                        let mut from = 0usize.runtime();
                        while from < product.depth {
                            load_passed(&mut enter, passed, iteration, from, iteration == 0, batch, plan);
                            sync_cube();
                            let depth =
                                select(from + plan.chunk < product.depth, plan.chunk, product.depth - from);
                            accumulate::<E>(
                                &mut sums,
                                &enter,
                                &inputs.weight,
                                &resident,
                                weight_base + from * plan.hidden,
                                share,
                                depth,
                                plan.chunk,
                                product,
                            );
                            sync_cube();
                            from += plan.chunk;
                        }
                    }
                    ComptimeOption::None => {}
                }
            } else {
                accumulate::<E>(
                    &mut sums,
                    &enter,
                    &inputs.weight,
                    &resident,
                    weight_base,
                    share,
                    product.depth,
                    plan.chunk,
                    product,
                );
            }
            share_sums(&sums, &mut partials, column, share, product);

            let before = select(iteration == 0, 0, steps - iteration);
            let before = time_of(select(before < steps, before, steps - 1), steps, plan.cell);
            #[unroll]
            for q in 0..product.finished() {
                let at = place(batch, q, plan);
                let channel = channel_base + at.unit;
                let sum = whole_sum(&sums, &partials, at.row, at.column, q, 0usize, product);
                let mask = mask_at::<E>(&inputs.mask, before, at.batch, channel, batch, plan);
                carried[q] += sum * mask;
            }
            if comptime!(plan.exchange && plan.cell.two_phase()) {
                // The second phase starts from here.
                keep_carried::<E>(outputs, &carried, batch, plan, product);
            }
        }

        if iteration == steps {
            #[unroll]
            for q in 0..product.finished() {
                let at = place(batch, q, plan);
                let index = at.batch * channels + channel_base + at.unit;
                store::<E>(&mut outputs.init_state, index, carried[q], &at);
            }
        }
        // A step that every unit of the device agrees on: barriers inside are uniform.
        if iteration < steps {
            let index = steps - 1 - iteration;
            #[comptime]
            match plan.cell.kind {
                Kind::SingleGate(activation) =>
                {
                    #[unroll]
                    for q in 0..product.finished() {
                        let at = place(batch, q, plan);
                        let step = step_at::<E>(inputs, &at, index, steps, batch, plan.cell);
                        let position = step.row * channels + channel_base + at.unit;
                        let gradient = state_gradient::<E>(inputs, carried[q], &step, &at, plan);
                        let y = activate(f32::cast_from(inputs.z_state[position]), activation);
                        let dz = clip_gradient(gradient, y, plan.cell.clip) * slope(y, activation);
                        if at.exists {
                            outputs.gates[position] = E::cast_from(dz);
                        }
                        pass::<E>(&mut enter, outputs, &at, next_slot, 0usize, dz, plan);
                        carried[q] = select(step.running, 0.0, carried[q]);
                    }
                }
                Kind::Gru(gru) => {
                    if comptime!(!plan.cell.two_phase()) {
                        #[unroll]
                        for q in 0..product.finished() {
                            let at = place(batch, q, plan);
                            let step = step_at::<E>(inputs, &at, index, steps, batch, plan.cell);
                            let gradient = state_gradient::<E>(inputs, carried[q], &step, &at, plan);
                            let gates = read_gates::<E>(inputs, &at, &step, steps, batch, gru, plan);
                            let taken = take_apart(gradient, &gates, gru, plan.cell.clip);
                            let position = step.row * channels + channel_base + at.unit;
                            let product_value = optional::<E>(&inputs.candidate, position)
                                + optional::<E>(&inputs.secondary_bias, channel_base + at.unit);
                            let dr = taken.d_o
                                * product_value
                                * slope(gates.r, comptime!(gru.reset_gate_activation));
                            let dc = taken.d_o * gates.r;
                            let base = step.row * plan.gates() + gate_base + at.unit;
                            if at.exists {
                                outputs.gates[base + comptime!(gru.update_gate() * plan.hidden)] =
                                    E::cast_from(taken.dz);
                                outputs.gates[base + comptime!(gru.reset_gate() * plan.hidden)] =
                                    E::cast_from(dr);
                                outputs.gates[base + comptime!(2 * plan.hidden)] = E::cast_from(taken.d_o);
                            }
                            store::<E>(&mut outputs.candidate, position, dc, &at);
                            pass::<E>(
                                &mut enter,
                                outputs,
                                &at,
                                next_slot,
                                comptime!(gru.update_gate()),
                                taken.dz,
                                plan,
                            );
                            pass::<E>(
                                &mut enter,
                                outputs,
                                &at,
                                next_slot,
                                comptime!(gru.reset_gate()),
                                dr,
                                plan,
                            );
                            pass::<E>(&mut enter, outputs, &at, next_slot, 2usize, dc, plan);
                            carried[q] = select(step.running, taken.direct, carried[q]);
                        }
                    } else {
                        if comptime!(plan.phase != Phase::Second) {
                            #[unroll]
                            for q in 0..product.finished() {
                                let at = place(batch, q, plan);
                                let step = step_at::<E>(inputs, &at, index, steps, batch, plan.cell);
                                let gradient = state_gradient::<E>(inputs, carried[q], &step, &at, plan);
                                let gates = read_gates::<E>(inputs, &at, &step, steps, batch, gru, plan);
                                let taken = take_apart(gradient, &gates, gru, plan.cell.clip);
                                let base = step.row * plan.gates() + gate_base + at.unit;
                                if at.exists {
                                    outputs.gates[base + comptime!(gru.update_gate() * plan.hidden)] =
                                        E::cast_from(taken.dz);
                                    outputs.gates[base + comptime!(2 * plan.hidden)] =
                                        E::cast_from(taken.d_o);
                                    #[comptime]
                                    match &mut outputs.handed {
                                        ComptimeOption::Some(handed) => {
                                            handed[at.batch * channels + channel_base + at.unit] = taken.d_o;
                                        }
                                        ComptimeOption::None => {
                                            enter[at.row * plan.chunk + at.unit] = taken.d_o;
                                        }
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
                                        load_handed(&mut enter, handed, from, batch, plan);
                                        sync_cube();
                                        let depth = select(
                                            from + plan.chunk < plan.hidden,
                                            plan.chunk,
                                            plan.hidden - from,
                                        );
                                        accumulate::<E>(
                                            &mut sums,
                                            &enter,
                                            &inputs.weight,
                                            &resident_candidate,
                                            candidate_base + from * plan.hidden,
                                            share,
                                            depth,
                                            plan.chunk,
                                            candidate,
                                        );
                                        sync_cube();
                                        from += plan.chunk;
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
                            #[unroll]
                            for q in 0..product.finished() {
                                let at = place(batch, q, plan);
                                let step = step_at::<E>(inputs, &at, index, steps, batch, plan.cell);
                                let gradient = state_gradient::<E>(inputs, carried[q], &step, &at, plan);
                                let gates = read_gates::<E>(inputs, &at, &step, steps, batch, gru, plan);
                                let taken = take_apart(gradient, &gates, gru, plan.cell.clip);
                                let sum =
                                    whole_sum(&sums, &partials, at.row, at.column, q, 0usize, candidate);
                                let dr =
                                    sum * gates.masked * slope(gates.r, comptime!(gru.reset_gate_activation));
                                let base = step.row * plan.gates() + gate_base + at.unit;
                                if at.exists {
                                    outputs.gates[base + comptime!(gru.reset_gate() * plan.hidden)] =
                                        E::cast_from(dr);
                                }
                                pass::<E>(
                                    &mut enter,
                                    outputs,
                                    &at,
                                    next_slot,
                                    comptime!(gru.update_gate()),
                                    taken.dz,
                                    plan,
                                );
                                pass::<E>(
                                    &mut enter,
                                    outputs,
                                    &at,
                                    next_slot,
                                    comptime!(gru.reset_gate()),
                                    dr,
                                    plan,
                                );
                                let direct = taken.direct + sum * gates.r * gates.mask;
                                carried[q] = select(step.running, direct, carried[q]);
                            }
                        }
                    }
                }
            }
            if comptime!(!plan.exchange) {
                sync_cube();
            }
        }
    }

    if comptime!(plan.phase != Phase::First) {
        keep_carried::<E>(outputs, &carried, batch, plan, product);
        if comptime!(!plan.exchange) {
            #[comptime]
            match &mut outputs.passed {
                ComptimeOption::Some(passed) => {
                    keep_passed(&enter, passed, last as usize, batch, plan);
                }
                ComptimeOption::None => {}
            }
        }
    }
}

/// The candidate's product where it has one of its own.
fn candidate_or_none(plan: &Plan, candidate: Product) -> Product {
    Product { resident: candidate.resident && plan.cell.two_phase(), ..candidate }
}

#[cube]
fn keep_carried<E: Float>(
    outputs: &mut WalkOutputs<E>,
    carried: &Array<f32>,
    batch: usize,
    #[comptime] plan: Plan,
    #[comptime] product: Product,
) {
    #[unroll]
    for q in 0..product.finished() {
        let at = place(batch, q, plan);
        let index = at.batch * plan.state() + CUBE_POS_Z as usize * plan.hidden + at.unit;
        store::<f32>(&mut outputs.carried, index, carried[q], &at);
    }
}

/// Zeroes what enters the first product.
#[cube]
fn fill(enter: &mut Shared<[f32]>, #[comptime] plan: Plan) {
    let mut position = UNIT_POS as usize;
    while position < comptime!(plan.rows * plan.chunk) {
        enter[position] = 0.0;
        position += comptime!(plan.units * plan.split);
    }
}

/// Brings what was passed on, from term `from` on, to shared memory.
#[cube]
fn load_passed(
    enter: &mut Shared<[f32]>,
    passed: &[f32],
    iteration: usize,
    from: usize,
    nothing: bool,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let depth = comptime!(plan.backward_product().depth);
    let slot = (iteration % 2) * batch;
    let mut position = UNIT_POS as usize;
    while position < comptime!(plan.rows * plan.chunk) {
        let row = CUBE_POS_Y as usize * plan.rows + position / plan.chunk;
        let term = from + position % plan.chunk;
        let mut value = 0.0f32;
        if row < batch && term < depth && !nothing {
            let row = (slot + row) * comptime!(plan.cell.directions()) + CUBE_POS_Z as usize;
            value = passed[row * depth + term];
        }
        enter[position] = value;
        position += comptime!(plan.units * plan.split);
    }
}

/// Keeps what enters the next product for the next launch.
#[cube]
fn keep_passed(
    enter: &Shared<[f32]>,
    passed: &mut [f32],
    iteration: usize,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let depth = comptime!(plan.backward_product().depth);
    let slot = (iteration % 2) * batch;
    let mut position = UNIT_POS as usize;
    while position < comptime!(plan.rows * plan.chunk) {
        let row = CUBE_POS_Y as usize * plan.rows + position / plan.chunk;
        let term = position % plan.chunk;
        if row < batch && term < depth {
            let row = (slot + row) * comptime!(plan.cell.directions()) + CUBE_POS_Z as usize;
            passed[row * depth + term] = enter[position];
        }
        position += comptime!(plan.units * plan.split);
    }
}

/// Brings the output gate's gradient, from hidden unit `from` on, to shared memory.
#[cube]
fn load_handed(enter: &mut Shared<[f32]>, handed: &[f32], from: usize, batch: usize, #[comptime] plan: Plan) {
    let mut position = UNIT_POS as usize;
    while position < comptime!(plan.rows * plan.chunk) {
        let row = CUBE_POS_Y as usize * plan.rows + position / plan.chunk;
        let unit = from + position % plan.chunk;
        let mut value = 0.0f32;
        if row < batch && unit < plan.hidden {
            value = handed[row * plan.state() + CUBE_POS_Z as usize * plan.hidden + unit];
        }
        enter[position] = value;
        position += comptime!(plan.units * plan.split);
    }
}

/// The state of a single-gate RNN after a step.
#[cube]
pub(crate) fn state_of_z(
    z: f32,
    #[comptime] activation: Activation,
    #[comptime] clip: Option<Constant>,
) -> f32 {
    clamp_state(activate(z, activation), clip)
}
