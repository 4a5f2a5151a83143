//! Running a case of another framework's layer on a device.

use burn_rnn::forward_layers;

use super::{Framework, Results, Tensors};
use crate::{
    report::{Failure, Judge, Way},
    target::Target,
};

/// Runs a case in all its ways and returns what is wrong.
pub(crate) fn run(framework: &impl Framework, target: &Target, judge: &mut Judge) -> Result<(), Failure> {
    let failed = |way| move |error: String| Failure::Error { way, error };
    inference(framework, target, judge).map_err(failed(Way::Inference))?;
    module(framework, target, judge).map_err(failed(Way::Module))?;
    autodiff(framework, target, judge).map_err(failed(Way::Autodiff))
}

fn inference(framework: &impl Framework, target: &Target, judge: &mut Judge) -> Result<(), String> {
    let tensors = Tensors::new(judge.case, target, &target.device);
    let results = forward(framework, &tensors)?;
    compare(Way::Inference, results, judge)
}

fn module(framework: &impl Framework, target: &Target, judge: &mut Judge) -> Result<(), String> {
    let text = |error: burn_rnn::Error| error.to_string();
    let tensors = Tensors::new(judge.case, target, &target.device);
    let module = framework.module(&tensors).map_err(text)?;
    let (output, final_state) =
        module.forward(framework.inputs(&tensors), tensors.lengths()).map_err(text)?;
    compare(Way::Module, framework.results(output, final_state), judge)
}

fn autodiff(framework: &impl Framework, target: &Target, judge: &mut Judge) -> Result<(), String> {
    if !judge.case.expected().keys().any(|name| name.starts_with("grad.")) {
        return Ok(());
    }
    let tensors = Tensors::new(judge.case, target, &target.autodiff());
    let results = forward(framework, &tensors)?;
    let loss = tensors.loss(results);
    let gradients = loss.ok_or("the case expects gradients, but comes with none of its results")?.backward();
    for (name, gradient) in tensors.gradients(&gradients) {
        let gradient = gradient.map(|gradient| gradient.read()).transpose()?;
        judge.compare(Way::Autodiff, &format!("grad.{name}"), gradient);
    }
    Ok(())
}

fn forward(framework: &impl Framework, tensors: &Tensors) -> Result<Results, String> {
    let text = |error: burn_rnn::Error| error.to_string();
    let layers = framework.layers(tensors).map_err(text)?;
    let inputs = framework.inputs(tensors);
    let (output, final_state) =
        forward_layers(&layers, inputs.source, inputs.state, tensors.lengths(), |between| between)
            .map_err(text)?;
    Ok(framework.results(output, final_state))
}

pub(super) fn compare(way: Way, results: Results, judge: &mut Judge) -> Result<(), String> {
    for (name, result) in [results.output, results.final_state] {
        judge.compare_if_expected(way, name, result.read()?);
    }
    Ok(())
}
