//! The target as all ports of a device share it: how to reach it, how to log in, and which logical
//! units it had.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};
use weir_driver_scsi::Adapter;
use weir_proto_iscsi::chap::Algorithm;
use weir_proto_iscsi::login::{Auth, Isid, Nonce, SessionKind, Settings};
use weir_proto_iscsi::session::Keeping;
use weir_proto_iscsi::{IscsiName, Portal};
use weir_proto_scsi::Lun;
use weir_queue::DriverError;

use crate::dial::{self, DialError, Dialled, Opened, failed};
use crate::{Options, socket};

/// Redirections that are followed by one login.
pub(crate) const HOPS_MAX: u32 = 4;

/// The bound of time after which a write of a lost session counts as one that lands no more is
/// twice the replacement time-out, and at least this.
const BOUND_MIN_NS: u64 = 10_000_000_000;

/// Qualifiers of sessions for questions begin here; those below are the ports'.
const ASKING: u16 = 0x8000;

/// The target, for all ports.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Portal and name of the target, as messages call it.
    pub(crate) site: String,
    pub(crate) options: Options,
    pub(crate) target: IscsiName,
    initiator: IscsiName,
    /// The random part of every ISID of this device.
    host: [u8; 3],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Addresses of portals that were looked up.
    known: BTreeMap<(String, u16), Vec<SocketAddr>>,
    /// What identified each logical unit in use when it was first asked.
    units: BTreeMap<[u8; 8], Vec<u8>>,
    /// Sessions that were opened for questions.
    asked: u16,
    /// Ports that are open.
    open: BTreeSet<u16>,
    /// Open ports without a session, by their numbers, and why.
    out: BTreeMap<u16, Out>,
}

/// Why a port has no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// It was lost, and is to be made again.
    Lost,
    /// There has been none yet.
    Unmet,
    /// The target has another logical unit: there will be none.
    Gone,
}

impl Peer {
    /// The target of these options.
    ///
    /// # Errors
    /// There is no random number, or a portal whose name is unknown.
    pub(crate) fn new(target: IscsiName, options: Options) -> Result<Peer, DriverError> {
        let initiator = options.initiator.clone().unwrap_or_else(crate::default_initiator);
        let first = options.portals.first().map_or_else(String::new, Portal::to_string);
        let site = format!("iscsi://{first}/{target}");
        let host = random().map_err(|errno| DriverError {
            what: format!("{site}: a random number"),
            source: Some(errno.into()),
        })?;
        let state = Mutex::default();
        let peer = Peer { site, options, target, initiator, host, state };
        let mut last = None;
        for portal in &peer.options.portals {
            last = peer.look_up(portal).err();
            if last.is_none() {
                return Ok(peer);
            }
        }
        Err(last.unwrap_or_else(|| failed(&peer.site, "no portal is named")))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the adapter can carry.
    pub(crate) fn adapter(&self) -> Adapter {
        let queues = self.options.sessions;
        let can_queue = self.options.depth;
        Adapter {
            queues,
            can_queue,
            own_slots: OWN_SLOTS,
            cmd_per_lun: queues.saturating_mul(can_queue),
            segments_max: SEGMENTS_MAX,
            sectors_max: SECTORS_MAX,
            cdb_max: 16,
        }
    }

    /// Slots of the adapter.
    pub(crate) fn slots(&self) -> usize {
        let Options { sessions, depth, .. } = self.options;
        usize::from(sessions) * usize::from(depth) + usize::from(OWN_SLOTS)
    }

    /// How sessions of ports are kept.
    pub(crate) fn keeping(&self, depth: u16) -> Keeping {
        Keeping {
            depth,
            ping_interval_ns: or_never(self.options.noop_interval),
            ping_timeout_ns: or_never(self.options.noop_timeout),
        }
    }

    pub(crate) fn login_timeout_ns(&self) -> u64 {
        nanoseconds(self.options.login_timeout)
    }

    /// How long commands wait for a session; `None`: without limit.
    pub(crate) fn replacement_ns(&self) -> Option<u64> {
        self.options.replacement_timeout.map(nanoseconds)
    }

    /// After how long a write of a lost session counts as one that lands no more.
    pub(crate) fn bound_ns(&self) -> Option<u64> {
        self.replacement_ns().map(|timeout| timeout.saturating_mul(2).max(BOUND_MIN_NS))
    }

    /// The ISID of a port.
    pub(crate) fn isid(&self, index: u16) -> Isid {
        Isid::random(self.host, index)
    }

    /// The ISID of a session for questions: no two that may be there at a time have the same.
    pub(crate) fn asking_isid(&self) -> Isid {
        let mut state = self.state();
        state.asked = state.asked.wrapping_add(1);
        Isid::random(self.host, ASKING | (state.asked & 0x7fff))
    }

    /// The settings of a login.
    pub(crate) fn settings(&self, isid: Isid) -> Result<Settings, DialError> {
        let session = SessionKind::Normal(self.target.clone());
        settings(&self.options, self.initiator.clone(), session, isid)
    }

    /// The addresses of a portal; blocks while its name is looked up for the first time.
    fn look_up(&self, portal: &Portal) -> Result<Vec<SocketAddr>, DriverError> {
        if let Some(known) = self.known(portal) {
            return Ok(known);
        }
        let found = socket::look_up(portal).map_err(|source| DriverError {
            what: format!("{}: look up {:?}", self.site, portal.host),
            source: Some(source),
        })?;
        let place = (portal.host.clone(), portal.port);
        self.state().known.insert(place, found.clone());
        Ok(found)
    }

    /// The addresses of a portal that need no look-up.
    pub(crate) fn known(&self, portal: &Portal) -> Option<Vec<SocketAddr>> {
        if let Some(address) = socket::numeric(portal) {
            return Some(vec![address]);
        }
        self.state().known.get(&(portal.host.clone(), portal.port)).cloned()
    }

    /// Logs in, at the portals in turn from number `first` on. Blocks for the login time-out at
    /// most for each.
    ///
    /// # Errors
    /// Why the last portal failed.
    pub(crate) fn log_in(&self, isid: Isid, first: usize) -> Result<Opened, DriverError> {
        let portals = &self.options.portals;
        let mut last = failed(&self.site, "no portal is named");
        for number in 0..portals.len() {
            let portal = &portals[(first + number) % portals.len()];
            match self.log_in_at(portal, isid) {
                Ok(opened) => return Ok(opened),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn log_in_at(&self, portal: &Portal, isid: Isid) -> Result<Opened, DriverError> {
        let end = dial::from_now(self.options.login_timeout);
        self.follow(portal, isid, end, HOPS_MAX)
    }

    fn follow(
        &self,
        portal: &Portal,
        isid: Isid,
        end: Instant,
        hops: u32,
    ) -> Result<Opened, DriverError> {
        let named = |why: &dyn std::fmt::Display| failed(&self.site, format!("{portal}: {why}"));
        let mut last = named(&"the name has no address");
        for address in self.look_up(portal)? {
            let settings = self.settings(isid).map_err(|why| named(&why))?;
            match dial::connect(&address, settings, end) {
                Ok(Dialled::Opened(opened)) => return Ok(opened),
                Ok(Dialled::Moved(_)) if hops == 0 => {
                    return Err(named(&format!("the target has moved more than {HOPS_MAX} times")));
                }
                Ok(Dialled::Moved(portal)) => {
                    return self.follow(&portal, isid, end, hops - 1);
                }
                Err(why) => last = named(&why),
            }
        }
        Err(last)
    }

    /// Remembers what first identified a logical unit: a target that comes back with another under
    /// this number is not the same.
    pub(crate) fn learn(&self, lun: Lun, identity: Vec<u8>) {
        self.state().units.entry(lun.0).or_insert(identity);
    }

    /// Port `index` is open from now on; false if it was before. Another login with its ISID would
    /// end its session.
    pub(crate) fn opens(&self, index: u16) -> bool {
        self.state().open.insert(index)
    }

    pub(crate) fn is_open(&self, index: u16) -> bool {
        self.state().open.contains(&index)
    }

    pub(crate) fn closed(&self, index: u16) {
        let mut state = self.state();
        state.open.remove(&index);
        state.out.remove(&index);
    }

    /// Port `index` has no session from now on, or (`None`) has one.
    pub(crate) fn is_out(&self, index: u16, out: Option<Out>) {
        let mut state = self.state();
        match out {
            Some(why) => state.out.insert(index, why),
            None => state.out.remove(&index),
        };
    }

    /// Its ports without a session, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let fault = |(index, out): (&u16, &Out)| {
            let what = match out {
                Out::Lost => "is lost and not back",
                Out::Unmet => "is not there yet: the target has not been reached",
                Out::Gone => "is gone: the target came back with another logical unit",
            };
            format!("{}: session {index} {what}", self.site)
        };
        self.state().out.iter().map(fault).collect()
    }

    /// The logical units to be recognised after a reconnect.
    pub(crate) fn units(&self) -> Vec<(Lun, Vec<u8>)> {
        let state = self.state();
        state.units.iter().map(|(lun, identity)| (Lun(*lun), identity.clone())).collect()
    }
}

/// Slots for the mid-layer's own commands.
pub(crate) const OWN_SLOTS: u16 = 16;
/// Pieces of memory of one command.
const SEGMENTS_MAX: u16 = 1024;
/// Sectors of one command: as many as Linux' initiator takes.
const SECTORS_MAX: u32 = 65_535;

/// The settings of a login with these options.
pub(crate) fn settings(
    options: &Options,
    initiator: IscsiName,
    session: SessionKind,
    isid: Isid,
) -> Result<Settings, DialError> {
    let no_random = |errno| DialError::Socket("a random number", errno);
    let mut settings = Settings::new(initiator, session, isid);
    settings.offer.header_digest = options.header_digest;
    settings.offer.data_digest = options.data_digest;
    let [id] = random().map_err(no_random)?;
    settings.nonce = Nonce { id, challenge: random().map_err(no_random)? };
    if let Some(initiator) = &options.initiator_secret {
        settings.auth = Auth::Chap {
            initiator: initiator.clone(),
            target: options.target_secret.clone(),
            algorithms: Algorithm::ALL.to_vec(),
        };
    }
    Ok(settings)
}

/// Random bytes that no other side can foresee.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], rustix::io::Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A time of zero means never.
fn or_never(time: Duration) -> u64 {
    if time.is_zero() { u64::MAX } else { nanoseconds(time) }
}
