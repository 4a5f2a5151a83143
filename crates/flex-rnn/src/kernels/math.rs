//! Activations on vectors.
//!
//! Both exponentials reduce `x = n ln 2 + r` with |r| ≤ ln 2 / 2, take `exp(r) - 1` from its Taylor series to
//! the last term that matters, and never subtract the 1 that they would lose digits by: tanh and sigmoid are
//! right to a few units in the last place over the whole range, and keep infinities and NaN.

use macerator::{Simd, Vector};

use crate::element::Arithmetic;

/// An activation with its constants in the element type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act<T> {
    None,
    Relu,
    Tanh,
    Sigmoid,
    HardSigmoid { alpha: T, beta: T },
}

impl<T: Arithmetic> Act<T> {
    pub fn new(activation: crate::Activation) -> Self {
        match activation {
            crate::Activation::None => Self::None,
            crate::Activation::Relu => Self::Relu,
            crate::Activation::Tanh => Self::Tanh,
            crate::Activation::Sigmoid => Self::Sigmoid,
            crate::Activation::HardSigmoid { alpha, beta } => {
                Self::HardSigmoid { alpha: T::from_f64(alpha), beta: T::from_f64(beta) }
            }
        }
    }
}

/// `(s, p)` with `exp(x) = s (1 + p) / 2^k`, `s` a power of two, where `round` is `T::ROUND` plus `k`.
#[inline(always)]
fn exp_parts<S: Simd, T: Arithmetic>(x: Vector<S, T>, round: T) -> (Vector<S, T>, Vector<S, T>) {
    let round = round.splat::<S>();
    let rounded = x.mul_add(T::LOG2_E.splat(), round);
    let n = rounded - round;
    let r = n.mul_add((T::ZERO - T::LN_2[0]).splat(), x);
    let r = n.mul_add((T::ZERO - T::LN_2[1]).splat(), r);
    let scale = (rounded.reinterpret::<T::Bits>() << T::SIGNIFICAND).reinterpret::<T>();

    let terms = T::EXP_TAIL;
    let mut tail = terms[terms.len() - 1].splat::<S>();
    for &term in terms.iter().rev().skip(1) {
        tail = tail.mul_add(r, term.splat());
    }
    (scale, (r * r).mul_add(tail, r))
}

/// `value` where it is not above `bound`, NaN included.
#[inline(always)]
fn at_most<S: Simd, T: Arithmetic>(value: Vector<S, T>, bound: T) -> Vector<S, T> {
    let bound = bound.splat::<S>();
    value.gt(bound).select(bound, value)
}

#[inline(always)]
fn at_least<S: Simd, T: Arithmetic>(value: Vector<S, T>, bound: T) -> Vector<S, T> {
    let bound = bound.splat::<S>();
    value.lt(bound).select(bound, value)
}

/// `value` within `[low, high]`, or NaN.
#[inline(always)]
pub(crate) fn clamp<S: Simd, T: Arithmetic>(value: Vector<S, T>, low: T, high: T) -> Vector<S, T> {
    at_least(at_most(value, high), low)
}

/// With e = exp(-2|x|) - 1: tanh |x| = -e / (2 + e).
#[inline(always)]
pub(crate) fn tanh<S: Simd, T: Arithmetic>(x: Vector<S, T>) -> Vector<S, T> {
    let magnitude = at_most(x.abs(), T::TANH_MAX);
    let (scale, p) = exp_parts(magnitude * (T::ZERO - T::TWO).splat(), T::ROUND);
    let e = scale.mul_add(p, scale - T::ONE.splat());
    let zero = T::ZERO.splat::<S>();
    let y = (zero - e) / (e + T::TWO.splat());
    // Not by the sign's bit: macerator's operations on bits may end up as calls. A zero keeps its sign.
    let signed = x.lt(zero).select(zero - y, y);
    y.eq(zero).select(x, signed)
}

/// With e = exp(-|x|): sigmoid x is 1 / (1 + e), or e / (1 + e) for negative x.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd, T: Arithmetic>(x: Vector<S, T>) -> Vector<S, T> {
    let zero = T::ZERO.splat::<S>();
    let one = T::ONE.splat::<S>();
    let magnitude = at_most(x.abs(), T::EXP_MAX);
    let (scale, p) = exp_parts(zero - magnitude, T::ROUND_UP);
    let e = scale.mul_add(p, scale) * T::DOWN.splat();
    x.lt(zero).select(e, one) / (one + e)
}

/// The activation's value.
#[inline(always)]
pub(crate) fn activate<S: Simd, T: Arithmetic>(act: Act<T>, x: Vector<S, T>) -> Vector<S, T> {
    match act {
        Act::None => x,
        Act::Relu => at_least(x, T::ZERO),
        Act::Tanh => tanh(x),
        Act::Sigmoid => sigmoid(x),
        Act::HardSigmoid { alpha, beta } => clamp(x * alpha.splat() + beta.splat(), T::ZERO, T::ONE),
    }
}

/// `gradient` times the activation's derivative where its value is `y`.
#[inline(always)]
pub(crate) fn activation_gradient<S: Simd, T: Arithmetic>(
    act: Act<T>,
    y: Vector<S, T>,
    gradient: Vector<S, T>,
) -> Vector<S, T> {
    let zero = T::ZERO.splat::<S>();
    let one = T::ONE.splat::<S>();
    match act {
        Act::None => gradient,
        Act::Relu => y.gt(zero).select(gradient, zero),
        Act::Tanh => gradient * (one - y * y),
        Act::Sigmoid => gradient * ((one - y) * y),
        Act::HardSigmoid { alpha, .. } => {
            let scaled = gradient * alpha.splat();
            let inside = y.gt(zero).select(scaled, zero);
            y.lt(one).select(inside, zero)
        }
    }
}
