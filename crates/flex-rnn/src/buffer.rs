//! Scratch memory and pointers that threads share.

use std::marker::PhantomData;

/// Bytes that every buffer is aligned to: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// Uninitialised memory, aligned to a cache line.
pub(crate) struct Buffer<T> {
    memory: Vec<T>,
    offset: usize,
}

impl<T: Copy> Buffer<T> {
    /// Memory for `size` elements, with any content.
    pub fn new(size: usize) -> Self {
        let slack = ALIGNMENT / size_of::<T>();
        let memory: Vec<T> = Vec::with_capacity(size + slack);
        let offset = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, offset }
    }

    /// Memory for `size` elements, each of them `value`.
    pub fn filled(size: usize, value: T) -> Self {
        let buffer = Self::new(size);
        let pointer = buffer.pointer();
        for index in 0..size {
            // SAFETY: inside the allocation.
            unsafe { pointer.at(index).write(value) };
        }
        buffer
    }

    /// Its beginning.
    pub fn pointer(&self) -> Shared<T> {
        // SAFETY: the offset is inside the allocation, which has room for it.
        Shared::new(unsafe { self.memory.as_ptr().add(self.offset) }.cast_mut())
    }
}

/// A pointer that threads share; who uses it answers for writing each element in one thread at a time.
pub(crate) struct Shared<T>(*mut T, PhantomData<T>);

impl<T> Shared<T> {
    pub fn new(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    /// A pointer to read from.
    pub fn of(slice: &[T]) -> Self {
        Self::new(slice.as_ptr().cast_mut())
    }

    /// The pointer `offset` elements on.
    pub fn at(self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: a plain address; see the type's documentation for who answers for its use.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}
