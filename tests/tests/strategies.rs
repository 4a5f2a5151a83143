//! The kernels in every strategy, whichever would be chosen, and in launches cut short: the repository's own
//! operation cases on the adapter, below fusion.
//!
//! One test, as a strategy is in force in the whole process.

use std::{num::NonZero, path::Path};

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
    for options in [options(Strategy::Cube, 0), options(Strategy::Steps, 0), options(Strategy::Cube, 3)] {
        force_strategy(options);
        let outcomes: Vec<_> = cases.iter().map(|case| device.run_case(case, DType::F32)).collect();
        let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.failure.is_some()).collect();
        let lines: Vec<_> = failed.iter().map(|outcome| outcome.to_string()).collect();
        assert!(failed.is_empty(), "{options:?}:\n{}", lines.join("\n"));
    }
}
