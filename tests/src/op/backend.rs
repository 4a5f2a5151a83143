//! Running a case of an operation on a backend itself, below devices: what a backend's implementation of
//! [`RecurrentOps`] is asked, and nothing around it.

use burn::{
    backend::{AutodiffBackend, Backend, TensorMetadata, tensor::FloatTensor},
    tensor::{DType, TensorData, try_read_sync},
};
use burn_rnn::{Cell, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved, WantedGradients};

use super::{Op, functional::compare_gradients};
use crate::{
    Case, Mismatch,
    report::{Failure, Judge, Way, WrongTensor},
};

/// Runs a case in all its ways and returns what is wrong.
pub(crate) fn run<A>(op: &Op, device: &A::Device, judge: &mut Judge) -> Result<(), Failure>
where
    A: AutodiffBackend + RecurrentOps,
    A::InnerBackend: RecurrentOps,
{
    let failed = |way| move |error: String| Failure::Error { way, error };
    inference::<A::InnerBackend>(op.cell, device, judge).map_err(failed(Way::Inference))?;
    gradients::<A::InnerBackend>(op.cell, device, judge).map_err(failed(Way::Gradients))?;
    autodiff::<A>(op.cell, device, judge).map_err(failed(Way::Autodiff))
}

fn inference<B: RecurrentOps>(cell: Cell, device: &B::Device, judge: &mut Judge) -> Result<(), String> {
    let outputs = B::recurrent_forward(inputs::<B>(judge, device), cell, false);
    if outputs.z_state.is_some() {
        let (way, mismatch) = (Way::Inference, Mismatch::Unexpected);
        judge.wrong.push(WrongTensor { way, tensor: "z_state".into(), mismatch });
    }
    compare_outputs::<B>(Way::Inference, outputs, judge)
}

fn gradients<B: RecurrentOps>(cell: Cell, device: &B::Device, judge: &mut Judge) -> Result<(), String> {
    let (case, dtype) = (judge.case, judge.dtype);
    let inputs = inputs::<B>(judge, device);
    let outputs = B::recurrent_forward(inputs.clone(), cell, true);
    if outputs.z_state.is_none() {
        let (way, mismatch) = (Way::Gradients, Mismatch::Missing);
        judge.wrong.push(WrongTensor { way, tensor: "z_state".into(), mismatch });
        return Ok(());
    }
    compare_outputs::<B>(Way::Gradients, outputs.clone(), judge)?;

    let saved = RecurrentSaved {
        z_state: outputs.z_state,
        output: outputs.output.filter(|_| matches!(cell, Cell::Gru(_))),
        output_gradient: float::<B>(case, "output_gradient", dtype, device),
        state_gradient: float::<B>(case, "state_gradient", dtype, device),
    };
    if saved.output_gradient.is_none() && saved.state_gradient.is_none() {
        return Ok(());
    }
    let wanted = WantedGradients {
        source: true,
        recurrent_weight: true,
        input_weight: inputs.input_weight.is_some(),
        bias: inputs.bias.is_some(),
        init_state: inputs.init_state.is_some(),
        secondary_bias: inputs.secondary_bias.is_some(),
    };
    let gradients = B::recurrent_backward(inputs, saved, wanted, cell);
    let gradients = [
        gradients.source,
        gradients.recurrent_weight,
        gradients.input_weight,
        gradients.bias,
        gradients.init_state,
        gradients.secondary_bias,
    ];
    compare_gradients(Way::Gradients, read_all::<B, 6>(gradients)?, judge);
    Ok(())
}

fn autodiff<A>(cell: Cell, device: &A::Device, judge: &mut Judge) -> Result<(), String>
where
    A: AutodiffBackend + RecurrentOps,
{
    let (case, dtype) = (judge.case, judge.dtype);
    let tracked =
        |tensor: Option<FloatTensor<A>>| tensor.map(|tensor| A::float_set_require_grad(tensor, true));
    let inputs = inputs::<A>(judge, device);
    let inputs = RecurrentInputs::<A> {
        source: tracked(inputs.source),
        recurrent_weight: tracked(inputs.recurrent_weight),
        input_weight: tracked(inputs.input_weight),
        bias: tracked(inputs.bias),
        init_state: tracked(inputs.init_state),
        mask: inputs.mask,
        secondary_bias: tracked(inputs.secondary_bias),
        lengths: inputs.lengths,
    };
    let outputs = A::recurrent_forward(inputs.clone(), cell, false);
    compare_outputs::<A>(Way::Autodiff, outputs.clone(), judge)?;

    let loss = |output: Option<FloatTensor<A>>, gradient: &str| {
        let gradient = float::<A>(case, gradient, dtype, device)?;
        Some(A::float_sum(A::float_mul(output?, gradient)))
    };
    let losses = [loss(outputs.output, "output_gradient"), loss(outputs.final_state, "state_gradient")];
    let Some(loss) = losses.into_iter().flatten().reduce(A::float_add) else { return Ok(()) };
    let gradients = A::backward(loss);
    let of = |tensor: Option<FloatTensor<A>>| A::grad(&tensor?, &gradients);
    let gradients = [
        of(inputs.source),
        of(inputs.recurrent_weight),
        of(inputs.input_weight),
        of(inputs.bias),
        of(inputs.init_state),
        of(inputs.secondary_bias),
    ];
    compare_gradients(Way::Autodiff, read_all::<A::InnerBackend, 6>(gradients)?, judge);
    Ok(())
}

fn inputs<B: Backend>(judge: &Judge, device: &B::Device) -> RecurrentInputs<B> {
    let float = |name| float::<B>(judge.case, name, judge.dtype, device);
    RecurrentInputs {
        source: float("source"),
        recurrent_weight: float("recurrent_weight"),
        input_weight: float("input_weight"),
        bias: float("bias"),
        init_state: float("init_state"),
        mask: float("mask"),
        secondary_bias: float("secondary_bias"),
        lengths: judge
            .case
            .inputs()
            .get("lengths")
            .map(|lengths| B::int_from_data(lengths.clone().convert_dtype(DType::I32), device)),
    }
}

fn float<B: Backend>(case: &Case, name: &str, dtype: DType, device: &B::Device) -> Option<FloatTensor<B>> {
    let data = case.inputs().get(name)?.clone().convert_dtype(dtype);
    Some(B::float_from_data(data, device))
}

fn compare_outputs<B: Backend>(
    way: Way,
    outputs: RecurrentOutputs<B>,
    judge: &mut Judge,
) -> Result<(), String> {
    for (name, tensor) in [("output", outputs.output), ("final_state", outputs.final_state)] {
        if judge.case.expected().contains_key(name) {
            judge.compare(way, name, tensor.map(read::<B>).transpose()?);
        }
    }
    Ok(())
}

fn read_all<B: Backend, const N: usize>(
    tensors: [Option<FloatTensor<B>>; N],
) -> Result<[Option<TensorData>; N], String> {
    let mut data = [const { None }; N];
    for (data, tensor) in data.iter_mut().zip(tensors) {
        *data = tensor.map(read::<B>).transpose()?;
    }
    Ok(data)
}

pub(crate) fn read<B: Backend>(tensor: FloatTensor<B>) -> Result<TensorData, String> {
    let shape = tensor.shape();
    try_read_sync(B::float_into_data(tensor))
        .ok_or("a result cannot be waited for")?
        .map_err(|error| format!("a result of shape {shape:?} cannot be read: {error}"))
}
