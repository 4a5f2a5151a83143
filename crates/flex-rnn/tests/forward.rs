//! The forward pass against the plain loop.

mod common;

use common::{LEVELS, Number, Tensors, assert_close, case, reference, rng, with_threads};

/// Sizes `[T, N, I, H]` around those of vectors, row groups, blocks and chunks.
const SIZES: [[usize; 4]; 18] = [
    [1, 1, 1, 1],
    [5, 1, 3, 7],
    [4, 2, 5, 16],
    [3, 3, 4, 17],
    [7, 8, 2, 5],
    [6, 9, 16, 33],
    [2, 17, 9, 48],
    [9, 4, 31, 64],
    [130, 1, 6, 20],
    [40, 5, 3, 12],
    [3, 26, 8, 40],
    [0, 3, 2, 4],
    [3, 0, 2, 4],
    [5, 12, 33, 80],
    // So few rows that the weights are not packed.
    [1, 4, 37, 50],
    [1, 3, 16, 32],
    [2, 2, 3, 7],
    [4, 1, 20, 65],
];

fn compare<T: Number>(seed: u64) {
    let mut rng = rng(seed);
    for [steps, batch, features, hidden] in SIZES {
        for _ in 0..12 {
            let case = case(&mut rng, steps, batch, features, hidden);
            let expected = reference(&case);
            let tensors = Tensors::<T>::new(&case);
            for level in LEVELS {
                for training in [false, true] {
                    let Some([output, final_state, z_state]) = tensors.forward(level, training) else {
                        continue;
                    };
                    let what = format!("{level:?} {:?} output", case.problem);
                    assert_close(&output, &expected.output, T::TOLERANCE, &what);
                    assert_close(&final_state, &expected.final_state, T::TOLERANCE, "final_state");
                    if training {
                        assert_close(&z_state, &expected.z_state, T::TOLERANCE, "z_state");
                    }
                }
            }
        }
    }
}

#[test]
fn f32_agrees_with_the_plain_loop() {
    compare::<f32>(1);
}

#[test]
fn f64_agrees_with_the_plain_loop() {
    compare::<f64>(2);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut rng = rng(3);
    // Large enough for threads to be used, by rows and by units.
    for [steps, batch, features, hidden] in
        [[40, 1, 96, 128], [12, 3, 64, 112], [6, 19, 64, 100], [3, 64, 32, 96]]
    {
        for _ in 0..10 {
            let case = case(&mut rng, steps, batch, features, hidden);
            let tensors = Tensors::<f32>::new(&case);
            for level in LEVELS {
                let run = |threads| with_threads(threads, || tensors.forward(level, true));
                let Some(expected) = run(1) else { continue };
                for threads in [2, 3, 8] {
                    let got = run(threads).expect("ran before");
                    for (got, expected) in got.iter().zip(&expected) {
                        assert!(
                            got.iter()
                                .zip(expected)
                                .all(|(got, expected)| got.to_bits() == expected.to_bits()),
                            "{level:?}, {threads} threads, {:?}",
                            case.problem
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn threaded_results_agree_with_the_plain_loop() {
    let mut rng = rng(4);
    for [steps, batch, features, hidden] in [[40, 1, 96, 128], [6, 19, 64, 100]] {
        for _ in 0..6 {
            let case = case(&mut rng, steps, batch, features, hidden);
            let expected = reference(&case);
            let tensors = Tensors::<f64>::new(&case);
            for level in LEVELS {
                let got = with_threads(3, || tensors.forward(level, true));
                let Some([output, final_state, z_state]) = got else { continue };
                assert_close(&output, &expected.output, 1e-12, "output");
                assert_close(&final_state, &expected.final_state, 1e-12, "final_state");
                assert_close(&z_state, &expected.z_state, 1e-12, "z_state");
            }
        }
    }
}

#[test]
fn padding_may_hold_anything() {
    let mut rng = rng(5);
    for _ in 0..40 {
        let mut case = case(&mut rng, 6, 5, 4, 9);
        case.lengths = Some(vec![6, 0, 3, 1, 5]);
        let clean = Tensors::<f64>::new(&case);
        let mut padded = Tensors::<f64>::new(&case);
        for (time, lengths) in std::iter::repeat_n(&case.lengths, 6).enumerate() {
            for (row, &length) in lengths.iter().flatten().enumerate() {
                if time >= length {
                    let features = case.problem.features;
                    padded.source[(time * 5 + row) * features..][..features].fill(f64::NAN);
                    if let Some((true, mask)) = &mut padded.mask {
                        let state = case.problem.state();
                        mask[(time * 5 + row) * state..][..state].fill(f64::NAN);
                    }
                }
            }
        }
        for level in LEVELS {
            assert_eq!(clean.forward(level, true), padded.forward(level, true));
        }
    }
}

#[test]
fn nan_and_infinity_pass_through_the_activations() {
    use flex_rnn::Activation::*;
    for level in LEVELS {
        for (activation, expected) in [
            (None, [f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
            (Relu, [f32::NAN, f32::INFINITY, 0.0]),
            (Tanh, [f32::NAN, 1.0, -1.0]),
            (Sigmoid, [f32::NAN, 1.0, 0.0]),
            (HardSigmoid { alpha: 0.2, beta: 0.5 }, [f32::NAN, 1.0, 0.0]),
        ] {
            let mut values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            if flex_rnn::activate_with(level, activation, &mut values) {
                assert!(values[0].is_nan(), "{level:?} {activation:?}");
                assert_eq!(values[1..], expected[1..], "{level:?} {activation:?}");
            }
        }
    }
}
