//! Empty, extreme and padded inputs.

use burn::tensor::Tensor;
use burn_rnn::{Activation, GruDescriptor, Lengths, SingleGateRnnDescriptor};

use crate::{
    devices,
    problem::{
        DIFFERENTIABLE, Data, Loss, MaskAxes, Problem, Values, assert_all_close, assert_close, values,
    },
};

/// Both cells, in one direction, backwards and in both.
fn problems() -> Vec<Problem> {
    let mut problems = Vec::new();
    for (reverse, bidirectional) in [(false, false), (true, false), (false, true)] {
        for reset_after in [false, true] {
            let descriptor = GruDescriptor { reverse, bidirectional, reset_after, ..Default::default() };
            problems.push(Problem::new(descriptor));
        }
        let activation = Activation::Tanh;
        let descriptor = SingleGateRnnDescriptor { reverse, bidirectional, activation, ..Default::default() };
        problems.push(Problem::new(descriptor));
    }
    problems
}

fn zeros(shape: &[usize]) -> Values {
    Values { shape: shape.to_vec(), values: vec![0.0; shape.iter().product()] }
}

#[test]
fn without_steps_or_rows_there_is_nothing_but_the_state() {
    for place in devices::all() {
        for problem in problems() {
            for [steps, batch] in [[0, 3], [4, 0], [0, 0]] {
                let problem = problem.clone().with_sizes([steps, batch, 2, 3]).with_lengths(vec![0; batch]);
                let problem = problem.with_mask(MaskAxes::PerStep);
                let data = problem.data();
                let shapes = problem.shapes();
                for (way, (outputs, gradient)) in [
                    problem.by_gradients(&data, &place.device, place.dtype, Loss::Both),
                    problem.by_autodiff(
                        &data,
                        &place.device.clone().autodiff(),
                        place.dtype,
                        Loss::Both,
                        |_| true,
                    ),
                ]
                .into_iter()
                .enumerate()
                {
                    let state = [batch, problem.state()];
                    assert_eq!(values(outputs.output), zeros(&[steps, batch, problem.state()]));
                    assert_close("state", &values(outputs.final_state), &data["init_state"], place.tolerance);
                    if way == 0 {
                        let z_state = values(outputs.z_state.unwrap());
                        assert_eq!(z_state, zeros(&[steps, batch, problem.gates()]));
                    }
                    for name in DIFFERENTIABLE.into_iter().filter(|name| data.contains_key(name)) {
                        let what = format!("gradient of {name}, T = {steps}, N = {batch}");
                        match name {
                            "init_state" => {
                                assert_eq!(gradient[name].shape, state);
                                assert_close(
                                    &what,
                                    &gradient[name],
                                    &data["state_gradient"],
                                    place.tolerance,
                                );
                            }
                            _ => assert_eq!(gradient[name], zeros(&shapes[name]), "{what}"),
                        }
                    }
                }
            }
        }
    }
}

/// Numbers at which a badly written sigmoid or tanh overflows.
#[test]
fn large_inputs_saturate() {
    for place in devices::all() {
        for problem in problems() {
            let mut data = problem.data();
            for scale in [1e2, 1e4, 1e30] {
                for value in &mut data.get_mut("source").unwrap().values {
                    *value = value.signum() * scale;
                }
                let (outputs, gradient) = problem.by_gradients(&data, &place.device, place.dtype, Loss::Both);
                let output = values(outputs.output);
                let finite = |values: &Values| values.values.iter().all(|value| value.is_finite());
                assert!(output.values.iter().all(|value| value.abs() <= 1.0), "{output:?}");
                for (name, gradient) in &gradient {
                    assert!(finite(gradient), "gradient of {name} at {scale}: {gradient:?}");
                }
                // Saturated activations pass no gradient on to the source.
                if scale >= 1e4 {
                    assert_close(
                        "gradient of source",
                        &gradient["source"],
                        &zeros(&gradient["source"].shape),
                        place.tolerance,
                    );
                }
            }
        }
    }
}

/// The elements of `[T, N, C]` that lie past their row's length.
fn padding(values: &Values, lengths: &[usize]) -> Vec<usize> {
    let [steps, batch, channels] = values.shape[..] else { panic!("no sequence: {:?}", values.shape) };
    let mut padding = Vec::new();
    for step in 0..steps {
        for row in 0..batch {
            if step >= lengths[row] {
                let start = (step * batch + row) * channels;
                padding.extend(start..start + channels);
            }
        }
    }
    padding
}

#[test]
fn padding_may_hold_anything() {
    let lengths = [4, 0, 2];
    for place in devices::all() {
        for problem in problems() {
            for absent in [vec![], vec!["input_weight"]] {
                let problem =
                    problem.clone().without(absent).with_mask(MaskAxes::PerStep).with_lengths(lengths);
                let clean = problem.data();
                let mut dirty: Data = clean.clone();
                for name in ["source", "mask", "output_gradient"] {
                    let values = dirty.get_mut(name).unwrap();
                    for index in padding(values, &lengths) {
                        values.values[index] = [f64::NAN, f64::INFINITY][index % 2];
                    }
                }
                let (want_outputs, want) =
                    problem.by_gradients(&clean, &place.device, place.dtype, Loss::Both);
                let (outputs, got) = problem.by_gradients(&dirty, &place.device, place.dtype, Loss::Both);
                let what = format!("{problem:?} on {place:?}");
                let output = values(outputs.output);
                for index in padding(&output, &lengths) {
                    assert_eq!(output.values[index], 0.0, "{what}");
                }
                assert_close(&what, &output, &values(want_outputs.output), place.tolerance);
                let state = values(outputs.final_state);
                assert_close(&what, &state, &values(want_outputs.final_state), place.tolerance);
                assert_all_close(&what, &got, &want, place.tolerance);
                for index in padding(&got["source"], &lengths) {
                    assert_eq!(got["source"].values[index], 0.0, "{what}");
                }

                // The loss of autodiff multiplies the output with its gradient, so that one stays clean.
                dirty.insert("output_gradient", clean["output_gradient"].clone());
                let device = place.device.clone().autodiff();
                let (_, got) = problem.by_autodiff(&dirty, &device, place.dtype, Loss::Both, |_| true);
                assert_all_close(&format!("autodiff, {what}"), &got, &want, place.tolerance);
            }
        }
    }
}

#[test]
fn full_lengths_are_no_lengths() {
    for place in devices::all() {
        for problem in problems() {
            let data = problem.data();
            let full = problem.clone().with_lengths(vec![problem.steps; problem.batch]);
            let (want_outputs, want) = problem.by_gradients(&data, &place.device, place.dtype, Loss::Both);
            let (outputs, got) = full.by_gradients(&data, &place.device, place.dtype, Loss::Both);
            let (output, want_output) = (values(outputs.output), values(want_outputs.output));
            assert_close("output", &output, &want_output, place.tolerance);
            assert_all_close("full lengths", &got, &want, place.tolerance);
        }
    }
}

/// A row with a length computes what the row alone would, cut off there.
#[test]
fn each_row_runs_its_own_steps() {
    let lengths = [4usize, 1, 3];
    let place = devices::flex();
    for problem in problems() {
        let problem = problem.with_lengths(lengths);
        let data = problem.data();
        let tensors = problem.tensors(&data, &place.device, place.dtype);
        let outputs = tensors.clone().forward(problem.cell, false).unwrap();
        for (row, length) in lengths.into_iter().enumerate() {
            let mut alone = tensors.clone();
            alone.lengths = None;
            alone.source = alone.source.slice([0..length, row..row + 1]);
            alone.init_state = alone.init_state.map(|state| state.narrow(0, row, 1));
            let alone = alone.forward(problem.cell, false).unwrap();
            let output = values(outputs.output.clone().slice([0..length, row..row + 1]));
            assert_close("output", &output, &values(alone.output), place.tolerance);
            let state = values(outputs.final_state.clone().narrow(0, row, 1));
            assert_close("final state", &state, &values(alone.final_state), place.tolerance);
        }
    }
}

#[test]
fn lengths_come_in_several_forms() {
    for place in devices::all() {
        let problem = Problem::new(GruDescriptor::default()).with_lengths([1, 4, 2]);
        let tensors = problem.tensors(&problem.data(), &place.device, place.dtype);
        let output = |lengths: Lengths| {
            let tensors = crate::problem::Tensors { lengths: Some(lengths), ..tensors.clone() };
            values(tensors.forward(problem.cell, false).unwrap().output)
        };
        let want = output(Lengths::Host(vec![1, 4, 2]));
        assert_eq!(output([1, 4, 2].into()), want);
        assert_eq!(output(vec![1, 4, 2].into()), want);
        for device in [&place.device, &place.device.clone().autodiff(), &burn::tensor::Device::flex()] {
            assert_eq!(output(Tensor::from_ints([1, 4, 2], device).into()), want);
        }
    }
}
