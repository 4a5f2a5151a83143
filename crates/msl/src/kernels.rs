//! Every kernel that the crate can launch: each strategy, cell, element type and option that changes the text.
//!
//! Sizes are part of a kernel's text, so there is no end of them. Those here are chosen so that each way to lay
//! out a problem comes up: weights in registers and streamed, hidden units that divide evenly among threads and that
//! don't, one to eight batch rows a threadgroup.

use cube_rnn::{
    Activation, BackwardInputs, BackwardOutputs, Cell, Constant, EnteredInputs, EnteredOutputs,
    ForwardInputs, ForwardOutputs, Gru, Kind, Sizes, Strategy, backward, entered, forward,
};
use cubecl::{
    client::Client,
    ir::{ElemType, FloatKind},
    server::Handle,
};

/// Optional inputs of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// `bias`
    pub bias: bool,
    /// `secondary_bias`, where the cell has one.
    pub secondary_bias: bool,
    /// `init_state`
    pub init_state: bool,
    /// `mask`
    pub mask: bool,
    /// Whether the mask has a time axis.
    pub mask_steps: bool,
    /// `lengths`
    pub lengths: bool,
    /// The gradient of the output.
    pub output_gradient: bool,
    /// The gradient of the final state.
    pub state_gradient: bool,
}

/// A problem whose kernels are of interest.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What is special about it, for file names.
    pub name: String,
    /// The cell.
    pub cell: Cell,
    /// The sizes.
    pub sizes: Sizes,
    /// The element type.
    pub dtype: FloatKind,
    /// The strategy.
    pub strategy: Strategy,
    /// What is given.
    pub inputs: Inputs,
    /// Whether the forward pass keeps the training state.
    pub training: bool,
}

/// The strategies that come up on Apple's GPUs; [`Strategy::Auto`] is one of them, and [`Strategy::Grid`] falls
/// back to [`Strategy::Steps`] where threadgroups would wait for each other.
pub const STRATEGIES: [(&str, Strategy); 2] = [("cube", Strategy::Cube), ("steps", Strategy::Steps)];

/// The element types.
pub const TYPES: [(&str, FloatKind); 3] =
    [("f32", FloatKind::F32), ("f16", FloatKind::F16), ("bf16", FloatKind::BF16)];

/// A GRU with the defaults of MPSGraph.
pub const GRU: Gru = Gru {
    reset_gate_first: false,
    reset_after: false,
    flip_z: false,
    update_gate_activation: Activation::Sigmoid,
    reset_gate_activation: Activation::Sigmoid,
    output_gate_activation: Activation::Tanh,
};

const ALL_INPUTS: Inputs = Inputs {
    bias: true,
    secondary_bias: true,
    init_state: true,
    mask: true,
    mask_steps: false,
    lengths: true,
    output_gradient: true,
    state_gradient: true,
};

/// All problems.
pub fn problems() -> Vec<Problem> {
    let plain = |kind| Cell { kind, reverse: false, bidirectional: false, clip: None };
    let cells = [
        ("gru", plain(Kind::Gru(GRU))),
        ("gru-after", plain(Kind::Gru(Gru { reset_after: true, ..GRU }))),
        ("rnn", plain(Kind::SingleGate(Activation::Tanh))),
    ];
    let sizes = [(1, 1), (3, 5), (70, 64), (200, 130), (600, 33), (2, 257), (40, 520), (1, 1030)];
    let mut problems = Vec::new();
    for (cell_name, cell) in cells {
        for (strategy_name, strategy) in STRATEGIES {
            let problem = |what: &str, (batch, hidden), (type_name, dtype)| Problem {
                name: format!("{cell_name}.{strategy_name}.{type_name}.n{batch}h{hidden}{what}"),
                cell,
                sizes: Sizes { steps: 3, batch, hidden },
                dtype,
                strategy,
                inputs: ALL_INPUTS,
                training: true,
            };
            for dtype in TYPES {
                problems.extend(sizes.map(|sizes| problem("", sizes, dtype)));
            }
            let small = |what: &str| problem(&format!(".{what}"), (3, 5), TYPES[0]);
            problems.extend(variants(cell).into_iter().map(|(what, cell)| Problem { cell, ..small(&what) }));
            problems.extend(input_variants().map(|(what, inputs)| Problem { inputs, ..small(what) }));
            problems.push(Problem { training: false, ..small("inference") });
        }
    }
    problems
}

/// The cell with one option changed at a time.
fn variants(cell: Cell) -> Vec<(String, Cell)> {
    let hard_sigmoid = Activation::HardSigmoid { alpha: Constant::from(0.2), beta: Constant::from(0.5) };
    let activations = [
        ("none", Activation::None),
        ("relu", Activation::Relu),
        ("tanh", Activation::Tanh),
        ("sigmoid", Activation::Sigmoid),
        ("hard-sigmoid", hard_sigmoid),
    ];
    let mut variants = vec![
        ("reverse".into(), Cell { reverse: true, ..cell }),
        ("bidirectional".into(), Cell { bidirectional: true, ..cell }),
        ("clip".into(), Cell { clip: Some(Constant::from(0.5)), ..cell }),
    ];
    match cell.kind {
        Kind::SingleGate(_) => variants.extend(activations.map(|(name, activation)| {
            (name.to_string(), Cell { kind: Kind::SingleGate(activation), ..cell })
        })),
        Kind::Gru(gru) => {
            let mut push = |what: String, gru| variants.push((what, Cell { kind: Kind::Gru(gru), ..cell }));
            push("flip-z".into(), Gru { flip_z: true, ..gru });
            push("reset-gate-first".into(), Gru { reset_gate_first: true, ..gru });
            for (name, activation) in activations {
                push(format!("update-{name}"), Gru { update_gate_activation: activation, ..gru });
                push(format!("reset-{name}"), Gru { reset_gate_activation: activation, ..gru });
                push(format!("output-{name}"), Gru { output_gate_activation: activation, ..gru });
            }
        }
    }
    variants
}

/// One input left out at a time, and the mask with a time axis.
fn input_variants() -> impl Iterator<Item = (&'static str, Inputs)> {
    [
        ("no-bias", Inputs { bias: false, ..ALL_INPUTS }),
        ("no-secondary-bias", Inputs { secondary_bias: false, ..ALL_INPUTS }),
        ("no-init-state", Inputs { init_state: false, ..ALL_INPUTS }),
        ("no-mask", Inputs { mask: false, ..ALL_INPUTS }),
        ("mask-steps", Inputs { mask_steps: true, ..ALL_INPUTS }),
        ("no-lengths", Inputs { lengths: false, ..ALL_INPUTS }),
        ("no-output-gradient", Inputs { output_gradient: false, ..ALL_INPUTS }),
        ("no-state-gradient", Inputs { state_gradient: false, ..ALL_INPUTS }),
    ]
    .into_iter()
}

impl Problem {
    /// Launches the problem's kernels, forward and backward, on buffers without content.
    pub fn launch(&self, client: &Client) {
        let Sizes { steps, batch, hidden } = self.sizes;
        let (cell, given) = (self.cell, self.inputs);
        let dtype = ElemType::Float(self.dtype);
        let size = dtype.size();
        let reset_after = matches!(cell.kind, Kind::Gru(gru) if gru.reset_after);
        let is_gru = matches!(cell.kind, Kind::Gru(_));
        let channels = cell.directions() * hidden;
        let gates = cell.gates() * channels;
        let buffer = |length: usize| client.empty(size * length);
        let optional = |given: bool, length: usize| given.then(|| buffer(length));
        let mask_rows = if given.mask_steps { steps * batch } else { batch };
        let mask = optional(given.mask, mask_rows * channels);
        let mask_steps = given.mask && given.mask_steps;
        let lengths: Option<Handle> = given.lengths.then(|| client.empty(4 * batch));
        let secondary_bias = optional(given.secondary_bias && reset_after, channels);
        let init_state = optional(given.init_state, batch * channels);
        let output = buffer(steps * batch * channels);
        let z_state = buffer(steps * batch * gates);
        let weight = buffer(gates * hidden);
        forward(
            client,
            cell,
            self.sizes,
            ForwardInputs {
                projected: buffer(steps * batch * gates),
                recurrent_weight: weight.clone(),
                bias: optional(given.bias, gates),
                secondary_bias: secondary_bias.clone(),
                init_state: init_state.clone(),
                mask: mask.clone(),
                mask_steps,
                lengths: lengths.clone(),
            },
            ForwardOutputs {
                output: output.clone(),
                final_state: buffer(batch * channels),
                z_state: self.training.then(|| z_state.clone()),
            },
            dtype,
            self.strategy,
        );
        if !self.training {
            return;
        }
        let masked = buffer(steps * batch * channels);
        entered(
            client,
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
            &EnteredOutputs {
                masked: masked.clone(),
                reset: optional(is_gru && !reset_after, steps * batch * channels),
            },
            dtype,
        );
        backward(
            client,
            cell,
            self.sizes,
            BackwardInputs {
                z_state,
                recurrent_weight: weight,
                output: is_gru.then_some(output),
                candidate: reset_after.then_some(masked),
                secondary_bias,
                init_state: init_state.clone(),
                mask,
                mask_steps,
                lengths,
                output_gradient: optional(given.output_gradient, steps * batch * channels),
                state_gradient: optional(given.state_gradient, batch * channels),
            },
            BackwardOutputs {
                gates: buffer(steps * batch * gates),
                candidate: optional(reset_after, steps * batch * channels),
                init_state: optional(given.init_state, batch * channels),
            },
            dtype,
            self.strategy,
        );
    }
}
