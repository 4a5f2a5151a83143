//! Running a case of another framework's layer on a backend itself, below devices.
//!
//! The conversions work on tensors of a device, so they run on a host device. The recurrent operations run
//! on the backend, and its gradients go back through the conversions on the host.

use burn::{
    backend::{AutodiffBackend, Backend, TensorMetadata, tensor::FloatTensor},
    tensor::{DType, Device, Shape, Slice, Tensor, TensorData},
};
use burn_rnn::{Cell, CellWeights, RecurrentInputs, RecurrentOps};

use super::{Framework, Inputs, Ranked, Tensors, functional::compare};
use crate::{
    op::backend::read,
    report::{Failure, Judge, Way},
    target::Target,
};

/// Runs a case in all its ways and returns what is wrong.
pub(crate) fn run<A>(framework: &impl Framework, device: &A::Device, judge: &mut Judge) -> Result<(), Failure>
where
    A: AutodiffBackend + RecurrentOps,
    A::InnerBackend: RecurrentOps,
{
    let failed = |way| move |error: String| Failure::Error { way, error };
    let host = Target { device: Device::flex(), dtype: judge.dtype, checkpointing: false };
    inference::<A::InnerBackend>(framework, &host, device, judge).map_err(failed(Way::Inference))?;
    autodiff::<A>(framework, &host, device, judge).map_err(failed(Way::Autodiff))
}

fn inference<B: RecurrentOps>(
    framework: &impl Framework,
    host: &Target,
    device: &B::Device,
    judge: &mut Judge,
) -> Result<(), String> {
    let tensors = Tensors::new(judge.case, host, &host.device);
    let stack = Stack::new(framework, &tensors)?;
    let outputs = stack.forward::<B>(&stack.upload::<B>(device));
    let results = framework.results(
        host.tensor(&read::<B>(outputs.output)?, &host.device),
        host.tensor(&read::<B>(outputs.final_state)?, &host.device),
    );
    compare(Way::Inference, results, judge)
}

fn autodiff<A>(
    framework: &impl Framework,
    host: &Target,
    device: &A::Device,
    judge: &mut Judge,
) -> Result<(), String>
where
    A: AutodiffBackend + RecurrentOps,
{
    if !judge.case.expected().keys().any(|name| name.starts_with("grad.")) {
        return Ok(());
    }
    let host_device = host.autodiff();
    let tensors = Tensors::new(judge.case, host, &host_device);
    let stack = Stack::new(framework, &tensors)?;
    let uploaded: Vec<_> =
        stack.upload::<A>(device).into_iter().map(|tensor| A::float_set_require_grad(tensor, true)).collect();
    let outputs = stack.forward::<A>(&uploaded);

    // The loss, on the host, gives the gradients of the outputs.
    let output = host.tensor(&read::<A>(outputs.output.clone())?, &host_device).require_grad();
    let final_state = host.tensor(&read::<A>(outputs.final_state.clone())?, &host_device).require_grad();
    let loss = tensors
        .loss(framework.results(output.clone(), final_state.clone()))
        .ok_or("the case expects gradients, but comes with none of its results")?;
    let gradients = loss.backward();

    // The backend carries them to what was uploaded.
    let weighted = |tensor: FloatTensor<A>, gradient: Option<Tensor<3>>| {
        let gradient = A::float_from_data(gradient?.into_data(), device);
        Some(A::float_sum(A::float_mul(tensor, gradient)))
    };
    let losses = [
        weighted(outputs.output, output.grad(&gradients)),
        weighted(outputs.final_state, final_state.grad(&gradients)),
    ];
    let loss = losses.into_iter().flatten().reduce(A::float_add).ok_or("no result has a gradient")?;
    let gradients = A::backward(loss);

    // And the host carries them on, through the conversions.
    let mut loss: Option<Tensor<1>> = None;
    for (tensor, uploaded) in stack.tensors().zip(&uploaded) {
        let gradient = A::grad(uploaded, &gradients).ok_or("an input of the operation has no gradient")?;
        let part = tensor.weighted_sum_of(&read::<A::InnerBackend>(gradient)?, host, &host_device);
        loss = Some(match loss {
            Some(loss) => loss + part,
            None => part,
        });
    }
    let gradients = loss.ok_or("there is nothing to differentiate")?.backward();
    for (name, gradient) in tensors.gradients(&gradients) {
        let gradient = gradient.map(|gradient| gradient.read()).transpose()?;
        judge.compare(Way::Autodiff, &format!("grad.{name}"), gradient);
    }
    Ok(())
}

/// Layers on top of each other, with their inputs, on the host.
struct Stack<'a> {
    layers: Vec<CellWeights>,
    inputs: Inputs,
    lengths: Option<&'a TensorData>,
}

/// What a stack returns.
struct Outputs<B: Backend> {
    /// `[T, N, D·H]`
    output: FloatTensor<B>,
    /// `[L·D, N, H]`
    final_state: FloatTensor<B>,
}

impl<'a> Stack<'a> {
    fn new(framework: &impl Framework, tensors: &'a Tensors) -> Result<Self, String> {
        Ok(Self {
            layers: framework.layers(tensors).map_err(|error| error.to_string())?,
            inputs: framework.inputs(tensors),
            lengths: tensors.host_lengths(),
        })
    }

    /// All that the operations take, in a fixed order.
    fn tensors(&self) -> impl Iterator<Item = Ranked> + '_ {
        let source = Some(Ranked::Three(self.inputs.source.clone()));
        let state = self.inputs.state.clone().map(Ranked::Three);
        let layers = self.layers.iter().flat_map(|layer| {
            let [directions, rows, hidden] = layer.recurrent_weight.dims();
            let recurrent_weight = match directions {
                1 => Ranked::Two(layer.recurrent_weight.clone().reshape([rows, hidden])),
                _ => Ranked::Three(layer.recurrent_weight.clone()),
            };
            [
                Some(Ranked::Two(layer.input_weight.clone())),
                Some(recurrent_weight),
                layer.bias.clone().map(Ranked::One),
                layer.secondary_bias.clone().map(Ranked::One),
            ]
        });
        [source, state].into_iter().chain(layers).flatten()
    }

    fn upload<B: Backend>(&self, device: &B::Device) -> Vec<FloatTensor<B>> {
        let data = |tensor: Ranked| tensor.read().expect("the host's tensors can be read");
        self.tensors().map(|tensor| B::float_from_data(data(tensor), device)).collect()
    }

    /// Runs the layers on what [`upload`](Self::upload) returned.
    fn forward<B: RecurrentOps>(&self, uploaded: &[FloatTensor<B>]) -> Outputs<B> {
        let mut uploaded = uploaded.iter().cloned();
        let mut next = || uploaded.next().expect("as many tensors as there are inputs");
        let mut source = next();
        let state = self.inputs.state.is_some().then(&mut next);
        let device = source.device();
        let mut final_states = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let directions = layer.cell.directions();
            let init_state = state.clone().map(|state| {
                let shape = state.shape();
                let rows = index * directions..(index + 1) * directions;
                let slices = [rows, 0..shape[1], 0..shape[2]].map(Slice::from);
                beside_each_other::<B>(B::float_slice(state, &slices))
            });
            let inputs = RecurrentInputs {
                source: Some(source),
                input_weight: Some(next()),
                recurrent_weight: Some(next()),
                bias: layer.bias.is_some().then(&mut next),
                secondary_bias: layer.secondary_bias.is_some().then(&mut next),
                init_state,
                mask: None,
                lengths: self
                    .lengths
                    .map(|lengths| B::int_from_data(lengths.clone().convert_dtype(DType::I32), &device)),
            };
            let outputs = B::recurrent_forward(inputs, layer.cell, false);
            source = outputs.output.expect("always returned");
            let final_state = outputs.final_state.expect("always returned");
            final_states.push(on_top_of_each_other::<B>(final_state, &layer.cell));
        }
        let final_state = match final_states.len() {
            1 => final_states.remove(0),
            _ => B::float_cat(final_states, 0),
        };
        Outputs { output: source, final_state }
    }
}

/// `[D, N, H]` into `[N, D·H]`.
fn beside_each_other<B: Backend>(state: FloatTensor<B>) -> FloatTensor<B> {
    let shape = state.shape();
    let flat = Shape::from([shape[1], shape[0] * shape[2]]);
    B::float_reshape(B::float_swap_dims(state, 0, 1), flat)
}

/// `[N, D·H]` into `[D, N, H]`.
fn on_top_of_each_other<B: Backend>(state: FloatTensor<B>, cell: &Cell) -> FloatTensor<B> {
    let shape = state.shape();
    let directions = cell.directions();
    let apart = Shape::from([shape[0], directions, shape[1] / directions]);
    B::float_swap_dims(B::float_reshape(state, apart), 0, 1)
}

impl Ranked {
    /// The sum of the elements, each times the number in its place.
    fn weighted_sum_of(self, weights: &TensorData, host: &Target, device: &Device) -> Tensor<1> {
        let weights = match &self {
            Self::One(_) => Self::One(host.tensor(weights, device)),
            Self::Two(_) => Self::Two(host.tensor(weights, device)),
            Self::Three(_) => Self::Three(host.tensor(weights, device)),
            Self::Four(_) => Self::Four(host.tensor(weights, device)),
        };
        self.weighted_sum(weights)
    }
}
