//! The recurrent product of one step, shared by the forward and the backward kernels.

use cubecl::prelude::*;

/// Terms that fill the widest load, 16 bytes.
const RUN: usize = 4;

/// How a cube's units share a product `[rows, depth] x [depth, outputs, columns]`.
///
/// `units` columns of each output belong to the cube. `split` units of the cube share `columns` of them, each summing
/// every `split`-th run of terms: with more columns a factor that was read serves more sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    /// Batch rows of the cube.
    pub rows: usize,
    /// Of these, how many make a vector of factors.
    pub width: usize,
    /// Rows of a column that one unit finishes.
    pub together: usize,
    /// Columns of the cube in each output.
    pub units: usize,
    /// Columns of the product.
    pub hidden: usize,
    /// Units of the cube that share a column.
    pub split: usize,
    /// Columns in which a unit of the cube has a share, a distance of [`Self::lanes`] apart.
    pub columns: usize,
    /// Terms of each sum.
    pub depth: usize,
    /// Outputs: gates forward, one backward.
    pub outputs: usize,
    /// Distance between the outputs in a row of the weight.
    pub output_stride: usize,
    /// Length of a row of the weight.
    pub row_stride: usize,
    /// Whether the weight stays in registers.
    pub resident: bool,
}

impl Product {
    /// Terms that one unit sums.
    pub fn share(&self) -> usize {
        self.depth.div_ceil(self.split)
    }

    /// Terms in a row that go to the same unit, so that their factors are read at once.
    pub fn run(&self) -> usize {
        if self.depth.is_multiple_of(RUN * self.split) { RUN } else { 1 }
    }

    /// Where the `i`-th term of a unit's share is, for the first unit; for the others `share * run` further on.
    pub fn term(&self, i: usize) -> usize {
        i / self.run() * self.run() * self.split + i % self.run()
    }

    /// Whether every unit sums the same number of terms.
    pub fn even(&self) -> bool {
        self.depth.is_multiple_of(self.split)
    }

    /// Units of the cube side by side, each with its columns.
    pub fn lanes(&self) -> usize {
        self.units / self.columns
    }

    /// Sums that one unit has in each row.
    pub fn row_sums(&self) -> usize {
        self.outputs * self.columns
    }

    /// Sums of one unit.
    pub fn sums(&self) -> usize {
        self.rows * self.row_sums()
    }

    /// Weights that one unit keeps.
    pub fn registers(&self) -> usize {
        if self.resident { self.share() * self.row_sums() } else { 1 }
    }

    /// Units of the cube.
    pub fn cube_units(&self) -> usize {
        self.lanes() * self.split
    }

    /// Numbers in the shared memory where the units that share a column meet.
    pub fn partials(&self) -> usize {
        if self.split == 1 { 1 } else { self.split * self.rows * self.outputs * self.units }
    }

    /// Results, one row of one column, that one unit finishes.
    pub fn finished(&self) -> usize {
        (self.rows / self.together * self.units).div_ceil(self.cube_units()) * self.together
    }
}

/// Reads the unit's share of the weight into registers, `[share, outputs, columns]`; nothing if it isn't resident.
/// `base` is where the weights of its first column begin, which is `unit` of the product's.
#[cube]
pub(crate) fn load_weight<E: Float>(
    weight: &[E],
    base: usize,
    unit: usize,
    share: usize,
    #[comptime] product: Product,
) -> Array<f32> {
    let mut resident = Array::<f32>::new(product.registers());
    if comptime!(product.resident) {
        #[unroll]
        for i in 0..product.share() {
            #[unroll]
            for c in 0..product.columns {
                let step = comptime!(c * product.lanes());
                let base = base + select(unit + step < product.hidden, step, 0);
                #[unroll]
                for g in 0..product.outputs {
                    resident[comptime!(i * product.row_sums() + g * product.columns + c)] =
                        term_weight::<E>(weight, base, share, i, g, product);
                }
            }
        }
    }
    resident
}

/// The weight of the unit's `i`-th term for output `g`, zero past the last term.
#[cube]
fn term_weight<E: Float>(
    weight: &[E],
    base: usize,
    share: usize,
    #[comptime] i: usize,
    #[comptime] g: usize,
    #[comptime] product: Product,
) -> f32 {
    let term = comptime!(product.term(i)) + share * product.run();
    let offset = comptime!(g * product.output_stride);
    if comptime!(product.even()) {
        f32::cast_from(weight[base + term * product.row_stride + offset])
    } else {
        let last = comptime!(product.depth - 1);
        let clamped = select(term < product.depth, term, last);
        let value = f32::cast_from(weight[base + clamped * product.row_stride + offset]);
        select(term < product.depth, value, 0.0)
    }
}

/// The weight of the unit's `i`-th term as a number of the run time, for weights that are not resident.
#[cube]
fn streamed_weight<E: Float>(
    weight: &[E],
    base: usize,
    term: usize,
    #[comptime] g: usize,
    #[comptime] product: Product,
) -> f32 {
    f32::cast_from(weight[base + term * product.row_stride + comptime!(g * product.output_stride)])
}

/// Adds the terms `from..from + depth` of the unit's share to its sums, `[rows, outputs, columns]`. Only what is
/// resident has several columns.
///
/// `enter` holds `[rows / width, depth]`, the factors of these terms in vectors over rows, with its rows `stride`
/// apart.
#[cube]
pub(crate) fn accumulate<E: Float, W: Size>(
    sums: &mut Array<f32>,
    enter: &Shared<[Vector<f32, W>]>,
    weight: &[E],
    resident: &Array<f32>,
    base: usize,
    share: usize,
    depth: usize,
    #[comptime] stride: usize,
    #[comptime] product: Product,
) {
    if comptime!(product.resident) {
        #[unroll]
        for i in 0..product.share() {
            let term = comptime!(product.term(i)) + share * product.run();
            // Past the last term the weight is zero, and so must be the factor: it may be a NaN.
            let inside = term < product.depth;
            let term = if comptime!(product.even()) { term } else { select(inside, term, 0) };
            #[unroll]
            for block in 0..comptime!(product.rows / product.width) {
                let factors = enter[comptime!(block * stride) + term];
                #[unroll]
                for r in 0..product.width {
                    let factor = factors.extract(r);
                    let factor = if comptime!(product.even()) { factor } else { select(inside, factor, 0.0) };
                    let row = comptime!(block * product.width + r);
                    #[unroll]
                    for s in 0..product.row_sums() {
                        sums[comptime!(row * product.row_sums() + s)] +=
                            factor * resident[comptime!(i * product.row_sums() + s)];
                    }
                }
            }
        }
    } else {
        let run = comptime!(product.run());
        let mut term = share * run;
        // `depth` is a multiple of the run: a part of the product begins and ends with a multiple.
        while term < depth {
            let mut values = Array::<f32>::new(comptime!(run * product.outputs));
            #[unroll]
            for i in 0..run {
                #[unroll]
                for g in 0..product.outputs {
                    values[comptime!(i * product.outputs + g)] =
                        streamed_weight::<E>(weight, base, term + i, g, product);
                }
            }
            #[unroll]
            for block in 0..comptime!(product.rows / product.width) {
                #[unroll]
                for i in 0..run {
                    let factors = enter[comptime!(block * stride) + term + i];
                    #[unroll]
                    for r in 0..product.width {
                        let row = comptime!(block * product.width + r);
                        #[unroll]
                        for g in 0..product.outputs {
                            sums[comptime!(row * product.outputs + g)] +=
                                factors.extract(r) * values[comptime!(i * product.outputs + g)];
                        }
                    }
                }
            }
            term += comptime!(run * product.split);
        }
    }
}

/// Sets all sums to zero.
#[cube]
pub(crate) fn clear(sums: &mut Array<f32>, #[comptime] product: Product) {
    #[unroll]
    for i in 0..product.sums() {
        sums[i] = 0.0;
    }
}

/// Hands the unit's sums to the units that finish them. All units of the cube must come here.
#[cube]
pub(crate) fn share_sums(
    sums: &Array<f32>,
    partials: &mut Shared<[f32]>,
    column: usize,
    share: usize,
    #[comptime] product: Product,
) {
    if comptime!(product.split > 1) {
        #[unroll]
        for i in 0..comptime!(product.rows * product.outputs) {
            #[unroll]
            for c in 0..product.columns {
                let place = (share * comptime!(product.rows * product.outputs) + i) * product.units;
                partials[place + column + comptime!(c * product.lanes())] =
                    sums[comptime!(i * product.columns + c)];
            }
        }
    }
    // Also without a split: the factors in shared memory are about to be overwritten.
    sync_cube();
}

/// The whole sum of output `g` for the `q`-th result that the unit finishes, at `row` and `column`.
#[cube]
pub(crate) fn whole_sum(
    sums: &Array<f32>,
    partials: &Shared<[f32]>,
    row: usize,
    column: usize,
    #[comptime] q: usize,
    #[comptime] g: usize,
    #[comptime] product: Product,
) -> f32 {
    if comptime!(product.split > 1) {
        let mut sum = 0.0f32;
        #[unroll]
        for share in 0..product.split {
            sum += partials[(comptime!(share * product.rows * product.outputs + g) + row * product.outputs)
                * product.units
                + column];
        }
        sum
    } else {
        sums[comptime!(q * product.outputs + g)]
    }
}
