//! The forward pass: launches of one kernel.

mod walk;

use cubecl::{prelude::*, server::Handle};

pub(crate) use walk::{
    Moment, Place, chunk_depth, first_row, mask_at, mix, moment, optional, place, runs, time_of,
    walks_backwards,
};

use crate::{
    Cell, Options, Sizes,
    launch::{buffer, maybe, submit},
    plan::{Phase, Plan},
    slots::prepare,
    strategy::{Pass, grid, plan},
};
use walk::{WalkExchangeLaunch, WalkInputsLaunch, WalkOutputsLaunch, walk_forward};

/// What the forward pass reads: contiguous buffers of one element type, f32, f16 or bf16.
#[derive(Clone, Debug)]
pub struct ForwardInputs {
    /// `[T, N, D·GH]`, the input product `x Wᵀ` of all steps.
    pub projected: Handle,
    /// `[D, H, GH]`, the transposed recurrent weight of each direction.
    pub recurrent_weight: Handle,
    /// `[D·GH]`; absent: zero.
    pub bias: Option<Handle>,
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
}

/// What the forward pass writes: contiguous buffers of the inputs' element type.
#[derive(Clone, Debug)]
pub struct ForwardOutputs {
    /// `[T, N, D·H]`
    pub output: Handle,
    /// `[N, D·H]`
    pub final_state: Handle,
    /// `[T, N, D·GH]`, if wanted: a GRU's activated gates in the order of its weights, a single-gate RNN's
    /// pre-activations.
    pub z_state: Option<Handle>,
}

/// Runs a cell over all steps. `sizes` must have a step, a row and a unit.
pub fn forward(
    client: &Client,
    cell: Cell,
    sizes: Sizes,
    inputs: ForwardInputs,
    outputs: ForwardOutputs,
    dtype: ElemType,
    options: impl Into<Options>,
) {
    let (plan, stride) = plan(client, cell, &sizes, inputs.mask_steps, Pass::Forward, &options.into());
    let slot = sizes.batch * plan.state();
    let slots = if plan.meets { stride.min(sizes.steps) + 1 } else { 2 };
    let between = Between {
        state: (plan.exchange || stride < sizes.steps).then(|| client.empty(4 * slots * slot)),
        handed: (plan.exchange && cell.two_phase()).then(|| client.empty(4 * 2 * slot)),
        slots,
    };
    let launch = |phase: Phase, first: usize, last: usize| {
        let plan = Plan { phase, ..plan };
        let (count, dim) = grid(&plan, &sizes);
        if plan.meets
            && let Some(state) = &between.state
        {
            prepare(client, state, slot, slots, first.min(slots - 1));
        }
        let (inputs, outputs, exchange) = arguments(&plan, &sizes, &inputs, &outputs, &between);
        // SAFETY: the kernel guards its accesses by the sizes that the buffers are documented to have.
        unsafe {
            walk_forward::launch_unchecked(
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
    for first in (0..sizes.steps).step_by(stride) {
        let last = (first + stride).min(sizes.steps);
        if between.handed.is_some() {
            launch(Phase::First, first, last);
            launch(Phase::Second, first, last);
        } else {
            launch(Phase::Whole, first, last);
        }
        // Single steps are short, and many.
        if stride > 1 && last < sizes.steps {
            submit(client);
        }
    }
}

/// Buffers between launches and between cubes.
struct Between {
    state: Option<Handle>,
    handed: Option<Handle>,
    slots: usize,
}

fn arguments<E: Float>(
    plan: &Plan,
    sizes: &Sizes,
    inputs: &ForwardInputs,
    outputs: &ForwardOutputs,
    between: &Between,
) -> (WalkInputsLaunch<E>, WalkOutputsLaunch<E>, WalkExchangeLaunch) {
    let rows = sizes.steps * sizes.batch;
    let (state, gates) = (plan.state(), plan.gates());
    let mask_rows = if inputs.mask_steps { rows } else { sizes.batch };
    (
        WalkInputsLaunch::new(
            buffer(&inputs.projected, rows * gates),
            buffer(&inputs.recurrent_weight, gates * sizes.hidden),
            maybe(&inputs.bias, gates),
            maybe(&inputs.secondary_bias, state),
            maybe(&inputs.init_state, sizes.batch * state),
            maybe(&inputs.mask, mask_rows * state),
            maybe(&inputs.lengths, sizes.batch),
        ),
        WalkOutputsLaunch::new(
            buffer(&outputs.output, rows * state),
            buffer(&outputs.final_state, sizes.batch * state),
            maybe(&outputs.z_state, rows * gates),
        ),
        WalkExchangeLaunch::new(
            maybe(&between.state, between.slots * sizes.batch * state),
            maybe(&between.handed, 2 * sizes.batch * state),
        ),
    )
}
