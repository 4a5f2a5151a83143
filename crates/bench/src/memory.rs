//! How much memory a training step needs at its peak.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use burn::tensor::Device;

/// Counts what is allocated while it is told to; otherwise the system's allocator, so that nothing that is
/// timed pays for it.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static COUNTING: AtomicBool = AtomicBool::new(false);
/// Bytes allocated less bytes freed since counting began; below zero if older memory is freed.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if COUNTING.load(Ordering::Relaxed) {
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The peak memory of `step`, in bytes, with the `resident` bytes of inputs and weights that are there
/// before it.
///
/// A GPU's is what its allocator holds after the step when it held no more than it needed before. That is in
/// whole pages, as the device sees it. A CPU's is counted byte by byte.
pub fn peak<R>(
    device: &Device,
    resident: u64,
    step: impl FnOnce() -> Result<R, String>,
) -> Result<u64, String> {
    let sync = || device.sync().map_err(|error| format!("the device failed: {error}"));
    sync()?;
    device.memory_cleanup();
    sync()?;
    LIVE.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    let result = step();
    let synced = sync();
    COUNTING.store(false, Ordering::Relaxed);
    let usage = device.memory_pool_usage();
    drop(result?);
    synced?;
    Ok(match usage {
        Some(usage) => usage.bytes_reserved,
        None => resident + PEAK.load(Ordering::Relaxed).max(0) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_is_live_at_once() {
        const MIB: usize = 1 << 20;
        let step = || {
            drop(std::hint::black_box(vec![1u8; 32 * MIB]));
            drop(std::hint::black_box(vec![1u8; 16 * MIB]));
            Ok(())
        };
        let peak = peak(&Device::flex(), 1000, step).expect("nothing fails") as usize;
        // Other tests allocate beside this one, but nothing of that size.
        assert!((32 * MIB..40 * MIB).contains(&peak), "{peak}");
    }
}
