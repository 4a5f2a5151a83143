//! Conversions of other frameworks' weights on Flex: that the layers hold what the functional conversions
//! compute, that gradients reach the converted tensors, and what is refused.
//!
//! That the conversions give the frameworks' own numbers is checked by the conformance cases.

use burn::tensor::{Device, Distribution, Tensor};
use burn_rnn::{
    Activation, Cell, CellWeights, Error, Gru, KerasCell, KerasGru, KerasGruConfig, KerasSimpleRnn,
    KerasSimpleRnnConfig, OnnxAttributes, OnnxWeights, PyTorchCell, PyTorchGru, PyTorchLayer, PyTorchRnn,
    Rnn, forward_layers,
};

fn device() -> Device {
    Device::flex()
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 0.5), &device())
}

fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().convert::<f32>().try_into_vec::<f32>().expect("f32 values")
}

#[track_caller]
fn assert_close<const D: usize>(got: &Tensor<D>, want: &Tensor<D>) {
    assert_eq!(got.dims(), want.dims());
    for (index, (got, want)) in values(got).iter().zip(&values(want)).enumerate() {
        assert!(
            (got - want).abs() <= 2e-6 * (1.0 + want.abs()),
            "element {index}: got {got}, expected {want}"
        );
    }
}

/// Asserts an error about the weight or option `tensor` that says `problem`.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, tensor: &str, problem: &str) {
    match result {
        Err(Error::Weight { tensor: got, problem: text }) => {
            assert_eq!(got, tensor);
            assert!(text.contains(problem), "{text:?} should contain {problem:?}");
        }
        other => panic!("expected an error about `{tensor}`, got {other:?}"),
    }
}

fn pytorch_cell(gates: usize, features: usize, hidden: usize, bias: bool) -> PyTorchCell {
    let rows = gates * hidden;
    PyTorchCell {
        weight_ih: random([rows, features]),
        weight_hh: random([rows, hidden]),
        bias_ih: bias.then(|| random([rows])),
        bias_hh: bias.then(|| random([rows])),
    }
}

/// Two layers with four input features and five hidden units.
fn pytorch_layers(gates: usize, bidirectional: bool, bias: bool) -> Vec<PyTorchLayer> {
    let directions = 1 + bidirectional as usize;
    [4, directions * 5]
        .map(|features| PyTorchLayer {
            forward: pytorch_cell(gates, features, 5, bias),
            reverse: bidirectional.then(|| pytorch_cell(gates, features, 5, bias)),
        })
        .to_vec()
}

#[test]
fn pytorch_layers_compute_what_the_cells_do() {
    for bidirectional in [false, true] {
        let directions = 1 + bidirectional as usize;
        let (input, state) = (random([3, 6, 4]), random([2 * directions, 3, 5]));
        for bias in [false, true] {
            let layers = pytorch_layers(3, bidirectional, bias);
            let cells: Vec<_> =
                layers.iter().map(|layer| CellWeights::from_pytorch_gru(layer.clone()).unwrap()).collect();
            let (want, want_state) = forward_layers(
                &cells,
                input.clone().swap_dims(0, 1),
                Some(state.clone()),
                None,
                |sequence| sequence,
            )
            .unwrap();
            let gru = Gru::from_pytorch(PyTorchGru { layers, batch_first: true, dropout: 0.0 }).unwrap();
            for gru in [gru.clone(), gru.merge_biases()] {
                let (output, last) = gru.forward(input.clone(), Some(state.clone()));
                assert_close(&output.swap_dims(0, 1), &want);
                assert_close(&last, &want_state);
            }

            let layers = pytorch_layers(1, bidirectional, bias);
            let cells: Vec<_> = layers
                .iter()
                .map(|layer| CellWeights::from_pytorch_rnn(layer.clone(), Activation::Relu).unwrap())
                .collect();
            let (want, _) = forward_layers(&cells, input.clone(), None, None, |sequence| sequence).unwrap();
            let rnn = PyTorchRnn { layers, nonlinearity: Activation::Relu, batch_first: false, dropout: 0.0 };
            let (output, _) = Rnn::from_pytorch(rnn).unwrap().forward(input.clone(), None);
            assert_close(&output, &want);
        }
    }
}

#[test]
fn gradients_reach_the_converted_tensors() {
    let tracked = |tensor: Tensor<2>| Tensor::<2>::from_inner(tensor).require_grad();
    let tracked_bias = |tensor: Tensor<1>| Tensor::<1>::from_inner(tensor).require_grad();
    let cell = PyTorchCell {
        weight_ih: tracked(random([15, 4])),
        weight_hh: tracked(random([15, 5])),
        bias_ih: Some(tracked_bias(random([15]))),
        bias_hh: Some(tracked_bias(random([15]))),
    };
    let layer = PyTorchLayer { forward: cell.clone(), reverse: None };
    let weights = CellWeights::from_pytorch_gru(layer).unwrap();
    let output = weights.forward(Tensor::from_inner(random([6, 3, 4])), None, None).unwrap();
    let gradients = output.output.square().sum().backward();

    let bias_ih = cell.bias_ih.unwrap().grad(&gradients).unwrap();
    let bias_hh = cell.bias_hh.unwrap().grad(&gradients).unwrap();
    // The biases of r and z add up, so they share a gradient; those of n do not.
    assert_eq!(values(&bias_ih)[..10], values(&bias_hh)[..10]);
    assert_ne!(values(&bias_ih)[10..], values(&bias_hh)[10..]);
    assert!(cell.weight_ih.grad(&gradients).is_some());
    assert!(cell.weight_hh.grad(&gradients).is_some());

    // A layer's parameters are its own.
    let gru = PyTorchGru {
        layers: vec![PyTorchLayer {
            forward: PyTorchCell {
                weight_ih: cell.weight_ih.clone(),
                weight_hh: cell.weight_hh,
                bias_ih: None,
                bias_hh: None,
            },
            reverse: None,
        }],
        batch_first: false,
        dropout: 0.0,
    };
    let gru = Gru::from_pytorch(gru).unwrap();
    let (output, _) = gru.forward(Tensor::from_inner(random([6, 3, 4])), None);
    let gradients = output.square().sum().backward();
    assert!(cell.weight_ih.grad(&gradients).is_none());
    assert!(gru.layers[0].input_weight.val().grad(&gradients).is_some());
}

#[test]
fn pytorch_weights_that_do_not_fit_are_named() {
    let convert = |change: fn(&mut Vec<PyTorchLayer>)| {
        let mut layers = pytorch_layers(3, true, true);
        change(&mut layers);
        Gru::from_pytorch(PyTorchGru { layers, batch_first: true, dropout: 0.0 })
    };
    let result = convert(|layers| layers[1].reverse.as_mut().unwrap().weight_hh = random([14, 5]));
    assert_refused(result, "weight_hh_l1_reverse", "must have the shape [3H, H] = [15, 5], got [14, 5]");
    let result = convert(|layers| layers[0].forward.weight_ih = random([5, 4]));
    assert_refused(result, "weight_ih_l0", "must have the shape [3H, I] = [15, 4], got [5, 4]");
    let result = convert(|layers| layers[0].forward.bias_hh = Some(random([5])));
    assert_refused(result, "bias_hh_l0", "must have the shape [3H] = [15], got [5]");
    let result = convert(|layers| {
        layers[1] =
            PyTorchLayer { forward: pytorch_cell(3, 9, 5, true), reverse: Some(pytorch_cell(3, 9, 5, true)) };
    });
    assert_refused(result, "layer 1", "the 10 channels that the layer before it puts out, got 9");
    let result = convert(|layers| layers[1].reverse = None);
    assert_refused(result, "layer 1", "2 and 5, got 1 and 5");
    assert_refused(convert(|layers| layers.clear()), "layers", "at least one layer");
    let rnn = PyTorchRnn {
        layers: pytorch_layers(1, false, true),
        nonlinearity: Activation::Tanh,
        batch_first: false,
        dropout: -0.1,
    };
    assert_refused(Rnn::from_pytorch(rnn), "dropout", "got -0.1");
}

fn onnx_weights(gates: usize, directions: usize) -> OnnxWeights {
    let rows = gates * 5;
    OnnxWeights {
        w: random([directions, rows, 4]),
        r: random([directions, rows, 5]),
        b: Some(random([directions, 2 * rows])),
    }
}

fn attributes(json: &str) -> OnnxAttributes {
    serde_json::from_str(json).unwrap()
}

#[test]
fn onnx_layers_compute_what_the_cells_do() {
    for direction in ["forward", "reverse", "bidirectional"] {
        for linear_before_reset in [0, 1] {
            let directions = 1 + (direction == "bidirectional") as usize;
            let attributes = OnnxAttributes {
                direction: direction.into(),
                linear_before_reset,
                layout: 1,
                hidden_size: Some(5),
                ..Default::default()
            };
            let weights = onnx_weights(3, directions);
            let input = random([3, 6, 4]);
            let cell = CellWeights::from_onnx_gru(weights.clone(), &attributes).unwrap();
            let want = cell.forward(input.clone().swap_dims(0, 1), None, None).unwrap();
            let (output, _) = Gru::from_onnx(weights, &attributes).unwrap().forward(input, None);
            assert_close(&output.swap_dims(0, 1), &want.output);
        }
    }
    let weights = onnx_weights(1, 1);
    let input = random([6, 3, 4]);
    let attributes = OnnxAttributes::default();
    let want = CellWeights::from_onnx_rnn(weights.clone(), &attributes).unwrap();
    let want = want.forward(input.clone(), None, None).unwrap();
    let (output, _) = Rnn::from_onnx(weights, &attributes).unwrap().forward(input, None);
    assert_close(&output, &want.output);
}

#[test]
fn onnx_activations_take_their_numbers_in_order() {
    let attributes = attributes(
        r#"{"kind": "onnx", "direction": "bidirectional", "activations": ["hardsigmoid", "HardSigmoid", "HardSigmoid", "HardSigmoid"],
            "activation_alpha": [0.3, 0.4, 0.3], "activation_beta": [0.6, 0.5, 0.6]}"#,
    );
    // The last one has used up the numbers, so its α is 0.2: unlike the forward direction's.
    let result = CellWeights::from_onnx_gru(onnx_weights(3, 2), &attributes);
    assert_refused(result, "activations", "must be the same in both directions");

    let attributes = OnnxAttributes {
        activation_alpha: Some(vec![0.3, 0.4, 0.3, 0.4]),
        activation_beta: Some(vec![0.6, 0.5, 0.6]),
        ..attributes
    };
    let Cell::Gru(descriptor) = CellWeights::from_onnx_gru(onnx_weights(3, 2), &attributes).unwrap().cell
    else {
        panic!("a GRU")
    };
    assert_eq!(descriptor.update_gate_activation, Activation::HardSigmoid { alpha: 0.3, beta: 0.6 });
    assert_eq!(descriptor.reset_gate_activation, Activation::HardSigmoid { alpha: 0.3, beta: 0.6 });
    assert_eq!(descriptor.output_gate_activation, Activation::HardSigmoid { alpha: 0.4, beta: 0.5 });
    assert!(descriptor.bidirectional && !descriptor.reset_after);
}

#[test]
fn onnx_nodes_that_cannot_be_run_are_refused() {
    let gru = |json: &str| CellWeights::from_onnx_gru(onnx_weights(3, 1), &attributes(json));
    assert_refused(gru(r#"{"clip": 3.0}"#), "clip", "bounds the inputs of the activations");
    assert_refused(gru(r#"{"direction": "sideways"}"#), "direction", r#"got "sideways""#);
    assert_refused(gru(r#"{"direction": "bidirectional"}"#), "R", "= [2, 15, 5], got [1, 15, 5]");
    assert_refused(gru(r#"{"layout": 2}"#), "layout", "must be 0 or 1, got 2");
    assert_refused(gru(r#"{"linear_before_reset": 3}"#), "linear_before_reset", "got 3");
    assert_refused(gru(r#"{"hidden_size": 6}"#), "hidden_size", "the last axis of R, 5, got 6");
    assert_refused(gru(r#"{"activations": ["Tanh"]}"#), "activations", "must be 2, 2 a direction, got 1");
    let result = gru(r#"{"activations": ["Sigmoid", "Softplus"]}"#);
    assert_refused(
        result,
        "activations",
        r#"must be among Relu, Tanh, Sigmoid and HardSigmoid, got "Softplus""#,
    );
    let result = CellWeights::from_onnx_rnn(onnx_weights(1, 1), &attributes(r#"{"linear_before_reset": 1}"#));
    assert_refused(result, "linear_before_reset", "the operator RNN has none");

    let weights = OnnxWeights { b: Some(random([1, 15])), ..onnx_weights(3, 1) };
    let result = Gru::from_onnx(weights, &OnnxAttributes::default());
    assert_refused(result, "B", "must have the shape [D, 2·3H] = [1, 30], got [1, 15]");
    let weights = OnnxWeights { w: random([1, 14, 4]), ..onnx_weights(3, 1) };
    let result = Gru::from_onnx(weights, &OnnxAttributes::default());
    assert_refused(result, "W", "must have the shape [D, 3H, I] = [1, 15, 4], got [1, 14, 4]");
}

fn keras_cell(gates: usize) -> KerasCell {
    let rows = gates * 5;
    KerasCell { kernel: random([4, rows]), recurrent_kernel: random([5, rows]), bias: None }
}

#[test]
fn keras_layers_compute_what_the_cells_do() {
    for reset_after in [false, true] {
        for backward in [false, true] {
            let cell = || KerasCell {
                bias: Some(match reset_after {
                    true => random([2, 15]).into(),
                    false => random([15]).into(),
                }),
                ..keras_cell(3)
            };
            let config =
                KerasGruConfig { units: Some(5), reset_after, go_backwards: !backward, ..Default::default() };
            let layer = KerasGru { forward: cell(), backward: backward.then(cell), config };
            let input = random([3, 6, 4]);
            let want = CellWeights::from_keras_gru(layer.clone()).unwrap();
            let want = want.forward(input.clone().swap_dims(0, 1), None, None).unwrap();
            let (output, _) = Gru::from_keras(layer).unwrap().forward(input, None);
            assert_close(&output.swap_dims(0, 1), &want.output);
        }
    }
    let layer = KerasSimpleRnn { forward: keras_cell(1), backward: None, config: Default::default() };
    let input = random([3, 6, 4]);
    let want = CellWeights::from_keras_simple_rnn(layer.clone()).unwrap();
    let want = want.forward(input.clone().swap_dims(0, 1), None, None).unwrap();
    let (output, _) = Rnn::from_keras(layer).unwrap().forward(input, None);
    assert_close(&output.swap_dims(0, 1), &want.output);
}

#[test]
fn keras_configurations_read_as_keras_writes_them() {
    let config: KerasGruConfig = serde_json::from_str(
        r#"{"name": "gru", "units": 5, "activation": "linear", "recurrent_activation": "hard_sigmoid", "dropout": 0.0}"#,
    )
    .unwrap();
    assert!(config.reset_after && !config.go_backwards);
    let layer = KerasGru { forward: keras_cell(3), backward: None, config };
    let Cell::Gru(descriptor) = CellWeights::from_keras_gru(layer).unwrap().cell else { panic!("a GRU") };
    assert_eq!(descriptor.output_gate_activation, Activation::None);
    assert_eq!(descriptor.reset_gate_activation, Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 });
    let config: KerasSimpleRnnConfig = serde_json::from_str(r#"{"activation": null}"#).unwrap();
    assert_eq!(config.activation, None);
}

#[test]
fn keras_layers_that_cannot_be_run_are_refused() {
    let convert = |forward: KerasCell, config: KerasGruConfig| {
        Gru::from_keras(KerasGru { forward, backward: None, config })
    };
    let config = KerasGruConfig::default;
    let one_row = KerasCell { bias: Some(random([15]).into()), ..keras_cell(3) };
    let two_rows = KerasCell { bias: Some(random([2, 15]).into()), ..keras_cell(3) };
    assert_refused(convert(one_row, config()), "bias", "[2, 3H] = [2, 15], as reset_after is true, got [15]");
    let result = convert(two_rows.clone(), KerasGruConfig { reset_after: false, ..config() });
    assert_refused(result, "bias", "[3H] = [15], as there is no reset_after, got [2, 15]");
    let transposed = KerasCell { kernel: random([15, 4]), ..two_rows.clone() };
    assert_refused(convert(transposed, config()), "kernel", "[I, 3H] = [15, 15], got [15, 4]");
    let transposed = KerasCell { recurrent_kernel: random([15, 5]), ..two_rows };
    assert_refused(convert(transposed, config()), "recurrent_kernel", "[H, 3H] = [15, 45], got [15, 5]");
    let result = convert(keras_cell(3), KerasGruConfig { units: Some(4), ..config() });
    assert_refused(result, "units", "5, got 4");
    let result = convert(keras_cell(3), KerasGruConfig { activation: Some("gelu".into()), ..config() });
    assert_refused(result, "activation", r#"got "gelu""#);
    let both = KerasGru {
        forward: keras_cell(3),
        backward: Some(keras_cell(3)),
        config: KerasGruConfig { go_backwards: true, ..config() },
    };
    assert_refused(Gru::from_keras(both), "go_backwards", "must be false");
}
