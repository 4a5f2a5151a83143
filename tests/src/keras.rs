//! Cases from Keras: a `GRU` or `SimpleRNN` layer.

use serde::Deserialize;

use crate::case::{Case, CaseError, check_integers};

/// Options of a Keras layer, named as in its constructor and with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keras {
    /// Which layer.
    pub layer: Layer,
    /// Hidden units.
    pub units: usize,
    /// The activation of a GRU's output gate, or of a SimpleRNN. Default: tanh.
    #[serde(default = "tanh")]
    pub activation: String,
    /// The activation of a GRU's two other gates. Default: sigmoid.
    #[serde(default = "sigmoid")]
    pub recurrent_activation: String,
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

fn tanh() -> String {
    "tanh".into()
}

fn sigmoid() -> String {
    "sigmoid".into()
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
