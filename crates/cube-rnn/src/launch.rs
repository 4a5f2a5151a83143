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

/// Hands the launches so far to the device, so that none waits behind another in one submission: together they may
/// take longer than a desktop's watchdog allows, or than a wait for one submission should.
pub(crate) fn submit(client: &Client) {
    // An error stays with the client, and reaches whoever reads a result.
    let _ = client.flush();
}
