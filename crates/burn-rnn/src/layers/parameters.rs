//! The parameters of one layer.

use burn::{
    module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param, ParamId},
    tensor::{Device, Shape, Tensor},
};

use crate::{Cell, CellWeights, weights::LayerWeights};

/// The parameters of one layer of a [`Gru`](super::Gru) or [`Rnn`](super::Rnn), in the layout of
/// [`gru`](crate::gru) and [`single_gate_rnn`](crate::single_gate_rnn), so that a call puts nothing together.
///
/// `I` input features, `H` hidden units, `G` gates (3 for a GRU, ordered `z, r, o`; 1 for an RNN), `D`
/// directions (2 if bidirectional, else 1).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RecurrentParameters {
    /// `[D·GH, I]`
    pub input_weight: Param<Tensor<2>>,
    /// `[D, GH, H]`
    pub recurrent_weight: Param<Tensor<3>>,
    /// `[D·GH]`, with `bias`.
    pub bias: Option<Param<Tensor<1>>>,
    /// `[D·H]`, with `bias`, of a GRU with `reset_after`: the output gate's bias beside the recurrent product,
    /// which the reset gate multiplies.
    pub secondary_bias: Option<Param<Tensor<1>>>,
    /// `[D·GH]`, of a GRU with `reset_after` `[D·2H]`, with `recurrent_bias`: what is added to `bias`, in a GRU
    /// with `reset_after` to that of the gates `z` and `r`.
    pub recurrent_bias: Option<Param<Tensor<1>>>,
}

/// What a layer's parameters are made for.
pub(super) struct Sizes {
    pub d_input: usize,
    pub d_hidden: usize,
    pub bias: bool,
    pub recurrent_bias: bool,
}

impl RecurrentParameters {
    /// Parameters of `num_layers` new layers, the first taking the input.
    ///
    /// # Panics
    ///
    /// If a size or `num_layers` is 0, or `clip` is not finite and above 0.
    pub(super) fn stack(
        cell: &Cell,
        num_layers: usize,
        sizes: &Sizes,
        initializer: &Initializer,
        device: &Device,
    ) -> Vec<Self> {
        let sizes_from_one =
            [("d_input", sizes.d_input), ("d_hidden", sizes.d_hidden), ("num_layers", num_layers)];
        for (name, size) in sizes_from_one {
            assert!(size > 0, "`{name}` must be from 1 up, got 0");
        }
        if let Some(clip) = cell.clip() {
            assert!(clip.is_finite() && clip > 0.0, "`clip` must be finite and above 0, got {clip}");
        }
        (0..num_layers)
            .map(|index| {
                let d_input = if index == 0 { sizes.d_input } else { cell.directions() * sizes.d_hidden };
                Self::new(cell, &Sizes { d_input, ..*sizes }, initializer, device)
            })
            .collect()
    }

    /// Parameters of a new layer. Each gate of each direction gets the values that it would get as a matrix of
    /// its own, as in Burn's layers.
    fn new(cell: &Cell, sizes: &Sizes, initializer: &Initializer, device: &Device) -> Self {
        let Sizes { d_input, d_hidden, .. } = *sizes;
        let (directions, gates) = (cell.directions(), cell.gates());
        let matrices = directions * gates;
        let rows = gates * d_hidden;
        let vector = |length: usize, fan_in: usize| match initializer {
            // Defined for matrices only.
            Initializer::Orthogonal { .. } => Initializer::Zeros.init([length], device),
            _ => initializer.init_with([length], Some(fan_in), Some(d_hidden), device),
        };
        let bias = sizes.bias.then(|| vector(directions * rows, d_input));
        let secondary_bias =
            (sizes.bias && cell.reset_after()).then(|| vector(directions * d_hidden, d_hidden));
        let recurrent_bias = (sizes.bias && sizes.recurrent_bias).then(|| {
            let gates = if cell.reset_after() { gates - 1 } else { gates };
            vector(directions * gates * d_hidden, d_hidden)
        });
        Self {
            input_weight: gate_matrices(
                initializer,
                matrices,
                [d_hidden, d_input],
                [matrices * d_hidden, d_input],
                device,
            ),
            recurrent_weight: gate_matrices(
                initializer,
                matrices,
                [d_hidden, d_hidden],
                [directions, rows, d_hidden],
                device,
            ),
            bias,
            secondary_bias,
            recurrent_bias,
        }
    }

    /// Parameters with the values of `weights`, detached from whatever computed them.
    pub(super) fn from_weights(weights: LayerWeights) -> Self {
        let vector = |tensor: Option<Tensor<1>>| tensor.map(|tensor| Param::from_tensor(tensor.detach()));
        Self {
            input_weight: Param::from_tensor(weights.input_weight.detach()),
            recurrent_weight: Param::from_tensor(weights.recurrent_weight.detach()),
            bias: vector(weights.bias),
            secondary_bias: vector(weights.secondary_bias),
            recurrent_bias: vector(weights.recurrent_bias),
        }
    }

    /// The parameters as the inputs of `cell`.
    pub(super) fn weights(&self, cell: Cell) -> CellWeights {
        let value = |param: &Option<Param<Tensor<1>>>| param.as_ref().map(Param::val);
        LayerWeights {
            cell,
            input_weight: self.input_weight.val(),
            recurrent_weight: self.recurrent_weight.val(),
            bias: value(&self.bias),
            recurrent_bias: value(&self.recurrent_bias),
            secondary_bias: value(&self.secondary_bias),
        }
        .into_cell_weights()
    }

    /// Input features, without waiting for the parameters to be initialised.
    pub(super) fn d_input(&self) -> usize {
        self.input_weight.lazy_shape()[1]
    }

    /// Hidden units of a direction.
    pub(super) fn d_hidden(&self) -> usize {
        self.recurrent_weight.lazy_shape()[2]
    }

    /// Adds the recurrent bias to the bias.
    pub(super) fn merge_biases(self, cell: Cell) -> Self {
        if self.recurrent_bias.is_none() {
            return self;
        }
        let bias = self.weights(cell).bias.map(|bias| Param::from_tensor(bias.detach()));
        Self { bias, recurrent_bias: None, ..self }
    }
}

impl ModuleDisplay for RecurrentParameters {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("d_input", &self.d_input())
            .add("d_hidden", &self.d_hidden())
            .add("bias", &self.bias.is_some())
            .optional()
    }
}

/// A parameter of the shape `shape` that holds `count` matrices `[H, I]`, one for each gate and direction.
fn gate_matrices<const D: usize>(
    initializer: &Initializer,
    count: usize,
    [d_output, d_input]: [usize; 2],
    shape: [usize; D],
    device: &Device,
) -> Param<Tensor<D>> {
    match initializer {
        Initializer::Orthogonal { .. } => {
            let initializer = initializer.clone();
            let init = move |device: &Device, require_grad: bool| {
                let matrices = (0..count)
                    .map(|_| {
                        let matrix: Param<Tensor<2>> = initializer.init([d_output, d_input], device);
                        matrix.into_value().detach()
                    })
                    .collect();
                // `detach` makes it a leaf, which alone can be tracked.
                Tensor::cat(matrices, 0).reshape(shape).detach().set_require_grad(require_grad)
            };
            Param::uninitialized(ParamId::new(), init, device.clone(), true, Shape::from(shape))
        }
        // The values of all others are drawn one by one, from a distribution that depends on the fans only.
        _ => initializer.init_with(shape, Some(d_input), Some(d_output), device),
    }
}
