//! The repository's own cases on every device at hand.

use burn::{
    backend::{DispatchDevice, Flex},
    tensor::{DType, Device},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::BalancedCheckpointing};
use rnn_conformance::{Report, TestDevice, case_files, run_folder, run_folder_on_backend};

use crate::cases;

/// How many cases the repository has.
const CASES: usize = 76;

#[track_caller]
fn assert_all_pass(report: Report) {
    assert!(report.is_success(), "{report}");
    assert_eq!(report.to_string(), format!("{CASES} passed, 0 failed"));
}

#[track_caller]
fn assert_all_pass_on(name: &str, dtype: DType) {
    let device = TestDevice::open(name).expect("cargo xtask test makes sure of an adapter");
    assert_all_pass(device.run_folder(&cases(), dtype).unwrap());
}

#[test]
fn there_are_cases() {
    assert_eq!(case_files(&cases()).unwrap().len(), CASES);
}

#[test]
fn flex_in_f32() {
    assert_all_pass_on("flex", DType::F32);
}

#[test]
fn flex_in_f64() {
    assert_all_pass_on("flex", DType::F64);
}

#[test]
fn flex_in_f16() {
    assert_all_pass_on("flex", DType::F16);
}

#[test]
fn flex_in_bf16() {
    assert_all_pass_on("flex", DType::BF16);
}

#[test]
fn flex_with_checkpointing() {
    let device = Device::flex().autodiff().gradient_checkpointing();
    assert_all_pass(run_folder(&cases(), &device, DType::F64).unwrap());
}

#[test]
fn the_flex_backend_below_devices() {
    let device = Device::flex();
    let DispatchDevice::Flex(device) = device.as_dispatch() else { unreachable!() };
    let (keeping, recomputing) = (
        run_folder_on_backend::<Autodiff<Flex>>(&cases(), device, DType::F64),
        run_folder_on_backend::<Autodiff<Flex, BalancedCheckpointing>>(&cases(), device, DType::F64),
    );
    assert_all_pass(keeping.unwrap());
    assert_all_pass(recomputing.unwrap());
}

#[test]
fn ndarray_in_f32() {
    assert_all_pass_on("ndarray", DType::F32);
}

#[test]
fn ndarray_in_f64() {
    assert_all_pass_on("ndarray", DType::F64);
}

#[test]
fn wgpu_with_fusion() {
    assert_all_pass_on("wgpu", DType::F32);
}

#[test]
fn wgpu_without_fusion() {
    assert_all_pass_on("wgpu-unfused", DType::F32);
}

/// In the element types of half the size, where the adapter has them.
#[test]
fn wgpu_in_half_precision() {
    let device = TestDevice::open("wgpu-unfused").expect("cargo xtask test makes sure of an adapter");
    for dtype in [DType::F16, DType::BF16] {
        if device.device().supports_dtype(dtype) {
            assert_all_pass(device.run_folder(&cases(), dtype).unwrap());
        } else {
            println!("{device} does not compute in {dtype:?}");
        }
    }
}
