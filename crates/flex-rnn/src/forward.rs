//! The forward pass: the input's product for a few steps at a time, then these steps.

use std::{mem::MaybeUninit, ops::Range, ptr::null, ptr::null_mut};

use crate::{
    Cell, Inputs, Outputs, Problem,
    buffer::{Buffer, Shared},
    element::Arithmetic,
    kernels::{Gates, Kernels, Step, Store},
    layout::{Blocks, Scratch, any_runs, gates, groups, lengths_from, mask_at, rate, threads_for},
    team::{self, Cost, Team},
    weight::{DIRECT, Weight},
};

/// Rows of the input whose product is made at once: few enough for it to be still near when the steps read it.
const CHUNK: usize = 96;

/// Runs the cell over all steps.
pub(crate) fn run<T: Arithmetic>(
    kernels: &Kernels<T>,
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    outputs: Outputs<'_, T>,
) {
    if problem.steps == 0 || problem.batch == 0 {
        return empty(problem, inputs, outputs);
    }
    let forward = Forward::new(kernels, problem, inputs, &outputs);
    forward.begin();
    let per_step = if forward.halves() { 2 } else { 1 };
    let parts = forward.teams[0].parts.len();
    team::run(forward.teams.len(), parts, problem.steps * per_step, |team, phase, part| {
        forward.phase(team, phase / per_step, phase % per_step, part);
    });
    forward.end(outputs.final_state);
}

/// What remains to return when there is no step or no row.
fn empty<T: Arithmetic>(problem: &Problem, inputs: &Inputs<'_, T>, outputs: Outputs<'_, T>) {
    outputs.output.fill(MaybeUninit::new(T::ZERO));
    if let Some(z_state) = outputs.z_state {
        z_state.fill(MaybeUninit::new(T::ZERO));
    }
    debug_assert_eq!(outputs.final_state.len(), problem.batch * problem.state());
    match inputs.init_state {
        Some(state) => {
            for (to, &from) in outputs.final_state.iter_mut().zip(state) {
                to.write(from);
            }
        }
        None => outputs.final_state.fill(MaybeUninit::new(T::ZERO)),
    }
}

/// The recurrent weight of one direction.
enum Recurrent<T> {
    /// All gates of a block together.
    Whole(Weight<T>),
    /// A GRU without `reset_after`: the update and reset gates, then the output gate.
    Halves(Weight<T>, Weight<T>),
}

/// Where a step finds `x Wᵀ + b`.
#[derive(Clone, Copy)]
enum Projected<T> {
    /// In the source itself, which needs neither product nor bias.
    Source(Shared<T>),
    /// Where the training state goes, whose gates replace it.
    Saved(Shared<T>),
    /// In memory for one chunk of steps.
    Chunk(Shared<T>),
}

struct Direction<T> {
    recurrent: Recurrent<T>,
    input: Option<Weight<T>>,
    /// `[2, N, padded H]`: the state before and after a step, by turns.
    states: Buffer<T>,
    /// The same times the step's mask.
    masked: Option<Buffer<T>>,
    /// `[2, N, padded H]`, without `reset_after`: the update gate, and the masked state times the reset gate.
    between: Option<Buffer<T>>,
    chunk: Option<Buffer<T>>,
}

struct Forward<'a, T> {
    kernels: &'a Kernels<T>,
    problem: &'a Problem,
    inputs: &'a Inputs<'a, T>,
    gates: Gates<T>,
    blocks: Blocks,
    positions: Vec<usize>,
    directions: Vec<Direction<T>>,
    teams: Vec<Team>,
    /// Steps of a chunk.
    chunk: usize,
    output: Shared<T>,
    z_state: Option<Shared<T>>,
}

impl<'a, T: Arithmetic> Forward<'a, T> {
    fn new(
        kernels: &'a Kernels<T>,
        problem: &'a Problem,
        inputs: &'a Inputs<'a, T>,
        outputs: &Outputs<'_, T>,
    ) -> Self {
        let Problem { batch, hidden, features, .. } = *problem;
        let gates_hidden = problem.direction_gates();
        let blocks = Blocks::new(problem, kernels.lanes);
        let positions = problem.positions();
        let width = if inputs.input_weight.is_some() { features + hidden } else { hidden };
        let operations = problem.steps * batch * problem.all_gates() * width;
        let threads = threads_for(operations);
        let reset_before = matches!(problem.cell, Cell::Gru(gru) if !gru.reset_after);
        let granule = gates_hidden.div_ceil(blocks.count) * hidden;
        let teams = Cost {
            directions: problem.directions(),
            batch,
            granules: blocks.count,
            granule,
            granule_bytes: granule * size_of::<T>(),
            meetings: if reset_before { 2 } else { 1 },
            rows: kernels.rows,
            rate: rate(kernels),
        }
        .plan(threads);
        let rows = teams.iter().map(|team| team.rows.len()).max().expect("there is a team");
        let chunk = (CHUNK / rows).clamp(1, problem.steps);

        let parallel = threads > 1;
        let plain = problem.steps * batch <= DIRECT;
        let padded = blocks.padded();
        let needs_chunk =
            outputs.z_state.is_none() && (inputs.input_weight.is_some() || inputs.bias.is_some());
        let vectors = positions.len() * blocks.vectors;
        let directions = (0..problem.directions())
            .map(|direction| {
                let pack = |matrix: &[T], depth: usize, positions: &[usize], vectors: usize| {
                    let matrix = &matrix[direction * gates_hidden * depth..][..gates_hidden * depth];
                    let rows = blocks.rows(positions);
                    Weight::new(matrix, depth, blocks.lanes, vectors, rows, plain, parallel)
                };
                let weight = inputs.recurrent_weight;
                let recurrent = if reset_before {
                    Recurrent::Halves(
                        pack(weight, hidden, &positions[..2], 2),
                        pack(weight, hidden, &positions[2..], 1),
                    )
                } else {
                    Recurrent::Whole(pack(weight, hidden, &positions, vectors))
                };
                Direction {
                    recurrent,
                    input: inputs.input_weight.map(|weight| pack(weight, features, &positions, vectors)),
                    states: Buffer::filled(2 * batch * padded, T::ZERO),
                    masked: inputs.mask.map(|_| Buffer::filled(2 * batch * padded, T::ZERO)),
                    between: reset_before.then(|| Buffer::new(2 * batch * padded)),
                    chunk: needs_chunk.then(|| Buffer::new(chunk * batch * positions.len() * padded)),
                }
            })
            .collect();
        Self {
            kernels,
            problem,
            inputs,
            gates: gates(problem),
            blocks,
            positions,
            directions,
            teams,
            chunk,
            output: Shared::new(outputs.output.as_ptr().cast_mut().cast()),
            z_state: outputs.z_state.as_ref().map(|z_state| Shared::new(z_state.as_ptr().cast_mut().cast())),
        }
    }

    /// Whether a step comes in two halves.
    fn halves(&self) -> bool {
        matches!(self.directions[0].recurrent, Recurrent::Halves(..))
    }

    /// Lays the initial states.
    fn begin(&self) {
        let Problem { batch, hidden, .. } = *self.problem;
        let padded = self.blocks.padded();
        for (index, direction) in self.directions.iter().enumerate() {
            let time = self.problem.step(index, 0);
            for row in 0..batch {
                for unit in 0..hidden {
                    let channel = index * hidden + unit;
                    let state = self
                        .inputs
                        .init_state
                        .map_or(T::ZERO, |state| state[row * self.problem.state() + channel]);
                    // SAFETY: inside the buffers, before any thread runs.
                    unsafe {
                        direction.states.pointer().at(row * padded + unit).write(state);
                        if let Some(masked) = &direction.masked {
                            let mask = *mask_at(self.problem, self.inputs, time, row, channel);
                            masked.pointer().at(row * padded + unit).write(state * mask);
                        }
                    }
                }
            }
        }
    }

    /// Hands the final states out.
    fn end(&self, final_state: &mut [MaybeUninit<T>]) {
        let Problem { batch, hidden, steps, .. } = *self.problem;
        let padded = self.blocks.padded();
        for (index, direction) in self.directions.iter().enumerate() {
            let states = direction.states.pointer().at((steps % 2) * batch * padded);
            for row in 0..batch {
                let to = &mut final_state[row * self.problem.state() + index * hidden..][..hidden];
                for (unit, to) in to.iter_mut().enumerate() {
                    // SAFETY: inside the buffer, after all threads are done.
                    to.write(unsafe { *states.add(row * padded + unit) });
                }
            }
        }
    }

    /// The steps, from the earliest in time on, of the chunk that a direction's `index`-th step belongs to.
    fn chunk_of(&self, direction: usize, index: usize) -> Range<usize> {
        let first = index - index % self.chunk;
        let last = (first + self.chunk).min(self.problem.steps) - 1;
        let (first, last) = (self.problem.step(direction, first), self.problem.step(direction, last));
        first.min(last)..first.max(last) + 1
    }

    fn projected(&self, direction: usize) -> Projected<T> {
        match (&self.directions[direction].chunk, self.z_state) {
            (Some(chunk), _) => Projected::Chunk(chunk.pointer()),
            (None, Some(z_state)) if self.inputs.input_weight.is_some() || self.inputs.bias.is_some() => {
                Projected::Saved(z_state)
            }
            _ => Projected::Source(Shared::of(self.source())),
        }
    }

    fn source(&self) -> &[T] {
        self.inputs.source.expect("the forward pass has a source")
    }

    /// `x Wᵀ + b` of a row's gates, from unit `unit` on, and the distance of its rows.
    fn projected_at(
        &self,
        direction: usize,
        chunk: &Range<usize>,
        time: usize,
        row: usize,
        unit: usize,
    ) -> ([*mut T; 3], usize) {
        let Problem { batch, hidden, .. } = *self.problem;
        let flat = time * batch + row;
        let (base, offset, gate, stride) = match self.projected(direction) {
            Projected::Source(base) | Projected::Saved(base) => {
                let offset = flat * self.problem.all_gates() + direction * self.problem.direction_gates();
                (base, offset, hidden, self.problem.all_gates())
            }
            Projected::Chunk(base) => {
                let padded = self.blocks.padded();
                let stride = self.positions.len() * padded;
                (base, (flat - chunk.start * batch) * stride, padded, stride)
            }
        };
        (self.gate_pointers(base, offset + unit, gate), stride)
    }

    /// A gate's place for each gate of the cell, in the order update, reset, output.
    fn gate_pointers(&self, base: Shared<T>, offset: usize, gate: usize) -> [*mut T; 3] {
        let mut pointers = [null_mut(); 3];
        for (pointer, position) in pointers.iter_mut().zip(&self.positions) {
            *pointer = base.at(offset + position * gate);
        }
        pointers
    }

    fn phase(&self, team: usize, index: usize, half: usize, part: usize) {
        let team = &self.teams[team];
        let blocks = &team.parts[part];
        let chunk = self.chunk_of(team.direction, index);
        if half == 0 && index.is_multiple_of(self.chunk) {
            self.project(team, blocks, &chunk);
        }
        self.step(team, blocks, &chunk, index, half);
    }

    /// The input's product for a chunk of steps, for a team's rows and some blocks.
    fn project(&self, team: &Team, blocks: &Range<usize>, chunk: &Range<usize>) {
        if let Projected::Source(_) = self.projected(team.direction) {
            return;
        }
        let batch = self.problem.batch;
        // Rows of [T·N, I] at the same distance of each other.
        let mut runs = Vec::new();
        if team.rows.len() == batch {
            runs.push((chunk.start, 0, chunk.len() * batch, 1));
        } else if team.rows.len() == 1 {
            runs.push((chunk.start, team.rows.start, chunk.len(), batch));
        } else {
            runs.extend(chunk.clone().map(|time| (time, team.rows.start, team.rows.len(), 1)));
        }
        match &self.directions[team.direction].input {
            Some(weight) => {
                for block in blocks.clone() {
                    for &(time, row, count, distance) in &runs {
                        for (start, rows) in groups(0..count, self.kernels.rows) {
                            let flat = row + start * distance;
                            let (time, row) = (time + flat / batch, flat % batch);
                            self.project_rows(team, weight, block, chunk, (time, row), rows, distance);
                        }
                    }
                }
            }
            None => self.add_bias(team, &self.blocks.range(blocks), chunk),
        }
    }

    fn project_rows(
        &self,
        team: &Team,
        weight: &Weight<T>,
        block: usize,
        chunk: &Range<usize>,
        (time, row): (usize, usize),
        rows: usize,
        distance: usize,
    ) {
        let Problem { batch, features, hidden, .. } = *self.problem;
        let mut scratch = Scratch::new();
        let from = self.source()[(time * batch + row) * features..].as_ptr();
        let unit = self.blocks.unit(block, 0);
        let (mut to, to_row) = self.projected_at(team.direction, chunk, time, row, unit);
        let mut valid = [0; 3];
        let mut bias = [null(); 3];
        for vector in 0..weight.vectors {
            let (gate, offset) = match self.problem.cell {
                Cell::Gru(_) => (vector, 0),
                Cell::SingleGate(_) => (0, vector * self.blocks.lanes),
            };
            to[vector] = to[gate].wrapping_add(offset);
            valid[vector] = self.blocks.valid(block, if offset == 0 { 0 } else { vector });
            if let (Some(values), true) = (self.inputs.bias, valid[vector] > 0) {
                let channel = team.direction * self.problem.direction_gates()
                    + self.positions[gate] * hidden
                    + unit
                    + offset;
                bias[vector] = values[channel..].as_ptr();
            }
        }
        let store = Store {
            rows,
            valid,
            from: scratch.pointer(),
            from_row: weight.width(),
            bias,
            to,
            to_row: to_row * distance,
            accumulate: false,
        };
        // SAFETY: the product reads rows of the source and a panel of the weight, and writes the scratch memory;
        // the store writes this part's units of these rows.
        unsafe {
            weight.multiply(self.kernels, (from, distance * features), rows, (block, 1), scratch.pointer());
            (self.kernels.store)(&store);
        }
    }

    /// The source plus the bias, where there is no input weight.
    fn add_bias(&self, team: &Team, units: &Range<usize>, chunk: &Range<usize>) {
        let bias = self.inputs.bias.expect("without a bias the source is read where it is");
        let source = self.source();
        let all = self.problem.all_gates();
        for time in chunk.clone() {
            for row in team.rows.clone() {
                let (to, _) = self.projected_at(team.direction, chunk, time, row, units.start);
                for (gate, position) in self.positions.iter().enumerate() {
                    let channel = team.direction * self.problem.direction_gates()
                        + position * self.problem.hidden
                        + units.start;
                    let from = &source[(time * self.problem.batch + row) * all + channel..][..units.len()];
                    let bias = &bias[channel..][..units.len()];
                    for (unit, (&value, &bias)) in from.iter().zip(bias).enumerate() {
                        // SAFETY: this part's units of this row.
                        unsafe { to[gate].add(unit).write(value + bias) };
                    }
                }
            }
        }
    }

    /// One step, or half of one, for a team's rows and some blocks.
    fn step(&self, team: &Team, blocks: &Range<usize>, chunk: &Range<usize>, index: usize, half: usize) {
        let batch = self.problem.batch;
        let padded = self.blocks.padded();
        let direction = &self.directions[team.direction];
        let time = self.problem.step(team.direction, index);
        let turn = index % 2 * batch * padded;
        let states = direction.states.pointer();
        let masked = direction.masked.as_ref().map_or(states, Buffer::pointer);
        let (weight, operand) = match &direction.recurrent {
            Recurrent::Whole(weight) => (weight, masked.at(turn)),
            Recurrent::Halves(weight, _) if half == 0 => (weight, masked.at(turn)),
            Recurrent::Halves(_, weight) => {
                let between = direction.between.as_ref().expect("halves have it").pointer();
                (weight, between.at(batch * padded))
            }
        };
        let together = match team.rows.len() {
            1 => 4,
            2 => 2,
            _ => 1,
        };
        let width = weight.width();
        let mut scratch = Scratch::new();
        for (block, count) in groups(blocks.clone(), together) {
            for (row, rows) in groups(team.rows.clone(), self.kernels.rows) {
                if any_runs(self.inputs, time, row..row + rows) {
                    // SAFETY: reads states that the phase before has written, and packed weights.
                    unsafe {
                        weight.multiply(
                            self.kernels,
                            (operand.wrapping_add(row * padded), padded),
                            rows,
                            (block, count),
                            scratch.pointer(),
                        );
                    }
                }
                for offset in 0..count {
                    let from = scratch.pointer().wrapping_add(offset * width);
                    let place = Place { team, chunk, index, half, block: block + offset, row, rows };
                    self.finish(&place, from, count * width);
                }
            }
        }
    }

    /// The gates of one block.
    fn finish(&self, place: &Place<'_>, product: *const T, product_row: usize) {
        let Problem { batch, hidden, .. } = *self.problem;
        let &Place { team, chunk, index, half, block, row, rows } = place;
        let direction = &self.directions[team.direction];
        let padded = self.blocks.padded();
        let time = self.problem.step(team.direction, index);
        let turn = index % 2 * batch * padded;
        let other = (index + 1) % 2 * batch * padded;
        let states = direction.states.pointer();
        // Past the last step there is no mask to take, and no product to come.
        let next = index + 1 < self.problem.steps;
        for vector in 0..self.blocks.vectors {
            let valid = self.blocks.valid(block, vector);
            if valid == 0 {
                continue;
            }
            let unit = self.blocks.unit(block, vector);
            let channel = team.direction * hidden + unit;
            let at = row * padded + unit;
            let (projected, projected_row) = self.projected_at(team.direction, chunk, time, row, unit);
            let saved = match self.z_state {
                Some(z_state) => {
                    let offset = (time * batch + row) * self.problem.all_gates()
                        + team.direction * self.problem.direction_gates()
                        + unit;
                    self.gate_pointers(z_state, offset, hidden)
                }
                None => [null_mut(); 3],
            };
            let masked = direction.masked.as_ref().filter(|_| next);
            let next_time = self.problem.step(team.direction, if next { index + 1 } else { index });
            let between = direction.between.as_ref().map(Buffer::pointer);
            let step = Step {
                rows,
                valid,
                product: product.wrapping_add(vector * self.blocks.lanes),
                product_row,
                projected: projected.map(|pointer| pointer.cast_const()),
                projected_row,
                secondary_bias: self.inputs.secondary_bias.map_or(null(), |bias| bias[channel..].as_ptr()),
                state: states.at(turn + at),
                state_row: padded,
                next_state: states.at(other + at),
                masked: direction.masked.as_ref().map_or(states, Buffer::pointer).at(turn + at),
                update: between.map_or(null_mut(), |between| between.at(at)),
                gated: between.map_or(null_mut(), |between| between.at(batch * padded + at)),
                next_mask: mask_at(self.problem, self.inputs, next_time, row, channel),
                mask_row: self.problem.state(),
                next_masked: masked.map_or(null_mut(), |masked| masked.pointer().at(other + at)),
                output: self.output.at((time * batch + row) * self.problem.state() + channel),
                output_row: self.problem.state(),
                saved,
                saved_row: self.problem.all_gates(),
                lengths: lengths_from(self.inputs, row),
                time,
            };
            let kernel = match (self.problem.cell, half) {
                (Cell::SingleGate(_), _) => self.kernels.single_gate,
                (Cell::Gru(gru), _) if gru.reset_after => self.kernels.gru_after,
                (Cell::Gru(_), 0) => self.kernels.gru_before_gates,
                (Cell::Gru(_), _) => self.kernels.gru_before_output,
            };
            // SAFETY: every pointer is to this vector of these rows, which only this part touches in this phase.
            unsafe { kernel(&step, &self.gates) };
        }
    }
}

/// What `finish` finishes.
struct Place<'a> {
    team: &'a Team,
    chunk: &'a Range<usize>,
    index: usize,
    half: usize,
    block: usize,
    row: usize,
    rows: usize,
}
