//! The GRU layer.

use burn::{
    config::Config,
    module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay},
    nn,
    nn::Dropout,
    tensor::{Device, Tensor},
};

use super::{
    RecurrentParameters, dropout,
    parameters::Sizes,
    stack::{Stack, unwrap},
    stacked,
};
use crate::{
    Activation, Cell, Error, GruDescriptor, KerasGru, Lengths, OnnxAttributes, OnnxWeights, PyTorchGru,
    weights::{Directions, burn_nn, keras, onnx, pytorch},
};

/// Configuration of a [`Gru`], made with [`init`](Self::init).
///
/// ```
/// use burn_rnn::GruConfig;
///
/// let config = GruConfig::new(64, 128, true).with_num_layers(2).with_dropout(0.1);
/// assert!(config.reset_after && config.batch_first);
/// ```
#[derive(Config, Debug)]
pub struct GruConfig {
    /// Input features, `I`.
    pub d_input: usize,
    /// Hidden units of each direction, `H`.
    pub d_hidden: usize,
    /// Whether the gates have biases.
    pub bias: bool,
    /// Whether the reset gate follows the recurrent product, as in PyTorch and cuDNN, or precedes it; see
    /// [`GruDescriptor::reset_after`]. Default: true, as in Burn's own layer.
    #[config(default = true)]
    pub reset_after: bool,
    /// Whether a cell in each direction runs over the sequence. Default: false.
    #[config(default = false)]
    pub bidirectional: bool,
    /// Whether the layer walks from the last step to the first. Ignored when `bidirectional`. Default: false.
    #[config(default = false)]
    pub reverse: bool,
    /// Whether input and output are `[N, T, _]` rather than `[T, N, _]`. Default: true.
    #[config(default = true)]
    pub batch_first: bool,
    /// Layers on top of each other, at least one. Default: 1.
    #[config(default = 1)]
    pub num_layers: usize,
    /// The probability of dropout between layers, from 0 up and below 1; during training only, as Burn's
    /// [`Dropout`] decides it. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Activation of the update gate and the reset gate. Default: sigmoid.
    #[config(default = "Activation::Sigmoid")]
    pub gate_activation: Activation,
    /// Activation of the output gate, the candidate state. Default: tanh.
    #[config(default = "Activation::Tanh")]
    pub hidden_activation: Activation,
    /// Clamps the state to `[-clip, clip]` after each step; the gradient passes inside the range only.
    /// Default: none.
    pub clip: Option<f64>,
    /// Which of the two mixed states the update gate weighs; see [`GruDescriptor::flip_z`]. Default: false, the
    /// form of Burn, PyTorch, Keras and ONNX.
    #[config(default = false)]
    pub flip_z: bool,
    /// Whether gates whose bias is added to both products have two biases, as in Burn's and PyTorch's layers.
    ///
    /// The sum of two biases computes what one does, but an optimiser moves it twice as far: a layer must have
    /// both to train step by step as theirs do. Layers made by the `from_…` conversions have them where the
    /// source does; [`Gru::merge_biases`] adds them up. Without `bias`, there is none. Default: false.
    #[config(default = false)]
    pub recurrent_bias: bool,
    /// How each gate's matrices and biases are initialised, with the fans of a matrix `[I, H]` or `[H, H]` of its
    /// own; the biases are zero with [`Initializer::Orthogonal`], which has no meaning for vectors. Default:
    /// `XavierNormal` with a gain of 1, as in Burn's own layer.
    #[config(default = "Initializer::XavierNormal{gain:1.0}")]
    pub initializer: Initializer,
}

impl GruConfig {
    /// Makes the layer on `device`.
    ///
    /// # Panics
    ///
    /// If a size is 0, `num_layers` is 0, `dropout` is not from 0 up and below 1, or `clip` is not finite and
    /// above 0.
    pub fn init(&self, device: &Device) -> Gru {
        let descriptor = GruDescriptor {
            reverse: self.reverse && !self.bidirectional,
            bidirectional: self.bidirectional,
            reset_after: self.reset_after,
            flip_z: self.flip_z,
            update_gate_activation: self.gate_activation,
            reset_gate_activation: self.gate_activation,
            output_gate_activation: self.hidden_activation,
            clip: self.clip,
            ..Default::default()
        };
        let sizes = Sizes {
            d_input: self.d_input,
            d_hidden: self.d_hidden,
            bias: self.bias,
            recurrent_bias: self.recurrent_bias,
        };
        Gru {
            layers: RecurrentParameters::stack(
                &Cell::Gru(descriptor),
                self.num_layers,
                &sizes,
                &self.initializer,
                device,
            ),
            dropout: unwrap(dropout(self.dropout)),
            batch_first: self.batch_first,
            descriptor,
        }
    }
}

/// A gated recurrent unit of one or more layers, in one direction or both, as a Burn module. Made with
/// [`GruConfig`], or from other frameworks' weights with the `from_…` conversions.
///
/// It computes what [`gru`](crate::gru) does; see there for the formulas. `N` batch rows, `T` steps, `I` input
/// features, `H` hidden units, `D` directions (2 if bidirectional, else 1).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Gru {
    /// The parameters of each layer, the one that takes the input first.
    pub layers: Vec<RecurrentParameters>,
    /// Dropout between layers.
    pub dropout: Dropout,
    /// Whether input and output are `[N, T, _]` rather than `[T, N, _]`.
    pub batch_first: bool,
    /// What every layer computes.
    #[module(skip)]
    pub descriptor: GruDescriptor,
}

impl ModuleDisplay for Gru {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("d_input", &self.layers[0].d_input())
            .add("d_hidden", &self.layers[0].d_hidden())
            .add("bias", &self.layers[0].bias.is_some())
            .add("reset_after", &self.descriptor.reset_after)
            .add("bidirectional", &self.descriptor.bidirectional)
            .add("num_layers", &self.layers.len())
            .optional()
    }
}

impl Gru {
    /// Runs the layer over a whole sequence.
    ///
    /// - `input`: `[N, T, I]`, or `[T, N, I]` without `batch_first`.
    /// - `state`: `[num_layers·D, N, H]`, the states before the first step, ordered as PyTorch's `h_0`: the
    ///   directions of the first layer, those of the second, and so on; `None`: zero.
    ///
    /// Returns the last layer's output, `[N, T, D·H]`, or `[T, N, D·H]` without `batch_first`, and the states
    /// after the last step, `[num_layers·D, N, H]`, PyTorch's `h_n`.
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error.
    pub fn forward(&self, input: Tensor<3>, state: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        unwrap(self.try_forward(input, state, None))
    }

    /// Runs the layer over sequences of different lengths, see [`Lengths`]; otherwise as
    /// [`forward`](Self::forward). `lengths` holds how many steps each of the `N` rows runs.
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error.
    pub fn forward_with_lengths(
        &self,
        input: Tensor<3>,
        lengths: impl Into<Lengths>,
        state: Option<Tensor<3>>,
    ) -> (Tensor<3>, Tensor<3>) {
        unwrap(self.try_forward(input, state, Some(lengths.into())))
    }

    /// [`forward`](Self::forward) and [`forward_with_lengths`](Self::forward_with_lengths) without panics.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `input` or `state` does not fit the layer, and the errors of [`gru`](crate::gru).
    pub fn try_forward(
        &self,
        input: Tensor<3>,
        state: Option<Tensor<3>>,
        lengths: Option<Lengths>,
    ) -> Result<(Tensor<3>, Tensor<3>), Error> {
        self.stack().forward(input, state, lengths)
    }

    /// Runs one time step, for a model that gets its input step by step: `input`, `[N, I]`, and the `state` that
    /// the step before returned, `[num_layers, N, H]` (`None`: zero), to the output of the step, `[N, H]`, and the
    /// next state. Steps in turn give what [`forward`](Self::forward) gives at once, whatever `batch_first` is.
    ///
    /// # Panics
    ///
    /// If the layer is bidirectional or walks backwards, and where [`try_forward`](Self::try_forward) returns an
    /// error.
    pub fn step(&self, input: Tensor<2>, state: Option<Tensor<3>>) -> (Tensor<2>, Tensor<3>) {
        self.stack().step(input, state)
    }

    /// Adds the [`recurrent_bias`](GruConfig::recurrent_bias) of each layer to its bias, which leaves out an
    /// addition a call and changes no result.
    pub fn merge_biases(mut self) -> Self {
        let cell = Cell::Gru(self.descriptor);
        self.layers = self.layers.into_iter().map(|layer| layer.merge_biases(cell)).collect();
        self
    }

    /// A layer with the weights of Burn's own `Gru`. It computes the same and, until
    /// [`merge_biases`](Self::merge_biases), trains the same; its parameters are its own.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`] if an activation is not among [`Activation`]'s, or a shape does not fit.
    pub fn from_burn(gru: &nn::gru::Gru) -> Result<Self, Error> {
        Self::from_directions(vec![burn_nn::gru_directions(gru, None)?], true, 0.0)
    }

    /// A bidirectional layer with the weights of Burn's own `BiGru`; otherwise as
    /// [`from_burn`](Self::from_burn).
    ///
    /// # Errors
    ///
    /// As [`from_burn`](Self::from_burn), and if the options of the two directions differ.
    pub fn from_burn_bidirectional(gru: &nn::gru::BiGru) -> Result<Self, Error> {
        let directions = burn_nn::gru_directions(&gru.forward, Some(&gru.reverse))?;
        Self::from_directions(vec![directions], gru.batch_first, 0.0)
    }

    /// A layer with the weights of a `torch.nn.GRU`.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`], naming the tensor as in the state dict, if a shape does not fit, if there is no layer,
    /// or if `dropout` is out of range.
    pub fn from_pytorch(gru: PyTorchGru) -> Result<Self, Error> {
        let PyTorchGru { layers, batch_first, dropout } = gru;
        let layers = layers
            .into_iter()
            .enumerate()
            .map(|(index, layer)| pytorch::gru_directions(layer, &format!("_l{index}")))
            .collect::<Result<_, _>>()?;
        Self::from_directions(layers, batch_first, dropout)
    }

    /// A layer with the weights of an ONNX `GRU` node, `batch_first` as its `layout` says. The node's `Y` has an
    /// axis `D` of its own; its channels are the same.
    ///
    /// # Errors
    ///
    /// Those of [`CellWeights::from_onnx_gru`](crate::CellWeights::from_onnx_gru).
    pub fn from_onnx(weights: OnnxWeights, attributes: &OnnxAttributes) -> Result<Self, Error> {
        let batch_first = attributes.batch_first()?;
        Self::from_directions(vec![onnx::gru_directions(weights, attributes)?], batch_first, 0.0)
    }

    /// A layer with the weights of a Keras `GRU`, `batch_first` as Keras has it.
    ///
    /// # Errors
    ///
    /// Those of [`CellWeights::from_keras_gru`](crate::CellWeights::from_keras_gru).
    pub fn from_keras(layer: KerasGru) -> Result<Self, Error> {
        Self::from_directions(vec![keras::gru_directions(layer)?], true, 0.0)
    }

    fn from_directions(layers: Vec<Directions>, batch_first: bool, prob: f64) -> Result<Self, Error> {
        let dropout = dropout(prob)?;
        let Some(Cell::Gru(descriptor)) = layers.first().map(|layer| layer.cell) else {
            return Err(super::no_layer());
        };
        let descriptor = GruDescriptor { reset_gate_first: false, ..descriptor };
        Ok(Self { layers: stacked(layers)?, dropout, batch_first, descriptor })
    }

    fn stack(&self) -> Stack<'_> {
        Stack {
            layers: &self.layers,
            cell: Cell::Gru(self.descriptor),
            dropout: &self.dropout,
            batch_first: self.batch_first,
        }
    }
}
