//! The backward pass against differences of the plain loop, and both precisions against each other.

mod common;

use common::{
    Case, GRADIENTS, LEVELS, Number, Reference, Tensors, assert_close, case, reference, rng, with_threads,
};
use flex_rnn::{Activation, Cell, Level};

/// The sum of all outputs, weighted by their gradients.
fn loss(case: &Case, reference: &Reference) -> f64 {
    let weigh = |values: &[f64], weights: &Option<Vec<f64>>| -> f64 {
        weights.iter().flatten().zip(values).map(|(weight, value)| weight * value).sum()
    };
    weigh(&reference.output, &case.output_gradient) + weigh(&reference.final_state, &case.state_gradient)
}

/// Central differences with Richardson's extrapolation: an error of order ε⁴.
fn differences(case: &Case, pick: impl Fn(&mut Case) -> &mut [f64]) -> Vec<f64> {
    let mut case = case.clone();
    let count = pick(&mut case).len();
    (0..count)
        .map(|index| {
            let mut slope = |step: f64| {
                let value = pick(&mut case)[index];
                let mut at = |value: f64| {
                    pick(&mut case)[index] = value;
                    loss(&case, &reference(&case))
                };
                let slope = (at(value + step) - at(value - step)) / (2.0 * step);
                pick(&mut case)[index] = value;
                slope
            };
            (4.0 * slope(5e-4) - slope(1e-3)) / 3.0
        })
        .collect()
}

/// Activations without a kink, which differences would step across.
fn smooth(case: &mut Case) {
    let smooth = |activation: &mut Activation| {
        if matches!(activation, Activation::Relu | Activation::HardSigmoid { .. }) {
            *activation = Activation::Sigmoid;
        }
    };
    match &mut case.problem.cell {
        Cell::Gru(gru) => [&mut gru.update, &mut gru.reset, &mut gru.output].into_iter().for_each(smooth),
        Cell::SingleGate(activation) => smooth(activation),
    }
    case.problem.clip = None;
    if case.init_state.is_none() {
        case.init_state = Some(vec![0.0; case.problem.batch * case.problem.state()]);
    }
}

fn gradients<T: Number>(case: &Case, tensors: &Tensors<T>, level: Level) -> Option<[Vec<T>; 6]> {
    let [output, _, z_state] = tensors.forward(level, true)?;
    // A single-gate RNN's gradients can do without the output.
    let gru = matches!(case.problem.cell, Cell::Gru(_));
    let with = tensors.backward(level, &z_state, Some(&output));
    if !gru {
        assert_eq!(with, tensors.backward(level, &z_state, None), "{level:?} {:?}", case.problem);
    }
    with
}

#[test]
fn gradients_are_those_of_the_plain_loop() {
    let mut rng = rng(11);
    for [steps, batch, features, hidden] in
        [[1, 1, 1, 1], [4, 3, 2, 3], [3, 2, 3, 5], [6, 1, 2, 4], [3, 9, 2, 3]]
    {
        for _ in 0..14 {
            let mut case = case(&mut rng, steps, batch, features, hidden);
            smooth(&mut case);
            let tensors = Tensors::<f64>::new(&case);
            let mut expected = vec![
                differences(&case, |case| &mut case.source),
                differences(&case, |case| &mut case.recurrent_weight),
            ];
            expected.push(differences(&case, |case| case.input_weight.as_deref_mut().unwrap_or_default()));
            expected.push(differences(&case, |case| case.bias.as_deref_mut().unwrap_or_default()));
            expected.push(differences(&case, |case| case.init_state.as_deref_mut().unwrap_or_default()));
            expected.push(differences(&case, |case| case.secondary_bias.as_deref_mut().unwrap_or_default()));
            for level in LEVELS {
                let Some(got) = gradients(&case, &tensors, level) else { continue };
                for ((got, expected), name) in got.iter().zip(&expected).zip(GRADIENTS) {
                    assert_close(got, expected, 1e-8, &format!("{level:?} {:?} {name}", case.problem));
                }
            }
        }
    }
}

/// Sizes beyond vectors, row groups, panels and chunks, with every activation and clipping: f64 scalar kernels,
/// whose formulas the test above has checked, stand for all others.
#[test]
fn all_kernels_agree() {
    let mut rng = rng(12);
    for [steps, batch, features, hidden] in [
        [5, 4, 3, 17],
        [3, 11, 40, 33],
        [2, 30, 17, 64],
        [60, 20, 5, 24],
        [1100, 1, 3, 10],
        [0, 2, 3, 4],
        [2, 0, 3, 4],
    ] {
        for _ in 0..12 {
            let case = case(&mut rng, steps, batch, features, hidden);
            let tensors = Tensors::<f64>::new(&case);
            let expected = gradients(&case, &tensors, Level::Scalar).expect("runs anywhere");
            for level in LEVELS {
                let Some(got) = gradients(&case, &tensors, level) else { continue };
                for ((got, expected), name) in got.iter().zip(&expected).zip(GRADIENTS) {
                    assert_close(got, expected, 1e-11, &format!("{level:?} {:?} {name}", case.problem));
                }
            }
        }
    }
}

#[test]
fn f32_agrees_with_f64() {
    let mut rng = rng(13);
    for [steps, batch, features, hidden] in [[5, 4, 3, 17], [3, 11, 40, 33], [30, 2, 17, 64]] {
        for _ in 0..12 {
            let mut case = case(&mut rng, steps, batch, features, hidden);
            // At a kink the two would take different sides.
            smooth(&mut case);
            // An update gate outside 0 to 1 makes the state, and every rounding, grow with each step.
            if let Cell::Gru(gru) = &mut case.problem.cell
                && steps > 10
            {
                gru.update = Activation::Sigmoid;
            }
            let double = Tensors::<f64>::new(&case);
            let single = Tensors::<f32>::new(&case);
            for level in LEVELS {
                let Some(expected) = gradients(&case, &double, level) else { continue };
                let got = gradients(&case, &single, level).expect("runs in f64");
                for ((got, expected), name) in got.iter().zip(&expected).zip(GRADIENTS) {
                    assert_close(got, expected, 1e-5, &format!("{level:?} {:?} {name}", case.problem));
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut rng = rng(14);
    for [steps, batch, features, hidden] in
        [[40, 1, 96, 128], [12, 3, 64, 112], [6, 19, 64, 100], [20, 64, 32, 96]]
    {
        for _ in 0..8 {
            let case = case(&mut rng, steps, batch, features, hidden);
            let tensors = Tensors::<f32>::new(&case);
            for level in LEVELS {
                let run = |threads| with_threads(threads, || gradients(&case, &tensors, level));
                let Some(expected) = run(1) else { continue };
                for threads in [2, 3, 8] {
                    let got = run(threads).expect("ran before");
                    for ((got, expected), name) in got.iter().zip(&expected).zip(GRADIENTS) {
                        assert!(
                            got.iter()
                                .zip(expected)
                                .all(|(got, expected)| got.to_bits() == expected.to_bits()),
                            "{level:?}, {threads} threads, {name}, {:?}",
                            case.problem
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn padding_may_hold_anything() {
    let mut rng = rng(15);
    for _ in 0..40 {
        let mut case = case(&mut rng, 6, 5, 4, 9);
        case.lengths = Some(vec![6, 0, 3, 1, 5]);
        let clean = Tensors::<f64>::new(&case);
        let mut padded = Tensors::<f64>::new(&case);
        let state = case.problem.state();
        for time in 0..6 {
            for (row, &length) in case.lengths.iter().flatten().enumerate() {
                if time >= length {
                    let features = case.problem.features;
                    padded.source[(time * 5 + row) * features..][..features].fill(f64::NAN);
                    if let Some((true, mask)) = &mut padded.mask {
                        mask[(time * 5 + row) * state..][..state].fill(f64::NAN);
                    }
                    if let Some(gradient) = &mut padded.output_gradient {
                        gradient[(time * 5 + row) * state..][..state].fill(f64::NAN);
                    }
                }
            }
        }
        for level in LEVELS {
            assert_eq!(gradients(&case, &clean, level), gradients(&case, &padded, level));
        }
    }
}
