//! A C interface to the `f32` operations, as a shared library: what another language's program, such as a
//! script that times other libraries in the same process, loads.
//!
//! Both cells are PyTorch's: a GRU with the gates r, z, n and `reset_after`, or a tanh RNN.

use std::mem::MaybeUninit;

use flex_rnn::{Activation, Cell, Gradients, Gru, Inputs, Outputs, Problem, Saved};

fn problem(gru: bool, steps: usize, batch: usize, features: usize, hidden: usize) -> Problem {
    let cell = if gru {
        Cell::Gru(Gru {
            reset_gate_first: true,
            reset_after: true,
            flip_z: false,
            update: Activation::Sigmoid,
            reset: Activation::Sigmoid,
            output: Activation::Tanh,
        })
    } else {
        Cell::SingleGate(Activation::Tanh)
    };
    Problem { steps, batch, features, hidden, reverse: false, bidirectional: false, cell, clip: None }
}

fn room(count: usize) -> Vec<f32> {
    Vec::with_capacity(count)
}

fn slots(values: &mut Vec<f32>, count: usize) -> &mut [MaybeUninit<f32>] {
    &mut values.spare_capacity_mut()[..count]
}

/// Runs a cell over `source`, into results that it allocates, as an operation of a framework would. Copies the
/// output to `output` unless that is null.
///
/// # Safety
///
/// The pointers must have as many elements as the sizes say: `source` T·N·I, `weights` the input weight G·H·I,
/// the recurrent weight G·H·H, the bias G·H and, for a GRU, the secondary bias H in turn, `output` T·N·H.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flex_rnn_forward(
    gru: bool,
    steps: usize,
    batch: usize,
    features: usize,
    hidden: usize,
    source: *const f32,
    weights: *const f32,
    output: *mut f32,
) {
    let problem = problem(gru, steps, batch, features, hidden);
    // SAFETY: the caller answers for the sizes.
    let source = unsafe { std::slice::from_raw_parts(source, steps * batch * features) };
    let inputs = inputs(gru, &problem, source, weights);
    let (mut out, mut last) = (room(steps * batch * hidden), room(batch * hidden));
    let outputs = Outputs {
        output: slots(&mut out, steps * batch * hidden),
        final_state: slots(&mut last, batch * hidden),
        z_state: None,
    };
    flex_rnn::forward(&problem, &inputs, outputs);
    if !output.is_null() {
        // SAFETY: as above.
        unsafe { output.copy_from_nonoverlapping(out.as_ptr(), steps * batch * hidden) };
    }
}

fn inputs<'a>(gru: bool, problem: &Problem, source: &'a [f32], weights: *const f32) -> Inputs<'a, f32> {
    let gates = problem.all_gates();
    let Problem { features, hidden, .. } = *problem;
    // SAFETY: the caller of the exported function answers for the sizes.
    let slice = |start: usize, count: usize| unsafe { std::slice::from_raw_parts(weights.add(start), count) };
    let recurrent = gates * features;
    let bias = recurrent + gates * hidden;
    Inputs {
        source: Some(source),
        recurrent_weight: slice(recurrent, gates * hidden),
        input_weight: Some(slice(0, gates * features)),
        bias: Some(slice(bias, gates)),
        init_state: None,
        mask: None,
        secondary_bias: gru.then(|| slice(bias + gates, hidden)),
        lengths: None,
    }
}

/// A training step: forward with its training state, and the gradients of all inputs for an output gradient of
/// ones. Copies the source's and the weights' gradients out unless the pointers are null.
///
/// # Safety
///
/// As for [`flex_rnn_forward`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flex_rnn_train(
    gru: bool,
    steps: usize,
    batch: usize,
    features: usize,
    hidden: usize,
    source: *const f32,
    weights: *const f32,
    source_gradient: *mut f32,
    weights_gradient: *mut f32,
) {
    let problem = problem(gru, steps, batch, features, hidden);
    let gates = problem.all_gates();
    let rows = steps * batch;
    // SAFETY: the caller answers for the sizes.
    let source = unsafe { std::slice::from_raw_parts(source, rows * features) };
    let inputs = inputs(gru, &problem, source, weights);
    let (mut out, mut last, mut z_state) = (room(rows * hidden), room(batch * hidden), room(rows * gates));
    let outputs = Outputs {
        output: slots(&mut out, rows * hidden),
        final_state: slots(&mut last, batch * hidden),
        z_state: Some(slots(&mut z_state, rows * gates)),
    };
    flex_rnn::forward(&problem, &inputs, outputs);
    // SAFETY: written by `forward`.
    unsafe {
        out.set_len(rows * hidden);
        z_state.set_len(rows * gates);
    }
    let ones = vec![1.0f32; rows * hidden];
    let saved =
        Saved { z_state: &z_state, output: Some(&out), output_gradient: Some(&ones), state_gradient: None };
    let sizes = [rows * features, gates * features, gates * hidden, gates, if gru { hidden } else { 0 }];
    let mut gradients = sizes.map(room);
    let [source, input_weight, recurrent_weight, bias, secondary_bias] = &mut gradients;
    let wanted = Gradients {
        source: Some(slots(source, sizes[0])),
        input_weight: Some(slots(input_weight, sizes[1])),
        recurrent_weight: Some(slots(recurrent_weight, sizes[2])),
        bias: Some(slots(bias, sizes[3])),
        init_state: None,
        secondary_bias: gru.then(|| slots(secondary_bias, sizes[4])),
    };
    flex_rnn::backward(&problem, &inputs, &saved, wanted);
    if !source_gradient.is_null() && !weights_gradient.is_null() {
        let mut to = weights_gradient;
        // SAFETY: the caller answers for the sizes.
        unsafe {
            source_gradient.copy_from_nonoverlapping(gradients[0].as_ptr(), sizes[0]);
            for (gradient, size) in gradients.iter().zip(sizes).skip(1) {
                to.copy_from_nonoverlapping(gradient.as_ptr(), size);
                to = to.add(size);
            }
        }
    }
}
