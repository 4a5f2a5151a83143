//! CubeCL: large products through Burn's matmul, the recurrence through the kernels of `cube-rnn`.

use burn::{
    backend::{TensorMetadata, cubecl::dtype_to_storage_type, ops::FloatTensorOps, tensor::FloatTensor},
    tensor::{DType, Shape, Slice},
};
use burn_cubecl::{
    CubeBackend, kernel::into_contiguous, ops::numeric::empty_device_contiguous_dtype, tensor::CubeTensor,
};
use cube_rnn::{
    BackwardInputs, BackwardOutputs, Constant, EnteredInputs, EnteredOutputs, ForwardInputs, ForwardOutputs,
};
use cubecl::{ir::ElemType, server::Handle};

use crate::{
    Activation, Cell, RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved,
    WantedGradients,
    composed::{self, Sizes},
    strategy::forced_options,
};

impl RecurrentOps for CubeBackend {
    fn recurrent_forward(
        inputs: RecurrentInputs<Self>,
        cell: Cell,
        training: bool,
    ) -> RecurrentOutputs<Self> {
        let source = inputs.source.clone().expect("the forward operation always has a source");
        let sizes = Sizes::new::<Self>(&source, &inputs, &cell);
        let Some(dtype) = kernel_type(source.dtype).filter(|_| !sizes.is_empty()) else {
            return composed::forward::<Self>(inputs, &cell, training);
        };
        let Sizes { steps, batch, .. } = sizes;
        let output = empty_like(&source, [steps, batch, sizes.state()]);
        let final_state = empty_like(&source, [batch, sizes.state()]);
        let z_state = training.then(|| empty_like(&source, [steps, batch, sizes.all_gates()]));

        let client = source.client.clone();
        let projected = project(source, inputs.input_weight, &sizes);
        let recurrent_weight = inputs.recurrent_weight.expect("always present");
        let recurrent_weight = Self::float_transpose(weight_by_direction(recurrent_weight, &sizes));
        let mask_steps = inputs.mask.as_ref().is_some_and(|mask| mask.rank() == 3);
        let arguments = ForwardInputs {
            projected: handle(projected),
            recurrent_weight: handle(recurrent_weight),
            bias: inputs.bias.map(handle),
            secondary_bias: inputs.secondary_bias.map(handle),
            init_state: inputs.init_state.map(handle),
            mask: inputs.mask.map(handle),
            mask_steps,
            lengths: inputs.lengths.map(handle),
        };
        let outputs = ForwardOutputs {
            output: output.handle.clone(),
            final_state: final_state.handle.clone(),
            z_state: z_state.as_ref().map(|z_state| z_state.handle.clone()),
        };
        let strategy = forced_options();
        cube_rnn::forward(
            &client,
            kernel_cell(&cell),
            kernel_sizes(&sizes),
            arguments,
            outputs,
            dtype,
            strategy,
        );
        RecurrentOutputs { output: Some(output), final_state: Some(final_state), z_state }
    }

    fn recurrent_backward(
        inputs: RecurrentInputs<Self>,
        saved: RecurrentSaved<Self>,
        wanted: WantedGradients,
        cell: Cell,
    ) -> RecurrentGradients<Self> {
        let z_state = saved.z_state.clone().expect("the backward operation always has a z_state");
        let sizes = Sizes::new::<Self>(&z_state, &inputs, &cell);
        let Some(dtype) = kernel_type(z_state.dtype).filter(|_| !sizes.is_empty()) else {
            return composed::backward::<Self>(inputs, saved, wanted, &cell);
        };
        let inputs = composed::clear_mask::<Self>(inputs);
        let Sizes { steps, batch, .. } = sizes;
        let client = z_state.client.clone();
        let channels = [steps, batch, sizes.state()];
        let (kernel_cell, kernel_sizes) = (kernel_cell(&cell), kernel_sizes(&sizes));

        let mask_steps = inputs.mask.as_ref().is_some_and(|mask| mask.rank() == 3);
        let output = saved.output.filter(|_| cell.gates() == 3).map(handle);
        let init_state = inputs.init_state.clone().map(handle);
        let mask = inputs.mask.clone().map(handle);
        let lengths = inputs.lengths.clone().map(handle);

        let needs_entered = wanted.recurrent_weight || cell.reset_after();
        let entered = needs_entered.then(|| {
            let entered = Entered {
                masked: empty_like(&z_state, channels),
                reset: (cell.gates() == 3 && !cell.reset_after()).then(|| empty_like(&z_state, channels)),
            };
            let arguments = EnteredInputs {
                z_state: handle(z_state.clone()),
                output: output.clone(),
                init_state: init_state.clone(),
                mask: mask.clone(),
                mask_steps,
                lengths: lengths.clone(),
            };
            let outputs = EnteredOutputs {
                masked: entered.masked.handle.clone(),
                reset: entered.reset.as_ref().map(|reset| reset.handle.clone()),
            };
            cube_rnn::entered(&client, kernel_cell, kernel_sizes, &arguments, &outputs, dtype);
            entered
        });

        let weight = weight_by_direction(inputs.recurrent_weight.clone().expect("always present"), &sizes);
        let candidate_product = entered
            .as_ref()
            .filter(|_| cell.reset_after())
            .map(|entered| candidate_product(entered.masked.clone(), weight.clone(), &sizes));

        let gates = empty_like(&z_state, [steps, batch, sizes.all_gates()]);
        let candidate = cell.reset_after().then(|| empty_like(&z_state, channels));
        let init_gradient = wanted.init_state.then(|| empty_like(&z_state, [batch, sizes.state()]));
        let arguments = BackwardInputs {
            z_state: handle(z_state),
            recurrent_weight: handle(weight),
            output,
            candidate: candidate_product.map(handle),
            secondary_bias: inputs.secondary_bias.clone().map(handle),
            init_state,
            mask,
            mask_steps,
            lengths,
            output_gradient: saved.output_gradient.map(handle),
            state_gradient: saved.state_gradient.map(handle),
        };
        let outputs = BackwardOutputs {
            gates: gates.handle.clone(),
            candidate: candidate.as_ref().map(|candidate| candidate.handle.clone()),
            init_state: init_gradient.as_ref().map(|gradient| gradient.handle.clone()),
        };
        cube_rnn::backward(&client, kernel_cell, kernel_sizes, arguments, outputs, dtype, forced_options());

        let recurrent_weight = entered
            .filter(|_| wanted.recurrent_weight)
            .map(|entered| weight_gradient(&gates, candidate.as_ref(), entered, &inputs, &sizes));
        let secondary_bias = candidate
            .filter(|_| wanted.secondary_bias)
            .map(|candidate| composed::sum_rows::<Self>(candidate, &sizes));
        RecurrentGradients {
            recurrent_weight,
            init_state: init_gradient,
            secondary_bias,
            ..composed::input_gradients::<Self>(&inputs, gates, wanted, &sizes)
        }
    }
}

/// What entered the recurrent products, `[T, N, D·H]`.
struct Entered {
    masked: CubeTensor,
    reset: Option<CubeTensor>,
}

fn empty_like<const D: usize>(tensor: &CubeTensor, shape: [usize; D]) -> CubeTensor {
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    empty_device_contiguous_dtype(client, device, Shape::from(shape), tensor.dtype)
}

/// `x Wᵀ` for all steps, `[T·N, D·GH]`; the kernels add the bias.
fn project(
    source: FloatTensor<CubeBackend>,
    input_weight: Option<FloatTensor<CubeBackend>>,
    sizes: &Sizes,
) -> FloatTensor<CubeBackend> {
    let Some(weight) = input_weight else { return source };
    let rows = Shape::from([sizes.steps * sizes.batch, source.shape()[2]]);
    CubeBackend::float_matmul(CubeBackend::float_reshape(source, rows), CubeBackend::float_transpose(weight))
}

/// `[D, GH, H]`
fn weight_by_direction(weight: FloatTensor<CubeBackend>, sizes: &Sizes) -> FloatTensor<CubeBackend> {
    let shape = [sizes.directions, sizes.direction_gates(), sizes.hidden];
    CubeBackend::float_reshape(weight, Shape::from(shape))
}

/// `[T, N, D·C]` as `[D, T·N, C]`
fn rows_by_direction(tensor: FloatTensor<CubeBackend>, sizes: &Sizes) -> FloatTensor<CubeBackend> {
    let rows = sizes.steps * sizes.batch;
    let channels = tensor.shape()[2] / sizes.directions;
    match sizes.directions {
        1 => CubeBackend::float_reshape(tensor, Shape::from([1, rows, channels])),
        directions => {
            let tensor = CubeBackend::float_reshape(tensor, Shape::from([rows, directions, channels]));
            CubeBackend::float_swap_dims(tensor, 0, 1)
        }
    }
}

/// `(h[t-1]∘m) Roᵀ` of all steps, `[T, N, D·H]`.
fn candidate_product(
    masked: FloatTensor<CubeBackend>,
    weight: FloatTensor<CubeBackend>,
    sizes: &Sizes,
) -> FloatTensor<CubeBackend> {
    let output_gate = narrow(weight, 1, 2 * sizes.hidden..3 * sizes.hidden);
    let product = CubeBackend::float_matmul(
        rows_by_direction(masked, sizes),
        CubeBackend::float_transpose(output_gate),
    );
    let product = match sizes.directions {
        1 => product,
        _ => CubeBackend::float_swap_dims(product, 0, 1),
    };
    CubeBackend::float_reshape(product, Shape::from([sizes.steps, sizes.batch, sizes.state()]))
}

/// The recurrent weight's gradient, in its shape.
fn weight_gradient(
    gates: &FloatTensor<CubeBackend>,
    candidate: Option<&FloatTensor<CubeBackend>>,
    entered: Entered,
    inputs: &RecurrentInputs<CubeBackend>,
    sizes: &Sizes,
) -> FloatTensor<CubeBackend> {
    let hidden = sizes.hidden;
    let gates = rows_by_direction(gates.clone(), sizes);
    let product = |gradients: FloatTensor<CubeBackend>, states: FloatTensor<CubeBackend>| {
        CubeBackend::float_matmul(CubeBackend::float_transpose(gradients), rows_by_direction(states, sizes))
    };
    let gradient = if sizes.gates == 1 {
        product(gates, entered.masked)
    } else {
        let outer = product(narrow(gates.clone(), 2, 0..2 * hidden), entered.masked.clone());
        let output = match (candidate, entered.reset) {
            (Some(candidate), _) => product(rows_by_direction(candidate.clone(), sizes), entered.masked),
            (None, Some(reset)) => product(narrow(gates, 2, 2 * hidden..3 * hidden), reset),
            (None, None) => unreachable!("a GRU has one of them"),
        };
        CubeBackend::float_cat(vec![outer, output], 1)
    };
    let weight = inputs.recurrent_weight.as_ref().expect("always present");
    CubeBackend::float_reshape(gradient, weight.shape())
}

fn narrow(
    tensor: FloatTensor<CubeBackend>,
    dim: usize,
    range: core::ops::Range<usize>,
) -> FloatTensor<CubeBackend> {
    let mut ranges = tensor.shape().into_ranges();
    ranges[dim] = range;
    let slices: Vec<_> = ranges.into_iter().map(Slice::from).collect();
    CubeBackend::float_slice(tensor, &slices)
}

/// The element types that the kernels compute with; others take the composed operations.
fn kernel_type(dtype: DType) -> Option<ElemType> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Some(dtype_to_storage_type(dtype)),
        _ => None,
    }
}

fn handle(tensor: CubeTensor) -> Handle {
    into_contiguous(tensor).handle
}

fn kernel_sizes(sizes: &Sizes) -> cube_rnn::Sizes {
    cube_rnn::Sizes { steps: sizes.steps, batch: sizes.batch, hidden: sizes.hidden }
}

fn kernel_cell(cell: &Cell) -> cube_rnn::Cell {
    let kind = match cell {
        Cell::Gru(descriptor) => cube_rnn::Kind::Gru(cube_rnn::Gru {
            reset_gate_first: descriptor.reset_gate_first,
            reset_after: descriptor.reset_after,
            flip_z: descriptor.flip_z,
            update_gate_activation: kernel_activation(descriptor.update_gate_activation),
            reset_gate_activation: kernel_activation(descriptor.reset_gate_activation),
            output_gate_activation: kernel_activation(descriptor.output_gate_activation),
        }),
        Cell::SingleGate(descriptor) => cube_rnn::Kind::SingleGate(kernel_activation(descriptor.activation)),
    };
    cube_rnn::Cell {
        kind,
        // The first direction tells: bidirectional cells walk forward first.
        reverse: cell.walks_backwards(0),
        bidirectional: cell.bidirectional(),
        clip: cell.clip().map(Constant::from),
    }
}

fn kernel_activation(activation: Activation) -> cube_rnn::Activation {
    match activation {
        Activation::None => cube_rnn::Activation::None,
        Activation::Relu => cube_rnn::Activation::Relu,
        Activation::Tanh => cube_rnn::Activation::Tanh,
        Activation::Sigmoid => cube_rnn::Activation::Sigmoid,
        Activation::HardSigmoid { alpha, beta } => {
            cube_rnn::Activation::HardSigmoid { alpha: alpha.into(), beta: beta.into() }
        }
    }
}
