//! The wire format of the operations for Fusion, Remote and Capture.
//!
//! A custom operation lists the tensors that are present, in the order of their struct's fields; a bit mask
//! among its scalars says which these are.

use burn::{
    backend::{
        BackendTypes, TensorMetadata,
        ir::{BackendIr, CustomOpIr, HandleContainer, ScalarIr, TensorId, TensorIr},
        tensor::{FloatTensor, IntTensor},
    },
    tensor::Shape,
};

use crate::{
    Activation, Cell, GruDescriptor, RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs,
    RecurrentSaved, SingleGateRnnDescriptor, WantedGradients,
};

pub(crate) const FORWARD: &str = "rnn::recurrent_forward";
pub(crate) const BACKWARD: &str = "rnn::recurrent_backward";

/// The forward operation on tensors of a backend that records operations.
pub(crate) fn forward<B, P>(
    inputs: RecurrentInputs<B>,
    cell: Cell,
    training: bool,
    into_ir: impl Fn(P) -> TensorIr,
    mut new_id: impl FnMut() -> TensorId,
) -> CustomOpIr
where
    B: BackendTypes<FloatTensorPrimitive = P, IntTensorPrimitive = P>,
    P: TensorMetadata,
{
    let inputs = list_inputs(inputs).map(|tensor| tensor.map(&into_ir));
    let source = inputs[0].as_ref().expect("the forward operation always has a source");
    let recurrent_weight = inputs[1].as_ref().expect("always present");
    let (steps, batch) = (source.shape[0], source.shape[1]);
    let state = cell.directions() * last(&recurrent_weight.shape);
    let dtype = source.dtype;

    let mut shapes = vec![Shape::from([steps, batch, state]), Shape::from([batch, state])];
    if training {
        shapes.push(Shape::from([steps, batch, cell.gates() * state]));
    }
    let outputs: Vec<_> = shapes.into_iter().map(|shape| TensorIr::uninit(new_id(), shape, dtype)).collect();

    let mut scalars = vec![presence(&inputs), ScalarIr::Bool(training)];
    scalars.extend(encode_cell(&cell));
    let inputs: Vec<_> = inputs.into_iter().flatten().collect();
    CustomOpIr::with_scalars(FORWARD, &inputs, &outputs, scalars)
}

/// The backward operation on tensors of a backend that records operations.
pub(crate) fn backward<B, P>(
    inputs: RecurrentInputs<B>,
    saved: RecurrentSaved<B>,
    wanted: WantedGradients,
    cell: Cell,
    into_ir: impl Fn(P) -> TensorIr,
    mut new_id: impl FnMut() -> TensorId,
) -> CustomOpIr
where
    B: BackendTypes<FloatTensorPrimitive = P, IntTensorPrimitive = P>,
    P: TensorMetadata,
{
    let inputs = list_inputs(inputs).map(|tensor| tensor.map(&into_ir));
    let saved = list_saved(saved).map(|tensor| tensor.map(&into_ir));
    let recurrent_weight = inputs[1].as_ref().expect("always present");
    let z_state = saved[0].as_ref().expect("the backward operation always has a z_state");
    let (steps, batch) = (z_state.shape[0], z_state.shape[1]);
    let state = cell.directions() * last(&recurrent_weight.shape);
    let gates = cell.gates() * state;
    // The input weight is absent where only its own gradient is wanted; then the source is there.
    let input_weight = inputs[2].as_ref().map(|input_weight| input_weight.shape[1]);
    let source = inputs[0].as_ref().map(|source| source.shape[2]);
    let features = input_weight.or(source).unwrap_or(gates);
    let dtype = z_state.dtype;

    let shapes = [
        Shape::from([steps, batch, features]),
        recurrent_weight.shape.clone(),
        Shape::from([gates, features]),
        Shape::from([gates]),
        Shape::from([batch, state]),
        Shape::from([state]),
    ];
    let wanted = list_wanted(wanted);
    let outputs: Vec<_> = shapes
        .into_iter()
        .zip(wanted)
        .filter(|(_, wanted)| *wanted)
        .map(|(shape, _)| TensorIr::uninit(new_id(), shape, dtype))
        .collect();

    let mut scalars = vec![presence(&inputs), presence(&saved), bits(wanted)];
    scalars.extend(encode_cell(&cell));
    let inputs: Vec<_> = inputs.into_iter().chain(saved).flatten().collect();
    CustomOpIr::with_scalars(BACKWARD, &inputs, &outputs, scalars)
}

/// Runs a recorded operation on the backend that holds the tensors.
pub(crate) fn execute<B: BackendIr + RecurrentOps>(
    handles: &mut HandleContainer<B::Handle>,
    desc: &CustomOpIr,
) {
    match desc.id.as_str() {
        FORWARD => {
            let [ScalarIr::UInt(present), ScalarIr::Bool(training), cell @ ..] = desc.scalars.as_slice()
            else {
                panic!("invalid scalars for {FORWARD}: {:?}", desc.scalars);
            };
            let mut tensors = desc.inputs.iter();
            let inputs = read_inputs::<B>(handles, *present, &mut tensors);
            let outputs = B::recurrent_forward(inputs, decode_cell(cell), *training);
            let RecurrentOutputs { output, final_state, z_state } = outputs;
            register::<B>(handles, &desc.outputs, [output, final_state, z_state]);
        }
        BACKWARD => {
            let [ScalarIr::UInt(present), ScalarIr::UInt(saved), ScalarIr::UInt(wanted), cell @ ..] =
                desc.scalars.as_slice()
            else {
                panic!("invalid scalars for {BACKWARD}: {:?}", desc.scalars);
            };
            let mut tensors = desc.inputs.iter();
            let inputs = read_inputs::<B>(handles, *present, &mut tensors);
            let saved = read_saved::<B>(handles, *saved, &mut tensors);
            let gradients = B::recurrent_backward(inputs, saved, decode_wanted(*wanted), decode_cell(cell));
            let RecurrentGradients {
                source,
                recurrent_weight,
                input_weight,
                bias,
                init_state,
                secondary_bias,
            } = gradients;
            let gradients = [source, recurrent_weight, input_weight, bias, init_state, secondary_bias];
            register::<B>(handles, &desc.outputs, gradients);
        }
        id => panic!("unknown recurrent operation: {id}"),
    }
}

/// Names the outputs of a recorded forward operation.
pub(crate) fn name_outputs<B, P>(outputs: impl IntoIterator<Item = P>) -> RecurrentOutputs<B>
where
    B: BackendTypes<FloatTensorPrimitive = P>,
{
    let mut outputs = outputs.into_iter();
    RecurrentOutputs { output: outputs.next(), final_state: outputs.next(), z_state: outputs.next() }
}

/// Names the outputs of a recorded backward operation.
pub(crate) fn name_gradients<B, P>(
    outputs: impl IntoIterator<Item = P>,
    wanted: WantedGradients,
) -> RecurrentGradients<B>
where
    B: BackendTypes<FloatTensorPrimitive = P>,
{
    let mut outputs = outputs.into_iter();
    let [source, recurrent_weight, input_weight, bias, init_state, secondary_bias] =
        list_wanted(wanted).map(|wanted| wanted.then(|| outputs.next()).flatten());
    RecurrentGradients { source, recurrent_weight, input_weight, bias, init_state, secondary_bias }
}

fn last(shape: &Shape) -> usize {
    shape[shape.num_dims() - 1]
}

fn list_inputs<B, P>(inputs: RecurrentInputs<B>) -> [Option<P>; 8]
where
    B: BackendTypes<FloatTensorPrimitive = P, IntTensorPrimitive = P>,
{
    [
        inputs.source,
        inputs.recurrent_weight,
        inputs.input_weight,
        inputs.bias,
        inputs.init_state,
        inputs.mask,
        inputs.secondary_bias,
        inputs.lengths,
    ]
}

fn list_saved<B, P>(saved: RecurrentSaved<B>) -> [Option<P>; 4]
where
    B: BackendTypes<FloatTensorPrimitive = P>,
{
    [saved.z_state, saved.output, saved.output_gradient, saved.state_gradient]
}

fn list_wanted(wanted: WantedGradients) -> [bool; 6] {
    [
        wanted.source,
        wanted.recurrent_weight,
        wanted.input_weight,
        wanted.bias,
        wanted.init_state,
        wanted.secondary_bias,
    ]
}

fn decode_wanted(wanted: u64) -> WantedGradients {
    WantedGradients {
        source: bit(wanted, 0),
        recurrent_weight: bit(wanted, 1),
        input_weight: bit(wanted, 2),
        bias: bit(wanted, 3),
        init_state: bit(wanted, 4),
        secondary_bias: bit(wanted, 5),
    }
}

fn bits<const N: usize>(flags: [bool; N]) -> ScalarIr {
    ScalarIr::UInt(flags.iter().rev().fold(0, |bits, &flag| bits << 1 | flag as u64))
}

fn bit(bits: u64, position: usize) -> bool {
    bits >> position & 1 == 1
}

fn presence<T, const N: usize>(tensors: &[Option<T>; N]) -> ScalarIr {
    bits(tensors.each_ref().map(Option::is_some))
}

type Handles<B> = HandleContainer<<B as BackendIr>::Handle>;

fn read_inputs<'a, B: BackendIr>(
    handles: &mut Handles<B>,
    present: u64,
    tensors: &mut impl Iterator<Item = &'a TensorIr>,
) -> RecurrentInputs<B> {
    RecurrentInputs {
        source: read_float::<B>(handles, present, 0, tensors),
        recurrent_weight: read_float::<B>(handles, present, 1, tensors),
        input_weight: read_float::<B>(handles, present, 2, tensors),
        bias: read_float::<B>(handles, present, 3, tensors),
        init_state: read_float::<B>(handles, present, 4, tensors),
        mask: read_float::<B>(handles, present, 5, tensors),
        secondary_bias: read_float::<B>(handles, present, 6, tensors),
        lengths: read_lengths::<B>(handles, present, 7, tensors),
    }
}

fn read_saved<'a, B: BackendIr>(
    handles: &mut Handles<B>,
    present: u64,
    tensors: &mut impl Iterator<Item = &'a TensorIr>,
) -> RecurrentSaved<B> {
    RecurrentSaved {
        z_state: read_float::<B>(handles, present, 0, tensors),
        output: read_float::<B>(handles, present, 1, tensors),
        output_gradient: read_float::<B>(handles, present, 2, tensors),
        state_gradient: read_float::<B>(handles, present, 3, tensors),
    }
}

fn read_float<'a, B: BackendIr>(
    handles: &mut Handles<B>,
    present: u64,
    position: usize,
    tensors: &mut impl Iterator<Item = &'a TensorIr>,
) -> Option<FloatTensor<B>> {
    bit(present, position).then(|| handles.get_float_tensor::<B>(tensors.next().expect("listed as present")))
}

fn read_lengths<'a, B: BackendIr>(
    handles: &mut Handles<B>,
    present: u64,
    position: usize,
    tensors: &mut impl Iterator<Item = &'a TensorIr>,
) -> Option<IntTensor<B>> {
    bit(present, position).then(|| handles.get_int_tensor::<B>(tensors.next().expect("listed as present")))
}

fn register<B: BackendIr>(
    handles: &mut Handles<B>,
    outputs: &[TensorIr],
    tensors: impl IntoIterator<Item = Option<FloatTensor<B>>>,
) {
    for (ir, tensor) in outputs.iter().zip(tensors.into_iter().flatten()) {
        handles.register_float_tensor::<B>(&ir.id, tensor);
    }
}

fn encode_cell(cell: &Cell) -> Vec<ScalarIr> {
    match cell {
        Cell::Gru(descriptor) => {
            let flags = bits([
                true,
                descriptor.reverse,
                descriptor.bidirectional,
                descriptor.training,
                descriptor.reset_gate_first,
                descriptor.reset_after,
                descriptor.flip_z,
            ]);
            let activations = [
                descriptor.update_gate_activation,
                descriptor.reset_gate_activation,
                descriptor.output_gate_activation,
            ];
            encode(flags, descriptor.clip, &activations)
        }
        Cell::SingleGate(descriptor) => {
            let flags = bits([false, descriptor.reverse, descriptor.bidirectional, descriptor.training]);
            encode(flags, descriptor.clip, &[descriptor.activation])
        }
    }
}

fn encode(flags: ScalarIr, clip: Option<f64>, activations: &[Activation]) -> Vec<ScalarIr> {
    let mut scalars = vec![flags, ScalarIr::Bool(clip.is_some()), ScalarIr::Float(clip.unwrap_or_default())];
    for activation in activations {
        let (kind, alpha, beta) = match *activation {
            Activation::None => (0, 0.0, 0.0),
            Activation::Relu => (1, 0.0, 0.0),
            Activation::Tanh => (2, 0.0, 0.0),
            Activation::Sigmoid => (3, 0.0, 0.0),
            Activation::HardSigmoid { alpha, beta } => (4, alpha, beta),
        };
        scalars.extend([ScalarIr::UInt(kind), ScalarIr::Float(alpha), ScalarIr::Float(beta)]);
    }
    scalars
}

fn decode_cell(scalars: &[ScalarIr]) -> Cell {
    let [ScalarIr::UInt(flags), ScalarIr::Bool(clipped), ScalarIr::Float(clip), activations @ ..] = scalars
    else {
        panic!("invalid scalars for a recurrent cell: {scalars:?}");
    };
    let clip = clipped.then_some(*clip);
    let activations: Vec<_> = activations.chunks(3).map(decode_activation).collect();
    match *activations.as_slice() {
        [update, reset, output] if bit(*flags, 0) => Cell::Gru(GruDescriptor {
            reverse: bit(*flags, 1),
            bidirectional: bit(*flags, 2),
            training: bit(*flags, 3),
            reset_gate_first: bit(*flags, 4),
            reset_after: bit(*flags, 5),
            flip_z: bit(*flags, 6),
            update_gate_activation: update,
            reset_gate_activation: reset,
            output_gate_activation: output,
            clip,
        }),
        [activation] if !bit(*flags, 0) => Cell::SingleGate(SingleGateRnnDescriptor {
            reverse: bit(*flags, 1),
            bidirectional: bit(*flags, 2),
            training: bit(*flags, 3),
            activation,
            clip,
        }),
        _ => panic!("invalid scalars for a recurrent cell: {scalars:?}"),
    }
}

fn decode_activation(scalars: &[ScalarIr]) -> Activation {
    match *scalars {
        [ScalarIr::UInt(0), ..] => Activation::None,
        [ScalarIr::UInt(1), ..] => Activation::Relu,
        [ScalarIr::UInt(2), ..] => Activation::Tanh,
        [ScalarIr::UInt(3), ..] => Activation::Sigmoid,
        [ScalarIr::UInt(4), ScalarIr::Float(alpha), ScalarIr::Float(beta)] => {
            Activation::HardSigmoid { alpha, beta }
        }
        _ => panic!("invalid scalars for an activation: {scalars:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_survive_the_wire() {
        let cells = [
            Cell::Gru(GruDescriptor::default()),
            Cell::Gru(GruDescriptor {
                reverse: true,
                bidirectional: true,
                training: true,
                reset_gate_first: true,
                reset_after: true,
                flip_z: true,
                update_gate_activation: Activation::HardSigmoid { alpha: 0.3, beta: 0.4 },
                reset_gate_activation: Activation::None,
                output_gate_activation: Activation::Relu,
                clip: Some(0.75),
            }),
            Cell::SingleGate(SingleGateRnnDescriptor::default()),
            Cell::SingleGate(SingleGateRnnDescriptor {
                bidirectional: true,
                activation: Activation::Tanh,
                clip: Some(2.0),
                ..Default::default()
            }),
        ];
        for cell in cells {
            assert_eq!(decode_cell(&encode_cell(&cell)), cell);
        }
    }

    #[test]
    fn wanted_gradients_survive_the_wire() {
        for wanted in 0..64 {
            let ScalarIr::UInt(bits) = bits(list_wanted(decode_wanted(wanted))) else { unreachable!() };
            assert_eq!(bits, wanted);
        }
    }
}
