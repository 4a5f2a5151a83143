//! CubeCL: the input product through Burn's matmul, the recurrence through the kernels of `cube-rnn`.

use burn::backend::ops::FloatTensorOps;
use burn::{
    backend::{Backend, TensorMetadata, tensor::FloatTensor},
    tensor::{DType, Shape},
};
use burn_cubecl::{
    CubeBackend, kernel::into_contiguous, ops::numeric::empty_device_contiguous_dtype, tensor::CubeTensor,
};
use cube_rnn::{Constant, ForwardInputs, ForwardOutputs, Strategy};
use cubecl::{ir::ElemType, prelude::*, server::Handle};

use crate::{
    Activation, Cell, RecurrentInputs, RecurrentOps, RecurrentOutputs,
    composed::{self, Sizes},
};

impl RecurrentOps for CubeBackend {
    fn recurrent_forward(
        inputs: RecurrentInputs<Self>,
        cell: Cell,
        training: bool,
    ) -> RecurrentOutputs<Self> {
        let source = inputs.source.as_ref().expect("the forward operation always has a source");
        let sizes = Sizes::new::<Self>(source, &inputs, &cell);
        let Some(dtype) = kernel_type(source.dtype).filter(|_| !sizes.is_empty()) else {
            return composed::forward::<Self>(inputs, &cell, training);
        };
        let empty = |shape: Shape| {
            empty_device_contiguous_dtype(source.client.clone(), source.device.clone(), shape, source.dtype)
        };
        let output = empty(Shape::from([sizes.steps, sizes.batch, sizes.state()]));
        let final_state = empty(Shape::from([sizes.batch, sizes.state()]));
        let z_state = training.then(|| empty(Shape::from([sizes.steps, sizes.batch, sizes.all_gates()])));

        let recurrent_weight = inputs.recurrent_weight.clone().expect("always present");
        let client = source.client.clone();
        let arguments = ForwardInputs {
            projected: handle(project(&inputs, &sizes)),
            recurrent_weight: handle(transposed_weight(recurrent_weight, &sizes)),
            bias: inputs.bias.map(handle),
            secondary_bias: inputs.secondary_bias.map(handle),
            init_state: inputs.init_state.map(handle),
            mask_steps: inputs.mask.as_ref().is_some_and(|mask| mask.rank() == 3),
            mask: inputs.mask.map(handle),
            lengths: inputs.lengths.map(handle),
        };
        let outputs = ForwardOutputs {
            output: output.handle.clone(),
            final_state: final_state.handle.clone(),
            z_state: z_state.as_ref().map(|z_state| z_state.handle.clone()),
        };
        let kernel_sizes = cube_rnn::Sizes { steps: sizes.steps, batch: sizes.batch, hidden: sizes.hidden };
        cube_rnn::forward(
            &client,
            kernel_cell(&cell),
            kernel_sizes,
            arguments,
            outputs,
            dtype,
            Strategy::Auto,
        );
        RecurrentOutputs { output: Some(output), final_state: Some(final_state), z_state }
    }
}

/// The element types that the kernels compute with; others take the composed operations.
fn kernel_type(dtype: DType) -> Option<ElemType> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Some(burn::backend::cubecl::dtype_to_storage_type(dtype)),
        _ => None,
    }
}

fn handle(tensor: CubeTensor) -> Handle {
    into_contiguous(tensor).handle
}

/// `x Wᵀ` for all steps, `[T·N, D·GH]`; the kernels add the bias.
fn project(inputs: &RecurrentInputs<CubeBackend>, sizes: &Sizes) -> FloatTensor<CubeBackend> {
    let source = inputs.source.clone().expect("the forward operation always has a source");
    match &inputs.input_weight {
        Some(weight) => {
            let rows = Shape::from([sizes.steps * sizes.batch, source.shape()[2]]);
            let rows = CubeBackend::float_reshape(source, rows);
            CubeBackend::float_matmul(rows, CubeBackend::float_transpose(weight.clone()))
        }
        None => source,
    }
}

/// `[D, H, GH]`
fn transposed_weight(weight: FloatTensor<CubeBackend>, sizes: &Sizes) -> FloatTensor<CubeBackend> {
    let shape = Shape::from([sizes.directions, sizes.direction_gates(), sizes.hidden]);
    CubeBackend::float_swap_dims(CubeBackend::float_reshape(weight, shape), 1, 2)
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
