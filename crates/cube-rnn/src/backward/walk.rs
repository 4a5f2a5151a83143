//! The recurrence walked back: a cube carries the gradient of its batch rows and hidden units.
//!
//! Iteration `n` multiplies what iteration `n - 1` handed on, adds it to the carried gradient, and takes step
//! `T - 1 - n` apart. One iteration past the last step leaves the initial state's gradient.

use cubecl::prelude::*;

use crate::{
    Activation, Cell, Constant, Gru, Kind,
    activation::{activate, clamp_state, slope},
    factors::{factor_at, load_rows, store_finished, store_loads},
    forward::{
        Moment, Place, chunk_depth, first_row, mask_at, mix, moment, optional, place, runs, time_of,
        walks_backwards,
    },
    plan::{Phase, Plan},
    product::{accumulate, clear, load_weight, share_sums, whole_sum},
    slots::{hand, new_patience, receive},
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
}

/// What cubes and launches tell each other.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct WalkExchange {
    /// `[N, D·H]`, the carried gradient between launches, if there are several.
    pub carried: ComptimeOption<Box<[f32]>>,
    /// `[slots, N, D, depth]`, bits of the f32 factors of the next product, where they pass through global memory;
    /// slots as in the forward pass.
    pub passed: ComptimeOption<Box<[Atomic<u32>]>>,
    /// `[N, D·H]`, what two phases hand on: the output gate's gradient.
    pub handed: ComptimeOption<Box<[f32]>>,
}

/// What a step holds of one result, read before the product that the result waits for.
const VALUES: usize = 6;
const Z: usize = 0;
const R: usize = 1;
const O: usize = 2;
const PREVIOUS: usize = 3;
const GRADIENT: usize = 4;
const CANDIDATE: usize = 5;

/// Reads what the step needs of the results that the unit finishes, `[finished, VALUES]`.
#[cube]
fn load_step<E: Float>(
    values: &mut Array<f32>,
    inputs: &WalkInputs<E>,
    index: usize,
    row0: usize,
    steps: usize,
    batch: usize,
    #[comptime] plan: Plan,
    #[comptime] finished: usize,
) {
    let time = time_of(index, steps, plan.cell);
    #[unroll]
    for q in 0..finished {
        let at = place(row0, batch, q, plan);
        let row = time * batch + at.batch;
        let gate = row * plan.gates() + at.gate;
        let channel = row * plan.state() + at.channel;
        let slot = comptime!(q * VALUES);
        values[comptime!(slot + GRADIENT)] = optional::<E>(&inputs.output_gradient, channel);
        match comptime!(plan.cell.kind) {
            Kind::SingleGate(_) => {
                values[comptime!(slot + Z)] = f32::cast_from(inputs.z_state[gate]);
            }
            Kind::Gru(gru) => {
                let (update, reset) =
                    comptime!((gru.update_gate() * plan.hidden, gru.reset_gate() * plan.hidden));
                values[comptime!(slot + Z)] = f32::cast_from(inputs.z_state[gate + update]);
                values[comptime!(slot + R)] = f32::cast_from(inputs.z_state[gate + reset]);
                values[comptime!(slot + O)] =
                    f32::cast_from(inputs.z_state[gate + comptime!(2 * plan.hidden)]);
                values[comptime!(slot + PREVIOUS)] = previous_state::<E>(
                    &inputs.output,
                    &inputs.init_state,
                    &inputs.lengths,
                    index,
                    at.batch,
                    at.channel,
                    steps,
                    batch,
                    plan,
                );
                values[comptime!(slot + CANDIDATE)] = optional::<E>(&inputs.candidate, channel)
                    + optional::<E>(&inputs.secondary_bias, at.channel);
            }
        }
    }
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
    if starts(lengths, index, row, steps, plan.cell) {
        optional::<E>(init_state, row * plan.state() + channel)
    } else {
        let before = time_of(index - 1, steps, plan.cell);
        optional::<E>(output, (before * batch + row) * plan.state() + channel)
    }
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

/// The gates of a GRU's step and the state before it.
#[derive(CubeType, Clone, Copy)]
struct Gates {
    z: f32,
    r: f32,
    o: f32,
    previous: f32,
}

#[cube]
fn gates_of(values: &Array<f32>, #[comptime] q: usize) -> Gates {
    Gates {
        z: values[comptime!(q * VALUES + Z)],
        r: values[comptime!(q * VALUES + R)],
        o: values[comptime!(q * VALUES + O)],
        previous: values[comptime!(q * VALUES + PREVIOUS)],
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

/// The gradient of the state after a step: the carried one and the output's, where the row runs the step.
#[cube]
fn state_gradient(carried: f32, values: &Array<f32>, running: bool, #[comptime] q: usize) -> f32 {
    select(running, carried + values[comptime!(q * VALUES + GRADIENT)], 0.0)
}

/// Whether the result exists and its row runs the step.
#[cube]
fn takes_part<E: Float>(inputs: &WalkInputs<E>, at: &Place, time: usize) -> bool {
    at.exists && runs(&inputs.lengths, time, at.batch)
}

/// Hands `[finished, products]` values on to the next iteration's product, as the terms
/// `position * H + unit`.
#[cube]
fn pass_on<W: Size>(
    enter: &mut Shared<[Vector<f32, W>]>,
    exchange: &mut WalkExchange,
    values: &Array<f32>,
    after: &Moment,
    row0: usize,
    batch: usize,
    #[comptime] finished: usize,
    #[comptime] plan: Plan,
) {
    let gates = comptime!(plan.passed_gates());
    #[unroll]
    for position in 0..gates {
        let first_term = comptime!(position * plan.hidden);
        if comptime!(plan.exchange) {
            #[comptime]
            match &exchange.passed {
                ComptimeOption::Some(passed) =>
                {
                    #[unroll]
                    for q in 0..finished {
                        let at = place(row0, batch, q, plan);
                        if at.exists {
                            let index = slot_base(after, batch, plan)
                                + passed_at(at.batch, at.unit + first_term, plan);
                            hand(passed, index, values[comptime!(q * gates + position)]);
                        }
                    }
                }
                ComptimeOption::None => {}
            }
        } else {
            store_finished::<W>(enter, values, finished, gates, position, first_term, plan);
        }
    }
}

/// Where a slot of `passed` begins.
#[cube]
fn slot_base(moment: &Moment, batch: usize, #[comptime] plan: Plan) -> usize {
    moment.slot * batch * comptime!(plan.cell.directions() * plan.backward_product().depth)
}

/// Where a term of a row's product is in its slot of `passed`.
#[cube]
fn passed_at(row: usize, term: usize, #[comptime] plan: Plan) -> usize {
    (row * plan.cell.directions() + CUBE_POS_Z as usize) * comptime!(plan.backward_product().depth) + term
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

#[cube]
fn store_gate<E: Float>(
    outputs: &mut WalkOutputs<E>,
    at: &Place,
    row: usize,
    #[comptime] position: usize,
    value: f32,
    #[comptime] plan: Plan,
) {
    if at.exists {
        outputs.gates[row * plan.gates() + at.gate + comptime!(position * plan.hidden)] = E::cast_from(value);
    }
}

/// Walks the iterations `first..last` of `steps + 1`.
#[cube(launch_unchecked)]
pub(crate) fn walk_backward<E: Float, W: Size>(
    inputs: &WalkInputs<E>,
    outputs: &mut WalkOutputs<E>,
    exchange: &mut WalkExchange,
    steps: u32,
    batch: u32,
    first: u32,
    last: u32,
    #[comptime] plan: Plan,
    #[define(E)] _dtype: ElemType,
) {
    let steps = steps as usize;
    let batch = batch as usize;
    let first = first as usize;
    let last = last as usize;
    let product = comptime!(plan.backward_product());
    let candidate = comptime!(plan.backward_candidate_product());
    let direction = CUBE_POS_Z as usize;

    let column = UNIT_POS as usize % plan.lanes();
    let share = UNIT_POS as usize / plan.lanes();
    let unit = CUBE_POS_X as usize * plan.units + column;
    let unit = select(unit < plan.hidden, unit, 0);
    let weight_base = direction * comptime!(plan.direction_gates() * plan.hidden) + unit;
    let candidate_base = weight_base + comptime!(2 * plan.hidden * plan.hidden);

    let mut enter = Shared::<[Vector<f32, W>]>::new_slice(plan.vectors());
    let mut partials = Shared::<[f32]>::new_slice(product.partials());
    let mut sums = Array::<f32>::new(product.sums());
    let resident = load_weight::<E>(&inputs.weight, weight_base, unit, share, product);
    let resident_candidate = load_weight::<E>(
        &inputs.weight,
        candidate_base,
        unit,
        share,
        comptime!(plan.only_in_two_phases(candidate)),
    );

    // Of the state before the step that was last taken apart, as far as it is known: without its product.
    let mut carried = Array::<f32>::new(product.finished());
    let mut values = Array::<f32>::new(comptime!(product.finished() * VALUES));
    // What enters the next product.
    let mut next = Array::<f32>::new(comptime!(product.finished() * plan.passed_gates()));
    let mut next_candidate = Array::<f32>::new(product.finished());
    let mut patience = new_patience();

    let row0 = first_row(0, plan);
    if comptime!(plan.carries()) {
        load_carried::<E>(&mut carried, inputs, exchange, first, row0, batch, plan, product.finished());
    }
    if comptime!(!plan.exchange) {
        let start = moment(first, first, plan);
        load_passed::<W>(&mut enter, exchange, &mut patience, &start, 0, row0, batch, plan);
        sync_cube();
    }

    for iteration in first..last {
        let before = select(iteration == 0, steps - 1, steps - iteration);
        let before = time_of(before, steps, plan.cell);

        let received = moment(iteration, first, plan);
        let handed_on = moment(iteration + 1, first, plan);

        let index = select(iteration < steps, steps - 1 - iteration, 0);
        let time = time_of(index, steps, plan.cell);

        for tile in 0..plan.tiles {
            let row0 = first_row(tile, plan);
            load_step::<E>(&mut values, inputs, index, row0, steps, batch, plan, product.finished());
            if comptime!(!plan.carries()) {
                load_carried::<E>(
                    &mut carried,
                    inputs,
                    exchange,
                    iteration,
                    row0,
                    batch,
                    plan,
                    product.finished(),
                );
            }

            if comptime!(plan.phase != Phase::Second) {
                clear(&mut sums, product);
                if comptime!(plan.exchange) {
                    let mut from = 0usize.runtime();
                    while from < product.depth {
                        load_passed::<W>(
                            &mut enter,
                            exchange,
                            &mut patience,
                            &received,
                            from,
                            row0,
                            batch,
                            plan,
                        );
                        sync_cube();
                        accumulate::<E, W>(
                            &mut sums,
                            &enter,
                            &inputs.weight,
                            &resident,
                            weight_base + from * plan.hidden,
                            share,
                            chunk_depth(from, product.depth, plan.chunk),
                            plan.chunk,
                            product,
                        );
                        if comptime!(plan.chunk < product.depth) {
                            sync_cube();
                        }
                        from += plan.chunk;
                    }
                } else {
                    accumulate::<E, W>(
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

                #[unroll]
                for q in 0..product.finished() {
                    let at = place(row0, batch, q, plan);
                    let sum = whole_sum(&sums, &partials, at.row, at.column, q, 0usize, product);
                    let mask = mask_at::<E>(&inputs.mask, before, at.batch, at.channel, batch, plan);
                    carried[q] += sum * mask;
                    if comptime!(plan.phase == Phase::First) {
                        // The second phase starts from here.
                        store::<f32>(
                            &mut exchange.carried,
                            at.batch * plan.state() + at.channel,
                            carried[q],
                            &at,
                        );
                    }
                    if iteration == steps {
                        store::<E>(
                            &mut outputs.init_state,
                            at.batch * plan.state() + at.channel,
                            carried[q],
                            &at,
                        );
                    }
                }
            }

            // The same for every unit of the device: barriers inside are uniform.
            if iteration < steps {
                #[comptime]
                match plan.cell.kind {
                    Kind::SingleGate(activation) =>
                    {
                        #[unroll]
                        for q in 0..product.finished() {
                            let at = place(row0, batch, q, plan);
                            let row = time * batch + at.batch;
                            let running = takes_part::<E>(inputs, &at, time);
                            let gradient = state_gradient(carried[q], &values, running, q);
                            let y = activate(values[comptime!(q * VALUES + Z)], activation);
                            let dz = clip_gradient(gradient, y, plan.cell.clip) * slope(y, activation);
                            store_gate::<E>(outputs, &at, row, 0usize, dz, plan);
                            next[q] = dz;
                            carried[q] = select(running, 0.0, carried[q]);
                        }
                    }
                    Kind::Gru(gru) => {
                        if comptime!(!plan.cell.two_phase()) {
                            #[unroll]
                            for q in 0..product.finished() {
                                let at = place(row0, batch, q, plan);
                                let row = time * batch + at.batch;
                                let running = takes_part::<E>(inputs, &at, time);
                                let gradient = state_gradient(carried[q], &values, running, q);
                                let gates = gates_of(&values, q);
                                let taken = take_apart(gradient, &gates, gru, plan.cell.clip);
                                let dr = taken.d_o
                                    * values[comptime!(q * VALUES + CANDIDATE)]
                                    * slope(gates.r, comptime!(gru.reset_gate_activation));
                                let dc = taken.d_o * gates.r;
                                let (update, reset) = comptime!((gru.update_gate(), gru.reset_gate()));
                                store_gate::<E>(outputs, &at, row, update, taken.dz, plan);
                                store_gate::<E>(outputs, &at, row, reset, dr, plan);
                                store_gate::<E>(outputs, &at, row, 2usize, taken.d_o, plan);
                                store::<E>(&mut outputs.candidate, row * plan.state() + at.channel, dc, &at);
                                next[comptime!(q * 3 + update)] = taken.dz;
                                next[comptime!(q * 3 + reset)] = dr;
                                next[comptime!(q * 3 + 2)] = dc;
                                carried[q] = select(running, taken.direct, carried[q]);
                            }
                        } else {
                            if comptime!(plan.phase != Phase::Second) {
                                #[unroll]
                                for q in 0..product.finished() {
                                    let at = place(row0, batch, q, plan);
                                    let row = time * batch + at.batch;
                                    let running = takes_part::<E>(inputs, &at, time);
                                    let gradient = state_gradient(carried[q], &values, running, q);
                                    let gates = gates_of(&values, q);
                                    let taken = take_apart(gradient, &gates, gru, plan.cell.clip);
                                    store_gate::<E>(
                                        outputs,
                                        &at,
                                        row,
                                        comptime!(gru.update_gate()),
                                        taken.dz,
                                        plan,
                                    );
                                    store_gate::<E>(outputs, &at, row, 2usize, taken.d_o, plan);
                                    hand_on(exchange, &at, taken.d_o, plan);
                                    next_candidate[q] = taken.d_o;
                                }
                                if comptime!(!plan.exchange) {
                                    let finished = product.finished();
                                    store_finished::<W>(
                                        &mut enter,
                                        &next_candidate,
                                        finished,
                                        1usize,
                                        0usize,
                                        0usize,
                                        plan,
                                    );
                                }
                                sync_cube();
                            }
                            if comptime!(plan.phase != Phase::First) {
                                clear(&mut sums, candidate);
                                #[comptime]
                                match &exchange.handed {
                                    ComptimeOption::Some(handed) => {
                                        let mut from = 0usize.runtime();
                                        while from < plan.hidden {
                                            load_rows::<W>(&mut enter, handed, from, row0, batch, plan);
                                            sync_cube();
                                            accumulate::<E, W>(
                                                &mut sums,
                                                &enter,
                                                &inputs.weight,
                                                &resident_candidate,
                                                candidate_base + from * plan.hidden,
                                                share,
                                                chunk_depth(from, plan.hidden, plan.chunk),
                                                plan.chunk,
                                                candidate,
                                            );
                                            if comptime!(plan.chunk < plan.hidden) {
                                                sync_cube();
                                            }
                                            from += plan.chunk;
                                        }
                                    }
                                    ComptimeOption::None => {
                                        accumulate::<E, W>(
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
                                    let at = place(row0, batch, q, plan);
                                    let row = time * batch + at.batch;
                                    let running = takes_part::<E>(inputs, &at, time);
                                    let gradient = state_gradient(carried[q], &values, running, q);
                                    let gates = gates_of(&values, q);
                                    let taken = take_apart(gradient, &gates, gru, plan.cell.clip);
                                    let sum =
                                        whole_sum(&sums, &partials, at.row, at.column, q, 0usize, candidate);
                                    let mask =
                                        mask_at::<E>(&inputs.mask, time, at.batch, at.channel, batch, plan);
                                    let dr = sum
                                        * gates.previous
                                        * mask
                                        * slope(gates.r, comptime!(gru.reset_gate_activation));
                                    let (update, reset) = comptime!((gru.update_gate(), gru.reset_gate()));
                                    store_gate::<E>(outputs, &at, row, reset, dr, plan);
                                    next[comptime!(q * 2 + update)] = taken.dz;
                                    next[comptime!(q * 2 + reset)] = dr;
                                    let direct = taken.direct + sum * gates.r * mask;
                                    carried[q] = select(running, direct, carried[q]);
                                }
                            }
                        }
                    }
                }
                if comptime!(plan.phase != Phase::First) {
                    let finished = product.finished();
                    pass_on::<W>(&mut enter, exchange, &next, &handed_on, row0, batch, finished, plan);
                }
            }

            if comptime!(!plan.carries() && plan.phase != Phase::First) {
                keep_carried(exchange, &carried, row0, batch, plan, product.finished());
            }
            // The next tile's partial sums, or the next step, come where these were.
            sync_cube();
        }
    }

    if comptime!(plan.carries()) {
        keep_carried(exchange, &carried, row0, batch, plan, product.finished());
    }
    if comptime!(!plan.exchange) {
        keep_passed::<W>(&enter, exchange, &moment(last, first, plan), row0, batch, plan);
    }
}

/// Reads the carried gradient: of the final state at first, then what was kept.
#[cube]
fn load_carried<E: Float>(
    carried: &mut Array<f32>,
    inputs: &WalkInputs<E>,
    exchange: &mut WalkExchange,
    iteration: usize,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
    #[comptime] finished: usize,
) {
    #[unroll]
    for q in 0..finished {
        let at = place(row0, batch, q, plan);
        let index = at.batch * plan.state() + at.channel;
        // The second phase of the first iteration follows the first phase.
        carried[q] = if iteration == 0 && comptime!(plan.phase != Phase::Second) {
            optional::<E>(&inputs.state_gradient, index)
        } else {
            optional::<f32>(&exchange.carried, index)
        };
    }
}

#[cube]
fn keep_carried(
    exchange: &mut WalkExchange,
    carried: &Array<f32>,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
    #[comptime] finished: usize,
) {
    #[unroll]
    for q in 0..finished {
        let at = place(row0, batch, q, plan);
        store::<f32>(&mut exchange.carried, at.batch * plan.state() + at.channel, carried[q], &at);
    }
}

/// Hands the output gate's gradient on to the second phase's launch.
#[cube]
fn hand_on(exchange: &mut WalkExchange, at: &Place, value: f32, #[comptime] plan: Plan) {
    store::<f32>(&mut exchange.handed, at.batch * plan.state() + at.channel, value, at);
}

/// Brings the factors of an iteration's product, from term `from` on, to shared memory: zeros at first.
#[cube]
fn load_passed<W: Size>(
    enter: &mut Shared<[Vector<f32, W>]>,
    exchange: &mut WalkExchange,
    patience: &mut Array<u32>,
    moment: &Moment,
    from: usize,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let depth = comptime!(plan.backward_product().depth);
    let width = comptime!(plan.width());
    let count = comptime!(plan.loads() * width);
    let mut values = Array::<f32>::new(count);
    let mut positions = Array::<usize>::new(count);
    let mut exist = Array::<bool>::new(count);
    let mut first = UNIT_POS as usize;
    while first < plan.vectors() {
        #[unroll]
        for i in 0..count {
            values[i] = 0.0f32;
        }
        #[comptime]
        match &exchange.passed {
            ComptimeOption::Some(passed) => {
                if moment.index > 0 {
                    #[unroll]
                    for i in 0..plan.loads() {
                        #[unroll]
                        for r in 0..width {
                            let position = first + comptime!(i * plan.cube_units());
                            let factor = factor_at(position, r, from, row0, batch, depth, plan);
                            positions[comptime!(i * width + r)] = passed_at(factor.row, factor.term, plan);
                            exist[comptime!(i * width + r)] = factor.exists;
                        }
                    }
                    let base = slot_base(moment, batch, plan);
                    receive(&mut values, passed, base, &positions, &exist, patience, count, plan.meets);
                }
            }
            ComptimeOption::None => {}
        }
        store_loads::<W>(enter, &values, first, plan);
        first += comptime!(plan.loads() * plan.cube_units());
    }
}

/// Keeps the factors of the next iteration's product for the next launch, if there is one.
#[cube]
fn keep_passed<W: Size>(
    enter: &Shared<[Vector<f32, W>]>,
    exchange: &mut WalkExchange,
    moment: &Moment,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let depth = comptime!(plan.backward_product().depth);
    #[comptime]
    match &exchange.passed {
        ComptimeOption::Some(passed) => {
            let mut position = UNIT_POS as usize;
            while position < plan.vectors() {
                let vector = enter[position];
                #[unroll]
                for r in 0..plan.width() {
                    let factor = factor_at(position, r, 0, row0, batch, depth, plan);
                    if factor.exists {
                        let place = passed_at(factor.row, factor.term, plan);
                        hand(passed, slot_base(moment, batch, plan) + place, vector.extract(r));
                    }
                }
                position += plan.cube_units();
            }
        }
        ComptimeOption::None => {}
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
