//! The micro-kernel: a few rows times panels of packed columns, with the sums in registers.
//!
//! A sum runs over the depth in order, in one accumulator, whatever the number of rows or panels taken at once:
//! how rows and panels are dealt to threads does not change a bit of the result.

use macerator::{Simd, Vector, WithSimd};

use super::{lanes, load};
use crate::element::Arithmetic;

/// `c[row][panel] = Σ a[row][depth] · b[panel][depth]`, the depth in `segments` of `depth` each.
pub(crate) struct Product<T> {
    /// From 1 to [`Kernels::rows`](super::Kernels::rows).
    pub rows: usize,
    pub panels: usize,
    pub segments: usize,
    pub depth: usize,
    pub a: *const T,
    pub a_row: usize,
    pub a_depth: usize,
    pub a_segment: usize,
    pub b: *const T,
    pub b_depth: usize,
    pub b_segment: usize,
    pub b_panel: usize,
    pub c: *mut T,
    pub c_row: usize,
    pub c_panel: usize,
    /// Adds to `c` instead of overwriting it.
    pub accumulate: bool,
}

/// `V` vectors a panel.
pub(super) unsafe fn product<S: Simd, T: Arithmetic, const V: usize>(product: &Product<T>) {
    // SAFETY: the caller answers for the pointers, and for the processor having the features of S.
    unsafe {
        let mut panel = 0;
        // Few rows: several panels at once, for enough independent sums.
        match product.rows {
            1 => {
                while product.panels - panel >= 4 {
                    S::vectorize(Tile::<T, 1, V, 4> { product, panel });
                    panel += 4;
                }
            }
            2 => {
                while product.panels - panel >= 2 {
                    S::vectorize(Tile::<T, 2, V, 2> { product, panel });
                    panel += 2;
                }
            }
            _ => {}
        }
        for panel in panel..product.panels {
            match product.rows {
                1 => S::vectorize(Tile::<T, 1, V, 1> { product, panel }),
                2 => S::vectorize(Tile::<T, 2, V, 1> { product, panel }),
                3 => S::vectorize(Tile::<T, 3, V, 1> { product, panel }),
                4 => S::vectorize(Tile::<T, 4, V, 1> { product, panel }),
                5 => S::vectorize(Tile::<T, 5, V, 1> { product, panel }),
                6 => S::vectorize(Tile::<T, 6, V, 1> { product, panel }),
                7 => S::vectorize(Tile::<T, 7, V, 1> { product, panel }),
                8 => S::vectorize(Tile::<T, 8, V, 1> { product, panel }),
                rows => unreachable!("a product of {rows} rows"),
            }
        }
    }
}

/// `R` rows by `P` panels of `V` vectors, from panel `panel`.
struct Tile<'a, T, const R: usize, const V: usize, const P: usize> {
    product: &'a Product<T>,
    panel: usize,
}

impl<T: Arithmetic, const R: usize, const V: usize, const P: usize> WithSimd for Tile<'_, T, R, V, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        // SAFETY: the caller of `product` answers for the pointers.
        unsafe { tile::<S, T, R, V, P>(self.product, self.panel) }
    }
}

#[inline(always)]
unsafe fn tile<S: Simd, T: Arithmetic, const R: usize, const V: usize, const P: usize>(
    product: &Product<T>,
    panel: usize,
) {
    let lanes = lanes::<S, T>();
    let mut sums = [[[T::ZERO.splat::<S>(); V]; P]; R];
    let (a_row, a_depth, b_depth, b_panel) =
        (product.a_row, product.a_depth, product.b_depth, product.b_panel);
    // SAFETY: the caller answers for the pointers.
    unsafe {
        for segment in 0..product.segments {
            let mut a = product.a.add(segment * product.a_segment);
            let mut b = product.b.add(panel * b_panel + segment * product.b_segment);
            for _ in 0..product.depth {
                let mut columns = [[T::ZERO.splat::<S>(); V]; P];
                for p in 0..P {
                    for v in 0..V {
                        columns[p][v] = T::vload_unaligned::<S>(b.add(p * b_panel + v * lanes));
                    }
                }
                for row in 0..R {
                    let factor: Vector<S, T> = (*a.add(row * a_row)).splat();
                    for p in 0..P {
                        for v in 0..V {
                            sums[row][p][v] = factor.mul_add(columns[p][v], sums[row][p][v]);
                        }
                    }
                }
                a = a.add(a_depth);
                b = b.add(b_depth);
            }
        }
        for row in 0..R {
            for p in 0..P {
                for v in 0..V {
                    let to = product.c.add(row * product.c_row + (panel + p) * product.c_panel + v * lanes);
                    let mut sum = sums[row][p][v];
                    if product.accumulate {
                        sum += T::vload_unaligned::<S>(to);
                    }
                    T::vstore_unaligned(to, sum);
                }
            }
        }
    }
}

/// Products with weights as they are, for so few rows that packing would cost more: `c[row][column]` is the dot
/// product of a row of `a` and a row of `b`.
pub(crate) struct Dots<T> {
    /// From 1 to [`DOT_ROWS`].
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    pub a: *const T,
    pub a_row: usize,
    pub b: *const T,
    pub b_row: usize,
    pub c: *mut T,
    pub c_row: usize,
}

/// The most rows that [`Dots`] takes.
pub(crate) const DOT_ROWS: usize = 4;

pub(super) unsafe fn dots<S: Simd, T: Arithmetic>(call: &Dots<T>) {
    // SAFETY: the caller answers for the pointers, and for the processor having the features of S.
    unsafe {
        match call.rows {
            1 => S::vectorize(AllDots::<T, 1, 8>(call)),
            2 => S::vectorize(AllDots::<T, 2, 4>(call)),
            3 => S::vectorize(AllDots::<T, 3, 4>(call)),
            4 => S::vectorize(AllDots::<T, 4, 4>(call)),
            rows => unreachable!("dot products of {rows} rows"),
        }
    }
}

/// `R` rows by `C` columns at once.
struct AllDots<'a, T, const R: usize, const C: usize>(&'a Dots<T>);

impl<T: Arithmetic, const R: usize, const C: usize> WithSimd for AllDots<'_, T, R, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let mut column = 0;
        // SAFETY: the caller of `dots` answers for the pointers.
        unsafe {
            while self.0.columns - column >= C {
                some_dots::<S, T, R, C>(self.0, column);
                column += C;
            }
            for column in column..self.0.columns {
                some_dots::<S, T, R, 1>(self.0, column);
            }
        }
    }
}

/// Every sum runs in the lanes of one vector, whatever the number of columns at once.
#[inline(always)]
unsafe fn some_dots<S: Simd, T: Arithmetic, const R: usize, const C: usize>(call: &Dots<T>, column: usize) {
    let lanes = lanes::<S, T>();
    let mut sums = [[T::ZERO.splat::<S>(); C]; R];
    // SAFETY: the caller answers for the pointers.
    unsafe {
        let b = call.b.add(column * call.b_row);
        let mut k = 0;
        while k < call.depth {
            let valid = (call.depth - k).min(lanes);
            let mut a = [T::ZERO.splat::<S>(); R];
            for row in 0..R {
                a[row] = load(call.a.add(row * call.a_row + k), valid);
            }
            for c in 0..C {
                let weights: Vector<S, T> = load(b.add(c * call.b_row + k), valid);
                for row in 0..R {
                    sums[row][c] = a[row].mul_add(weights, sums[row][c]);
                }
            }
            k += lanes;
        }
        for row in 0..R {
            for c in 0..C {
                call.c.add(row * call.c_row + column + c).write(sums[row][c].reduce_add());
            }
        }
    }
}
