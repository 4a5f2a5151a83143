//! GRU and single-gate RNN on CPUs, forward and gradients: vectorised for the processor it runs on, threaded,
//! and with results that do not depend on the number of threads.
//!
//! Tensors are plain slices in row-major order, time first. [`Problem`] holds the sizes and options, [`forward`]
//! and [`backward`] the operations. Threads are those of the current rayon pool.

mod backward;
mod buffer;
mod check;
mod element;
mod forward;
mod kernels;
mod layout;
mod pack;
mod problem;
mod team;
mod weight;

#[doc(hidden)]
pub use element::Arithmetic;
pub use element::Element;
pub use kernels::Level;
pub use problem::{Activation, Cell, Gradients, Gru, Inputs, Mask, Outputs, Problem, Saved};

/// Runs a cell over all steps.
///
/// For a GRU, t = 0 … T-1, each gate with its own `H` rows of the input weight `W`, the recurrent weight `R` and
/// the bias `b`, with the mask `m` and the secondary bias `b2`:
///
/// ```text
/// z[t] = fz( x[t] Wzᵀ + (h[t-1]∘m) Rzᵀ + bz )
/// r[t] = fr( x[t] Wrᵀ + (h[t-1]∘m) Rrᵀ + br )
/// c[t] = (h[t-1]∘r[t]∘m) Roᵀ                        reset_after = false
/// c[t] = ( (h[t-1]∘m) Roᵀ + b2 ) ∘ r[t]             reset_after = true
/// o[t] = fo( x[t] Woᵀ + c[t] + bo )
/// h[t] = z[t]∘h[t-1] + (1-z[t])∘o[t]                flip_z = false
/// h[t] = (1-z[t])∘h[t-1] + z[t]∘o[t]                flip_z = true
/// ```
///
/// and for a single-gate RNN `z[t] = x[t] Wᵀ + (h[t-1]∘m) Rᵀ + b`, `h[t] = f(z[t])`.
///
/// # Panics
///
/// If a slice has another size than the problem asks for, or a length is above `T`.
pub fn forward<T: Element>(problem: &Problem, inputs: &Inputs<'_, T>, outputs: Outputs<'_, T>) {
    check::forward(problem, inputs, &outputs);
    T::run_forward(T::kernels(), problem, inputs, outputs);
}

/// Computes those of the gradients that there is room for in `gradients`.
///
/// # Panics
///
/// If a slice has another size than the problem asks for, a length is above `T`, or something is missing that a
/// gradient needs.
pub fn backward<T: Element>(
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    gradients: Gradients<'_, T>,
) {
    check::backward(problem, inputs, saved, &gradients);
    T::run_backward(T::kernels(), problem, inputs, saved, gradients);
}

/// As [`forward`] with the kernels of one instruction set; false if the processor lacks it. For tests.
#[doc(hidden)]
pub fn forward_with<T: Element>(
    level: Level,
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    outputs: Outputs<'_, T>,
) -> bool {
    check::forward(problem, inputs, &outputs);
    let kernels = T::kernels_of(level);
    if let Some(kernels) = &kernels {
        T::run_forward(kernels, problem, inputs, outputs);
    }
    kernels.is_some()
}

/// As [`backward`] with the kernels of one instruction set; false if the processor lacks it. For tests.
#[doc(hidden)]
pub fn backward_with<T: Element>(
    level: Level,
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    gradients: Gradients<'_, T>,
) -> bool {
    check::backward(problem, inputs, saved, &gradients);
    let kernels = T::kernels_of(level);
    if let Some(kernels) = &kernels {
        T::run_backward(kernels, problem, inputs, saved, gradients);
    }
    kernels.is_some()
}

/// Applies an activation to each value, with the kernels' own functions; false if the processor lacks the
/// instruction set. For tests.
#[doc(hidden)]
pub fn activate_with<T: Element>(level: Level, activation: Activation, values: &mut [T]) -> bool {
    let kernels = T::kernels_of(level);
    if let Some(kernels) = &kernels {
        // SAFETY: `kernels_of` has checked the processor.
        unsafe { (kernels.activate)(kernels::Act::new(activation), values) };
    }
    kernels.is_some()
}
