//! Cases from Keras: a `GRU` or `SimpleRNN` layer.

use burn::tensor::Tensor;
use burn_rnn::{
    CellWeights, Error, Gru, KerasBias, KerasCell, KerasGru, KerasGruConfig, KerasSimpleRnn,
    KerasSimpleRnnConfig, Rnn,
};
use serde::Deserialize;

use super::{Framework, Inputs, Module, Ranked, Results, Tensors, time_major};
use crate::case::{Case, CaseError, check_integers};

/// Options of a Keras layer, named as in its constructor and with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keras {
    /// Which layer.
    pub layer: Layer,
    /// Hidden units.
    pub units: usize,
    /// The activation of a GRU's output gate, or of a SimpleRNN; null is linear. Default: tanh.
    #[serde(default = "tanh")]
    pub activation: Option<String>,
    /// The activation of a GRU's two other gates; null is linear. Default: sigmoid.
    #[serde(default = "sigmoid")]
    pub recurrent_activation: Option<String>,
    /// Whether there is a bias. Default: true.
    #[serde(default = "yes")]
    pub use_bias: bool,
    /// Whether a GRU applies the reset gate after the recurrent product. Default: true.
    #[serde(default = "yes")]
    pub reset_after: bool,
    /// Whether the layer runs from the last step to the first, and returns its outputs in that order.
    /// Default: false.
    #[serde(default)]
    pub go_backwards: bool,
}

/// A Keras layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Layer {
    /// `keras.layers.GRU`
    #[serde(rename = "GRU")]
    Gru,
    /// `keras.layers.SimpleRNN`
    #[serde(rename = "SimpleRNN")]
    SimpleRnn,
}

fn tanh() -> Option<String> {
    Some("tanh".into())
}

fn sigmoid() -> Option<String> {
    Some("sigmoid".into())
}

fn yes() -> bool {
    true
}

impl Keras {
    pub(crate) fn check(&self, case: &Case) -> Result<(), CaseError> {
        for (name, ranks, required) in [
            ("input", &[3][..], true),
            ("weights.kernel", &[2], true),
            ("weights.recurrent_kernel", &[2], true),
            ("weights.bias", &[1, 2], self.use_bias),
        ] {
            match case.input(name, ranks)? {
                Some(data) => check_integers(name, data, false)?,
                None if required => return Err(CaseError::tensor(name, "is missing")),
                None => {}
            }
        }
        case.allow(
            |name| match name.strip_prefix("weights.") {
                Some("bias") => self.use_bias,
                Some(weight) => ["kernel", "recurrent_kernel"].contains(&weight),
                None => name == "input",
            },
            |name| ["output", "state"].contains(&name),
        )
    }
}

impl Framework for Keras {
    fn layers(&self, tensors: &Tensors) -> Result<Vec<CellWeights>, Error> {
        let layer = match self.layer {
            Layer::Gru => CellWeights::from_keras_gru(self.gru(tensors)),
            Layer::SimpleRnn => CellWeights::from_keras_simple_rnn(self.simple_rnn(tensors)),
        };
        Ok(vec![layer?])
    }

    fn inputs(&self, tensors: &Tensors) -> Inputs {
        let input = tensors.three("input").expect("checked when the case was read");
        Inputs { source: time_major(input, true), state: None }
    }

    fn results(&self, output: Tensor<3>, final_state: Tensor<3>) -> Results {
        let [_, batch, hidden] = final_state.dims();
        // Keras returns the outputs in the order in which it computed them.
        let output = if self.go_backwards { output.flip([0]) } else { output };
        Results {
            output: ("output", Ranked::Three(time_major(output, true))),
            final_state: ("state", Ranked::Two(final_state.swap_dims(0, 1).reshape([batch, hidden]))),
        }
    }

    fn module(&self, tensors: &Tensors) -> Result<Module, Error> {
        Ok(match self.layer {
            Layer::Gru => Module::Gru(Gru::from_keras(self.gru(tensors))?),
            Layer::SimpleRnn => Module::Rnn(Rnn::from_keras(self.simple_rnn(tensors))?),
        })
    }
}

impl Keras {
    fn gru(&self, tensors: &Tensors) -> KerasGru {
        KerasGru {
            forward: cell(tensors),
            backward: None,
            config: KerasGruConfig {
                units: Some(self.units),
                activation: self.activation.clone(),
                recurrent_activation: self.recurrent_activation.clone(),
                reset_after: self.reset_after,
                go_backwards: self.go_backwards,
            },
        }
    }

    fn simple_rnn(&self, tensors: &Tensors) -> KerasSimpleRnn {
        KerasSimpleRnn {
            forward: cell(tensors),
            backward: None,
            config: KerasSimpleRnnConfig {
                units: Some(self.units),
                activation: self.activation.clone(),
                go_backwards: self.go_backwards,
            },
        }
    }
}

fn cell(tensors: &Tensors) -> KerasCell {
    let required = "checked when the case was read";
    let one = tensors.one("weights.bias").map(KerasBias::One);
    KerasCell {
        kernel: tensors.two("weights.kernel").expect(required),
        recurrent_kernel: tensors.two("weights.recurrent_kernel").expect(required),
        bias: one.or_else(|| tensors.two("weights.bias").map(KerasBias::Two)),
    }
}
