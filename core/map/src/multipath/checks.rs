//! The checks of lane 0: what is sent down a path to see whether it is there, and what its end
//! says. Nothing here waits: an end comes with a later reap, or never.

use weir_bio::{Bio, Buf, Flags, Nanos, Status};
use weir_queue::{Command, CommandEnd, Device, Legs};

use super::control::Verdict;
use super::settings::Checker;
use crate::outgoing::OWN_COOKIES;

/// The cookie of a check's read.
pub(super) const READ: u64 = OWN_COOKIES;

/// A check that brings a unit attention, or the transport's error, is made again so often.
const RETRIES: u8 = 5;

/// TEST UNIT READY, as in SPC-4.
const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// The SCSI status RESERVATION CONFLICT, as in SAM-5: the unit has answered.
const RESERVATION_CONFLICT: u32 = 0x18;

pub(super) struct Checks {
    checker: Checker,
    paths: Vec<PathCheck>,
    /// Commands under way.
    commands: usize,
    ended: Vec<(usize, Verdict)>,
}

#[derive(Clone, Default)]
struct PathCheck {
    /// Its driver takes no commands: it is read from.
    only_reads: bool,
    /// A command is under way.
    has_command: bool,
    retries: u8,
}

impl Checks {
    pub(super) fn new(checker: Checker, paths: usize) -> Checks {
        let paths = vec![PathCheck::default(); paths];
        Checks { checker, paths, commands: 0, ended: Vec::new() }
    }

    /// Begins the check of a path.
    pub(super) fn begin(&mut self, path: usize, leg: &Device, legs: &mut Legs, now: Nanos) {
        self.paths[path].retries = 0;
        self.send(path, leg, legs, now);
    }

    fn send(&mut self, path: usize, leg: &Device, legs: &mut Legs, now: Nanos) {
        if self.checker == Checker::Tur && !self.paths[path].only_reads {
            let command = Command::new(&TEST_UNIT_READY).with(Flags::FAILFAST);
            match legs.send_command(path, command, now) {
                Ok(()) => {
                    self.paths[path].has_command = true;
                    self.commands += 1;
                }
                // The leg is frozen: that says nothing of the path.
                Err(_) => self.ended.push((path, Verdict::Pending)),
            }
            return;
        }
        let block = Buf::zeroed(leg.limits().logical_block_size as usize);
        // It waits for no room: a path that has none is in use.
        let flags = Flags::SYNC | Flags::NOMERGE | Flags::NOWAIT | Flags::FAILFAST;
        legs.send(path, Bio::read(0, block).with(flags).cookie(READ), now);
    }

    /// The read of a path has ended.
    pub(super) fn read_ended(&mut self, path: usize, status: Status) {
        let verdict = match status {
            Status::Again => Verdict::Pending,
            // A medium error came by the path as well.
            status if status.is_path_error() => Verdict::Down,
            _ => Verdict::Up,
        };
        self.ended.push((path, verdict));
    }

    /// Takes the commands that have ended, and begins again what is to be.
    #[inline]
    pub(super) fn take_commands(&mut self, devices: &[Device], legs: &mut Legs, now: Nanos) {
        if self.commands > 0 {
            self.take_commands_now(devices, legs, now);
        }
    }

    #[cold]
    fn take_commands_now(&mut self, devices: &[Device], legs: &mut Legs, now: Nanos) {
        for (path, leg) in devices.iter().enumerate() {
            if !self.paths[path].has_command {
                continue;
            }
            let Some(end) = legs.take_command_end(path) else { continue };
            self.paths[path].has_command = false;
            self.commands -= 1;
            match self.judge(path, &end) {
                Some(verdict) => self.ended.push((path, verdict)),
                None => self.send(path, leg, legs, now),
            }
        }
    }

    /// The meaning of a command's end; `None`: it is sent once more.
    fn judge(&mut self, path: usize, end: &CommandEnd) -> Option<Verdict> {
        let check = &mut self.paths[path];
        if end.status == Status::NotSupp && end.detail.sense.is_none() {
            check.only_reads = true;
            return None;
        }
        if end.detail.driver_status == RESERVATION_CONFLICT {
            return Some(Verdict::Up);
        }
        let sense = end.detail.sense.as_deref().and_then(sense_of);
        match sense {
            Some((2, 0x04, 0x0b)) => return Some(Verdict::Ghost),
            Some((2, 0x04, 0x0a)) => return Some(Verdict::Pending),
            Some((5, 0x25, 0x00)) => return Some(Verdict::Disconnected),
            _ if end.status.is_ok() => return Some(Verdict::Up),
            _ => {}
        }
        let may_pass = matches!(sense, Some((6, ..))) || end.status == Status::Transport;
        if may_pass && check.retries < RETRIES {
            check.retries += 1;
            return None;
        }
        Some(Verdict::Down)
    }

    /// The checks that have ended.
    #[inline]
    pub(super) fn take_ended(&mut self) -> Vec<(usize, Verdict)> {
        std::mem::take(&mut self.ended)
    }
}

/// Sense key, additional sense code and its qualifier, from either format of SPC-4.
fn sense_of(sense: &[u8]) -> Option<(u8, u8, u8)> {
    let at = |index: usize| sense.get(index).copied();
    match at(0)? & 0x7f {
        0x70 | 0x71 => Some((at(2)? & 0xf, at(12)?, at(13)?)),
        0x72 | 0x73 => Some((at(1)? & 0xf, at(2)?, at(3)?)),
        _ => None,
    }
}
