//! The backward pass: a chunk of steps walked back, then the products over all rows of the chunk.
//!
//! The walk leaves the gradients of the gates' pre-activations in blocks, `[block, row, gate, lane]`, which is
//! what every product reads: as left operand for the state and the source, as right operand for the weights.

use std::{mem::MaybeUninit, ops::Range, ptr::null, ptr::null_mut};

use crate::{
    Cell, Gradients, Inputs, Problem, Saved,
    buffer::{Buffer, Shared},
    element::Arithmetic,
    kernels::{
        ColumnSums, Gates, GruGradient, Kernels, Product, ResetGradient, SingleGateGradient, States, Store,
        Through,
    },
    layout::{Blocks, Scratch, any_runs, gates, groups, lengths_from, mask_at, rate, threads_for},
    pack::{Columns, Panels, Rows, each, lanes_from_columns, lanes_from_rows},
    team::{self, Cost, Team},
};

/// Rows of `[T·N]` that are walked back before their products are made.
const CHUNK: usize = 256;
/// Vectors of a panel whose lanes are hidden units or input features.
const PANEL: usize = 2;

/// Computes the wanted gradients.
pub(crate) fn run<T: Arithmetic>(
    kernels: &Kernels<T>,
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    mut gradients: Gradients<'_, T>,
) {
    if problem.steps == 0 || problem.batch == 0 {
        return empty(saved, gradients);
    }
    for direction in 0..problem.directions() {
        Backward::new(kernels, problem, inputs, saved, &gradients, direction).run(&mut gradients);
    }
}

/// Gradients when there is no step or no row: zero, but for the initial state, which is the final one.
fn empty<T: Arithmetic>(saved: &Saved<'_, T>, gradients: Gradients<'_, T>) {
    let Gradients { source, recurrent_weight, input_weight, bias, init_state, secondary_bias } = gradients;
    for gradient in [source, recurrent_weight, input_weight, bias, secondary_bias].into_iter().flatten() {
        gradient.fill(MaybeUninit::new(T::ZERO));
    }
    if let Some(gradient) = init_state {
        match saved.state_gradient {
            Some(state_gradient) => {
                for (to, &from) in gradient.iter_mut().zip(state_gradient) {
                    to.write(from);
                }
            }
            None => gradient.fill(MaybeUninit::new(T::ZERO)),
        }
    }
}

/// The recurrent weight, its lanes the units of the state before.
enum Recurrent<T> {
    /// All gates: the depth is (block, gate, lane).
    Whole(Panels<T>),
    /// A GRU without `reset_after`: the output gate, then the update and reset gates.
    Halves(Panels<T>, Panels<T>),
}

/// The gradient of a weight, transposed in blocks: `[block, column, gate, lane]`.
struct WeightGradient<T> {
    memory: Buffer<T>,
    /// Columns with padding.
    columns: usize,
    width: usize,
}

impl<T: Arithmetic> WeightGradient<T> {
    fn new(blocks: usize, columns: usize, width: usize) -> Self {
        Self { memory: Buffer::new(blocks * columns * width), columns, width }
    }

    fn at(&self, block: usize, column: usize) -> *mut T {
        self.memory.pointer().at((block * self.columns + column) * self.width)
    }
}

/// What the products of all chunks add up to.
struct Sums<T> {
    input_weight: Option<(Columns<T>, WeightGradient<T>)>,
    recurrent_weight: Option<RecurrentSums<T>>,
    /// `[block, gate, lane]`
    gates: Option<Buffer<T>>,
    input_panels: Option<Panels<T>>,
}

struct RecurrentSums<T> {
    states: Columns<T>,
    /// Of all gates, or without `reset_after` of the update and reset gates.
    whole: WeightGradient<T>,
    /// Without `reset_after`: the output gate's.
    output: Option<(Buffer<T>, Columns<T>, WeightGradient<T>)>,
}

struct Backward<'a, T> {
    kernels: &'a Kernels<T>,
    problem: &'a Problem,
    inputs: &'a Inputs<'a, T>,
    saved: &'a Saved<'a, T>,
    direction: usize,
    gates: Gates<T>,
    blocks: Blocks,
    positions: Vec<usize>,
    teams: Vec<Team>,
    parallel: bool,
    /// Steps of a chunk.
    chunk: usize,
    /// Units with padding to whole panels.
    padded: usize,
    /// Vectors of a block's gate gradients: output, update, reset gate, candidate product; or two of units.
    vectors: usize,
    recurrent: Recurrent<T>,
    /// With `reset_after`: `Ro`, its lanes the units of the candidate.
    candidate_panels: Option<Panels<T>>,
    /// `[N, padded H]`, the gradient of the state.
    carried: Buffer<T>,
    /// `[rows, padded H]`, the states before the chunk's steps.
    states: Buffer<T>,
    /// The same times the mask.
    masked: Option<Buffer<T>>,
    /// `[rows, padded H]`, with `reset_after`: `(h∘m) Roᵀ`.
    candidates: Option<Buffer<T>>,
    /// `[block, rows, vector, lane]`
    gate_gradients: Buffer<T>,
}

impl<'a, T: Arithmetic> Backward<'a, T> {
    fn new(
        kernels: &'a Kernels<T>,
        problem: &'a Problem,
        inputs: &'a Inputs<'a, T>,
        saved: &'a Saved<'a, T>,
        gradients: &Gradients<'_, T>,
        direction: usize,
    ) -> Self {
        let Problem { steps, batch, hidden, features, .. } = *problem;
        let gates_hidden = problem.direction_gates();
        let lanes = kernels.lanes;
        let blocks = Blocks::new(problem, lanes);
        let positions = problem.positions();
        let mut width = hidden;
        if gradients.recurrent_weight.is_some() {
            width += hidden;
        }
        if inputs.input_weight.is_some() || gradients.input_weight.is_some() {
            width +=
                features * (gradients.source.is_some() as usize + gradients.input_weight.is_some() as usize);
        }
        let threads = threads_for(steps * batch * gates_hidden * width);
        let parallel = threads > 1;
        let after = match problem.cell {
            Cell::Gru(gru) => Some(gru.reset_after),
            Cell::SingleGate(_) => None,
        };
        let granules = hidden.div_ceil(PANEL * lanes);
        let padded = granules * PANEL * lanes;
        let granule = gates_hidden * hidden / granules;
        let teams = Cost {
            directions: 1,
            batch,
            granules,
            granule,
            granule_bytes: granule * size_of::<T>(),
            meetings: if after == Some(false) { 2 } else { 1 },
            rows: kernels.rows,
            rate: rate(kernels),
        }
        .plan(threads);
        let chunk = (CHUNK / batch).clamp(1, steps);
        let rows = chunk * batch;

        let weight = &inputs.recurrent_weight[direction * gates_hidden * hidden..][..gates_hidden * hidden];
        let columns = |positions: &[usize]| {
            lanes_from_columns(weight, hidden, lanes, PANEL, &blocks.rows(positions), parallel)
        };
        let recurrent = match after {
            Some(false) => Recurrent::Halves(columns(&positions[2..]), columns(&positions[..2])),
            _ => Recurrent::Whole(columns(&positions)),
        };
        let candidate_panels = (after == Some(true)).then(|| {
            let rows: Vec<_> = (0..granules * PANEL)
                .map(|vector| Rows {
                    first: positions[2] * hidden + (vector * lanes).min(hidden),
                    count: hidden.saturating_sub(vector * lanes).min(lanes),
                })
                .collect();
            lanes_from_rows(weight, hidden, lanes, PANEL, &rows, parallel)
        });
        let vectors = match after {
            Some(true) => 4,
            Some(false) => 3,
            None => 2,
        };
        Self {
            kernels,
            problem,
            inputs,
            saved,
            direction,
            gates: gates(problem),
            blocks,
            positions,
            teams,
            parallel,
            chunk,
            padded,
            vectors,
            recurrent,
            candidate_panels,
            carried: Buffer::filled(batch * padded, T::ZERO),
            states: Buffer::new(rows * padded),
            masked: inputs.mask.map(|_| Buffer::new(rows * padded)),
            candidates: (after == Some(true)).then(|| Buffer::new(rows * padded)),
            gate_gradients: Buffer::new(blocks.count * rows * vectors * lanes),
        }
    }

    fn run(&self, gradients: &mut Gradients<'_, T>) {
        self.lay_state_gradient();
        let mut sums = self.sums(gradients);
        let source = gradients.source.as_mut().map(|gradient| Shared::new(gradient.as_mut_ptr().cast::<T>()));
        let steps = self.problem.steps;
        let mut end = steps;
        while end > 0 {
            let start = end.saturating_sub(self.chunk);
            let chunk = Chunk::new(self.problem, self.direction, start..end);
            self.walk(&chunk);
            if let Some(source) = source {
                self.source_gradient(&chunk, source, &sums);
            }
            self.weight_gradients(&chunk, &mut sums, end == steps);
            end = start;
        }
        self.hand_out(sums, gradients);
    }

    /// Elements of one row's gate gradients in a block.
    fn width(&self) -> usize {
        self.vectors * self.blocks.lanes
    }

    /// Elements of a block's gate gradients.
    fn block_stride(&self, chunk: &Chunk) -> usize {
        chunk.rows * self.width()
    }

    fn gate_gradients_at(&self, chunk: &Chunk, block: usize, row: usize) -> *mut T {
        self.gate_gradients.pointer().at(block * self.block_stride(chunk) + row * self.width())
    }

    /// What the recurrent products multiply: the states before the steps, masked.
    fn operands(&self) -> Shared<T> {
        self.masked.as_ref().unwrap_or(&self.states).pointer()
    }

    fn lay_state_gradient(&self) {
        let Some(gradient) = self.saved.state_gradient else { return };
        let hidden = self.problem.hidden;
        for row in 0..self.problem.batch {
            let from = &gradient[row * self.problem.state() + self.direction * hidden..][..hidden];
            for (unit, &value) in from.iter().enumerate() {
                // SAFETY: inside the buffer, before any thread runs.
                unsafe { self.carried.pointer().at(row * self.padded + unit).write(value) };
            }
        }
    }

    // ---- The walk.

    /// Walks a chunk back, and leaves its gate gradients and states.
    fn walk(&self, chunk: &Chunk) {
        let per_step = match self.recurrent {
            Recurrent::Whole(_) => 1,
            Recurrent::Halves(..) => 2,
        };
        let steps = chunk.indices.len();
        let parts = self.teams[0].parts.len();
        team::run(self.teams.len(), parts, 2 + steps * per_step, |team, phase, part| {
            let team = &self.teams[team];
            let granules = &team.parts[part];
            match phase {
                0 => self.lay_states(team, granules, chunk),
                1 => {
                    self.lay_candidates(team, granules, chunk);
                    self.gates_back(team, granules, chunk, chunk.indices.end - 1);
                }
                _ => {
                    let back = (phase - 2) / per_step;
                    let index = chunk.indices.end - 1 - back;
                    if per_step == 2 && (phase - 2) % 2 == 0 {
                        return self.reset_back(team, granules, chunk, index);
                    }
                    self.state_back(team, granules, chunk, index);
                    if index > chunk.indices.start {
                        self.gates_back(team, granules, chunk, index - 1);
                    }
                }
            }
        });
    }

    /// The existing units of some panels.
    fn units(&self, granules: &Range<usize>) -> Range<usize> {
        let units = PANEL * self.blocks.lanes;
        let hidden = self.problem.hidden;
        hidden.min(granules.start * units)..hidden.min(granules.end * units)
    }

    /// The blocks of some panels.
    fn blocks_of(&self, granules: &Range<usize>) -> Range<usize> {
        let per_panel = PANEL / self.blocks.vectors;
        self.blocks.count.min(granules.start * per_panel)..self.blocks.count.min(granules.end * per_panel)
    }

    fn lay_states(&self, team: &Team, granules: &Range<usize>, chunk: &Chunk) {
        for time in chunk.times.clone() {
            match self.inputs.lengths {
                None => self.lay_states_of(granules, chunk, time, team.rows.clone(), self.problem.steps),
                Some(lengths) => {
                    for row in team.rows.clone() {
                        self.lay_states_of(granules, chunk, time, row..row + 1, lengths[row]);
                    }
                }
            }
        }
    }

    /// The states before step `time` of rows that run `length` steps.
    fn lay_states_of(
        &self,
        granules: &Range<usize>,
        chunk: &Chunk,
        time: usize,
        rows: Range<usize>,
        length: usize,
    ) {
        let Problem { batch, hidden, .. } = *self.problem;
        let units = self.units(granules);
        let channel = self.direction * hidden + units.start;
        let backwards = self.problem.walks_backwards(self.direction);
        let first = if backwards { time + 1 == length } else { time == 0 };
        let mut activation = None;
        let (from, from_row) = if time >= length {
            (null(), 0)
        } else if first {
            let state = self.problem.state();
            let init = self.inputs.init_state;
            (init.map_or(null(), |init| init[rows.start * state + channel..].as_ptr()), state)
        } else {
            let before = if backwards { time + 1 } else { time - 1 };
            let flat = before * batch + rows.start;
            match self.saved.output {
                Some(output) => {
                    let state = self.problem.state();
                    (output[flat * state + channel..].as_ptr(), state)
                }
                None => {
                    let all = self.problem.all_gates();
                    activation = Some((self.gates.output, self.gates.clip));
                    (self.saved.z_state[flat * all + channel..].as_ptr(), all)
                }
            }
        };
        let at = chunk.row(time, rows.start) * self.padded + units.start;
        let call = States {
            rows: rows.len(),
            units: units.len(),
            from,
            from_row,
            activation,
            to: self.states.pointer().at(at),
            to_row: self.padded,
            mask: mask_at(self.problem, self.inputs, time, rows.start, channel),
            mask_row: self.problem.state(),
            masked: self.masked.as_ref().map_or(null_mut(), |masked| masked.pointer().at(at)),
        };
        // SAFETY: reads these rows' units, writes this part of the states.
        unsafe { (self.kernels.states)(&call) };
    }

    fn lay_candidates(&self, team: &Team, granules: &Range<usize>, chunk: &Chunk) {
        let (Some(panels), Some(candidates)) = (&self.candidate_panels, &self.candidates) else { return };
        let mut runs = Vec::new();
        if team.rows.len() == self.problem.batch {
            runs.push(0..chunk.rows);
        } else {
            runs.extend(chunk.times.clone().map(|time| {
                chunk.row(time, team.rows.start)..chunk.row(time, team.rows.start) + team.rows.len()
            }));
        }
        for panel in granules.clone() {
            for (row, rows) in runs.iter().flat_map(|run| groups(run.clone(), self.kernels.rows)) {
                let product = Product {
                    rows,
                    panels: 1,
                    segments: 1,
                    depth: panels.depth,
                    a: self.operands().at(row * self.padded),
                    a_row: self.padded,
                    a_depth: 1,
                    a_segment: 0,
                    b: panels.panel(panel),
                    b_depth: panels.width(),
                    b_segment: 0,
                    b_panel: 0,
                    c: candidates.pointer().at(row * self.padded + panel * panels.width()),
                    c_row: self.padded,
                    c_panel: 0,
                    accumulate: false,
                };
                // SAFETY: reads states of the phase before, writes this part of the candidates.
                unsafe { (self.kernels.product[PANEL - 1])(&product) };
            }
        }
    }

    /// A tensor's element for a row at a step, or null.
    fn element(
        &self,
        tensor: Option<&[T]>,
        channels: usize,
        time: usize,
        row: usize,
        channel: usize,
    ) -> *const T {
        tensor.map_or(null(), |tensor| {
            tensor[(time * self.problem.batch + row) * channels + channel..].as_ptr()
        })
    }

    /// The gates' gradients at one step, from the state's.
    fn gates_back(&self, team: &Team, granules: &Range<usize>, chunk: &Chunk, index: usize) {
        let Problem { hidden, .. } = *self.problem;
        let (state, all) = (self.problem.state(), self.problem.all_gates());
        let time = self.problem.step(self.direction, index);
        let row = team.rows.start;
        let rows = team.rows.len();
        let local = chunk.row(time, row);
        let lengths = lengths_from(self.inputs, row);
        for block in self.blocks_of(granules) {
            for vector in 0..self.blocks.vectors {
                let valid = self.blocks.valid(block, vector);
                let unit = self.blocks.unit(block, vector);
                let channel = self.direction * hidden + unit.min(hidden - 1);
                let gate_channel = |position: usize| {
                    self.direction * self.problem.direction_gates() + position * hidden + unit.min(hidden - 1)
                };
                let z_state = |position: usize| {
                    self.element(Some(self.saved.z_state), all, time, row, gate_channel(position))
                };
                let carried = self.carried.pointer().at(row * self.padded + unit);
                let output_gradient = self.element(self.saved.output_gradient, state, time, row, channel);
                let gates = self.gate_gradients_at(chunk, block, local);
                match self.problem.cell {
                    Cell::Gru(_) => {
                        let mut gate_pointers = [null(); 3];
                        for (pointer, &position) in gate_pointers.iter_mut().zip(&self.positions) {
                            *pointer = z_state(position);
                        }
                        let at = local * self.padded + unit;
                        let step = GruGradient {
                            rows,
                            valid,
                            carried,
                            carried_row: self.padded,
                            output_gradient,
                            output_gradient_row: state,
                            z_state: gate_pointers,
                            z_state_row: all,
                            previous: self.states.pointer().at(at),
                            previous_row: self.padded,
                            candidate: self
                                .candidates
                                .as_ref()
                                .map_or(null(), |candidates| candidates.pointer().at(at)),
                            candidate_row: self.padded,
                            secondary_bias: self
                                .inputs
                                .secondary_bias
                                .map_or(null(), |bias| bias[channel..].as_ptr()),
                            gates,
                            gates_row: self.width(),
                            lengths,
                            time,
                        };
                        // SAFETY: this vector of these rows, which only this part touches in this phase.
                        unsafe { (self.kernels.gru_gradient)(&step, &self.gates) };
                    }
                    Cell::SingleGate(_) => {
                        let step = SingleGateGradient {
                            rows,
                            valid,
                            carried,
                            carried_row: self.padded,
                            output_gradient,
                            output_gradient_row: state,
                            z_state: z_state(0),
                            z_state_row: all,
                            gate: gates.wrapping_add(vector * self.blocks.lanes),
                            gate_row: self.width(),
                            lengths,
                            time,
                        };
                        // SAFETY: as above.
                        unsafe { (self.kernels.single_gate_gradient)(&step, &self.gates) };
                    }
                }
            }
        }
    }

    /// A product of gate gradients at one step with a panel of the recurrent weight.
    fn gates_times(
        &self,
        chunk: &Chunk,
        panels: &Panels<T>,
        panel: usize,
        first: usize,
        (row, rows): (usize, usize),
        count: usize,
        scratch: &mut Scratch<T>,
    ) {
        let depth = panels.depth / self.blocks.count;
        let width = panels.width();
        let product = Product {
            rows,
            panels: count,
            segments: self.blocks.count,
            depth,
            a: self.gate_gradients_at(chunk, 0, row).wrapping_add(first * self.blocks.lanes),
            a_row: self.width(),
            a_depth: 1,
            a_segment: self.block_stride(chunk),
            b: panels.panel(panel),
            b_depth: width,
            b_segment: depth * width,
            b_panel: panels.stride(),
            c: scratch.pointer(),
            c_row: count * width,
            c_panel: width,
            accumulate: false,
        };
        // SAFETY: reads gradients of the phase before and packed weights.
        unsafe { (self.kernels.product[PANEL - 1])(&product) };
    }

    /// Calls `task` with the panel, its offset in the scratch memory and the group of rows, after each product.
    fn each_product(
        &self,
        team: &Team,
        granules: &Range<usize>,
        chunk: &Chunk,
        index: usize,
        (panels, first): (&Panels<T>, usize),
        mut task: impl FnMut(usize, *const T, usize, usize, usize),
    ) {
        let time = self.problem.step(self.direction, index);
        let together = match team.rows.len() {
            1 => 4,
            2 => 2,
            _ => 1,
        };
        let mut scratch = Scratch::new();
        for (panel, count) in groups(granules.clone(), together) {
            for (row, rows) in groups(team.rows.clone(), self.kernels.rows) {
                if !any_runs(self.inputs, time, row..row + rows) {
                    continue;
                }
                let local = chunk.row(time, row);
                self.gates_times(chunk, panels, panel, first, (local, rows), count, &mut scratch);
                for offset in 0..count {
                    for vector in 0..PANEL {
                        let unit = ((panel + offset) * PANEL + vector) * self.blocks.lanes;
                        if unit < self.problem.hidden {
                            let from = scratch
                                .pointer()
                                .wrapping_add(offset * panels.width() + vector * self.blocks.lanes);
                            task(unit, from, count * panels.width(), row, rows);
                        }
                    }
                }
            }
        }
    }

    /// Without `reset_after`: the reset gate's gradient, from the output gate's.
    fn reset_back(&self, team: &Team, granules: &Range<usize>, chunk: &Chunk, index: usize) {
        let Recurrent::Halves(panels, _) = &self.recurrent else {
            unreachable!("only halves have this phase")
        };
        let Problem { hidden, .. } = *self.problem;
        let lanes = self.blocks.lanes;
        let time = self.problem.step(self.direction, index);
        self.each_product(
            team,
            granules,
            chunk,
            index,
            (panels, 0),
            |unit, product, product_row, row, rows| {
                let channel = self.direction * hidden + unit;
                let gate =
                    self.direction * self.problem.direction_gates() + self.positions[1] * hidden + unit;
                let all = self.problem.all_gates();
                let local = chunk.row(time, row);
                let step = ResetGradient {
                    rows,
                    valid: (hidden - unit).min(lanes),
                    product,
                    product_row,
                    reset: self.element(Some(self.saved.z_state), all, time, row, gate),
                    reset_row: all,
                    masked: self.operands().at(local * self.padded + unit),
                    masked_row: self.padded,
                    mask: mask_at(self.problem, self.inputs, time, row, channel),
                    mask_row: self.problem.state(),
                    carried: self.carried.pointer().at(row * self.padded + unit),
                    carried_row: self.padded,
                    gate: self.gate_gradients_at(chunk, unit / lanes, local).wrapping_add(2 * lanes),
                    gate_row: self.width(),
                    lengths: lengths_from(self.inputs, row),
                    time,
                };
                // SAFETY: this vector of these rows, which only this part touches in this phase.
                unsafe { (self.kernels.reset_gradient)(&step, &self.gates) };
            },
        );
    }

    /// The gradient of the state before one step.
    fn state_back(&self, team: &Team, granules: &Range<usize>, chunk: &Chunk, index: usize) {
        let Problem { hidden, .. } = *self.problem;
        let time = self.problem.step(self.direction, index);
        // The output gate's vector is first; with `reset_after` its recurrent part is the last instead.
        let (panels, first) = match &self.recurrent {
            Recurrent::Whole(panels) => (panels, if self.vectors == 4 { 1 } else { 0 }),
            Recurrent::Halves(_, panels) => (panels, 1),
        };
        self.each_product(
            team,
            granules,
            chunk,
            index,
            (panels, first),
            |unit, product, product_row, row, rows| {
                let step = Through {
                    rows,
                    valid: (hidden - unit).min(self.blocks.lanes),
                    product,
                    product_row,
                    mask: mask_at(self.problem, self.inputs, time, row, self.direction * hidden + unit),
                    mask_row: self.problem.state(),
                    carried: self.carried.pointer().at(row * self.padded + unit),
                    carried_row: self.padded,
                    lengths: lengths_from(self.inputs, row),
                    time,
                };
                // SAFETY: as above.
                unsafe { (self.kernels.through)(&step) };
            },
        );
    }

    // ---- The products over a chunk's rows.

    fn sums(&self, gradients: &Gradients<'_, T>) -> Sums<T> {
        let Problem { batch, hidden, features, .. } = *self.problem;
        let height = self.kernels.rows;
        let rows = self.chunk * batch;
        let lanes = self.blocks.lanes;
        let count = self.blocks.count;
        let padded = |columns: usize| columns.div_ceil(height) * height;
        let weight_vectors = self.vectors.min(3);
        let input_weight = gradients.input_weight.is_some().then(|| {
            let gradient = WeightGradient::new(count, padded(features), weight_vectors * lanes);
            (Columns::new(rows, features, height), gradient)
        });
        let recurrent_weight = gradients.recurrent_weight.is_some().then(|| {
            let halves = matches!(self.recurrent, Recurrent::Halves(..));
            let whole = if halves { 2 } else { weight_vectors };
            RecurrentSums {
                states: Columns::new(rows, hidden, height),
                whole: WeightGradient::new(count, padded(hidden), whole * lanes),
                output: halves.then(|| {
                    (
                        Buffer::new(rows * self.padded),
                        Columns::new(rows, hidden, height),
                        WeightGradient::new(count, padded(hidden), lanes),
                    )
                }),
            }
        });
        let gates = (gradients.bias.is_some() || gradients.secondary_bias.is_some())
            .then(|| Buffer::filled(count * self.width(), T::ZERO));
        let input_panels = match (self.inputs.input_weight, &gradients.source) {
            (Some(weight), Some(_)) => {
                let gates_hidden = self.problem.direction_gates();
                let weight = &weight[self.direction * gates_hidden * features..][..gates_hidden * features];
                let rows = self.blocks.rows(&self.gradient_order());
                Some(lanes_from_columns(weight, features, lanes, PANEL, &rows, self.parallel))
            }
            _ => None,
        };
        Sums { input_weight, recurrent_weight, gates, input_panels }
    }

    /// The positions of the gates in the order their gradients are laid: output, update, reset.
    fn gradient_order(&self) -> Vec<usize> {
        match self.positions[..] {
            [update, reset, output] => vec![output, update, reset],
            _ => vec![0],
        }
    }

    fn source_gradient(&self, chunk: &Chunk, source: Shared<T>, sums: &Sums<T>) {
        const RUN: usize = 64;
        let start = chunk.times.start * self.problem.batch;
        each(chunk.rows.div_ceil(RUN), self.parallel, |run| {
            let rows = run * RUN..chunk.rows.min((run + 1) * RUN);
            match &sums.input_panels {
                Some(panels) => self.source_product(chunk, source, start, rows, panels),
                None => self.source_copy(chunk, source, start, rows),
            }
        });
    }

    fn source_product(
        &self,
        chunk: &Chunk,
        source: Shared<T>,
        start: usize,
        rows: Range<usize>,
        panels: &Panels<T>,
    ) {
        let features = self.problem.features;
        let width = panels.width();
        let lanes = self.blocks.lanes;
        let depth = panels.depth / self.blocks.count;
        // The second direction adds to what the first has left.
        let accumulate = self.direction > 0;
        let mut scratch = Scratch::new();
        for panel in 0..features.div_ceil(width) {
            let whole = (panel + 1) * width <= features;
            for (row, count) in groups(rows.clone(), self.kernels.rows) {
                let to = source.at((start + row) * features + panel * width);
                let product = Product {
                    rows: count,
                    panels: 1,
                    segments: self.blocks.count,
                    depth,
                    a: self.gate_gradients_at(chunk, 0, row),
                    a_row: self.width(),
                    a_depth: 1,
                    a_segment: self.block_stride(chunk),
                    b: panels.panel(panel),
                    b_depth: width,
                    b_segment: depth * width,
                    b_panel: 0,
                    c: if whole { to } else { scratch.pointer() },
                    c_row: if whole { features } else { width },
                    c_panel: 0,
                    accumulate: accumulate && whole,
                };
                // SAFETY: reads the walk's gradients, writes these rows of the source's gradient.
                unsafe { (self.kernels.product[PANEL - 1])(&product) };
                if !whole {
                    let mut valid = [0; 3];
                    let mut pointers = [null_mut(); 3];
                    for vector in 0..PANEL {
                        valid[vector] = features.saturating_sub(panel * width + vector * lanes).min(lanes);
                        pointers[vector] = to.wrapping_add(vector * lanes);
                    }
                    let store = Store {
                        rows: count,
                        valid,
                        from: scratch.pointer(),
                        from_row: width,
                        bias: [null(); 3],
                        to: pointers,
                        to_row: features,
                        accumulate,
                    };
                    // SAFETY: as above.
                    unsafe { (self.kernels.store)(&store) };
                }
            }
        }
    }

    /// Without an input weight the source's gradient is that of the gates.
    fn source_copy(&self, chunk: &Chunk, source: Shared<T>, start: usize, rows: Range<usize>) {
        let hidden = self.problem.hidden;
        let all = self.problem.all_gates();
        let order = self.gradient_order();
        for block in 0..self.blocks.count {
            let mut valid = [0; 3];
            let mut to = [null_mut(); 3];
            for vector in 0..self.vectors.min(3) {
                let (position, part) = match self.problem.cell {
                    Cell::Gru(_) => (order[vector], 0),
                    Cell::SingleGate(_) => (0, vector),
                };
                valid[vector] = self.blocks.valid(block, part);
                let channel = self.direction * self.problem.direction_gates()
                    + position * hidden
                    + self.blocks.unit(block, part);
                to[vector] = source.at((start + rows.start) * all + channel);
            }
            let store = Store {
                rows: rows.len(),
                valid,
                from: self.gate_gradients_at(chunk, block, rows.start),
                from_row: self.width(),
                bias: [null(); 3],
                to,
                to_row: all,
                accumulate: false,
            };
            // SAFETY: reads the walk's gradients, writes these rows of the source's gradient.
            unsafe { (self.kernels.store)(&store) };
        }
    }

    fn weight_gradients(&self, chunk: &Chunk, sums: &mut Sums<T>, first: bool) {
        let Problem { batch, features, .. } = *self.problem;
        if let Some((columns, gradient)) = &mut sums.input_weight {
            let source = self.inputs.source.expect("kept for the gradient of input_weight");
            let source = Shared::of(&source[chunk.times.start * batch * features..]);
            // What lies past a row's length may be anything, NaN too.
            let keep = |row: usize| {
                self.inputs
                    .lengths
                    .is_none_or(|lengths| chunk.times.start + row / batch < lengths[row % batch])
            };
            columns.pack(chunk.rows, source, features, keep, self.parallel);
            self.weight_product(chunk, columns, gradient, 0, first);
        }
        if let Some(recurrent) = &mut sums.recurrent_weight {
            recurrent.states.pack(chunk.rows, self.operands(), self.padded, |_| true, self.parallel);
            let offset = if self.vectors == 2 { 0 } else { 1 };
            self.weight_product(chunk, &recurrent.states, &recurrent.whole, offset, first);
            if let Some((gated, columns, gradient)) = &mut recurrent.output {
                self.lay_gated(chunk, gated);
                columns.pack(chunk.rows, gated.pointer(), self.padded, |_| true, self.parallel);
                self.weight_product(chunk, columns, gradient, 0, first);
            }
        }
        if let Some(gates) = &sums.gates {
            each(self.blocks.count, self.parallel, |block| {
                let call = ColumnSums {
                    rows: chunk.rows,
                    vectors: self.vectors,
                    from: self.gate_gradients_at(chunk, block, 0),
                    from_row: self.width(),
                    to: gates.pointer().at(block * self.width()),
                };
                // SAFETY: reads the walk's gradients, writes this block's sums.
                unsafe { (self.kernels.column_sums)(&call) };
            });
        }
    }

    /// Without `reset_after`: what entered the output gate's product, `h∘m∘r`.
    fn lay_gated(&self, chunk: &Chunk, gated: &Buffer<T>) {
        let Problem { batch, hidden, .. } = *self.problem;
        let gate = self.direction * self.problem.direction_gates() + self.positions[1] * hidden;
        each(chunk.rows, self.parallel, |row| {
            let flat = chunk.times.start * batch + row;
            let reset = &self.saved.z_state[flat * self.problem.all_gates() + gate..][..hidden];
            for (unit, &reset) in reset.iter().enumerate() {
                let at = row * self.padded + unit;
                // SAFETY: this row of the buffers.
                unsafe { gated.pointer().at(at).write(*self.operands().at(at) * reset) };
            }
        });
    }

    /// Adds `Σ columnᵀ · gate gradients` over the chunk's rows, from vector `first` of each block on.
    fn weight_product(
        &self,
        chunk: &Chunk,
        columns: &Columns<T>,
        gradient: &WeightGradient<T>,
        first: usize,
        overwrite: bool,
    ) {
        /// Panels of columns a task takes.
        const RUN: usize = 8;
        let lanes = self.blocks.lanes;
        let height = columns.height;
        let runs = columns.panels().div_ceil(RUN);
        each(self.blocks.count * runs, self.parallel, |task| {
            let (block, run) = (task / runs, task % runs);
            for panel in run * RUN..columns.panels().min((run + 1) * RUN) {
                let product = Product {
                    rows: height,
                    panels: 1,
                    segments: 1,
                    depth: chunk.rows,
                    a: columns.panel(panel),
                    a_row: 1,
                    a_depth: height,
                    a_segment: 0,
                    b: self.gate_gradients_at(chunk, block, 0).wrapping_add(first * lanes),
                    b_depth: self.width(),
                    b_segment: 0,
                    b_panel: 0,
                    c: gradient.at(block, panel * height),
                    c_row: gradient.width,
                    c_panel: 0,
                    accumulate: !overwrite,
                };
                // SAFETY: reads the walk's gradients and packed columns, writes this task's part of the gradient.
                unsafe { (self.kernels.product[gradient.width / lanes - 1])(&product) };
            }
        });
    }

    // ---- Handing the sums out.

    fn hand_out(&self, sums: Sums<T>, gradients: &mut Gradients<'_, T>) {
        let Problem { hidden, features, .. } = *self.problem;
        let state = self.problem.state();
        let order = self.gradient_order();
        let [output, rest @ ..] = &order[..] else { unreachable!("there is a gate") };
        if let (Some(to), Some((_, gradient))) = (&mut gradients.input_weight, &sums.input_weight) {
            self.write_weight(to, gradient, features, &order);
        }
        if let (Some(to), Some(recurrent)) = (&mut gradients.recurrent_weight, &sums.recurrent_weight) {
            match (&recurrent.output, rest) {
                (Some((_, _, gradient)), rest) => {
                    self.write_weight(to, &recurrent.whole, hidden, rest);
                    self.write_weight(to, gradient, hidden, &[*output]);
                }
                (None, [update, reset]) => {
                    self.write_weight(to, &recurrent.whole, hidden, &[*update, *reset, *output]);
                }
                (None, _) => self.write_weight(to, &recurrent.whole, hidden, &order),
            }
        }
        if let Some(gates) = &sums.gates {
            if let Some(to) = &mut gradients.bias {
                for (vector, &position) in order.iter().enumerate() {
                    let start = self.direction * self.problem.direction_gates() + position * hidden;
                    self.write_sums(&mut to[start..][..hidden], gates, vector);
                }
            }
            if let Some(to) = &mut gradients.secondary_bias {
                self.write_sums(&mut to[self.direction * hidden..][..hidden], gates, 3);
            }
        }
        if let Some(to) = &mut gradients.init_state {
            for row in 0..self.problem.batch {
                let to = &mut to[row * state + self.direction * hidden..][..hidden];
                for (unit, to) in to.iter_mut().enumerate() {
                    // SAFETY: inside the buffer, after all threads are done.
                    to.write(unsafe { *self.carried.pointer().at(row * self.padded + unit) });
                }
            }
        }
    }

    /// Transposes a gradient into its tensor, `[D·GH, columns]`.
    fn write_weight(
        &self,
        to: &mut [MaybeUninit<T>],
        gradient: &WeightGradient<T>,
        columns: usize,
        positions: &[usize],
    ) {
        let lanes = self.blocks.lanes;
        let to = Shared::new(to.as_mut_ptr().cast::<T>());
        let rows = self.blocks.rows(positions);
        let per_block = positions.len() * self.blocks.vectors;
        let first = self.direction * self.problem.direction_gates();
        each(self.blocks.count, self.parallel, |block| {
            for (vector, rows) in rows[block * per_block..][..per_block].iter().enumerate() {
                for lane in 0..rows.count {
                    let to = to.at((first + rows.first + lane) * columns);
                    for column in 0..columns {
                        // SAFETY: this block's rows of the tensor.
                        unsafe {
                            to.add(column).write(*gradient.at(block, column).add(vector * lanes + lane))
                        };
                    }
                }
            }
        });
    }

    /// One gate's sums, or those of all vectors of units.
    fn write_sums(&self, to: &mut [MaybeUninit<T>], sums: &Buffer<T>, gate: usize) {
        let lanes = self.blocks.lanes;
        for (unit, to) in to.iter_mut().enumerate() {
            let block = unit / self.blocks.units();
            let vector = gate + unit % self.blocks.units() / lanes;
            let at = block * self.width() + vector * lanes + unit % lanes;
            // SAFETY: inside the buffer, after all threads are done.
            to.write(unsafe { *sums.pointer().at(at) });
        }
    }
}

/// Some steps in the order they are walked, and the rows they stand in: `[time, batch row]` from the earliest
/// time on.
struct Chunk {
    indices: Range<usize>,
    times: Range<usize>,
    batch: usize,
    rows: usize,
}

impl Chunk {
    fn new(problem: &Problem, direction: usize, indices: Range<usize>) -> Self {
        let (first, last) =
            (problem.step(direction, indices.start), problem.step(direction, indices.end - 1));
        let times = first.min(last)..first.max(last) + 1;
        Self { rows: times.len() * problem.batch, indices, times, batch: problem.batch }
    }

    /// The row of a batch row at a time step.
    fn row(&self, time: usize, row: usize) -> usize {
        (time - self.times.start) * self.batch + row
    }
}
