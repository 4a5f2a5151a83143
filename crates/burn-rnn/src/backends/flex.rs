//! Flex: the kernels of `flex-rnn`, on the tensors' memory.

use std::mem::MaybeUninit;

use burn::{
    backend::{
        Flex, TensorMetadata,
        ops::FloatTensorOps,
        tensor::{FloatTensor, IntTensor},
    },
    tensor::{DType, FloatDType, Shape, TensorData},
};

use crate::{
    Activation, Cell, RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved,
    WantedGradients,
};

type Tensor = FloatTensor<Flex>;

impl RecurrentOps for Flex {
    fn recurrent_forward(
        inputs: RecurrentInputs<Self>,
        cell: Cell,
        training: bool,
    ) -> RecurrentOutputs<Self> {
        let dtype = inputs.source.as_ref().expect("the forward operation always has a source").dtype();
        match dtype {
            DType::F64 => forward::<f64>(inputs, &cell, training),
            DType::F32 => forward::<f32>(inputs, &cell, training),
            _ => {
                // Half precision: computed in f32, rounded once.
                let outputs = forward::<f32>(cast_inputs(inputs, FloatDType::F32), &cell, training);
                let dtype = dtype.into();
                RecurrentOutputs {
                    output: cast(outputs.output, dtype),
                    final_state: cast(outputs.final_state, dtype),
                    z_state: cast(outputs.z_state, dtype),
                }
            }
        }
    }

    fn recurrent_backward(
        inputs: RecurrentInputs<Self>,
        saved: RecurrentSaved<Self>,
        wanted: WantedGradients,
        cell: Cell,
    ) -> RecurrentGradients<Self> {
        let dtype = saved.z_state.as_ref().expect("the backward operation always has a z_state").dtype();
        match dtype {
            DType::F64 => backward::<f64>(inputs, saved, wanted, &cell),
            DType::F32 => backward::<f32>(inputs, saved, wanted, &cell),
            _ => {
                let saved = RecurrentSaved {
                    z_state: cast(saved.z_state, FloatDType::F32),
                    output: cast(saved.output, FloatDType::F32),
                    output_gradient: cast(saved.output_gradient, FloatDType::F32),
                    state_gradient: cast(saved.state_gradient, FloatDType::F32),
                };
                let inputs = cast_inputs(inputs, FloatDType::F32);
                let gradients = backward::<f32>(inputs, saved, wanted, &cell);
                let dtype = dtype.into();
                RecurrentGradients {
                    source: cast(gradients.source, dtype),
                    recurrent_weight: cast(gradients.recurrent_weight, dtype),
                    input_weight: cast(gradients.input_weight, dtype),
                    bias: cast(gradients.bias, dtype),
                    init_state: cast(gradients.init_state, dtype),
                    secondary_bias: cast(gradients.secondary_bias, dtype),
                }
            }
        }
    }
}

fn cast(tensor: Option<Tensor>, dtype: FloatDType) -> Option<Tensor> {
    tensor.map(|tensor| Flex::float_cast(tensor, dtype))
}

fn cast_inputs(inputs: RecurrentInputs<Flex>, dtype: FloatDType) -> RecurrentInputs<Flex> {
    RecurrentInputs {
        source: cast(inputs.source, dtype),
        recurrent_weight: cast(inputs.recurrent_weight, dtype),
        input_weight: cast(inputs.input_weight, dtype),
        bias: cast(inputs.bias, dtype),
        init_state: cast(inputs.init_state, dtype),
        mask: cast(inputs.mask, dtype),
        secondary_bias: cast(inputs.secondary_bias, dtype),
        lengths: inputs.lengths,
    }
}

/// The element types that `flex-rnn` computes in, as Burn knows them.
trait Number: flex_rnn::Element + burn::tensor::Element {
    /// The elements of a contiguous tensor.
    fn elements(tensor: &Tensor) -> &[Self];
}

macro_rules! number {
    ($($number:ident),*) => {
        $(impl Number for $number {
            fn elements(tensor: &Tensor) -> &[Self] {
                tensor.as_slice().expect("made contiguous, of one element type")
            }
        })*
    };
}

number!(f32, f64);

/// A tensor's elements in row-major order.
fn contiguous(tensor: Option<Tensor>) -> Option<Tensor> {
    tensor.map(|tensor| if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() })
}

/// Inputs that `flex-rnn` can borrow.
struct Contiguous {
    inputs: RecurrentInputs<Flex>,
    lengths: Option<Vec<usize>>,
}

impl Contiguous {
    fn new(inputs: RecurrentInputs<Flex>) -> Self {
        let lengths = inputs.lengths.map(lengths);
        Self {
            inputs: RecurrentInputs {
                source: contiguous(inputs.source),
                recurrent_weight: contiguous(inputs.recurrent_weight),
                input_weight: contiguous(inputs.input_weight),
                bias: contiguous(inputs.bias),
                init_state: contiguous(inputs.init_state),
                mask: contiguous(inputs.mask),
                secondary_bias: contiguous(inputs.secondary_bias),
                lengths: None,
            },
            lengths,
        }
    }

    fn borrow<E: Number>(&self) -> flex_rnn::Inputs<'_, E> {
        let inputs = &self.inputs;
        flex_rnn::Inputs {
            source: inputs.source.as_ref().map(E::elements),
            recurrent_weight: E::elements(inputs.recurrent_weight.as_ref().expect("always present")),
            input_weight: inputs.input_weight.as_ref().map(E::elements),
            bias: inputs.bias.as_ref().map(E::elements),
            init_state: inputs.init_state.as_ref().map(E::elements),
            mask: inputs.mask.as_ref().map(|mask| match mask.shape().num_dims() {
                3 => flex_rnn::Mask::PerStep(E::elements(mask)),
                _ => flex_rnn::Mask::Constant(E::elements(mask)),
            }),
            secondary_bias: inputs.secondary_bias.as_ref().map(E::elements),
            lengths: self.lengths.as_deref(),
        }
    }
}

fn lengths(tensor: IntTensor<Flex>) -> Vec<usize> {
    tensor.into_data().iter::<i64>().map(|length| length as usize).collect()
}

fn problem(inputs: &RecurrentInputs<Flex>, sequence: &Tensor, cell: &Cell) -> flex_rnn::Problem {
    let weight = inputs.recurrent_weight.as_ref().expect("always present").shape();
    let hidden = weight[weight.num_dims() - 1];
    let sequence = sequence.shape();
    let (reverse, bidirectional, own) = match cell {
        Cell::Gru(descriptor) => (
            descriptor.reverse,
            descriptor.bidirectional,
            flex_rnn::Cell::Gru(flex_rnn::Gru {
                reset_gate_first: descriptor.reset_gate_first,
                reset_after: descriptor.reset_after,
                flip_z: descriptor.flip_z,
                update: activation(descriptor.update_gate_activation),
                reset: activation(descriptor.reset_gate_activation),
                output: activation(descriptor.output_gate_activation),
            }),
        ),
        Cell::SingleGate(descriptor) => (
            descriptor.reverse,
            descriptor.bidirectional,
            flex_rnn::Cell::SingleGate(activation(descriptor.activation)),
        ),
    };
    flex_rnn::Problem {
        steps: sequence[0],
        batch: sequence[1],
        // Backward, the gradient of `input_weight` comes with the source, that of the source with the weight.
        features: match (&inputs.input_weight, &inputs.source) {
            (Some(weight), _) => weight.shape()[1],
            (None, Some(source)) => source.shape()[2],
            (None, None) => cell.directions() * cell.gates() * hidden,
        },
        hidden,
        reverse,
        bidirectional,
        cell: own,
        clip: cell.clip(),
    }
}

fn activation(activation: Activation) -> flex_rnn::Activation {
    match activation {
        Activation::None => flex_rnn::Activation::None,
        Activation::Relu => flex_rnn::Activation::Relu,
        Activation::Tanh => flex_rnn::Activation::Tanh,
        Activation::Sigmoid => flex_rnn::Activation::Sigmoid,
        Activation::HardSigmoid { alpha, beta } => flex_rnn::Activation::HardSigmoid { alpha, beta },
    }
}

/// Memory for a tensor that is about to be written.
struct Room<E> {
    elements: Vec<E>,
    shape: Shape,
}

impl<E: Number> Room<E> {
    fn new(shape: Shape) -> Self {
        Self { elements: Vec::with_capacity(shape.num_elements()), shape }
    }

    fn slots(&mut self) -> &mut [MaybeUninit<E>] {
        let count = self.shape.num_elements();
        &mut self.elements.spare_capacity_mut()[..count]
    }

    /// # Safety
    ///
    /// All slots have been written.
    unsafe fn tensor(mut self) -> Tensor {
        // SAFETY: the caller has written them.
        unsafe { self.elements.set_len(self.shape.num_elements()) };
        Tensor::from_data(TensorData::new(self.elements, self.shape))
    }
}

fn forward<E: Number>(inputs: RecurrentInputs<Flex>, cell: &Cell, training: bool) -> RecurrentOutputs<Flex> {
    let inputs = Contiguous::new(inputs);
    let source = inputs.inputs.source.as_ref().expect("the forward operation always has a source");
    let problem = problem(&inputs.inputs, source, cell);
    let flex_rnn::Problem { steps, batch, .. } = problem;
    let mut output = Room::<E>::new(Shape::from([steps, batch, problem.state()]));
    let mut final_state = Room::<E>::new(Shape::from([batch, problem.state()]));
    let mut z_state = training.then(|| Room::<E>::new(Shape::from([steps, batch, problem.all_gates()])));
    flex_rnn::forward(
        &problem,
        &inputs.borrow::<E>(),
        flex_rnn::Outputs {
            output: output.slots(),
            final_state: final_state.slots(),
            z_state: z_state.as_mut().map(Room::slots),
        },
    );
    // SAFETY: `forward` writes all outputs that it is given.
    unsafe {
        RecurrentOutputs {
            output: Some(output.tensor()),
            final_state: Some(final_state.tensor()),
            z_state: z_state.map(|room| room.tensor()),
        }
    }
}

fn backward<E: Number>(
    inputs: RecurrentInputs<Flex>,
    saved: RecurrentSaved<Flex>,
    wanted: WantedGradients,
    cell: &Cell,
) -> RecurrentGradients<Flex> {
    let inputs = Contiguous::new(inputs);
    let z_state = contiguous(saved.z_state).expect("the backward operation always has a z_state");
    let output = contiguous(saved.output);
    let output_gradient = contiguous(saved.output_gradient);
    let state_gradient = contiguous(saved.state_gradient);
    let problem = problem(&inputs.inputs, &z_state, cell);
    let flex_rnn::Problem { steps, batch, features, .. } = problem;

    let weight = inputs.inputs.recurrent_weight.as_ref().expect("always present").shape();
    let room = |wanted: bool, shape: Shape| wanted.then(|| Room::<E>::new(shape));
    let gates = problem.all_gates();
    let mut source = room(wanted.source, Shape::from([steps, batch, features]));
    let mut recurrent_weight = room(wanted.recurrent_weight, weight);
    let mut input_weight = room(wanted.input_weight, Shape::from([gates, features]));
    let mut bias = room(wanted.bias, Shape::from([gates]));
    let mut init_state = room(wanted.init_state, Shape::from([batch, problem.state()]));
    let mut secondary_bias = room(wanted.secondary_bias, Shape::from([problem.state()]));
    flex_rnn::backward(
        &problem,
        &inputs.borrow::<E>(),
        &flex_rnn::Saved {
            z_state: E::elements(&z_state),
            output: output.as_ref().map(E::elements),
            output_gradient: output_gradient.as_ref().map(E::elements),
            state_gradient: state_gradient.as_ref().map(E::elements),
        },
        flex_rnn::Gradients {
            source: source.as_mut().map(Room::slots),
            recurrent_weight: recurrent_weight.as_mut().map(Room::slots),
            input_weight: input_weight.as_mut().map(Room::slots),
            bias: bias.as_mut().map(Room::slots),
            init_state: init_state.as_mut().map(Room::slots),
            secondary_bias: secondary_bias.as_mut().map(Room::slots),
        },
    );
    // SAFETY: `backward` writes all gradients that it is given room for.
    let tensor = |room: Option<Room<E>>| room.map(|room| unsafe { room.tensor() });
    RecurrentGradients {
        source: tensor(source),
        recurrent_weight: tensor(recurrent_weight),
        input_weight: tensor(input_weight),
        bias: tensor(bias),
        init_state: tensor(init_state),
        secondary_bias: tensor(secondary_bias),
    }
}
