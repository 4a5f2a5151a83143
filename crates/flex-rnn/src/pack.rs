//! Weights in the order the micro-kernel reads them: panels of a few vectors, depth by depth.

use rayon::prelude::*;

use crate::{
    buffer::{Buffer, Shared},
    element::Arithmetic,
};

/// Packed panels: element (depth, vector, lane) of a panel follows in that order.
pub(crate) struct Panels<T> {
    memory: Buffer<T>,
    pub depth: usize,
    /// Vectors of a panel.
    pub vectors: usize,
    lanes: usize,
}

impl<T: Arithmetic> Panels<T> {
    fn new(panels: usize, depth: usize, vectors: usize, lanes: usize) -> Self {
        Self { memory: Buffer::new(panels * depth * vectors * lanes), depth, vectors, lanes }
    }

    /// Elements of a panel.
    pub fn stride(&self) -> usize {
        self.depth * self.width()
    }

    /// Elements of a panel at one depth.
    pub fn width(&self) -> usize {
        self.vectors * self.lanes
    }

    /// A panel's beginning.
    pub fn panel(&self, index: usize) -> *const T {
        self.memory.pointer().at(index * self.stride())
    }
}

/// Rows of a matrix that become one vector of a panel: the first row and how many there are.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub first: usize,
    pub count: usize,
}

/// Packs rows of a `[_, depth]` matrix so that each lane is a row. `rows` lists the vectors of each panel.
pub(crate) fn lanes_from_rows<T: Arithmetic>(
    matrix: &[T],
    depth: usize,
    lanes: usize,
    vectors: usize,
    rows: &[Rows],
    parallel: bool,
) -> Panels<T> {
    let count = rows.len() / vectors;
    let panels: Panels<T> = Panels::new(count, depth, vectors, lanes);
    let memory = panels.memory.pointer();
    let (stride, width) = (panels.stride(), panels.width());
    each(count, parallel, |panel| {
        for vector in 0..vectors {
            let Rows { first, count } = rows[panel * vectors + vector];
            let to = panel * stride + vector * lanes;
            // A cache line of each row at a time.
            for start in (0..depth).step_by(16) {
                for k in start..depth.min(start + 16) {
                    for lane in 0..lanes {
                        let value = if lane < count { matrix[(first + lane) * depth + k] } else { T::ZERO };
                        // SAFETY: inside this panel, which no other call writes.
                        unsafe { memory.at(to + k * width + lane).write(value) };
                    }
                }
            }
        }
    });
    panels
}

/// Packs columns of a matrix with `columns` columns so that each lane is a column. `rows` lists, for each vector
/// of the depth in turn, the rows it takes, padded with rows of zeros to `lanes`.
pub(crate) fn lanes_from_columns<T: Arithmetic>(
    matrix: &[T],
    columns: usize,
    lanes: usize,
    vectors: usize,
    rows: &[Rows],
    parallel: bool,
) -> Panels<T> {
    let depth = rows.len() * lanes;
    let count = columns.div_ceil(vectors * lanes);
    let panels: Panels<T> = Panels::new(count, depth, vectors, lanes);
    let memory = panels.memory.pointer();
    let (stride, width) = (panels.stride(), panels.width());
    each(count, parallel, |panel| {
        let start = panel * width;
        let valid = width.min(columns - start);
        for (index, &Rows { first, count }) in rows.iter().enumerate() {
            for lane in 0..lanes {
                let to = memory.at(panel * stride + (index * lanes + lane) * width);
                for column in 0..width {
                    let value = if lane < count && column < valid {
                        matrix[(first + lane) * columns + start + column]
                    } else {
                        T::ZERO
                    };
                    // SAFETY: inside this panel, which no other call writes.
                    unsafe { to.add(column).write(value) };
                }
            }
        }
    });
    panels
}

/// Packs columns of rows as the left operand of products over the rows: panels of `height` columns, element
/// (row, column) of a panel following in that order. Rows that `keep` rejects become zero, whatever they hold.
pub(crate) struct Columns<T> {
    pub memory: Buffer<T>,
    pub height: usize,
    pub rows: usize,
    pub columns: usize,
}

impl<T: Arithmetic> Columns<T> {
    /// Room for `rows` rows of `columns` columns.
    pub fn new(rows: usize, columns: usize, height: usize) -> Self {
        let memory = Buffer::new(columns.div_ceil(height) * height * rows);
        Self { memory, height, rows, columns }
    }

    /// Packs the first `rows` rows.
    pub fn pack(
        &mut self,
        rows: usize,
        matrix: Shared<T>,
        row_stride: usize,
        keep: impl Fn(usize) -> bool + Sync,
        parallel: bool,
    ) {
        self.rows = rows;
        let (height, columns) = (self.height, self.columns);
        let memory = self.memory.pointer();
        const RUN: usize = 32;
        each(rows.div_ceil(RUN), parallel, |run| {
            for panel in 0..columns.div_ceil(height) {
                let valid = height.min(columns - panel * height);
                for row in run * RUN..rows.min((run + 1) * RUN) {
                    let to = memory.at((panel * rows + row) * height);
                    let from = matrix.at(row * row_stride + panel * height);
                    let valid = if keep(row) { valid } else { 0 };
                    // SAFETY: inside the matrix, and inside this row's part of the panel.
                    unsafe {
                        to.copy_from_nonoverlapping(from, valid);
                        for column in valid..height {
                            to.add(column).write(T::ZERO);
                        }
                    }
                }
            }
        });
    }

    /// A panel's beginning.
    pub fn panel(&self, index: usize) -> *const T {
        self.memory.pointer().at(index * self.height * self.rows)
    }

    pub fn panels(&self) -> usize {
        self.columns.div_ceil(self.height)
    }
}

/// Calls `task` with 0 to `count`, on all threads if `parallel`.
pub(crate) fn each(count: usize, parallel: bool, task: impl Fn(usize) + Sync + Send) {
    if parallel && count > 1 {
        (0..count).into_par_iter().for_each(task);
    } else {
        (0..count).for_each(task);
    }
}
