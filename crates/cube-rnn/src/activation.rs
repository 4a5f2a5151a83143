//! Activations and their derivatives inside kernels.
//!
//! Written with `exp` of a non-positive argument only: nothing overflows, whatever a driver's own `tanh` does.

use cubecl::prelude::*;

use crate::Activation;

/// The activation's value.
#[cube]
pub(crate) fn activate(x: f32, #[comptime] activation: Activation) -> f32 {
    match comptime!(activation) {
        Activation::None => x,
        Activation::Relu => select(x < 0.0, 0.0, x),
        Activation::Tanh => tanh(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::HardSigmoid { alpha, beta } => {
            let y = x * comptime!(alpha.get() as f32) + comptime!(beta.get() as f32);
            let y = select(y < 0.0, 0.0, y);
            select(y > 1.0, 1.0, y)
        }
    }
}

/// The activation's derivative where its value is `y`.
#[cube]
pub(crate) fn slope(y: f32, #[comptime] activation: Activation) -> f32 {
    match comptime!(activation) {
        Activation::None => 1.0f32.runtime(),
        Activation::Relu => select(y > 0.0, 1.0, 0.0),
        Activation::Tanh => 1.0 - y * y,
        Activation::Sigmoid => y * (1.0 - y),
        Activation::HardSigmoid { alpha, .. } => {
            select(y > 0.0 && y < 1.0, comptime!(alpha.get() as f32), 0.0)
        }
    }
}

/// Clamps a state to `[-clip, clip]`, if there is a bound.
#[cube]
pub(crate) fn clamp_state(h: f32, #[comptime] clip: Option<crate::Constant>) -> f32 {
    match comptime!(clip) {
        Some(clip) => {
            let h = select(h < comptime!(-clip.get() as f32), comptime!(-clip.get() as f32), h);
            select(h > comptime!(clip.get() as f32), comptime!(clip.get() as f32), h)
        }
        None => h,
    }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let y = 1.0 / (1.0 + e);
    select(x < 0.0, e * y, y)
}

/// Near zero `1 - exp(-2|x|)` cancels, so there the Taylor series of tanh: its first term left out is
/// 1382/155925 x^11, below a rounding for |x| < 1/4.
#[cube]
fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let e = (magnitude * -2.0f32).exp();
    let far = (1.0 - e) / (1.0 + e);
    let far = select(x < 0.0, -far, far);

    let square = x * x;
    let series = comptime!(62.0f32 / 2835.0) * square - comptime!(17.0f32 / 315.0);
    let series = series * square + comptime!(2.0f32 / 15.0);
    let series = series * square - comptime!(1.0f32 / 3.0);
    let near = x + x * (square * series);
    select(magnitude < 0.25, near, far)
}
