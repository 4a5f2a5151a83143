//! A weight as the forward pass multiplies with it: packed, or as it is.

use crate::{
    buffer::Shared,
    element::Arithmetic,
    kernels::{DOT_ROWS, Dots, Kernels, Product},
    pack::{Panels, Rows, lanes_from_rows},
};

/// Up to this many rows `[T·N]` packing the weights would take longer than all products.
pub(crate) const DIRECT: usize = DOT_ROWS;

/// Rows of a `[_, depth]` matrix in panels of `vectors` vectors, a row a lane.
pub(crate) struct Weight<T> {
    form: Form<T>,
    pub depth: usize,
    pub vectors: usize,
    lanes: usize,
}

enum Form<T> {
    Packed(Panels<T>),
    Plain(Shared<T>, Vec<Rows>),
}

impl<T: Arithmetic> Weight<T> {
    /// `rows` lists the vectors of each panel. A `plain` weight goes on borrowing the matrix: it must not outlive it.
    pub fn new(
        matrix: &[T],
        depth: usize,
        lanes: usize,
        vectors: usize,
        rows: Vec<Rows>,
        plain: bool,
        parallel: bool,
    ) -> Self {
        let form = if plain {
            Form::Plain(Shared::of(matrix), rows)
        } else {
            Form::Packed(lanes_from_rows(matrix, depth, lanes, vectors, &rows, parallel))
        };
        Self { form, depth, vectors, lanes }
    }

    /// Elements of a row of results in one panel.
    pub fn width(&self) -> usize {
        self.vectors * self.lanes
    }

    /// The products of `rows` rows of `a` with `panels` panels from `panel` on, into `c`, `[row, panel, vector,
    /// lane]`.
    ///
    /// # Safety
    ///
    /// `a` has `rows` rows of `depth` elements, `a_row` apart, `c` has room, and the matrix is still there.
    pub unsafe fn multiply(
        &self,
        kernels: &Kernels<T>,
        (a, a_row): (*const T, usize),
        rows: usize,
        (panel, panels): (usize, usize),
        c: *mut T,
    ) {
        let width = self.width();
        match &self.form {
            Form::Packed(packed) => {
                let product = Product {
                    rows,
                    panels,
                    segments: 1,
                    depth: self.depth,
                    a,
                    a_row,
                    a_depth: 1,
                    a_segment: 0,
                    b: packed.panel(panel),
                    b_depth: width,
                    b_segment: 0,
                    b_panel: packed.stride(),
                    c,
                    c_row: panels * width,
                    c_panel: width,
                    accumulate: false,
                };
                // SAFETY: as the caller answers for.
                unsafe { (kernels.product[self.vectors - 1])(&product) };
            }
            Form::Plain(matrix, lists) => {
                let lists = &lists[panel * self.vectors..][..panels * self.vectors];
                for (vector, list) in lists.iter().enumerate() {
                    let c = c.wrapping_add(vector * self.lanes);
                    let dots = Dots {
                        rows,
                        columns: list.count,
                        depth: self.depth,
                        a,
                        a_row,
                        b: matrix.at(list.first * self.depth),
                        b_row: self.depth,
                        c,
                        c_row: panels * width,
                    };
                    // SAFETY: as the caller answers for.
                    unsafe {
                        for row in 0..rows {
                            for lane in list.count..self.lanes {
                                c.add(row * panels * width + lane).write(T::ZERO);
                            }
                        }
                        (kernels.dots)(&dots);
                    }
                }
            }
        }
    }
}
