//! Loom's atomics, each with a twin that makes loom try more orders.
//!
//! Loom reorders two threads only where their accesses to one object depend on each other, and of
//! each object it remembers the last access alone. So a thread that looks before it exchanges hides
//! what others looked at before: its own look is the last access, which never races with its own
//! exchange. With a look by one thread against a look and an exchange by another, loom 0.7 tries a
//! single order. Here each access stores to a twin first. Stores depend on each other, so every
//! order is tried; and because they are never read, they order nothing.

use std::ops::Deref;

use loom::sync::atomic;

/// An atomic that is reached through its twin.
#[derive(Debug, Default)]
pub struct Twin<A> {
    atomic: A,
    twin: atomic::AtomicUsize,
}

impl<A> Deref for Twin<A> {
    type Target = A;

    #[track_caller]
    fn deref(&self) -> &A {
        self.twin.store(0, atomic::Ordering::Relaxed);
        &self.atomic
    }
}

/// As in std.
pub type AtomicU32 = Twin<atomic::AtomicU32>;
/// As in std.
pub type AtomicU64 = Twin<atomic::AtomicU64>;
/// As in std.
pub type AtomicUsize = Twin<atomic::AtomicUsize>;
/// As in std.
pub type AtomicPtr<T> = Twin<atomic::AtomicPtr<T>>;

impl Twin<atomic::AtomicU32> {
    /// As in std.
    #[track_caller]
    pub fn new(value: u32) -> Self {
        Twin { atomic: atomic::AtomicU32::new(value), twin: atomic::AtomicUsize::new(0) }
    }
}

impl Twin<atomic::AtomicU64> {
    /// As in std.
    #[track_caller]
    pub fn new(value: u64) -> Self {
        Twin { atomic: atomic::AtomicU64::new(value), twin: atomic::AtomicUsize::new(0) }
    }
}

impl Twin<atomic::AtomicUsize> {
    /// As in std.
    #[track_caller]
    pub fn new(value: usize) -> Self {
        Twin { atomic: atomic::AtomicUsize::new(value), twin: atomic::AtomicUsize::new(0) }
    }
}

impl<T> Twin<atomic::AtomicPtr<T>> {
    /// As in std.
    #[track_caller]
    pub fn new(value: *mut T) -> Self {
        Twin { atomic: atomic::AtomicPtr::new(value), twin: atomic::AtomicUsize::new(0) }
    }
}
