//! The facade: the standard library's atomics, or loom's when a model is checked.

#[cfg(loom)]
mod twin;

#[cfg(loom)]
pub use self::twin::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub use loom::{
    cell::{MutPtr, UnsafeCell},
    sync::atomic::{Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
};

#[cfg(not(loom))]
pub use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Lets another thread run.
#[inline]
pub fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Bytes that one CPU fetches from another at once.
pub(crate) const LINE: usize = 64;

/// Has the CPU bring the line at `place` nearer, to read it, while it does something else.
#[inline]
pub(crate) fn fetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which touches no memory that can be seen, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    let _ = place;
}

/// The same, to write it.
#[inline]
pub(crate) fn fetch_to_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: as above; a CPU that has no such instruction takes it for one that does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    let _ = place;
}

/// The standard cell, with loom's interface.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer for reading.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer for writing.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The standard pointer for writing a cell, with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub struct MutPtr<T>(*mut T);

#[cfg(not(loom))]
impl<T> MutPtr<T> {
    /// Calls `f` with the pointer.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0)
    }
}

/// Opens `cell` for writing, for longer than a closure lasts. Loom holds any other access that
/// comes while the pointer lives against the model.
#[inline]
pub fn writing<T>(cell: &UnsafeCell<T>) -> MutPtr<T> {
    #[cfg(loom)]
    return cell.get_mut();
    #[cfg(not(loom))]
    MutPtr(cell.0.get())
}

/// Keeps what it wraps on cache lines of its own (two, for the adjacent-line prefetcher).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);

impl<T> std::ops::Deref for Alone<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for Alone<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
