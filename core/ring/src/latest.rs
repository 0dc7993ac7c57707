//! A value that is read often and replaced now and then: to read it takes one load.

use std::ptr;
use std::sync::Arc;

use crate::sync::{AtomicPtr, Mutex, Ordering};

/// The latest of some values. Those before it are kept as long as this is: a reader may still be at
/// one of them, and no reader says when it has gone.
#[derive(Debug)]
pub struct Latest<T> {
    /// The one that counts, which is among those that are kept; null before the first.
    latest: AtomicPtr<T>,
    kept: Mutex<Vec<Arc<T>>>,
}

impl<T> Default for Latest<T> {
    fn default() -> Latest<T> {
        Latest { latest: AtomicPtr::new(ptr::null_mut()), kept: Mutex::new(Vec::new()) }
    }
}

impl<T> Latest<T> {
    /// The latest value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: with the pointer comes what it points to.
        let latest = self.latest.load(Ordering::Acquire);
        // SAFETY: it is null, or points into an `Arc` that is kept until `self` is dropped, which
        // is not before this borrow of it ends. Of a value that is kept there are shared borrows
        // only.
        unsafe { latest.as_ref() }
    }

    /// Makes a value the latest: one that was so before, if it `is_it`, else one that is made.
    ///
    /// # Errors
    /// That of `make`; the latest value is the one that was.
    ///
    /// # Panics
    /// When another thread panicked in here.
    pub fn set<E>(
        &self,
        is_it: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<(), E> {
        let mut kept = self.kept.lock().expect("the values that are kept");
        let known = kept.iter().position(|value| is_it(value));
        let place = match known {
            Some(place) => place,
            None => {
                kept.push(Arc::new(make()?));
                kept.len() - 1
            }
        };
        self.latest.store(Arc::as_ptr(&kept[place]).cast_mut(), Ordering::Release);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_latest_value_is_found_and_one_that_comes_back_is_made_once() {
        let latest = Latest::<u32>::default();
        assert_eq!(latest.get(), None);
        let set = |value| latest.set(|known| *known == value, || Ok::<_, ()>(value));
        assert_eq!(set(1), Ok(()));
        let first = latest.get().expect("one");
        assert_eq!(set(2), Ok(()));
        assert_eq!((latest.get(), *first), (Some(&2), 1));
        assert_eq!(latest.set(|known| *known == 1, || Err(())), Ok(()), "it was known");
        assert!(latest.get().is_some_and(|again| ptr::eq(again, first)));
        assert_eq!(latest.set(|_| false, || Err("no")), Err("no"));
        assert_eq!(latest.get(), Some(&1));
    }

    #[test]
    fn readers_see_one_value_or_another_whole_while_they_are_replaced() {
        let latest = Latest::<[u64; 2]>::default();
        let last = if cfg!(miri) { 50 } else { 5_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=last {
                    latest.set(|_| false, || Ok::<_, ()>([n, !n])).expect("made");
                }
            });
            let mut seen = 0;
            while seen < last {
                let Some([n, other]) = latest.get() else { continue };
                assert!(*n >= seen && *other == !*n, "{n} after {seen}");
                seen = *n;
                std::hint::spin_loop();
            }
        });
    }
}
