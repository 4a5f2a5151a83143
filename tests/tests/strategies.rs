//! The kernels in every strategy, whichever would be chosen, and in launches cut short: the repository's own
//! operation cases on the adapter, below fusion.
//!
//! One test, as a strategy is in force in the whole process.

use std::{num::NonZero, path::Path, thread};

use burn::tensor::DType;
use burn_rnn::{KernelOptions, Strategy, force_strategy};
use rnn_conformance::{Case, Kind, TestDevice, case_files};

#[test]
fn every_strategy_passes_the_cases_of_the_operations() {
    let device = TestDevice::open("wgpu-unfused").expect("cargo xtask test makes sure of an adapter");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cases");
    let cases = case_files(&folder).unwrap().into_iter().map(|file| Case::read(&file).unwrap());
    let cases: Vec<_> = cases.filter(|case| matches!(case.kind(), Kind::Op(_))).collect();
    assert_eq!(cases.len(), 60);

    let options = |strategy, steps| KernelOptions { strategy, steps_per_launch: NonZero::new(steps) };
    let cube = [options(Strategy::Cube, 0), options(Strategy::Cube, 3)];
    let others = [options(Strategy::Steps, 0), options(Strategy::Grid, 3)];
    for options in cube.into_iter().chain(others) {
        force_strategy(options);
        let failed = failures(&device, &cases);
        assert!(failed.is_empty(), "{options:?}:\n{}", failed.join("\n"));
    }
}

/// Lines for the cases that fail; they run side by side, as most of the time goes into compiling kernels.
fn failures(device: &TestDevice, cases: &[Case]) -> Vec<String> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let part = |part: &[Case]| -> Vec<String> {
        let outcomes = part.iter().map(|case| device.run_case(case, DType::F32));
        outcomes.filter(|outcome| outcome.failure.is_some()).map(|outcome| outcome.to_string()).collect()
    };
    thread::scope(|scope| {
        let parts = cases.chunks(cases.len().div_ceil(threads));
        let running: Vec<_> = parts.map(|cases| scope.spawn(move || part(cases))).collect();
        running.into_iter().flat_map(|part| part.join().expect("a case's panic is its failure")).collect()
    })
}
