//! I/Os under way of one queue, and the caller's memory that they have.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, Weak};

use weir::{Data, Op, Owner, Segment, Segments};

/// What its user asks of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) op: Op,
    /// Bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Bits of `WEIR_REQ_*`.
    pub(crate) flags: u32,
    /// The caller's word: an address, that is never followed.
    pub(crate) user_data: usize,
}

/// An I/O under way.
pub(crate) struct Slot {
    pub(crate) ask: Ask,
    /// A range of zeroes that the device has no command for: its bytes that are on their way or
    /// written.
    pub(crate) zeroed: Option<u64>,
    owner: Arc<Hold>,
    /// A table for segments that was used before.
    spare: Option<Segments>,
}

/// Stands for the caller's memory: as long as a piece of it is with a device, this has a holder
/// beside the slot.
struct Hold;

/// Memory that a device held on to when its I/O ended.
#[derive(Clone, Default)]
pub(crate) struct HeldMemory(Arc<Mutex<Vec<Weak<Hold>>>>);

impl HeldMemory {
    /// I/Os whose memory is still with the device.
    pub(crate) fn count(&self) -> usize {
        let mut held = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        held.retain(|hold| hold.strong_count() > 0);
        // The caller may use the memory of those that are gone: behind what the device did to it.
        fence(Ordering::Acquire);
        held.len()
    }

    fn add(&self, hold: &Arc<Hold>) {
        let mut held = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        held.retain(|hold| hold.strong_count() > 0);
        held.push(Arc::downgrade(hold));
    }
}

/// The slots of a queue. The number of one is the cookie of its I/O.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Slots {
    /// I/Os under way.
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn take(&mut self, ask: Ask) -> usize {
        let Some(index) = self.free.pop() else {
            self.slots.push(Slot { ask, zeroed: None, owner: Arc::new(Hold), spare: None });
            return self.slots.len() - 1;
        };
        let slot = &mut self.slots[index];
        (slot.ask, slot.zeroed) = (ask, None);
        index
    }

    pub(crate) fn at(&mut self, index: usize) -> &mut Slot {
        &mut self.slots[index]
    }

    /// Frees a slot. True: its memory is still with the device, and is counted in `held` until
    /// that lets go of it.
    pub(crate) fn give_back(&mut self, index: usize, data: Data, held: &HeldMemory) -> bool {
        let slot = &mut self.slots[index];
        if let Data::Segments(mut segments) = data {
            segments.clear();
            slot.spare = Some(segments);
        }
        self.free.push(index);
        if Arc::strong_count(&slot.owner) == 1 {
            // As in `count`.
            fence(Ordering::Acquire);
            return false;
        }
        held.add(&slot.owner);
        slot.owner = Arc::new(Hold);
        true
    }

    /// Counts the memory of all that is under way as held, which is told no end any more.
    pub(crate) fn leave(&self, held: &HeldMemory) {
        self.slots.iter().for_each(|slot| held.add(&slot.owner));
    }
}

impl Slot {
    /// The caller's memory for a bio.
    ///
    /// # Safety
    /// Each segment stays mapped and may be written until the slot was
    /// [given back](Slots::give_back), or, if that says so, until [`HeldMemory`] does not count it
    /// any more. Whatever else touches it meanwhile does so without Rust references.
    pub(crate) unsafe fn memory(&mut self, segments: &[Segment]) -> Data {
        let owner: Owner = self.owner.clone();
        let table = match self.spare.take() {
            Some(mut table) => {
                // SAFETY: the caller's promise; the owner is in the slot, which keeps it until
                // `give_back`, and then `HeldMemory` watches it.
                unsafe { table.refill(owner, segments) };
                table
            }
            // SAFETY: as above.
            None => unsafe { Segments::new(owner, segments) },
        };
        Data::Segments(table)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    const ASK: Ask = Ask { op: Op::Read, offset: 0, len: 512, flags: 0, user_data: 0 };

    fn memory(slots: &mut Slots, index: usize, bytes: &mut [u8; 512]) -> Data {
        let start = NonNull::new(bytes.as_mut_ptr()).expect("memory");
        // SAFETY: the test keeps the array longer than the data, and does not use it meanwhile.
        unsafe { slots.at(index).memory(&[Segment { start, len: 512 }]) }
    }

    #[test]
    fn memory_that_a_device_holds_on_to_is_counted_until_it_lets_go() {
        let (mut slots, held) = (Slots::default(), HeldMemory::default());
        let mut bytes = [[0; 512]; 2];
        let index = slots.take(ASK);
        let data = memory(&mut slots, index, &mut bytes[0]);
        assert!(!slots.give_back(index, data, &held), "it came back");
        assert_eq!((held.count(), slots.used()), (0, 0));

        let index = slots.take(ASK);
        let at_device = memory(&mut slots, index, &mut bytes[0]);
        assert!(slots.give_back(index, Data::None, &held));
        assert_eq!((held.count(), slots.used()), (1, 0));
        // Another I/O of the slot is none of that one's.
        let again = slots.take(ASK);
        assert_eq!(again, index);
        let data = memory(&mut slots, again, &mut bytes[1]);
        assert!(!slots.give_back(again, data, &held));
        assert_eq!(held.count(), 1);
        drop(at_device);
        assert_eq!(held.count(), 0);
    }

    #[test]
    fn what_is_left_under_way_is_held() {
        let (mut slots, held) = (Slots::default(), HeldMemory::default());
        let mut bytes = [0; 512];
        let index = slots.take(ASK);
        let at_device = memory(&mut slots, index, &mut bytes);
        slots.leave(&held);
        drop(slots);
        assert_eq!(held.count(), 1);
        drop(at_device);
        assert_eq!(held.count(), 0);
    }
}
