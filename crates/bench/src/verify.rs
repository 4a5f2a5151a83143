//! Whether a result is right, before and after it is timed.

use burn::tensor::{Tensor, TensorData};

use crate::{
    problem::Precision,
    reference::Reference,
    subject::{ForwardResult, TrainResult},
};

/// How far a tensor may be from the reference.
struct Tolerance {
    /// Of the root mean square of the differences, relative to that of the reference.
    typical: f64,
    /// Of the largest difference, relative to the largest value of the reference.
    largest: f64,
}

/// What a type's rounding leaves after a thousand steps and sums over tens of thousands of terms, and no
/// more: products in a narrower type than asked for, TF32 for f32 say, are outside.
fn tolerance(precision: Precision) -> Tolerance {
    match precision {
        Precision::F32 => Tolerance { typical: 2e-5, largest: 2e-4 },
        Precision::F16 => Tolerance { typical: 5e-3, largest: 2e-2 },
        Precision::Bf16 => Tolerance { typical: 4e-2, largest: 1e-1 },
    }
}

/// The largest deviation found, as a share of what is allowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deviation(pub f64);

/// Checks the results of a forward pass.
pub fn forward(
    result: ForwardResult,
    reference: &Reference,
    precision: Precision,
) -> Result<Deviation, String> {
    let mut check = Check { precision, deviation: Deviation::default() };
    check.tensor("output", Some(result.output), &reference.output)?;
    if let Some(final_state) = result.final_state {
        check.tensor("final state", Some(final_state), &reference.final_state)?;
    }
    Ok(check.deviation)
}

/// Checks the results of a training step.
pub fn train(result: TrainResult, reference: &Reference, precision: Precision) -> Result<Deviation, String> {
    let mut check = Check { precision, deviation: Deviation::default() };
    let gradients = reference.gradients.as_ref().expect("the reference of a training step has gradients");
    check.tensor("output", Some(result.output), &reference.output)?;
    check.tensor("gradient of the source", result.source, &gradients.source)?;
    check.tensor("gradient of the recurrent weight", result.recurrent_weight, &gradients.recurrent_weight)?;
    check.tensor("gradient of the input weight", result.input_weight, &gradients.input_weight)?;
    check.tensor("gradient of the bias", result.bias, &gradients.bias)?;
    if !gradients.secondary_bias.is_empty() {
        check.tensor("gradient of the secondary bias", result.secondary_bias, &gradients.secondary_bias)?;
    }
    Ok(check.deviation)
}

struct Check {
    precision: Precision,
    deviation: Deviation,
}

impl Check {
    fn tensor<const D: usize>(
        &mut self,
        name: &str,
        tensor: Option<Tensor<D>>,
        expected: &[f64],
    ) -> Result<(), String> {
        let tensor = tensor.ok_or_else(|| format!("{name}: missing"))?;
        let data = tensor.try_into_data().map_err(|error| format!("{name}: not readable: {error}"))?;
        let deviation = compare(&data, expected, self.precision).map_err(|why| format!("{name}: {why}"))?;
        self.deviation.0 = self.deviation.0.max(deviation);
        Ok(())
    }
}

/// The deviation as a share of what is allowed, or what is wrong.
fn compare(data: &TensorData, expected: &[f64], precision: Precision) -> Result<f64, String> {
    let got: Vec<f64> = data.iter::<f64>().collect();
    if got.len() != expected.len() {
        return Err(format!("{} elements, expected {}", got.len(), expected.len()));
    }
    let tolerance = tolerance(precision);
    let range = precision.max();
    let (mut difference_squares, mut squares) = (0.0, 0.0);
    let (mut worst, mut worst_at, mut largest) = (0.0, 0, 0.0f64);
    for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        // A sum of many rows can pass the range of a 16-bit type: then infinity is the right answer.
        if expected.abs() * (1.0 + tolerance.largest) > range && got.abs() > range * (1.0 - tolerance.largest)
        {
            if got.signum() != expected.signum() {
                return Err(format!("element {at} is {got:e}, expected {expected:e}"));
            }
            continue;
        }
        let difference = (got - expected).abs();
        if !difference.is_finite() {
            return Err(format!("element {at} is {got:e}, expected {expected:e}"));
        }
        difference_squares += difference * difference;
        squares += expected * expected;
        largest = largest.max(expected.abs());
        if difference > worst {
            (worst, worst_at) = (difference, at);
        }
    }
    if worst == 0.0 {
        return Ok(0.0);
    }
    let typical = (difference_squares / squares).sqrt();
    if typical > tolerance.typical || worst > tolerance.largest * largest {
        return Err(format!(
            "element {worst_at} is {:e}, expected {:e}; the error is {typical:.1e} of the tensor's size \
             (allowed {:.1e}), at most {:.1e} of its largest value (allowed {:.1e})",
            got[worst_at],
            expected[worst_at],
            tolerance.typical,
            worst / largest,
            tolerance.largest,
        ));
    }
    Ok((typical / tolerance.typical).max(worst / largest / tolerance.largest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;

    fn values(values: &[f32], dtype: DType) -> TensorData {
        TensorData::new(values.to_vec(), [values.len()]).convert_dtype(dtype)
    }

    #[test]
    fn a_result_within_rounding_passes() {
        let expected = [0.25, -0.5, 0.123456789];
        for (precision, dtype) in
            [(Precision::F32, DType::F32), (Precision::F16, DType::F16), (Precision::Bf16, DType::BF16)]
        {
            let data = values(&[0.25, -0.5, 0.123_456_79], dtype);
            let deviation = compare(&data, &expected, precision).expect("right");
            assert!(deviation < 0.5, "{deviation}");
        }
    }

    #[test]
    fn one_wrong_element_of_many_fails() {
        let expected: Vec<f64> = (0..10_000).map(|at| (f64::from(at) * 0.1).sin()).collect();
        let mut got: Vec<f32> = expected.iter().map(|&value| value as f32).collect();
        assert!(compare(&values(&got, DType::F32), &expected, Precision::F32).is_ok());
        got[1234] += 1e-3;
        let error = compare(&values(&got, DType::F32), &expected, Precision::F32).unwrap_err();
        assert!(error.starts_with("element 1234 is"), "{error}");
    }

    #[test]
    fn a_small_error_everywhere_fails() {
        let expected: Vec<f64> = (0..10_000).map(|at| (f64::from(at) * 0.1).sin()).collect();
        // The rounding of TF32, far below the largest single error that is allowed.
        let got: Vec<f32> = expected.iter().map(|&value| value as f32 * 1.000_1).collect();
        assert!(compare(&values(&got, DType::F32), &expected, Precision::F32).is_err());
    }

    #[test]
    fn nan_and_a_wrong_length_fail() {
        let error = compare(&values(&[f32::NAN], DType::F32), &[1.0], Precision::F32).unwrap_err();
        assert!(error.contains("NaN"), "{error}");
        let error = compare(&values(&[0.0; 2], DType::F32), &[0.0; 3], Precision::F32).unwrap_err();
        assert_eq!(error, "2 elements, expected 3");
    }

    #[test]
    fn a_sum_past_the_range_of_its_type_is_infinite() {
        let infinite = values(&[f32::INFINITY, 1.0], DType::F16);
        assert!(compare(&infinite, &[70_000.0, 1.0], Precision::F16).is_ok());
        assert!(compare(&infinite, &[-70_000.0, 1.0], Precision::F16).is_err());
        assert!(compare(&infinite, &[100.0, 1.0], Precision::F16).is_err());
        assert!(compare(&values(&[5.0, 1.0], DType::F16), &[70_000.0, 1.0], Precision::F16).is_err());
    }
}
