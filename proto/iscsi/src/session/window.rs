//! The command window: how many commands the target takes. RFC 7143, section 4.2.2.1.

use crate::wire::{Numbers, Serial};

/// The initiator's side of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The number of the next command.
    next: Serial,
    exp: Serial,
    max: Serial,
}

impl Window {
    pub(super) const fn new(next: Serial, numbers: Numbers) -> Self {
        Self { next, exp: numbers.exp_cmd_sn, max: numbers.max_cmd_sn }
    }

    /// The number of the next command.
    pub(super) const fn next(&self) -> Serial {
        self.next
    }

    /// Commands that may be sent.
    #[inline]
    pub(super) const fn room(&self) -> u32 {
        let room = self.max.next().since(self.next);
        if room > 0 { room.cast_unsigned() } else { 0 }
    }

    /// Takes the number of a command.
    #[inline]
    pub(super) const fn take(&mut self) -> Option<Serial> {
        if self.room() == 0 {
            return None;
        }
        let taken = self.next;
        self.next = taken.next();
        Some(taken)
    }

    /// Takes the numbers of a PDU. The two move forward only, and a pair that contradicts itself is
    /// ignored.
    #[inline]
    pub(super) const fn update(&mut self, numbers: Numbers) {
        let Numbers { exp_cmd_sn, max_cmd_sn, .. } = numbers;
        if max_cmd_sn.next().is_before(exp_cmd_sn) {
            return;
        }
        if self.max.is_before(max_cmd_sn) {
            self.max = max_cmd_sn;
        }
        if self.exp.is_before(exp_cmd_sn) {
            self.exp = exp_cmd_sn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use crate::wire::{Numbers, Serial};

    fn numbers(exp: u32, max: u32) -> Numbers {
        Numbers { stat_sn: Serial(0), exp_cmd_sn: Serial(exp), max_cmd_sn: Serial(max) }
    }

    #[test]
    fn a_window_has_room_up_to_and_with_its_last_number() {
        let mut window = Window::new(Serial(5), numbers(5, 6));
        assert_eq!(window.room(), 2);
        assert_eq!((window.take(), window.take()), (Some(Serial(5)), Some(Serial(6))));
        assert_eq!((window.room(), window.take(), window.next()), (0, None, Serial(7)));
        // Closed is MaxCmdSN = ExpCmdSN - 1.
        window.update(numbers(7, 6));
        assert_eq!(window.room(), 0);
        window.update(numbers(7, 7));
        assert_eq!(window.room(), 1);
    }

    #[test]
    fn old_and_contradicting_numbers_change_nothing() {
        let mut window = Window::new(Serial(5), numbers(5, 10));
        window.update(numbers(4, 8));
        assert_eq!(window.room(), 6);
        // MaxCmdSN before ExpCmdSN - 1.
        window.update(numbers(14, 12));
        assert_eq!(window.room(), 6);
        window.update(numbers(14, 13));
        assert_eq!(window.room(), 9);
    }

    /// Against arithmetic on numbers that do not wrap, from a start just before the wrap.
    #[test]
    fn the_window_is_the_same_across_the_wrap() {
        const START: u64 = 0xffff_ff00;
        let serial = |number: u64| Serial((number & 0xffff_ffff) as u32);
        let (mut next, mut exp, mut max) = (START, START, START + 3);
        let of = |exp: u64, max: u64| Numbers {
            stat_sn: Serial(0),
            exp_cmd_sn: serial(exp),
            max_cmd_sn: serial(max),
        };
        let mut window = Window::new(serial(next), of(exp, max));
        let mut dice = 7_u64;
        for _ in 0..20_000 {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let roll = dice >> 60;
            if roll < 9 {
                let taken = window.take();
                assert_eq!(taken, (next <= max).then(|| serial(next)));
                next += u64::from(taken.is_some());
            } else {
                // The target takes some, and tells a window from closed to 8, perhaps one of old.
                let step = (dice >> 40 & 7).min(next - exp);
                let told = exp + step;
                let end = told - 1 + (dice >> 32 & 7);
                window.update(of(told, end));
                (exp, max) = (told, max.max(end));
            }
            assert_eq!(u64::from(window.room()), (max + 1).saturating_sub(next));
        }
        assert!(next > START + 0x1000, "{next:#x}");
    }
}
