//! The factors of a tile's products in shared memory: `[rows / width, chunk]` vectors over `width` batch rows, so
//! that one load serves `width` rows.

use cubecl::prelude::*;

use crate::plan::Plan;

/// What belongs at a place of the factors.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Factor {
    /// Batch row.
    pub row: usize,
    /// Term of the product.
    pub term: usize,
    /// Whether they exist; both are 0 where they don't.
    pub exists: bool,
}

/// Component `r` of the vector at `position` of a chunk that begins with term `from` of `depth`.
#[cube]
pub(crate) fn factor_at(
    position: usize,
    #[comptime] r: usize,
    from: usize,
    row0: usize,
    batch: usize,
    #[comptime] depth: usize,
    #[comptime] plan: Plan,
) -> Factor {
    let row = row0 + position / plan.chunk * plan.width() + r;
    let term = from + position % plan.chunk;
    let exists = position < plan.vectors() && row < batch && term < depth;
    Factor { row: select(exists, row, 0), term: select(exists, term, 0), exists }
}

/// Stores the loads that a unit had under way, `[loads, width]`, from `first` on.
#[cube]
pub(crate) fn store_loads<W: Size>(
    enter: &mut Shared<[Vector<f32, W>]>,
    values: &Array<f32>,
    first: usize,
    #[comptime] plan: Plan,
) {
    #[unroll]
    for i in 0..plan.loads() {
        let position = first + comptime!(i * plan.cube_units());
        if position < plan.vectors() {
            enter[position] = vector_of::<W>(values, comptime!(i * plan.width()), 1usize, plan);
        }
    }
}

/// Stores what a unit finished, `[finished, stride]` numbers, zero where a row doesn't exist, of which the one at
/// `offset` is the factor of term `first_term` plus its hidden unit. Only where one cube has all hidden units.
#[cube]
pub(crate) fn store_finished<W: Size>(
    enter: &mut Shared<[Vector<f32, W>]>,
    values: &Array<f32>,
    #[comptime] finished: usize,
    #[comptime] stride: usize,
    #[comptime] offset: usize,
    #[comptime] first_term: usize,
    #[comptime] plan: Plan,
) {
    let width = comptime!(plan.width());
    #[unroll]
    for block in 0..comptime!(finished / width) {
        let index = comptime!(block * plan.cube_units()) + UNIT_POS as usize;
        if index < comptime!(plan.rows / plan.width() * plan.units) {
            enter[index / plan.units * plan.chunk + index % plan.units + first_term] =
                vector_of::<W>(values, comptime!(block * width * stride + offset), stride, plan);
        }
    }
}

#[cube]
fn vector_of<W: Size>(
    values: &Array<f32>,
    #[comptime] first: usize,
    #[comptime] stride: usize,
    #[comptime] plan: Plan,
) -> Vector<f32, W> {
    let mut vector = Vector::<f32, W>::empty();
    #[unroll]
    for r in 0..plan.width() {
        vector.insert(r, values[comptime!(first + r * stride)]);
    }
    vector
}

/// Brings `[N, D·H]` of the tile's rows, from hidden unit `from` on, to shared memory.
#[cube]
pub(crate) fn load_rows<W: Size>(
    enter: &mut Shared<[Vector<f32, W>]>,
    values: &[f32],
    from: usize,
    row0: usize,
    batch: usize,
    #[comptime] plan: Plan,
) {
    let width = comptime!(plan.width());
    let mut loaded = Array::<f32>::new(comptime!(plan.loads() * width));
    let mut first = UNIT_POS as usize;
    while first < plan.vectors() {
        #[unroll]
        for i in 0..plan.loads() {
            #[unroll]
            for r in 0..width {
                let position = first + comptime!(i * plan.cube_units());
                let factor = factor_at(position, r, from, row0, batch, plan.hidden, plan);
                let channel = CUBE_POS_Z as usize * plan.hidden + factor.term;
                let value = values[factor.row * plan.state() + channel];
                loaded[comptime!(i * width + r)] = select(factor.exists, value, 0.0);
            }
        }
        store_loads::<W>(enter, &loaded, first, plan);
        first += comptime!(plan.loads() * plan.cube_units());
    }
}
