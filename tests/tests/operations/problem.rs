//! Random problems, and the two ways to their gradients.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use burn_rnn::{
    Cell, Error, GruDescriptor, GruInputs, Lengths, Mask, RecurrentOutput, SingleGateRnnDescriptor,
    SingleGateRnnInputs, gru, gru_gradients, single_gate_rnn, single_gate_rnn_gradients,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// The inputs that have a gradient, in MPSGraph's order.
pub const DIFFERENTIABLE: [&str; 6] =
    ["source", "recurrent_weight", "input_weight", "bias", "init_state", "secondary_bias"];

/// A cell, its sizes, and which inputs it has.
#[derive(Clone, Debug)]
pub struct Problem {
    pub cell: Cell,
    pub steps: usize,
    pub batch: usize,
    pub features: usize,
    pub hidden: usize,
    /// Absent inputs, of those that may be absent.
    pub absent: Vec<&'static str>,
    pub mask: Option<MaskAxes>,
    pub lengths: Option<Vec<usize>>,
    /// Bound of the random numbers.
    pub scale: f64,
    pub seed: u64,
}

/// The shapes a mask may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskAxes {
    Constant,
    PerStep,
}

/// Numbers with a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

/// All tensors of a problem by name: inputs, `output_gradient` and `state_gradient`.
pub type Data = BTreeMap<&'static str, Values>;

/// Gradients by the name of their input.
pub type Gradient = BTreeMap<&'static str, Values>;

impl Problem {
    /// A small problem with every input.
    pub fn new(cell: impl Into<Kind>) -> Self {
        let cell = match cell.into() {
            Kind::Gru(descriptor) => Cell::Gru(descriptor),
            Kind::SingleGate(descriptor) => Cell::SingleGate(descriptor),
        };
        Self {
            cell,
            steps: 4,
            batch: 3,
            features: 2,
            hidden: 3,
            absent: Vec::new(),
            mask: None,
            lengths: None,
            scale: 0.8,
            seed: 1,
        }
    }

    pub fn with_sizes(mut self, [steps, batch, features, hidden]: [usize; 4]) -> Self {
        (self.steps, self.batch, self.features, self.hidden) = (steps, batch, features, hidden);
        self
    }

    pub fn with_mask(mut self, mask: MaskAxes) -> Self {
        self.mask = Some(mask);
        self
    }

    pub fn with_lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.lengths = Some(lengths.into());
        self
    }

    pub fn without(mut self, absent: impl Into<Vec<&'static str>>) -> Self {
        self.absent = absent.into();
        self
    }

    /// `D·H`
    pub fn state(&self) -> usize {
        self.cell.directions() * self.hidden
    }

    /// `D·GH`
    pub fn gates(&self) -> usize {
        self.cell.gates() * self.state()
    }

    /// The shape of every tensor that the problem has.
    pub fn shapes(&self) -> BTreeMap<&'static str, Vec<usize>> {
        let Self { steps, batch, hidden, .. } = *self;
        let (state, gates) = (self.state(), self.gates());
        let rows = self.cell.gates() * hidden;
        let has = |name| !self.absent.contains(&name);
        let features = if has("input_weight") { self.features } else { gates };
        let mut shapes = BTreeMap::from([
            ("source", vec![steps, batch, features]),
            (
                "recurrent_weight",
                match self.cell.directions() {
                    1 => vec![rows, hidden],
                    directions => vec![directions, rows, hidden],
                },
            ),
            ("output_gradient", vec![steps, batch, state]),
            ("state_gradient", vec![batch, state]),
        ]);
        for (name, shape) in [
            ("input_weight", vec![gates, features]),
            ("bias", vec![gates]),
            ("init_state", vec![batch, state]),
            ("secondary_bias", vec![state]),
        ] {
            if has(name) && (name != "secondary_bias" || self.cell.reset_after()) {
                shapes.insert(name, shape);
            }
        }
        match self.mask {
            Some(MaskAxes::Constant) => shapes.insert("mask", vec![batch, state]),
            Some(MaskAxes::PerStep) => shapes.insert("mask", vec![steps, batch, state]),
            None => None,
        };
        shapes
    }

    /// Random numbers for every tensor.
    pub fn data(&self) -> Data {
        let mut random = StdRng::seed_from_u64(self.seed);
        self.shapes()
            .into_iter()
            .map(|(name, shape)| {
                let count = shape.iter().product();
                let values = (0..count).map(|_| random.random_range(-self.scale..self.scale)).collect();
                (name, Values { shape, values })
            })
            .collect()
    }

    /// Runs the operation on tracked tensors, and autodiff back from
    /// `sum(output · output_gradient) + sum(final_state · state_gradient)`. `tracked` says which inputs are.
    pub fn by_autodiff(
        &self,
        data: &Data,
        device: &Device,
        dtype: DType,
        loss: Loss,
        tracked: impl Fn(&str) -> bool,
    ) -> (RecurrentOutput, Gradient) {
        let mut tensors = self.tensors(data, device, dtype);
        tensors.track(tracked);
        let outputs = tensors.clone().forward(self.cell, false).unwrap();
        let weights = |name: &str| &data[name];
        let output_loss = (outputs.output.clone() * tensor(weights("output_gradient"), device, dtype)).sum();
        let state_loss =
            (outputs.final_state.clone() * tensor(weights("state_gradient"), device, dtype)).sum();
        let loss = match loss {
            Loss::Output => output_loss,
            Loss::State => state_loss,
            Loss::Both => output_loss + state_loss,
        };
        let gradients = loss.backward();
        (outputs, tensors.gradient(&gradients))
    }

    /// Runs the operation in training, and the gradient operation after it.
    pub fn by_gradients(
        &self,
        data: &Data,
        device: &Device,
        dtype: DType,
        loss: Loss,
    ) -> (RecurrentOutput, Gradient) {
        let tensors = self.tensors(data, device, dtype);
        let outputs = tensors.clone().forward(self.cell, true).unwrap();
        let output_gradient = tensor(&data["output_gradient"], device, dtype);
        let output_gradient = match loss {
            Loss::State => Tensor::zeros_like(&output_gradient),
            _ => output_gradient,
        };
        let state_gradient = match loss {
            Loss::Output => None,
            _ => Some(tensor(&data["state_gradient"], device, dtype)),
        };
        let gradient = tensors.gradients(self.cell, output_gradient, &outputs, state_gradient).unwrap();
        (outputs, gradient)
    }

    /// `sum(output · output_gradient) + sum(final_state · state_gradient)`, computed on the host.
    pub fn loss(&self, data: &Data, device: &Device) -> f64 {
        let outputs = self.tensors(data, device, DType::F64).forward(self.cell, false).unwrap();
        let sum = |got: Values, weights: &Values| -> f64 {
            got.values.iter().zip(&weights.values).map(|(got, weight)| got * weight).sum()
        };
        sum(values(outputs.output), &data["output_gradient"])
            + sum(values(outputs.final_state), &data["state_gradient"])
    }

    /// The inputs as tensors on a device.
    pub fn tensors(&self, data: &Data, device: &Device, dtype: DType) -> Tensors {
        fn optional<const D: usize>(
            data: &Data,
            name: &str,
            device: &Device,
            dtype: DType,
        ) -> Option<Tensor<D>> {
            data.get(name).map(|values| tensor(values, device, dtype))
        }
        Tensors {
            source: tensor(&data["source"], device, dtype),
            recurrent_weight: match self.cell.directions() {
                1 => Recurrent::Two(tensor(&data["recurrent_weight"], device, dtype)),
                _ => Recurrent::Three(tensor(&data["recurrent_weight"], device, dtype)),
            },
            input_weight: optional(data, "input_weight", device, dtype),
            bias: optional(data, "bias", device, dtype),
            init_state: optional(data, "init_state", device, dtype),
            mask: match self.mask {
                None => None,
                Some(MaskAxes::Constant) => Some(Mask::Constant(tensor(&data["mask"], device, dtype))),
                Some(MaskAxes::PerStep) => Some(Mask::PerStep(tensor(&data["mask"], device, dtype))),
            },
            secondary_bias: optional(data, "secondary_bias", device, dtype),
            lengths: self.lengths.as_deref().map(Lengths::from),
        }
    }
}

/// What a loss depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Output,
    State,
    Both,
}

/// Either descriptor.
pub enum Kind {
    Gru(GruDescriptor),
    SingleGate(SingleGateRnnDescriptor),
}

impl From<GruDescriptor> for Kind {
    fn from(descriptor: GruDescriptor) -> Self {
        Self::Gru(descriptor)
    }
}

impl From<SingleGateRnnDescriptor> for Kind {
    fn from(descriptor: SingleGateRnnDescriptor) -> Self {
        Self::SingleGate(descriptor)
    }
}

/// Inputs of either cell.
#[derive(Clone, Debug)]
pub struct Tensors {
    pub source: Tensor<3>,
    pub recurrent_weight: Recurrent,
    pub input_weight: Option<Tensor<2>>,
    pub bias: Option<Tensor<1>>,
    pub init_state: Option<Tensor<2>>,
    pub mask: Option<Mask>,
    pub secondary_bias: Option<Tensor<1>>,
    pub lengths: Option<Lengths>,
}

/// A recurrent weight of one direction or two.
#[derive(Clone, Debug)]
pub enum Recurrent {
    Two(Tensor<2>),
    Three(Tensor<3>),
}

impl Tensors {
    /// Runs the operation; `training` is the descriptor's.
    pub fn forward(self, cell: Cell, training: bool) -> Result<RecurrentOutput, Error> {
        match (cell, self.recurrent_weight.clone()) {
            (Cell::Gru(descriptor), Recurrent::Two(weight)) => {
                gru(self.gru(weight), &GruDescriptor { training, ..descriptor })
            }
            (Cell::Gru(descriptor), Recurrent::Three(weight)) => {
                gru(self.gru(weight), &GruDescriptor { training, ..descriptor })
            }
            (Cell::SingleGate(descriptor), Recurrent::Two(weight)) => single_gate_rnn(
                self.single_gate_rnn(weight),
                &SingleGateRnnDescriptor { training, ..descriptor },
            ),
            (Cell::SingleGate(descriptor), Recurrent::Three(weight)) => single_gate_rnn(
                self.single_gate_rnn(weight),
                &SingleGateRnnDescriptor { training, ..descriptor },
            ),
        }
    }

    /// Runs the gradient operation on what the forward operation returned in training.
    pub fn gradients(
        self,
        cell: Cell,
        output_gradient: Tensor<3>,
        outputs: &RecurrentOutput,
        state_gradient: Option<Tensor<2>>,
    ) -> Result<Gradient, Error> {
        let z_state = outputs.z_state.clone().expect("the forward operation ran in training");
        match (cell, self.recurrent_weight.clone()) {
            (Cell::Gru(descriptor), Recurrent::Two(weight)) => {
                self.gru_gradients(weight, output_gradient, z_state, outputs, state_gradient, &descriptor)
            }
            (Cell::Gru(descriptor), Recurrent::Three(weight)) => {
                self.gru_gradients(weight, output_gradient, z_state, outputs, state_gradient, &descriptor)
            }
            (Cell::SingleGate(descriptor), Recurrent::Two(weight)) => {
                self.rnn_gradients(weight, output_gradient, z_state, state_gradient, &descriptor)
            }
            (Cell::SingleGate(descriptor), Recurrent::Three(weight)) => {
                self.rnn_gradients(weight, output_gradient, z_state, state_gradient, &descriptor)
            }
        }
    }

    fn gru_gradients<const R: usize>(
        self,
        weight: Tensor<R>,
        output_gradient: Tensor<3>,
        z_state: Tensor<3>,
        outputs: &RecurrentOutput,
        state_gradient: Option<Tensor<2>>,
        descriptor: &GruDescriptor,
    ) -> Result<Gradient, Error> {
        let output = outputs.output.clone();
        let inputs = self.gru(weight);
        let gradients = gru_gradients(inputs, output_gradient, z_state, output, state_gradient, descriptor)?;
        Ok(named([
            Some(values(gradients.source)),
            Some(values(gradients.recurrent_weight)),
            gradients.input_weight.map(values),
            gradients.bias.map(values),
            gradients.init_state.map(values),
            gradients.secondary_bias.map(values),
        ]))
    }

    fn rnn_gradients<const R: usize>(
        self,
        weight: Tensor<R>,
        output_gradient: Tensor<3>,
        z_state: Tensor<3>,
        state_gradient: Option<Tensor<2>>,
        descriptor: &SingleGateRnnDescriptor,
    ) -> Result<Gradient, Error> {
        let inputs = self.single_gate_rnn(weight);
        let gradients =
            single_gate_rnn_gradients(inputs, output_gradient, z_state, state_gradient, descriptor)?;
        Ok(named([
            Some(values(gradients.source)),
            Some(values(gradients.recurrent_weight)),
            gradients.input_weight.map(values),
            gradients.bias.map(values),
            gradients.init_state.map(values),
            None,
        ]))
    }

    fn gru<const R: usize>(self, recurrent_weight: Tensor<R>) -> GruInputs<R> {
        GruInputs {
            source: self.source,
            recurrent_weight,
            input_weight: self.input_weight,
            bias: self.bias,
            init_state: self.init_state,
            mask: self.mask,
            secondary_bias: self.secondary_bias,
            lengths: self.lengths,
        }
    }

    fn single_gate_rnn<const R: usize>(self, recurrent_weight: Tensor<R>) -> SingleGateRnnInputs<R> {
        assert!(self.secondary_bias.is_none(), "a single-gate RNN has no secondary bias");
        SingleGateRnnInputs {
            source: self.source,
            recurrent_weight,
            input_weight: self.input_weight,
            bias: self.bias,
            init_state: self.init_state,
            mask: self.mask,
            lengths: self.lengths,
        }
    }

    /// Tracks those inputs that `tracked` names.
    pub fn track(&mut self, tracked: impl Fn(&str) -> bool) {
        fn track<const D: usize>(tensor: &mut Tensor<D>) {
            *tensor = tensor.clone().require_grad();
        }
        for name in DIFFERENTIABLE.into_iter().filter(|name| tracked(name)) {
            match name {
                "source" => track(&mut self.source),
                "recurrent_weight" => match &mut self.recurrent_weight {
                    Recurrent::Two(weight) => track(weight),
                    Recurrent::Three(weight) => track(weight),
                },
                "input_weight" => self.input_weight.as_mut().into_iter().for_each(track),
                "init_state" => self.init_state.as_mut().into_iter().for_each(track),
                "bias" => self.bias.as_mut().into_iter().for_each(track),
                _ => self.secondary_bias.as_mut().into_iter().for_each(track),
            }
        }
    }

    /// The gradients that autodiff found for the inputs.
    pub fn gradient(&self, gradients: &Gradients) -> Gradient {
        fn of<const D: usize>(tensor: &Option<Tensor<D>>, gradients: &Gradients) -> Option<Values> {
            tensor.as_ref()?.grad(gradients).map(values)
        }
        named([
            self.source.grad(gradients).map(values),
            match &self.recurrent_weight {
                Recurrent::Two(weight) => weight.grad(gradients).map(values),
                Recurrent::Three(weight) => weight.grad(gradients).map(values),
            },
            of(&self.input_weight, gradients),
            of(&self.bias, gradients),
            of(&self.init_state, gradients),
            of(&self.secondary_bias, gradients),
        ])
    }
}

fn named(gradients: [Option<Values>; 6]) -> Gradient {
    DIFFERENTIABLE.into_iter().zip(gradients).filter_map(|(name, gradient)| Some((name, gradient?))).collect()
}

/// Numbers as a tensor.
pub fn tensor<const D: usize>(values: &Values, device: &Device, dtype: DType) -> Tensor<D> {
    let data = TensorData::new(values.values.clone(), values.shape.clone()).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

/// A tensor's numbers.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Values {
    let data = tensor.into_data();
    Values { shape: data.shape().as_slice().to_vec(), values: data.iter().collect() }
}

/// Fails unless all numbers are close: `|got - want| <= tolerance * (1 + |want|)`.
#[track_caller]
pub fn assert_close(what: &str, got: &Values, want: &Values, tolerance: f64) {
    assert_eq!(got.shape, want.shape, "{what}");
    for (index, (got, want)) in got.values.iter().zip(&want.values).enumerate() {
        let error = (got - want).abs();
        let allowed = tolerance * (1.0 + want.abs());
        assert!(error <= allowed, "{what}: element {index} is {got}, expected {want}");
    }
}

/// Fails unless the same gradients are there, and close.
#[track_caller]
pub fn assert_all_close(what: &str, got: &Gradient, want: &Gradient, tolerance: f64) {
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{what}");
    for (name, got) in got {
        assert_close(&format!("{what}, gradient of {name}"), got, &want[name], tolerance);
    }
}
