//! The disks of a group as one run of bytes: allocation unit after allocation unit, on each disk in
//! turn.
//!
//! As Oracle ASM stripes what is given to it as a disk group, coarsely: over all its disks, in
//! units of 1 MB ("Striping Using Oracle ASM", VLDB and Partitioning Guide, 12c release 1). Disks
//! of one size are what that guide asks for; of larger ones the rest is not used. There is no
//! mirror in it, as in a group of external redundancy.

/// Bytes of an allocation unit.
pub const UNIT_BYTES: u64 = 1 << 20;
/// Disks of a group at most.
pub const DISKS_MAX: u8 = 64;

/// How bytes of a group lie on its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    disks: u8,
}

impl Stripe {
    /// Over so many disks. One alone has its bytes as they are.
    ///
    /// # Panics
    /// Where there is none, or are more than [`DISKS_MAX`].
    #[must_use]
    pub fn new(disks: u8) -> Stripe {
        assert!((1..=DISKS_MAX).contains(&disks), "disks={disks} is outside 1..={DISKS_MAX}");
        Stripe { disks }
    }

    /// Its disks.
    #[must_use]
    pub fn disks(self) -> u8 {
        self.disks
    }

    /// The bytes of the group, if the smallest of its disks has `smallest`; `None` above 2^64 - 1.
    #[must_use]
    pub fn bytes(self, smallest: u64) -> Option<u64> {
        match self.disks {
            1 => Some(smallest),
            disks => (smallest / UNIT_BYTES * UNIT_BYTES).checked_mul(u64::from(disks)),
        }
    }

    /// Where a byte of the group is: its disk, from 0, and the byte of that.
    #[must_use]
    pub fn place(self, at: u64) -> (u8, u64) {
        if self.disks == 1 {
            return (0, at);
        }
        let (unit, disks) = (at / UNIT_BYTES, u64::from(self.disks));
        ((unit % disks) as u8, unit / disks * UNIT_BYTES + at % UNIT_BYTES)
    }

    /// How many bytes from this one on lie in one piece on its disk.
    #[must_use]
    pub fn in_one_piece(self, at: u64) -> u64 {
        match self.disks {
            1 => u64::MAX - at,
            _ => UNIT_BYTES - at % UNIT_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_go_to_each_disk_in_turn() {
        let stripe = Stripe::new(3);
        let units: Vec<_> = (0..7).map(|unit| stripe.place(unit * UNIT_BYTES + 5)).collect();
        let second = UNIT_BYTES + 5;
        let third = 2 * UNIT_BYTES + 5;
        assert_eq!(
            units,
            [(0, 5), (1, 5), (2, 5), (0, second), (1, second), (2, second), (0, third)]
        );
        assert_eq!(stripe.in_one_piece(4 * UNIT_BYTES), UNIT_BYTES);
        assert_eq!(stripe.in_one_piece(5 * UNIT_BYTES - 4096), 4096);
    }

    #[test]
    fn every_byte_of_a_group_has_a_place_of_its_own_within_the_smallest_disk() {
        let grain = UNIT_BYTES / 4;
        for disks in [1, 2, 5, 16] {
            let stripe = Stripe::new(disks);
            // A disk whose last unit is not whole.
            let smallest = 3 * UNIT_BYTES + if disks == 1 { 0 } else { grain };
            let bytes = stripe.bytes(smallest).expect("below 2^64");
            assert_eq!(bytes, 3 * UNIT_BYTES * u64::from(disks));
            let mut seen = std::collections::BTreeSet::new();
            for at in (0..bytes).step_by(grain as usize) {
                let (disk, byte) = stripe.place(at);
                assert!(disk < disks && byte + grain <= smallest, "{at}: {disk}, {byte}");
                assert!(seen.insert((disk, byte)), "{at} is where another is: {disk}, {byte}");
            }
        }
    }

    #[test]
    fn a_group_of_more_bytes_than_can_be_counted_has_none() {
        let largest = u64::MAX / 2 / UNIT_BYTES * UNIT_BYTES;
        assert_eq!(Stripe::new(2).bytes(largest), Some(2 * largest));
        assert_eq!(Stripe::new(2).bytes(u64::MAX), None);
        assert_eq!(Stripe::new(3).bytes(largest), None);
    }

    #[test]
    fn a_disk_alone_is_as_it_is() {
        let stripe = Stripe::new(1);
        assert_eq!(stripe.bytes(UNIT_BYTES + 512), Some(UNIT_BYTES + 512));
        assert_eq!(stripe.place(5 * UNIT_BYTES + 7), (0, 5 * UNIT_BYTES + 7));
        assert!(stripe.in_one_piece(UNIT_BYTES - 1) > 1 << 60);
    }
}
