//! Conformance cases through the kernels' MSL, executed on the CPU.

use std::num::NonZero;

use burn::tensor::DType;
use cube_rnn::{Options, Strategy};
use rnn_msl::text::Form;

use crate::support::{Way, case, run};

/// Runs cases in one way; all must pass.
fn all_pass(way: Way, cases: &[&str]) {
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|name| {
            let error = run(&case(name), way, way.stand_in()).err()?;
            Some(format!("{name}: {error}"))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// Both cells, the orders and places of gates, activations, both directions, masks, lengths, clip, inputs left out.
const GRU: [&str; 11] = [
    "gru_variants_0",
    "gru_variants_3",
    "gru_variants_5",
    "gru_variants_7",
    "gru_reverse_ra1",
    "gru_mask_nh_ra1",
    "gru_mask_tnh_ra0",
    "gru_clip",
    "gru_gate_activation_hard_sigmoid",
    "gru_gate_activation_relu",
    "gru_output_activation_none",
];
const GRU_BOTH_DIRECTIONS: [&str; 4] = [
    "gru_lengths_bidirectional_ra0",
    "gru_lengths_bidirectional_ra1",
    "gru_bidirectional_no_input_weight_ra0",
    "gru_bidirectional_ra1",
];
const RNN: [&str; 5] =
    ["rnn_activation_relu", "rnn_bidirectional_tanh", "rnn_lengths", "rnn_mask_tnh", "rnn_clip"];
/// Sizes from one up; hidden sizes that are multiples of a SIMD group, and one that is not.
const SIZES: [&str; 4] =
    ["gru_shape_1x1x1x1", "gru_shape_3x17x9x33", "gru_shape_40x2x16x64", "rnn_shape_40x2x16x64"];
/// Some of all kinds.
const FEW: [&str; 3] = ["gru_variants_0", "gru_lengths_bidirectional_ra1", "rnn_bidirectional_tanh"];

#[test]
fn gru_in_one_threadgroup() {
    all_pass(Way::new(Strategy::Cube), &GRU);
}

#[test]
fn gru_in_one_launch_a_step() {
    all_pass(Way::new(Strategy::Steps), &GRU);
}

#[test]
fn gru_in_both_directions_in_one_threadgroup() {
    all_pass(Way::new(Strategy::Cube), &GRU_BOTH_DIRECTIONS);
}

#[test]
fn gru_in_both_directions_in_one_launch_a_step() {
    all_pass(Way::new(Strategy::Steps), &GRU_BOTH_DIRECTIONS);
}

#[test]
fn single_gate_rnn_in_one_threadgroup() {
    all_pass(Way::new(Strategy::Cube), &RNN);
}

#[test]
fn single_gate_rnn_in_one_launch_a_step() {
    all_pass(Way::new(Strategy::Steps), &RNN);
}

#[test]
fn sizes_in_one_threadgroup() {
    all_pass(Way::new(Strategy::Cube), &SIZES);
}

#[test]
fn sizes_in_one_launch_a_step() {
    all_pass(Way::new(Strategy::Steps), &SIZES);
}

/// Two, four and eight rows a threadgroup, so that the factors of a product are vectors.
#[test]
fn several_rows_in_one_threadgroup() {
    let way = |cores| Way { cores: Some(cores), ..Way::new(Strategy::Cube) };
    all_pass(way(2), &["gru_variants_0", "gru_lengths_bidirectional_ra1"]);
    all_pass(way(1), &["gru_mask_tnh_ra1", "rnn_lengths"]);
    all_pass(way(3), &["rnn_shape_3x17x9x33", "gru_shape_3x17x9x33"]);
}

/// A weight that does not fit in registers is read anew each step.
#[test]
fn streamed_weight_in_one_threadgroup() {
    all_pass(Way::new(Strategy::Cube), &["rnn_shape_12x5x20x130", "gru_shape_12x5x20x130"]);
}

#[test]
fn long_products_in_parts() {
    all_pass(Way::new(Strategy::Steps), &["gru_shape_12x5x20x130"]);
}

#[test]
fn launches_of_a_few_steps() {
    let options = Options { strategy: Strategy::Cube, steps_per_launch: NonZero::new(3) };
    all_pass(Way { options, ..Way::new(Strategy::Cube) }, &FEW);
}

#[test]
fn sixteen_bits() {
    for dtype in [DType::F16, DType::BF16] {
        all_pass(Way { dtype, ..Way::new(Strategy::Cube) }, &FEW);
        all_pass(Way { dtype, ..Way::new(Strategy::Steps) }, &FEW[..2]);
    }
}

#[test]
fn what_naga_makes_of_wgsl() {
    for strategy in [Strategy::Cube, Strategy::Steps] {
        all_pass(Way { form: Form::Naga, ..Way::new(strategy) }, &FEW);
    }
    let way = Way { form: Form::Naga, cores: Some(3), ..Way::new(Strategy::Cube) };
    all_pass(way, &["rnn_shape_3x17x9x33"]);
}

/// The tolerances hold where the compiler takes liberties, as Apple's does by default.
#[test]
fn fast_math() {
    for strategy in [Strategy::Cube, Strategy::Steps] {
        all_pass(Way { fast_math: true, ..Way::new(strategy) }, &FEW);
    }
}
