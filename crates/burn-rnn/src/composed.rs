//! The operations composed of a backend's tensor operations: right on any backend, and the default.
//!
//! The input product and the weight gradients are single products over all time steps; the recurrence
//! itself is a loop over steps.

mod backward;
mod forward;
mod gates;

use burn::{
    backend::{
        Backend, TensorMetadata, get_device_settings,
        tensor::{BoolTensor, FloatTensor},
    },
    tensor::{DType, FloatDType, Shape, Slice},
};

pub(crate) use backward::{backward, clear_mask, input_gradients, sum_rows};
pub(crate) use forward::forward;
pub(crate) use gates::GateOrder;

use crate::{Cell, RecurrentInputs};

/// The sizes of a call. `features` is `D·GH` without an input weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Time steps, `T`.
    pub steps: usize,
    /// Batch rows, `N`.
    pub batch: usize,
    /// Hidden units of one direction, `H`.
    pub hidden: usize,
    /// Directions, `D`.
    pub directions: usize,
    /// Gates, `G`.
    pub gates: usize,
}

impl Sizes {
    /// Reads the sizes off a tensor `[T, N, _]` and the recurrent weight.
    pub fn new<B: Backend>(sequence: &FloatTensor<B>, inputs: &RecurrentInputs<B>, cell: &Cell) -> Self {
        let recurrent_weight = inputs.recurrent_weight.as_ref().expect("always present").shape();
        Self {
            steps: sequence.shape()[0],
            batch: sequence.shape()[1],
            hidden: recurrent_weight[recurrent_weight.num_dims() - 1],
            directions: cell.directions(),
            gates: cell.gates(),
        }
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.steps == 0 || self.batch == 0
    }

    /// `D·H`
    pub fn state(&self) -> usize {
        self.directions * self.hidden
    }

    /// `GH`
    pub fn direction_gates(&self) -> usize {
        self.gates * self.hidden
    }

    /// `D·GH`
    pub fn all_gates(&self) -> usize {
        self.directions * self.direction_gates()
    }
}

/// Half-precision tensors are computed in f32 and rounded once, at the end.
fn computes_in<B: Backend>(tensor: &FloatTensor<B>) -> FloatDType {
    match tensor.dtype() {
        DType::F64 => FloatDType::F64,
        _ => FloatDType::F32,
    }
}

fn cast<B: Backend>(tensor: FloatTensor<B>, dtype: FloatDType) -> FloatTensor<B> {
    if tensor.dtype() == DType::from(dtype) { tensor } else { B::float_cast(tensor, dtype) }
}

fn cast_inputs<B: Backend>(inputs: RecurrentInputs<B>, dtype: FloatDType) -> RecurrentInputs<B> {
    let cast = |tensor: Option<FloatTensor<B>>| tensor.map(|tensor| cast::<B>(tensor, dtype));
    RecurrentInputs {
        source: cast(inputs.source),
        recurrent_weight: cast(inputs.recurrent_weight),
        input_weight: cast(inputs.input_weight),
        bias: cast(inputs.bias),
        init_state: cast(inputs.init_state),
        mask: cast(inputs.mask),
        secondary_bias: cast(inputs.secondary_bias),
        lengths: inputs.lengths,
    }
}

/// `size` entries from `start` along `dim`.
fn narrow<B: Backend>(tensor: FloatTensor<B>, dim: usize, start: usize, size: usize) -> FloatTensor<B> {
    let shape = tensor.shape();
    if shape[dim] == size {
        return tensor;
    }
    let slices: Vec<Slice> = (0..shape.num_dims())
        .map(|axis| if axis == dim { Slice::from(start..start + size) } else { Slice::from(0..shape[axis]) })
        .collect();
    B::float_slice(tensor, &slices)
}

/// Time step `step` of `[T, N, C]`, as `[N, C]`.
fn step_of<B: Backend>(tensor: FloatTensor<B>, step: usize) -> FloatTensor<B> {
    let shape = tensor.shape();
    B::float_reshape(narrow::<B>(tensor, 0, step, 1), Shape::from([shape[1], shape[2]]))
}

/// `[N, C]` for each step into `[T, N, C]`.
fn stack<B: Backend>(steps: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    let steps = steps
        .into_iter()
        .map(|step| {
            let shape = step.shape();
            B::float_reshape(step, Shape::from([1, shape[0], shape[1]]))
        })
        .collect();
    cat::<B>(steps, 0)
}

fn cat<B: Backend>(mut tensors: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tensors.len() {
        1 => tensors.remove(0),
        _ => B::float_cat(tensors, dim),
    }
}

/// Direction `direction` of the channel axis, the last one.
fn channels<B: Backend>(tensor: &FloatTensor<B>, direction: usize, size: usize) -> FloatTensor<B> {
    let dim = tensor.shape().num_dims() - 1;
    narrow::<B>(tensor.clone(), dim, direction * size, size)
}

/// The recurrent weight of one direction, `[GH, H]`.
fn direction_weight<B: Backend>(weight: &FloatTensor<B>, direction: usize, sizes: &Sizes) -> FloatTensor<B> {
    let weight = weight.clone();
    match weight.shape().num_dims() {
        2 => weight,
        _ => B::float_reshape(
            narrow::<B>(weight, 0, direction, 1),
            Shape::from([sizes.direction_gates(), sizes.hidden]),
        ),
    }
}

fn zeros<B: Backend, const D: usize>(shape: [usize; D], like: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_zeros(Shape::from(shape), &like.device(), float_dtype(like.dtype()))
}

fn float_dtype(dtype: DType) -> FloatDType {
    dtype.into()
}

/// Per row, whether a condition on its length holds; broadcast to `[N, C]`.
struct Rows<'a, B: Backend> {
    lengths: &'a Option<burn::backend::tensor::IntTensor<B>>,
}

impl<B: Backend> Rows<'_, B> {
    /// Rows that run step `step`; `None`: all.
    fn running(&self, step: usize, channels: usize) -> Option<BoolTensor<B>> {
        self.compare(channels, |lengths, dtype| B::int_greater_elem(lengths, (step as i64).into(), dtype))
    }

    /// Rows whose last step is `step`; `None` without lengths.
    fn ending(&self, step: usize, channels: usize) -> Option<BoolTensor<B>> {
        self.compare(channels, |lengths, dtype| B::int_equal_elem(lengths, (step as i64 + 1).into(), dtype))
    }

    fn compare(
        &self,
        channels: usize,
        compare: impl Fn(burn::backend::tensor::IntTensor<B>, burn::tensor::BoolDType) -> BoolTensor<B>,
    ) -> Option<BoolTensor<B>> {
        let lengths = self.lengths.as_ref()?.clone();
        let batch = lengths.shape()[0];
        let dtype = get_device_settings::<B>(&lengths.device()).bool_dtype;
        let rows = B::bool_reshape(compare(lengths, dtype), Shape::from([batch, 1]));
        Some(B::bool_expand(rows, Shape::from([batch, channels])))
    }
}

/// `then` where the row's condition holds, else `otherwise`.
fn select<B: Backend>(
    rows: &Option<BoolTensor<B>>,
    then: FloatTensor<B>,
    otherwise: FloatTensor<B>,
) -> FloatTensor<B> {
    match rows {
        Some(rows) => B::float_mask_where(otherwise, rows.clone(), then),
        None => then,
    }
}

/// `tensor` where the row's condition holds, else zero, even where it is NaN.
fn keep<B: Backend>(rows: &Option<BoolTensor<B>>, tensor: FloatTensor<B>) -> FloatTensor<B> {
    match rows {
        Some(rows) => B::float_mask_fill(tensor, B::bool_not(rows.clone()), 0f32.into()),
        None => tensor,
    }
}
