//! Conformance cases through the kernels' MSL, executed on the CPU.

mod support;

use burn::tensor::DType;
use cube_rnn::Strategy;
use rnn_msl::{stand_in::StandIn, text::Form};

/// Cases that between them have every option: both cells, the orders and places of gates, all activations, both
/// directions, masks, lengths, clip, inputs left out, sizes from one to more than a SIMD group.
const CASES: [&str; 22] = [
    "gru_variants_0",
    "gru_variants_5",
    "gru_variants_7",
    "gru_bidirectional_ra0",
    "gru_bidirectional_ra1",
    "gru_reverse_ra0",
    "gru_reverse_ra1",
    "gru_lengths_bidirectional_ra0",
    "gru_lengths_bidirectional_ra1",
    "gru_mask_nh_ra1",
    "gru_mask_tnh_ra0",
    "gru_no_input_weight_ra0",
    "gru_clip",
    "gru_gate_activation_hard_sigmoid",
    "gru_gate_activation_relu",
    "gru_output_activation_none",
    "gru_shape_1x1x1x1",
    "gru_shape_3x17x9x33",
    "gru_shape_40x2x16x64",
    "rnn_activation_relu",
    "rnn_bidirectional_tanh",
    "rnn_lengths",
];

fn run_all(form: Form, dtype: DType, strategy: Strategy, cases: &[&str]) {
    let clang = support::clang();
    let mut failures = Vec::new();
    for name in cases {
        let engine =
            StandIn::new(clang.clone(), &support::folder(), form).expect("the folder can be written");
        if let Err(error) = support::run(&support::case(name), dtype, strategy, engine) {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn msl_of_one_threadgroup_a_row() {
    run_all(Form::Msl, DType::F32, Strategy::Cube, &CASES);
}

#[test]
fn msl_of_one_launch_a_step() {
    run_all(Form::Msl, DType::F32, Strategy::Steps, &CASES);
}

#[test]
fn msl_in_16_bits() {
    let some = ["gru_variants_0", "gru_bidirectional_ra1", "rnn_bidirectional_tanh"];
    for dtype in [DType::F16, DType::BF16] {
        for strategy in [Strategy::Cube, Strategy::Steps] {
            run_all(Form::Msl, dtype, strategy, &some);
        }
    }
}

#[test]
fn naga_s_msl() {
    let some =
        ["gru_variants_0", "gru_lengths_bidirectional_ra1", "gru_shape_3x17x9x33", "rnn_bidirectional_tanh"];
    for strategy in [Strategy::Cube, Strategy::Steps] {
        run_all(Form::Naga, DType::F32, strategy, &some);
    }
}
