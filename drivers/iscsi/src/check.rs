//! A session that was made again, before it is used: whether the target is the one it was, by what
//! identifies its logical units.

use std::os::fd::{AsFd, BorrowedFd};

use weir_bio::{Buf, Data, Nanos};
use weir_driver_scsi::{Command, Direction, Ends};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::sense::SenseFormat;
use weir_proto_scsi::{AdditionalSense, Lun, ScsiStatus, Sense, SenseKey};

use crate::identity;
use crate::link::{Answers, Heard, Link, REAPED_MAX};
use crate::slots::Slots;

/// A session, and the units to be looked at, the next one last.
pub(crate) struct Check {
    link: Box<Link>,
    units: Vec<(Lun, Vec<u8>)>,
    slots: Slots,
    asking: bool,
    until: Nanos,
}

/// What came of a step.
pub(crate) enum Verdict {
    Waiting(Box<Check>),
    /// It is the target that it was.
    Same(Box<Link>),
    /// It may become that: try again later.
    NotYet(String),
    /// It has another logical unit under this number.
    Another(Box<Link>, Lun),
}

impl Check {
    pub(crate) fn new(link: Box<Link>, units: Vec<(Lun, Vec<u8>)>, until: Nanos) -> Check {
        Check { link, units, slots: Slots::new(1, 1), asking: false, until }
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.link.wants_write()
    }

    pub(crate) fn until(&self) -> Nanos {
        if self.link.is_due() { Nanos::ZERO } else { self.until }
    }

    /// Goes as far as the socket allows.
    pub(crate) fn step(mut self: Box<Self>, window: &mut [u8], now: Nanos) -> Verdict {
        let (mut ends, mut heard) = (Ends::default(), Heard::default());
        let mut reaped = 0;
        loop {
            let Some(lun) = self.units.last().map(|(lun, _)| *lun) else {
                return Verdict::Same(self.link);
            };
            if !self.asking && self.ask(lun, now).is_err() {
                return Verdict::NotYet("the target takes no command".to_owned());
            }
            self.asking = true;
            let mut to = Answers { slots: &mut self.slots, ends: &mut ends, heard: &mut heard };
            let received = match self.link.receive(window, &mut to, now) {
                Ok(received) => received,
                Err(why) => return Verdict::NotYet(why.to_string()),
            };
            self.link.send(&mut self.slots);
            if ends.commands.is_empty() {
                if now >= self.until {
                    return Verdict::NotYet("the target does not answer in time".to_owned());
                }
                // A target that never stops sending does not keep the thread.
                reaped += received.bytes;
                if received.more && reaped < REAPED_MAX {
                    continue;
                }
                return Verdict::Waiting(self);
            }
            let found = identity_in(&ends);
            ends.clear();
            let (_, expected) = self.units.pop().expect("the one that was asked");
            self.asking = false;
            match found {
                None => return Verdict::NotYet(format!("logical unit {lun} is not there")),
                Some(found) if found != expected => return Verdict::Another(self.link, lun),
                Some(_) => {}
            }
        }
    }

    fn ask(&mut self, lun: Lun, now: Nanos) -> Result<(), weir_driver_scsi::Refusal> {
        self.link.heard_at(now);
        let mut memory = vec![Data::One(Buf::zeroed(identity::LEN.into()))];
        let (cdb, direction) = (identity::cdb(), Direction::In(identity::LEN.into()));
        let command = Command { slot: 0, lun, cdb: &cdb, direction };
        self.link.take(&command, &mut memory, &mut self.slots)?;
        self.link.send(&mut self.slots);
        Ok(())
    }
}

/// The identity in the answer to the question for it.
fn identity_in(ends: &Ends) -> Option<Vec<u8>> {
    let end = ends.commands.first()?;
    let good = end.delivery == Delivery::Delivered && end.status == ScsiStatus::GOOD;
    let mut page = vec![0; identity::LEN.into()];
    ends.memory.iter().for_each(|data| data.copy_to(&mut page));
    identity::of(&page[..end.moved as usize]).filter(|_| good)
}

impl AsFd for Check {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Has the mid-layer ask the unit anew: what is known of it was told by another path, which knows
/// neither this one's target port nor the state of that.
pub(crate) fn have_asked_anew(unit: Lun, ends: &mut Ends) {
    let changed = Sense::new(SenseKey::UnitAttention, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
    let before = ends.event_sense.len();
    changed.put(SenseFormat::Fixed, &mut ends.event_sense);
    ends.events.push((unit, (ends.event_sense.len() - before) as u8));
}
