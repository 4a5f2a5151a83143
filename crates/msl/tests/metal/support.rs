//! Conformance cases run through the kernels' own interface, on a device that runs their MSL.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use burn::tensor::{DType, TensorData};
use burn_rnn::Cell as Described;
use cube_rnn::{
    Activation, BackwardInputs, BackwardOutputs, Cell, EnteredInputs, EnteredOutputs, ForwardInputs,
    ForwardOutputs, Gru, Kind as CellKind, Options, Sizes, Strategy, backward, entered, forward,
};
use cubecl::{
    client::Client,
    ir::{ElemType, FloatKind},
    server::Handle,
};
use rnn_conformance::{Case, Kind, Tolerance};
use rnn_msl::{
    clang::Clang,
    server::{Device, Engine},
    stand_in::StandIn,
    text::Form,
};

/// A case of the repository.
pub fn case(name: &str) -> Case {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cases");
    Case::read(&folder.join(format!("{name}.safetensors"))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A way to run cases.
#[derive(Clone, Copy)]
pub struct Way {
    pub form: Form,
    pub dtype: DType,
    pub options: Options,
    /// Cores of the GPU, if it tells: with few of them, threadgroups take several rows.
    pub cores: Option<u32>,
    /// Whether the compiler may do what Apple's does by default.
    pub fast_math: bool,
}

impl Way {
    /// CubeCL's MSL in f32 with this strategy.
    pub fn new(strategy: Strategy) -> Self {
        Self { form: Form::Msl, dtype: DType::F32, options: strategy.into(), cores: None, fast_math: false }
    }

    /// An engine for this form of the text.
    pub fn stand_in(&self) -> StandIn {
        static CLANG: OnceLock<Result<Clang, String>> = OnceLock::new();
        let clang = CLANG.get_or_init(Clang::find).clone();
        let clang = clang.map(|clang| if self.fast_math { clang.with_fast_math() } else { clang });
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rnn-msl");
        clang
            .and_then(|clang| StandIn::new(clang, &folder, self.form))
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Runs a case forward and backward, and says what is wrong.
pub fn run(case: &Case, way: Way, engine: impl Engine + 'static) -> Result<(), String> {
    let Kind::Op(op) = case.kind() else { return Err("not a case of the operations".into()) };
    let device = Device::with_cores(way.cores, &[way.form], Some(Box::new(engine)));
    let dtype = way.dtype;
    let results = Run::new(case, op.cell, dtype, &device.client).results(way.options);
    if let Some(failure) = device.failure() {
        return Err(failure);
    }
    let tolerance = Tolerance::new(dtype, case.is_from_float32_peer()).expect("a float type");
    let mut wrong = Vec::new();
    for (name, expected) in case.expected() {
        let Some(result) = results.iter().find(|(result, _)| result == name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let shape: Vec<usize> = expected.shape().iter().copied().collect();
        let data = TensorData::new(result.1.clone(), shape).convert_dtype(dtype);
        if let Some(mismatch) = tolerance.compare(&data, expected, dtype) {
            wrong.push(format!("{name} {mismatch}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// A matrix on the host.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, values: Vec<f64>) -> Self {
        assert_eq!(rows * columns, values.len());
        Self { rows, columns, values }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    fn from_fn(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| value(at / columns, at % columns)).collect();
        Self { rows, columns, values }
    }

    fn transposed(&self) -> Self {
        Self::from_fn(self.columns, self.rows, |row, column| self.at(column, row))
    }

    fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows);
        Self::from_fn(self.rows, other.columns, |row, column| {
            (0..self.columns).map(|at| self.at(row, at) * other.at(at, column)).sum()
        })
    }

    fn narrowed(&self, columns: std::ops::Range<usize>) -> Self {
        Self::from_fn(self.rows, columns.len(), |row, column| self.at(row, columns.start + column))
    }

    fn sums(&self) -> Vec<f64> {
        (0..self.columns).map(|column| (0..self.rows).map(|row| self.at(row, column)).sum()).collect()
    }
}

/// A case on a device.
struct Run<'a> {
    case: &'a Case,
    cell: Cell,
    sizes: Sizes,
    dtype: DType,
    client: &'a Client,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, cell: Described, dtype: DType, client: &'a Client) -> Self {
        let source = &case.inputs()["source"].shape();
        let weight = &case.inputs()["recurrent_weight"].shape();
        let hidden = *weight.iter().last().expect("a weight has axes");
        let sizes = Sizes { steps: source[0], batch: source[1], hidden };
        Self { case, cell: kernel_cell(&cell), sizes, dtype, client }
    }

    /// An input rounded to the element type.
    fn input(&self, name: &str) -> Option<Vec<f64>> {
        Some(self.case.inputs().get(name)?.clone().convert_dtype(self.dtype).iter::<f64>().collect())
    }

    fn upload(&self, values: &[f64]) -> Handle {
        let data = TensorData::new(values.to_vec(), [values.len()]).convert_dtype(self.dtype);
        self.client.create_from_slice(data.as_bytes())
    }

    fn uploaded(&self, name: &str) -> Option<Handle> {
        self.input(name).map(|values| self.upload(&values))
    }

    fn empty(&self, length: usize) -> Handle {
        self.client.empty(self.elem().size() * length)
    }

    fn elem(&self) -> ElemType {
        ElemType::Float(match self.dtype {
            DType::F16 => FloatKind::F16,
            DType::BF16 => FloatKind::BF16,
            _ => FloatKind::F32,
        })
    }

    fn read(&self, handle: Handle, length: usize) -> Vec<f64> {
        // What went wrong is in the device's record.
        let Ok(bytes) = self.client.read_one(handle) else { return vec![f64::NAN; length] };
        TensorData::from_bytes_vec(bytes.to_vec(), [length], self.dtype).iter::<f64>().collect()
    }

    /// The outputs and gradients by their names in the case.
    fn results(&self, options: Options) -> Vec<(String, Vec<f64>)> {
        let Sizes { steps, batch, hidden } = self.sizes;
        let cell = self.cell;
        let directions = cell.directions();
        let (state, direction_gates) = (directions * hidden, cell.gates() * hidden);
        let gates = directions * direction_gates;
        let rows = steps * batch;
        let is_gru = matches!(cell.kind, CellKind::Gru(_));
        let reset_after = matches!(cell.kind, CellKind::Gru(gru) if gru.reset_after);
        let elem = self.elem();

        let source = self.input("source").expect("checked when the case was read");
        let source = Matrix::new(rows, source.len() / rows, source);
        let input_weight =
            self.input("input_weight").map(|weight| Matrix::new(gates, source.columns, weight));
        let projected = match &input_weight {
            Some(weight) => source.times(&weight.transposed()),
            None => source.clone(),
        };
        let weights = self.input("recurrent_weight").expect("checked when the case was read");
        let weights: Vec<Matrix> = weights
            .chunks(direction_gates * hidden)
            .map(|weight| Matrix::new(direction_gates, hidden, weight.to_vec()))
            .collect();
        let all = |weights: Vec<Matrix>| -> Vec<f64> {
            weights.into_iter().flat_map(|weight| weight.values).collect()
        };

        let init_state = self.uploaded("init_state");
        let secondary_bias = self.uploaded("secondary_bias");
        let mask = self.uploaded("mask");
        let mask_steps = self.case.inputs().get("mask").is_some_and(|mask| mask.rank() == 3);
        let lengths = self.case.inputs().get("lengths").map(|lengths| {
            self.client.create_from_slice(lengths.clone().convert_dtype(DType::I32).as_bytes())
        });
        let output = self.empty(rows * state);
        let final_state = self.empty(batch * state);
        let z_state = self.empty(rows * gates);
        forward(
            self.client,
            cell,
            self.sizes,
            ForwardInputs {
                projected: self.upload(&projected.values),
                recurrent_weight: self.upload(&all(weights.iter().map(Matrix::transposed).collect())),
                bias: self.uploaded("bias"),
                secondary_bias: secondary_bias.clone(),
                init_state: init_state.clone(),
                mask: mask.clone(),
                mask_steps,
                lengths: lengths.clone(),
            },
            ForwardOutputs {
                output: output.clone(),
                final_state: final_state.clone(),
                z_state: Some(z_state.clone()),
            },
            elem,
            options,
        );

        let masked = self.empty(rows * state);
        let reset = (is_gru && !reset_after).then(|| self.empty(rows * state));
        entered(
            self.client,
            cell,
            self.sizes,
            &EnteredInputs {
                z_state: z_state.clone(),
                output: is_gru.then(|| output.clone()),
                init_state: init_state.clone(),
                mask: mask.clone(),
                mask_steps,
                lengths: lengths.clone(),
            },
            &EnteredOutputs { masked: masked.clone(), reset: reset.clone() },
            elem,
        );
        let masked = Matrix::new(rows, state, self.read(masked, rows * state));
        let reset = reset.map(|reset| Matrix::new(rows, state, self.read(reset, rows * state)));
        let of_direction = |matrix: &Matrix, direction: usize| {
            let width = matrix.columns / directions;
            matrix.narrowed(direction * width..(direction + 1) * width)
        };
        let candidate_product = reset_after.then(|| {
            let products: Vec<Matrix> = (0..directions)
                .map(|direction| {
                    let weight = &weights[direction];
                    let output_gate =
                        Matrix::from_fn(hidden, hidden, |unit, from| weight.at(2 * hidden + unit, from));
                    of_direction(&masked, direction).times(&output_gate.transposed())
                })
                .collect();
            let product = Matrix::from_fn(rows, state, |row, channel| {
                products[channel / hidden].at(row, channel % hidden)
            });
            self.upload(&product.values)
        });

        let gate_gradients = self.empty(rows * gates);
        let candidate_gradients = reset_after.then(|| self.empty(rows * state));
        let init_gradient = init_state.is_some().then(|| self.empty(batch * state));
        backward(
            self.client,
            cell,
            self.sizes,
            BackwardInputs {
                z_state,
                recurrent_weight: self.upload(&all(weights)),
                output: is_gru.then(|| output.clone()),
                candidate: candidate_product,
                secondary_bias,
                init_state,
                mask,
                mask_steps,
                lengths,
                output_gradient: self.uploaded("output_gradient"),
                state_gradient: self.uploaded("state_gradient"),
            },
            BackwardOutputs {
                gates: gate_gradients.clone(),
                candidate: candidate_gradients.clone(),
                init_state: init_gradient.clone(),
            },
            elem,
            options,
        );

        let gate_gradients = Matrix::new(rows, gates, self.read(gate_gradients, rows * gates));
        let candidate_gradients =
            candidate_gradients.map(|gradients| Matrix::new(rows, state, self.read(gradients, rows * state)));
        let recurrent_gradient: Vec<f64> = (0..directions)
            .flat_map(|direction| {
                let gradients = of_direction(&gate_gradients, direction);
                let masked = of_direction(&masked, direction);
                let product =
                    |gradients: Matrix, entered: &Matrix| gradients.transposed().times(entered).values;
                if !is_gru {
                    return product(gradients, &masked);
                }
                let mut gradient = product(gradients.narrowed(0..2 * hidden), &masked);
                gradient.extend(match (&candidate_gradients, &reset) {
                    (Some(candidate), _) => product(of_direction(candidate, direction), &masked),
                    (None, Some(reset)) => {
                        let of_output = gradients.narrowed(2 * hidden..3 * hidden);
                        product(of_output, &of_direction(reset, direction))
                    }
                    (None, None) => unreachable!("a GRU has one of them"),
                });
                gradient
            })
            .collect();
        let mut results = vec![
            ("output", self.read(output, rows * state)),
            ("final_state", self.read(final_state, batch * state)),
            ("grad.bias", gate_gradients.sums()),
            ("grad.recurrent_weight", recurrent_gradient),
        ];
        if let Some(gradient) = init_gradient {
            results.push(("grad.init_state", self.read(gradient, batch * state)));
        }
        if let Some(gradients) = candidate_gradients {
            results.push(("grad.secondary_bias", gradients.sums()));
        }
        match input_weight {
            Some(weight) => {
                results.push(("grad.source", gate_gradients.times(&weight).values));
                results.push(("grad.input_weight", gate_gradients.transposed().times(&source).values));
            }
            None => results.push(("grad.source", gate_gradients.values)),
        }
        results.into_iter().map(|(name, values)| (name.to_string(), values)).collect()
    }
}

fn kernel_cell(cell: &Described) -> Cell {
    let kind = match cell {
        Described::Gru(gru) => CellKind::Gru(Gru {
            reset_gate_first: gru.reset_gate_first,
            reset_after: gru.reset_after,
            flip_z: gru.flip_z,
            update_gate_activation: kernel_activation(gru.update_gate_activation),
            reset_gate_activation: kernel_activation(gru.reset_gate_activation),
            output_gate_activation: kernel_activation(gru.output_gate_activation),
        }),
        Described::SingleGate(rnn) => CellKind::SingleGate(kernel_activation(rnn.activation)),
    };
    Cell {
        kind,
        reverse: cell.walks_backwards(0),
        bidirectional: cell.bidirectional(),
        clip: cell.clip().map(Into::into),
    }
}

fn kernel_activation(activation: burn_rnn::Activation) -> Activation {
    match activation {
        burn_rnn::Activation::None => Activation::None,
        burn_rnn::Activation::Relu => Activation::Relu,
        burn_rnn::Activation::Tanh => Activation::Tanh,
        burn_rnn::Activation::Sigmoid => Activation::Sigmoid,
        burn_rnn::Activation::HardSigmoid { alpha, beta } => {
            Activation::HardSigmoid { alpha: alpha.into(), beta: beta.into() }
        }
    }
}
