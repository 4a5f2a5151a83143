//! The backward pass: launches of the walk back, and what the recurrent weight's gradient is made of.

mod entered;
mod walk;

use cubecl::{prelude::*, server::Handle};

use crate::{
    Cell, Options, Sizes, Strategy,
    launch::{buffer, maybe, submit},
    plan::{Phase, Plan},
    slots::prepare,
    strategy::{Pass, grid, plan},
};
use entered::{EnteredInputsLaunch, UNITS};
use walk::{WalkExchangeLaunch, WalkInputsLaunch, WalkOutputsLaunch, walk_backward};

/// What the backward pass reads: contiguous buffers of one element type, f32, f16 or bf16.
#[derive(Clone, Debug)]
pub struct BackwardInputs {
    /// `[T, N, D·GH]`, from the forward pass.
    pub z_state: Handle,
    /// `[D, GH, H]`
    pub recurrent_weight: Handle,
    /// `[T, N, D·H]`, from the forward pass; of a GRU only.
    pub output: Option<Handle>,
    /// `[T, N, D·H]`, the output gate's recurrent product, `(h[t-1]∘m) Roᵀ`; with `reset_after` only.
    pub candidate: Option<Handle>,
    /// `[D·H]`, with `reset_after`; absent: zero.
    pub secondary_bias: Option<Handle>,
    /// `[N, D·H]`; absent: zero.
    pub init_state: Option<Handle>,
    /// `[N, D·H]` or, with `mask_steps`, `[T, N, D·H]`; absent: one.
    pub mask: Option<Handle>,
    /// Whether the mask has a time axis.
    pub mask_steps: bool,
    /// `[N]`, 32-bit integers from 0 to `T`; absent: all `T`.
    pub lengths: Option<Handle>,
    /// `[T, N, D·H]`, the gradient of the output; absent: zero.
    pub output_gradient: Option<Handle>,
    /// `[N, D·H]`, the gradient of the final state; absent: zero.
    pub state_gradient: Option<Handle>,
}

/// What the backward pass writes: contiguous buffers of the inputs' element type.
#[derive(Clone, Debug)]
pub struct BackwardOutputs {
    /// `[T, N, D·GH]`, the gradient of the gates' pre-activations.
    pub gates: Handle,
    /// `[T, N, D·H]`, the gradient of the output gate's recurrent product; with `reset_after`.
    pub candidate: Option<Handle>,
    /// `[N, D·H]`, the gradient of the initial state, if wanted.
    pub init_state: Option<Handle>,
}

/// What is read to tell what entered the recurrent products: as for the backward pass.
#[derive(Clone, Debug)]
pub struct EnteredInputs {
    /// `[T, N, D·GH]`
    pub z_state: Handle,
    /// `[T, N, D·H]`, of a GRU only.
    pub output: Option<Handle>,
    /// `[N, D·H]`; absent: zero.
    pub init_state: Option<Handle>,
    /// `[N, D·H]` or, with `mask_steps`, `[T, N, D·H]`; absent: one.
    pub mask: Option<Handle>,
    /// Whether the mask has a time axis.
    pub mask_steps: bool,
    /// `[N]`, 32-bit integers from 0 to `T`; absent: all `T`.
    pub lengths: Option<Handle>,
}

/// What entered the recurrent products, in contiguous buffers `[T, N, D·H]`.
#[derive(Clone, Debug)]
pub struct EnteredOutputs {
    /// `h[t-1] ∘ m`
    pub masked: Handle,
    /// `h[t-1] ∘ m ∘ r`, of a GRU without `reset_after`.
    pub reset: Option<Handle>,
}

/// Walks a cell back over all steps. `sizes` must have a step, a row and a unit.
pub fn backward(
    client: &Client,
    cell: Cell,
    sizes: Sizes,
    inputs: BackwardInputs,
    outputs: BackwardOutputs,
    dtype: ElemType,
    options: impl Into<Options>,
) {
    let (plan, stride) = plan(client, cell, &sizes, inputs.mask_steps, Pass::Backward, &options.into());
    // One iteration more leaves the initial state's gradient.
    let iterations = sizes.steps + outputs.init_state.is_some() as usize;
    let launches = plan.exchange || stride < iterations;
    let rows = sizes.batch * plan.cell.directions();
    let scratch = |per_row: usize| client.empty(4 * rows * per_row);
    let depth = plan.backward_product().depth;
    let slots = if plan.meets { stride.min(iterations) + 1 } else { 2 };
    let between = Between {
        carried: launches.then(|| scratch(sizes.hidden)),
        passed: launches.then(|| scratch(slots * depth)),
        handed: (plan.exchange && cell.two_phase()).then(|| scratch(sizes.hidden)),
        slots,
    };
    let launch = |phase: Phase, first: usize, last: usize| {
        let plan = Plan { phase, ..plan };
        let (count, dim) = grid(&plan, &sizes);
        if plan.meets
            && let Some(passed) = &between.passed
        {
            prepare(client, passed, rows * depth, slots, first.min(slots - 1));
        }
        let (inputs, outputs, exchange) = arguments(&plan, &sizes, &inputs, &outputs, &between);
        // SAFETY: the kernel guards its accesses by the sizes that the buffers are documented to have.
        unsafe {
            walk_backward::launch_unchecked(
                client,
                count,
                dim,
                plan.width(),
                inputs,
                outputs,
                exchange,
                sizes.steps as u32,
                sizes.batch as u32,
                first as u32,
                last as u32,
                plan,
                dtype,
            )
        }
    };
    for first in (0..iterations).step_by(stride) {
        let last = (first + stride).min(iterations);
        if between.handed.is_none() {
            launch(Phase::Whole, first, last);
        } else {
            launch(Phase::First, first, last);
            if first < sizes.steps {
                launch(Phase::Second, first, last);
            }
        }
        if stride > 1 && last < iterations {
            submit(client);
        }
    }
}

/// Buffers between launches.
struct Between {
    carried: Option<Handle>,
    passed: Option<Handle>,
    handed: Option<Handle>,
    slots: usize,
}

fn arguments<E: Float>(
    plan: &Plan,
    sizes: &Sizes,
    inputs: &BackwardInputs,
    outputs: &BackwardOutputs,
    between: &Between,
) -> (WalkInputsLaunch<E>, WalkOutputsLaunch<E>, WalkExchangeLaunch) {
    let rows = sizes.steps * sizes.batch;
    let (state, gates) = (plan.state(), plan.gates());
    let mask_rows = if inputs.mask_steps { rows } else { sizes.batch };
    let directions = plan.cell.directions();
    let passed = between.slots * sizes.batch * directions * plan.backward_product().depth;
    (
        WalkInputsLaunch::new(
            buffer(&inputs.z_state, rows * gates),
            buffer(&inputs.recurrent_weight, gates * sizes.hidden),
            maybe(&inputs.output, rows * state),
            maybe(&inputs.candidate, rows * state),
            maybe(&inputs.secondary_bias, state),
            maybe(&inputs.init_state, sizes.batch * state),
            maybe(&inputs.mask, mask_rows * state),
            maybe(&inputs.lengths, sizes.batch),
            maybe(&inputs.output_gradient, rows * state),
            maybe(&inputs.state_gradient, sizes.batch * state),
        ),
        WalkOutputsLaunch::new(
            buffer(&outputs.gates, rows * gates),
            maybe(&outputs.candidate, rows * state),
            maybe(&outputs.init_state, sizes.batch * state),
        ),
        WalkExchangeLaunch::new(
            maybe(&between.carried, sizes.batch * state),
            maybe(&between.passed, passed),
            maybe(&between.handed, sizes.batch * state),
        ),
    )
}

/// Computes what entered the recurrent products. `sizes` must have a step, a row and a unit.
///
pub fn entered(
    client: &Client,
    cell: Cell,
    sizes: Sizes,
    inputs: &EnteredInputs,
    outputs: &EnteredOutputs,
    dtype: ElemType,
) {
    let Sizes { steps, batch, hidden } = sizes;
    // Of the plan, the kernel only asks for sizes and the mask's layout.
    let (plan, _) = plan(client, cell, &sizes, inputs.mask_steps, Pass::Backward, &Strategy::Steps.into());
    let rows = steps * batch;
    let (state, gates) = (plan.state(), plan.gates());
    let mask_rows = if inputs.mask_steps { rows } else { batch };
    let needs_z_state = cell.gates() == 1 || outputs.reset.is_some();
    let z_state = needs_z_state.then(|| inputs.z_state.clone());
    let count = CubeCount::Static(
        (batch * hidden).div_ceil(UNITS) as u32,
        steps.min(u16::MAX as usize) as u32,
        cell.directions() as u32,
    );
    // SAFETY: the kernel guards its accesses by the sizes that the buffers are documented to have.
    unsafe {
        entered::entered::launch_unchecked(
            client,
            count,
            CubeDim::new_1d(UNITS as u32),
            EnteredInputsLaunch::new(
                maybe(&z_state, rows * gates),
                maybe(&inputs.output, rows * state),
                maybe(&inputs.init_state, batch * state),
                maybe(&inputs.mask, mask_rows * state),
                maybe(&inputs.lengths, batch),
            ),
            buffer(&outputs.masked, rows * state),
            maybe(&outputs.reset, rows * state),
            steps as u32,
            batch as u32,
            plan,
            dtype,
        )
    }
}
