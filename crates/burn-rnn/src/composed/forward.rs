//! The forward operation.

use burn::{
    backend::{Backend, TensorMetadata, tensor::FloatTensor},
    tensor::Shape,
};

use super::{
    GateOrder, Rows, Sizes, cast, cast_inputs, cat, channels, computes_in, direction_weight, float_dtype,
    gates::{activate, clip_state, complement, gate},
    keep, select, stack, step_of, zeros,
};
use crate::{Cell, GruDescriptor, RecurrentInputs, RecurrentOutputs, SingleGateRnnDescriptor};

/// Runs the cell over all steps.
pub(crate) fn forward<B: Backend>(
    inputs: RecurrentInputs<B>,
    cell: &Cell,
    training: bool,
) -> RecurrentOutputs<B> {
    let source = inputs.source.clone().expect("the forward operation always has a source");
    let sizes = Sizes::new::<B>(&source, &inputs, cell);
    if sizes.is_empty() {
        return empty::<B>(inputs, &sizes, training);
    }
    let dtype = float_dtype(source.dtype());
    let inputs = cast_inputs::<B>(inputs, computes_in::<B>(&source));
    let projected = project::<B>(&inputs, &sizes);

    let directions: Vec<_> = (0..sizes.directions)
        .map(|d| Direction::new(&inputs, &projected, &sizes, cell, d).run(training))
        .collect();
    let join = |pick: fn(&Walk<B>) -> &FloatTensor<B>| {
        let parts: Vec<_> = directions.iter().map(|walk| pick(walk).clone()).collect();
        let dim = parts[0].shape().num_dims() - 1;
        Some(cast::<B>(cat::<B>(parts, dim), dtype))
    };
    RecurrentOutputs {
        output: join(|walk| &walk.output),
        final_state: join(|walk| &walk.final_state),
        z_state: training.then(|| join(|walk| walk.z_state.as_ref().expect("training writes it"))).flatten(),
    }
}

/// What remains to return when there is no step or no row.
pub(crate) fn empty<B: Backend>(
    inputs: RecurrentInputs<B>,
    sizes: &Sizes,
    training: bool,
) -> RecurrentOutputs<B> {
    let source = inputs.source.expect("the forward operation always has a source");
    let Sizes { steps, batch, .. } = *sizes;
    let final_state = inputs.init_state.unwrap_or_else(|| zeros::<B, 2>([batch, sizes.state()], &source));
    RecurrentOutputs {
        output: Some(zeros::<B, 3>([steps, batch, sizes.state()], &source)),
        final_state: Some(final_state),
        z_state: training.then(|| zeros::<B, 3>([steps, batch, sizes.all_gates()], &source)),
    }
}

/// `x Wᵀ + b` for all steps, `[T, N, D·GH]`.
fn project<B: Backend>(inputs: &RecurrentInputs<B>, sizes: &Sizes) -> FloatTensor<B> {
    let Sizes { steps, batch, .. } = *sizes;
    let source = inputs.source.clone().expect("the forward operation always has a source");
    let product = match &inputs.input_weight {
        Some(weight) => {
            let features = source.shape()[2];
            let rows = B::float_reshape(source, Shape::from([steps * batch, features]));
            let product = B::float_matmul(rows, B::float_transpose(weight.clone()));
            B::float_reshape(product, Shape::from([steps, batch, sizes.all_gates()]))
        }
        None => source,
    };
    match &inputs.bias {
        Some(bias) => {
            B::float_add(product, B::float_reshape(bias.clone(), Shape::from([1, 1, sizes.all_gates()])))
        }
        None => product,
    }
}

/// One direction of a cell, with its share of the tensors.
struct Direction<'a, B: Backend> {
    cell: &'a Cell,
    sizes: Sizes,
    projected: FloatTensor<B>,
    /// `[H, GH]`
    recurrent_weight: FloatTensor<B>,
    /// `[1, H]`
    secondary_bias: Option<FloatTensor<B>>,
    init_state: FloatTensor<B>,
    mask: Option<FloatTensor<B>>,
    rows: Rows<'a, B>,
    backwards: bool,
}

/// What one direction returns.
struct Walk<B: Backend> {
    output: FloatTensor<B>,
    final_state: FloatTensor<B>,
    z_state: Option<FloatTensor<B>>,
}

impl<'a, B: Backend> Direction<'a, B> {
    fn new(
        inputs: &'a RecurrentInputs<B>,
        projected: &FloatTensor<B>,
        sizes: &Sizes,
        cell: &'a Cell,
        direction: usize,
    ) -> Self {
        let hidden = sizes.hidden;
        let weight = inputs.recurrent_weight.as_ref().expect("always present");
        Self {
            cell,
            sizes: *sizes,
            projected: channels::<B>(projected, direction, sizes.direction_gates()),
            recurrent_weight: B::float_transpose(direction_weight::<B>(weight, direction, sizes)),
            secondary_bias: inputs.secondary_bias.as_ref().map(|bias| {
                B::float_reshape(channels::<B>(bias, direction, hidden), Shape::from([1, hidden]))
            }),
            init_state: match &inputs.init_state {
                Some(state) => channels::<B>(state, direction, hidden),
                None => zeros::<B, 2>([sizes.batch, hidden], weight),
            },
            mask: inputs.mask.as_ref().map(|mask| channels::<B>(mask, direction, hidden)),
            rows: Rows { lengths: &inputs.lengths },
            backwards: cell.walks_backwards(direction),
        }
    }

    fn run(self, training: bool) -> Walk<B> {
        let Sizes { steps, hidden, .. } = self.sizes;
        let mut outputs = vec![None; steps];
        let mut z_states = vec![None; steps];
        let mut state = self.init_state.clone();

        for index in 0..steps {
            let step = if self.backwards { steps - 1 - index } else { index };
            let projected = step_of::<B>(self.projected.clone(), step);
            let masked = masked::<B>(state.clone(), &self.mask, step);
            let (next, z_state) = match self.cell {
                Cell::Gru(descriptor) => self.gru_step(descriptor, projected, state.clone(), masked),
                Cell::SingleGate(descriptor) => self.single_gate_step(descriptor, projected, masked),
            };
            let next = clip_state::<B>(self.cell.clip(), next);

            let running = self.rows.running(step, hidden);
            outputs[step] = Some(keep::<B>(&running, next.clone()));
            state = select::<B>(&running, next, state);
            if training {
                let running = self.rows.running(step, self.sizes.direction_gates());
                z_states[step] = Some(keep::<B>(&running, z_state));
            }
        }
        let stacked = |steps: Vec<Option<FloatTensor<B>>>| {
            stack::<B>(steps.into_iter().map(|step| step.expect("every step ran")).collect())
        };
        Walk { output: stacked(outputs), final_state: state, z_state: training.then(|| stacked(z_states)) }
    }

    /// The next state, and the gates as the training state keeps them.
    fn gru_step(
        &self,
        descriptor: &GruDescriptor,
        projected: FloatTensor<B>,
        state: FloatTensor<B>,
        masked: FloatTensor<B>,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let hidden = self.sizes.hidden;
        let order = GateOrder::new(descriptor);
        let of = |gates: &FloatTensor<B>, position| gate::<B>(gates, position, hidden);
        let outer = if descriptor.reset_after { 3 } else { 2 };
        let weight = super::narrow::<B>(self.recurrent_weight.clone(), 1, 0, outer * hidden);
        let recurrent = B::float_matmul(masked.clone(), weight);
        let sum = |position| B::float_add(of(&projected, position), of(&recurrent, position));

        let z = activate::<B>(descriptor.update_gate_activation, sum(order.update));
        let r = activate::<B>(descriptor.reset_gate_activation, sum(order.reset));
        let candidate = if descriptor.reset_after {
            let mut product = of(&recurrent, order.output);
            if let Some(bias) = &self.secondary_bias {
                product = B::float_add(product, bias.clone());
            }
            B::float_mul(product, r.clone())
        } else {
            B::float_matmul(B::float_mul(masked, r.clone()), of(&self.recurrent_weight, order.output))
        };
        let o = activate::<B>(
            descriptor.output_gate_activation,
            B::float_add(of(&projected, order.output), candidate),
        );

        let next = mix::<B>(descriptor, z.clone(), state, o.clone());
        let [first, second] = order.arrange(z, r);
        (next, cat::<B>(vec![first, second, o], 1))
    }

    /// The next state and the pre-activation.
    fn single_gate_step(
        &self,
        descriptor: &SingleGateRnnDescriptor,
        projected: FloatTensor<B>,
        masked: FloatTensor<B>,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let z = B::float_add(projected, B::float_matmul(masked, self.recurrent_weight.clone()));
        (activate::<B>(descriptor.activation, z.clone()), z)
    }
}

/// The state that enters a step's recurrent product, `h ∘ m`.
pub(super) fn masked<B: Backend>(
    state: FloatTensor<B>,
    mask: &Option<FloatTensor<B>>,
    step: usize,
) -> FloatTensor<B> {
    match mask {
        Some(mask) => B::float_mul(state, step_of_mask::<B>(mask, step)),
        None => state,
    }
}

/// `[N, H]` of a mask with or without a time axis.
pub(super) fn step_of_mask<B: Backend>(mask: &FloatTensor<B>, step: usize) -> FloatTensor<B> {
    match mask.shape().num_dims() {
        3 => step_of::<B>(mask.clone(), step),
        _ => mask.clone(),
    }
}

/// The update gate's mix of the previous state and the candidate, before clamping.
pub(super) fn mix<B: Backend>(
    descriptor: &GruDescriptor,
    z: FloatTensor<B>,
    state: FloatTensor<B>,
    o: FloatTensor<B>,
) -> FloatTensor<B> {
    let (keeps, takes) = match descriptor.flip_z {
        false => (z.clone(), complement::<B>(z)),
        true => (complement::<B>(z.clone()), z),
    };
    B::float_add(B::float_mul(keeps, state), B::float_mul(takes, o))
}
