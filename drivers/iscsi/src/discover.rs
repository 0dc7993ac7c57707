//! What a portal has: its targets, and the logical units of each. These calls block.

use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use weir_driver_scsi::{Asked, Asker, Transport};
use weir_proto_iscsi::Portal;
use weir_proto_iscsi::discovery::{Discovery, Step, Targets};
use weir_proto_iscsi::login::{Isid, SessionKind};
use weir_proto_scsi::command::ScsiCommand;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::report_luns::LunList;
use weir_proto_scsi::{Lun, ScsiStatus, Sense};
use weir_queue::DriverError;

use crate::dial::{self, DialError, Dialled, Opened, failed};
use crate::peer::{self, HOPS_MAX};
use crate::{Iscsi, Options, socket};

const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
/// Bytes of a list of logical units that are asked for: 8,191 of them.
const LIST_LEN: u32 = 64 << 10;
/// Tries of a command that a unit attention gets in the way of.
const TRIES: u32 = 5;

/// Asks the first of the options' portals that answers for its targets. A portal need not prove
/// itself, also where the targets have to: what it tells is no more than where to look.
///
/// # Errors
/// No portal could be asked, with the reason of the last.
pub fn discover(options: &Options) -> Result<Targets, DriverError> {
    let mut last = failed("iscsi", "no portal is named");
    let options = &Options { target_secret: None, ..options.clone() };
    for portal in &options.portals {
        let end = dial::from_now(options.login_timeout);
        match discover_at(portal, options, end, HOPS_MAX) {
            Ok(targets) => return Ok(targets),
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn discover_at(
    portal: &Portal,
    options: &Options,
    end: Instant,
    hops: u32,
) -> Result<Targets, DriverError> {
    let site = format!("iscsi://{portal}");
    let named = |why: DialError| failed(&site, why);
    let addresses = socket::look_up(portal).map_err(|source| DriverError {
        what: format!("{site}: look up {:?}", portal.host),
        source: Some(source),
    })?;
    let random = peer::random().map_err(|errno| named(DialError::Socket("random", errno)))?;
    let mut last = failed(&site, "the name has no address");
    for address in addresses {
        let initiator = options.initiator.clone().unwrap_or_else(crate::default_initiator);
        let isid = Isid::random(random, 0);
        let settings = peer::settings(options, initiator, SessionKind::Discovery, isid);
        match settings.and_then(|settings| dial::connect(&address, settings, end)) {
            Ok(Dialled::Opened(opened)) => return question(opened, end).map_err(named),
            Ok(Dialled::Moved(_)) if hops == 0 => {
                return Err(failed(&site, "the portal has moved too many times"));
            }
            Ok(Dialled::Moved(portal)) => return discover_at(&portal, options, end, hops - 1),
            Err(why) => last = named(why),
        }
    }
    Err(last)
}

/// SendTargets, on a session that was opened for it.
fn question(opened: Opened, end: Instant) -> Result<Targets, DialError> {
    let Opened { socket, start, behind } = opened;
    let (mut out, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
    let mut discovery = Discovery::new(&start, &mut out);
    let mut input = behind;
    loop {
        let step = discovery.input(&mut &input[..], &mut out);
        while !out.is_empty() {
            match send(&socket, &out, FLAGS) {
                Ok(sent) => drop(out.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(&socket, PollFlags::OUT, end)?,
                Err(errno) => return Err(DialError::Socket("send", errno)),
            }
        }
        match step {
            Step::NeedMore => {}
            Step::Found(targets) => return Ok(targets),
            Step::Failed(why) => return Err(DialError::Settings(why.to_string())),
        }
        input.clear();
        match recv(&socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(DialError::Closed),
            Ok((got, _)) => input.extend_from_slice(&bytes[..got]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(&socket, PollFlags::IN, end)?,
            Err(errno) => return Err(DialError::Socket("receive", errno)),
        }
    }
}

fn wait(socket: impl std::os::fd::AsFd, flags: PollFlags, end: Instant) -> Result<(), DialError> {
    match socket::wait(socket, flags, end) {
        Ok(true) => Ok(()),
        Ok(false) => Err(DialError::Silent),
        Err(errno) => Err(DialError::Socket("poll", errno)),
    }
}

/// The disks of a target, by number: those that REPORT LUNS lists and whose device type is that of
/// a disk.
///
/// # Errors
/// There is no session, or the target does not list its logical units.
pub fn units(target: &Iscsi) -> Result<Vec<Lun>, DriverError> {
    let mut list = Listing { tries: 0, listed: None, disks: Vec::new(), why: None };
    target.ask(&mut list)?;
    match list.why {
        Some(why) => Err(failed(&target.name(), why)),
        None => Ok(list.disks),
    }
}

/// REPORT LUNS, then INQUIRY of each unit.
struct Listing {
    tries: u32,
    /// The units that were listed and not asked, the next one last; `None` before the list came.
    listed: Option<Vec<Lun>>,
    disks: Vec<Lun>,
    why: Option<String>,
}

impl Asker for Listing {
    fn next(&mut self) -> Option<(Lun, Vec<u8>, Asked)> {
        if self.why.is_some() {
            return None;
        }
        let (lun, command, length) = match &self.listed {
            None => {
                let report = ScsiCommand::ReportLuns { select: 0, allocation: LIST_LEN };
                (Lun::ZERO, report, LIST_LEN)
            }
            Some(units) => {
                (*units.last()?, ScsiCommand::Inquiry { page: None, allocation: 36 }, 36)
            }
        };
        let cdb = command.encode().expect("fields that fit");
        Some((lun, cdb.bytes().to_vec(), Asked::In(length)))
    }

    fn answer(&mut self, delivery: Delivery, status: ScsiStatus, data: &[u8], sense: &[u8]) {
        let good = delivery == Delivery::Delivered && status == ScsiStatus::GOOD;
        if let Some(units) = &mut self.listed {
            if let Some(lun) = units.pop()
                && good
                && data.first() == Some(&0)
            {
                self.disks.push(lun);
            }
            return;
        }
        if good && let Ok(list) = LunList::decode(data) {
            let mut units: Vec<_> = list.luns().collect();
            units.sort_by_key(|lun| std::cmp::Reverse(lun.number()));
            self.listed = Some(units);
            return;
        }
        self.tries += 1;
        if self.tries == TRIES {
            let sense = Sense::decode(sense).map(|sense| format!("{sense:?}")).unwrap_or_default();
            self.why = Some(format!("REPORT LUNS: {delivery:?}, {status}, {sense}"));
        }
    }
}
