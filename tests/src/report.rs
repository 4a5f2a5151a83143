//! What a run found.

use std::fmt;

use burn::tensor::{DType, TensorData};

use crate::{Case, CaseError, Mismatch, Tolerance};

/// The ways in which a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Way {
    /// The forward operation alone, not training.
    Inference,
    /// The forward operation in training, then the gradient operation, without autodiff.
    Gradients,
    /// The forward operation on tracked tensors, then autodiff's `backward`.
    Autodiff,
    /// A module made from another framework's weights, not training.
    Module,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inference => "inference",
            Self::Gradients => "gradient operation",
            Self::Autodiff => "autodiff",
            Self::Module => "module",
        })
    }
}

/// Why a case failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// The case could not be read.
    Unreadable(CaseError),
    /// The suite has no tolerance for results in this element type.
    UnsupportedDType(DType),
    /// The operation was refused, or its result could not be read.
    Error {
        /// In which way of running the case.
        way: Way,
        /// The error's text.
        error: String,
    },
    /// The run panicked.
    Panic {
        /// What the panic said.
        message: String,
    },
    /// Results are wrong.
    Wrong(Vec<WrongTensor>),
}

/// A wrong result.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongTensor {
    /// The way in which it came about.
    pub way: Way,
    /// Its name, as after `expect.` in the case file.
    pub tensor: String,
    /// What is wrong.
    pub mismatch: Mismatch,
}

impl fmt::Display for WrongTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.tensor, self.way, self.mismatch)
    }
}

impl fmt::Display for Failure {
    /// One line: the worst tensor, and how many others are wrong.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A backend's error may run over many lines.
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        match self {
            Self::Unreadable(error) => write!(f, "cannot be read: {}", line(&error.to_string())),
            Self::UnsupportedDType(dtype) => {
                write!(f, "cannot run in {dtype:?}: only in f64, f32, f16, bf16")
            }
            Self::Error { way, error } => write!(f, "({way}) {}", line(error)),
            Self::Panic { message } => write!(f, "panicked: {}", line(message)),
            Self::Wrong(tensors) => {
                let largest = |tensor: &&WrongTensor| tensor.mismatch.largest_error();
                let worst = tensors.iter().max_by(|a, b| largest(a).total_cmp(&largest(b)));
                if let Some(worst) = worst {
                    write!(f, "{worst}")?;
                }
                match tensors.len() {
                    0 | 1 => Ok(()),
                    2 => write!(f, "; another tensor is wrong"),
                    count => write!(f, "; {} other tensors are wrong", count - 1),
                }
            }
        }
    }
}

/// What became of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The case's name.
    pub case: String,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(f, "passed {}", self.case),
            Some(failure) => write!(f, "FAILED {}: {failure}", self.case),
        }
    }
}

/// What became of all cases of a folder, in the order of their names.
///
/// Displays as a line for each failing case and a closing line, `N passed, N failed`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// One for each case file.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// How many cases passed.
    pub fn passed(&self) -> usize {
        self.outcomes.len() - self.failed()
    }

    /// How many cases failed, unreadable ones among them.
    pub fn failed(&self) -> usize {
        self.failures().count()
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some())
    }

    /// Whether there was a case at all, and none failed.
    pub fn is_success(&self) -> bool {
        self.failed() == 0 && self.passed() > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in self.failures() {
            writeln!(f, "{outcome}")?;
        }
        write!(f, "{} passed, {} failed", self.passed(), self.failed())
    }
}

/// Compares results with a case's expectations, and collects what is wrong.
pub(crate) struct Judge<'a> {
    pub case: &'a Case,
    pub tolerance: Tolerance,
    pub dtype: DType,
    pub wrong: Vec<WrongTensor>,
}

impl Judge<'_> {
    /// Compares one result, which is absent if the operation did not return it.
    pub fn compare(&mut self, way: Way, tensor: &str, got: Option<TensorData>) {
        let mismatch = match (got, self.case.expected().get(tensor)) {
            (Some(got), Some(want)) => self.tolerance.compare(&got, want, self.dtype),
            (Some(_), None) => Some(Mismatch::Unexpected),
            (None, Some(_)) => Some(Mismatch::Missing),
            (None, None) => None,
        };
        if let Some(mismatch) = mismatch {
            self.wrong.push(WrongTensor { way, tensor: tensor.into(), mismatch });
        }
    }

    /// Compares a result only if the case says what it should be.
    pub fn compare_if_expected(&mut self, way: Way, tensor: &str, got: TensorData) {
        if self.case.expected().contains_key(tensor) {
            self.compare(way, tensor, Some(got));
        }
    }
}
