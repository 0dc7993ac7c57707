//! The iSCSI initiator: sessions with a target as a [transport](weir_driver_scsi::Transport) of the
//! SCSI mid-layer, each session one of its hardware queues.
//!
//! The protocol itself is in `weir-proto-iscsi`; this crate has the sockets, the memory and the
//! recovery from a lost session. A burst of commands leaves in one system call with the payload
//! from the commands' own memory, the answers to many are received by one, and the data of a large
//! read is received into the read's memory. Nothing is allocated for a command once the buffers
//! have grown to what the load needs.
//!
//! # When a session is lost
//!
//! Error recovery level 0: any error of the protocol, a wrong digest, silence or the end of the
//! connection ends the session. The port logs in again in the background with the same ISID, which
//! reinstates the session: the target ends all its tasks before it answers. The first attempt comes
//! after the target's Time2Wait, the next ones after 1, 2, 3 ... 30 s with some jitter, at the
//! portals in turn.
//!
//! | command in flight | ends |
//! |---|---|
//! | never left this machine | at once, `Disrupted` |
//! | left it | `Disrupted` once the session is reinstated |
//! | left it, a read | else `FailFast` after `replacement_timeout` |
//! | left it, anything else | else `FailFast` after twice `replacement_timeout`, at least 10 s |
//!
//! Until `replacement_timeout` new commands wait; from then on they end at once until the target is
//! back. A login at a portal of another group reinstates nothing, so that what left waits for its
//! bound. A target that comes back with another logical unit under the same number is not taken for
//! the same: the port is gone for good.
//!
//! # When a target is not there at first
//!
//! Opening a target asks it, and fails if it does not answer. As a further path to a unit that is
//! known ([`Iscsi::unreached`]) it is opened without being asked: the port logs in in the
//! background as after a loss, refuses commands until then, and is gone for good if the unit there
//! is another.

#![forbid(unsafe_code)]

mod ask;
mod asked;
mod check;
mod dial;
mod discover;
mod identity;
mod iscsi;
mod kind;
mod link;
mod outage;
mod output;
mod peer;
mod port;
mod secret_file;
mod slots;
mod socket;

use std::time::Duration;

pub use discover::{discover, units};
pub use iscsi::Iscsi;
pub use kind::KIND;
pub use secret_file::read_secret;
pub use weir_proto_iscsi::chap::Credentials;
pub use weir_proto_iscsi::discovery::{Discovered, Targets};
pub use weir_proto_iscsi::login::DigestOffer;
pub use weir_proto_iscsi::{IscsiName, Portal, Secret};

/// How to use a target.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens, the first to be tried first. One or more.
    pub portals: Vec<Portal>,
    /// The initiator's name; `None`: [`default_initiator`].
    pub initiator: Option<IscsiName>,
    /// What the initiator proves itself with.
    pub initiator_secret: Option<Credentials>,
    /// What the target has to prove itself with. Only with `initiator_secret`.
    pub target_secret: Option<Credentials>,
    /// HeaderDigest.
    pub header_digest: DigestOffer,
    /// DataDigest.
    pub data_digest: DigestOffer,
    /// Sessions, each a hardware queue, 1 or more.
    pub sessions: u16,
    /// Commands in flight on each session, at most.
    pub depth: u16,
    /// How long connecting and the login may take altogether.
    pub login_timeout: Duration,
    /// How long commands wait for a session that was lost; `None`: without limit.
    pub replacement_timeout: Option<Duration>,
    /// A target that has said nothing for so long is asked whether it is there; zero: never.
    pub noop_interval: Duration,
    /// A target that then says nothing for so long is not there.
    pub noop_timeout: Duration,
}

impl Options {
    /// With the times of open-iscsi, and one session.
    #[must_use]
    pub fn new(portals: Vec<Portal>) -> Options {
        Options {
            portals,
            initiator: None,
            initiator_secret: None,
            target_secret: None,
            header_digest: DigestOffer::Accept,
            data_digest: DigestOffer::Accept,
            sessions: 1,
            depth: 128,
            login_timeout: Duration::from_secs(15),
            replacement_timeout: Some(Duration::from_secs(120)),
            noop_interval: Duration::from_secs(5),
            noop_timeout: Duration::from_secs(5),
        }
    }
}

/// The name of this machine as an initiator: `iqn.2025-01.io.weir:weir-HOST`.
///
/// # Panics
/// Never: what a host name has of other characters is left out.
#[must_use]
pub fn default_initiator() -> IscsiName {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().to_ascii_lowercase();
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).take(64).collect();
    IscsiName::new(&format!("iqn.2025-01.io.weir:weir-{host}")).expect("characters of a name")
}
