//! What is refused, and in which words: each error names the tensor, what was expected and what came.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_rnn::{
    Activation, Error, GruDescriptor, GruInputs, Lengths, RecurrentOutput, SingleGateRnnDescriptor,
    SingleGateRnnInputs, gru, gru_gradients, single_gate_rnn, single_gate_rnn_gradients,
};

use crate::devices;

/// Inputs that fit each other: T = 4, N = 3, I = 2, H = 5.
fn inputs(device: &Device) -> GruInputs<2> {
    GruInputs::new(Tensor::zeros([4, 3, 2], device), Tensor::zeros([15, 5], device))
        .with_input_weight(Tensor::zeros([15, 2], device))
        .with_bias(Tensor::zeros([15], device))
        .with_init_state(Tensor::zeros([3, 5], device))
}

fn reset_after() -> GruDescriptor {
    GruDescriptor { reset_after: true, training: true, ..Default::default() }
}

/// Fails unless the call was refused in these words, in one line.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, text: &str) {
    match result {
        Ok(_) => panic!("this must be refused: {text}"),
        Err(error) => assert_eq!(error.to_string(), text),
    }
}

#[test]
fn what_fits_is_taken() {
    let device = Device::flex();
    let secondary_bias = Tensor::zeros([5], &device);
    gru(inputs(&device).with_secondary_bias(secondary_bias), &reset_after()).unwrap();
}

#[test]
fn shapes_of_a_gru() {
    let device = Device::flex();
    let one = |size: usize| Tensor::<1>::zeros([size], &device);
    let two = |shape: [usize; 2]| Tensor::<2>::zeros(shape, &device);
    let three = |shape: [usize; 3]| Tensor::<3>::zeros(shape, &device);
    let inputs = || inputs(&device);
    for (wrong, text) in [
        (
            GruInputs { recurrent_weight: two([14, 5]), ..inputs() },
            "`recurrent_weight` must have the shape [3H, H] = [15, 5], got [14, 5]",
        ),
        (
            GruInputs { recurrent_weight: two([0, 0]), ..inputs() },
            "`recurrent_weight` must have the shape [3H, H] with H from 1 up, got [0, 0]",
        ),
        (
            inputs().with_input_weight(two([15, 3])),
            "`input_weight` must have the shape [D·3H, I] = [15, 2], got [15, 3]",
        ),
        (inputs().with_bias(one(5)), "`bias` must have the shape [D·3H] = [15], got [5]"),
        (
            inputs().with_init_state(two([5, 3])),
            "`init_state` must have the shape [N, D·H] = [3, 5], got [5, 3]",
        ),
        (inputs().with_secondary_bias(one(15)), "`secondary_bias` must have the shape [D·H] = [5], got [15]"),
        (inputs().with_mask(two([4, 5])), "`mask` must have the shape [N, D·H] = [3, 5], got [4, 5]"),
        (
            inputs().with_mask(three([3, 4, 5])),
            "`mask` must have the shape [T, N, D·H] = [4, 3, 5], got [3, 4, 5]",
        ),
        (inputs().with_lengths([1, 2]), "`lengths` must have the shape [N] = [3], got [2]"),
        (
            GruInputs { input_weight: None, ..inputs() },
            "`source` must have the shape [T, N, D·3H], as there is no `input_weight`, = [4, 3, 15], \
             got [4, 3, 2]",
        ),
        (
            GruInputs { source: three([4, 3, 0]), ..inputs() },
            "`source` must have the shape [T, N, I] with I from 1 up, got [4, 3, 0]",
        ),
    ] {
        assert_refused(gru(wrong, &reset_after()), text);
    }
}

#[test]
fn shapes_of_a_bidirectional_single_gate_rnn() {
    let device = Device::flex();
    let descriptor = SingleGateRnnDescriptor { bidirectional: true, ..Default::default() };
    let inputs = || {
        let source = Tensor::zeros([4, 3, 2], &device);
        SingleGateRnnInputs::new(source, Tensor::<3>::zeros([2, 5, 5], &device))
            .with_input_weight(Tensor::zeros([10, 2], &device))
    };
    single_gate_rnn(inputs(), &descriptor).unwrap();
    let weight = Tensor::zeros([1, 5, 5], &device);
    assert_refused(
        single_gate_rnn(SingleGateRnnInputs { recurrent_weight: weight, ..inputs() }, &descriptor),
        "`recurrent_weight` must have the shape [2, H, H] = [2, 5, 5], got [1, 5, 5]",
    );
    assert_refused(
        single_gate_rnn(inputs().with_input_weight(Tensor::zeros([5, 2], &device)), &descriptor),
        "`input_weight` must have the shape [D·H, I] = [10, 2], got [5, 2]",
    );
    assert_refused(
        single_gate_rnn(inputs().with_bias(Tensor::zeros([5], &device)), &descriptor),
        "`bias` must have the shape [D·H] = [10], got [5]",
    );
    assert_refused(
        single_gate_rnn(inputs().with_init_state(Tensor::zeros([3, 5], &device)), &descriptor),
        "`init_state` must have the shape [N, D·H] = [3, 10], got [3, 5]",
    );
}

#[test]
fn shapes_of_what_the_gradients_take() {
    let device = Device::flex();
    let RecurrentOutput { output, z_state, .. } = gru(inputs(&device), &reset_after()).unwrap();
    let z_state = z_state.unwrap();
    let wrong = |shape: [usize; 3]| Tensor::<3>::zeros(shape, &device);
    let call = |gradient: Tensor<3>, z: Tensor<3>, output: Tensor<3>, state: Option<Tensor<2>>| {
        gru_gradients(inputs(&device), gradient, z, output, state, &reset_after())
    };
    let right = || (output.clone(), z_state.clone(), output.clone());
    let (gradient, z, out) = right();
    call(gradient, z, out, None).unwrap();

    let (_, z, out) = right();
    assert_refused(
        call(wrong([4, 3, 2]), z, out, None),
        "`source_gradient` must have the shape [T, N, D·H] = [4, 3, 5], got [4, 3, 2]",
    );
    let (gradient, _, out) = right();
    assert_refused(
        call(gradient, wrong([4, 3, 5]), out, None),
        "`z_state` must have the shape [T, N, D·3H] = [4, 3, 15], got [4, 3, 5]",
    );
    let (gradient, z, _) = right();
    assert_refused(
        call(gradient, z, wrong([3, 3, 5]), None),
        "`output_fwd` must have the shape [T, N, D·H] = [4, 3, 5], got [3, 3, 5]",
    );
    let (gradient, z, out) = right();
    assert_refused(
        call(gradient, z, out, Some(Tensor::zeros([3, 4], &device))),
        "`state_gradient` must have the shape [N, D·H] = [3, 5], got [3, 4]",
    );

    let source = Tensor::zeros([4, 3, 5], &device);
    let rnn = SingleGateRnnInputs::new(source.clone(), Tensor::<2>::zeros([5, 5], &device));
    assert_refused(
        single_gate_rnn_gradients(rnn, source, wrong([4, 3, 15]), None, &Default::default()),
        "`z_state` must have the shape [T, N, D·H] = [4, 3, 5], got [4, 3, 15]",
    );
}

#[test]
fn ranks() {
    let device = Device::flex();
    let bidirectional = GruDescriptor { bidirectional: true, ..Default::default() };
    assert_refused(
        gru(inputs(&device), &bidirectional),
        "`recurrent_weight` must have rank 3 as the descriptor is bidirectional, got rank 2 with the shape \
         [15, 5]",
    );
    let source = Tensor::zeros([4, 3, 30], &device);
    assert_refused(
        gru(GruInputs::new(source, Tensor::<3>::zeros([2, 15, 5], &device)), &Default::default()),
        "`recurrent_weight` must have rank 2 as the descriptor has one direction, got rank 3 with the shape \
         [2, 15, 5]",
    );
}

#[test]
fn element_types() {
    let device = Device::flex();
    let wrong = |dtype: DType| Tensor::<1>::zeros([15], (&device, dtype));
    assert_refused(
        gru(inputs(&device).with_bias(wrong(DType::F64)), &reset_after()),
        "`bias` must have the element type of `source`, F32, got F64",
    );
    let source = Tensor::zeros([4, 3, 2], (&device, DType::F16));
    assert_refused(
        gru(GruInputs { source, ..inputs(&device) }, &reset_after()),
        "`recurrent_weight` must have the element type of `source`, F16, got F32",
    );
    let RecurrentOutput { output, z_state, .. } = gru(inputs(&device), &reset_after()).unwrap();
    let gradient = Tensor::zeros_like(&output).cast(DType::BF16);
    assert_refused(
        gru_gradients(inputs(&device), gradient, z_state.unwrap(), output, None, &reset_after()),
        "`source_gradient` must have the element type of `source`, F32, got BF16",
    );
}

/// WGSL and SPIR-V have no tanh and no exp for f64, whatever the adapter says of its arithmetic.
#[test]
fn element_types_that_a_device_does_not_compute_with() {
    let device = devices::wgpu().device;
    let f64 = |shape: [usize; 3]| {
        Tensor::<3>::from_data(TensorData::zeros::<f32, _>(shape), &device).cast(DType::F64)
    };
    let weight = f64([1, 15, 5]).reshape([15, 5]);
    let error = gru(GruInputs::new(f64([4, 3, 15]), weight), &Default::default()).unwrap_err();
    assert_eq!(error, Error::UnsupportedDType { tensor: "source", got: DType::F64, device: device.clone() });
    let text = error.to_string();
    let device = format!("{device:?}");
    for part in ["`source` must have an element type that", &device, "got F64"] {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn devices_may_not_be_mixed() {
    let (flex, ndarray) = (Device::flex(), devices::ndarray().device);
    let error = gru(inputs(&flex).with_bias(Tensor::zeros([15], &ndarray)), &reset_after()).unwrap_err();
    let expected = Error::DeviceMismatch { tensor: "bias", expected: flex.clone(), got: ndarray.clone() };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        format!("`bias` must be on the device of `source`, {flex:?}, got {ndarray:?}")
    );
    let error = gru(
        GruInputs { source: Tensor::zeros([4, 3, 2], &devices::wgpu().device), ..inputs(&flex) },
        &reset_after(),
    );
    assert!(matches!(error, Err(Error::DeviceMismatch { tensor: "recurrent_weight", .. })), "{error:?}");
}

#[test]
fn a_secondary_bias_needs_reset_after() {
    let device = Device::flex();
    assert_refused(
        gru(inputs(&device).with_secondary_bias(Tensor::zeros([5], &device)), &Default::default()),
        "`secondary_bias` must be absent without `reset_after`, got one with the shape [5]",
    );
}

#[test]
fn lengths_out_of_range() {
    let device = Device::flex();
    let with = |lengths: Lengths| gru(inputs(&device).with_lengths(lengths), &reset_after());
    with([0, 4, 2].into()).unwrap();
    assert_refused(with([4, 5, 6].into()), "`lengths` must be from 0 to T = 4, got 5 in row 1");
    assert_refused(
        with(Tensor::<1, Int>::from_ints([4, 0, -1], &device).into()),
        "`lengths` must be from 0 to T = 4, got -1 in row 2",
    );
    assert_refused(
        with([usize::MAX, 0, 0].into()),
        &format!("`lengths` must be from 0 to T = 4, got {} in row 0", i64::MAX),
    );
}

#[test]
fn lengths_that_cannot_be_read() {
    let device = Device::capture();
    let graph = device.capture_scope(|scope| {
        let lengths = Tensor::<1, Int>::from_ints([3, -1, 0], &device) + 1;
        let error = gru(inputs(&Device::flex()).with_lengths(lengths), &reset_after()).unwrap_err();
        let Error::UnreadableLengths { reason } = &error else { panic!("{error:?}") };
        assert_eq!(
            error.to_string(),
            format!("`lengths` must be readable to be checked, got: {reason}; give them as a slice instead")
        );
        scope.complete([], [])
    });
    graph.unwrap();
}

#[test]
fn options_out_of_range() {
    let device = Device::flex();
    for (clip, text) in [
        (0.0, "`clip` must be finite and above 0, got 0"),
        (-1.0, "`clip` must be finite and above 0, got -1"),
        (f64::NAN, "`clip` must be finite and above 0, got NaN"),
        (f64::INFINITY, "`clip` must be finite and above 0, got inf"),
    ] {
        assert_refused(gru(inputs(&device), &GruDescriptor { clip: Some(clip), ..reset_after() }), text);
    }
    let hard = |alpha, beta| Activation::HardSigmoid { alpha, beta };
    for (descriptor, text) in [
        (
            GruDescriptor { update_gate_activation: hard(f64::NAN, 0.5), ..reset_after() },
            "`alpha` must be finite, got NaN",
        ),
        (
            GruDescriptor { output_gate_activation: hard(0.2, f64::INFINITY), ..reset_after() },
            "`beta` must be finite, got inf",
        ),
    ] {
        assert_refused(gru(inputs(&device), &descriptor), text);
    }
}

/// More elements than the kernels can address, without the memory for them: all are one number.
#[test]
fn tensors_that_are_too_large() {
    let device = Device::flex();
    let source = Tensor::<3>::zeros([1, 1, 15], &device).expand([1 << 20, 1 << 13, 15]);
    let weight = Tensor::<2>::zeros([15, 5], &device);
    assert_refused(
        gru(GruInputs::new(source, weight.clone()), &Default::default()),
        "`source` must have fewer than 2³² elements, got [1048576, 8192, 15]",
    );
    let source = Tensor::<3>::zeros([1, 1, 1], &device).expand([1 << 20, 1 << 9, 1]);
    let inputs = GruInputs::new(source, weight).with_input_weight(Tensor::zeros([15, 1], &device));
    assert_refused(
        gru(inputs, &Default::default()),
        "`z_state` must have fewer than 2³² elements, got [1048576, 512, 15]",
    );
}
