//! tanh and sigmoid over the whole range, in units in the last place.

mod common;

use common::LEVELS;
use flex_rnn::{Activation, activate_with};

/// Distance in units in the last place of `expected`, itself rounded from more digits in `exact`.
fn ulps32(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    let unit = (f32::from_bits(rounded.abs().to_bits() + 1) as f64) - rounded.abs() as f64;
    (got as f64 - exact).abs() / unit
}

fn all_f32() -> Vec<f32> {
    // Every 2053rd pattern of bits: all exponents, both signs, subnormal numbers.
    (0..=u32::MAX).step_by(2053).map(f32::from_bits).filter(|x| x.is_finite()).collect()
}

#[test]
fn f32_within_three_units() {
    let inputs = all_f32();
    for level in LEVELS {
        for (activation, exact) in [
            (Activation::Tanh, f64::tanh as fn(f64) -> f64),
            (
                Activation::Sigmoid,
                |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) },
            ),
        ] {
            let mut values = inputs.clone();
            if !activate_with(level, activation, &mut values) {
                continue;
            }
            let mut worst = (0.0, 0.0);
            for (&x, &got) in inputs.iter().zip(&values) {
                let error = ulps32(got, exact(x as f64));
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            assert!(worst.0 <= 3.0, "{level:?} {activation:?}: {} ulp at {:e}", worst.0, worst.1);
        }
    }
}

/// A number as an unevaluated sum of two, for about 30 digits.
#[derive(Clone, Copy)]
struct Double(f64, f64);

impl Double {
    fn sum(a: f64, b: f64) -> Self {
        let s = a + b;
        let t = s - a;
        Self(s, (a - (s - t)) + (b - t))
    }

    fn add(self, other: Self) -> Self {
        let Self(s, e) = Self::sum(self.0, other.0);
        Self::sum(s, e + self.1 + other.1)
    }

    fn times(self, other: Self) -> Self {
        let p = self.0 * other.0;
        let e = self.0.mul_add(other.0, -p) + self.0 * other.1 + self.1 * other.0;
        Self::sum(p, e)
    }

    fn over(self, other: Self) -> Self {
        let q = self.0 / other.0;
        let rest = self.add(other.times(Self(-q, 0.0)));
        let q2 = rest.0 / other.0;
        let rest = rest.add(other.times(Self(-q2, 0.0)));
        Self::sum(q, q2).add(Self(rest.0 / other.0, 0.0))
    }

    /// exp by halving the argument until its series converges in a few terms, then squaring.
    fn exp_minus_one(self) -> Self {
        let mut halvings = 0;
        let mut x = self;
        while x.0.abs() > 1e-3 {
            x = Self(x.0 / 2.0, x.1 / 2.0);
            halvings += 1;
        }
        let mut sum = Self(0.0, 0.0);
        for term in (1..=12).rev() {
            // x/term (1 + sum)
            sum = x.over(Self(term as f64, 0.0)).times(Self(1.0, 0.0).add(sum));
        }
        for _ in 0..halvings {
            // (1+e)² - 1 = e (2 + e)
            sum = sum.times(Self(2.0, 0.0).add(sum));
        }
        sum
    }
}

fn exact_tanh(x: f64) -> f64 {
    if x.abs() > 25.0 {
        return x.signum();
    }
    let e = Double(2.0 * x, 0.0).exp_minus_one();
    e.over(Double(2.0, 0.0).add(e)).0
}

fn exact_sigmoid(x: f64) -> f64 {
    let e = Double(1.0, 0.0).add(Double(-x.abs(), 0.0).exp_minus_one());
    let one = Double(1.0, 0.0);
    if x < 0.0 { e.over(one.add(e)).0 } else { one.over(one.add(e)).0 }
}

#[test]
fn f64_within_three_units() {
    let mut inputs = Vec::new();
    let mut x = 1e-300f64;
    while x < 1e4 {
        inputs.extend([x, -x]);
        x *= if (1e-4..100.0).contains(&x) { 1.0007 } else { 1.9 };
    }
    for level in LEVELS {
        for (activation, exact, range) in [
            (Activation::Tanh, exact_tanh as fn(f64) -> f64, f64::MAX),
            // Beyond, the reference's 1 + (e - 1) has no digits left.
            (Activation::Sigmoid, exact_sigmoid, 30.0),
        ] {
            let mut values = inputs.clone();
            if !activate_with(level, activation, &mut values) {
                continue;
            }
            let mut worst = (0.0, 0.0);
            for (&x, &got) in inputs.iter().zip(&values).filter(|(x, _)| x.abs() <= range) {
                let exact = exact(x);
                let unit = f64::from_bits(exact.abs().to_bits() + 1) - exact.abs();
                let error = (got - exact).abs() / unit;
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            assert!(worst.0 <= 3.0, "{level:?} {activation:?}: {} ulp at {:e}", worst.0, worst.1);
        }
    }
}

#[test]
fn f64_sigmoid_is_the_exponential_far_out() {
    for level in LEVELS {
        let inputs: Vec<f64> = (0..2000).map(|i| -40.0 - i as f64 * 0.36).collect();
        let mut values = inputs.clone();
        if !activate_with(level, Activation::Sigmoid, &mut values) {
            continue;
        }
        for (&x, &got) in inputs.iter().zip(&values) {
            let exact = x.exp();
            let unit = f64::from_bits(exact.to_bits() + 1) - exact;
            assert!((got - exact).abs() <= 3.0 * unit, "{level:?} at {x}: {got:e}, {exact:e}");
        }
    }
}
