//! Conformance suite of the recurrent operations for any Burn device.

mod case;
mod compare;
mod keras;
mod onnx;
mod op;
mod pytorch;
mod report;
mod run;
mod target;

pub use case::{Case, CaseError, Kind, case_files};
pub use compare::{Mismatch, Tolerance};
pub use keras::{Keras, Layer};
pub use onnx::{Direction, Onnx, Operator};
pub use op::Op;
pub use pytorch::{Module, Nonlinearity, PyTorch};
pub use report::{Failure, Outcome, Report, Way, WrongTensor};
pub use run::{run_case, run_case_on_backend, run_folder, run_folder_on_backend};
