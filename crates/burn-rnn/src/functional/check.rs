//! All that is checked before anything is launched.

use burn::{
    backend::{Dispatch, DispatchTensor},
    tensor::{DType, Device, Int, Tensor, TensorData},
};

use crate::{
    Activation, Cell, Error, Lengths, Mask, RecurrentInputs, RecurrentOps, RecurrentOutput, RecurrentSaved,
    WantedGradients,
};

/// Inputs of either cell, as given.
pub(crate) struct Unchecked<const R: usize> {
    pub source: Tensor<3>,
    pub recurrent_weight: Tensor<R>,
    pub input_weight: Option<Tensor<2>>,
    pub bias: Option<Tensor<1>>,
    pub init_state: Option<Tensor<2>>,
    pub mask: Option<Mask>,
    pub secondary_bias: Option<Tensor<1>>,
    pub lengths: Option<Lengths>,
}

/// Sizes that all shapes follow from.
#[derive(Clone, Copy)]
struct Sizes {
    steps: usize,
    batch: usize,
    /// `D·H`
    state: usize,
    /// `D·GH`
    gates: usize,
}

/// Checked inputs, ready to run.
pub(crate) struct Checked {
    inputs: RecurrentInputs<Dispatch>,
    sizes: Sizes,
    dtype: DType,
    device: Device,
    cell: Cell,
}

impl Checked {
    pub fn new<const R: usize>(inputs: Unchecked<R>, cell: Cell) -> Result<Self, Error> {
        check_options(&cell)?;

        let sizes =
            check_sizes(&inputs.source, &inputs.recurrent_weight, inputs.input_weight.is_some(), &cell)?;
        let Sizes { steps, batch, state, gates, .. } = sizes;
        let dtype = inputs.source.dtype();
        let device = plain(inputs.source.device());
        if !computes_in(&device, dtype) {
            return Err(Error::UnsupportedDType { tensor: "source", got: dtype, device });
        }
        let checked = Self { inputs: RecurrentInputs::default(), sizes, dtype, device, cell };

        checked.tensor("recurrent_weight", &inputs.recurrent_weight)?;
        if let Some(tensor) = &inputs.input_weight {
            let features = inputs.source.dims()[2];
            checked.shaped("input_weight", tensor, "[D·GH, I]", [gates, features])?;
        }
        if let Some(tensor) = &inputs.bias {
            checked.shaped("bias", tensor, "[D·GH]", [gates])?;
        }
        if let Some(tensor) = &inputs.init_state {
            checked.shaped("init_state", tensor, "[N, D·H]", [batch, state])?;
        }
        match &inputs.mask {
            Some(Mask::Constant(tensor)) => checked.shaped("mask", tensor, "[N, D·H]", [batch, state])?,
            Some(Mask::PerStep(tensor)) => {
                checked.shaped("mask", tensor, "[T, N, D·H]", [steps, batch, state])?
            }
            None => {}
        }
        if let Some(tensor) = &inputs.secondary_bias {
            if !cell.reset_after() {
                return Err(Error::SecondaryBiasWithoutResetAfter { got: tensor.dims().to_vec() });
            }
            checked.shaped("secondary_bias", tensor, "[D·H]", [state])?;
        }
        for (tensor, shape) in [("source", inputs.source.dims()), ("z_state", [steps, batch, gates])] {
            let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
            if elements.is_none_or(|elements| elements > u32::MAX as usize) {
                return Err(Error::TooLarge { tensor, got: shape.to_vec() });
            }
        }
        let lengths = match inputs.lengths {
            Some(lengths) => Some(checked.lengths(lengths)?),
            None => None,
        };

        Ok(Self {
            inputs: RecurrentInputs {
                source: Some(inputs.source.into_dispatch()),
                recurrent_weight: Some(inputs.recurrent_weight.into_dispatch()),
                input_weight: inputs.input_weight.map(Tensor::into_dispatch),
                bias: inputs.bias.map(Tensor::into_dispatch),
                init_state: inputs.init_state.map(Tensor::into_dispatch),
                mask: inputs.mask.map(|mask| match mask {
                    Mask::Constant(mask) => mask.into_dispatch(),
                    Mask::PerStep(mask) => mask.into_dispatch(),
                }),
                secondary_bias: inputs.secondary_bias.map(Tensor::into_dispatch),
                lengths,
            },
            ..checked
        })
    }

    /// Runs the cell.
    pub fn forward(self, training: bool) -> RecurrentOutput {
        let outputs = Dispatch::recurrent_forward(self.inputs, self.cell, training);
        RecurrentOutput {
            output: present(outputs.output),
            final_state: present(outputs.final_state),
            z_state: outputs.z_state.map(Tensor::from_dispatch),
        }
    }

    /// Computes the gradient of every input that is present.
    pub fn backward(
        self,
        source_gradient: Tensor<3>,
        z_state: Tensor<3>,
        output: Option<Tensor<3>>,
        state_gradient: Option<Tensor<2>>,
    ) -> Result<crate::RecurrentGradients<Dispatch>, Error> {
        let Sizes { steps, batch, state, gates, .. } = self.sizes;
        self.shaped("source_gradient", &source_gradient, "[T, N, D·H]", [steps, batch, state])?;
        self.shaped("z_state", &z_state, "[T, N, D·GH]", [steps, batch, gates])?;
        if let Some(output) = &output {
            self.shaped("output_fwd", output, "[T, N, D·H]", [steps, batch, state])?;
        }
        if let Some(state_gradient) = &state_gradient {
            self.shaped("state_gradient", state_gradient, "[N, D·H]", [batch, state])?;
        }
        let wanted = WantedGradients {
            source: true,
            recurrent_weight: true,
            input_weight: self.inputs.input_weight.is_some(),
            bias: self.inputs.bias.is_some(),
            init_state: self.inputs.init_state.is_some(),
            secondary_bias: self.inputs.secondary_bias.is_some(),
        };
        let saved = RecurrentSaved {
            z_state: Some(z_state.into_dispatch()),
            output: output.map(Tensor::into_dispatch),
            output_gradient: Some(source_gradient.into_dispatch()),
            state_gradient: state_gradient.map(Tensor::into_dispatch),
        };
        Ok(Dispatch::recurrent_backward(self.inputs, saved, wanted, self.cell))
    }

    /// Checks all of a tensor but its shape.
    fn tensor<const D: usize>(&self, name: &'static str, tensor: &Tensor<D>) -> Result<(), Error> {
        if tensor.dtype() != self.dtype {
            return Err(Error::DTypeMismatch { tensor: name, expected: self.dtype, got: tensor.dtype() });
        }
        let device = plain(tensor.device());
        if device != self.device {
            return Err(Error::DeviceMismatch { tensor: name, expected: self.device.clone(), got: device });
        }
        Ok(())
    }

    fn shaped<const D: usize>(
        &self,
        name: &'static str,
        tensor: &Tensor<D>,
        axes: &str,
        expected: [usize; D],
    ) -> Result<(), Error> {
        check_shape(name, tensor, self.axes(axes), expected)?;
        self.tensor(name, tensor)
    }

    /// The names of the axes with this cell's number of gates.
    fn axes(&self, axes: &str) -> String {
        axes_of(axes, &self.cell)
    }

    /// Reads lengths, checks them and brings them to the device as 32-bit integers.
    fn lengths(&self, lengths: Lengths) -> Result<DispatchTensor, Error> {
        let Sizes { steps, batch, .. } = self.sizes;
        let values = match lengths {
            Lengths::Host(values) => values,
            Lengths::Device(tensor) => tensor
                .try_into_data()
                .map_err(|error| Error::UnreadableLengths { reason: error.to_string() })?
                .iter::<i64>()
                .collect(),
        };
        if values.len() != batch {
            return Err(Error::Shape {
                tensor: "lengths",
                expected: format!("[N] = [{batch}]"),
                got: vec![values.len()],
            });
        }
        let within = |&length: &i64| usize::try_from(length).is_ok_and(|length| length <= steps);
        if let Some(row) = values.iter().position(|length| !within(length)) {
            return Err(Error::LengthOutOfRange { row, got: values[row], steps });
        }
        let values: Vec<i32> = values.into_iter().map(|length| length as i32).collect();
        let data = TensorData::new(values, [batch]);
        Ok(Tensor::<1, Int>::from_data(data, (&self.device, DType::I32)).into_dispatch())
    }
}

/// Takes a tensor that an operation always returns.
pub(crate) fn present<const D: usize>(tensor: Option<DispatchTensor>) -> Tensor<D> {
    Tensor::from_dispatch(tensor.expect("the operation returns this tensor whenever it is asked for"))
}

/// A device without its autodiff association, which does not say where a tensor is.
fn plain(device: Device) -> Device {
    if device.is_autodiff() { device.inner() } else { device }
}

/// Whether a device computes in an element type.
fn computes_in(device: &Device, dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
        && device.supports_dtype(dtype)
        && !(dtype == DType::F64 && is_wgpu(device))
}

/// The shader languages have no `tanh` and no `exp` in f64: where an adapter offers the type nonetheless, these
/// give wrong numbers.
#[cfg(feature = "cubecl-backend")]
fn is_wgpu(device: &Device) -> bool {
    use burn::backend::{CubeDevice, DispatchDevice};

    matches!(device.as_dispatch(), DispatchDevice::Cube(CubeDevice::Wgpu(_)))
}

#[cfg(not(feature = "cubecl-backend"))]
fn is_wgpu(_device: &Device) -> bool {
    false
}

fn axes_of(axes: &str, cell: &Cell) -> String {
    match cell.gates() {
        1 => axes.replace("GH", "H"),
        gates => axes.replace('G', &gates.to_string()),
    }
}

fn check_shape<const D: usize>(
    name: &'static str,
    tensor: &Tensor<D>,
    axes: String,
    expected: [usize; D],
) -> Result<(), Error> {
    let got = tensor.dims();
    if got != expected {
        return Err(Error::Shape {
            tensor: name,
            expected: format!("{axes} = {expected:?}"),
            got: got.to_vec(),
        });
    }
    Ok(())
}

/// Reads the sizes off the two tensors that are always there.
fn check_sizes<const R: usize>(
    source: &Tensor<3>,
    recurrent_weight: &Tensor<R>,
    has_input_weight: bool,
    cell: &Cell,
) -> Result<Sizes, Error> {
    let shape = recurrent_weight.dims();
    let (rank, reason, axes) = match cell.bidirectional() {
        true => (3, "as the descriptor is bidirectional", "[2, GH, H]"),
        false => (2, "as the descriptor has one direction", "[GH, H]"),
    };
    if R != rank {
        return Err(Error::Rank {
            tensor: "recurrent_weight",
            expected: rank,
            reason,
            got: R,
            shape: shape.to_vec(),
        });
    }
    let hidden = shape[R - 1];
    let mut expected = [2; R];
    expected[R - 2] = cell.gates() * hidden;
    expected[R - 1] = hidden;
    check_shape("recurrent_weight", recurrent_weight, axes_of(axes, cell), expected)?;
    if hidden == 0 {
        return Err(Error::Shape {
            tensor: "recurrent_weight",
            expected: axes_of(axes, cell) + " with H from 1 up",
            got: shape.to_vec(),
        });
    }

    let state = cell.directions() * hidden;
    let gates = cell.gates() * state;
    let [steps, batch, features] = source.dims();
    if !has_input_weight {
        let axes = axes_of("[T, N, D·GH]", cell) + ", as there is no `input_weight`,";
        check_shape("source", source, axes, [steps, batch, gates])?;
    } else if features == 0 {
        return Err(Error::Shape {
            tensor: "source",
            expected: "[T, N, I] with I from 1 up".into(),
            got: source.dims().to_vec(),
        });
    }
    Ok(Sizes { steps, batch, state, gates })
}

fn check_options(cell: &Cell) -> Result<(), Error> {
    if let Some(clip) = cell.clip()
        && !(clip.is_finite() && clip > 0.0)
    {
        return Err(Error::Option { option: "clip", expected: "finite and above 0", got: clip });
    }
    let activations = match cell {
        Cell::Gru(descriptor) => vec![
            descriptor.update_gate_activation,
            descriptor.reset_gate_activation,
            descriptor.output_gate_activation,
        ],
        Cell::SingleGate(descriptor) => vec![descriptor.activation],
    };
    for activation in activations {
        if let Activation::HardSigmoid { alpha, beta } = activation {
            for (option, got) in [("alpha", alpha), ("beta", beta)] {
                if !got.is_finite() {
                    return Err(Error::Option { option, expected: "finite", got });
                }
            }
        }
    }
    Ok(())
}
