#[cfg(feature = "autodiff")]
mod autodiff;
#[cfg(any(feature = "ndarray", feature = "tch"))]
mod composed;
#[cfg(feature = "cubecl-backend")]
mod cubecl;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "fusion")]
mod fusion;
#[cfg(feature = "router")]
pub(crate) mod router;
