//! The result in 64-bit floats on the CPU, by plain loops over time: what every timed result is held against.

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, Axis, linalg::general_mat_mul, s};

use crate::problem::{Cell, Problem};

/// Outputs, and the gradients that an all-ones gradient of `output` gives.
pub struct Reference {
    /// `[T, N, D·H]`
    pub output: Vec<f64>,
    /// `[N, D·H]`
    pub final_state: Vec<f64>,
    /// The gradients, unless only the forward pass was asked for.
    pub gradients: Option<Gradients>,
}

/// Gradients, each with its input's shape.
pub struct Gradients {
    /// `[T, N, I]`
    pub source: Vec<f64>,
    /// `[D, GH, H]`
    pub recurrent_weight: Vec<f64>,
    /// `[D·GH, I]`
    pub input_weight: Vec<f64>,
    /// `[D·GH]`
    pub bias: Vec<f64>,
    /// `[D·H]`, or empty.
    pub secondary_bias: Vec<f64>,
}

/// The weights of one direction.
struct Weights {
    /// `[GH, H]`
    recurrent: Array2<f64>,
    /// `[GH, I]`
    input: Array2<f64>,
    /// `[GH]`
    bias: Array1<f64>,
    /// `[H]`
    secondary_bias: Array1<f64>,
}

/// Some batch rows through one direction. Rows are independent of each other, so each block has its thread.
/// The matrices have a row for each step and batch row of the block, time-major.
struct Block {
    rows: Range<usize>,
    /// `[T·rows, I]`
    source: Array2<f64>,
    /// The state before each step, `[T·rows, H]`.
    previous: Array2<f64>,
    /// The state after each step, `[T·rows, H]`.
    state: Array2<f64>,
    /// Activated gates, `[T·rows, GH]`; after the backward walk the gradients of their pre-activations.
    gates: Array2<f64>,
    /// The candidate's recurrent product with its bias, `[T·rows, H]`; after the backward walk its gradient.
    candidate: Array2<f64>,
    /// `[T·rows, I]`
    source_gradient: Array2<f64>,
}

/// Runs `problem` in 64-bit floats.
pub fn run(problem: &Problem, with_gradients: bool) -> Reference {
    let (shape, cell, directions) = (problem.shape, problem.cell, problem.directions());
    let (n, t, i, h) = (shape.n, shape.t, shape.i, shape.h);
    let gates = cell.gates() * h;
    let mut reference = Reference {
        output: vec![0.0; t * n * directions * h],
        final_state: vec![0.0; n * directions * h],
        gradients: with_gradients.then(|| Gradients {
            source: vec![0.0; t * n * i],
            recurrent_weight: Vec::with_capacity(directions * gates * h),
            input_weight: Vec::with_capacity(directions * gates * i),
            bias: Vec::with_capacity(directions * gates),
            secondary_bias: Vec::with_capacity(directions * h),
        }),
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    // A step reads all of R for each block: few rows would leave the threads waiting for memory.
    let rows_each = n.div_ceil(threads).max(8);

    for direction in 0..directions {
        let weights = Weights::new(problem, direction);
        let order: Vec<usize> = match direction {
            0 => (0..t).collect(),
            _ => (0..t).rev().collect(),
        };
        let blocks: Vec<Block> = std::thread::scope(|scope| {
            let (weights, order) = (&weights, &order);
            let handles: Vec<_> = (0..n)
                .step_by(rows_each)
                .map(|first| {
                    scope.spawn(move || {
                        let rows = first..n.min(first + rows_each);
                        let mut block = Block::new(problem, rows);
                        block.forward(cell, weights, order);
                        if with_gradients {
                            block.backward(cell, weights, order);
                        }
                        block
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().expect("a block does not panic")).collect()
        });

        for block in &blocks {
            let width = block.rows.len();
            for (row, row_in_block) in block.rows.clone().zip(0..) {
                for step in 0..t {
                    let state = block.state.row(step * width + row_in_block);
                    let at = ((step * n + row) * directions + direction) * h;
                    reference.output[at..at + h].copy_from_slice(state.as_slice().expect("contiguous"));
                }
                let last = block.state.row(order[t - 1] * width + row_in_block);
                let at = (row * directions + direction) * h;
                reference.final_state[at..at + h].copy_from_slice(last.as_slice().expect("contiguous"));
            }
        }
        if let Some(gradients) = &mut reference.gradients {
            gradients.add(cell, &blocks, n, threads);
        }
    }
    reference
}

impl Weights {
    fn new(problem: &Problem, direction: usize) -> Self {
        let (i, h) = (problem.shape.i, problem.shape.h);
        let gates = problem.cell.gates() * h;
        let part = |values: &[f32], rows: usize, columns: usize| {
            let values = values.iter().skip(direction * rows * columns).take(rows * columns);
            Array2::from_shape_vec((rows, columns), values.map(|&value| value.into()).collect())
                .expect("the problem has these sizes")
        };
        let secondary_bias = match problem.cell {
            Cell::Gru => part(&problem.secondary_bias, h, 1),
            Cell::Rnn => Array2::zeros((h, 1)),
        };
        Self {
            recurrent: part(&problem.recurrent_weight, gates, h),
            input: part(&problem.input_weight, gates, i),
            bias: part(&problem.bias, gates, 1).remove_axis(Axis(1)),
            secondary_bias: secondary_bias.remove_axis(Axis(1)),
        }
    }
}

impl Block {
    fn new(problem: &Problem, rows: Range<usize>) -> Self {
        let (n, t, i, h) = (problem.shape.n, problem.shape.t, problem.shape.i, problem.shape.h);
        let width = rows.len();
        let source = Array2::from_shape_fn((t * width, i), |(line, feature)| {
            let (step, row) = (line / width, rows.start + line % width);
            problem.source[(step * n + row) * i + feature].into()
        });
        Self {
            rows,
            source,
            previous: Array2::zeros((t * width, h)),
            state: Array2::zeros((t * width, h)),
            gates: Array2::zeros((t * width, problem.cell.gates() * h)),
            candidate: Array2::zeros((t * width, h)),
            source_gradient: Array2::zeros((0, i)),
        }
    }

    /// The lines of a step.
    fn lines(&self, step: usize) -> Range<usize> {
        let width = self.rows.len();
        step * width..(step + 1) * width
    }

    fn forward(&mut self, cell: Cell, weights: &Weights, order: &[usize]) {
        self.gates.assign(&weights.bias);
        general_mat_mul(1.0, &self.source, &weights.input.t(), 1.0, &mut self.gates);

        let h = weights.recurrent.ncols();
        let mut product = Array2::zeros((self.rows.len(), weights.recurrent.nrows()));
        let mut state = Array2::zeros((self.rows.len(), h));
        for &step in order {
            let lines = self.lines(step);
            self.previous.slice_mut(s![lines.clone(), ..]).assign(&state);
            general_mat_mul(1.0, &state, &weights.recurrent.t(), 0.0, &mut product);
            for (line, row) in lines.clone().zip(0..) {
                for unit in 0..h {
                    let product = |gate: usize| product[[row, gate * h + unit]];
                    let gates = &mut self.gates;
                    let next = match cell {
                        Cell::Rnn => {
                            let next = (gates[[line, unit]] + product(0)).tanh();
                            gates[[line, unit]] = next;
                            next
                        }
                        Cell::Gru => {
                            let candidate = product(2) + weights.secondary_bias[unit];
                            let r = sigmoid(gates[[line, unit]] + product(0));
                            let z = sigmoid(gates[[line, h + unit]] + product(1));
                            let n = (gates[[line, 2 * h + unit]] + r * candidate).tanh();
                            gates[[line, unit]] = r;
                            gates[[line, h + unit]] = z;
                            gates[[line, 2 * h + unit]] = n;
                            self.candidate[[line, unit]] = candidate;
                            (1.0 - z) * n + z * state[[row, unit]]
                        }
                    };
                    state[[row, unit]] = next;
                }
            }
            self.state.slice_mut(s![lines, ..]).assign(&state);
        }
    }

    /// Turns `gates` and `candidate` into gradients, for an output gradient of ones.
    fn backward(&mut self, cell: Cell, weights: &Weights, order: &[usize]) {
        let h = weights.recurrent.ncols();
        let mut carried = Array2::<f64>::zeros((self.rows.len(), h));
        let mut product = Array2::zeros((self.rows.len(), weights.recurrent.nrows()));
        for &step in order.iter().rev() {
            let lines = self.lines(step);
            for (line, row) in lines.zip(0..) {
                for unit in 0..h {
                    let gradient = 1.0 + carried[[row, unit]];
                    let gates = &mut self.gates;
                    match cell {
                        Cell::Rnn => {
                            let state = gates[[line, unit]];
                            let gradient = gradient * (1.0 - state * state);
                            gates[[line, unit]] = gradient;
                            product[[row, unit]] = gradient;
                            carried[[row, unit]] = 0.0;
                        }
                        Cell::Gru => {
                            let (r, z, n) =
                                (gates[[line, unit]], gates[[line, h + unit]], gates[[line, 2 * h + unit]]);
                            let of_n = gradient * (1.0 - z) * (1.0 - n * n);
                            let of_z = gradient * (self.previous[[line, unit]] - n) * z * (1.0 - z);
                            let of_r = of_n * self.candidate[[line, unit]] * r * (1.0 - r);
                            let of_candidate = of_n * r;
                            gates[[line, unit]] = of_r;
                            gates[[line, h + unit]] = of_z;
                            gates[[line, 2 * h + unit]] = of_n;
                            self.candidate[[line, unit]] = of_candidate;
                            product[[row, unit]] = of_r;
                            product[[row, h + unit]] = of_z;
                            product[[row, 2 * h + unit]] = of_candidate;
                            carried[[row, unit]] = gradient * z;
                        }
                    }
                }
            }
            general_mat_mul(1.0, &product, &weights.recurrent, 1.0, &mut carried);
        }
        self.source_gradient = self.gates.dot(&weights.input);
    }

    /// The gradient behind gate `gate` of the recurrent product, `[T·rows, H]`.
    fn recurrent_gradient(&self, cell: Cell, gate: usize) -> ArrayView2<'_, f64> {
        let h = self.state.ncols();
        match (cell, gate) {
            (Cell::Gru, 2) => self.candidate.view(),
            _ => self.gates.slice(s![.., gate * h..(gate + 1) * h]),
        }
    }
}

impl Gradients {
    /// Adds one direction's.
    fn add(&mut self, cell: Cell, blocks: &[Block], n: usize, threads: usize) {
        let (i, h) = (blocks[0].source.ncols(), blocks[0].state.ncols());
        for block in blocks {
            let width = block.rows.len();
            for (line, gradient) in block.source_gradient.outer_iter().enumerate() {
                let at = ((line / width) * n + block.rows.start + line % width) * i;
                for (sum, value) in self.source[at..at + i].iter_mut().zip(gradient) {
                    *sum += value;
                }
            }
        }

        // Each thread has some rows of a gate's weights, and sums over all steps and batch rows.
        let units_each = h.div_ceil(threads);
        for gate in 0..cell.gates() {
            let parts: Vec<[Array2<f64>; 2]> = std::thread::scope(|scope| {
                let handles: Vec<_> = (0..h)
                    .step_by(units_each)
                    .map(|first| {
                        scope.spawn(move || {
                            let units = first..h.min(first + units_each);
                            let mut input = Array2::zeros((units.len(), i));
                            let mut recurrent = Array2::zeros((units.len(), h));
                            for block in blocks {
                                let behind = gate * h + units.start..gate * h + units.end;
                                let of_input = block.gates.slice(s![.., behind]);
                                general_mat_mul(1.0, &of_input.t(), &block.source, 1.0, &mut input);
                                let gradient = block.recurrent_gradient(cell, gate);
                                let of_recurrent = gradient.slice(s![.., units.clone()]);
                                general_mat_mul(1.0, &of_recurrent.t(), &block.previous, 1.0, &mut recurrent);
                            }
                            [input, recurrent]
                        })
                    })
                    .collect();
                handles.into_iter().map(|handle| handle.join().expect("a part does not panic")).collect()
            });
            for [input, recurrent] in parts {
                self.input_weight.extend(input);
                self.recurrent_weight.extend(recurrent);
            }
        }

        let sum = |columns: &dyn Fn(&Block) -> Array1<f64>| {
            blocks.iter().map(columns).reduce(|sum, part| sum + part).expect("there is a block")
        };
        self.bias.extend(sum(&|block| block.gates.sum_axis(Axis(0))));
        if cell == Cell::Gru {
            self.secondary_bias.extend(sum(&|block| block.candidate.sum_axis(Axis(0))));
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Precision, Shape};

    /// One state, straight from the formulas of the cell.
    fn one_unit(problem: &Problem, row: usize, direction: usize) -> Vec<Vec<f64>> {
        let Shape { n, t, i, h } = problem.shape;
        let gates = problem.cell.gates();
        let mut state = vec![0.0; h];
        let mut states = vec![Vec::new(); t];
        let steps: Vec<usize> = if direction == 0 { (0..t).collect() } else { (0..t).rev().collect() };
        for step in steps {
            let dot = |gate: usize, unit: usize| {
                let line = (direction * gates + gate) * h + unit;
                let input: f64 = (0..i)
                    .map(|feature| {
                        f64::from(problem.source[(step * n + row) * i + feature])
                            * f64::from(problem.input_weight[line * i + feature])
                    })
                    .sum();
                let recurrent: f64 = (0..h)
                    .map(|from| state[from] * f64::from(problem.recurrent_weight[line * h + from]))
                    .sum();
                (input + f64::from(problem.bias[line]), recurrent)
            };
            let next: Vec<f64> = (0..h)
                .map(|unit| match problem.cell {
                    Cell::Rnn => {
                        let (input, recurrent) = dot(0, unit);
                        (input + recurrent).tanh()
                    }
                    Cell::Gru => {
                        let (input, recurrent) = dot(0, unit);
                        let r = sigmoid(input + recurrent);
                        let (input, recurrent) = dot(1, unit);
                        let z = sigmoid(input + recurrent);
                        let (input, recurrent) = dot(2, unit);
                        let inner = recurrent + f64::from(problem.secondary_bias[direction * h + unit]);
                        (1.0 - z) * (input + r * inner).tanh() + z * state[unit]
                    }
                })
                .collect();
            state = next;
            states[step] = state.clone();
        }
        states
    }

    fn problem(cell: Cell, bidirectional: bool) -> Problem {
        Problem::new(cell, Shape { n: 3, t: 4, i: 5, h: 6 }, bidirectional, Precision::F32)
    }

    #[test]
    fn outputs_follow_the_formulas() {
        for cell in [Cell::Gru, Cell::Rnn] {
            for bidirectional in [false, true] {
                let problem = problem(cell, bidirectional);
                let reference = run(&problem, false);
                let Shape { n, t, h, .. } = problem.shape;
                let directions = problem.directions();
                for row in 0..n {
                    for direction in 0..directions {
                        let states = one_unit(&problem, row, direction);
                        for step in 0..t {
                            for unit in 0..h {
                                let at = ((step * n + row) * directions + direction) * h + unit;
                                assert!((reference.output[at] - states[step][unit]).abs() < 1e-14);
                            }
                        }
                        let last = if direction == 0 { t - 1 } else { 0 };
                        let at = (row * directions + direction) * h;
                        for unit in 0..h {
                            let difference = reference.final_state[at + unit] - states[last][unit];
                            assert!(difference.abs() < 1e-14);
                        }
                    }
                }
            }
        }
    }

    /// Central differences of the sum of all outputs. The inputs are 32-bit floats, so the step taken is
    /// the one that the rounded values are apart.
    fn check(name: &str, problem: &mut Problem, tensor: fn(&mut Problem) -> &mut Vec<f32>, gradient: &[f64]) {
        assert_eq!(tensor(problem).len(), gradient.len(), "{name}");
        for at in 0..gradient.len() {
            let value = tensor(problem)[at];
            let mut total = |moved: f32| {
                tensor(problem)[at] = moved;
                run(problem, false).output.iter().sum::<f64>()
            };
            let (above, below) = (value + 1e-3, value - 1e-3);
            let slope = (total(above) - total(below)) / (f64::from(above) - f64::from(below));
            tensor(problem)[at] = value;
            let error = (slope - gradient[at]).abs();
            assert!(error < 2e-5 * (1.0 + slope.abs()), "{name}[{at}]: {slope}, got {}", gradient[at]);
        }
    }

    #[test]
    fn gradients_match_central_differences() {
        for cell in [Cell::Gru, Cell::Rnn] {
            for bidirectional in [false, true] {
                let mut problem = problem(cell, bidirectional);
                let gradients = run(&problem, true).gradients.expect("asked for");
                check("source", &mut problem, |problem| &mut problem.source, &gradients.source);
                check(
                    "recurrent_weight",
                    &mut problem,
                    |problem| &mut problem.recurrent_weight,
                    &gradients.recurrent_weight,
                );
                check("input_weight", &mut problem, |p| &mut p.input_weight, &gradients.input_weight);
                check("bias", &mut problem, |p| &mut p.bias, &gradients.bias);
                check("secondary_bias", &mut problem, |p| &mut p.secondary_bias, &gradients.secondary_bias);
            }
        }
    }
}
