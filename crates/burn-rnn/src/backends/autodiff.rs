//! One differentiable node for a whole sequence, keeping only what its tracked inputs' gradients need.

use std::sync::{Arc, Mutex};

use burn::{
    backend::{
        Backend, TensorMetadata,
        tensor::{FloatTensor, IntTensor},
    },
    tensor::Shape,
};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};

use crate::{
    Cell, RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved,
    WantedGradients,
};

/// Where the final state's gradient waits for the sequence's backward step: a node has one output, and
/// joining both outputs into one tensor would copy the sequence in either direction.
type StateGradient<B> = Arc<Mutex<Option<FloatTensor<B>>>>;

/// The sequence, from the inputs to `output`.
#[derive(Debug)]
struct Sequence;

/// The final state, a second output of the same sequence.
#[derive(Debug)]
struct FinalState;

/// What the sequence's backward step needs; inputs through the checkpointer, which may recompute them.
#[derive(Clone, Debug)]
struct SequenceState<B: Backend> {
    source: Option<NodeId>,
    recurrent_weight: NodeId,
    input_weight: Option<NodeId>,
    init_state: Option<NodeId>,
    secondary_bias: Option<NodeId>,
    mask: Option<FloatTensor<B>>,
    lengths: Option<IntTensor<B>>,
    z_state: Option<FloatTensor<B>>,
    output: Option<FloatTensor<B>>,
    output_shape: Shape,
    state_gradient: StateGradient<B>,
    cell: Cell,
}

impl<B: RecurrentOps> Backward<B, 6> for Sequence {
    type State = SequenceState<B>;

    fn backward(self, ops: Ops<Self::State, 6>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let state = ops.state;
        let [source, recurrent_weight, input_weight, bias, init_state, secondary_bias] = ops.parents;
        let wanted = WantedGradients {
            source: source.is_some(),
            recurrent_weight: recurrent_weight.is_some(),
            input_weight: input_weight.is_some(),
            bias: bias.is_some(),
            init_state: init_state.is_some(),
            secondary_bias: secondary_bias.is_some(),
        };
        let mut retrieve =
            |id: Option<NodeId>| id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        let inputs = RecurrentInputs {
            source: retrieve(state.source),
            recurrent_weight: retrieve(Some(state.recurrent_weight)),
            input_weight: retrieve(state.input_weight),
            bias: None,
            init_state: retrieve(state.init_state),
            mask: state.mask,
            secondary_bias: retrieve(state.secondary_bias),
            lengths: state.lengths,
        };
        // The final state's step leaves a placeholder of another shape where the output has no gradient.
        let output_gradient =
            Some(grads.consume::<B>(&ops.node)).filter(|gradient| gradient.shape() == state.output_shape);
        let saved = RecurrentSaved {
            z_state: state.z_state,
            output: state.output,
            output_gradient,
            state_gradient: state.state_gradient.lock().expect("no step panics holding it").take(),
        };
        let gradients = B::recurrent_backward(inputs, saved, wanted, state.cell);
        for (node, gradient) in [
            (source, gradients.source),
            (recurrent_weight, gradients.recurrent_weight),
            (input_weight, gradients.input_weight),
            (bias, gradients.bias),
            (init_state, gradients.init_state),
            (secondary_bias, gradients.secondary_bias),
        ] {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

impl<B: RecurrentOps> Backward<B, 1> for FinalState {
    type State = StateGradient<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let [sequence] = ops.parents;
        if let Some(sequence) = sequence {
            // Broadcasts if the output has a gradient as well; alone, it lets the sequence's step run.
            let placeholder =
                B::float_zeros(Shape::from([1, 1, 1]), &gradient.device(), gradient.dtype().into());
            *ops.state.lock().expect("no step panics holding it") = Some(gradient);
            grads.register::<B>(sequence.id, placeholder);
        }
    }
}

impl<B: RecurrentOps, C: CheckpointStrategy> RecurrentOps for Autodiff<B, C> {
    fn recurrent_forward(
        inputs: RecurrentInputs<Self>,
        cell: Cell,
        training: bool,
    ) -> RecurrentOutputs<Self> {
        let parents: [&Option<FloatTensor<Self>>; 6] = [
            &inputs.source,
            &inputs.recurrent_weight,
            &inputs.input_weight,
            &inputs.bias,
            &inputs.init_state,
            &inputs.secondary_bias,
        ];
        let tracked = parents.map(|parent| parent.as_ref().is_some_and(|parent| parent.is_tracked()));
        if !tracked.contains(&true) {
            let outputs = B::recurrent_forward(into_inner(inputs), cell, training);
            return RecurrentOutputs {
                output: outputs.output.map(FloatTensor::<Self>::new),
                final_state: outputs.final_state.map(FloatTensor::<Self>::new),
                z_state: outputs.z_state.map(FloatTensor::<Self>::new),
            };
        }
        let [source_tracked, _, input_weight_tracked, ..] = tracked;

        let guards: [NodeGuard; 6] = parents.map(|parent| match parent {
            Some(parent) => parent.node(),
            None => {
                let recurrent_weight = inputs.recurrent_weight.as_ref().expect("always present");
                FloatTensor::<Self>::new(recurrent_weight.primitive().clone()).node()
            }
        });
        let OpsKind::Tracked(mut prep) = Sequence.prepare::<C>(guards).compute_bound().stateful() else {
            unreachable!("an input is tracked");
        };
        let mut keep = |tensor: &Option<FloatTensor<Self>>, needed: bool| {
            tensor.as_ref().filter(|_| needed).map(|tensor| prep.checkpoint(tensor))
        };
        let source = keep(&inputs.source, input_weight_tracked);
        let recurrent_weight = keep(&inputs.recurrent_weight, true).expect("always present");
        let input_weight = keep(&inputs.input_weight, source_tracked);
        let init_state = keep(&inputs.init_state, true);
        let secondary_bias = keep(&inputs.secondary_bias, true);

        let inputs = into_inner(inputs);
        let (mask, lengths) = (inputs.mask.clone(), inputs.lengths.clone());
        let outputs = B::recurrent_forward(inputs, cell, true);
        let output = outputs.output.expect("always returned");
        let state_gradient = StateGradient::<B>::default();
        let state = SequenceState {
            source,
            recurrent_weight,
            input_weight,
            init_state,
            secondary_bias,
            mask,
            lengths,
            z_state: outputs.z_state.clone(),
            output: matches!(cell, Cell::Gru(_)).then(|| output.clone()),
            output_shape: output.shape(),
            state_gradient: state_gradient.clone(),
            cell,
        };
        let output = prep.finish(state, output);
        let final_state = outputs.final_state.expect("always returned");
        let final_state = match FinalState.prepare::<C>([output.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(state_gradient, final_state),
            OpsKind::UnTracked(prep) => prep.finish(final_state),
        };
        RecurrentOutputs {
            output: Some(output),
            final_state: Some(final_state),
            z_state: outputs.z_state.filter(|_| training).map(FloatTensor::<Self>::new),
        }
    }

    fn recurrent_backward(
        inputs: RecurrentInputs<Self>,
        saved: RecurrentSaved<Self>,
        wanted: WantedGradients,
        cell: Cell,
    ) -> RecurrentGradients<Self> {
        let inner = |tensor: Option<FloatTensor<Self>>| tensor.map(|tensor| tensor.into_primitive());
        let saved = RecurrentSaved {
            z_state: inner(saved.z_state),
            output: inner(saved.output),
            output_gradient: inner(saved.output_gradient),
            state_gradient: inner(saved.state_gradient),
        };
        let gradients = B::recurrent_backward(into_inner(inputs), saved, wanted, cell);
        let constant = |tensor: Option<FloatTensor<B>>| tensor.map(FloatTensor::<Self>::new);
        RecurrentGradients {
            source: constant(gradients.source),
            recurrent_weight: constant(gradients.recurrent_weight),
            input_weight: constant(gradients.input_weight),
            bias: constant(gradients.bias),
            init_state: constant(gradients.init_state),
            secondary_bias: constant(gradients.secondary_bias),
        }
    }
}

fn into_inner<B: Backend, C: CheckpointStrategy>(
    inputs: RecurrentInputs<Autodiff<B, C>>,
) -> RecurrentInputs<B> {
    let inner = |tensor: Option<FloatTensor<Autodiff<B, C>>>| tensor.map(|tensor| tensor.into_primitive());
    RecurrentInputs {
        source: inner(inputs.source),
        recurrent_weight: inner(inputs.recurrent_weight),
        input_weight: inner(inputs.input_weight),
        bias: inner(inputs.bias),
        init_state: inner(inputs.init_state),
        mask: inner(inputs.mask),
        secondary_bias: inner(inputs.secondary_bias),
        lengths: inputs.lengths,
    }
}
