//! Cases of other frameworks' layers, which run through the conversions of their weights.

pub(crate) mod backend;
pub(crate) mod functional;
pub(crate) mod keras;
pub(crate) mod onnx;
pub(crate) mod pytorch;

use std::collections::BTreeMap;

use burn::tensor::{Device, Gradients, Tensor, TensorData};
use burn_rnn::{CellWeights, Error, Gru, Lengths, Rnn};

use crate::{Case, target::Target};

/// A layer of another framework: how its weights and tensors become ours, and the results its own.
pub(crate) trait Framework {
    /// Converts the weights, by differentiable operations; the layer that takes the input first.
    fn layers(&self, tensors: &Tensors) -> Result<Vec<CellWeights>, Error>;

    /// What goes into the first layer.
    fn inputs(&self, tensors: &Tensors) -> Inputs;

    /// Names and arranges the results as the framework does. `output` is `[T, N, D·H]` and `final_state`
    /// `[L·D, N, H]`, for `L` layers.
    fn results(&self, output: Tensor<3>, final_state: Tensor<3>) -> Results;

    /// The Burn module with the framework's weights.
    fn module(&self, tensors: &Tensors) -> Result<Module, Error>;
}

/// A Burn module of either cell.
pub(crate) enum Module {
    Gru(Gru),
    Rnn(Rnn),
}

impl Module {
    /// Runs the module, with tensors laid out as in [`forward_layers`](burn_rnn::forward_layers).
    fn forward(&self, inputs: Inputs, lengths: Option<Lengths>) -> Result<(Tensor<3>, Tensor<3>), Error> {
        let batch_first = match self {
            Self::Gru(gru) => gru.batch_first,
            Self::Rnn(rnn) => rnn.batch_first,
        };
        let input = time_major(inputs.source, batch_first);
        let (output, final_state) = match self {
            Self::Gru(gru) => gru.try_forward(input, inputs.state, lengths)?,
            Self::Rnn(rnn) => rnn.try_forward(input, inputs.state, lengths)?,
        };
        Ok((time_major(output, batch_first), final_state))
    }
}

/// What goes into the first layer.
#[derive(Clone)]
pub(crate) struct Inputs {
    /// `[T, N, I]`
    pub source: Tensor<3>,
    /// `[L·D, N, H]`
    pub state: Option<Tensor<3>>,
}

/// Results as the framework arranges them, by the names that the cases expect.
pub(crate) struct Results {
    pub output: (&'static str, Ranked),
    pub final_state: (&'static str, Ranked),
}

/// A tensor whose rank the name says.
#[derive(Clone)]
pub(crate) enum Ranked {
    One(Tensor<1>),
    Two(Tensor<2>),
    Three(Tensor<3>),
    Four(Tensor<4>),
}

impl Ranked {
    pub fn read(self) -> Result<TensorData, String> {
        let data = match self {
            Self::One(tensor) => tensor.try_into_data(),
            Self::Two(tensor) => tensor.try_into_data(),
            Self::Three(tensor) => tensor.try_into_data(),
            Self::Four(tensor) => tensor.try_into_data(),
        };
        data.map_err(|error| format!("a result cannot be read: {error}"))
    }

    /// The sum of the elements, each times the weight of its place.
    fn weighted_sum(self, weights: Self) -> Tensor<1> {
        match (self, weights) {
            (Self::One(tensor), Self::One(weights)) => (tensor * weights).sum(),
            (Self::Two(tensor), Self::Two(weights)) => (tensor * weights).sum(),
            (Self::Three(tensor), Self::Three(weights)) => (tensor * weights).sum(),
            (Self::Four(tensor), Self::Four(weights)) => (tensor * weights).sum(),
            _ => panic!("a gradient has another rank than its tensor"),
        }
    }

    fn gradient(&self, gradients: &Gradients) -> Option<Self> {
        match self {
            Self::One(tensor) => tensor.grad(gradients).map(Self::One),
            Self::Two(tensor) => tensor.grad(gradients).map(Self::Two),
            Self::Three(tensor) => tensor.grad(gradients).map(Self::Three),
            Self::Four(tensor) => tensor.grad(gradients).map(Self::Four),
        }
    }
}

/// The floating-point tensors of a case on a device.
pub(crate) struct Tensors<'a> {
    case: &'a Case,
    tensors: BTreeMap<&'a str, Ranked>,
}

impl<'a> Tensors<'a> {
    /// Brings a case's tensors to a device; on one with autodiff, all but the gradients of the results are
    /// tracked.
    pub fn new(case: &'a Case, target: &Target, device: &Device) -> Self {
        let tracked = |name: &str| device.is_autodiff() && !name.ends_with("_gradient");
        fn tensor<const D: usize>(
            target: &Target,
            data: &TensorData,
            device: &Device,
            tracked: bool,
        ) -> Tensor<D> {
            let tensor = target.tensor(data, device);
            if tracked { tensor.require_grad() } else { tensor }
        }
        let tensors = case
            .inputs()
            .iter()
            .filter(|(_, data)| data.dtype().is_float())
            .map(|(name, data)| {
                let tracked = tracked(name);
                let ranked = match data.rank() {
                    1 => Ranked::One(tensor(target, data, device, tracked)),
                    2 => Ranked::Two(tensor(target, data, device, tracked)),
                    3 => Ranked::Three(tensor(target, data, device, tracked)),
                    _ => Ranked::Four(tensor(target, data, device, tracked)),
                };
                (name.as_str(), ranked)
            })
            .collect();
        Self { case, tensors }
    }

    pub fn one(&self, name: &str) -> Option<Tensor<1>> {
        match self.tensors.get(name) {
            Some(Ranked::One(tensor)) => Some(tensor.clone()),
            _ => None,
        }
    }

    pub fn two(&self, name: &str) -> Option<Tensor<2>> {
        match self.tensors.get(name) {
            Some(Ranked::Two(tensor)) => Some(tensor.clone()),
            _ => None,
        }
    }

    pub fn three(&self, name: &str) -> Option<Tensor<3>> {
        match self.tensors.get(name) {
            Some(Ranked::Three(tensor)) => Some(tensor.clone()),
            _ => None,
        }
    }

    /// How many steps each row runs.
    pub fn lengths(&self) -> Option<Lengths> {
        self.host_lengths().map(|lengths| Lengths::Host(lengths.iter().collect()))
    }

    pub fn host_lengths(&self) -> Option<&TensorData> {
        self.case.inputs().get("sequence_lens")
    }

    /// The gradient of the results that the case comes with, by the name of the result.
    fn gradient_of(&self, result: &str) -> Option<Ranked> {
        let name = match result {
            "output" => "output_gradient",
            "h_n" => "state_gradient",
            _ => return None,
        };
        self.tensors.get(name).cloned()
    }

    /// `sum(output · output_gradient) + sum(final_state · state_gradient)`, of those gradients that the case
    /// comes with.
    pub fn loss(&self, results: Results) -> Option<Tensor<1>> {
        [results.output, results.final_state]
            .into_iter()
            .filter_map(|(name, result)| Some(result.weighted_sum(self.gradient_of(name)?)))
            .reduce(|a, b| a + b)
    }

    /// The gradients of all tracked tensors, by the tensor's name.
    pub fn gradients<'b>(
        &'b self,
        gradients: &'b Gradients,
    ) -> impl Iterator<Item = (&'b str, Option<Ranked>)> + 'b {
        let differentiable = |(name, _): &(&&str, &Ranked)| !name.ends_with("_gradient");
        self.tensors.iter().filter(differentiable).map(|(name, tensor)| (*name, tensor.gradient(gradients)))
    }
}

/// Swaps steps and batch if `batch_first`, which also undoes itself.
pub(crate) fn time_major(tensor: Tensor<3>, batch_first: bool) -> Tensor<3> {
    if batch_first { tensor.swap_dims(0, 1) } else { tensor }
}
