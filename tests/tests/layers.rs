//! The `Gru` and `Rnn` layers on Flex: against Burn's own layers, against the functional operations, and as
//! Burn modules.

use burn::{
    module::{Initializer, Module, ModuleDisplay},
    nn::{self, activation::ActivationConfig},
    optim::{AdamConfig, GradientsParams},
    store::ModuleRecord,
    tensor::{Device, Distribution, Int, Tensor},
};
use burn_rnn::{
    Activation, Error, Gru, GruConfig, GruInputs, Lengths, Rnn, RnnConfig, SingleGateRnnInputs, gru,
    single_gate_rnn,
};

/// Both sides compute the same sums in another order.
const CLOSE: f32 = 2e-6;

fn device() -> Device {
    Device::flex()
}

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().convert::<f32>().try_into_vec::<f32>().expect("f32 values")
}

#[track_caller]
fn assert_close<const D: usize>(got: &Tensor<D>, want: &Tensor<D>, tolerance: f32) {
    assert_eq!(got.dims(), want.dims());
    let (got, want) = (values(got), values(want));
    for (index, (got, want)) in got.iter().zip(&want).enumerate() {
        let difference = (got - want).abs();
        assert!(
            difference <= tolerance * (1.0 + want.abs()),
            "element {index}: got {got}, expected {want}, {difference:e} apart"
        );
    }
}

#[track_caller]
fn assert_equal<const D: usize>(got: &Tensor<D>, want: &Tensor<D>) {
    assert_eq!(got.dims(), want.dims());
    assert_eq!(values(got), values(want));
}

/// The text of the panic that `run` ends in.
#[track_caller]
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) else {
        panic!("expected a panic")
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().expect("a panic with a text").to_string(),
    }
}

// Against Burn's own layers.

#[test]
fn gru_from_burn_computes_what_burn_does() {
    let device = device();
    for reset_after in [true, false] {
        for bias in [true, false] {
            for clip in [None, Some(0.3)] {
                let burn = nn::gru::GruConfig::new(5, 7, bias)
                    .with_reset_after(reset_after)
                    .with_clip(clip)
                    .init(&device);
                let fused = Gru::from_burn(&burn).unwrap();
                let (input, state) = (random([3, 6, 5], &device), random([3, 7], &device));
                let want = burn.forward(input.clone(), Some(state.clone()));
                let (output, last) = fused.forward(input, Some(state.unsqueeze()));
                assert_close(&output, &want, CLOSE);
                assert_equal(&last, &output.narrow(1, 5, 1).swap_dims(0, 1));
            }
        }
    }
}

#[test]
fn gru_from_burn_takes_its_activations() {
    let device = device();
    let hard_sigmoid = nn::activation::HardSigmoidConfig::new().with_alpha(0.3).with_beta(0.4);
    let cases = [
        (ActivationConfig::HardSigmoid(hard_sigmoid), ActivationConfig::Relu),
        (ActivationConfig::Relu, ActivationConfig::Identity),
        (ActivationConfig::Tanh, ActivationConfig::Sigmoid),
    ];
    for (gates, hidden) in cases {
        let burn = nn::gru::GruConfig::new(4, 5, true)
            .with_gate_activation(gates)
            .with_hidden_activation(hidden)
            .with_initializer(Initializer::Uniform { min: -0.5, max: 0.5 })
            .init(&device);
        let input = random([2, 4, 4], &device);
        let want = burn.forward(input.clone(), None);
        let (output, _) = Gru::from_burn(&burn).unwrap().forward(input, None);
        assert_close(&output, &want, CLOSE);
    }
}

#[test]
fn gru_from_burn_names_an_activation_it_lacks() {
    let burn = nn::gru::GruConfig::new(2, 3, true)
        .with_hidden_activation(ActivationConfig::Softsign)
        .init(&device());
    let error = Gru::from_burn(&burn).unwrap_err().to_string();
    assert!(error.starts_with("`hidden_activation` must be among"), "{error}");
    assert!(error.contains("Softsign"), "{error}");
}

#[test]
fn bidirectional_gru_from_burn_computes_what_burn_does() {
    let device = device();
    for reset_after in [true, false] {
        for batch_first in [true, false] {
            let burn = nn::gru::BiGruConfig::new(5, 7, true)
                .with_reset_after(reset_after)
                .with_batch_first(batch_first)
                .init(&device);
            let fused = Gru::from_burn_bidirectional(&burn).unwrap();
            let input = random(if batch_first { [3, 6, 5] } else { [6, 3, 5] }, &device);
            let state = random([2, 3, 7], &device);
            let (want, want_state) = burn.forward(input.clone(), Some(state.clone()));
            let (output, last) = fused.forward(input, Some(state));
            assert_close(&output, &want, CLOSE);
            assert_close(&last, &want_state, CLOSE);
        }
    }
}

#[test]
fn bidirectional_gru_from_burn_refuses_directions_with_different_options() {
    let mut burn = nn::gru::BiGruConfig::new(5, 7, true).init(&device());
    burn.reverse.clip = Some(1.0);
    let error = Gru::from_burn_bidirectional(&burn).unwrap_err().to_string();
    assert!(error.starts_with("`reverse` must have the options of `forward`"), "{error}");
}

#[test]
fn rnn_from_burn_computes_what_burn_does() {
    let device = device();
    for bias in [true, false] {
        for batch_first in [true, false] {
            for reverse in [true, false] {
                for (activation, clip) in
                    [(ActivationConfig::Tanh, None), (ActivationConfig::Relu, Some(0.7))]
                {
                    let burn = nn::RnnConfig::new(5, 7, bias)
                        .with_batch_first(batch_first)
                        .with_reverse(reverse)
                        .with_hidden_activation(activation)
                        .with_clip(clip)
                        .init(&device);
                    let fused = Rnn::from_burn(&burn).unwrap();
                    let input = random(if batch_first { [3, 6, 5] } else { [6, 3, 5] }, &device);
                    let state = random([3, 7], &device);
                    let (want, want_state) =
                        burn.forward(input.clone(), Some(nn::RnnState::new(state.clone())));
                    let (output, last) = fused.forward(input, Some(state.unsqueeze()));
                    assert_close(&output, &want, CLOSE);
                    assert_close(&last, &want_state.hidden.unsqueeze(), CLOSE);
                }
            }
        }
    }
}

#[test]
fn bidirectional_rnn_from_burn_computes_what_burn_does() {
    let device = device();
    let burn = nn::BiRnnConfig::new(5, 7, true).init(&device);
    let input = random([3, 6, 5], &device);
    let state = random([2, 3, 7], &device);
    let (want, want_state) = burn.forward(input.clone(), Some(nn::RnnState::new(state.clone())));
    let (output, last) = Rnn::from_burn_bidirectional(&burn).unwrap().forward(input, Some(state));
    assert_close(&output, &want, CLOSE);
    assert_close(&last, &want_state.hidden, CLOSE);
}

/// Losses of `steps` Adam steps towards a fixed target.
fn train<M: Module>(
    mut model: M,
    forward: impl Fn(&M, Tensor<3>) -> Tensor<3>,
    input: &Tensor<3>,
    target: &Tensor<3>,
    steps: usize,
) -> Vec<f32> {
    let mut optimizer = AdamConfig::new().init();
    (0..steps)
        .map(|_| {
            let output = forward(&model, input.clone());
            let loss = (output - target.clone()).square().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.02, model.clone(), gradients);
            loss.into_scalar::<f32>()
        })
        .collect()
}

#[test]
fn layers_from_burn_train_as_burn_does() {
    let device = device().autodiff();
    let (input, target) = (random([4, 8, 5], &device), random([4, 8, 6], &device));
    for bias in [true, false] {
        for reset_after in [true, false] {
            let burn = nn::gru::GruConfig::new(5, 6, bias).with_reset_after(reset_after).init(&device);
            let fused = Gru::from_burn(&burn).unwrap();
            let want = train(burn, |gru, input| gru.forward(input, None), &input, &target, 30);
            let got = train(fused, |gru, input| gru.forward(input, None).0, &input, &target, 30);
            assert_losses(&got, &want);
        }
        let burn = nn::RnnConfig::new(5, 6, bias).init(&device);
        let fused = Rnn::from_burn(&burn).unwrap();
        let want = train(burn, |rnn, input| rnn.forward(input, None).0, &input, &target, 30);
        let got = train(fused, |rnn, input| rnn.forward(input, None).0, &input, &target, 30);
        assert_losses(&got, &want);
    }
}

#[track_caller]
fn assert_losses(got: &[f32], want: &[f32]) {
    assert!(want[29] < 0.9 * want[0], "the loss must fall for the comparison to mean anything: {want:?}");
    for (step, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() < 2e-5, "step {step}: got {got}, expected {want}");
    }
}

#[test]
fn merging_biases_leaves_the_output_as_it_is() {
    let device = device();
    let input = random([3, 6, 5], &device);
    for reset_after in [true, false] {
        let config = GruConfig::new(5, 7, true)
            .with_reset_after(reset_after)
            .with_bidirectional(true)
            .with_num_layers(2)
            .with_recurrent_bias(true);
        let gru = config.init(&device);
        let merged = gru.clone().merge_biases();
        assert!(gru.layers.iter().all(|layer| layer.recurrent_bias.is_some()));
        assert!(merged.layers.iter().all(|layer| layer.recurrent_bias.is_none()));
        assert_close(&merged.forward(input.clone(), None).0, &gru.forward(input.clone(), None).0, CLOSE);
    }
    let rnn = RnnConfig::new(5, 7, true).with_recurrent_bias(true).init(&device);
    let merged = rnn.clone().merge_biases();
    assert!(merged.layers[0].recurrent_bias.is_none());
    assert_close(&merged.forward(input.clone(), None).0, &rnn.forward(input, None).0, CLOSE);
}

// Against the functional operations.

#[test]
fn gru_runs_the_operation_on_its_parameters() {
    let device = device();
    let layer = GruConfig::new(4, 6, true).with_flip_z(true).with_batch_first(false).init(&device);
    let parameters = &layer.layers[0];
    let (input, state) = (random([5, 3, 4], &device), random([1, 3, 6], &device));
    let weight = parameters.recurrent_weight.val().reshape([18, 6]);
    let inputs = GruInputs::new(input.clone(), weight)
        .with_input_weight(parameters.input_weight.val())
        .with_bias(parameters.bias.as_ref().unwrap().val())
        .with_secondary_bias(parameters.secondary_bias.as_ref().unwrap().val())
        .with_init_state(state.clone().reshape([3, 6]));
    let want = gru(inputs, &layer.descriptor).unwrap();
    assert!(layer.descriptor.flip_z && layer.descriptor.reset_after);
    let (output, last) = layer.forward(input, Some(state));
    assert_equal(&output, &want.output);
    assert_equal(&last, &want.final_state.unsqueeze());
}

#[test]
fn rnn_runs_the_operation_on_its_parameters() {
    let device = device();
    let layer = RnnConfig::new(4, 6, true)
        .with_batch_first(false)
        .with_bidirectional(true)
        .with_hidden_activation(Activation::HARD_SIGMOID)
        .init(&device);
    let parameters = &layer.layers[0];
    let (input, state) = (random([5, 3, 4], &device), random([2, 3, 6], &device));
    let inputs = SingleGateRnnInputs::new(input.clone(), parameters.recurrent_weight.val())
        .with_input_weight(parameters.input_weight.val())
        .with_bias(parameters.bias.as_ref().unwrap().val())
        .with_init_state(Tensor::cat(
            vec![
                state.clone().narrow(0, 0, 1).reshape([3, 6]),
                state.clone().narrow(0, 1, 1).reshape([3, 6]),
            ],
            1,
        ));
    let want = single_gate_rnn(inputs, &layer.descriptor).unwrap();
    let (output, last) = layer.forward(input, Some(state));
    assert_equal(&output, &want.output);
    let [forward, reverse] = [0, 6].map(|start| want.final_state.clone().narrow(1, start, 6).unsqueeze());
    assert_equal(&last, &Tensor::cat(vec![forward, reverse], 0));
}

#[test]
fn batch_first_swaps_the_first_two_axes_only() {
    let device = device();
    let batch_first = GruConfig::new(4, 6, true).with_bidirectional(true).with_num_layers(2).init(&device);
    let mut time_first = batch_first.clone();
    time_first.batch_first = false;
    let (input, state) = (random([3, 5, 4], &device), random([4, 3, 6], &device));
    let (output, last) = batch_first.forward(input.clone(), Some(state.clone()));
    let (want, want_last) = time_first.forward(input.swap_dims(0, 1), Some(state));
    assert_eq!(output.dims(), [3, 5, 12]);
    assert_equal(&output.swap_dims(0, 1), &want);
    assert_equal(&last, &want_last);
}

#[test]
fn layers_stand_on_top_of_each_other() {
    let device = device();
    let gru = GruConfig::new(4, 6, true).with_bidirectional(true).with_num_layers(3).init(&device);
    let (input, state) = (random([3, 5, 4], &device), random([6, 3, 6], &device));
    let (output, last) = gru.forward(input.clone(), Some(state.clone()));

    let mut sequence = input;
    let mut states = Vec::new();
    for (index, layer) in gru.layers.iter().enumerate() {
        let single = Gru { layers: vec![layer.clone()], ..gru.clone() };
        let (output, last) = single.forward(sequence, Some(state.clone().narrow(0, 2 * index, 2)));
        sequence = output;
        states.push(last);
    }
    assert_equal(&output, &sequence);
    assert_equal(&last, &Tensor::cat(states, 0));
}

#[test]
fn steps_in_turn_give_what_forward_gives_at_once() {
    let device = device();
    for reset_after in [true, false] {
        let gru = GruConfig::new(4, 6, true)
            .with_num_layers(2)
            .with_reset_after(reset_after)
            .with_clip(Some(0.6))
            .init(&device);
        let (input, state) = (random([3, 5, 4], &device), random([2, 3, 6], &device));
        let (want, want_last) = gru.forward(input.clone(), Some(state.clone()));
        let mut state = Some(state);
        for step in 0..5 {
            let input = input.clone().narrow(1, step, 1).reshape([3, 4]);
            let (output, next) = gru.step(input, state);
            assert_close(&output.unsqueeze_dim(1), &want.clone().narrow(1, step, 1), CLOSE);
            state = Some(next);
        }
        assert_close(&state.unwrap(), &want_last, CLOSE);
    }
    let rnn = RnnConfig::new(4, 6, true).init(&device);
    let input = random([3, 2, 4], &device);
    let (want, _) = rnn.forward(input.clone(), None);
    let (first, state) = rnn.step(input.clone().narrow(1, 0, 1).reshape([3, 4]), None);
    let (second, _) = rnn.step(input.narrow(1, 1, 1).reshape([3, 4]), Some(state));
    assert_close(&Tensor::stack(vec![first, second], 1), &want, CLOSE);
}

#[test]
fn step_needs_a_layer_that_walks_forwards() {
    let device = device();
    let configs =
        [GruConfig::new(4, 6, true).with_bidirectional(true), GruConfig::new(4, 6, true).with_reverse(true)];
    for config in configs {
        let gru = config.init(&device);
        let text = panic_of(|| gru.step(random([3, 4], &device), None));
        assert!(text.starts_with("`step` must be called on a layer that walks forwards only"), "{text}");
    }
}

#[test]
fn a_row_with_a_length_gives_what_the_row_cut_off_gives() {
    let device = device();
    let gru = GruConfig::new(4, 6, true).with_bidirectional(true).with_num_layers(2).init(&device);
    let (input, state) = (random([4, 5, 4], &device), random([4, 4, 6], &device));
    let lengths = [5, 2, 0, 3];
    let (output, last) = gru.forward_with_lengths(input.clone(), lengths, Some(state.clone()));
    let on_device = Tensor::<1, Int>::from_data([5, 2, 0, 3], &device);
    let (other, _) = gru.forward_with_lengths(input.clone(), on_device, Some(state.clone()));
    assert_equal(&output, &other);

    for (row, length) in lengths.into_iter().enumerate() {
        let state = state.clone().narrow(1, row, 1);
        if length < 5 {
            let rest = output.clone().narrow(0, row, 1).narrow(1, length, 5 - length);
            assert_equal(&rest, &Tensor::zeros([1, 5 - length, 12], &device));
        }
        let row_last = last.clone().narrow(1, row, 1);
        if length == 0 {
            assert_equal(&row_last, &state);
            continue;
        }
        let input = input.clone().narrow(0, row, 1).narrow(1, 0, length);
        let (want, want_last) = gru.forward(input, Some(state));
        assert_close(&output.clone().narrow(0, row, 1).narrow(1, 0, length), &want, CLOSE);
        assert_close(&row_last, &want_last, CLOSE);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = device();
    let gru = GruConfig::new(4, 6, true).with_num_layers(2).init(&device);
    let error = gru.try_forward(random([3, 5, 3], &device), None, None).unwrap_err();
    assert_eq!(error.to_string(), "`input` must have the shape [N, T, d_input] = [3, 5, 4], got [3, 5, 3]");
    let state = random([1, 3, 6], &device);
    let error = gru.try_forward(random([3, 5, 4], &device), Some(state.clone()), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`state` must have the shape [num_layers·D, N, H] = [2, 3, 6], got [1, 3, 6]"
    );
    let lengths = Lengths::from([1, 6, 2]);
    let error = gru.try_forward(random([3, 5, 4], &device), None, Some(lengths)).unwrap_err();
    assert_eq!(error, Error::LengthOutOfRange { row: 1, got: 6, steps: 5 });
    let text = panic_of(|| gru.forward(random([3, 5, 4], &device), Some(state)));
    assert!(text.starts_with("`state` must have the shape"), "{text}");
    let text = panic_of(|| gru.step(random([3, 5], &device), None));
    assert_eq!(text, "`input` must have the shape [N, d_input] = [3, 4], got [3, 5]");

    let text = panic_of(|| GruConfig::new(4, 0, true).init(&device));
    assert_eq!(text, "`d_hidden` must be from 1 up, got 0");
    let text = panic_of(|| RnnConfig::new(4, 2, true).with_num_layers(0).init(&device));
    assert_eq!(text, "`num_layers` must be from 1 up, got 0");
    let text = panic_of(|| GruConfig::new(4, 2, true).with_dropout(1.0).init(&device));
    assert_eq!(text, "`dropout` must be from 0 up and below 1, got 1");
    let text = panic_of(|| GruConfig::new(4, 2, true).with_clip(Some(0.0)).init(&device));
    assert_eq!(text, "`clip` must be finite and above 0, got 0");
}

// As Burn modules.

#[test]
fn layers_save_and_load() {
    let device = device();
    let config =
        GruConfig::new(4, 6, true).with_bidirectional(true).with_num_layers(2).with_recurrent_bias(true);
    let input = random([3, 5, 4], &device);
    let gru = config.init(&device);
    let (want, _) = gru.forward(input.clone(), None);

    let bytes = gru.clone().into_record().into_bytes().unwrap();
    let other = config.init(&device);
    assert_ne!(values(&other.forward(input.clone(), None).0), values(&want));
    let loaded = other.load_record(ModuleRecord::from_bytes(bytes).unwrap());
    assert_equal(&loaded.forward(input.clone(), None).0, &want);

    let path = std::env::temp_dir().join(format!("burn-rnn-layers-{}.bpk", std::process::id()));
    gru.save_file(&path).unwrap();
    let loaded = config.init(&device).load_file(&path);
    assert_equal(&loaded.forward(input.clone(), None).0, &want);
    // Burn reads the values when they are first used, so not before.
    std::fs::remove_file(&path).unwrap();

    let smaller = GruConfig { num_layers: 1, ..config };
    assert!(smaller.init(&device).try_load_record(loaded.into_record()).is_err());

    let rnn = RnnConfig::new(4, 6, true).init(&device);
    let loaded = RnnConfig::new(4, 6, true).init(&device).load_record(rnn.clone().into_record());
    assert_equal(&loaded.forward(input.clone(), None).0, &rnn.forward(input, None).0);
}

#[test]
fn configurations_save_and_load() {
    use burn::config::Config;
    let config = GruConfig::new(4, 6, true)
        .with_gate_activation(Activation::HARD_SIGMOID)
        .with_initializer(Initializer::Orthogonal { gain: 0.5 })
        .with_clip(Some(2.0));
    let path = std::env::temp_dir().join(format!("burn-rnn-config-{}.json", std::process::id()));
    config.save(&path).unwrap();
    let loaded = GruConfig::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(format!("{config:?}"), format!("{loaded:?}"));
}

#[test]
fn layers_move_between_contexts() {
    let plain = device();
    let training = plain.clone().autodiff();
    let gru = GruConfig::new(4, 6, true).init(&training);
    let input = random([3, 5, 4], &plain);
    let (want, _) = gru.valid().forward(input.clone(), None);
    assert!(!want.device().is_autodiff());

    let tracked = Tensor::from_inner(input.clone());
    let (output, _) = gru.forward(tracked.clone(), None);
    assert_equal(&output.clone().inner(), &want);
    let gradients = GradientsParams::from_grads(output.square().sum().backward(), &gru);
    assert_eq!(gradients.len(), 4, "input and recurrent weight, bias and secondary bias");

    let forked = gru.clone().fork(&training);
    assert_equal(&forked.forward(tracked.clone(), None).0.inner(), &want);
    assert_equal(&gru.clone().to_device(&training).forward(tracked, None).0.inner(), &want);
    assert_eq!(gru.devices(), vec![training.clone()]);
    let back = gru.valid().train();
    assert!(back.layers[0].input_weight.val().is_require_grad());
}

#[test]
fn frozen_layers_get_no_gradients() {
    let device = device().autodiff();
    let gru = GruConfig::new(4, 6, true).init(&device).no_grad();
    let input = random([3, 5, 4], &device).require_grad();
    let gradients = gru.forward(input.clone(), None).0.square().sum().backward();
    assert!(gru.layers[0].input_weight.val().grad(&gradients).is_none());
    let gradient = input.grad(&gradients).unwrap();
    assert!(values(&gradient.abs()).iter().sum::<f32>() > 0.0);
}

#[test]
fn dropout_acts_between_layers_during_training_only() {
    let training = device().autodiff();
    training.seed(3);
    let config = GruConfig::new(4, 32, true).with_num_layers(2);
    let gru = config.clone().with_dropout(0.5).init(&training);
    let input: Tensor<3> = random([3, 5, 4], &training);

    let (first, _) = gru.forward(input.clone(), None);
    let (second, _) = gru.forward(input.clone(), None);
    assert_ne!(values(&first), values(&second), "each call must drop others");
    let (valid, _) = gru.valid().forward(input.clone().inner(), None);
    let (again, _) = gru.valid().forward(input.clone().inner(), None);
    assert_equal(&valid, &again);
    let (frozen, _) = gru.clone().freeze().forward(input.clone(), None);
    assert_equal(&frozen.inner(), &valid);

    // Not before the first layer, and not after the last.
    let single = config.with_num_layers(1).with_dropout(0.5).init(&training);
    let (first, _) = single.forward(input.clone(), None);
    let (second, _) = single.forward(input, None);
    assert_equal(&first, &second);
}

#[test]
fn each_gate_is_initialised_as_a_matrix_of_its_own() {
    let device = device();
    device.seed(5);
    let (d_input, d_hidden) = (100, 300);
    let gru = GruConfig::new(d_input, d_hidden, true).with_bidirectional(true).init(&device);
    let parameters = &gru.layers[0];
    let std = |fan_in: usize| (2.0 / (fan_in + d_hidden) as f32).sqrt();
    assert_spread(&parameters.input_weight.val(), std(d_input), 0.02);
    assert_spread(&parameters.recurrent_weight.val(), std(d_hidden), 0.02);
    assert_spread(&parameters.bias.as_ref().unwrap().val(), std(d_input), 0.1);
    assert_spread(&parameters.secondary_bias.as_ref().unwrap().val(), std(d_hidden), 0.1);

    let bounded = Initializer::KaimingUniform { gain: 1.0, fan_out_only: false };
    let rnn = RnnConfig::new(d_input, d_hidden, false).with_initializer(bounded).init(&device);
    let weights = values(&rnn.layers[0].input_weight.val());
    let largest = weights.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
    let bound = (3.0 / d_input as f32).sqrt();
    assert!(largest <= bound && largest > 0.99 * bound, "{largest} of {bound}");
}

/// The standard deviation around a mean of zero.
#[track_caller]
fn assert_spread<const D: usize>(tensor: &Tensor<D>, want: f32, tolerance: f32) {
    let values = values(tensor);
    let std = (values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32).sqrt();
    assert!((std / want - 1.0).abs() < tolerance, "got {std}, expected {want}");
}

#[test]
fn orthogonal_gates_are_orthogonal_each() {
    let device = device();
    let config = GruConfig::new(3, 8, true)
        .with_bidirectional(true)
        .with_initializer(Initializer::Orthogonal { gain: 1.0 });
    let gru = config.init(&device);
    let parameters = &gru.layers[0];
    let weights: Tensor<3> = parameters.recurrent_weight.val().reshape([6, 8, 8]);
    let products = weights.clone().matmul(weights.transpose());
    assert_close(&products, &Tensor::<2>::eye(8, &device).unsqueeze::<3>().repeat_dim(0, 6), 1e-5);
    // Its columns are orthogonal, as it is taller than wide.
    let weights: Tensor<3> = parameters.input_weight.val().reshape([6, 8, 3]);
    let products = weights.clone().transpose().matmul(weights);
    assert_close(&products, &Tensor::<2>::eye(3, &device).unsqueeze::<3>().repeat_dim(0, 6), 1e-5);
    assert_equal(&parameters.bias.as_ref().unwrap().val(), &Tensor::zeros([48], &device));

    let trained = config.init(&device.clone().autodiff());
    assert!(trained.layers[0].recurrent_weight.val().is_require_grad());
}

#[test]
fn the_seed_decides_the_parameters() {
    let device = device();
    let weights = |seed: u64| {
        device.seed(seed);
        values(&GruConfig::new(4, 6, true).init(&device).layers[0].input_weight.val())
    };
    assert_eq!(weights(7), weights(7));
    assert_ne!(weights(7), weights(8));
}

#[test]
fn layers_show_what_they_are() {
    let device = device();
    let gru = GruConfig::new(2, 8, true).with_num_layers(2).init(&device);
    assert_eq!(
        gru.format(Default::default()),
        "Gru {d_input: 2, d_hidden: 8, bias: true, reset_after: true, bidirectional: false, num_layers: 2, \
         params: 688}"
    );
    assert_eq!(
        format!("{}", RnnConfig::new(2, 8, false).with_bidirectional(true).init(&device)),
        "Rnn {d_input: 2, d_hidden: 8, bias: false, bidirectional: true, num_layers: 1, params: 160}"
    );
    assert_eq!(
        format!("{}", gru.layers[0]),
        "RecurrentParameters {d_input: 2, d_hidden: 8, bias: true, params: 272}"
    );
}

#[test]
fn without_rows_results_are_empty() {
    let device = device();
    for bidirectional in [false, true] {
        for num_layers in [1, 2] {
            let directions = 1 + bidirectional as usize;
            let layer =
                GruConfig::new(3, 5, true).with_bidirectional(bidirectional).with_num_layers(num_layers);
            let layer = layer.init(&device);
            for state in [None, Some(random([num_layers * directions, 0, 5], &device))] {
                let (output, state) = layer.forward(random([0, 4, 3], &device), state);
                assert_eq!(output.dims(), [0, 4, directions * 5]);
                assert_eq!(state.dims(), [num_layers * directions, 0, 5]);
            }
        }
    }
    let rnn = RnnConfig::new(3, 5, true).init(&device);
    let (output, state) = rnn.step(random([0, 3], &device), None);
    assert_eq!((output.dims(), state.dims()), ([0, 5], [1, 0, 5]));
}
