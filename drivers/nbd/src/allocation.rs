//! Allocated ranges: BLOCK_STATUS over a connection of its own.
//!
//! The queues never carry it, so that a control call does not wait in their lines, and they never
//! meet an answer of this kind. A server that allows one connection only is not asked: everything
//! counts as data.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use weir_bio::SECTOR;
use weir_proto_nbd::client::{Event, Outstanding, Pending, Replies, Requests};
use weir_proto_nbd::wire::{
    Command, Extent as WireExtent, Request, StatusFlags, TransmissionFlags as Offer,
};
use weir_queue::{DriverError, EXTENTS_MAX, Extent};
use weir_tls::TlsError;

use crate::dial::{self, Opened};
use crate::shared::Shared;

/// Most bytes asked about at a time: servers look at every byte of it before they answer.
const ASKED_MAX: u64 = 1 << 30;

/// Bytes received at a time.
const PIECE: usize = 16 << 10;

/// The control connection of a device.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    talk: Mutex<Talk>,
}

#[derive(Debug, Default)]
enum Talk {
    #[default]
    New,
    Open(Box<Asker>),
    /// The server takes no further connection; it is not bothered again.
    Never,
}

/// A connection that asks one question at a time.
#[derive(Debug)]
struct Asker {
    opened: Opened,
    requests: Requests,
    replies: Replies,
    cookie: u64,
}

/// The one question that is open.
struct Question {
    cookie: u64,
    pending: Option<Pending>,
}

impl Outstanding for Question {
    fn find(&mut self, cookie: u64) -> Option<&mut Pending> {
        if self.cookie == cookie { self.pending.as_mut() } else { None }
    }
}

impl Allocation {
    /// See [`Driver::allocation`](weir_queue::Driver::allocation).
    pub(crate) fn query(
        &self,
        shared: &Shared,
        sector: u64,
        sectors: u64,
    ) -> Result<Vec<Extent>, DriverError> {
        let data = Extent { sectors, hole: false, zero: false };
        let asks =
            shared.info.allocation.is_some() && shared.info.flags.contains(Offer::CAN_MULTI_CONN);
        if !asks || sectors == 0 {
            return Ok(vec![data]);
        }
        let (from, length) = (sector * SECTOR, sectors * SECTOR);
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match std::mem::take(&mut *talk) {
            Talk::New => false,
            Talk::Never => {
                *talk = Talk::Never;
                return Ok(vec![data]);
            }
            Talk::Open(mut asker) => {
                if let Ok(extents) = asker.ask_all(shared, from, length) {
                    *talk = Talk::Open(asker);
                    return Ok(extents);
                }
                // It may have been left alone for too long.
                true
            }
        };
        let mut asker = match Asker::connect(shared) {
            Ok(asker) => Box::new(asker),
            Err(why) if known => return Err(why),
            Err(why) => {
                shared.notices.add(format!("{why}; everything is taken for data"));
                *talk = Talk::Never;
                return Ok(vec![data]);
            }
        };
        let extents = asker.ask_all(shared, from, length)?;
        *talk = Talk::Open(asker);
        Ok(extents)
    }
}

impl Asker {
    fn connect(shared: &Shared) -> Result<Asker, DriverError> {
        let opened = shared.connect("connection for the allocation")?;
        let requests = Requests::new(opened.info.mode);
        let replies = Replies::new(opened.info.mode, opened.info.allocation);
        Ok(Asker { opened, requests, replies, cookie: 0 })
    }

    /// Asks until the range is covered or there are many extents.
    fn ask_all(
        &mut self,
        shared: &Shared,
        from: u64,
        length: u64,
    ) -> Result<Vec<Extent>, DriverError> {
        let end = from + length;
        let mut runs = Runs::new(from);
        while runs.end < end && runs.extents.len() < EXTENTS_MAX {
            let asked = (end - runs.end).min(ASKED_MAX);
            self.ask(shared, runs.end, asked, &mut runs).map_err(|what| DriverError {
                what: format!("{}: allocation of {asked} bytes: {what}", shared.site),
                source: None,
            })?;
        }
        runs.extents.truncate(EXTENTS_MAX);
        Ok(runs.extents)
    }

    /// Asks once. The answer covers at least a part of what was asked.
    fn ask(
        &mut self,
        shared: &Shared,
        from: u64,
        length: u64,
        runs: &mut Runs,
    ) -> Result<(), String> {
        let until = Instant::now() + shared.connect_timeout;
        self.cookie += 1;
        let request = Request::new(Command::BLOCK_STATUS, self.cookie, from, length);
        let mut out = Vec::new();
        let pending = self.requests.push(&request, &mut out).map_err(|why| why.to_string())?;
        let mut question = Question { cookie: self.cookie, pending: Some(pending) };
        self.send(&out)?;
        let mut piece = [0; PIECE];
        loop {
            let got = match recv(self.opened.channel.socket(), &mut piece[..], RecvFlags::DONTWAIT)
            {
                Ok((0, _)) => return Err("the server closed the connection".to_owned()),
                Ok((got, _)) => got,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    let socket = self.opened.channel.socket();
                    match dial::wait(socket, PollFlags::IN, until) {
                        Ok(true) => continue,
                        Ok(false) => {
                            return Err(format!("no answer in {:?}", shared.connect_timeout));
                        }
                        Err(why) => return Err(why.to_string()),
                    }
                }
                Err(errno) => return Err(errno.to_string()),
            };
            if self.take_in(&piece[..got], &mut question, from + length, runs)? {
                return Ok(());
            }
        }
    }

    /// A question is shorter than any socket buffer, so one call sends it.
    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.opened.channel.send(bytes) {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(sent) => Err(format!("sent {sent} of {} bytes", bytes.len())),
            Err(errno) => Err(errno.to_string()),
        }
    }

    /// Takes in what was received, in records or not; true when the answer is complete.
    fn take_in(
        &mut self,
        bytes: &[u8],
        question: &mut Question,
        end: u64,
        runs: &mut Runs,
    ) -> Result<bool, String> {
        let Some(mut session) = self.opened.channel.take_session() else {
            return self.digest(bytes, question, end, runs);
        };
        let mut plain = Vec::new();
        let opened = session.open(bytes, |piece| {
            plain.extend_from_slice(piece);
            Ok::<(), TlsError>(())
        });
        self.opened.channel.put_session(session);
        opened.map_err(|why| why.to_string())?;
        self.digest(&plain, question, end, runs)
    }

    /// Follows the answer; true when it is complete.
    fn digest(
        &mut self,
        mut bytes: &[u8],
        question: &mut Question,
        end: u64,
        runs: &mut Runs,
    ) -> Result<bool, String> {
        loop {
            match self.replies.next(&mut bytes, question).map_err(|why| why.to_string())? {
                Event::NeedMore => return Ok(false),
                Event::Extent { offset, extent, .. } => {
                    let WireExtent { length, flags } = extent;
                    runs.add(offset.saturating_add(length).min(end), flags);
                }
                Event::Error { error, .. } => {
                    return Err(format!("{error} {:?}", self.replies.words()));
                }
                Event::Done { result, .. } => {
                    return result.map(|()| true).map_err(|error| error.to_string());
                }
                Event::Data { .. } | Event::Hole { .. } => {}
            }
        }
    }
}

/// Extents in sectors, made of extents in bytes.
#[derive(Debug)]
struct Runs {
    extents: Vec<Extent>,
    /// The byte up to which the range is covered.
    end: u64,
    /// The sector up to which `extents` go.
    sector: u64,
}

impl Runs {
    fn new(from: u64) -> Runs {
        Runs { extents: Vec::new(), end: from, sector: from / SECTOR }
    }

    /// The bytes up to `end` are alike. A sector that two extents share counts as data.
    fn add(&mut self, end: u64, flags: StatusFlags) {
        let start = std::mem::replace(&mut self.end, end);
        let shared = start.div_ceil(SECTOR);
        if shared > self.sector && end >= shared * SECTOR {
            self.push(shared, StatusFlags::EMPTY);
        }
        if shared <= self.sector {
            self.push(end / SECTOR, flags);
        }
    }

    fn push(&mut self, sector: u64, flags: StatusFlags) {
        let sectors = sector.saturating_sub(self.sector);
        if sectors == 0 {
            return;
        }
        self.sector = sector;
        let hole = flags.contains(StatusFlags::HOLE);
        let zero = flags.contains(StatusFlags::ZERO);
        match self.extents.last_mut() {
            Some(last) if (last.hole, last.zero) == (hole, zero) => last.sectors += sectors,
            _ => self.extents.push(Extent { sectors, hole, zero }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(from: u64, pieces: &[(u64, StatusFlags)]) -> Vec<(u64, bool, bool)> {
        let mut runs = Runs::new(from);
        for &(end, flags) in pieces {
            runs.add(end, flags);
        }
        runs.extents.iter().map(|extent| (extent.sectors, extent.hole, extent.zero)).collect()
    }

    #[test]
    fn neighbours_that_are_alike_are_one_extent() {
        let hole = StatusFlags::HOLE | StatusFlags::ZERO;
        let pieces = [(1024, hole), (2048, hole), (4096, StatusFlags::EMPTY)];
        assert_eq!(runs(512, &pieces), [(3, true, true), (4, false, false)]);
    }

    #[test]
    fn a_sector_shared_by_two_extents_is_data() {
        let hole = StatusFlags::HOLE;
        let pieces = [(700, hole), (900, hole), (3000, hole), (4096, StatusFlags::ZERO)];
        let expected = [(1, true, false), (1, false, false), (3, true, false), (1, false, false)];
        assert_eq!(runs(0, &pieces), [&expected[..], &[(2, false, true)]].concat());
    }
}
