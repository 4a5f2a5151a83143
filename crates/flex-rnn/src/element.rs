//! The element types and the constants of their exponential function.

use macerator::{ReduceAdd, Scalar, VAbs, VAdd, VDiv, VEq, VMul, VMulAdd, VOrd, VSelect, VShl, VSub};

use crate::{
    Gradients, Inputs, Outputs, Problem, Saved, backward, forward,
    kernels::{Kernels, Level},
};

/// `f32` or `f64`.
pub trait Element: Arithmetic {}

impl Element for f32 {}
impl Element for f64 {}

/// What the kernels need of an element type.
#[doc(hidden)]
pub trait Arithmetic:
    Scalar
    + VAdd
    + VSub
    + VMul
    + VDiv
    + VMulAdd
    + VOrd
    + VSelect
    + VAbs
    + ReduceAdd
    + VEq
    + PartialOrd
    + std::ops::AddAssign
    + Send
    + Sync
    + 'static
{
    /// The unsigned integer of the same width.
    type Bits: Scalar + VShl;

    const ZERO: Self;
    const ONE: Self;
    const TWO: Self;
    /// Width of the significand's field.
    const SIGNIFICAND: u32;
    const LOG2_E: Self;
    /// ln 2 in two parts, the first short enough for its products with exponents to be exact.
    const LN_2: [Self; 2];
    /// A number so large that adding it rounds to an integer, plus the exponent's bias: the sum's low bits are
    /// the biased exponent.
    const ROUND: Self;
    /// `ROUND` for exponentials times a power of two that keeps the smallest out of the subnormal range.
    const ROUND_UP: Self;
    /// The reciprocal of that power of two.
    const DOWN: Self;
    /// Past this, tanh is 1.
    const TANH_MAX: Self;
    /// Past this, exp of the negated value is 0.
    const EXP_MAX: Self;
    /// `1/2!, 1/3!, …`: the coefficients of `(exp(r) - 1 - r) / r²`, as many as |r| ≤ ln 2 / 2 needs.
    const EXP_TAIL: &'static [Self];

    fn from_f64(value: f64) -> Self;

    /// The fastest kernels this processor runs.
    fn kernels() -> &'static Kernels<Self>;

    /// The kernels of one level, if this processor runs them.
    fn kernels_of(level: Level) -> Option<Kernels<Self>>;

    // Not generic, so that they are compiled in this crate, with its optimisations.
    fn run_forward(
        kernels: &Kernels<Self>,
        problem: &Problem,
        inputs: &Inputs<'_, Self>,
        outputs: Outputs<'_, Self>,
    );

    fn run_backward(
        kernels: &Kernels<Self>,
        problem: &Problem,
        inputs: &Inputs<'_, Self>,
        saved: &Saved<'_, Self>,
        gradients: Gradients<'_, Self>,
    );
}

macro_rules! implement {
    (
        $element:ident, $bits:ident, {
            ln_2: $ln_2:expr,
            round: $round:expr,
            up: $up:expr,
            down: $down:expr,
            tanh_max: $tanh_max:expr,
            exp_max: $exp_max:expr,
            exp_tail: $exp_tail:expr,
        }
    ) => {
        impl Arithmetic for $element {
            type Bits = $bits;

            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const TWO: Self = 2.0;
            const SIGNIFICAND: u32 = $element::MANTISSA_DIGITS - 1;
            const LOG2_E: Self = std::$element::consts::LOG2_E;
            const LN_2: [Self; 2] = $ln_2;
            const ROUND: Self = $round;
            const ROUND_UP: Self = $round + $up;
            const DOWN: Self = $down;
            const TANH_MAX: Self = $tanh_max;
            const EXP_MAX: Self = $exp_max;
            const EXP_TAIL: &'static [Self] = $exp_tail;

            fn from_f64(value: f64) -> Self {
                value as $element
            }

            fn kernels() -> &'static Kernels<Self> {
                static KERNELS: std::sync::LazyLock<Kernels<$element>> =
                    std::sync::LazyLock::new(Kernels::detect);
                &KERNELS
            }

            fn kernels_of(level: Level) -> Option<Kernels<Self>> {
                Kernels::of(level)
            }

            fn run_forward(
                kernels: &Kernels<Self>,
                problem: &Problem,
                inputs: &Inputs<'_, Self>,
                outputs: Outputs<'_, Self>,
            ) {
                forward::run(kernels, problem, inputs, outputs);
            }

            fn run_backward(
                kernels: &Kernels<Self>,
                problem: &Problem,
                inputs: &Inputs<'_, Self>,
                saved: &Saved<'_, Self>,
                gradients: Gradients<'_, Self>,
            ) {
                backward::run(kernels, problem, inputs, saved, gradients);
            }
        }
    };
}

implement!(f32, u32, {
    ln_2: [355.0 / 512.0, -2.121_944_4e-4],
    round: 12_582_912.0 + 127.0,
    up: 64.0,
    down: f32::from_bits((127 - 64) << 23),
    tanh_max: 10.0,
    exp_max: 104.0,
    exp_tail: &[1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0],
});

implement!(f64, u64, {
    ln_2: [0.693_145_751_953_125, 1.428_606_820_309_417_3e-6],
    round: 6_755_399_441_055_744.0 + 1023.0,
    up: 512.0,
    down: f64::from_bits((1023 - 512) << 52),
    tanh_max: 20.0,
    exp_max: 746.0,
    exp_tail: &[
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40_320.0,
        1.0 / 362_880.0,
        1.0 / 3_628_800.0,
        1.0 / 39_916_800.0,
        1.0 / 479_001_600.0,
        1.0 / 6_227_020_800.0,
    ],
});
