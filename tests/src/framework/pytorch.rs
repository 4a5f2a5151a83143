//! Cases from PyTorch: a `torch.nn.GRU` or `torch.nn.RNN` with its state dict.

use burn::tensor::Tensor;
use burn_rnn::{Activation, CellWeights, Error, Gru, PyTorchCell, PyTorchGru, PyTorchLayer, PyTorchRnn, Rnn};
use serde::Deserialize;

use super::{self as framework, Framework, Inputs, Ranked, Results, Tensors, time_major};
use crate::case::{Case, CaseError, check_integers};

/// Options of a PyTorch module, named as in its constructor and with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PyTorch {
    /// Which module.
    pub module: Module,
    /// Input features.
    pub input_size: usize,
    /// Hidden units of one direction.
    pub hidden_size: usize,
    /// Layers on top of each other. Default: 1.
    #[serde(default = "one")]
    pub num_layers: usize,
    /// Whether both directions run. Default: false.
    #[serde(default)]
    pub bidirectional: bool,
    /// Whether the batch is the first axis. Default: false.
    #[serde(default)]
    pub batch_first: bool,
    /// Whether there are biases. Default: true.
    #[serde(default = "yes")]
    pub bias: bool,
    /// The activation of an RNN. Default: tanh.
    #[serde(default)]
    pub nonlinearity: Nonlinearity,
}

/// A PyTorch module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Module {
    /// `torch.nn.GRU`
    #[serde(rename = "GRU")]
    Gru,
    /// `torch.nn.RNN`
    #[serde(rename = "RNN")]
    Rnn,
}

/// The activation of a `torch.nn.RNN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nonlinearity {
    /// The default.
    #[default]
    Tanh,
    /// `max(x, 0)`
    Relu,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

impl PyTorch {
    pub(crate) fn check(&self, case: &Case) -> Result<(), CaseError> {
        for (name, required) in
            [("input", true), ("h_0", false), ("output_gradient", false), ("state_gradient", false)]
        {
            match case.input(name, &[3])? {
                Some(data) => check_integers(name, data, false)?,
                None if required => return Err(CaseError::tensor(name, "is missing")),
                None => {}
            }
        }
        // One by one: a layer too many is found before the names of a million more are made.
        for name in self.weights() {
            let rank = if name.contains("bias") { 1 } else { 2 };
            check_integers(&name, case.require(&name, &[rank])?, false)?;
        }
        self.check_gradients(case)?;
        let weights: Vec<_> = self.weights().collect();
        let others = ["input", "h_0", "output_gradient", "state_gradient"];
        let known = |name: &str| others.contains(&name) || weights.iter().any(|weight| weight == name);
        case.allow(known, |name| match name.strip_prefix("grad.") {
            Some(input) => known(input) && !input.ends_with("_gradient"),
            None => ["output", "h_n"].contains(&name),
        })
    }

    /// The names of the weights that the module's state dict holds.
    pub(crate) fn weights(&self) -> impl Iterator<Item = String> {
        let kinds: &[&str] = match self.bias {
            true => &["weight_ih", "weight_hh", "bias_ih", "bias_hh"],
            false => &["weight_ih", "weight_hh"],
        };
        let directions: &[&str] = if self.bidirectional { &["", "_reverse"] } else { &[""] };
        (0..self.num_layers).flat_map(move |layer| {
            directions.iter().flat_map(move |direction| {
                kinds.iter().map(move |kind| format!("weights.{kind}_l{layer}{direction}"))
            })
        })
    }

    /// Gradients must have the shapes of what they are gradients of.
    fn check_gradients(&self, case: &Case) -> Result<(), CaseError> {
        let input = case.require("input", &[3])?.shape();
        let batch = input[if self.batch_first { 0 } else { 1 }];
        let directions = 1 + self.bidirectional as usize;
        let output = [input[0], input[1], directions * self.hidden_size];
        let state = [self.num_layers * directions, batch, self.hidden_size];
        for (name, expected) in [("output_gradient", output), ("state_gradient", state)] {
            if let Some(gradient) = case.input(name, &[3])?
                && gradient.shape()[..] != expected
            {
                return Err(CaseError::tensor(
                    name,
                    format!("must have the shape {expected:?}, got {:?}", gradient.shape()),
                ));
            }
        }
        Ok(())
    }
}

impl Framework for PyTorch {
    fn layers(&self, tensors: &Tensors) -> Result<Vec<CellWeights>, Error> {
        (0..self.num_layers)
            .map(|layer| {
                let layer = self.layer(tensors, layer);
                match self.module {
                    Module::Gru => CellWeights::from_pytorch_gru(layer),
                    Module::Rnn => CellWeights::from_pytorch_rnn(layer, self.nonlinearity.into()),
                }
            })
            .collect()
    }

    fn inputs(&self, tensors: &Tensors) -> Inputs {
        let input = tensors.three("input").expect("checked when the case was read");
        Inputs { source: time_major(input, self.batch_first), state: tensors.three("h_0") }
    }

    fn results(&self, output: Tensor<3>, final_state: Tensor<3>) -> Results {
        Results {
            output: ("output", Ranked::Three(time_major(output, self.batch_first))),
            final_state: ("h_n", Ranked::Three(final_state)),
        }
    }

    fn module(&self, tensors: &Tensors) -> Result<framework::Module, Error> {
        let layers = (0..self.num_layers).map(|layer| self.layer(tensors, layer)).collect();
        let (batch_first, dropout) = (self.batch_first, 0.0);
        Ok(match self.module {
            Module::Gru => {
                framework::Module::Gru(Gru::from_pytorch(PyTorchGru { layers, batch_first, dropout })?)
            }
            Module::Rnn => {
                let nonlinearity = self.nonlinearity.into();
                let rnn = PyTorchRnn { layers, nonlinearity, batch_first, dropout };
                framework::Module::Rnn(Rnn::from_pytorch(rnn)?)
            }
        })
    }
}

impl PyTorch {
    /// One layer's entries of the state dict.
    fn layer(&self, tensors: &Tensors, layer: usize) -> PyTorchLayer {
        let cell = |reverse: &str| {
            let name = |kind: &str| format!("weights.{kind}_l{layer}{reverse}");
            let weight = |kind: &str| tensors.two(&name(kind)).expect("checked when the case was read");
            PyTorchCell {
                weight_ih: weight("weight_ih"),
                weight_hh: weight("weight_hh"),
                bias_ih: tensors.one(&name("bias_ih")),
                bias_hh: tensors.one(&name("bias_hh")),
            }
        };
        PyTorchLayer { forward: cell(""), reverse: self.bidirectional.then(|| cell("_reverse")) }
    }
}

impl From<Nonlinearity> for Activation {
    fn from(nonlinearity: Nonlinearity) -> Self {
        match nonlinearity {
            Nonlinearity::Tanh => Activation::Tanh,
            Nonlinearity::Relu => Activation::Relu,
        }
    }
}
