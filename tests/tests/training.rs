//! An ordinary training loop with these layers: on the adapter with fusion, on Flex, and with Burn's own layer
//! in their place, from the same weights.

use burn::{
    module::{Module, ModuleDisplay},
    nn::{self, Embedding, EmbeddingConfig, Linear, LinearConfig, loss::CrossEntropyLossConfig},
    optim::{AdamConfig, GradientsParams},
    tensor::{Device, Int, Tensor},
};
use burn_rnn::{Gru, GruConfig, Rnn, RnnConfig};
use rnn_conformance::TestDevice;

const STEPS: usize = 30;
const SYMBOLS: usize = 8;
const LENGTH: usize = 12;
const BATCH: usize = 4;

/// A model that says which symbol comes next; `L` is the recurrent layer.
#[derive(Module, Debug)]
struct Model<L: Module + ModuleDisplay> {
    embedding: Embedding,
    layer: L,
    head: Linear,
}

/// `[N, T, I]` to `[N, T, H]`.
trait Layer: Module + ModuleDisplay {
    fn run(&self, input: Tensor<3>) -> Tensor<3>;
}

impl Layer for Gru {
    fn run(&self, input: Tensor<3>) -> Tensor<3> {
        self.forward(input, None).0
    }
}

impl Layer for Rnn {
    fn run(&self, input: Tensor<3>) -> Tensor<3> {
        self.forward(input, None).0
    }
}

impl Layer for nn::gru::Gru {
    fn run(&self, input: Tensor<3>) -> Tensor<3> {
        self.forward(input, None)
    }
}

impl<L: Layer> Model<L> {
    fn forward(&self, symbols: Tensor<2, Int>) -> Tensor<2> {
        let hidden = self.layer.run(self.embedding.forward(symbols));
        let [batch, steps, _] = hidden.dims();
        self.head.forward(hidden).reshape([batch * steps, SYMBOLS])
    }
}

/// Sequences that count, each with a stride and a start of its own, and what follows each symbol.
fn sequences(device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let symbol = |row: usize, step: usize| ((row + 1) * step + row) as i64 % SYMBOLS as i64;
    let read = |shift: usize| -> Vec<i64> {
        (0..BATCH).flat_map(|row| (0..LENGTH).map(move |step| symbol(row, step + shift))).collect()
    };
    let input = Tensor::<1, Int>::from_ints(read(0).as_slice(), device).reshape([BATCH, LENGTH]);
    (input, Tensor::from_ints(read(1).as_slice(), device))
}

/// The losses of some Adam steps.
fn train<L: Layer>(mut model: Model<L>, device: &Device) -> Vec<f32> {
    let (input, target) = sequences(device);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut optimizer = AdamConfig::new().init();
    (0..STEPS)
        .map(|_| {
            let loss = loss.forward(model.forward(input.clone()), target.clone());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.02, model.clone(), gradients);
            loss.into_scalar::<f32>()
        })
        .collect()
}

fn model<L: Module + ModuleDisplay>(layer: L, hidden: usize, device: &Device) -> Model<L> {
    Model {
        embedding: EmbeddingConfig::new(SYMBOLS, 6).init(device),
        layer,
        head: LinearConfig::new(hidden, SYMBOLS).init(device),
    }
}

fn flex() -> Device {
    Device::flex().autodiff()
}

fn wgpu() -> Device {
    let device = TestDevice::open("wgpu").expect("cargo xtask test makes sure of an adapter");
    device.device().clone().autodiff()
}

#[track_caller]
fn assert_same_losses(what: &str, got: &[f32], want: &[f32]) {
    assert!(want[STEPS - 1] < 0.6 * want[0], "the loss must fall to be worth comparing: {want:?}");
    for (step, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= 1e-4, "{what}, step {step}: the loss is {got}, expected {want}");
    }
}

/// The same model trains the same on the adapter, with fusion, as on Flex.
fn trains_on_both<L: Layer>(what: &str, layer: L, hidden: usize) {
    let model = model(layer, hidden, &flex());
    let moved = model.clone().fork(&wgpu());
    assert_same_losses(what, &train(moved, &wgpu()), &train(model, &flex()));
}

#[test]
fn a_gru_trains_with_fusion_as_on_flex() {
    let config = GruConfig::new(6, 16, true);
    trains_on_both("GRU", config.init(&flex()), 16);
    let config = config.with_num_layers(2).with_bidirectional(true).with_reset_after(false);
    trains_on_both("bidirectional GRU of two layers", config.init(&flex()), 32);
}

#[test]
fn an_rnn_trains_with_fusion_as_on_flex() {
    trains_on_both("RNN", RnnConfig::new(6, 16, true).init(&flex()), 16);
}

/// These layers and Burn's own, from the same weights, on both devices.
#[test]
fn a_gru_trains_as_burns_own_does() {
    for reset_after in [true, false] {
        let burn = nn::gru::GruConfig::new(6, 16, true).with_reset_after(reset_after).init(&flex());
        let own = model(Gru::from_burn(&burn).unwrap(), 16, &flex());
        let burns = Model { embedding: own.embedding.clone(), layer: burn, head: own.head.clone() };
        let want = train(burns, &flex());
        let moved = own.clone().fork(&wgpu());
        assert_same_losses("on Flex", &train(own, &flex()), &want);
        assert_same_losses("on the adapter", &train(moved, &wgpu()), &want);
    }
}
