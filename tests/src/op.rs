//! Cases of the operations themselves: reading them, and the two ways to run them.

pub(crate) mod backend;
pub(crate) mod functional;

use burn_rnn::{Activation, Cell, GruDescriptor, SingleGateRnnDescriptor};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::case::{Case, CaseError, check_integers, from_options};

/// The inputs that have a gradient, in MPSGraph's order.
pub(crate) const DIFFERENTIABLE: [&str; 6] =
    ["source", "recurrent_weight", "input_weight", "bias", "init_state", "secondary_bias"];

/// A case of one of the operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    /// The cell with its options.
    pub cell: Cell,
}

/// The options as they stand in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    cell: String,
    #[serde(default)]
    descriptor: Map<String, Value>,
}

impl Op {
    pub(crate) fn read(options: Map<String, Value>) -> Result<Self, CaseError> {
        let Options { cell, descriptor } = from_options(options)?;
        let activations = |names: &[&str]| spell_out_activations(descriptor.clone(), names);
        let cell = match cell.as_str() {
            "gru" => Cell::Gru(from_options::<GruDescriptor>(activations(&[
                "update_gate_activation",
                "reset_gate_activation",
                "output_gate_activation",
            ])?)?),
            "single_gate_rnn" => {
                Cell::SingleGate(from_options::<SingleGateRnnDescriptor>(activations(&["activation"])?)?)
            }
            other => {
                let problem = format!("`cell` must be `gru` or `single_gate_rnn`, got `{other}`");
                return Err(CaseError::Metadata(problem));
            }
        };
        Ok(Self { cell })
    }

    pub(crate) fn check(&self, case: &Case) -> Result<(), CaseError> {
        let gru = matches!(self.cell, Cell::Gru(_));
        let rank = if self.cell.bidirectional() { 3 } else { 2 };
        for (name, ranks, required) in [
            ("source", &[3][..], true),
            ("recurrent_weight", &[rank], true),
            ("input_weight", &[2], false),
            ("bias", &[1], false),
            ("init_state", &[2], false),
            ("mask", &[2, 3], false),
            ("secondary_bias", &[1], false),
            ("lengths", &[1], false),
            ("output_gradient", &[3], false),
            ("state_gradient", &[2], false),
        ] {
            let data = case.input(name, ranks)?;
            match data {
                Some(_) if name == "secondary_bias" && !gru => {
                    return Err(CaseError::tensor(name, "is no input of a single-gate RNN"));
                }
                Some(data) => check_integers(name, data, name == "lengths")?,
                None if required => return Err(CaseError::tensor(name, "is missing")),
                None => {}
            }
        }
        let known = ["mask", "lengths", "output_gradient", "state_gradient"];
        case.allow(
            |name| DIFFERENTIABLE.contains(&name) || known.contains(&name),
            |name| match name.strip_prefix("grad.") {
                Some(input) => DIFFERENTIABLE.contains(&input),
                None => ["output", "final_state"].contains(&name),
            },
        )?;
        self.check_gradients(case)
    }

    /// A case with a loss expects the gradient of every input that is present, and of no other.
    fn check_gradients(&self, case: &Case) -> Result<(), CaseError> {
        let has = |name: &str| case.inputs().contains_key(name);
        let has_loss = has("output_gradient") || has("state_gradient");
        for input in DIFFERENTIABLE {
            let name = format!("grad.{input}");
            let expected = case.expected().contains_key(&name);
            if expected && !has(input) {
                return Err(CaseError::tensor(format!("expect.{name}"), "belongs to an absent input"));
            }
            if expected && !has_loss {
                let problem = "needs `output_gradient` or `state_gradient`";
                return Err(CaseError::tensor(format!("expect.{name}"), problem));
            }
            if has_loss && has(input) && !expected {
                let problem = format!("is missing, though there is a `{input}`");
                return Err(CaseError::tensor(format!("expect.{name}"), problem));
            }
        }
        Ok(())
    }
}

/// Brings the activations of a descriptor into the form that the descriptors of `burn_rnn` are read from:
/// hard sigmoid with both its numbers.
///
/// A file may say `"hard_sigmoid"`, with the defaults α = 0.2 and β = 0.5, or give one or both:
/// `{"hard_sigmoid": {"alpha": 0.25}}`, `{"name": "hard_sigmoid", "alpha": 0.25}`, or beside the activation,
/// for one gate as `update_gate_activation_alpha` or for all of them as `hard_sigmoid_alpha` or `alpha`.
fn spell_out_activations(
    mut descriptor: Map<String, Value>,
    names: &[&str],
) -> Result<Map<String, Value>, CaseError> {
    let mut number = |names: &[String]| -> Result<Option<f64>, CaseError> {
        let mut found = None;
        for name in names {
            match descriptor.remove(name) {
                None | Some(Value::Null) => {}
                Some(Value::Number(number)) => found = number.as_f64(),
                Some(other) => {
                    return Err(CaseError::Metadata(format!("`{name}` must be a number, got {other}")));
                }
            }
        }
        Ok(found)
    };
    let Activation::HardSigmoid { alpha, beta } = Activation::HARD_SIGMOID else {
        unreachable!("the constant is a hard sigmoid");
    };
    let alpha = number(&["alpha".into(), "hard_sigmoid_alpha".into()])?.unwrap_or(alpha);
    let beta = number(&["beta".into(), "hard_sigmoid_beta".into()])?.unwrap_or(beta);
    let mut spelled = Vec::new();
    for &name in names {
        let gate = name.strip_suffix("_activation").unwrap_or(name);
        let alpha = number(&[format!("{gate}_alpha"), format!("{name}_alpha")])?.unwrap_or(alpha);
        let beta = number(&[format!("{gate}_beta"), format!("{name}_beta")])?.unwrap_or(beta);
        spelled.push((name, alpha, beta));
    }
    for (name, alpha, beta) in spelled {
        let Some(activation) = descriptor.get_mut(name) else { continue };
        *activation = spell_out(activation.take(), alpha, beta)?;
    }
    Ok(descriptor)
}

fn spell_out(activation: Value, alpha: f64, beta: f64) -> Result<Value, CaseError> {
    const HARD_SIGMOID: &str = "hard_sigmoid";
    let with = |mut numbers: Map<String, Value>| {
        if let Some(unknown) = numbers.keys().find(|name| !["alpha", "beta"].contains(&name.as_str())) {
            return Err(CaseError::Metadata(format!("`{unknown}` is no number of `{HARD_SIGMOID}`")));
        }
        numbers.entry("alpha").or_insert(json!(alpha));
        numbers.entry("beta").or_insert(json!(beta));
        Ok(json!({ HARD_SIGMOID: numbers }))
    };
    match activation {
        Value::String(name) if name == HARD_SIGMOID => with(Map::new()),
        Value::Object(mut fields) => match (fields.get(HARD_SIGMOID), fields.get("name")) {
            (Some(Value::Object(numbers)), None) if fields.len() == 1 => with(numbers.clone()),
            (None, Some(name)) if name == HARD_SIGMOID => {
                fields.remove("name");
                with(fields)
            }
            _ => Ok(Value::Object(fields)),
        },
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(descriptor: Value) -> Result<Cell, CaseError> {
        let Value::Object(options) = json!({ "cell": "gru", "descriptor": descriptor }) else {
            unreachable!()
        };
        Ok(Op::read(options)?.cell)
    }

    fn gates(descriptor: Value) -> [Activation; 3] {
        let Cell::Gru(descriptor) = read(descriptor).unwrap() else { panic!("not a GRU") };
        [
            descriptor.update_gate_activation,
            descriptor.reset_gate_activation,
            descriptor.output_gate_activation,
        ]
    }

    #[test]
    fn every_option_is_read() {
        let read = read(json!({
            "reverse": true,
            "bidirectional": true,
            "training": true,
            "reset_gate_first": true,
            "reset_after": true,
            "flip_z": true,
            "update_gate_activation": "relu",
            "reset_gate_activation": "none",
            "output_gate_activation": "sigmoid",
            "clip": 0.5,
        }));
        let expected = GruDescriptor {
            reverse: true,
            bidirectional: true,
            training: true,
            reset_gate_first: true,
            reset_after: true,
            flip_z: true,
            update_gate_activation: Activation::Relu,
            reset_gate_activation: Activation::None,
            output_gate_activation: Activation::Sigmoid,
            clip: Some(0.5),
        };
        assert_eq!(read, Ok(Cell::Gru(expected)));
    }

    #[test]
    fn absent_options_have_their_defaults() {
        assert_eq!(read(json!({})), Ok(Cell::Gru(GruDescriptor::default())));
        assert_eq!(read(json!({ "clip": null })), Ok(Cell::Gru(GruDescriptor::default())));
    }

    #[test]
    fn hard_sigmoid_may_have_its_own_numbers() {
        let hard = |alpha, beta| Activation::HardSigmoid { alpha, beta };
        let spellings = json!({
            "update_gate_activation": "hard_sigmoid",
            "reset_gate_activation": { "hard_sigmoid": { "alpha": 0.25 } },
            "output_gate_activation": { "name": "hard_sigmoid", "alpha": 0.3, "beta": 0.4 },
        });
        assert_eq!(gates(spellings), [hard(0.2, 0.5), hard(0.25, 0.5), hard(0.3, 0.4)]);
        let spellings = json!({
            "update_gate_activation": "hard_sigmoid",
            "update_gate_activation_alpha": 0.1,
            "reset_gate_activation": "hard_sigmoid",
            "hard_sigmoid_beta": 0.6,
            "output_gate_activation": "tanh",
        });
        assert_eq!(gates(spellings), [hard(0.1, 0.6), hard(0.2, 0.6), Activation::Tanh]);
    }

    #[test]
    fn unknown_options_are_refused() {
        for descriptor in [
            json!({ "peepholes": true }),
            json!({ "activation": "tanh" }),
            json!({ "update_gate_activation": "swish" }),
            json!({ "update_gate_activation": { "hard_sigmoid": { "gamma": 1.0 } } }),
            json!({ "update_gate_activation": { "name": "tanh", "alpha": 1.0 } }),
            json!({ "update_gate_alpha": "much" }),
            json!({ "reset_after": "yes" }),
        ] {
            assert!(matches!(read(descriptor.clone()), Err(CaseError::Metadata(_))), "{descriptor}");
        }
    }
}
