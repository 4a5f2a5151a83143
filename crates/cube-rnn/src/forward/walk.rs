//! The recurrence: a cube walks its batch rows and hidden units through the steps.

use cubecl::prelude::*;

use crate::{
    Cell, Gru, Kind,
    activation::{activate, clamp_state},
    factors::{factor_at, load_rows, store_finished, store_loads},
    plan::{Phase, Plan},
    product::{Product, accumulate, clear, load_weight, share_sums, whole_sum},
    slots::{hand, new_patience, receive},
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
}

/// What cubes and launches tell each other.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct WalkExchange {
    /// `[slots, N, D·H]`, bits of the f32 states: of cubes that meet, the state before the launch and after each
    /// of its steps; else after an even number of steps and after an odd one.
    pub state: ComptimeOption<Box<[Atomic<u32>]>>,
    /// `[2, N, D·H]`, what two phases hand on: the reset state and the update gate.
    pub handed: ComptimeOption<Box<[f32]>>,
}

/// Where a unit's result belongs.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Place {
    /// Row of the tile.
    pub row: usize,
    /// Hidden unit of the cube.
    pub column: usize,
    /// Batch row.
    pub batch: usize,
    /// Hidden unit.
    pub unit: usize,
    /// Channel of the state.
    pub channel: usize,
    /// Channel of the first gate.
    pub gate: usize,
    /// Whether row and unit exist.
    pub exists: bool,
}

/// The `q`-th result that the unit finishes of the tile whose first batch row is `row0`.
#[cube]
pub(crate) fn place(row0: usize, batch: usize, #[comptime] q: usize, #[comptime] plan: Plan) -> Place {
    let together = comptime!(plan.together());
    let index = comptime!(q / together * plan.cube_units()) + UNIT_POS as usize;
    let row = index / plan.units * together + comptime!(q % together);
    let column = index % plan.units;
    let unit = CUBE_POS_X as usize * plan.units + column;
    let exists = row < plan.rows && row0 + row < batch && unit < plan.hidden;
    let direction = CUBE_POS_Z as usize;
    let safe_unit = select(exists, unit, 0);
    // Units without a result read partial sums all the same, which end with the last row.
    let all_busy = comptime!((plan.rows / together * plan.units).is_multiple_of(plan.cube_units()));
    let safe_row = if comptime!(all_busy) { row } else { select(row < plan.rows, row, 0) };
    Place {
        row: safe_row,
        column,
        batch: select(exists, row0 + row, 0),
        unit: safe_unit,
        channel: direction * plan.hidden + safe_unit,
        gate: direction * plan.direction_gates() + safe_unit,
        exists,
    }
}

/// The first batch row of a tile.
#[cube]
pub(crate) fn first_row(tile: usize, #[comptime] plan: Plan) -> usize {
    (CUBE_POS_Y as usize * plan.tiles + tile) * plan.rows
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

/// The update gate's mix of the previous state and the candidate.
#[cube]
pub(crate) fn mix(z: f32, h: f32, o: f32, #[comptime] gru: Gru) -> f32 {
    if comptime!(gru.flip_z) { (1.0 - z) * h + z * o } else { z * h + (1.0 - z) * o }
}

/// Walks the steps `first..last` of `steps`.
#[cube(launch_unchecked)]
pub(crate) fn walk_forward<E: Float, W: Size>(
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
    let product = comptime!(plan.forward_product());
    let candidate = comptime!(plan.candidate_product());
    let direction = CUBE_POS_Z as usize;

    // As one of `split` units that share columns of the product.
    let column = UNIT_POS as usize % plan.lanes();
    let share = UNIT_POS as usize / plan.lanes();
    let unit = CUBE_POS_X as usize * plan.units + column;
    let unit = select(unit < plan.hidden, unit, 0);
    let weight_base = direction * comptime!(plan.hidden * plan.direction_gates()) + unit;
    let candidate_base = weight_base + comptime!(2 * plan.hidden);

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

    // Of the results that this unit finishes: the state, the update gate and the input product.
    let mut held = Array::<f32>::new(product.finished());
    let mut updates = Array::<f32>::new(product.finished());
    let mut projected = Array::<f32>::new(comptime!(product.finished() * plan.cell.gates()));
    // What enters the next product.
    let mut next = Array::<f32>::new(product.finished());
    let mut patience = new_patience();

    let row0 = first_row(0, plan);
    let start = moment(first, first, plan);
    if comptime!(plan.carries()) {
        #[unroll]
        for q in 0..product.finished() {
            let at = place(row0, batch, q, plan);
            held[q] = own_state::<E>(inputs, exchange, &start, &at, batch, plan);
        }
    }
    if comptime!(!plan.exchange) {
        let time = time_of(first, steps, plan.cell);
        load_state::<E, W>(&mut enter, inputs, exchange, &mut patience, &start, 0, time, row0, batch, plan);
        sync_cube();
    }

    for index in first..last {
        let before = moment(index, first, plan);
        let after = moment(index + 1, first, plan);
        let time = time_of(index, steps, plan.cell);
        let next_time = time_of(select(index + 1 < steps, index + 1, index), steps, plan.cell);

        for tile in 0..plan.tiles {
            let row0 = first_row(tile, plan);
            // Asked for before the product, needed after it.
            load_projected::<E>(&mut projected, inputs, time, row0, batch, plan, product);
            if comptime!(!plan.carries()) {
                #[unroll]
                for q in 0..product.finished() {
                    let at = place(row0, batch, q, plan);
                    held[q] = own_state::<E>(inputs, exchange, &before, &at, batch, plan);
                }
            }

            if comptime!(plan.phase != Phase::Second) {
                clear(&mut sums, product);
                if comptime!(plan.exchange) {
                    let mut from = 0usize.runtime();
                    while from < plan.hidden {
                        load_state::<E, W>(
                            &mut enter,
                            inputs,
                            exchange,
                            &mut patience,
                            &before,
                            from,
                            time,
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
                            weight_base + from * plan.direction_gates(),
                            share,
                            chunk_depth(from, plan.hidden, plan.chunk),
                            plan.chunk,
                            product,
                        );
                        if comptime!(plan.chunk < plan.hidden) {
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
                        let at = place(row0, batch, q, plan);
                        let sum = whole_sum(&sums, &partials, at.row, at.column, q, 0usize, product);
                        let z = projected[q] + sum;
                        let h = clamp_state(activate(z, activation), plan.cell.clip);
                        write_gate::<E>(inputs, outputs, &at, time, batch, 0usize, z, plan);
                        held[q] = write_state::<E>(inputs, outputs, &at, time, batch, h, held[q], plan);
                    }
                }
                Kind::Gru(gru) => {
                    if comptime!(plan.cell.two_phase()) {
                        if comptime!(plan.phase != Phase::Second) {
                            // The reset state takes the place of the state.
                            #[unroll]
                            for q in 0..product.finished() {
                                let at = place(row0, batch, q, plan);
                                let z = outer_gate(&sums, &partials, &projected, &at, q, gru, true, product);
                                let r = outer_gate(&sums, &partials, &projected, &at, q, gru, false, product);
                                let mask =
                                    mask_at::<E>(&inputs.mask, time, at.batch, at.channel, batch, plan);
                                updates[q] = z;
                                write_gate::<E>(
                                    inputs,
                                    outputs,
                                    &at,
                                    time,
                                    batch,
                                    comptime!(gru.update_gate()),
                                    z,
                                    plan,
                                );
                                write_gate::<E>(
                                    inputs,
                                    outputs,
                                    &at,
                                    time,
                                    batch,
                                    comptime!(gru.reset_gate()),
                                    r,
                                    plan,
                                );
                                next[q] = select(at.exists, held[q] * mask * r, 0.0);
                                hand_on(exchange, &at, batch, next[q], z, plan);
                            }
                            if comptime!(!plan.exchange) {
                                store_finished::<W>(
                                    &mut enter,
                                    &next,
                                    product.finished(),
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
                                            candidate_base + from * plan.direction_gates(),
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
                                    #[unroll]
                                    for q in 0..product.finished() {
                                        let at = place(row0, batch, q, plan);
                                        updates[q] = handed[(batch + at.batch) * plan.state() + at.channel];
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
                        }
                    }
                    if comptime!(plan.phase != Phase::First) {
                        #[unroll]
                        for q in 0..product.finished() {
                            let at = place(row0, batch, q, plan);
                            let c = if comptime!(plan.cell.two_phase()) {
                                whole_sum(&sums, &partials, at.row, at.column, q, 0usize, candidate)
                            } else {
                                let z = outer_gate(&sums, &partials, &projected, &at, q, gru, true, product);
                                let r = outer_gate(&sums, &partials, &projected, &at, q, gru, false, product);
                                let sum = whole_sum(&sums, &partials, at.row, at.column, q, 2usize, product);
                                updates[q] = z;
                                write_gate::<E>(
                                    inputs,
                                    outputs,
                                    &at,
                                    time,
                                    batch,
                                    comptime!(gru.update_gate()),
                                    z,
                                    plan,
                                );
                                write_gate::<E>(
                                    inputs,
                                    outputs,
                                    &at,
                                    time,
                                    batch,
                                    comptime!(gru.reset_gate()),
                                    r,
                                    plan,
                                );
                                (sum + optional::<E>(&inputs.secondary_bias, at.channel)) * r
                            };
                            let x = projected[comptime!(q * 3 + 2)];
                            let o = activate(x + c, comptime!(gru.output_gate_activation));
                            let h = clamp_state(mix(updates[q], held[q], o, gru), plan.cell.clip);
                            write_gate::<E>(inputs, outputs, &at, time, batch, 2usize, o, plan);
                            held[q] = write_state::<E>(inputs, outputs, &at, time, batch, h, held[q], plan);
                        }
                    }
                }
            }

            if comptime!(plan.phase != Phase::First) {
                #[unroll]
                for q in 0..product.finished() {
                    let at = place(row0, batch, q, plan);
                    if comptime!(plan.exchange) {
                        hand_state(exchange, &after, &at, batch, held[q], plan);
                        if index + 1 == steps {
                            write_final_state::<E>(outputs, &at, held[q], plan);
                        }
                    } else {
                        let mask = mask_at::<E>(&inputs.mask, next_time, at.batch, at.channel, batch, plan);
                        next[q] = select(at.exists, held[q] * mask, 0.0);
                    }
                }
                if comptime!(!plan.exchange) {
                    store_finished::<W>(&mut enter, &next, product.finished(), 1usize, 0usize, 0usize, plan);
                }
            }
            // The next tile's partial sums, or the next step, come where these were.
            sync_cube();
        }
    }

    if comptime!(!plan.exchange) {
        #[unroll]
        for q in 0..product.finished() {
            let at = place(row0, batch, q, plan);
            hand_state(exchange, &moment(last, first, plan), &at, batch, held[q], plan);
            if last == steps {
                write_final_state::<E>(outputs, &at, held[q], plan);
            }
        }
    }
}

/// Terms of a product's part that starts at `from`.
#[cube]
pub(crate) fn chunk_depth(from: usize, #[comptime] depth: usize, #[comptime] chunk: usize) -> usize {
    if comptime!(chunk >= depth) {
        depth.runtime()
    } else {
        select(from + chunk < depth, chunk, depth - from)
    }
}

/// The update or the reset gate's value.
#[cube]
fn outer_gate(
    sums: &Array<f32>,
    partials: &Shared<[f32]>,
    projected: &Array<f32>,
    at: &Place,
    #[comptime] q: usize,
    #[comptime] gru: Gru,
    #[comptime] update: bool,
    #[comptime] product: Product,
) -> f32 {
    let position = comptime!(if update { gru.update_gate() } else { gru.reset_gate() });
    let activation = comptime!(if update { gru.update_gate_activation } else { gru.reset_gate_activation });
    let sum = whole_sum(sums, partials, at.row, at.column, q, position, product);
    activate(projected[comptime!(q * 3 + position)] + sum, activation)
}

/// Reads the input product and the bias of the results that the unit finishes.
#[cube]
fn load_projected<E: Float>(
    projected: &mut Array<f32>,
    inputs: &WalkInputs<E>,
    time: usize,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
    #[comptime] product: Product,
) {
    let gates = comptime!(plan.cell.gates());
    #[unroll]
    for q in 0..product.finished() {
        let at = place(row0, batch, q, plan);
        let base = (time * batch + at.batch) * plan.gates() + at.gate;
        #[unroll]
        for g in 0..gates {
            let offset = comptime!(g * plan.hidden);
            projected[comptime!(q * gates + g)] = f32::cast_from(inputs.projected[base + offset])
                + optional::<E>(&inputs.bias, at.gate + offset);
        }
    }
}

/// Writes a gate to the training state, if there is one.
#[cube]
fn write_gate<E: Float>(
    inputs: &WalkInputs<E>,
    outputs: &mut WalkOutputs<E>,
    at: &Place,
    time: usize,
    batch: usize,
    #[comptime] position: usize,
    value: f32,
    #[comptime] plan: Plan,
) {
    #[comptime]
    match &mut outputs.z_state {
        ComptimeOption::Some(z_state) => {
            if at.exists {
                let index =
                    (time * batch + at.batch) * plan.gates() + at.gate + comptime!(position * plan.hidden);
                z_state[index] = E::cast_from(select(runs(&inputs.lengths, time, at.batch), value, 0.0));
            }
        }
        ComptimeOption::None => {}
    }
}

/// Writes a step's output and returns the state after it.
#[cube]
fn write_state<E: Float>(
    inputs: &WalkInputs<E>,
    outputs: &mut WalkOutputs<E>,
    at: &Place,
    time: usize,
    batch: usize,
    next: f32,
    held: f32,
    #[comptime] plan: Plan,
) -> f32 {
    let running = runs(&inputs.lengths, time, at.batch);
    if at.exists {
        let index = (time * batch + at.batch) * plan.state() + at.channel;
        outputs.output[index] = E::cast_from(select(running, next, 0.0));
    }
    select(running, next, held)
}

#[cube]
fn write_final_state<E: Float>(outputs: &mut WalkOutputs<E>, at: &Place, value: f32, #[comptime] plan: Plan) {
    if at.exists {
        outputs.final_state[at.batch * plan.state() + at.channel] = E::cast_from(value);
    }
}

/// Hands the reset state on to the second product's launch, and the update gate past it.
#[cube]
fn hand_on(
    exchange: &mut WalkExchange,
    at: &Place,
    batch: usize,
    reset: f32,
    update: f32,
    #[comptime] plan: Plan,
) {
    #[comptime]
    match &mut exchange.handed {
        ComptimeOption::Some(handed) => {
            if at.exists {
                handed[at.batch * plan.state() + at.channel] = reset;
                handed[(batch + at.batch) * plan.state() + at.channel] = update;
            }
        }
        ComptimeOption::None => {}
    }
}

/// A step, and the slot with the state before it.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Moment {
    /// Steps before it.
    pub index: usize,
    /// Slot of what was handed on just before.
    pub slot: usize,
}

/// The moment before the `index`-th step of a launch that begins with step `first`.
#[cube]
pub(crate) fn moment(index: usize, first: usize, #[comptime] plan: Plan) -> Moment {
    Moment { index, slot: if comptime!(plan.meets) { index - first } else { index % 2 } }
}

/// The state of a moment that this unit itself has handed on.
#[cube]
fn own_state<E: Float>(
    inputs: &WalkInputs<E>,
    exchange: &mut WalkExchange,
    moment: &Moment,
    at: &Place,
    batch: usize,
    #[comptime] plan: Plan,
) -> f32 {
    let position = at.batch * plan.state() + at.channel;
    if moment.index == 0 {
        optional::<E>(&inputs.init_state, position)
    } else {
        #[comptime]
        match &exchange.state {
            ComptimeOption::Some(state) => {
                f32::reinterpret(state[moment.slot * batch * plan.state() + position].load())
            }
            ComptimeOption::None => 0.0f32.runtime(),
        }
    }
}

/// Hands the state of a moment on to other cubes and launches, if there are any.
#[cube]
fn hand_state(
    exchange: &mut WalkExchange,
    moment: &Moment,
    at: &Place,
    batch: usize,
    value: f32,
    #[comptime] plan: Plan,
) {
    #[comptime]
    match &exchange.state {
        ComptimeOption::Some(state) => {
            if at.exists {
                hand(state, (moment.slot * batch + at.batch) * plan.state() + at.channel, value);
            }
        }
        ComptimeOption::None => {}
    }
}

/// Brings the masked states of the tile's rows, from hidden unit `from` on, to shared memory.
#[cube]
fn load_state<E: Float, W: Size>(
    enter: &mut Shared<[Vector<f32, W>]>,
    inputs: &WalkInputs<E>,
    exchange: &mut WalkExchange,
    patience: &mut Array<u32>,
    moment: &Moment,
    from: usize,
    time: usize,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let width = comptime!(plan.width());
    let count = comptime!(plan.loads() * width);
    let mut values = Array::<f32>::new(count);
    let mut positions = Array::<usize>::new(count);
    let mut exist = Array::<bool>::new(count);
    let mut first = UNIT_POS as usize;
    while first < plan.vectors() {
        #[unroll]
        for i in 0..plan.loads() {
            #[unroll]
            for r in 0..width {
                let position = first + comptime!(i * plan.cube_units());
                let factor = factor_at(position, r, from, row0, batch, plan.hidden, plan);
                let channel = CUBE_POS_Z as usize * plan.hidden + factor.term;
                positions[comptime!(i * width + r)] = factor.row * plan.state() + channel;
                exist[comptime!(i * width + r)] = factor.exists;
            }
        }
        states_at::<E>(
            &mut values,
            inputs,
            exchange,
            patience,
            moment,
            &positions,
            &exist,
            batch,
            count,
            plan,
        );
        #[unroll]
        for i in 0..plan.loads() {
            #[unroll]
            for r in 0..width {
                let position = first + comptime!(i * plan.cube_units());
                let factor = factor_at(position, r, from, row0, batch, plan.hidden, plan);
                let channel = CUBE_POS_Z as usize * plan.hidden + factor.term;
                let mask = mask_at::<E>(&inputs.mask, time, factor.row, channel, batch, plan);
                let value = values[comptime!(i * width + r)] * mask;
                values[comptime!(i * width + r)] = select(factor.exists, value, 0.0);
            }
        }
        store_loads::<W>(enter, &values, first, plan);
        first += comptime!(plan.loads() * plan.cube_units());
    }
}

/// The states of a moment at `positions` of `[N, D·H]`, zero where they don't exist.
#[cube]
fn states_at<E: Float>(
    values: &mut Array<f32>,
    inputs: &WalkInputs<E>,
    exchange: &mut WalkExchange,
    patience: &mut Array<u32>,
    moment: &Moment,
    positions: &Array<usize>,
    exist: &Array<bool>,
    batch: usize,
    #[comptime] count: usize,
    #[comptime] plan: Plan,
) {
    if moment.index == 0 {
        #[unroll]
        for i in 0..count {
            values[i] = select(exist[i], optional::<E>(&inputs.init_state, positions[i]), 0.0);
        }
    } else {
        #[comptime]
        match &exchange.state {
            ComptimeOption::Some(state) => {
                let base = moment.slot * batch * plan.state();
                receive(values, state, base, positions, exist, patience, count, plan.meets);
            }
            ComptimeOption::None =>
            {
                #[unroll]
                for i in 0..count {
                    values[i] = 0.0f32;
                }
            }
        }
    }
}
