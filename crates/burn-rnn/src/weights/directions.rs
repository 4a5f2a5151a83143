//! The form that all frameworks' weights have in common: per direction two matrices and two biases.

use burn::tensor::Tensor;

use super::CellWeights;
use crate::{Cell, Error};

/// One direction of a layer, the gates in the rows' order of its cell.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    /// `[GH, I]`
    pub input_weight: Tensor<2>,
    /// `[GH, H]`
    pub recurrent_weight: Tensor<2>,
    /// `[GH]`, the bias beside the input product.
    pub input_bias: Option<Tensor<1>>,
    /// `[GH]`, the bias beside the recurrent product.
    pub recurrent_bias: Option<Tensor<1>>,
}

/// All directions of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Directions {
    pub cell: Cell,
    pub directions: Vec<Direction>,
}

/// How a conversion names the tensors of a direction in its errors.
pub(crate) struct Names {
    pub input_weight: String,
    pub recurrent_weight: String,
    pub input_bias: String,
    pub recurrent_bias: String,
}

impl Direction {
    /// Checks the shapes against each other and `gates`. The names of axes are those of the untransposed
    /// weights.
    pub fn check(&self, gates: usize, names: &Names) -> Result<(), Error> {
        let hidden = self.recurrent_weight.dims()[1];
        let features = self.input_weight.dims()[1];
        let rows = gates * hidden;
        let axis = if gates == 1 { "H".to_string() } else { format!("{gates}H") };
        if hidden == 0 || features == 0 {
            let name = if hidden == 0 { &names.recurrent_weight } else { &names.input_weight };
            return Err(weight_error(name, "must have at least one hidden unit and one input feature"));
        }
        check_shape(
            &names.recurrent_weight,
            &self.recurrent_weight,
            &format!("[{axis}, H]"),
            [rows, hidden],
        )?;
        check_shape(&names.input_weight, &self.input_weight, &format!("[{axis}, I]"), [rows, features])?;
        if let Some(bias) = &self.input_bias {
            check_shape(&names.input_bias, bias, &format!("[{axis}]"), [rows])?;
        }
        if let Some(bias) = &self.recurrent_bias {
            check_shape(&names.recurrent_bias, bias, &format!("[{axis}]"), [rows])?;
        }
        Ok(())
    }
}

/// The order of a GRU's gates in the rows of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateOrder {
    UpdateResetOutput,
    ResetUpdateOutput,
}

pub(crate) fn weight_error(tensor: &str, problem: impl Into<String>) -> Error {
    Error::Weight { tensor: tensor.into(), problem: problem.into() }
}

pub(crate) fn check_shape<const D: usize>(
    name: &str,
    tensor: &Tensor<D>,
    axes: &str,
    expected: [usize; D],
) -> Result<(), Error> {
    let got = tensor.dims();
    if got == expected {
        return Ok(());
    }
    Err(weight_error(name, format!("must have the shape {axes} = {expected:?}, got {got:?}")))
}

impl Directions {
    /// The functional operations' form: biases that are added anyway become one.
    pub fn into_cell_weights(self) -> CellWeights {
        todo!()
    }
}
