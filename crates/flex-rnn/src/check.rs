//! Sizes of slices: everything that the kernels' pointers rely on.

use crate::{Cell, Gradients, Inputs, Mask, Outputs, Problem, Saved};

fn size(name: &str, got: usize, axes: &[usize]) {
    let expected: usize = axes.iter().product();
    assert!(got == expected, "`{name}` must have {expected} elements, {axes:?}, got {got}");
}

fn inputs<T>(problem: &Problem, inputs: &Inputs<'_, T>, identity: bool) {
    let Problem { steps, batch, features, hidden, .. } = *problem;
    assert!(hidden > 0, "`hidden` must be from 1 up, got 0");
    if let Some(source) = inputs.source {
        size("source", source.len(), &[steps, batch, features]);
    }
    size(
        "recurrent_weight",
        inputs.recurrent_weight.len(),
        &[problem.directions(), problem.direction_gates(), hidden],
    );
    match inputs.input_weight {
        Some(weight) => size("input_weight", weight.len(), &[problem.all_gates(), features]),
        // Its own gradient does not need it.
        None if !identity => {}
        None => {
            let gates = problem.all_gates();
            assert!(
                features == gates,
                "`features` must be D·GH = {gates} without `input_weight`, got {features}"
            );
        }
    }
    if let Some(bias) = inputs.bias {
        size("bias", bias.len(), &[problem.all_gates()]);
    }
    if let Some(state) = inputs.init_state {
        size("init_state", state.len(), &[batch, problem.state()]);
    }
    match inputs.mask {
        Some(Mask::Constant(mask)) => size("mask", mask.len(), &[batch, problem.state()]),
        Some(Mask::PerStep(mask)) => size("mask", mask.len(), &[steps, batch, problem.state()]),
        None => {}
    }
    if let Some(bias) = inputs.secondary_bias {
        let after = matches!(problem.cell, Cell::Gru(gru) if gru.reset_after);
        assert!(after, "`secondary_bias` must be absent without `reset_after`");
        size("secondary_bias", bias.len(), &[problem.state()]);
    }
    if let Some(lengths) = inputs.lengths {
        size("lengths", lengths.len(), &[batch]);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        assert!(longest <= steps, "`lengths` must be at most T = {steps}, got {longest}");
    }
}

pub(crate) fn forward<T>(problem: &Problem, tensors: &Inputs<'_, T>, outputs: &Outputs<'_, T>) {
    let Problem { steps, batch, .. } = *problem;
    inputs(problem, tensors, true);
    assert!(tensors.source.is_some(), "`source` must be present");
    size("output", outputs.output.len(), &[steps, batch, problem.state()]);
    size("final_state", outputs.final_state.len(), &[batch, problem.state()]);
    if let Some(z_state) = &outputs.z_state {
        size("z_state", z_state.len(), &[steps, batch, problem.all_gates()]);
    }
}

pub(crate) fn backward<T>(
    problem: &Problem,
    tensors: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    gradients: &Gradients<'_, T>,
) {
    let Problem { steps, batch, features, hidden, .. } = *problem;
    inputs(problem, tensors, gradients.input_weight.is_none() || gradients.source.is_some());
    size("z_state", saved.z_state.len(), &[steps, batch, problem.all_gates()]);
    match saved.output {
        Some(output) => size("output", output.len(), &[steps, batch, problem.state()]),
        None => assert!(matches!(problem.cell, Cell::SingleGate(_)), "a GRU needs its `output`"),
    }
    if let Some(gradient) = saved.output_gradient {
        size("output_gradient", gradient.len(), &[steps, batch, problem.state()]);
    }
    if let Some(gradient) = saved.state_gradient {
        size("state_gradient", gradient.len(), &[batch, problem.state()]);
    }
    let wanted = |name: &str, gradient: &Option<&mut [std::mem::MaybeUninit<T>]>, axes: &[usize]| {
        if let Some(gradient) = gradient {
            size(name, gradient.len(), axes);
        }
    };
    let gates = problem.all_gates();
    wanted("source gradient", &gradients.source, &[steps, batch, features]);
    wanted("recurrent_weight gradient", &gradients.recurrent_weight, &[gates, hidden]);
    wanted("input_weight gradient", &gradients.input_weight, &[gates, features]);
    wanted("bias gradient", &gradients.bias, &[gates]);
    wanted("init_state gradient", &gradients.init_state, &[batch, problem.state()]);
    wanted("secondary_bias gradient", &gradients.secondary_bias, &[problem.state()]);
    if gradients.input_weight.is_some() {
        assert!(tensors.source.is_some(), "the gradient of `input_weight` needs `source`");
    }
    if gradients.secondary_bias.is_some() {
        let after = matches!(problem.cell, Cell::Gru(gru) if gru.reset_after);
        assert!(after, "the gradient of `secondary_bias` needs `reset_after`");
    }
}
