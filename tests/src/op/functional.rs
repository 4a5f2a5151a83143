//! Running a case of an operation through `burn_rnn`'s functions, on a device.

use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use burn_rnn::{
    Cell, GruInputs, Lengths, Mask, RecurrentOutput, SingleGateRnnInputs, gru, gru_gradients,
    single_gate_rnn, single_gate_rnn_gradients,
};

use super::{DIFFERENTIABLE, Op};
use crate::{
    Case, Mismatch,
    report::{Failure, Judge, Way, WrongTensor},
    target::Target,
};

/// Runs a case in all its ways and returns what is wrong.
pub(crate) fn run(op: &Op, target: &Target, judge: &mut Judge) -> Result<(), Failure> {
    match op.cell.bidirectional() {
        false => Run::<2> { cell: op.cell, target }.all(judge),
        true => Run::<3> { cell: op.cell, target }.all(judge),
    }
}

/// A way to run a case; `R` is the rank of the recurrent weight.
struct Run<'a, const R: usize> {
    cell: Cell,
    target: &'a Target,
}

/// The tensors of a case.
#[derive(Clone)]
struct Inputs<const R: usize> {
    source: Tensor<3>,
    recurrent_weight: Tensor<R>,
    input_weight: Option<Tensor<2>>,
    bias: Option<Tensor<1>>,
    init_state: Option<Tensor<2>>,
    mask: Option<Mask>,
    secondary_bias: Option<Tensor<1>>,
    lengths: Option<Lengths>,
}

impl<const R: usize> Run<'_, R> {
    fn all(&self, judge: &mut Judge) -> Result<(), Failure> {
        let case = judge.case;
        let failed = |way| move |error: String| Failure::Error { way, error };
        self.inference(case, judge).map_err(failed(Way::Inference))?;
        self.gradients(case, judge).map_err(failed(Way::Gradients))?;
        self.autodiff(case, judge).map_err(failed(Way::Autodiff))
    }

    fn inference(&self, case: &Case, judge: &mut Judge) -> Result<(), String> {
        let inputs = self.inputs(case, &self.target.device);
        let outputs = self.forward(inputs, false)?;
        if outputs.z_state.is_some() {
            let (way, mismatch) = (Way::Inference, Mismatch::Unexpected);
            judge.wrong.push(WrongTensor { way, tensor: "z_state".into(), mismatch });
        }
        compare_outputs(Way::Inference, outputs, judge)
    }

    fn gradients(&self, case: &Case, judge: &mut Judge) -> Result<(), String> {
        let device = &self.target.device;
        let inputs = self.inputs(case, device);
        let outputs = self.forward(inputs.clone(), true)?;
        let Some(z_state) = outputs.z_state.clone() else {
            let (way, mismatch) = (Way::Gradients, Mismatch::Missing);
            judge.wrong.push(WrongTensor { way, tensor: "z_state".into(), mismatch });
            return Ok(());
        };
        let output = outputs.output.clone();
        compare_outputs(Way::Gradients, outputs, judge)?;

        let output_gradient = self.tensor(case, "output_gradient", device);
        let state_gradient = self.tensor(case, "state_gradient", device);
        if output_gradient.is_none() && state_gradient.is_none() {
            return Ok(());
        }
        let output_gradient = output_gradient.unwrap_or_else(|| output.zeros_like());
        let gradients = match self.cell {
            Cell::Gru(descriptor) => {
                let gradients = gru_gradients(
                    inputs.gru(),
                    output_gradient,
                    z_state,
                    output,
                    state_gradient,
                    &descriptor,
                )
                .map_err(|error| error.to_string())?;
                [
                    Some(read(gradients.source)?),
                    Some(read(gradients.recurrent_weight)?),
                    gradients.input_weight.map(read).transpose()?,
                    gradients.bias.map(read).transpose()?,
                    gradients.init_state.map(read).transpose()?,
                    gradients.secondary_bias.map(read).transpose()?,
                ]
            }
            Cell::SingleGate(descriptor) => {
                let gradients = single_gate_rnn_gradients(
                    inputs.single_gate_rnn(),
                    output_gradient,
                    z_state,
                    state_gradient,
                    &descriptor,
                )
                .map_err(|error| error.to_string())?;
                [
                    Some(read(gradients.source)?),
                    Some(read(gradients.recurrent_weight)?),
                    gradients.input_weight.map(read).transpose()?,
                    gradients.bias.map(read).transpose()?,
                    gradients.init_state.map(read).transpose()?,
                    None,
                ]
            }
        };
        compare_gradients(Way::Gradients, gradients, judge);
        Ok(())
    }

    fn autodiff(&self, case: &Case, judge: &mut Judge) -> Result<(), String> {
        let device = self.target.autodiff();
        let inputs = self.inputs(case, &device).tracked();
        let outputs = self.forward(inputs.clone(), false)?;
        let weighted = |output_gradient: Tensor<3>| (outputs.output.clone() * output_gradient).sum();
        let output_loss = self.tensor(case, "output_gradient", &device).map(weighted);
        let weighted = |state_gradient: Tensor<2>| (outputs.final_state.clone() * state_gradient).sum();
        let state_loss = self.tensor(case, "state_gradient", &device).map(weighted);
        let loss = match (output_loss, state_loss) {
            (Some(output), Some(state)) => Some(output + state),
            (output, state) => output.or(state),
        };
        compare_outputs(Way::Autodiff, outputs.clone(), judge)?;
        let Some(loss) = loss else { return Ok(()) };

        let gradients = loss.backward();
        fn of<const D: usize>(
            tensor: &Option<Tensor<D>>,
            gradients: &Gradients,
        ) -> Result<Option<TensorData>, String> {
            tensor.as_ref().and_then(|tensor| tensor.grad(gradients)).map(read).transpose()
        }
        let gradients = [
            of(&Some(inputs.source), &gradients)?,
            of(&Some(inputs.recurrent_weight), &gradients)?,
            of(&inputs.input_weight, &gradients)?,
            of(&inputs.bias, &gradients)?,
            of(&inputs.init_state, &gradients)?,
            of(&inputs.secondary_bias, &gradients)?,
        ];
        compare_gradients(Way::Autodiff, gradients, judge);
        Ok(())
    }

    fn forward(&self, inputs: Inputs<R>, training: bool) -> Result<RecurrentOutput, String> {
        let outputs = match self.cell {
            Cell::Gru(descriptor) => gru(inputs.gru(), &burn_rnn::GruDescriptor { training, ..descriptor }),
            Cell::SingleGate(descriptor) => single_gate_rnn(
                inputs.single_gate_rnn(),
                &burn_rnn::SingleGateRnnDescriptor { training, ..descriptor },
            ),
        };
        outputs.map_err(|error| error.to_string())
    }

    fn inputs(&self, case: &Case, device: &Device) -> Inputs<R> {
        let required = "checked when the case was read";
        Inputs {
            source: self.tensor(case, "source", device).expect(required),
            recurrent_weight: self.tensor(case, "recurrent_weight", device).expect(required),
            input_weight: self.tensor(case, "input_weight", device),
            bias: self.tensor(case, "bias", device),
            init_state: self.tensor(case, "init_state", device),
            mask: case.inputs().get("mask").map(|mask| match mask.rank() {
                2 => Mask::Constant(self.target.tensor(mask, device)),
                _ => Mask::PerStep(self.target.tensor(mask, device)),
            }),
            secondary_bias: self.tensor(case, "secondary_bias", device),
            lengths: case.inputs().get("lengths").map(|lengths| {
                // Both ways to give lengths get their turn.
                match device.is_autodiff() {
                    true => Lengths::Device(Tensor::<1, Int>::from_data(lengths.clone(), device)),
                    false => Lengths::Host(lengths.iter().collect()),
                }
            }),
        }
    }

    fn tensor<const D: usize>(&self, case: &Case, name: &str, device: &Device) -> Option<Tensor<D>> {
        case.inputs().get(name).map(|data| self.target.tensor(data, device))
    }
}

impl<const R: usize> Inputs<R> {
    fn gru(self) -> GruInputs<R> {
        GruInputs {
            source: self.source,
            recurrent_weight: self.recurrent_weight,
            input_weight: self.input_weight,
            bias: self.bias,
            init_state: self.init_state,
            mask: self.mask,
            secondary_bias: self.secondary_bias,
            lengths: self.lengths,
        }
    }

    fn single_gate_rnn(self) -> SingleGateRnnInputs<R> {
        SingleGateRnnInputs {
            source: self.source,
            recurrent_weight: self.recurrent_weight,
            input_weight: self.input_weight,
            bias: self.bias,
            init_state: self.init_state,
            mask: self.mask,
            lengths: self.lengths,
        }
    }

    fn tracked(self) -> Self {
        Self {
            source: self.source.require_grad(),
            recurrent_weight: self.recurrent_weight.require_grad(),
            input_weight: self.input_weight.map(Tensor::require_grad),
            bias: self.bias.map(Tensor::require_grad),
            init_state: self.init_state.map(Tensor::require_grad),
            secondary_bias: self.secondary_bias.map(Tensor::require_grad),
            ..self
        }
    }
}

fn compare_outputs(way: Way, outputs: RecurrentOutput, judge: &mut Judge) -> Result<(), String> {
    judge.compare_if_expected(way, "output", read(outputs.output)?);
    judge.compare_if_expected(way, "final_state", read(outputs.final_state)?);
    Ok(())
}

pub(super) fn compare_gradients(way: Way, gradients: [Option<TensorData>; 6], judge: &mut Judge) {
    for (input, gradient) in DIFFERENTIABLE.iter().zip(gradients) {
        judge.compare(way, &format!("grad.{input}"), gradient);
    }
}

fn read<const D: usize>(tensor: Tensor<D>) -> Result<TensorData, String> {
    tensor.try_into_data().map_err(|error| format!("a result cannot be read: {error}"))
}
