//! Equal inputs give equal bits.

use burn_rnn::{Activation, GruDescriptor, SingleGateRnnDescriptor};

use crate::{
    devices,
    problem::{Loss, MaskAxes, Problem, values},
};

#[test]
fn equal_inputs_give_equal_bits() {
    let gru = GruDescriptor { reset_after: true, ..Default::default() };
    let bidirectional = GruDescriptor { bidirectional: true, ..Default::default() };
    let rnn = SingleGateRnnDescriptor { activation: Activation::Tanh, ..Default::default() };
    let sizes = [9, 17, 5, 33];
    for place in devices::all() {
        for problem in [
            Problem::new(gru).with_sizes(sizes).with_mask(MaskAxes::Constant),
            Problem::new(bidirectional)
                .with_sizes(sizes)
                .with_lengths([9, 0, 4, 1, 7, 9, 9, 2, 3, 5, 6, 8, 9, 9, 0, 1, 2]),
            Problem::new(rnn).with_sizes(sizes),
            Problem::new(gru).with_sizes([2, 3, 4, 300]),
        ] {
            let data = problem.data();
            let run = || {
                let (outputs, gradient) = problem.by_gradients(&data, &place.device, place.dtype, Loss::Both);
                let states = [values(outputs.output), values(outputs.z_state.unwrap())];
                (states, values(outputs.final_state), gradient)
            };
            let first = run();
            for _ in 0..3 {
                assert!(run() == first, "another result for the same inputs: {problem:?} on {place:?}");
            }
        }
    }
}
