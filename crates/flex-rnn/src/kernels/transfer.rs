//! Moving between the tensors' layouts and the kernels' own.

use macerator::Simd;

use super::{Act, kernel, lanes, load, math, save};
use crate::element::Arithmetic;

/// Rows of whole vectors into rows of a tensor.
pub(crate) struct Store<T> {
    pub rows: usize,
    /// Elements of each vector that exist in the tensor; 0: the vector does not.
    pub valid: [usize; 3],
    pub from: *const T,
    pub from_row: usize,
    /// What each vector is to be added to; null: zero.
    pub bias: [*const T; 3],
    pub to: [*mut T; 3],
    pub to_row: usize,
    /// Adds to what is there.
    pub accumulate: bool,
}

kernel!(
    /// Stores, with a bias.
    store(call: &'a Store<T>) = store_rows
);

#[inline(always)]
unsafe fn store_rows<S: Simd, T: Arithmetic>(call: &Store<T>) {
    let lanes = lanes::<S, T>();
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for vector in 0..3 {
            let valid = call.valid[vector];
            if valid == 0 {
                continue;
            }
            let bias = call.bias[vector];
            let bias = if bias.is_null() { T::ZERO.splat::<S>() } else { load(bias, valid) };
            for row in 0..call.rows {
                let to = call.to[vector].add(row * call.to_row);
                let from = call.from.add(row * call.from_row + vector * lanes);
                let mut value = T::vload_unaligned::<S>(from) + bias;
                if call.accumulate {
                    value += load(to, valid);
                }
                save(to, valid, value);
            }
        }
    }
}

/// The states before steps, from what the forward pass left: `units` of them from the pointers' places on.
pub(crate) struct States<T> {
    pub rows: usize,
    pub units: usize,
    /// Null: zero.
    pub from: *const T,
    pub from_row: usize,
    /// Where `from` has pre-activations: the activation and the bound of the state.
    pub activation: Option<(Act<T>, Option<T>)>,
    pub to: *mut T,
    pub to_row: usize,
    pub mask: *const T,
    pub mask_row: usize,
    /// The states times the mask; null without a mask.
    pub masked: *mut T,
}

kernel!(
    /// Fills whole vectors, padded with zeros.
    states(call: &'a States<T>) = states_rows
);

#[inline(always)]
unsafe fn states_rows<S: Simd, T: Arithmetic>(call: &States<T>) {
    let lanes = lanes::<S, T>();
    let zero = T::ZERO.splat::<S>();
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for row in 0..call.rows {
            let mut unit = 0;
            while unit < call.units {
                let valid = (call.units - unit).min(lanes);
                let mut state = zero;
                if !call.from.is_null() {
                    state = load(call.from.add(row * call.from_row + unit), valid);
                    if let Some((act, clip)) = call.activation {
                        state = math::activate(act, state);
                        if let Some(clip) = clip {
                            state = math::clamp(state, T::ZERO - clip, clip);
                        }
                    }
                }
                T::vstore_unaligned(call.to.add(row * call.to_row + unit), state);
                if !call.masked.is_null() {
                    let mut masked = zero;
                    if !call.from.is_null() {
                        masked = state * load(call.mask.add(row * call.mask_row + unit), valid);
                    }
                    T::vstore_unaligned(call.masked.add(row * call.to_row + unit), masked);
                }
                unit += lanes;
            }
        }
    }
}

/// Sums rows of up to four vectors.
pub(crate) struct ColumnSums<T> {
    pub rows: usize,
    pub vectors: usize,
    pub from: *const T,
    pub from_row: usize,
    /// Added to.
    pub to: *mut T,
}

kernel!(
    /// Adds the rows up, in order.
    column_sums(call: &'a ColumnSums<T>) = column_sums_rows
);

#[inline(always)]
unsafe fn column_sums_rows<S: Simd, T: Arithmetic>(call: &ColumnSums<T>) {
    let lanes = lanes::<S, T>();
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for vector in 0..call.vectors {
            let to = call.to.add(vector * lanes);
            let mut sum = T::vload_unaligned::<S>(to);
            for row in 0..call.rows {
                sum += T::vload_unaligned(call.from.add(row * call.from_row + vector * lanes));
            }
            T::vstore_unaligned(to, sum);
        }
    }
}

kernel!(
    /// Applies an activation to each value.
    activate(act: Act<T>, values: &'a mut [T]) = activate_all
);

#[inline(always)]
unsafe fn activate_all<S: Simd, T: Arithmetic>(act: Act<T>, values: &mut [T]) {
    let lanes = lanes::<S, T>();
    for values in values.chunks_mut(lanes) {
        // SAFETY: as many elements as the slice has.
        unsafe {
            let x = load::<S, T>(values.as_ptr(), values.len());
            save(values.as_mut_ptr(), values.len(), math::activate(act, x));
        }
    }
}
