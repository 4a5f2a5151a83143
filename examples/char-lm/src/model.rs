//! The model: an embedding, GRU layers, and a linear layer to the scores of the next character.

use anyhow::Result;
use burn::{
    module::Module,
    nn::{self, Embedding, EmbeddingConfig, Linear, LinearConfig},
    tensor::{Device, Int, Tensor},
};
use burn_rnn::Gru;

use crate::LayerChoice;

/// Sizes of a [`Model`].
#[derive(Clone, Copy, Debug)]
pub struct ModelConfig {
    /// Characters.
    pub vocabulary: usize,
    /// Size of the embedding.
    pub embedding: usize,
    /// Hidden units of each GRU layer.
    pub hidden: usize,
    /// GRU layers.
    pub layers: usize,
}

/// A character-level language model.
#[derive(Module, Debug)]
pub struct Model {
    embedding: Embedding,
    recurrent: Recurrent,
    scores: Linear,
}

/// The GRU layers. Both compute the same from the same weights.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of them")]
enum Recurrent {
    Fused(Gru),
    Burn(BurnLayers),
}

/// Burn's own layer has no stack of itself.
#[derive(Module, Debug)]
struct BurnLayers {
    layers: Vec<nn::gru::Gru>,
}

impl ModelConfig {
    /// Makes a model of the layers chosen. With the same seed, the weights are the same whatever the choice:
    /// Burn's own layers draw them, and the fused ones are converted from those.
    ///
    /// # Errors
    ///
    /// None that this configuration can cause.
    pub fn init(&self, layer: LayerChoice, device: &Device) -> Result<Model> {
        let layers = (0..self.layers)
            .map(|index| {
                let d_input = if index == 0 { self.embedding } else { self.hidden };
                nn::gru::GruConfig::new(d_input, self.hidden, true).init(device)
            })
            .collect();
        let model = Model {
            embedding: EmbeddingConfig::new(self.vocabulary, self.embedding).init(device),
            recurrent: Recurrent::Burn(BurnLayers { layers }),
            scores: LinearConfig::new(self.hidden, self.vocabulary).init(device),
        };
        // Burn draws weights when they are first used; this draws them all now, in one order.
        drop(model.clone().into_record());
        match layer {
            LayerChoice::Burn => Ok(model),
            LayerChoice::Fused => model.fused(),
        }
    }
}

impl Model {
    /// The same model with fused layers.
    fn fused(self) -> Result<Self> {
        let recurrent = match self.recurrent {
            Recurrent::Burn(BurnLayers { layers }) => {
                let mut fused = layers.iter().map(Gru::from_burn).collect::<Result<Vec<_>, _>>()?;
                let layers = fused.iter().flat_map(|gru| gru.layers.clone()).collect();
                Recurrent::Fused(Gru { layers, ..fused.swap_remove(0) })
            }
            fused => fused,
        };
        Ok(Self { recurrent, ..self })
    }

    /// Scores of the character after each, `[N, T, V]`, and the states after the last, `[L, N, H]`, for the
    /// characters `[N, T]` and the states before them (`None`: zero).
    pub fn forward(&self, characters: Tensor<2, Int>, state: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        let embedded = self.embedding.forward(characters);
        let (hidden, state) = match &self.recurrent {
            Recurrent::Fused(gru) => gru.forward(embedded, state),
            Recurrent::Burn(stack) => stack.forward(embedded, state),
        };
        (self.scores.forward(hidden), state)
    }

    /// [`forward`](Self::forward) for one character of each row: `[N, V]` and `[L, N, H]` for `[N]`.
    pub fn step(&self, characters: Tensor<1, Int>, state: Option<Tensor<3>>) -> (Tensor<2>, Tensor<3>) {
        let embedded = self.embedding.forward(characters.unsqueeze_dim(1));
        let (hidden, state) = match &self.recurrent {
            Recurrent::Fused(gru) => gru.step(embedded.squeeze_dim(1), state),
            Recurrent::Burn(stack) => {
                let (hidden, state) = stack.forward(embedded, state);
                (hidden.squeeze_dim(1), state)
            }
        };
        (self.scores.forward(hidden), state)
    }
}

impl BurnLayers {
    fn forward(&self, input: Tensor<3>, state: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        let [batch, steps, _] = input.dims();
        let mut hidden = input;
        let mut states = Vec::with_capacity(self.layers.len());
        for (index, layer) in self.layers.iter().enumerate() {
            let state = state
                .as_ref()
                .map(|state| state.clone().narrow(0, index, 1).reshape([batch, layer.d_hidden]));
            hidden = layer.forward(hidden, state);
            // The layer returns no state of its own, which is its last output.
            states.push(hidden.clone().narrow(1, steps - 1, 1).swap_dims(0, 1));
        }
        (hidden, Tensor::cat(states, 0))
    }
}
