//! When a result counts as right.

use std::fmt;

use burn::tensor::{DType, TensorData};

use crate::case::dims;

/// How far a result may be from the right answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Every element: `|got - want| <= absolute + relative * |want|`.
    Elementwise {
        /// The part that doesn't depend on the answer.
        absolute: f64,
        /// The part in proportion to the answer.
        relative: f64,
    },
    /// The whole tensor: `||got - want|| <= absolute + relative * ||want||`, in the Euclidean norm.
    Norm {
        /// The part that doesn't depend on the answer.
        absolute: f64,
        /// The part in proportion to the answer.
        relative: f64,
    },
}

/// What is wrong with a result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mismatch {
    /// It has another shape.
    Shape {
        /// Its shape.
        got: Vec<usize>,
        /// The right one.
        want: Vec<usize>,
    },
    /// It has another element type.
    DType {
        /// Its element type.
        got: DType,
        /// The right one.
        want: DType,
    },
    /// Its values are too far from the right ones.
    Values {
        /// The largest error of an element; infinite where one of both is not a number.
        error: f64,
        /// Where that error is.
        index: Vec<usize>,
        /// The element there.
        got: f64,
        /// The right one.
        want: f64,
        /// How many elements are too far off.
        outside: usize,
        /// How many elements there are.
        elements: usize,
    },
    /// The tensor as a whole is too far from the right one, in the Euclidean norm.
    Norm {
        /// The largest error of an element; infinite where one of both is not a number.
        error: f64,
        /// `||got - want|| / ||want||`
        relative: f64,
    },
    /// It is absent.
    Missing,
    /// It is there, but should not be.
    Unexpected,
}

impl Mismatch {
    /// The largest error of an element, if the values could be compared at all.
    pub fn largest_error(&self) -> f64 {
        match self {
            Self::Values { error, .. } | Self::Norm { error, .. } => *error,
            _ => f64::INFINITY,
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { got, want } => write!(f, "has the shape {got:?} instead of {want:?}"),
            Self::DType { got, want } => write!(f, "has the element type {got:?} instead of {want:?}"),
            Self::Values { error, index, got, want, outside, elements } => write!(
                f,
                "largest error {error:.3e} at {index:?}: got {got:.6e}, want {want:.6e} \
                 ({outside} of {elements} elements out of tolerance)"
            ),
            Self::Norm { error, relative } => {
                write!(f, "largest error {error:.3e}, relative error of the norm {relative:.3e}")
            }
            Self::Missing => write!(f, "is missing"),
            Self::Unexpected => write!(f, "came back, though its input is absent"),
        }
    }
}

impl Tolerance {
    /// The tolerance for results in `dtype`:
    ///
    /// | element type | rule |
    /// | --- | --- |
    /// | f64 | each element, 1e-10 |
    /// | f32 | each element, 2e-5 |
    /// | f64, f32, where a peer computed the answer in float32 | each element, 1e-4 |
    /// | f16 | norm, 1.5e-2 |
    /// | bf16 | norm, 4e-2 |
    ///
    /// `None` for other element types.
    pub fn new(dtype: DType, float32_peer: bool) -> Option<Self> {
        let elementwise = |tolerance| Self::Elementwise { absolute: tolerance, relative: tolerance };
        let norm = |relative| Self::Norm { absolute: 1e-6, relative };
        Some(match dtype {
            DType::F64 | DType::F32 if float32_peer => elementwise(1e-4),
            DType::F64 => elementwise(1e-10),
            DType::F32 => elementwise(2e-5),
            DType::F16 => norm(1.5e-2),
            DType::BF16 => norm(4e-2),
            _ => return None,
        })
    }

    /// What is wrong with `got`, which must have the element type `dtype`; `None` if it is right.
    pub fn compare(&self, got: &TensorData, want: &TensorData, dtype: DType) -> Option<Mismatch> {
        let shape = dims(want);
        if dims(got) != shape {
            return Some(Mismatch::Shape { got: dims(got), want: shape });
        }
        if got.dtype() != dtype {
            return Some(Mismatch::DType { got: got.dtype(), want: dtype });
        }
        let got: Vec<f64> = got.iter().collect();
        let want: Vec<f64> = want.iter().collect();
        let errors: Vec<f64> = got.iter().zip(&want).map(|(got, want)| error(*got, *want)).collect();
        let worst = (0..errors.len()).max_by(|&a, &b| errors[a].total_cmp(&errors[b]))?;

        match *self {
            Self::Elementwise { absolute, relative } => {
                let within = |(error, want): (&f64, &f64)| *error <= absolute + relative * want.abs();
                let outside = errors.iter().zip(&want).filter(|&pair| !within(pair)).count();
                (outside > 0).then(|| Mismatch::Values {
                    error: errors[worst],
                    index: unravel(worst, &shape),
                    got: got[worst],
                    want: want[worst],
                    outside,
                    elements: errors.len(),
                })
            }
            Self::Norm { absolute, relative } => {
                let (distance, length) = (norm(&errors), norm(&want));
                let within = distance <= absolute + relative * length;
                (!within).then(|| Mismatch::Norm { error: errors[worst], relative: distance / length })
            }
        }
    }
}

/// `|got - want|`; infinite if it is no number.
fn error(got: f64, want: f64) -> f64 {
    match (got - want).abs() {
        error if error.is_nan() => f64::INFINITY,
        error => error,
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The index of an element along each axis.
fn unravel(mut offset: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = offset % shape[axis];
        offset /= shape[axis];
    }
    index
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn data(values: &[f64]) -> TensorData {
        TensorData::new(values.to_vec(), [1, values.len()])
    }

    #[test]
    fn an_element_may_be_off_by_its_tolerance_only() {
        let tolerance = Tolerance::new(DType::F64, false).unwrap();
        let compare = |got, want| tolerance.compare(&data(&[1.0, got]), &data(&[1.0, want]), DType::F64);
        assert_eq!(compare(100.0 + 1e-8, 100.0), None);
        assert_eq!(compare(0.9e-10, 0.0), None);
        let Some(Mismatch::Values { error, index, outside, elements, .. }) = compare(1.5, 1.0) else {
            panic!("a wrong value passed");
        };
        assert_eq!((error, index, outside, elements), (0.5, vec![0, 1], 1, 2));
    }

    #[test]
    fn what_is_not_a_number_is_wrong() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let tolerance = Tolerance::new(dtype, true).unwrap();
            for wrong in [f64::NAN, f64::INFINITY] {
                let got = data(&[wrong, 1.0]).convert_dtype(dtype);
                let mismatch = tolerance.compare(&got, &data(&[1.0, 1.0]), dtype).unwrap();
                assert_eq!(mismatch.largest_error(), f64::INFINITY);
                // Nor may the answer be infinite where the result is not.
                let got = data(&[1.0, 1.0]).convert_dtype(dtype);
                assert!(tolerance.compare(&got, &data(&[f64::NAN, 1.0]), dtype).is_some());
            }
        }
    }

    #[test]
    fn shape_and_element_type_count() {
        let tolerance = Tolerance::new(DType::F32, false).unwrap();
        let got = TensorData::new(vec![1f32; 2], [2, 1]);
        let wrong = tolerance.compare(&got, &data(&[1.0, 1.0]), DType::F32);
        assert_eq!(wrong, Some(Mismatch::Shape { got: vec![2, 1], want: vec![1, 2] }));
        let wrong = tolerance.compare(&data(&[1.0]), &data(&[1.0]), DType::F32);
        assert_eq!(wrong, Some(Mismatch::DType { got: DType::F64, want: DType::F32 }));
    }

    #[test]
    fn half_precision_goes_by_the_norm() {
        let tolerance = Tolerance::new(DType::F16, false).unwrap();
        let got = |value: f32| TensorData::new(vec![f16::from_f32(100.0), f16::from_f32(value)], [1, 2]);
        assert_eq!(tolerance.compare(&got(1.0), &data(&[100.0, 0.0]), DType::F16), None);
        assert!(tolerance.compare(&got(2.0), &data(&[100.0, 0.0]), DType::F16).is_some());
    }

    #[test]
    fn only_floating_point_results_have_a_tolerance() {
        assert_eq!(Tolerance::new(DType::I32, false), None);
        let peer = Tolerance::new(DType::F64, true);
        assert_eq!(peer, Some(Tolerance::Elementwise { absolute: 1e-4, relative: 1e-4 }));
    }
}
