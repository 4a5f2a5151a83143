//! The backend extension: what a backend computes, and its tensors.

use burn::backend::{
    Backend, BackendTensor, BackendTypes, Dispatch, DispatchAutodiffContext, DispatchTensor,
    DispatchTensorKind, ExtensionType, backend_extension,
    tensor::{FloatTensor, IntTensor},
};

use crate::{Cell, composed};

/// Implements [`ExtensionType`] for a struct of optional tensors, which the derive can't map.
macro_rules! optional_tensors {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $kind:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name<B: BackendTypes> {
            $($(#[$field_meta])* pub $field: Option<$kind<B>>,)*
        }

        impl<B: BackendTypes> Clone for $name<B> {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone(),)* }
            }
        }

        impl<B: BackendTypes> Default for $name<B> {
            fn default() -> Self {
                Self { $($field: None,)* }
            }
        }

        impl<B: Backend> ExtensionType<B> for $name<B> {
            type Target = $name<Dispatch>;

            fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
            where
                F: Fn(BackendTensor<B>) -> DispatchTensorKind,
            {
                $name {
                    $($field: self.$field.map(|tensor| DispatchTensor {
                        kind: map_kind(optional_tensors!(@variant $kind, tensor)),
                        autodiff,
                    }),)*
                }
            }

            fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
            where
                F: Fn(DispatchTensor) -> BackendTensor<B>,
            {
                Self {
                    $($field: target
                        .$field
                        .map(|tensor| optional_tensors!(@accessor $kind, unwrap_kind(tensor))),)*
                }
            }

            fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
                None$(.or(target.$field.as_ref()))*
            }

            fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
                None$(.or(optional_tensors!(@float $kind, target.$field.as_ref())))*
            }

            fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
                [$(target.$field.as_ref()),*]
                    .into_iter()
                    .flatten()
                    .fold(DispatchAutodiffContext::Disabled, |context, tensor| {
                        context.merge(tensor.autodiff)
                    })
            }
        }
    };
    (@variant FloatTensor, $tensor:expr) => { BackendTensor::Float($tensor) };
    (@variant IntTensor, $tensor:expr) => { BackendTensor::Int($tensor) };
    (@accessor FloatTensor, $tensor:expr) => { $tensor.float() };
    (@accessor IntTensor, $tensor:expr) => { $tensor.int() };
    (@float FloatTensor, $tensor:expr) => { $tensor };
    (@float IntTensor, $tensor:expr) => { None };
}

optional_tensors! {
    /// Inputs of a cell. `T` steps, `N` batch rows, `I` input features, `H` hidden units, `G` gates
    /// (3 for a GRU, 1 for a single-gate RNN), `D` directions.
    pub struct RecurrentInputs {
        /// `[T, N, I]`, or `[T, N, D·GH]` without `input_weight`. The forward operation always has it;
        /// the backward operation needs it only for `input_weight`'s gradient.
        source: FloatTensor,
        /// `[GH, H]`, or `[2, GH, H]` if bidirectional. Always present.
        recurrent_weight: FloatTensor,
        /// `[D·GH, I]`; absent: the identity. The backward operation needs it only for `source`'s gradient.
        input_weight: FloatTensor,
        /// `[D·GH]`; absent: zero.
        bias: FloatTensor,
        /// `[N, D·H]`; absent: zero.
        init_state: FloatTensor,
        /// `[N, D·H]` or `[T, N, D·H]`; absent: one.
        mask: FloatTensor,
        /// `[D·H]`, with `reset_after` only; absent: zero.
        secondary_bias: FloatTensor,
        /// `[N]`, 32-bit integers from 0 to T; absent: all T.
        lengths: IntTensor,
    }
}

optional_tensors! {
    /// What the forward operation returns.
    pub struct RecurrentOutputs {
        /// `[T, N, D·H]`. Always present.
        output: FloatTensor,
        /// `[N, D·H]`, the state after the last step of each row and direction. Always present.
        final_state: FloatTensor,
        /// `[T, N, D·GH]`, if it was asked for: the activated gates of a GRU in the order of its weights,
        /// the pre-activation of a single-gate RNN.
        z_state: FloatTensor,
    }
}

optional_tensors! {
    /// What the backward operation gets beside the inputs.
    pub struct RecurrentSaved {
        /// `[T, N, D·GH]` as the forward operation returned it. Always present.
        z_state: FloatTensor,
        /// `[T, N, D·H]` as the forward operation returned it. Always present for a GRU.
        output: FloatTensor,
        /// `[T, N, D·H]`, the gradient of `output`; absent: zero.
        output_gradient: FloatTensor,
        /// `[N, D·H]`, the gradient of `final_state`; absent: zero.
        state_gradient: FloatTensor,
    }
}

optional_tensors! {
    /// Gradients of a cell's inputs, each with its input's shape.
    pub struct RecurrentGradients {
        /// Of `source`.
        source: FloatTensor,
        /// Of `recurrent_weight`.
        recurrent_weight: FloatTensor,
        /// Of `input_weight`.
        input_weight: FloatTensor,
        /// Of `bias`.
        bias: FloatTensor,
        /// Of `init_state`.
        init_state: FloatTensor,
        /// Of `secondary_bias`.
        secondary_bias: FloatTensor,
    }
}

/// Which gradients the backward operation computes. Those of absent inputs must be false, except
/// `init_state`, whose gradient exists without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedGradients {
    /// Of `source`; needs `input_weight` if the cell has one.
    pub source: bool,
    /// Of `recurrent_weight`.
    pub recurrent_weight: bool,
    /// Of `input_weight`; needs `source`.
    pub input_weight: bool,
    /// Of `bias`.
    pub bias: bool,
    /// Of `init_state`.
    pub init_state: bool,
    /// Of `secondary_bias`.
    pub secondary_bias: bool,
}

/// Recurrent cells as backend operations, on checked tensors.
///
/// Use [`gru`](crate::gru) and its siblings, which check their inputs, or the layers; implement this
/// trait to give a backend kernels of its own. The default bodies compose the backend's tensor
/// operations and are right on any of them, if slow.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(any(
        feature = "wgpu",
        feature = "webgpu",
        feature = "vulkan",
        feature = "metal",
        feature = "cuda",
        feature = "rocm",
        feature = "cpu"
    )),
    LibTorch: cfg(feature = "tch"),
    Remote: cfg(feature = "remote"),
    Capture: cfg(feature = "capture"),
    Autodiff: cfg(feature = "autodiff"),
)]
pub trait RecurrentOps: Backend {
    /// Runs the cell over all steps. Writes `z_state` if `training`, whatever the descriptor says.
    fn recurrent_forward(
        #[extension_type] inputs: RecurrentInputs<Self>,
        cell: Cell,
        training: bool,
    ) -> RecurrentOutputs<Self> {
        composed::forward::<Self>(inputs, &cell, training)
    }

    /// Computes the `wanted` gradients.
    fn recurrent_backward(
        #[extension_type] inputs: RecurrentInputs<Self>,
        #[extension_type] saved: RecurrentSaved<Self>,
        wanted: WantedGradients,
        cell: Cell,
    ) -> RecurrentGradients<Self> {
        composed::backward::<Self>(inputs, saved, wanted, &cell)
    }
}
