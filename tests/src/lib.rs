//! Conformance suite of the recurrent operations for any Burn device.

mod case;
mod compare;
mod device;
mod framework;
mod op;
mod report;
mod run;
mod target;

pub use case::{Case, CaseError, Kind, case_files};
pub use compare::{Mismatch, Tolerance};
pub use device::{DeviceError, TestDevice};
pub use framework::keras::{Keras, Layer};
pub use framework::onnx::{Direction, Onnx, Operator};
pub use framework::pytorch::{Module, Nonlinearity, PyTorch};
pub use op::Op;
pub use report::{Failure, Outcome, Report, Way, WrongTensor};
pub use run::{run_case, run_case_on_backend, run_folder, run_folder_on_backend};
