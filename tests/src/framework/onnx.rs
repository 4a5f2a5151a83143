//! Cases from ONNX: a `GRU` or `RNN` node.

use burn::tensor::Tensor;
use burn_rnn::{CellWeights, Error, Gru, OnnxAttributes, OnnxWeights, Rnn};
use serde::Deserialize;

use super::{Framework, Inputs, Module, Ranked, Results, Tensors, time_major};
use crate::case::{Case, CaseError, check_integers};

/// Attributes of an ONNX node, named as in the standard and with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Onnx {
    /// Which operator.
    pub op: Operator,
    /// Hidden units of one direction.
    pub hidden_size: usize,
    /// Which directions run. Default: forward.
    #[serde(default)]
    pub direction: Direction,
    /// Whether a GRU applies the reset gate after the recurrent product. Default: 0.
    #[serde(default)]
    pub linear_before_reset: u8,
    /// The activations of each direction: for a GRU those of the gates and of the output gate, else one.
    /// Default: sigmoid and tanh; tanh.
    #[serde(default)]
    pub activations: Option<Vec<String>>,
    /// The α of those activations that have one.
    #[serde(default)]
    pub activation_alpha: Option<Vec<f64>>,
    /// The β of those activations that have one.
    #[serde(default)]
    pub activation_beta: Option<Vec<f64>>,
    /// Whether the batch is the first axis. Default: 0.
    #[serde(default)]
    pub layout: u8,
}

/// An ONNX operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Operator {
    /// `GRU`
    #[serde(rename = "GRU")]
    Gru,
    /// `RNN`
    #[serde(rename = "RNN")]
    Rnn,
}

/// The attribute `direction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the first step to the last.
    #[default]
    Forward,
    /// From the last step to the first.
    Reverse,
    /// Both.
    Bidirectional,
}

impl Onnx {
    pub(crate) fn check(&self, case: &Case) -> Result<(), CaseError> {
        for (option, value) in [("linear_before_reset", self.linear_before_reset), ("layout", self.layout)] {
            if value > 1 {
                return Err(CaseError::Metadata(format!("`{option}` must be 0 or 1, got {value}")));
            }
        }
        for (name, rank, required) in [
            ("X", 3, true),
            ("W", 3, true),
            ("R", 3, true),
            ("B", 2, false),
            ("sequence_lens", 1, false),
            ("initial_h", 3, false),
        ] {
            match case.input(name, &[rank])? {
                Some(data) => check_integers(name, data, name == "sequence_lens")?,
                None if required => return Err(CaseError::tensor(name, "is missing")),
                None => {}
            }
        }
        case.allow(
            |name| ["X", "W", "R", "B", "sequence_lens", "initial_h"].contains(&name),
            |name| ["Y", "Y_h"].contains(&name),
        )
    }
}

impl Framework for Onnx {
    fn layers(&self, tensors: &Tensors) -> Result<Vec<CellWeights>, Error> {
        let layer = match self.op {
            Operator::Gru => CellWeights::from_onnx_gru(weights(tensors), &self.attributes()),
            Operator::Rnn => CellWeights::from_onnx_rnn(weights(tensors), &self.attributes()),
        };
        Ok(vec![layer?])
    }

    fn inputs(&self, tensors: &Tensors) -> Inputs {
        let batch_first = self.batch_first();
        let input = tensors.three("X").expect("checked when the case was read");
        // [D, N, H], or [N, D, H] if the batch is first.
        let state = tensors.three("initial_h").map(|state| time_major(state, batch_first));
        Inputs { source: time_major(input, batch_first), state }
    }

    fn results(&self, output: Tensor<3>, final_state: Tensor<3>) -> Results {
        let [steps, batch, channels] = output.dims();
        let directions = channels / self.hidden_size;
        let output = output.reshape([steps, batch, directions, self.hidden_size]);
        let output = match self.batch_first() {
            // [N, T, D, H]
            true => output.swap_dims(0, 1),
            // [T, D, N, H]
            false => output.swap_dims(1, 2),
        };
        let final_state = time_major(final_state, self.batch_first());
        Results { output: ("Y", Ranked::Four(output)), final_state: ("Y_h", Ranked::Three(final_state)) }
    }

    fn module(&self, tensors: &Tensors) -> Result<Module, Error> {
        Ok(match self.op {
            Operator::Gru => Module::Gru(Gru::from_onnx(weights(tensors), &self.attributes())?),
            Operator::Rnn => Module::Rnn(Rnn::from_onnx(weights(tensors), &self.attributes())?),
        })
    }
}

fn weights(tensors: &Tensors) -> OnnxWeights {
    let required = "checked when the case was read";
    OnnxWeights {
        w: tensors.three("W").expect(required),
        r: tensors.three("R").expect(required),
        b: tensors.two("B"),
    }
}

impl Onnx {
    fn attributes(&self) -> OnnxAttributes {
        OnnxAttributes {
            activations: self.activations.clone(),
            activation_alpha: self.activation_alpha.clone(),
            activation_beta: self.activation_beta.clone(),
            clip: None,
            direction: self.direction.name().into(),
            hidden_size: Some(self.hidden_size),
            layout: self.layout.into(),
            linear_before_reset: self.linear_before_reset.into(),
        }
    }

    fn batch_first(&self) -> bool {
        self.layout == 1
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Bidirectional => "bidirectional",
        }
    }
}
