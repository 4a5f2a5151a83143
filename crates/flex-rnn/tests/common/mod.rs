//! Random problems, and a plain loop over single numbers to compare with.

#![allow(dead_code)]

use std::mem::MaybeUninit;

use flex_rnn::{Activation, Cell, Element, Gradients, Gru, Inputs, Level, Mask, Outputs, Problem, Saved};
use rand::{Rng, SeedableRng, rngs::StdRng};

pub const LEVELS: [Level; 5] = [Level::Scalar, Level::Sse, Level::Avx2, Level::Avx512, Level::Native];

/// A problem with its tensors in f64.
#[derive(Clone, Debug)]
pub struct Case {
    pub problem: Problem,
    pub source: Vec<f64>,
    pub recurrent_weight: Vec<f64>,
    pub input_weight: Option<Vec<f64>>,
    pub bias: Option<Vec<f64>>,
    pub init_state: Option<Vec<f64>>,
    pub mask: Option<(bool, Vec<f64>)>,
    pub secondary_bias: Option<Vec<f64>>,
    pub lengths: Option<Vec<usize>>,
    pub output_gradient: Option<Vec<f64>>,
    pub state_gradient: Option<Vec<f64>>,
}

pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn values(rng: &mut StdRng, count: usize, scale: f64) -> Vec<f64> {
    // Rounded to f32, so that both precisions start from the same numbers.
    (0..count).map(|_| ((rng.random::<f64>() * 2.0 - 1.0) * scale) as f32 as f64).collect()
}

fn activation(rng: &mut StdRng) -> Activation {
    match rng.random_range(0..6) {
        0 => Activation::None,
        1 => Activation::Relu,
        2 => Activation::Tanh,
        3 => Activation::Sigmoid,
        4 => Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        _ => Activation::HardSigmoid { alpha: 0.35, beta: 0.4 },
    }
}

/// A random problem of the given sizes; about half of all options and optional inputs are set.
pub fn case(rng: &mut StdRng, steps: usize, batch: usize, features: usize, hidden: usize) -> Case {
    let coin = |rng: &mut StdRng| rng.random_bool(0.5);
    let usual = coin(rng);
    let pick = |rng: &mut StdRng, usual_one| if usual { usual_one } else { activation(rng) };
    let reset_after = coin(rng);
    let gru = rng.random_bool(0.65);
    let cell = if gru {
        Cell::Gru(Gru {
            reset_gate_first: coin(rng),
            reset_after,
            flip_z: coin(rng),
            update: pick(rng, Activation::Sigmoid),
            reset: pick(rng, Activation::Sigmoid),
            output: pick(rng, Activation::Tanh),
        })
    } else {
        Cell::SingleGate(pick(rng, Activation::Tanh))
    };
    let bidirectional = coin(rng);
    let has_weight = rng.random_bool(0.7);
    let mut problem = Problem {
        steps,
        batch,
        features,
        hidden,
        reverse: coin(rng),
        bidirectional,
        cell,
        // Over many steps a cell without bounds leaves the numbers.
        clip: (rng.random_bool(0.3) || (!usual && steps > 9)).then(|| rng.random_range(0.2..0.6)),
    };
    if !has_weight {
        problem.features = problem.all_gates();
    }
    let state = problem.state();
    let gates = problem.all_gates();
    let features = problem.features;
    let optional = |rng: &mut StdRng, count: usize, scale: f64| coin(rng).then(|| values(rng, count, scale));
    let bias = optional(rng, gates, 0.5);
    let init_state = optional(rng, batch * state, 0.8);
    let mask_constant = optional(rng, batch * state, 1.5);
    let mask_steps = optional(rng, steps * batch * state, 1.5);
    let secondary_bias = optional(rng, state, 0.5).filter(|_| gru && reset_after);
    let output_gradient = Some(values(rng, steps * batch * state, 1.0)).filter(|_| rng.random_bool(0.85));
    let state_gradient =
        Some(values(rng, batch * state, 1.0)).filter(|_| output_gradient.is_none() || rng.random_bool(0.5));
    let scale = 1.0 / (hidden as f64).sqrt();
    Case {
        problem,
        source: values(rng, steps * batch * features, 1.0),
        recurrent_weight: values(rng, gates * hidden, scale),
        input_weight: has_weight.then(|| values(rng, gates * features, 1.0 / (features as f64).sqrt())),
        bias,
        init_state,
        mask: match (mask_constant, mask_steps, rng.random_bool(0.5)) {
            (Some(mask), _, true) => Some((false, mask)),
            (_, Some(mask), true) => Some((true, mask)),
            _ => None,
        },
        secondary_bias,
        lengths: rng.random_bool(0.5).then(|| (0..batch).map(|_| rng.random_range(0..=steps)).collect()),
        output_gradient,
        state_gradient,
    }
}

fn act(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
    }
}

/// What the plain loop returns.
pub struct Reference {
    pub output: Vec<f64>,
    pub final_state: Vec<f64>,
    pub z_state: Vec<f64>,
}

/// The formulas, one number at a time.
pub fn reference(case: &Case) -> Reference {
    let Problem { steps, batch, features, hidden, reverse, bidirectional, cell, clip } = case.problem;
    let state_size = case.problem.state();
    let all = case.problem.all_gates();
    let own = case.problem.direction_gates();
    let mut output = vec![0.0; steps * batch * state_size];
    let mut z_state = vec![0.0; steps * batch * all];
    let mut final_state = vec![0.0; batch * state_size];
    for direction in 0..case.problem.directions() {
        let backwards = if bidirectional { direction == 1 } else { reverse };
        for row in 0..batch {
            let length = case.lengths.as_ref().map_or(steps, |lengths| lengths[row]);
            let mut state: Vec<f64> = (0..hidden)
                .map(|unit| {
                    case.init_state
                        .as_ref()
                        .map_or(0.0, |init| init[row * state_size + direction * hidden + unit])
                })
                .collect();
            for index in 0..length {
                let time = if backwards { length - 1 - index } else { index };
                let flat = time * batch + row;
                let projected = |channel: usize| {
                    let x = &case.source[flat * features..][..features];
                    let product = match &case.input_weight {
                        Some(weight) => {
                            let weight = &weight[channel * features..][..features];
                            x.iter().zip(weight).map(|(x, w)| x * w).sum()
                        }
                        None => x[channel],
                    };
                    product + case.bias.as_ref().map_or(0.0, |bias| bias[channel])
                };
                let masked: Vec<f64> = (0..hidden)
                    .map(|unit| {
                        let channel = direction * hidden + unit;
                        state[unit]
                            * match &case.mask {
                                Some((false, mask)) => mask[row * state_size + channel],
                                Some((true, mask)) => mask[flat * state_size + channel],
                                None => 1.0,
                            }
                    })
                    .collect();
                let recurrent = |channel: usize, from: &[f64]| -> f64 {
                    let weight = &case.recurrent_weight[channel * hidden..][..hidden];
                    from.iter().zip(weight).map(|(h, w)| h * w).sum()
                };
                let mut next = vec![0.0; hidden];
                match cell {
                    Cell::SingleGate(activation) => {
                        for unit in 0..hidden {
                            let channel = direction * own + unit;
                            let z = projected(channel) + recurrent(channel, &masked);
                            z_state[flat * all + channel] = z;
                            next[unit] = act(activation, z);
                        }
                    }
                    Cell::Gru(gru) => {
                        let (zp, rp) = if gru.reset_gate_first { (1, 0) } else { (0, 1) };
                        let channel =
                            |position: usize, unit: usize| direction * own + position * hidden + unit;
                        let gate = |position: usize, activation| -> Vec<f64> {
                            (0..hidden)
                                .map(|unit| {
                                    let channel = channel(position, unit);
                                    act(activation, projected(channel) + recurrent(channel, &masked))
                                })
                                .collect()
                        };
                        let z = gate(zp, gru.update);
                        let r = gate(rp, gru.reset);
                        let gated: Vec<f64> = masked.iter().zip(&r).map(|(h, r)| h * r).collect();
                        for unit in 0..hidden {
                            let candidate = if gru.reset_after {
                                let bias = case
                                    .secondary_bias
                                    .as_ref()
                                    .map_or(0.0, |bias| bias[direction * hidden + unit]);
                                (recurrent(channel(2, unit), &masked) + bias) * r[unit]
                            } else {
                                recurrent(channel(2, unit), &gated)
                            };
                            let o = act(gru.output, projected(channel(2, unit)) + candidate);
                            let (keeps, takes) =
                                if gru.flip_z { (1.0 - z[unit], z[unit]) } else { (z[unit], 1.0 - z[unit]) };
                            next[unit] = keeps * state[unit] + takes * o;
                            z_state[flat * all + channel(zp, unit)] = z[unit];
                            z_state[flat * all + channel(rp, unit)] = r[unit];
                            z_state[flat * all + channel(2, unit)] = o;
                        }
                    }
                }
                if let Some(clip) = clip {
                    for value in &mut next {
                        *value = value.clamp(-clip, clip);
                    }
                }
                output[flat * state_size + direction * hidden..][..hidden].copy_from_slice(&next);
                state = next;
            }
            final_state[row * state_size + direction * hidden..][..hidden].copy_from_slice(&state);
        }
    }
    Reference { output, final_state, z_state }
}

/// The element types from f64.
pub trait Number: Element + std::fmt::Debug {
    fn of(value: f64) -> Self;
    fn to(self) -> f64;
    fn bits(self) -> u64;
    /// What rounding leaves between two ways to compute a value of about one.
    const TOLERANCE: f64;
}

impl Number for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
    fn to(self) -> f64 {
        self.into()
    }
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
    const TOLERANCE: f64 = 2e-5;
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn to(self) -> f64 {
        self
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
    const TOLERANCE: f64 = 4e-14;
}

/// A case's tensors in one element type.
pub struct Tensors<T> {
    problem: Problem,
    pub source: Vec<T>,
    recurrent_weight: Vec<T>,
    input_weight: Option<Vec<T>>,
    bias: Option<Vec<T>>,
    init_state: Option<Vec<T>>,
    pub mask: Option<(bool, Vec<T>)>,
    secondary_bias: Option<Vec<T>>,
    lengths: Option<Vec<usize>>,
    pub output_gradient: Option<Vec<T>>,
    state_gradient: Option<Vec<T>>,
}

impl<T: Number> Tensors<T> {
    pub fn new(case: &Case) -> Self {
        let cast = |values: &Vec<f64>| -> Vec<T> { values.iter().map(|&value| T::of(value)).collect() };
        Self {
            problem: case.problem,
            source: cast(&case.source),
            recurrent_weight: cast(&case.recurrent_weight),
            input_weight: case.input_weight.as_ref().map(cast),
            bias: case.bias.as_ref().map(cast),
            init_state: case.init_state.as_ref().map(cast),
            mask: case.mask.as_ref().map(|(steps, mask)| (*steps, cast(mask))),
            secondary_bias: case.secondary_bias.as_ref().map(cast),
            lengths: case.lengths.clone(),
            output_gradient: case.output_gradient.as_ref().map(cast),
            state_gradient: case.state_gradient.as_ref().map(cast),
        }
    }

    pub fn inputs(&self) -> Inputs<'_, T> {
        Inputs {
            source: Some(&self.source),
            recurrent_weight: &self.recurrent_weight,
            input_weight: self.input_weight.as_deref(),
            bias: self.bias.as_deref(),
            init_state: self.init_state.as_deref(),
            mask: self
                .mask
                .as_ref()
                .map(|(steps, mask)| if *steps { Mask::PerStep(mask) } else { Mask::Constant(mask) }),
            secondary_bias: self.secondary_bias.as_deref(),
            lengths: self.lengths.as_deref(),
        }
    }

    /// Output, final state and, if training, the training state. None if the processor lacks the level.
    pub fn forward(&self, level: Level, training: bool) -> Option<[Vec<T>; 3]> {
        let Problem { steps, batch, .. } = self.problem;
        let mut output = room(steps * batch * self.problem.state());
        let mut final_state = room(batch * self.problem.state());
        let mut z_state = room(if training { steps * batch * self.problem.all_gates() } else { 0 });
        let outputs = Outputs {
            output: &mut output,
            final_state: &mut final_state,
            z_state: training.then_some(&mut z_state[..]),
        };
        flex_rnn::forward_with(level, &self.problem, &self.inputs(), outputs)
            .then(|| [output, final_state, z_state].map(written))
    }

    /// The gradients of all inputs that there are, in the order of the structure's fields.
    pub fn backward(&self, level: Level, z_state: &[T], output: Option<&[T]>) -> Option<[Vec<T>; 6]> {
        let mut gradients: [Vec<MaybeUninit<T>>; 6] = [
            room(self.source.len()),
            room(self.recurrent_weight.len()),
            room(self.input_weight.as_ref().map_or(0, Vec::len)),
            room(self.bias.as_ref().map_or(0, Vec::len)),
            room(self.problem.batch * self.problem.state()),
            room(self.secondary_bias.as_ref().map_or(0, Vec::len)),
        ];
        let saved = Saved {
            z_state,
            output,
            output_gradient: self.output_gradient.as_deref(),
            state_gradient: self.state_gradient.as_deref(),
        };
        let [source, recurrent_weight, input_weight, bias, init_state, secondary_bias] = &mut gradients;
        let wanted = Gradients {
            source: Some(source),
            recurrent_weight: Some(recurrent_weight),
            input_weight: self.input_weight.is_some().then_some(&mut input_weight[..]),
            bias: self.bias.is_some().then_some(&mut bias[..]),
            init_state: Some(init_state),
            secondary_bias: self.secondary_bias.is_some().then_some(&mut secondary_bias[..]),
        };
        flex_rnn::backward_with(level, &self.problem, &self.inputs(), &saved, wanted)
            .then(|| gradients.map(written))
    }
}

pub const GRADIENTS: [&str; 6] =
    ["source", "recurrent_weight", "input_weight", "bias", "init_state", "secondary_bias"];

/// Memory filled with a value that no result has, so that what is not written shows.
fn room<T: Number>(count: usize) -> Vec<MaybeUninit<T>> {
    vec![MaybeUninit::new(T::of(1e30)); count]
}

fn written<T: Number>(values: Vec<MaybeUninit<T>>) -> Vec<T> {
    // SAFETY: initialised by `room`.
    values.into_iter().map(|value| unsafe { value.assume_init() }).collect()
}

/// Asserts that values agree, to a tolerance relative to the largest of them or one.
pub fn assert_close<T: Number>(got: &[T], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got.to() - expected).abs() / scale;
        assert!(error <= tolerance, "{what}[{index}]: got {}, expected {expected}: {error:e}", got.to());
    }
}

/// Runs `task` in a pool of so many threads.
pub fn with_threads<R: Send>(threads: usize, task: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(task)
}
