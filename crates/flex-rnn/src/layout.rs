//! How hidden units are grouped for the kernels, and what both passes share.

use std::{mem::MaybeUninit, ops::Range};

use crate::{
    Cell, Inputs, Mask, Problem,
    element::Arithmetic,
    kernels::{Act, Gates, Kernels, WIDEST},
    pack::Rows,
};

/// Below this many multiplications and additions a call is not worth waking threads for.
const PARALLEL: usize = 1 << 22;

/// Hidden units in blocks: one vector of units with all gates for a GRU, two vectors for a single-gate RNN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub hidden: usize,
    pub lanes: usize,
    /// Blocks that hold all units.
    pub count: usize,
    /// Vectors of units in a block.
    pub vectors: usize,
}

impl Blocks {
    pub fn new(problem: &Problem, lanes: usize) -> Self {
        let vectors = match problem.cell {
            Cell::Gru(_) => 1,
            Cell::SingleGate(_) => 2,
        };
        Self { hidden: problem.hidden, lanes, count: problem.hidden.div_ceil(vectors * lanes), vectors }
    }

    /// Units of a block, existing or not.
    pub fn units(&self) -> usize {
        self.vectors * self.lanes
    }

    /// Units with the last block's padding.
    pub fn padded(&self) -> usize {
        self.count * self.units()
    }

    /// A vector's first unit.
    pub fn unit(&self, block: usize, vector: usize) -> usize {
        block * self.units() + vector * self.lanes
    }

    /// How many units of a vector exist.
    pub fn valid(&self, block: usize, vector: usize) -> usize {
        self.hidden.saturating_sub(self.unit(block, vector)).min(self.lanes)
    }

    /// The existing units of some blocks.
    pub fn range(&self, blocks: &Range<usize>) -> Range<usize> {
        self.hidden.min(blocks.start * self.units())..self.hidden.min(blocks.end * self.units())
    }

    /// The rows of a weight that each vector of each block stands for: for every block those of the gates at
    /// `positions`, or those of its vectors of units.
    pub fn rows(&self, positions: &[usize]) -> Vec<Rows> {
        let mut rows = Vec::new();
        for block in 0..self.count {
            for position in positions {
                for vector in 0..self.vectors {
                    rows.push(Rows {
                        first: position * self.hidden + self.unit(block, vector).min(self.hidden),
                        count: self.valid(block, vector),
                    });
                }
            }
        }
        rows
    }
}

/// The threads worth using for `operations` multiplications and additions.
pub(crate) fn threads_for(operations: usize) -> usize {
    if operations < PARALLEL { 1 } else { rayon::current_num_threads() }
}

/// Options of the cell in the element type.
pub(crate) fn gates<T: Arithmetic>(problem: &Problem) -> Gates<T> {
    let clip = problem.clip.map(T::from_f64);
    match problem.cell {
        Cell::Gru(gru) => Gates {
            update: Act::new(gru.update),
            reset: Act::new(gru.reset),
            output: Act::new(gru.output),
            flip_z: gru.flip_z,
            clip,
        },
        Cell::SingleGate(activation) => {
            Gates { update: Act::None, reset: Act::None, output: Act::new(activation), flip_z: false, clip }
        }
    }
}

/// Multiplications and additions a cycle, roughly: two vectors.
pub(crate) fn rate<T: Arithmetic>(kernels: &Kernels<T>) -> usize {
    2 * kernels.lanes
}

/// Results of one product before they go on.
#[repr(align(64))]
pub(crate) struct Scratch<T>([MaybeUninit<T>; 8 * 3 * WIDEST]);

impl<T> Scratch<T> {
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; 8 * 3 * WIDEST])
    }

    pub fn pointer(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }
}

/// A mask's element for the first unit of a direction, and the distance of its rows.
pub(crate) fn mask_at<T>(
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    time: usize,
    row: usize,
    channel: usize,
) -> *const T {
    let state = problem.state();
    match inputs.mask {
        Some(Mask::Constant(mask)) => mask[row * state + channel..].as_ptr(),
        Some(Mask::PerStep(mask)) => mask[(time * problem.batch + row) * state + channel..].as_ptr(),
        None => std::ptr::null(),
    }
}

/// Whether any of some rows runs step `time`.
pub(crate) fn any_runs<T>(inputs: &Inputs<'_, T>, time: usize, mut rows: Range<usize>) -> bool {
    inputs.lengths.is_none_or(|lengths| rows.any(|row| time < lengths[row]))
}

/// The lengths from a row on, or null.
pub(crate) fn lengths_from<T>(inputs: &Inputs<'_, T>, row: usize) -> *const usize {
    inputs.lengths.map_or(std::ptr::null(), |lengths| lengths[row..].as_ptr())
}

/// `count` in steps of at most `step`: each start with its size.
pub(crate) fn groups(range: Range<usize>, step: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = range.end;
    range.step_by(step).map(move |start| (start, step.min(end - start)))
}
