//! A step back: the gradients of the gates' pre-activations, and of the state before.
//!
//! Each call takes one vector of hidden units of a few batch rows. Padded units have gradients of zero.

use macerator::{Simd, Vector};

use super::{Gates, kernel, lanes, load, math::activation_gradient, step::mix};
use crate::element::Arithmetic;

/// `gradient` where the state before clamping is inside the range, else zero.
#[inline(always)]
fn through_clip<S: Simd, T: Arithmetic>(
    clip: T,
    unclipped: Vector<S, T>,
    gradient: Vector<S, T>,
) -> Vector<S, T> {
    unclipped.abs().le(clip.splat()).select(gradient, T::ZERO.splat())
}

#[inline(always)]
unsafe fn runs(lengths: *const usize, time: usize, row: usize) -> bool {
    // SAFETY: lengths, where present, have an entry for each row.
    lengths.is_null() || time < unsafe { *lengths.add(row) }
}

/// A GRU's gates. Pointers are to the first row's first unit; null ones stand for what is absent.
pub(crate) struct GruGradient<T> {
    pub rows: usize,
    pub valid: usize,
    /// The gradient of the state after the step, replaced by the part that the update gate lets through.
    pub carried: *mut T,
    pub carried_row: usize,
    pub output_gradient: *const T,
    pub output_gradient_row: usize,
    /// The update, reset and output gate.
    pub z_state: [*const T; 3],
    pub z_state_row: usize,
    /// The state before the step.
    pub previous: *const T,
    pub previous_row: usize,
    /// `(h∘m) Roᵀ`, with `reset_after`.
    pub candidate: *const T,
    pub candidate_row: usize,
    pub secondary_bias: *const T,
    /// Where the gradients go, one vector each, side by side: output, update, and with `reset_after` reset gate
    /// and candidate product; without it the reset gate's follows in [`ResetGradient`].
    pub gates: *mut T,
    pub gates_row: usize,
    pub lengths: *const usize,
    pub time: usize,
}

kernel!(
    /// The gates' gradients.
    gru(step: &'a GruGradient<T>, gates: &'a Gates<T>) = gru_rows
);

#[inline(always)]
unsafe fn gru_rows<S: Simd, T: Arithmetic>(step: &GruGradient<T>, gates: &Gates<T>) {
    let lanes = lanes::<S, T>();
    let after = !step.candidate.is_null();
    let zero = T::ZERO.splat::<S>();
    // SAFETY: the caller answers for the pointers.
    unsafe {
        let secondary_bias =
            if step.secondary_bias.is_null() { zero } else { load(step.secondary_bias, step.valid) };
        for row in 0..step.rows {
            let to = step.gates.add(row * step.gates_row);
            if !runs(step.lengths, step.time, row) {
                for vector in 0..if after { 4 } else { 3 } {
                    T::vstore_unaligned(to.add(vector * lanes), zero);
                }
                continue;
            }
            let z_state =
                |gate: usize| load::<S, T>(step.z_state[gate].add(row * step.z_state_row), step.valid);
            let (z, r, o) = (z_state(0), z_state(1), z_state(2));
            let previous = T::vload_unaligned::<S>(step.previous.add(row * step.previous_row));
            let carried = step.carried.add(row * step.carried_row);
            let mut gradient = T::vload_unaligned::<S>(carried);
            if !step.output_gradient.is_null() {
                gradient +=
                    load::<S, T>(step.output_gradient.add(row * step.output_gradient_row), step.valid);
            }
            if let Some(clip) = gates.clip {
                gradient = through_clip(clip, mix(gates.flip_z, z, previous, o), gradient);
            }
            let rest = T::ONE.splat::<S>() - z;
            let (keeps, takes, difference) =
                if gates.flip_z { (rest, z, o - previous) } else { (z, rest, previous - o) };
            let update = activation_gradient(gates.update, z, gradient * difference);
            let output = activation_gradient(gates.output, o, gradient * takes);
            T::vstore_unaligned(carried, gradient * keeps);
            T::vstore_unaligned(to, output);
            T::vstore_unaligned(to.add(lanes), update);
            if after {
                let candidate = T::vload_unaligned::<S>(step.candidate.add(row * step.candidate_row));
                let reset = activation_gradient(gates.reset, r, output * (candidate + secondary_bias));
                T::vstore_unaligned(to.add(2 * lanes), reset);
                T::vstore_unaligned(to.add(3 * lanes), output * r);
            }
        }
    }
}

/// The reset gate of a GRU without `reset_after`, from `do Ro`.
pub(crate) struct ResetGradient<T> {
    pub rows: usize,
    pub valid: usize,
    pub product: *const T,
    pub product_row: usize,
    pub reset: *const T,
    pub reset_row: usize,
    /// The state before the step times the mask.
    pub masked: *const T,
    pub masked_row: usize,
    pub mask: *const T,
    pub mask_row: usize,
    pub carried: *mut T,
    pub carried_row: usize,
    /// Where the reset gate's gradient goes.
    pub gate: *mut T,
    pub gate_row: usize,
    pub lengths: *const usize,
    pub time: usize,
}

kernel!(
    /// The reset gate's gradient, and what passes through it to the state before.
    reset(step: &'a ResetGradient<T>, gates: &'a Gates<T>) = reset_rows
);

#[inline(always)]
unsafe fn reset_rows<S: Simd, T: Arithmetic>(step: &ResetGradient<T>, gates: &Gates<T>) {
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..step.rows {
            if !runs(step.lengths, step.time, row) {
                continue;
            }
            let path = T::vload_unaligned::<S>(step.product.add(row * step.product_row));
            let r = load::<S, T>(step.reset.add(row * step.reset_row), step.valid);
            let masked = T::vload_unaligned::<S>(step.masked.add(row * step.masked_row));
            let reset = activation_gradient(gates.reset, r, path * masked);
            T::vstore_unaligned(step.gate.add(row * step.gate_row), reset);
            let mut through = path * r;
            if !step.mask.is_null() {
                through *= load(step.mask.add(row * step.mask_row), step.valid);
            }
            let carried = step.carried.add(row * step.carried_row);
            T::vstore_unaligned(carried, T::vload_unaligned::<S>(carried) + through);
        }
    }
}

/// The only gate of a single-gate RNN.
pub(crate) struct SingleGateGradient<T> {
    pub rows: usize,
    pub valid: usize,
    /// The gradient of the state after the step, replaced by zero.
    pub carried: *mut T,
    pub carried_row: usize,
    pub output_gradient: *const T,
    pub output_gradient_row: usize,
    /// The pre-activation.
    pub z_state: *const T,
    pub z_state_row: usize,
    pub gate: *mut T,
    pub gate_row: usize,
    pub lengths: *const usize,
    pub time: usize,
}

kernel!(
    /// The gate's gradient.
    single_gate(step: &'a SingleGateGradient<T>, gates: &'a Gates<T>) = single_gate_rows
);

#[inline(always)]
unsafe fn single_gate_rows<S: Simd, T: Arithmetic>(step: &SingleGateGradient<T>, gates: &Gates<T>) {
    let zero = T::ZERO.splat::<S>();
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..step.rows {
            let to = step.gate.add(row * step.gate_row);
            if !runs(step.lengths, step.time, row) {
                T::vstore_unaligned(to, zero);
                continue;
            }
            let z = load::<S, T>(step.z_state.add(row * step.z_state_row), step.valid);
            let y = super::math::activate(gates.output, z);
            let carried = step.carried.add(row * step.carried_row);
            let mut gradient = T::vload_unaligned::<S>(carried);
            if !step.output_gradient.is_null() {
                gradient +=
                    load::<S, T>(step.output_gradient.add(row * step.output_gradient_row), step.valid);
            }
            if let Some(clip) = gates.clip {
                gradient = through_clip(clip, y, gradient);
            }
            T::vstore_unaligned(to, activation_gradient(gates.output, y, gradient));
            T::vstore_unaligned(carried, zero);
        }
    }
}

/// What passes through the recurrent products to the state before.
pub(crate) struct Through<T> {
    pub rows: usize,
    pub valid: usize,
    pub product: *const T,
    pub product_row: usize,
    pub mask: *const T,
    pub mask_row: usize,
    pub carried: *mut T,
    pub carried_row: usize,
    pub lengths: *const usize,
    pub time: usize,
}

kernel!(
    /// Adds the masked product to the carried gradient.
    through(step: &'a Through<T>) = through_rows
);

#[inline(always)]
unsafe fn through_rows<S: Simd, T: Arithmetic>(step: &Through<T>) {
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..step.rows {
            if !runs(step.lengths, step.time, row) {
                continue;
            }
            let mut product = T::vload_unaligned::<S>(step.product.add(row * step.product_row));
            if !step.mask.is_null() {
                product *= load(step.mask.add(row * step.mask_row), step.valid);
            }
            let carried = step.carried.add(row * step.carried_row);
            T::vstore_unaligned(carried, T::vload_unaligned::<S>(carried) + product);
        }
    }
}
