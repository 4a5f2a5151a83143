//! Burn's own layers, with the same weights.

use burn::{
    module::Param,
    nn::{BiGru, BiGruConfig, BiRnn, BiRnnConfig, GateController, Gru, GruConfig, Linear, Rnn, RnnConfig},
    tensor::{DType, Device, Tensor},
};

use crate::{
    problem::{Cell, Problem, Shape},
    subject::{ForwardResult, Run, Subject, TrainResult, upload},
};

/// One of Burn's layers.
enum Layer {
    Gru(Box<Gru>),
    BiGru(Box<BiGru>),
    Rnn(Box<Rnn>),
    BiRnn(Box<BiRnn>),
}

/// A layer of Burn's on its inputs, which it takes batch-first.
pub struct BurnNn {
    shape: Shape,
    plain: (Layer, Tensor<3>),
    tracked: (Layer, Tensor<3>),
}

impl BurnNn {
    /// Uploads `problem`. The element type must be the device's default, as the layers create tensors of
    /// that.
    pub fn new(problem: &Problem, device: &Device) -> Self {
        let Shape { n, t, i, .. } = problem.shape;
        let mut batch_first = vec![0.0; problem.source.len()];
        for (line, values) in problem.source.chunks(i).enumerate() {
            let (step, row) = (line / n, line % n);
            let at = (row * t + step) * i;
            batch_first[at..at + i].copy_from_slice(values);
        }
        let source = |device: &Device| upload(&batch_first, [n, t, i], problem.precision.dtype(), device);
        let training = device.clone().autodiff();
        Self {
            shape: problem.shape,
            plain: (Layer::new(problem, device), source(device)),
            tracked: (Layer::new(problem, &training), source(&training).require_grad()),
        }
    }
}

impl Subject for BurnNn {
    fn forward(&self) -> Result<Run, String> {
        let (layer, source) = &self.plain;
        Ok(Run { output: layer.forward(source.clone()), final_state: None, gradients: None })
    }

    fn train(&self) -> Result<Run, String> {
        let (layer, source) = &self.tracked;
        let output = layer.forward(source.clone());
        let gradients = output.backward();
        Ok(Run { output, final_state: None, gradients: Some(gradients) })
    }

    fn forward_result(&self, run: Run) -> ForwardResult {
        ForwardResult { output: run.output.swap_dims(0, 1), final_state: None }
    }

    fn train_result(&self, run: Run) -> TrainResult {
        let gradients = run.gradients.expect("a training step has gradients");
        let (layer, source) = &self.tracked;
        let cells = layer.gates();
        // Weights are stored [in, out] here.
        let weight = |of: &dyn Fn(&GateController) -> &Linear| -> Option<Tensor<2>> {
            let parts: Option<Vec<Tensor<2>>> = cells
                .iter()
                .flatten()
                .map(|gate| of(gate).weight.val().grad(&gradients).map(|gradient| gradient.transpose()))
                .collect();
            parts.map(|parts| Tensor::cat(parts, 0))
        };
        let bias = |gates: &[&GateController], of: &dyn Fn(&GateController) -> &Linear| {
            let parts: Option<Vec<Tensor<1>>> = gates
                .iter()
                .map(|gate| of(gate).bias.as_ref().and_then(|bias| bias.val().grad(&gradients)))
                .collect();
            parts.map(|parts| Tensor::cat(parts, 0))
        };
        let all: Vec<&GateController> = cells.iter().flatten().copied().collect();
        let candidates: Vec<&GateController> =
            cells.iter().filter(|gates| gates.len() == 3).map(|gates| gates[2]).collect();
        let (h, directions) = (self.shape.h, cells.len());
        let gates = all.len() * h / directions;
        TrainResult {
            output: run.output.inner().swap_dims(0, 1),
            source: source.grad(&gradients).map(|gradient| gradient.swap_dims(0, 1)),
            recurrent_weight: weight(&|gate| &gate.hidden_transform)
                .map(|gradient| gradient.reshape([directions, gates, h])),
            input_weight: weight(&|gate| &gate.input_transform),
            bias: bias(&all, &|gate| &gate.input_transform),
            secondary_bias: match candidates.is_empty() {
                true => None,
                false => bias(&candidates, &|gate| &gate.hidden_transform),
            },
        }
    }
}

impl Layer {
    fn new(problem: &Problem, device: &Device) -> Self {
        let (i, h) = (problem.shape.i, problem.shape.h);
        let cell = |direction: usize| {
            let gate = |gate: usize| gate_controller(problem, direction, gate, device);
            match problem.cell {
                Cell::Gru => (0..3).map(gate).collect::<Vec<_>>(),
                Cell::Rnn => vec![gate(0)],
            }
        };
        let fill_gru = |layer: &mut Gru, direction| {
            let [reset, update, new] = cell(direction).try_into().expect("a GRU has three gates");
            (layer.reset_gate, layer.update_gate, layer.new_gate) = (reset, update, new);
        };
        let fill_rnn = |layer: &mut Rnn, direction| {
            let [gate] = cell(direction).try_into().expect("an RNN has one gate");
            layer.gate = gate;
        };
        match (problem.cell, problem.bidirectional) {
            (Cell::Gru, false) => {
                let mut layer = GruConfig::new(i, h, true).init(device);
                fill_gru(&mut layer, 0);
                Self::Gru(Box::new(layer))
            }
            (Cell::Gru, true) => {
                let mut layer = BiGruConfig::new(i, h, true).init(device);
                fill_gru(&mut layer.forward, 0);
                fill_gru(&mut layer.reverse, 1);
                Self::BiGru(Box::new(layer))
            }
            (Cell::Rnn, false) => {
                let mut layer = RnnConfig::new(i, h, true).init(device);
                fill_rnn(&mut layer, 0);
                Self::Rnn(Box::new(layer))
            }
            (Cell::Rnn, true) => {
                let mut layer = BiRnnConfig::new(i, h, true).init(device);
                fill_rnn(&mut layer.forward, 0);
                fill_rnn(&mut layer.reverse, 1);
                Self::BiRnn(Box::new(layer))
            }
        }
    }

    fn forward(&self, source: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Gru(layer) => layer.forward(source, None),
            Self::BiGru(layer) => layer.forward(source, None).0,
            Self::Rnn(layer) => layer.forward(source, None).0,
            Self::BiRnn(layer) => layer.forward(source, None).0,
        }
    }

    /// The gates of each direction, in the order of the problem's weights.
    fn gates(&self) -> Vec<Vec<&GateController>> {
        fn gru(layer: &Gru) -> Vec<&GateController> {
            vec![&layer.reset_gate, &layer.update_gate, &layer.new_gate]
        }
        match self {
            Self::Gru(layer) => vec![gru(layer)],
            Self::BiGru(layer) => vec![gru(&layer.forward), gru(&layer.reverse)],
            Self::Rnn(layer) => vec![vec![&layer.gate]],
            Self::BiRnn(layer) => vec![vec![&layer.forward.gate], vec![&layer.reverse.gate]],
        }
    }
}

/// The weights of one gate. Its second bias is zero but for a GRU's candidate, as in the problem.
fn gate_controller(problem: &Problem, direction: usize, gate: usize, device: &Device) -> GateController {
    let (i, h) = (problem.shape.i, problem.shape.h);
    let dtype = problem.precision.dtype();
    let first = (direction * problem.cell.gates() + gate) * h;
    let candidate_bias = match (problem.cell, gate) {
        (Cell::Gru, 2) => problem.secondary_bias[direction * h..(direction + 1) * h].to_vec(),
        _ => vec![0.0; h],
    };
    let linear = |weights: &[f32], columns: usize, bias: &[f32]| Linear {
        weight: weight(&weights[first * columns..(first + h) * columns], [h, columns], dtype, device),
        bias: Some(Param::from_tensor(upload(bias, [h], dtype, device))),
    };
    GateController {
        input_transform: linear(&problem.input_weight, i, &problem.bias[first..first + h]),
        hidden_transform: linear(&problem.recurrent_weight, h, &candidate_bias),
    }
}

/// A weight `[out, in]` as the layers store it, `[in, out]` and contiguous.
fn weight(values: &[f32], [rows, columns]: [usize; 2], dtype: DType, device: &Device) -> Param<Tensor<2>> {
    let transposed: Vec<f32> =
        (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect();
    Param::from_tensor(upload(&transposed, [columns, rows], dtype, device))
}
