//! What follows a step's recurrent products: gates, the next state, and what the backward pass is to find.
//!
//! Each call takes one vector of hidden units of a few batch rows.

use macerator::{Simd, Vector};

use super::{
    Act, kernel, lanes, load,
    math::{activate, clamp},
    save,
};
use crate::element::Arithmetic;

/// The cell's options in the element type.
pub(crate) struct Gates<T> {
    pub update: Act<T>,
    pub reset: Act<T>,
    /// Of the output gate, or of the only one.
    pub output: Act<T>,
    pub flip_z: bool,
    pub clip: Option<T>,
}

/// One vector of units of `rows` batch rows at one time step. Pointers are to the first row's first unit; null
/// ones stand for what is absent.
pub(crate) struct Step<T> {
    pub rows: usize,
    /// Units within the vector.
    pub valid: usize,
    /// The recurrent products, one vector a gate, side by side.
    pub product: *const T,
    pub product_row: usize,
    /// `x Wᵀ + b` of the update, reset and output gate, or of the only one.
    pub projected: [*const T; 3],
    pub projected_row: usize,
    pub secondary_bias: *const T,
    /// The previous state, the next, and other states in the same layout: whole vectors.
    pub state: *const T,
    pub state_row: usize,
    pub next_state: *mut T,
    /// The previous state times the mask.
    pub masked: *const T,
    /// The update gate, kept between the two halves of a step without `reset_after`.
    pub update: *mut T,
    /// The masked state times the reset gate, for the second half.
    pub gated: *mut T,
    /// The next step's mask.
    pub next_mask: *const T,
    pub mask_row: usize,
    pub next_masked: *mut T,
    pub output: *mut T,
    pub output_row: usize,
    /// Where the training state's gates go, as in `projected`.
    pub saved: [*mut T; 3],
    pub saved_row: usize,
    pub lengths: *const usize,
    pub time: usize,
}

impl<T: Arithmetic> Step<T> {
    /// Whether a row's sequence covers this step.
    #[inline(always)]
    unsafe fn runs(&self, row: usize) -> bool {
        // SAFETY: lengths, where present, have an entry for each row.
        self.lengths.is_null() || self.time < unsafe { *self.lengths.add(row) }
    }

    #[inline(always)]
    unsafe fn previous<S: Simd>(&self, row: usize) -> Vector<S, T> {
        // SAFETY: states are whole vectors.
        unsafe { T::vload_unaligned(self.state.add(row * self.state_row)) }
    }

    #[inline(always)]
    unsafe fn projected<S: Simd>(&self, gate: usize, row: usize) -> Vector<S, T> {
        // SAFETY: `valid` units.
        unsafe { load(self.projected[gate].add(row * self.projected_row), self.valid) }
    }

    /// A gate's recurrent product.
    #[inline(always)]
    unsafe fn product<S: Simd>(&self, gate: usize, row: usize) -> Vector<S, T> {
        // SAFETY: products are whole vectors.
        unsafe { T::vload_unaligned(self.product.add(row * self.product_row + gate * lanes::<S, T>())) }
    }

    #[inline(always)]
    unsafe fn save<S: Simd>(&self, gate: usize, row: usize, value: Vector<S, T>) {
        let to = self.saved[gate];
        if !to.is_null() {
            // SAFETY: `valid` units.
            unsafe { save(to.wrapping_add(row * self.saved_row), self.valid, value) }
        }
    }

    /// Writes a row's output and hands its state on.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, row: usize, state: Vector<S, T>, output: Vector<S, T>) {
        // SAFETY: `valid` units of output and mask, whole vectors of states.
        unsafe {
            save(self.output.add(row * self.output_row), self.valid, output);
            T::vstore_unaligned(self.next_state.add(row * self.state_row), state);
            if !self.next_masked.is_null() {
                let mask = load::<S, T>(self.next_mask.add(row * self.mask_row), self.valid);
                T::vstore_unaligned(self.next_masked.add(row * self.state_row), state * mask);
            }
        }
    }

    /// A row that this step is past: its state is held.
    #[inline(always)]
    unsafe fn hold<S: Simd>(&self, row: usize, gates: usize) {
        let zero = T::ZERO.splat::<S>();
        // SAFETY: as in `finish`.
        unsafe {
            for gate in 0..gates {
                self.save(gate, row, zero);
            }
            self.finish(row, self.previous::<S>(row), zero);
        }
    }
}

#[inline(always)]
fn clipped<S: Simd, T: Arithmetic>(gates: &Gates<T>, state: Vector<S, T>) -> Vector<S, T> {
    match gates.clip {
        Some(clip) => clamp(state, T::ZERO - clip, clip),
        None => state,
    }
}

/// The update gate's mix of the previous state and the candidate, before clamping.
#[inline(always)]
pub(super) fn mix<S: Simd, T: Arithmetic>(
    flip_z: bool,
    z: Vector<S, T>,
    state: Vector<S, T>,
    o: Vector<S, T>,
) -> Vector<S, T> {
    let rest = T::ONE.splat::<S>() - z;
    if flip_z { rest * state + z * o } else { z * state + rest * o }
}

kernel!(
    /// A GRU's step with `reset_after`.
    gru_after(step: &'a Step<T>, gates: &'a Gates<T>) = gru_after_rows
);

#[inline(always)]
unsafe fn gru_after_rows<S: Simd, T: Arithmetic>(step: &Step<T>, gates: &Gates<T>) {
    // SAFETY: the caller answers for the pointers.
    unsafe {
        let secondary_bias = if step.secondary_bias.is_null() {
            T::ZERO.splat::<S>()
        } else {
            load(step.secondary_bias, step.valid)
        };
        for row in 0..step.rows {
            if !step.runs(row) {
                step.hold::<S>(row, 3);
                continue;
            }
            let z = activate(gates.update, step.projected::<S>(0, row) + step.product(0, row));
            let r = activate(gates.reset, step.projected::<S>(1, row) + step.product(1, row));
            let candidate = (step.product::<S>(2, row) + secondary_bias) * r;
            let o = activate(gates.output, step.projected::<S>(2, row) + candidate);
            step.save(0, row, z);
            step.save(1, row, r);
            step.save(2, row, o);
            let state = clipped(gates, mix(gates.flip_z, z, step.previous(row), o));
            step.finish(row, state, state);
        }
    }
}

kernel!(
    /// The first half of a GRU's step without `reset_after`: the update and the reset gate.
    gru_before_gates(step: &'a Step<T>, gates: &'a Gates<T>) = gru_before_gates_rows
);

#[inline(always)]
unsafe fn gru_before_gates_rows<S: Simd, T: Arithmetic>(step: &Step<T>, gates: &Gates<T>) {
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..step.rows {
            if !step.runs(row) {
                continue;
            }
            let z = activate(gates.update, step.projected::<S>(0, row) + step.product(0, row));
            let r = activate(gates.reset, step.projected::<S>(1, row) + step.product(1, row));
            step.save(0, row, z);
            step.save(1, row, r);
            let at = row * step.state_row;
            T::vstore_unaligned(step.update.add(at), z);
            let masked = T::vload_unaligned::<S>(step.masked.add(at));
            T::vstore_unaligned(step.gated.add(at), masked * r);
        }
    }
}

kernel!(
    /// The second half: the output gate and the state.
    gru_before_output(step: &'a Step<T>, gates: &'a Gates<T>) = gru_before_output_rows
);

#[inline(always)]
unsafe fn gru_before_output_rows<S: Simd, T: Arithmetic>(step: &Step<T>, gates: &Gates<T>) {
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..step.rows {
            if !step.runs(row) {
                step.hold::<S>(row, 3);
                continue;
            }
            let z = T::vload_unaligned::<S>(step.update.add(row * step.state_row));
            let o = activate(gates.output, step.projected::<S>(2, row) + step.product(0, row));
            step.save(2, row, o);
            let state = clipped(gates, mix(gates.flip_z, z, step.previous(row), o));
            step.finish(row, state, state);
        }
    }
}

kernel!(
    /// A single-gate RNN's step.
    single_gate(step: &'a Step<T>, gates: &'a Gates<T>) = single_gate_rows
);

#[inline(always)]
unsafe fn single_gate_rows<S: Simd, T: Arithmetic>(step: &Step<T>, gates: &Gates<T>) {
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..step.rows {
            if !step.runs(row) {
                step.hold::<S>(row, 1);
                continue;
            }
            let z = step.projected::<S>(0, row) + step.product(0, row);
            step.save(0, row, z);
            let state = clipped(gates, activate(gates.output, z));
            step.finish(row, state, state);
        }
    }
}
