//! Questions to a target on a session of their own, for control calls: these block.

use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use weir_bio::{Buf, Data, Nanos};
use weir_driver_scsi::{Asked, Asker, Command, Delivered, Direction, Ends, Refusal};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::DriverError;

use crate::dial::failed;
use crate::link::{Answers, Heard, Link, Loss};
use crate::peer::Peer;
use crate::slots::Slots;
use crate::{identity, socket};

/// How long one command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the answer to the logout is waited for.
const FAREWELL: Duration = Duration::from_millis(500);
/// Bytes received at a time.
const WINDOW: usize = 64 << 10;
/// Bytes that one command may ask for.
const DATA_MAX: u32 = 16 << 20;

/// A session for questions.
struct Conversation<'a> {
    peer: &'a Peer,
    link: Link,
    slots: Slots,
    window: Vec<u8>,
    ends: Ends,
    heard: Heard,
    began: Instant,
}

/// Sends the commands of `asker` one after the other until it has no more.
///
/// # Errors
/// There is no session, or it was lost.
pub(crate) fn ask(peer: &Peer, asker: &mut dyn Asker) -> Result<(), DriverError> {
    let Some(mut next) = asker.next() else { return Ok(()) };
    let opened = peer.log_in(peer.asking_isid(), 0)?;
    let link = Link::new(opened, peer.keeping(1), Nanos::ZERO);
    let mut conversation = Conversation {
        peer,
        link,
        slots: Slots::new(1, 1),
        window: vec![0; WINDOW],
        ends: Ends::default(),
        heard: Heard::default(),
        began: Instant::now(),
    };
    loop {
        let (lun, cdb, asked) = &next;
        let (end, data) = conversation.run(*lun, cdb, asked)?;
        let data = &data[..data.len().min(end.moved as usize)];
        let good = end.delivery == Delivery::Delivered && end.status == ScsiStatus::GOOD;
        if good
            && identity::is_asked_by(cdb)
            && let Some(identity) = identity::of(data)
        {
            peer.learn(*lun, identity);
        }
        asker.answer(end.delivery, end.status, data, &conversation.ends.sense);
        match asker.next() {
            Some(command) => next = command,
            None => break,
        }
    }
    conversation.leave();
    Ok(())
}

impl Conversation<'_> {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// One command: how it ended, and the data of one that asks for some.
    fn run(
        &mut self,
        lun: Lun,
        cdb: &[u8],
        asked: &Asked,
    ) -> Result<(Delivered, Vec<u8>), DriverError> {
        self.ends.clear();
        let end = Instant::now() + COMMAND_TIMEOUT;
        self.send(lun, cdb, asked, end)?;
        while self.ends.commands.is_empty() {
            self.turn(end)?;
        }
        let mut data = Vec::new();
        if let Asked::In(_) = asked {
            data.resize(self.ends.memory.iter().map(Data::len).sum(), 0);
            self.ends.memory.iter().for_each(|memory| memory.copy_to(&mut data));
        }
        Ok((self.ends.commands[0], data))
    }

    fn send(
        &mut self,
        lun: Lun,
        cdb: &[u8],
        asked: &Asked,
        end: Instant,
    ) -> Result<(), DriverError> {
        let (direction, buf) = match asked {
            Asked::Nothing | Asked::In(0) => (Direction::None, None),
            Asked::In(length) => {
                let length = (*length).min(DATA_MAX);
                (Direction::In(length), Some(Buf::zeroed(length as usize)))
            }
            Asked::Out(bytes) if bytes.is_empty() => (Direction::None, None),
            Asked::Out(bytes) => {
                let buf = Buf::filled(bytes.len(), |memory| memory.copy_from_slice(bytes));
                (Direction::Out(bytes.len() as u32), Some(buf))
            }
        };
        let mut memory: Vec<_> = buf.map(Data::One).into_iter().collect();
        let command = Command { slot: 0, lun, cdb, direction };
        loop {
            match self.link.take(&command, &mut memory, &mut self.slots) {
                Ok(()) => break,
                Err(Refusal::Busy) => self.turn(end)?,
                Err(_) => return Err(self.lost(&"the target takes no command")),
            }
        }
        self.link.send(&mut self.slots);
        Ok(())
    }

    /// Waits for the socket, and moves what it has.
    fn turn(&mut self, end: Instant) -> Result<(), DriverError> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.link.wants_write());
        // A ping may be due before the end.
        let pause = Instant::now() + Duration::from_millis(500);
        let ready = socket::wait(&self.link, flags, end.min(pause));
        let ready = ready.map_err(|errno| self.lost(&Loss::Receive(errno)))?;
        if !ready && Instant::now() >= end {
            return Err(self.lost(&"a command got no answer in time"));
        }
        let now = self.now();
        self.step(now).map_err(|why| self.lost(&why))
    }

    fn step(&mut self, now: Nanos) -> Result<(), Loss> {
        let (ends, heard) = (&mut self.ends, &mut self.heard);
        let mut to = Answers { slots: &mut self.slots, ends, heard };
        self.link.receive(&mut self.window, &mut to, now)?;
        // What a target says unasked is for the ports; here it would only pile up.
        self.heard.notices.clear();
        self.ends.events.clear();
        self.ends.event_sense.clear();
        self.link.tick(now, &mut self.slots, drop)?;
        self.link.send(&mut self.slots);
        self.slots.tell(&mut self.ends);
        self.link.broken().map_or(Ok(()), Err)
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> DriverError {
        failed(&self.peer.site, format!("the session for questions: {why}"))
    }

    /// Leaves; a target that does not answer soon finds the end of the connection.
    fn leave(mut self) {
        self.link.log_out(Nanos(u64::MAX), &mut self.slots);
        let end = Instant::now() + FAREWELL;
        while !self.heard.logged_out && self.turn(end).is_ok() {}
    }
}
