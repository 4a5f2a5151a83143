//! Arguments of kernels.

use cubecl::{prelude::*, server::Handle};

/// A kernel's argument.
pub(crate) fn buffer(handle: &Handle, length: usize) -> BufferArg {
    // SAFETY: the callers' lengths are those that the buffers are documented to have.
    unsafe { BufferArg::from_raw_parts(handle.clone(), length) }
}

/// A kernel's optional argument.
pub(crate) fn maybe<C: CubePrimitive>(
    handle: &Option<Handle>,
    length: usize,
) -> ComptimeOptionArgs<Box<[C]>> {
    handle.as_ref().map(|handle| buffer(handle, length)).into()
}
