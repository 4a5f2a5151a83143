//! The backward operation: the recurrence walked back, then one product for each weight.

use burn::{
    backend::{
        Backend, TensorMetadata, get_device_settings,
        tensor::{FloatTensor, IntTensor},
    },
    tensor::{FloatDType, IntDType, Shape},
};

use super::{
    GateOrder, Rows, Sizes, cast, cast_inputs, cat, channels, computes_in, direction_weight, float_dtype,
    forward::{masked, mix, step_of_mask},
    gates::{activate, activation_gradient, clip_gradient, clip_state, complement, gate},
    keep, narrow, select, stack, step_of, zeros,
};
use crate::{
    Cell, GruDescriptor, RecurrentGradients, RecurrentInputs, RecurrentSaved, SingleGateRnnDescriptor,
    WantedGradients,
};

/// Computes the wanted gradients.
pub(crate) fn backward<B: Backend>(
    inputs: RecurrentInputs<B>,
    saved: RecurrentSaved<B>,
    wanted: WantedGradients,
    cell: &Cell,
) -> RecurrentGradients<B> {
    let z_state = saved.z_state.expect("the backward operation always has a z_state");
    let sizes = Sizes::new::<B>(&z_state, &inputs, cell);
    let dtype = float_dtype(z_state.dtype());
    let compute = computes_in::<B>(&z_state);
    let cast_saved = |tensor: Option<FloatTensor<B>>| tensor.map(|tensor| cast::<B>(tensor, compute));
    let saved = RecurrentSaved {
        z_state: cast_saved(Some(z_state)),
        output: cast_saved(saved.output),
        output_gradient: cast_saved(saved.output_gradient),
        state_gradient: cast_saved(saved.state_gradient),
    };
    let inputs = cast_inputs::<B>(inputs, compute);
    let gradients = if sizes.is_empty() {
        empty::<B>(&inputs, saved, wanted, &sizes)
    } else {
        walk_and_multiply::<B>(clear_mask::<B>(inputs), saved, wanted, cell, &sizes)
    };
    cast_gradients::<B>(gradients, dtype)
}

fn cast_gradients<B: Backend>(gradients: RecurrentGradients<B>, dtype: FloatDType) -> RecurrentGradients<B> {
    let cast = |tensor: Option<FloatTensor<B>>| tensor.map(|tensor| cast::<B>(tensor, dtype));
    RecurrentGradients {
        source: cast(gradients.source),
        recurrent_weight: cast(gradients.recurrent_weight),
        input_weight: cast(gradients.input_weight),
        bias: cast(gradients.bias),
        init_state: cast(gradients.init_state),
        secondary_bias: cast(gradients.secondary_bias),
    }
}

/// Gradients when there is no step or no row: zero, but for the initial state, which is the final one.
pub(crate) fn empty<B: Backend>(
    inputs: &RecurrentInputs<B>,
    saved: RecurrentSaved<B>,
    wanted: WantedGradients,
    sizes: &Sizes,
) -> RecurrentGradients<B> {
    let z_state = saved.z_state.expect("the backward operation always has a z_state");
    let Sizes { steps, batch, .. } = *sizes;
    let like = |input: &Option<FloatTensor<B>>| {
        input.as_ref().map(|input| B::float_zeros(input.shape(), &input.device(), float_dtype(input.dtype())))
    };
    RecurrentGradients {
        source: wanted.source.then(|| {
            let features = match &inputs.input_weight {
                Some(weight) => weight.shape()[1],
                None => sizes.all_gates(),
            };
            zeros::<B, 3>([steps, batch, features], &z_state)
        }),
        recurrent_weight: wanted.recurrent_weight.then(|| like(&inputs.recurrent_weight)).flatten(),
        input_weight: wanted.input_weight.then(|| like(&inputs.input_weight)).flatten(),
        bias: wanted.bias.then(|| zeros::<B, 1>([sizes.all_gates()], &z_state)),
        init_state: wanted
            .init_state
            .then(|| saved.state_gradient.unwrap_or_else(|| zeros::<B, 2>([batch, sizes.state()], &z_state))),
        secondary_bias: wanted.secondary_bias.then(|| zeros::<B, 1>([sizes.state()], &z_state)),
    }
}

fn walk_and_multiply<B: Backend>(
    inputs: RecurrentInputs<B>,
    saved: RecurrentSaved<B>,
    wanted: WantedGradients,
    cell: &Cell,
    sizes: &Sizes,
) -> RecurrentGradients<B> {
    let mut gate_gradients = Vec::new();
    let mut init_states = Vec::new();
    let mut recurrent_weights = Vec::new();
    let mut secondary_biases = Vec::new();
    for direction in 0..sizes.directions {
        let walk = Direction::new(&inputs, &saved, sizes, cell, direction).run();
        if wanted.recurrent_weight {
            recurrent_weights.push(walk.recurrent_weight(cell, sizes));
        }
        if wanted.secondary_bias {
            let candidate = walk.candidate.clone().expect("reset_after writes it");
            secondary_biases.push(sum_rows::<B>(candidate, sizes));
        }
        gate_gradients.push(walk.gates);
        init_states.push(walk.init_state);
    }
    let gradients = input_gradients::<B>(&inputs, cat::<B>(gate_gradients, 2), wanted, sizes);
    RecurrentGradients {
        recurrent_weight: wanted.recurrent_weight.then(|| match sizes.directions {
            1 => recurrent_weights.remove(0),
            _ => stack::<B>(recurrent_weights),
        }),
        init_state: wanted.init_state.then(|| cat::<B>(init_states, 1)),
        secondary_bias: wanted.secondary_bias.then(|| cat::<B>(secondary_biases, 0)),
        ..gradients
    }
}

/// The gradients that follow from those of the gates, `[T, N, D·GH]`, alone: of source, input_weight and bias.
pub(crate) fn input_gradients<B: Backend>(
    inputs: &RecurrentInputs<B>,
    gate_gradients: FloatTensor<B>,
    wanted: WantedGradients,
    sizes: &Sizes,
) -> RecurrentGradients<B> {
    let Sizes { steps, batch, .. } = *sizes;
    let rows = B::float_reshape(gate_gradients.clone(), Shape::from([steps * batch, sizes.all_gates()]));
    let source = wanted.source.then(|| match &inputs.input_weight {
        Some(weight) => {
            let features = weight.shape()[1];
            let product = B::float_matmul(rows.clone(), weight.clone());
            B::float_reshape(product, Shape::from([steps, batch, features]))
        }
        None => gate_gradients.clone(),
    });
    let input_weight = wanted.input_weight.then(|| {
        let source = inputs.source.clone().expect("kept for the gradient of input_weight");
        let features = source.shape()[2];
        let source = clear_padding::<B>(source, &inputs.lengths);
        let source = B::float_reshape(source, Shape::from([steps * batch, features]));
        B::float_matmul(B::float_transpose(rows), source)
    });
    let bias = wanted.bias.then(|| sum_rows::<B>(gate_gradients, sizes));
    RecurrentGradients { source, input_weight, bias, ..Default::default() }
}

/// Sums `[T, N, C]` to `[C]`.
pub(crate) fn sum_rows<B: Backend>(tensor: FloatTensor<B>, sizes: &Sizes) -> FloatTensor<B> {
    let channels = tensor.shape()[2];
    let rows = B::float_reshape(tensor, Shape::from([sizes.steps * sizes.batch, channels]));
    B::float_reshape(B::float_sum_dim(rows, 0), Shape::from([channels]))
}

/// Zeroes what a mask holds for steps that a row does not run.
pub(crate) fn clear_mask<B: Backend>(inputs: RecurrentInputs<B>) -> RecurrentInputs<B> {
    let mask = inputs.mask.map(|mask| match mask.rank() {
        3 => clear_padding::<B>(mask, &inputs.lengths),
        _ => mask,
    });
    RecurrentInputs { mask, ..inputs }
}

/// Zeroes what lies past each row's length: a gradient of zero does not cancel a NaN in a product.
pub(crate) fn clear_padding<B: Backend>(
    tensor: FloatTensor<B>,
    lengths: &Option<IntTensor<B>>,
) -> FloatTensor<B> {
    let Some(lengths) = lengths else { return tensor };
    let shape = tensor.shape();
    let (steps, batch) = (shape[0], shape[1]);
    let device = lengths.device();
    let grid = Shape::from([steps, batch]);
    let index = B::int_arange(0..steps as i64, &device, IntDType::I32);
    let index = B::int_expand(B::int_reshape(index, Shape::from([steps, 1])), grid.clone());
    let lengths = B::int_expand(B::int_reshape(lengths.clone(), Shape::from([1, batch])), grid);
    let padding = B::int_greater_equal(index, lengths, get_device_settings::<B>(&device).bool_dtype);
    let padding = B::bool_expand(B::bool_reshape(padding, Shape::from([steps, batch, 1])), shape);
    B::float_mask_fill(tensor, padding, 0f32.into())
}

/// One direction, with its share of the tensors.
struct Direction<'a, B: Backend> {
    cell: &'a Cell,
    sizes: Sizes,
    /// `[GH, H]`
    recurrent_weight: FloatTensor<B>,
    secondary_bias: Option<FloatTensor<B>>,
    init_state: FloatTensor<B>,
    mask: Option<FloatTensor<B>>,
    rows: Rows<'a, B>,
    z_state: FloatTensor<B>,
    output: Option<FloatTensor<B>>,
    output_gradient: Option<FloatTensor<B>>,
    state_gradient: Option<FloatTensor<B>>,
    backwards: bool,
}

/// What walking one direction back returns.
struct Walk<B: Backend> {
    /// `[T, N, GH]`, of the gates' pre-activations.
    gates: FloatTensor<B>,
    /// `[T, N, H]`, of the output gate's recurrent product; only with `reset_after`.
    candidate: Option<FloatTensor<B>>,
    /// `[T, N, H]`, the states that entered the recurrent products.
    masked: FloatTensor<B>,
    /// `[T, N, H]`, what entered the output gate's product; only without `reset_after`.
    reset: Option<FloatTensor<B>>,
    /// `[N, H]`
    init_state: FloatTensor<B>,
}

impl<B: Backend> Walk<B> {
    /// The gradient of the direction's recurrent weight, `[GH, H]`.
    fn recurrent_weight(&self, cell: &Cell, sizes: &Sizes) -> FloatTensor<B> {
        let product = |gradients: FloatTensor<B>, states: &FloatTensor<B>| {
            let rows = sizes.steps * sizes.batch;
            let flat = |tensor: FloatTensor<B>| {
                let channels = tensor.shape()[2];
                B::float_reshape(tensor, Shape::from([rows, channels]))
            };
            B::float_matmul(B::float_transpose(flat(gradients)), flat(states.clone()))
        };
        let Cell::Gru(_) = cell else {
            return product(self.gates.clone(), &self.masked);
        };
        let hidden = sizes.hidden;
        let outer = product(narrow::<B>(self.gates.clone(), 2, 0, 2 * hidden), &self.masked);
        let output = match (&self.candidate, &self.reset) {
            (Some(candidate), _) => product(candidate.clone(), &self.masked),
            (None, Some(reset)) => product(gate::<B>(&self.gates, 2, hidden), reset),
            (None, None) => unreachable!("a GRU keeps one of them"),
        };
        cat::<B>(vec![outer, output], 0)
    }
}

/// What one step passes to the one before it.
struct Step<B: Backend> {
    gates: FloatTensor<B>,
    candidate: Option<FloatTensor<B>>,
    reset: Option<FloatTensor<B>>,
    previous: FloatTensor<B>,
}

impl<'a, B: Backend> Direction<'a, B> {
    fn new(
        inputs: &'a RecurrentInputs<B>,
        saved: &RecurrentSaved<B>,
        sizes: &Sizes,
        cell: &'a Cell,
        direction: usize,
    ) -> Self {
        let hidden = sizes.hidden;
        let weight = inputs.recurrent_weight.as_ref().expect("always present");
        let share = |tensor: &Option<FloatTensor<B>>| {
            tensor.as_ref().map(|tensor| channels::<B>(tensor, direction, hidden))
        };
        let z_state = saved.z_state.as_ref().expect("the backward operation always has a z_state");
        Self {
            cell,
            sizes: *sizes,
            recurrent_weight: direction_weight::<B>(weight, direction, sizes),
            secondary_bias: share(&inputs.secondary_bias),
            init_state: share(&inputs.init_state)
                .unwrap_or_else(|| zeros::<B, 2>([sizes.batch, hidden], weight)),
            mask: share(&inputs.mask),
            rows: Rows { lengths: &inputs.lengths },
            z_state: channels::<B>(z_state, direction, sizes.direction_gates()),
            output: share(&saved.output),
            output_gradient: share(&saved.output_gradient),
            state_gradient: share(&saved.state_gradient),
            backwards: cell.walks_backwards(direction),
        }
    }

    fn run(self) -> Walk<B> {
        let Sizes { steps, batch, hidden, .. } = self.sizes;
        let states: Vec<_> = (0..steps).map(|step| self.state(step)).collect();
        let previous: Vec<_> = (0..steps).map(|step| self.previous(&states, step)).collect();
        let masked = stack::<B>(
            (0..steps).map(|step| masked::<B>(previous[step].clone(), &self.mask, step)).collect(),
        );
        let products = self.candidate_products(&masked);

        let mut gates = vec![None; steps];
        let mut candidates = vec![None; steps];
        let mut resets = vec![None; steps];
        let mut carried = self
            .state_gradient
            .clone()
            .unwrap_or_else(|| zeros::<B, 2>([batch, hidden], &self.recurrent_weight));
        for index in (0..steps).rev() {
            let step = if self.backwards { steps - 1 - index } else { index };
            let running = self.rows.running(step, hidden);
            let mut gradient = carried.clone();
            if let Some(output_gradient) = &self.output_gradient {
                gradient = B::float_add(gradient, step_of::<B>(output_gradient.clone(), step));
            }
            let gradient = keep::<B>(&running, gradient);
            let z_state = step_of::<B>(self.z_state.clone(), step);
            let passed = match self.cell {
                Cell::Gru(descriptor) => {
                    let product = products.as_ref().map(|products| step_of::<B>(products.clone(), step));
                    self.gru_step(descriptor, step, gradient, z_state, previous[step].clone(), product)
                }
                Cell::SingleGate(descriptor) => self.single_gate_step(descriptor, step, gradient, z_state),
            };
            gates[step] = Some(passed.gates);
            candidates[step] = passed.candidate;
            resets[step] = passed.reset;
            carried = select::<B>(&running, passed.previous, carried);
        }
        let stacked = |steps: Vec<Option<FloatTensor<B>>>| {
            let steps: Option<Vec<_>> = steps.into_iter().collect();
            steps.map(stack::<B>)
        };
        Walk {
            gates: stacked(gates).expect("every step ran"),
            candidate: stacked(candidates),
            masked,
            reset: stacked(resets),
            init_state: carried,
        }
    }

    /// The state after a step.
    fn state(&self, step: usize) -> FloatTensor<B> {
        match (self.cell, &self.output) {
            (Cell::SingleGate(descriptor), _) => {
                let z = step_of::<B>(self.z_state.clone(), step);
                clip_state::<B>(descriptor.clip, activate::<B>(descriptor.activation, z))
            }
            (Cell::Gru(_), Some(output)) => step_of::<B>(output.clone(), step),
            (Cell::Gru(_), None) => unreachable!("a GRU always has its output"),
        }
    }

    /// The state before a step.
    fn previous(&self, states: &[FloatTensor<B>], step: usize) -> FloatTensor<B> {
        let first = if self.backwards { states.len() - 1 } else { 0 };
        if step == first {
            return self.init_state.clone();
        }
        if !self.backwards {
            return states[step - 1].clone();
        }
        // Walking backwards, a row starts at its own last step.
        match self.rows.ending(step, self.sizes.hidden) {
            Some(ending) => select::<B>(&Some(ending), self.init_state.clone(), states[step + 1].clone()),
            None => states[step + 1].clone(),
        }
    }

    /// `(h ∘ m) Roᵀ + b2` of all steps, `[T, N, H]`, which `reset_after` needs and `z_state` has no room for.
    fn candidate_products(&self, masked: &FloatTensor<B>) -> Option<FloatTensor<B>> {
        if !self.cell.reset_after() {
            return None;
        }
        let Sizes { steps, batch, hidden, .. } = self.sizes;
        let rows = B::float_reshape(masked.clone(), Shape::from([steps * batch, hidden]));
        let weight = B::float_transpose(self.weight_of(2));
        let mut product = B::float_matmul(rows, weight);
        if let Some(bias) = &self.secondary_bias {
            product = B::float_add(product, B::float_reshape(bias.clone(), Shape::from([1, hidden])));
        }
        Some(B::float_reshape(product, Shape::from([steps, batch, hidden])))
    }

    /// The rows of one gate in the recurrent weight, `[H, H]`.
    fn weight_of(&self, position: usize) -> FloatTensor<B> {
        let hidden = self.sizes.hidden;
        narrow::<B>(self.recurrent_weight.clone(), 0, position * hidden, hidden)
    }

    fn times_mask(&self, gradient: FloatTensor<B>, step: usize) -> FloatTensor<B> {
        match &self.mask {
            Some(mask) => B::float_mul(gradient, step_of_mask::<B>(mask, step)),
            None => gradient,
        }
    }

    fn gru_step(
        &self,
        descriptor: &GruDescriptor,
        step: usize,
        gradient: FloatTensor<B>,
        z_state: FloatTensor<B>,
        previous: FloatTensor<B>,
        product: Option<FloatTensor<B>>,
    ) -> Step<B> {
        let hidden = self.sizes.hidden;
        let order = GateOrder::new(descriptor);
        let of = |position| gate::<B>(&z_state, position, hidden);
        let (z, r, o) = (of(order.update), of(order.reset), of(order.output));

        let gradient = clip_gradient::<B>(
            descriptor.clip,
            || mix::<B>(descriptor, z.clone(), previous.clone(), o.clone()),
            gradient,
        );
        let (keeps, takes, difference) = match descriptor.flip_z {
            false => (z.clone(), complement::<B>(z.clone()), B::float_sub(previous.clone(), o.clone())),
            true => (complement::<B>(z.clone()), z.clone(), B::float_sub(o.clone(), previous.clone())),
        };
        let dz = B::float_mul(gradient.clone(), difference);
        let dz = activation_gradient::<B>(descriptor.update_gate_activation, z, dz);
        let do_ = B::float_mul(gradient.clone(), takes);
        let do_ = activation_gradient::<B>(descriptor.output_gate_activation, o, do_);
        let direct = B::float_mul(gradient, keeps);

        let masked = self.times_mask(previous, step);
        let (dr, candidate, reset, output_path) = match product {
            Some(product) => {
                let candidate = B::float_mul(do_.clone(), r.clone());
                let path = B::float_matmul(candidate.clone(), self.weight_of(2));
                (B::float_mul(do_.clone(), product), Some(candidate), None, path)
            }
            None => {
                let path = B::float_matmul(do_.clone(), self.weight_of(2));
                let dr = B::float_mul(path.clone(), masked.clone());
                let reset = B::float_mul(masked, r.clone());
                (dr, None, Some(reset), B::float_mul(path, r.clone()))
            }
        };
        let dr = activation_gradient::<B>(descriptor.reset_gate_activation, r, dr);
        let outer = cat::<B>(Vec::from(order.arrange(dz, dr)), 1);
        let weight = narrow::<B>(self.recurrent_weight.clone(), 0, 0, 2 * hidden);
        let through = B::float_add(B::float_matmul(outer.clone(), weight), output_path);
        Step {
            gates: cat::<B>(vec![outer, do_], 1),
            candidate,
            reset,
            previous: B::float_add(direct, self.times_mask(through, step)),
        }
    }

    fn single_gate_step(
        &self,
        descriptor: &SingleGateRnnDescriptor,
        step: usize,
        gradient: FloatTensor<B>,
        z: FloatTensor<B>,
    ) -> Step<B> {
        let y = activate::<B>(descriptor.activation, z);
        let gradient = clip_gradient::<B>(descriptor.clip, || y.clone(), gradient);
        let gates = activation_gradient::<B>(descriptor.activation, y, gradient);
        let through = B::float_matmul(gates.clone(), self.recurrent_weight.clone());
        Step { gates, candidate: None, reset: None, previous: self.times_mask(through, step) }
    }
}
