//! Gradients against central differences, in f64 on Flex and on NdArray: through the gradient operations and
//! through autodiff, over all options.

use burn::tensor::{DType, Device};
use burn_rnn::{Activation, Cell, GruDescriptor, SingleGateRnnDescriptor};

use crate::devices::{self, Place};
use crate::problem::{DIFFERENTIABLE, Data, Gradient, Loss, MaskAxes, Problem, Values, assert_all_close};

/// The step of the differences: small enough that no number crosses the kink of an activation or of the
/// clipping by chance, large enough that rounding stays well below the tolerance.
const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 2e-8;

const ACTIVATIONS: [Activation; 5] = [
    Activation::None,
    Activation::Relu,
    Activation::Tanh,
    Activation::Sigmoid,
    // Steep enough that numbers of this size lie on all three of its pieces.
    Activation::HardSigmoid { alpha: 0.7, beta: 0.45 },
];

/// Which way a cell runs, in the descriptors' options.
const DIRECTIONS: [(bool, bool); 3] = [(false, false), (true, false), (false, true)];

/// The gradient of every element of every input by central differences.
fn differences(problem: &Problem, data: &Data, device: &Device) -> Gradient {
    let mut gradient = Gradient::new();
    for name in DIFFERENTIABLE {
        let Some(input) = data.get(name) else { continue };
        let mut moved = data.clone();
        let values = (0..input.values.len()).map(|element| {
            let mut loss = |step: f64| {
                moved.get_mut(name).unwrap().values[element] = input.values[element] + step;
                problem.loss(&moved, device)
            };
            let difference = loss(STEP) - loss(-STEP);
            loss(0.0);
            difference / (2.0 * STEP)
        });
        gradient.insert(name, Values { shape: input.shape.clone(), values: values.collect() });
    }
    gradient
}

/// Compares both ways to the gradients with the differences, with a loss of both outputs.
fn check(problem: &Problem) {
    let data = problem.data();
    let want = differences(problem, &data, &Device::flex());
    let source = &want["source"].values;
    assert!(source.iter().any(|gradient| gradient.abs() > 1e-3), "nothing to compare: {problem:?}");

    for Place { device, dtype, .. } in [devices::flex(), devices::ndarray()] {
        let what = format!("{device:?}, {problem:?}");
        let (_, got) = problem.by_gradients(&data, &device, dtype, Loss::Both);
        assert_all_close(&format!("gradient operation on {what}"), &got, &want, TOLERANCE);
        let (_, got) = problem.by_autodiff(&data, &device.autodiff(), dtype, Loss::Both, |_| true);
        assert_all_close(&format!("autodiff on {what}"), &got, &want, TOLERANCE);
    }
}

/// One of several variants, a different one for each problem.
fn pick<T: Clone>(variants: &[T], index: usize) -> T {
    variants[index % variants.len()].clone()
}

/// Optional inputs, masks and lengths in turn, so that many problems meet many of their combinations.
fn vary(mut problem: Problem, index: usize) -> Problem {
    problem.seed = index as u64 + 1;
    problem.absent = pick(
        &[
            vec![],
            vec!["input_weight"],
            vec!["bias"],
            vec!["init_state"],
            vec!["secondary_bias"],
            vec!["input_weight", "bias", "init_state", "secondary_bias"],
            vec!["bias", "secondary_bias"],
        ],
        index,
    );
    problem.mask = pick(&[None, Some(MaskAxes::Constant), Some(MaskAxes::PerStep)], index);
    problem.lengths = pick(&[None, Some(vec![4, 1, 3]), None, Some(vec![0, 4, 2])], index);
    problem
}

#[test]
fn every_variant_of_the_gru() {
    let mut index = 0;
    for (reverse, bidirectional) in DIRECTIONS {
        for reset_gate_first in [false, true] {
            for reset_after in [false, true] {
                for flip_z in [false, true] {
                    for clip in [None, Some(0.3)] {
                        let descriptor = GruDescriptor {
                            reverse,
                            bidirectional,
                            reset_gate_first,
                            reset_after,
                            flip_z,
                            update_gate_activation: pick(&ACTIVATIONS, index),
                            reset_gate_activation: pick(&ACTIVATIONS, index / 2),
                            output_gate_activation: pick(&ACTIVATIONS, index / 3),
                            clip,
                            ..Default::default()
                        };
                        check(&vary(Problem::new(descriptor), index));
                        index += 1;
                    }
                }
            }
        }
    }
}

#[test]
fn every_activation_of_each_gate() {
    for (index, activation) in ACTIVATIONS.into_iter().enumerate() {
        for reset_after in [false, true] {
            let plain = GruDescriptor { reset_after, ..Default::default() };
            for descriptor in [
                GruDescriptor { update_gate_activation: activation, ..plain },
                GruDescriptor { reset_gate_activation: activation, ..plain },
                GruDescriptor { output_gate_activation: activation, ..plain },
            ] {
                check(&Problem { seed: index as u64, ..Problem::new(descriptor) });
            }
        }
    }
}

#[test]
fn every_variant_of_the_single_gate_rnn() {
    let mut index = 0;
    for (reverse, bidirectional) in DIRECTIONS {
        for activation in ACTIVATIONS {
            // Half of sigmoid's states lie beyond 0.5, all of them beyond 0.3.
            let bound = if activation == Activation::Sigmoid { 0.5 } else { 0.3 };
            for clip in [None, Some(bound)] {
                let descriptor = SingleGateRnnDescriptor {
                    reverse,
                    bidirectional,
                    activation,
                    clip,
                    ..Default::default()
                };
                check(&vary(Problem::new(descriptor), index));
                index += 1;
            }
        }
    }
}

#[test]
fn one_of_everything() {
    let gru = GruDescriptor { reset_after: true, ..Default::default() };
    check(&Problem::new(gru).with_sizes([1, 1, 1, 1]));
    check(&Problem::new(SingleGateRnnDescriptor::default()).with_sizes([1, 1, 1, 1]));
}

/// The clip of the problems above must bound some states and leave others.
#[test]
fn clipping_meets_states_on_both_sides() {
    let device = Device::flex();
    let gru = GruDescriptor { clip: Some(0.3), reset_after: true, ..Default::default() };
    let rnn = SingleGateRnnDescriptor { clip: Some(0.3), ..Default::default() };
    for problem in [Problem::new(gru), Problem::new(rnn)] {
        let data = problem.data();
        let tensors = problem.tensors(&data, &device, DType::F64);
        let output = crate::problem::values(tensors.forward(problem.cell, false).unwrap().output);
        let bounded = output.values.iter().filter(|value| value.abs() == 0.3).count();
        assert!(output.values.iter().all(|value| value.abs() <= 0.3));
        assert!(bounded > 0 && bounded < output.values.len(), "{bounded} of {}", output.values.len());
    }
}

/// `z_state` of a single-gate RNN is its pre-activation, as Apple's operation returns it.
#[test]
fn z_state_of_a_single_gate_rnn_is_the_pre_activation() {
    let problem =
        Problem::new(SingleGateRnnDescriptor { activation: Activation::None, ..Default::default() });
    let (data, device) = (problem.data(), Device::flex());
    let (outputs, _) = problem.by_gradients(&data, &device, DType::F64, Loss::Both);
    let z_state = crate::problem::values(outputs.z_state.unwrap());
    assert_eq!(z_state, crate::problem::values(outputs.output));

    let Cell::SingleGate(descriptor) = problem.cell else { unreachable!() };
    let relu = Problem {
        cell: Cell::SingleGate(SingleGateRnnDescriptor { activation: Activation::Relu, ..descriptor }),
        ..problem
    };
    let (outputs, _) = relu.by_gradients(&data, &device, DType::F64, Loss::Both);
    let z_state = crate::problem::values(outputs.z_state.unwrap());
    let output = crate::problem::values(outputs.output);
    assert!(z_state.values.iter().any(|z| *z < 0.0));
    for (z, output) in z_state.values.iter().zip(&output.values) {
        assert_eq!(z.max(0.0), *output);
    }
}
