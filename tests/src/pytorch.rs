//! Cases from PyTorch: a `torch.nn.GRU` or `torch.nn.RNN` with its state dict.

use serde::Deserialize;

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
        let weights = self.weights();
        for name in &weights {
            let rank = if name.contains("bias") { 1 } else { 2 };
            check_integers(name, case.require(name, &[rank])?, false)?;
        }
        let others = ["input", "h_0", "output_gradient", "state_gradient"];
        let known = |name: &str| others.contains(&name) || weights.iter().any(|weight| weight == name);
        case.allow(known, |name| match name.strip_prefix("grad.") {
            Some(input) => known(input) && !input.ends_with("_gradient"),
            None => ["output", "h_n"].contains(&name),
        })
    }

    /// The names of the weights that the module's state dict holds.
    pub(crate) fn weights(&self) -> Vec<String> {
        let kinds: &[&str] = match self.bias {
            true => &["weight_ih", "weight_hh", "bias_ih", "bias_hh"],
            false => &["weight_ih", "weight_hh"],
        };
        let directions: &[&str] = if self.bidirectional { &["", "_reverse"] } else { &[""] };
        let mut names = Vec::new();
        for layer in 0..self.num_layers {
            for direction in directions {
                names.extend(kinds.iter().map(|kind| format!("weights.{kind}_l{layer}{direction}")));
            }
        }
        names
    }
}
