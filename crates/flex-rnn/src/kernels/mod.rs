//! The vectorised kernels, one set for each instruction set, picked once when the program runs.

mod gradient;
pub(crate) mod math;
mod product;
mod step;
mod transfer;

use macerator::{Arch, Simd, Vector, WithSimd};

use crate::element::Arithmetic;
pub(crate) use gradient::{GruGradient, ResetGradient, SingleGateGradient, Through};
pub(crate) use math::Act;
pub(crate) use product::{DOT_ROWS, Dots, Product};
pub(crate) use step::{Gates, Step};
pub(crate) use transfer::{ColumnSums, States, Store};

/// An instruction set. All names exist on every processor; which of them run is another matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// No vectors.
    Scalar,
    /// SSE4.2.
    Sse,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512.
    Avx512,
    /// What the processor's kind offers beside: NEON, WebAssembly's vectors.
    Native,
}

/// The kernels for one element type and instruction set.
#[doc(hidden)]
pub struct Kernels<T> {
    /// Elements of a vector.
    pub(crate) lanes: usize,
    /// The most rows a product takes.
    pub(crate) rows: usize,
    /// Products with 1, 2 and 3 vectors a panel.
    pub(crate) product: [unsafe fn(&Product<T>); 3],
    pub(crate) dots: unsafe fn(&Dots<T>),
    pub(crate) store: unsafe fn(&Store<T>),
    pub(crate) states: unsafe fn(&States<T>),
    pub(crate) column_sums: unsafe fn(&ColumnSums<T>),
    pub(crate) gru_after: unsafe fn(&Step<T>, &Gates<T>),
    pub(crate) gru_before_gates: unsafe fn(&Step<T>, &Gates<T>),
    pub(crate) gru_before_output: unsafe fn(&Step<T>, &Gates<T>),
    pub(crate) single_gate: unsafe fn(&Step<T>, &Gates<T>),
    pub(crate) gru_gradient: unsafe fn(&GruGradient<T>, &Gates<T>),
    pub(crate) reset_gradient: unsafe fn(&ResetGradient<T>, &Gates<T>),
    pub(crate) single_gate_gradient: unsafe fn(&SingleGateGradient<T>, &Gates<T>),
    pub(crate) through: unsafe fn(&Through<T>),
    pub(crate) activate: unsafe fn(Act<T>, &mut [T]),
}

impl<T: Arithmetic> Kernels<T> {
    /// The fastest this processor runs.
    pub(crate) fn detect() -> Self {
        macerator::AutoArch::new().dispatch(Build(std::marker::PhantomData))
    }

    /// Those of one level, if this processor runs them.
    pub(crate) fn of(level: Level) -> Option<Self> {
        let arch = level.arch()?;
        // SAFETY: `arch` returns only what the processor has the features for.
        Some(unsafe { arch.dispatch(Build(std::marker::PhantomData)) })
    }

    fn new<S: Simd>() -> Self {
        let lanes = lanes::<S, T>();
        assert_eq!(lanes, T::lanes::<S>());
        // AVX-512 and NEON have 32 vector registers, the others 16.
        let many = lanes * size_of::<T>() == 64 || cfg!(target_arch = "aarch64");
        Self {
            lanes,
            rows: if many { 8 } else { 4 },
            product: [product::product::<S, T, 1>, product::product::<S, T, 2>, product::product::<S, T, 3>],
            dots: product::dots::<S, T>,
            store: transfer::store::<S, T>,
            states: transfer::states::<S, T>,
            column_sums: transfer::column_sums::<S, T>,
            gru_after: step::gru_after::<S, T>,
            gru_before_gates: step::gru_before_gates::<S, T>,
            gru_before_output: step::gru_before_output::<S, T>,
            single_gate: step::single_gate::<S, T>,
            gru_gradient: gradient::gru::<S, T>,
            reset_gradient: gradient::reset::<S, T>,
            single_gate_gradient: gradient::single_gate::<S, T>,
            through: gradient::through::<S, T>,
            activate: transfer::activate::<S, T>,
        }
    }
}

impl Level {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    fn arch(self) -> Option<Arch> {
        let arch = match self {
            Self::Scalar => Arch::Scalar,
            Self::Sse => Arch::V2,
            Self::Avx2 => Arch::V3,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Arch::V4,
            _ => return None,
        };
        // Each has all that the ones before it have.
        (arch as u8 <= Arch::detect() as u8).then_some(arch)
    }

    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    fn arch(self) -> Option<Arch> {
        match self {
            Self::Scalar => Some(Arch::Scalar),
            Self::Native => Some(Arch::detect()),
            _ => None,
        }
    }
}

struct Build<T>(std::marker::PhantomData<T>);

impl<T: Arithmetic> WithSimd for Build<T> {
    type Output = Kernels<T>;

    #[inline(always)]
    fn with_simd<S: Simd>(self) -> Kernels<T> {
        Kernels::new::<S>()
    }
}

/// Defines a kernel that runs with the features of `S`, from a function to be inlined into it.
macro_rules! kernel {
    ($(#[$meta:meta])* $name:ident($($argument:ident: $type:ty),*) = $body:ident) => {
        $(#[$meta])*
        pub(super) unsafe fn $name<'a, S: macerator::Simd, T: crate::element::Arithmetic>($($argument: $type),*) {
            struct Call<'a, T>($($type,)* std::marker::PhantomData<&'a T>);

            impl<'a, T: crate::element::Arithmetic> macerator::WithSimd for Call<'a, T> {
                type Output = ();

                #[inline(always)]
                fn with_simd<S: macerator::Simd>(self) {
                    let Self($($argument,)* _) = self;
                    // SAFETY: the caller of the kernel answers for its pointers.
                    unsafe { $body::<S, T>($($argument),*) }
                }
            }

            // SAFETY: whoever picked S has checked the processor.
            unsafe { S::vectorize(Call($($argument,)* std::marker::PhantomData)) }
        }
    };
}
use kernel;

/// Elements of a vector. Known when compiled, where macerator's own function may end up as a call in an inner loop.
#[inline(always)]
const fn lanes<S: Simd, T: Arithmetic>() -> usize {
    size_of::<Vector<S, T>>() / size_of::<T>()
}

/// Loads the first `valid` elements, the others zero.
#[inline(always)]
unsafe fn load<S: Simd, T: Arithmetic>(from: *const T, valid: usize) -> Vector<S, T> {
    // SAFETY: the caller answers for `valid` elements.
    unsafe {
        if valid >= lanes::<S, T>() {
            return T::vload_unaligned(from);
        }
        let mut lanes = [T::ZERO; WIDEST];
        for lane in 0..valid {
            lanes[lane] = *from.add(lane);
        }
        T::vload_unaligned(lanes.as_ptr())
    }
}

/// Stores the first `valid` elements.
#[inline(always)]
unsafe fn save<S: Simd, T: Arithmetic>(to: *mut T, valid: usize, vector: Vector<S, T>) {
    // SAFETY: the caller answers for `valid` elements.
    unsafe {
        if valid >= lanes::<S, T>() {
            return T::vstore_unaligned(to, vector);
        }
        let mut lanes = [T::ZERO; WIDEST];
        T::vstore_unaligned(lanes.as_mut_ptr(), vector);
        for lane in 0..valid {
            to.add(lane).write(lanes[lane]);
        }
    }
}

/// Elements of the widest vector there is.
pub(crate) const WIDEST: usize = 16;
