//! Running cases on a device, or on a backend below it.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use burn::{
    backend::AutodiffBackend,
    tensor::{DType, Device},
};
use burn_rnn::RecurrentOps;

use crate::{
    Case, CaseError, Kind, Tolerance,
    case::{case_files, name_of},
    framework, op,
    report::{Failure, Judge, Outcome, Report},
    target::Target,
};

/// Runs every case of a folder on a device, in the element type `dtype`: f64, f32, f16 or bf16.
///
/// A case that can't be read fails; so does one that panics, and the run goes on. Files that are no
/// safetensors files are passed over.
///
/// # Errors
///
/// A [`CaseError`] if the folder can't be read.
pub fn run_folder(folder: &Path, device: &Device, dtype: DType) -> Result<Report, CaseError> {
    run_files(folder, |case| run_case(case, device, dtype))
}

/// Runs one case on a device, as [`run_folder`] does.
pub fn run_case(case: &Case, device: &Device, dtype: DType) -> Outcome {
    let checkpointing = device
        .gradient_checkpointing_strategy()
        .is_some_and(|strategy| strategy != burn::backend::GradientCheckpointingStrategy::Disabled);
    let target = Target { device: device.clone().without_autodiff(), dtype, checkpointing };
    judge(case, dtype, |judge| match case.kind() {
        Kind::Op(op) => op::functional::run(op, &target, judge),
        Kind::PyTorch(module) => framework::functional::run(module, &target, judge),
        Kind::Onnx(node) => framework::functional::run(node, &target, judge),
        Kind::Keras(layer) => framework::functional::run(layer, &target, judge),
    })
}

/// Runs every case of a folder on a backend itself rather than on a device, as [`run_folder`] does. `A` is
/// the backend with autodiff.
pub fn run_folder_on_backend<A>(folder: &Path, device: &A::Device, dtype: DType) -> Result<Report, CaseError>
where
    A: AutodiffBackend + RecurrentOps,
    A::InnerBackend: RecurrentOps,
{
    run_files(folder, |case| run_case_on_backend::<A>(case, device, dtype))
}

/// Runs one case on a backend, as [`run_folder_on_backend`] does.
pub fn run_case_on_backend<A>(case: &Case, device: &A::Device, dtype: DType) -> Outcome
where
    A: AutodiffBackend + RecurrentOps,
    A::InnerBackend: RecurrentOps,
{
    judge(case, dtype, |judge| match case.kind() {
        Kind::Op(op) => op::backend::run::<A>(op, device, judge),
        Kind::PyTorch(module) => framework::backend::run::<A>(module, device, judge),
        Kind::Onnx(node) => framework::backend::run::<A>(node, device, judge),
        Kind::Keras(layer) => framework::backend::run::<A>(layer, device, judge),
    })
}

fn run_files(folder: &Path, run: impl Fn(&Case) -> Outcome) -> Result<Report, CaseError> {
    let mut report = Report::default();
    for path in case_files(folder)? {
        report.outcomes.push(match Case::read(&path) {
            Ok(case) => run(&case),
            Err(error) => Outcome { case: name_of(&path), failure: Some(Failure::Unreadable(error)) },
        });
    }
    Ok(report)
}

fn judge(case: &Case, dtype: DType, run: impl FnOnce(&mut Judge) -> Result<(), Failure>) -> Outcome {
    let failure = match Tolerance::new(dtype, case.is_from_float32_peer()) {
        None => Some(Failure::UnsupportedDType(dtype)),
        Some(tolerance) => {
            let mut judge = Judge { case, tolerance, dtype, wrong: Vec::new() };
            match catch_unwind(AssertUnwindSafe(|| run(&mut judge))) {
                Ok(Ok(())) if judge.wrong.is_empty() => None,
                Ok(Ok(())) => Some(Failure::Wrong(judge.wrong)),
                Ok(Err(failure)) => Some(failure),
                Err(panic) => Some(Failure::Panic { message: message_of(panic) }),
            }
        }
    };
    Outcome { case: case.name().into(), failure }
}

fn message_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => match panic.downcast::<&str>() {
            Ok(message) => message.to_string(),
            Err(_) => "without a message".into(),
        },
    }
}
