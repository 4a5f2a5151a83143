//! Autodiff: which gradients come back, for which losses, and how they meet the rest of a model.

use burn::{
    backend::{AutodiffBackend, Capture, DispatchDevice, ir::OperationIr, ops::FloatTensorOps},
    tensor::{DType, Device, Tensor, TensorData},
};
use burn_autodiff::Autodiff;
use burn_rnn::{Activation, GruDescriptor, RecurrentInputs, RecurrentOps, SingleGateRnnDescriptor};

use crate::{
    devices::{self, Place},
    problem::{
        DIFFERENTIABLE, Data, Gradient, Loss, MaskAxes, Problem, Recurrent, Values, assert_all_close,
        assert_close, tensor, values,
    },
};

fn gru() -> Problem {
    let descriptor = GruDescriptor { reset_after: true, ..Default::default() };
    Problem::new(descriptor).with_mask(MaskAxes::Constant).with_lengths([4, 2, 3])
}

fn bidirectional_gru() -> Problem {
    Problem::new(GruDescriptor { bidirectional: true, flip_z: true, ..Default::default() })
}

fn rnn() -> Problem {
    let descriptor = SingleGateRnnDescriptor { activation: Activation::Tanh, ..Default::default() };
    Problem::new(descriptor).with_mask(MaskAxes::PerStep)
}

/// Every subset of the inputs tracked: its gradients come back, right, and no others.
fn every_subset(problem: &Problem, place: &Place) {
    let device = place.device.clone().autodiff();
    let data = problem.data();
    let inputs: Vec<_> = DIFFERENTIABLE.into_iter().filter(|name| data.contains_key(name)).collect();
    let (_, all) = problem.by_autodiff(&data, &device, place.dtype, Loss::Both, |_| true);
    assert_eq!(all.len(), inputs.len());
    for subset in 1..1 << inputs.len() {
        let tracked = |name: &str| {
            inputs.iter().position(|input| *input == name).is_some_and(|bit| subset >> bit & 1 == 1)
        };
        let (_, got) = problem.by_autodiff(&data, &device, place.dtype, Loss::Both, tracked);
        let want: Gradient =
            all.iter().filter(|(name, _)| tracked(name)).map(|(name, want)| (*name, want.clone())).collect();
        assert_all_close(&format!("subset {subset:b} of {inputs:?}"), &got, &want, place.tolerance);
    }
}

#[test]
fn every_subset_of_a_grus_inputs_on_flex() {
    assert_eq!(gru().data().len(), 6 + 3, "all six inputs, the mask and two gradients");
    every_subset(&gru(), &devices::flex());
    every_subset(&bidirectional_gru(), &devices::flex());
}

#[test]
fn every_subset_of_a_grus_inputs_on_wgpu() {
    every_subset(&gru(), &devices::wgpu());
}

#[test]
fn every_subset_of_an_rnns_inputs_on_flex() {
    every_subset(&rnn(), &devices::flex());
}

#[test]
fn every_subset_of_an_rnns_inputs_on_wgpu() {
    every_subset(&rnn(), &devices::wgpu());
}

#[test]
fn without_a_tracked_input_nothing_is_tracked() {
    for place in devices::all() {
        let device = place.device.autodiff();
        let problem = gru();
        let outputs = problem.tensors(&problem.data(), &device, place.dtype).forward(problem.cell, false);
        let outputs = outputs.unwrap();
        assert!(!outputs.output.is_tracked() && !outputs.final_state.is_tracked());
        assert!(outputs.z_state.is_none());
    }
}

#[test]
fn a_loss_may_use_either_output_or_both() {
    for place in devices::all() {
        for problem in [gru(), bidirectional_gru(), rnn()] {
            let data = problem.data();
            let device = place.device.clone().autodiff();
            let gradients = [Loss::Output, Loss::State, Loss::Both].map(|loss| {
                let (_, got) = problem.by_autodiff(&data, &device, place.dtype, loss, |_| true);
                let (_, want) = problem.by_gradients(&data, &place.device, place.dtype, loss);
                assert_all_close(&format!("{loss:?}"), &got, &want, place.tolerance);
                got
            });
            // The losses differ, and the last is the sum of the others.
            let [output, state, both] = gradients;
            for (name, both) in &both {
                let sum = output[name].values.iter().zip(&state[name].values).map(|(a, b)| a + b);
                let sum = Values { shape: both.shape.clone(), values: sum.collect() };
                assert_close(name, &sum, both, place.tolerance);
                assert_ne!(output[name], *both);
            }
        }
    }
}

#[test]
fn an_output_may_be_used_more_than_once() {
    for place in devices::all() {
        let problem = gru();
        let (data, device) = (problem.data(), place.device.clone().autodiff());
        let gradient = |loss: &dyn Fn(Tensor<3>, Tensor<2>) -> Tensor<1>| {
            let mut tensors = problem.tensors(&data, &device, place.dtype);
            tensors.track(|_| true);
            let outputs = tensors.clone().forward(problem.cell, false).unwrap();
            tensors.gradient(&loss(outputs.output, outputs.final_state).backward())
        };
        let got = gradient(&|output, state| {
            output.clone().sum() + state.clone().sum() + (output * 2.0).sum() + (state * 3.0).sum()
        });
        let want = gradient(&|output, state| (output * 3.0).sum() + (state * 4.0).sum());
        assert_all_close("twice and once", &got, &want, place.tolerance);
    }
}

/// A sequence cut in two, the first part's final state being the second's initial one.
#[test]
fn gradients_pass_from_sequence_to_sequence() {
    for place in devices::all() {
        for problem in [
            Problem::new(GruDescriptor { reset_after: true, ..Default::default() }),
            Problem::new(SingleGateRnnDescriptor::default()),
        ] {
            let (data, device) = (problem.data(), place.device.clone().autodiff());
            let (outputs, want) = problem.by_autodiff(&data, &device, place.dtype, Loss::Both, |_| true);

            let mut tensors = problem.tensors(&data, &device, place.dtype);
            tensors.track(|_| true);
            let part = |steps: std::ops::Range<usize>, state: Option<Tensor<2>>| {
                let mut part = tensors.clone();
                part.source = part.source.slice([steps]);
                part.init_state = state.or(part.init_state);
                part.forward(problem.cell, false).unwrap()
            };
            let first = part(0..3, None);
            let second = part(3..4, Some(first.final_state));
            let output = Tensor::cat(vec![first.output, second.output], 0);
            let weights = |name: &str| &data[name];
            let loss = (output.clone() * tensor(weights("output_gradient"), &device, place.dtype)).sum()
                + (second.final_state * tensor::<2>(weights("state_gradient"), &device, place.dtype)).sum();
            let got = tensors.gradient(&loss.backward());
            assert_close("output", &values(output), &values(outputs.output), place.tolerance);
            assert_all_close("in two parts", &got, &want, place.tolerance);
        }
    }
}

/// Gradients of leaves from which every input is computed by operations that checkpointing recomputes.
fn through_memory_bound_operations(
    problem: &Problem,
    data: &Data,
    device: &Device,
    dtype: DType,
) -> Gradient {
    let mut leaves = problem.tensors(data, device, dtype);
    leaves.track(|_| true);
    fn moved<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
        (tensor * 1.5 + 0.25).tanh()
    }
    let mut tensors = leaves.clone();
    tensors.source = moved(tensors.source);
    tensors.recurrent_weight = match tensors.recurrent_weight {
        Recurrent::Two(weight) => Recurrent::Two(moved(weight)),
        Recurrent::Three(weight) => Recurrent::Three(moved(weight)),
    };
    tensors.input_weight = tensors.input_weight.map(moved);
    tensors.bias = tensors.bias.map(moved);
    tensors.init_state = tensors.init_state.map(moved);
    tensors.secondary_bias = tensors.secondary_bias.map(moved);
    let outputs = tensors.forward(problem.cell, false).unwrap();
    let loss = (moved(outputs.output) * tensor(&data["output_gradient"], device, dtype)).sum()
        + (moved(outputs.final_state) * tensor::<2>(&data["state_gradient"], device, dtype)).sum();
    leaves.gradient(&loss.backward())
}

#[test]
fn checkpointing_changes_no_gradient() {
    for place in devices::all() {
        for problem in [gru(), bidirectional_gru(), rnn()] {
            let data = problem.data();
            let keeping = place.device.clone().autodiff();
            let recomputing = keeping.clone().gradient_checkpointing();
            let want = through_memory_bound_operations(&problem, &data, &keeping, place.dtype);
            let got = through_memory_bound_operations(&problem, &data, &recomputing, place.dtype);
            assert_all_close("checkpointing", &got, &want, place.tolerance);
        }
    }
}

/// The operations that a graph holds, each with the number of tensors that it takes and returns: what
/// autodiff asked for.
fn captured(problem: &Problem, tracked: impl Fn(&str) -> bool, loss: Loss) -> Vec<(String, usize, usize)> {
    type Backend = Autodiff<Capture>;
    let device = Device::capture();
    let DispatchDevice::Capture(inner) = device.as_dispatch() else { unreachable!() };
    let data = problem.data();
    let graph = device.capture_scope(|scope| {
        let input = |name: &'static str| {
            let values = data.get(name)?;
            let data = TensorData::new(values.values.clone(), values.shape.clone()).convert::<f32>();
            let tensor = Backend::float_from_data(data, inner);
            Some(Backend::float_set_require_grad(tensor, tracked(name)))
        };
        let inputs = RecurrentInputs::<Backend> {
            source: input("source"),
            recurrent_weight: input("recurrent_weight"),
            input_weight: input("input_weight"),
            bias: input("bias"),
            init_state: input("init_state"),
            mask: input("mask"),
            secondary_bias: input("secondary_bias"),
            lengths: None,
        };
        let outputs = Backend::recurrent_forward(inputs, problem.cell, false);
        let output = Backend::float_sum(outputs.output.unwrap());
        let state = Backend::float_sum(outputs.final_state.unwrap());
        let result = match loss {
            Loss::Output => output,
            Loss::State => state,
            Loss::Both => Backend::float_add(output, state),
        };
        if DIFFERENTIABLE.into_iter().any(&tracked) {
            let _ = Backend::backward(result.clone());
        }
        let id = Backend::inner(result).id();
        scope.complete([], [id])
    });
    let operations = graph.unwrap().graph.operations;
    let operations = operations.into_iter().filter_map(|operation| match operation {
        OperationIr::Custom(desc) => Some((desc.id.clone(), desc.inputs.len(), desc.outputs.len())),
        _ => None,
    });
    operations.collect()
}

#[test]
fn only_what_is_needed_is_computed_and_kept() {
    // Source, five weights and states, and the mask.
    let problem = gru();
    let problem = Problem { lengths: None, ..problem };
    let (forward, backward) = ("rnn::recurrent_forward".to_string(), "rnn::recurrent_backward".to_string());
    let run = |tracked: &[&str], loss| captured(&problem, |name| tracked.contains(&name), loss);

    // Nothing tracked: no training state, no backward operation.
    assert_eq!(run(&[], Loss::Both), [(forward.clone(), 7, 2)]);
    // All six gradients; the backward operation has no use for the bias, but for the training state, the
    // output and the gradients of both outputs.
    let all = run(&DIFFERENTIABLE, Loss::Both);
    assert_eq!(all, [(forward.clone(), 7, 3), (backward.clone(), 6 + 4, 6)]);
    // One gradient less where a loss has no use for an output.
    assert_eq!(run(&DIFFERENTIABLE, Loss::Output)[1], (backward.clone(), 6 + 3, 6));
    assert_eq!(run(&DIFFERENTIABLE, Loss::State)[1], (backward.clone(), 6 + 3, 6));
    // The bias alone needs neither the source nor the input weight.
    assert_eq!(run(&["bias"], Loss::Output)[1], (backward.clone(), 4 + 3, 1));
    // The source's gradient needs the input weight, and the other way round.
    assert_eq!(run(&["source"], Loss::Output)[1], (backward.clone(), 5 + 3, 1));
    assert_eq!(run(&["input_weight"], Loss::Output)[1], (backward, 5 + 3, 1));
}
