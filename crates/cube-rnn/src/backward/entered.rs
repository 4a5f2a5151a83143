//! What entered the recurrent products, all steps at once: the factors of the recurrent weight's gradient.

use cubecl::prelude::*;

use super::walk::{previous_state, starts, state_of_z};
use crate::{
    Kind,
    forward::{mask_at, optional, time_of},
    plan::Plan,
};

/// Units of a cube of this kernel.
pub(crate) const UNITS: usize = 256;

/// What the kernel reads.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct EnteredInputs<E: Float> {
    /// `[T, N, D·GH]`, if a state or a gate comes from it.
    pub z_state: ComptimeOption<Box<[E]>>,
    /// `[T, N, D·H]`, of a GRU.
    pub output: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]`
    pub init_state: ComptimeOption<Box<[E]>>,
    /// `[N, D·H]` or `[T, N, D·H]`
    pub mask: ComptimeOption<Box<[E]>>,
    /// `[N]`
    pub lengths: ComptimeOption<Box<[i32]>>,
}

/// Writes `h[t-1] ∘ m` and, without `reset_after`, `h[t-1] ∘ m ∘ r`, both `[T, N, D·H]`.
#[cube(launch_unchecked)]
pub(crate) fn entered<E: Float>(
    inputs: &EnteredInputs<E>,
    masked: &mut [E],
    reset: &mut ComptimeOption<Box<[E]>>,
    steps: u32,
    batch: u32,
    #[comptime] plan: Plan,
    #[define(E)] _dtype: ElemType,
) {
    let steps = steps as usize;
    let batch = batch as usize;
    let position = CUBE_POS_X as usize * UNITS + UNIT_POS as usize;
    if position < batch * plan.hidden {
        let row = position / plan.hidden;
        let unit = position % plan.hidden;
        let channel = CUBE_POS_Z as usize * plan.hidden + unit;
        let mut time = CUBE_POS_Y as usize;
        while time < steps {
            // Its own inverse.
            let index = time_of(time, steps, plan.cell);
            let previous = match comptime!(plan.cell.kind) {
                Kind::Gru(_) => previous_state::<E>(
                    &inputs.output,
                    &inputs.init_state,
                    &inputs.lengths,
                    index,
                    row,
                    channel,
                    steps,
                    batch,
                    plan,
                ),
                Kind::SingleGate(activation) => {
                    if starts(&inputs.lengths, index, row, steps, plan.cell) {
                        optional::<E>(&inputs.init_state, row * plan.state() + channel)
                    } else {
                        let before = time_of(index - 1, steps, plan.cell);
                        let z =
                            optional::<E>(&inputs.z_state, (before * batch + row) * plan.state() + channel);
                        state_of_z(z, activation, plan.cell.clip)
                    }
                }
            };
            let value = previous * mask_at::<E>(&inputs.mask, time, row, channel, batch, plan);
            let place = time * batch + row;
            masked[place * plan.state() + channel] = E::cast_from(value);
            #[comptime]
            match reset {
                ComptimeOption::Some(reset) => {
                    let gate = place * plan.gates() + CUBE_POS_Z as usize * plan.direction_gates() + unit;
                    let r = optional::<E>(&inputs.z_state, gate + comptime!(plan.reset_gate() * plan.hidden));
                    reset[place * plan.state() + channel] = E::cast_from(value * r);
                }
                ComptimeOption::None => {}
            }
            time += CUBE_COUNT_Y as usize;
        }
    }
}
