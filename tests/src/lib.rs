//! Conformance suite of the recurrent operations, for any Burn device and any backend of the operations.
//!
//! A case is a file that says what to run, on which tensors, and what the results must be; the repository's
//! own are in `tests/data/cases`, whose README describes the files. The suite runs every case in all the ways
//! that lead to its results and compares each result with the right answer:
//!
//! - The operations ([`Kind::Op`]): not training; training, with the gradient operation called directly; and
//!   through autodiff. Gradients must come back for exactly those inputs that are present.
//! - Layers of other frameworks ([`Kind::PyTorch`], [`Kind::Onnx`], [`Kind::Keras`]): through the conversions
//!   of their weights, as operations and as Burn modules, and with autodiff back to the framework's own
//!   weights where the case knows their gradients.
//!
//! # For authors of devices
//!
//! [`run_folder`] takes any [`Device`](burn::tensor::Device):
//!
//! ```no_run
//! use std::path::Path;
//!
//! use burn::tensor::{DType, Device};
//! use rnn_conformance::run_folder;
//!
//! let report = run_folder(Path::new("tests/data/cases"), &Device::flex(), DType::F32)?;
//! println!("{report}");
//! assert!(report.is_success());
//! # Ok::<(), rnn_conformance::CaseError>(())
//! ```
//!
//! On a device with gradient checkpointing, autodiff runs with it. [`TestDevice`] opens devices by name, as
//! the runner `conformance` does.
//!
//! # For authors of backends
//!
//! [`run_folder_on_backend`] asks an implementation of [`RecurrentOps`](burn_rnn::RecurrentOps) itself, without
//! a device, and so without fusion, around it. It is generic over the backend with autodiff:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use burn::{backend::Flex, tensor::DType};
//! use burn_autodiff::Autodiff;
//! use rnn_conformance::run_folder_on_backend;
//!
//! let folder = Path::new("tests/data/cases");
//! let report = run_folder_on_backend::<Autodiff<Flex>>(folder, &Default::default(), DType::F64)?;
//! assert!(report.is_success(), "{report}");
//! # Ok::<(), rnn_conformance::CaseError>(())
//! ```

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
