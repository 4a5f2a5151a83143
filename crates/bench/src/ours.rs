//! burn-rnn through its functional API.

use burn::tensor::{Device, Tensor};
use burn_rnn::{
    Activation, GruDescriptor, GruInputs, RecurrentOutput, SingleGateRnnDescriptor, SingleGateRnnInputs, gru,
    single_gate_rnn,
};

use crate::{
    problem::{Cell, Problem},
    subject::{ForwardResult, Run, Subject, TrainResult, upload},
};

/// The recurrent weight, whose rank depends on the number of directions.
#[derive(Clone)]
enum RecurrentWeight {
    One(Tensor<2>),
    Both(Tensor<3>),
}

/// The inputs and weights of a call.
#[derive(Clone)]
struct Inputs {
    source: Tensor<3>,
    recurrent_weight: RecurrentWeight,
    input_weight: Tensor<2>,
    bias: Tensor<1>,
    secondary_bias: Option<Tensor<1>>,
}

/// The operations of this project.
pub struct Ours {
    cell: Cell,
    directions: usize,
    plain: Inputs,
    tracked: Inputs,
}

impl Ours {
    /// Uploads `problem`.
    pub fn new(problem: &Problem, device: &Device) -> Self {
        let (shape, dtype) = (problem.shape, problem.precision.dtype());
        let (h, directions) = (shape.h, problem.directions());
        let gates = problem.cell.gates() * h;
        let weight = &problem.recurrent_weight;
        let plain = Inputs {
            source: upload(&problem.source, [shape.t, shape.n, shape.i], dtype, device),
            recurrent_weight: match directions {
                1 => RecurrentWeight::One(upload(weight, [gates, h], dtype, device)),
                _ => RecurrentWeight::Both(upload(weight, [directions, gates, h], dtype, device)),
            },
            input_weight: upload(&problem.input_weight, [directions * gates, shape.i], dtype, device),
            bias: upload(&problem.bias, [directions * gates], dtype, device),
            secondary_bias: (problem.cell == Cell::Gru)
                .then(|| upload(&problem.secondary_bias, [directions * h], dtype, device)),
        };
        let tracked = plain.clone().tracked();
        Self { cell: problem.cell, directions, plain, tracked }
    }

    /// Runs one step from `state`, `[N, D·H]`, of a sequence of one step.
    pub fn step(&self, state: Option<Tensor<2>>) -> Result<RecurrentOutput, String> {
        run(self.cell, self.directions == 2, &self.plain, state)
    }
}

impl Subject for Ours {
    fn forward(&self) -> Result<Run, String> {
        let result = run(self.cell, self.directions == 2, &self.plain, None)?;
        Ok(Run { output: result.output, final_state: Some(result.final_state), gradients: None })
    }

    fn train(&self) -> Result<Run, String> {
        let result = run(self.cell, self.directions == 2, &self.tracked, None)?;
        let gradients = result.output.backward();
        Ok(Run { output: result.output, final_state: Some(result.final_state), gradients: Some(gradients) })
    }

    fn forward_result(&self, run: Run) -> ForwardResult {
        ForwardResult { output: run.output, final_state: run.final_state }
    }

    fn train_result(&self, run: Run) -> TrainResult {
        let mut gradients = run.gradients.expect("a training step has gradients");
        let inputs = &self.tracked;
        TrainResult {
            output: run.output.inner(),
            source: inputs.source.grad_remove(&mut gradients),
            recurrent_weight: match &inputs.recurrent_weight {
                RecurrentWeight::One(weight) => {
                    weight.grad_remove(&mut gradients).map(|gradient| gradient.unsqueeze())
                }
                RecurrentWeight::Both(weight) => weight.grad_remove(&mut gradients),
            },
            input_weight: inputs.input_weight.grad_remove(&mut gradients),
            bias: inputs.bias.grad_remove(&mut gradients),
            secondary_bias: inputs.secondary_bias.as_ref().and_then(|bias| bias.grad_remove(&mut gradients)),
        }
    }
}

impl Inputs {
    fn tracked(self) -> Self {
        Self {
            source: self.source.autodiff().require_grad(),
            recurrent_weight: match self.recurrent_weight {
                RecurrentWeight::One(weight) => RecurrentWeight::One(weight.autodiff().require_grad()),
                RecurrentWeight::Both(weight) => RecurrentWeight::Both(weight.autodiff().require_grad()),
            },
            input_weight: self.input_weight.autodiff().require_grad(),
            bias: self.bias.autodiff().require_grad(),
            secondary_bias: self.secondary_bias.map(|bias| bias.autodiff().require_grad()),
        }
    }
}

fn run(
    cell: Cell,
    bidirectional: bool,
    inputs: &Inputs,
    state: Option<Tensor<2>>,
) -> Result<RecurrentOutput, String> {
    match inputs.recurrent_weight.clone() {
        RecurrentWeight::One(weight) => run_with(cell, bidirectional, inputs, weight, state),
        RecurrentWeight::Both(weight) => run_with(cell, bidirectional, inputs, weight, state),
    }
}

/// The cells as cuDNN has them: a GRU with the reset gate first and after the product, an RNN with tanh.
fn run_with<const R: usize>(
    cell: Cell,
    bidirectional: bool,
    inputs: &Inputs,
    recurrent_weight: Tensor<R>,
    state: Option<Tensor<2>>,
) -> Result<RecurrentOutput, String> {
    let inputs = inputs.clone();
    let result = match cell {
        Cell::Gru => {
            let mut arguments = GruInputs::new(inputs.source, recurrent_weight)
                .with_input_weight(inputs.input_weight)
                .with_bias(inputs.bias);
            arguments.secondary_bias = inputs.secondary_bias;
            arguments.init_state = state;
            let descriptor = GruDescriptor {
                bidirectional,
                reset_gate_first: true,
                reset_after: true,
                ..Default::default()
            };
            gru(arguments, &descriptor)
        }
        Cell::Rnn => {
            let mut arguments = SingleGateRnnInputs::new(inputs.source, recurrent_weight)
                .with_input_weight(inputs.input_weight)
                .with_bias(inputs.bias);
            arguments.init_state = state;
            let descriptor =
                SingleGateRnnDescriptor { bidirectional, activation: Activation::Tanh, ..Default::default() };
            single_gate_rnn(arguments, &descriptor)
        }
    };
    result.map_err(|error| error.to_string())
}
