//! The kernels' strategies, each forced on cases that the automatic choice gives to another.

use std::{num::NonZero, path::Path};

use burn::tensor::DType;
use burn_rnn::{KernelOptions, Strategy, force_strategy};
use rnn_conformance::{Case, Kind, TestDevice, case_files};

/// The operation cases small enough for every strategy, odd sizes and every option among them.
fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cases");
    let cases: Vec<_> = case_files(&folder)
        .expect("the cases are there")
        .iter()
        .map(|file| Case::read(file).expect("a readable case"))
        .filter(|case| matches!(case.kind(), Kind::Op(_)))
        .filter(|case| !case.name().contains("activation") && !case.name().contains("x256"))
        .collect();
    assert!(cases.len() >= 40, "only {} cases", cases.len());
    cases
}

#[test]
fn every_strategy_passes_the_operation_cases() {
    let device = TestDevice::open("wgpu-unfused").expect("an adapter, which `cargo xtask test` installs");
    let strategies = [
        // One launch a step, for what fits one cube.
        KernelOptions::from(Strategy::Steps),
        // Several launches of a cube that keeps its rows: states and gradients pass between them.
        KernelOptions { strategy: Strategy::Cube, steps_per_launch: NonZero::new(2) },
    ];
    let cases = cases();
    for options in strategies {
        // Tests of this file share a process with no other: the force is theirs alone.
        force_strategy(options);
        for case in &cases {
            let outcome = device.run_case(case, DType::F32);
            assert!(outcome.failure.is_none(), "{options:?}: {outcome}");
        }
    }
    force_strategy(Strategy::Auto);
}

#[test]
fn strategies_are_named() {
    for (name, strategy) in [
        ("auto", Strategy::Auto),
        ("cube", Strategy::Cube),
        ("grid", Strategy::Grid),
        ("steps", Strategy::Steps),
    ] {
        assert_eq!(name.parse(), Ok(strategy));
    }
    assert!("fast".parse::<Strategy>().is_err_and(|error| error.contains("fast")));
}
