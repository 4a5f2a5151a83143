//! How a problem is laid out on a device: the kernels' constants.

use crate::{Cell, product::Product};

/// Sizes of a problem. `T` steps, `N` batch rows, `H` hidden units of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Time steps, `T`.
    pub steps: usize,
    /// Batch rows, `N`.
    pub batch: usize,
    /// Hidden units of one direction, `H`.
    pub hidden: usize,
}

/// What a launch does of a step.
///
/// Without `reset_after` the output gate's product needs the reset gate of every unit. Where one cube has all
/// units that is a barrier; where several share them it ends the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The whole step.
    Whole,
    /// Up to the exchange between the two products.
    First,
    /// From there.
    Second,
}

/// Constants of a recurrent kernel: each makes a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub cell: Cell,
    pub hidden: usize,
    /// Batch rows of a cube.
    pub rows: usize,
    /// Hidden units of a cube.
    pub units: usize,
    /// Units of the cube that share a hidden unit.
    pub split: usize,
    /// Hidden units in whose products a unit of the cube has a share; more than one only with `split` and if
    /// `resident`.
    pub columns: usize,
    /// Keeps the recurrent weight in registers.
    pub resident: bool,
    /// How many tiles of `rows` batch rows the cube takes in turn within a step.
    pub tiles: usize,
    /// Several cubes share the hidden units of a row and exchange states through global memory.
    pub exchange: bool,
    /// They meet within a launch, instead of a launch for each step.
    pub meets: bool,
    /// Terms of the product held in shared memory at once.
    pub chunk: usize,
    pub phase: Phase,
    /// Whether the mask has a time axis.
    pub mask_steps: bool,
}

impl Plan {
    /// Vectors of a product's factors that a unit has under way at the same time: loading one takes hundreds of
    /// cycles where another cube wrote it.
    pub fn loads(&self) -> usize {
        self.vectors().div_ceil(self.cube_units()).min(8 / self.width())
    }

    /// Batch rows whose factors make a vector: as many as the widest load has numbers.
    pub fn width(&self) -> usize {
        self.rows.min(4)
    }

    /// Vectors of factors in shared memory.
    pub fn vectors(&self) -> usize {
        self.rows / self.width() * self.chunk
    }

    /// Units of the cube.
    pub fn cube_units(&self) -> usize {
        self.lanes() * self.split
    }

    /// Units of the cube side by side, each with its columns.
    pub fn lanes(&self) -> usize {
        self.units / self.columns
    }

    /// Rows of a hidden unit that one unit of the cube finishes: a whole vector where that is stored at once in
    /// shared memory, else one, so that all units have work.
    pub fn together(&self) -> usize {
        if self.exchange { 1 } else { self.width() }
    }

    /// Gates whose gradients enter the backward product.
    pub fn passed_gates(&self) -> usize {
        self.cell.gates() - self.cell.two_phase() as usize
    }

    /// Whether units keep from step to step what they finished.
    pub fn carries(&self) -> bool {
        !self.exchange || self.meets && self.tiles == 1
    }

    /// Channels of the state, `D·H`.
    pub fn state(&self) -> usize {
        self.cell.directions() * self.hidden
    }

    /// Channels of the gates, `D·GH`.
    pub fn gates(&self) -> usize {
        self.cell.gates() * self.state()
    }

    /// `GH`
    pub fn direction_gates(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Position of the reset gate; a single-gate RNN has none.
    pub fn reset_gate(&self) -> usize {
        match self.cell.kind {
            crate::Kind::Gru(gru) => gru.reset_gate(),
            crate::Kind::SingleGate(_) => 0,
        }
    }

    /// A product that only exists in two phases: otherwise its weight is not kept.
    pub fn only_in_two_phases(&self, product: Product) -> Product {
        Product { resident: product.resident && self.cell.two_phase(), ..product }
    }

    fn product(&self, depth: usize, outputs: usize, output_stride: usize, row_stride: usize) -> Product {
        Product {
            rows: self.rows,
            width: self.width(),
            together: self.together(),
            units: self.units,
            hidden: self.hidden,
            split: self.split,
            columns: self.columns,
            depth,
            outputs,
            output_stride,
            row_stride,
            resident: self.resident,
        }
    }

    /// The forward product over the state, of all gates or, in two phases, of all but the output gate.
    pub fn forward_product(&self) -> Product {
        let outputs = self.cell.gates() - self.cell.two_phase() as usize;
        self.product(self.hidden, outputs, self.hidden, self.direction_gates())
    }

    /// The forward product of the output gate, in two phases.
    pub fn candidate_product(&self) -> Product {
        self.product(self.hidden, 1, self.hidden, self.direction_gates())
    }

    /// The backward product over the gates' gradients, of all gates or, in two phases, of all but the output
    /// gate.
    pub fn backward_product(&self) -> Product {
        self.product(self.passed_gates() * self.hidden, 1, 0, self.hidden)
    }

    /// The backward product over the output gate's gradient, in two phases.
    pub fn backward_candidate_product(&self) -> Product {
        self.product(self.hidden, 1, 0, self.hidden)
    }
}
