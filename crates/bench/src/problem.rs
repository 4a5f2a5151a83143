//! What is run: a cell, its sizes, and the numbers that go in.

use burn::tensor::DType;
use half::{bf16, f16};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// The recurrent cells that are timed, each as cuDNN, PyTorch and ONNX Runtime compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// A GRU with the reset gate after the recurrent product.
    Gru,
    /// A single-gate RNN with tanh.
    Rnn,
}

impl Cell {
    /// Gates, hence the factor of `H` in the weights.
    pub fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Rnn => 1,
        }
    }

    /// Its name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gru => "gru",
            Self::Rnn => "rnn",
        }
    }
}

/// The element types that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 16-bit brain floats.
    Bf16,
}

impl Precision {
    /// The type as Burn names it.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }

    /// Its name in files, which is PyTorch's.
    pub fn long_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The largest finite value.
    pub fn max(self) -> f64 {
        match self {
            Self::F32 => f32::MAX.into(),
            Self::F16 => f16::MAX.into(),
            Self::Bf16 => bf16::MAX.into(),
        }
    }

    /// The nearest value of this type.
    fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::F16 => f16::from_f32(value).into(),
            Self::Bf16 => bf16::from_f32(value).into(),
        }
    }
}

/// The sizes of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Batch rows.
    pub n: usize,
    /// Time steps.
    pub t: usize,
    /// Input features.
    pub i: usize,
    /// Hidden units.
    pub h: usize,
}

impl Shape {
    const fn new(n: usize, t: usize, i: usize, h: usize) -> Self {
        Self { n, t, i, h }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "N{} T{} I{} H{}", self.n, self.t, self.i, self.h)
    }
}

impl std::str::FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Vec<usize> =
            text.split(',').map(|size| size.trim().parse()).collect::<Result<_, _>>().unwrap_or_default();
        match sizes[..] {
            [n, t, i, h] if sizes.iter().all(|&size| size > 0) => Ok(Self { n, t, i, h }),
            _ => {
                Err(format!("a shape is four numbers from 1 up, N,T,I,H, as in 16,128,64,128; got `{text}`"))
            }
        }
    }
}

/// A list of shapes with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// Ten shapes for a GPU, from one row to 512 and from 64 hidden units to 1024.
    Grid,
    /// Six shapes for a CPU.
    Cpu,
}

impl Set {
    /// Its shapes.
    pub fn shapes(self) -> &'static [Shape] {
        const GRID: [Shape; 10] = [
            Shape::new(1, 1000, 256, 256),
            Shape::new(16, 128, 64, 128),
            Shape::new(64, 128, 128, 128),
            Shape::new(64, 128, 256, 256),
            Shape::new(64, 256, 512, 512),
            Shape::new(32, 512, 1024, 1024),
            Shape::new(128, 128, 1024, 1024),
            Shape::new(256, 64, 256, 256),
            Shape::new(16, 1024, 64, 64),
            Shape::new(512, 128, 128, 128),
        ];
        const CPU: [Shape; 6] = [
            Shape::new(1, 100, 64, 64),
            Shape::new(1, 1000, 256, 256),
            Shape::new(16, 128, 64, 128),
            Shape::new(64, 64, 128, 256),
            Shape::new(32, 64, 512, 512),
            Shape::new(256, 32, 128, 128),
        ];
        match self {
            Self::Grid => &GRID,
            Self::Cpu => &CPU,
        }
    }
}

/// A cell with its inputs and weights. All values are exact in the element type they are used in.
pub struct Problem {
    /// The cell.
    pub cell: Cell,
    /// The sizes.
    pub shape: Shape,
    /// Whether a second cell walks the sequence from its end.
    pub bidirectional: bool,
    /// The element type of every tensor.
    pub precision: Precision,
    /// `[T, N, I]`
    pub source: Vec<f32>,
    /// `[D, GH, H]`; the gates of a GRU are ordered r, z, n.
    pub recurrent_weight: Vec<f32>,
    /// `[D·GH, I]`
    pub input_weight: Vec<f32>,
    /// `[D·GH]`
    pub bias: Vec<f32>,
    /// `[D·H]`, inside the reset gate; empty for a single-gate RNN.
    pub secondary_bias: Vec<f32>,
}

impl Problem {
    /// Draws the numbers: inputs of variance 1, weights as PyTorch initialises them, uniform in ±1/√H.
    pub fn new(cell: Cell, shape: Shape, bidirectional: bool, precision: Precision) -> Self {
        let Shape { n, t, i, h } = shape;
        let directions = 1 + bidirectional as usize;
        let gates = directions * cell.gates() * h;
        let mut random = StdRng::seed_from_u64(7);
        let mut uniform = |length: usize, bound: f32| -> Vec<f32> {
            (0..length).map(|_| precision.round(random.random_range(-bound..=bound))).collect()
        };
        let bound = 1.0 / (h as f32).sqrt();
        Self {
            cell,
            shape,
            bidirectional,
            precision,
            source: uniform(t * n * i, 3f32.sqrt()),
            recurrent_weight: uniform(gates * h, bound),
            input_weight: uniform(gates * i, bound),
            bias: uniform(gates, bound),
            secondary_bias: match cell {
                Cell::Gru => uniform(directions * h, bound),
                Cell::Rnn => Vec::new(),
            },
        }
    }

    /// Directions: 2 if bidirectional, else 1.
    pub fn directions(&self) -> usize {
        1 + self.bidirectional as usize
    }

    /// Bytes of the inputs and weights.
    pub fn bytes(&self) -> u64 {
        let elements = self.source.len()
            + self.recurrent_weight.len()
            + self.input_weight.len()
            + self.bias.len()
            + self.secondary_bias.len();
        (elements * self.precision.bytes()) as u64
    }

    /// Floating-point operations of the forward pass: a multiplication and an addition for each weight, row
    /// and step. Biases and activations are not counted.
    pub fn forward_flops(&self) -> f64 {
        let Shape { n, t, i, h } = self.shape;
        2.0 * (self.directions() * self.cell.gates() * h) as f64 * (i + h) as f64 * (n * t) as f64
    }

    /// Floating-point operations of forward and backward: each forward product has two of its size in the
    /// backward pass, one for each of its factors. What an implementation recomputes is not counted.
    pub fn train_flops(&self) -> f64 {
        3.0 * self.forward_flops()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_four_numbers_from_one_up() {
        assert_eq!("16, 128,64,128".parse(), Ok(Shape::new(16, 128, 64, 128)));
        for text in ["", "1,2,3", "1,2,3,4,5", "1,2,0,4", "1,2,x,4", "1,2,-3,4"] {
            let error = text.parse::<Shape>().unwrap_err();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn the_numbers_are_the_same_each_time_and_exact_in_their_type() {
        let shape = Shape::new(2, 3, 4, 5);
        for precision in [Precision::F16, Precision::Bf16] {
            let problem = Problem::new(Cell::Gru, shape, true, precision);
            let again = Problem::new(Cell::Gru, shape, true, precision);
            assert_eq!(problem.source, again.source);
            assert_eq!(problem.recurrent_weight.len(), 2 * 15 * 5);
            for &value in problem.source.iter().chain(&problem.input_weight) {
                assert_eq!(precision.round(value), value);
            }
        }
    }

    #[test]
    fn operations_count_every_weight_once_a_row_and_step() {
        let shape = Shape::new(2, 3, 4, 5);
        let flops = |cell, both| Problem::new(cell, shape, both, Precision::F32).forward_flops();
        // 2 for a multiply-add, 6 rows and steps, 15 rows of weights of 4 + 5.
        assert_eq!(flops(Cell::Gru, false), 2.0 * 6.0 * 15.0 * 9.0);
        assert_eq!(flops(Cell::Gru, true), 2.0 * flops(Cell::Gru, false));
        assert_eq!(flops(Cell::Rnn, false), flops(Cell::Gru, false) / 3.0);
    }
}
