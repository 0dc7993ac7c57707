//! The settings of a login: who logs in where, and what is offered.

use std::fmt;
use std::ops::RangeInclusive;

use crate::IscsiName;
use crate::chap::{Algorithm, CHALLENGE_LEN, Credentials};
use crate::wire::{LENGTH_MAX, Serial};

/// Lengths that the standard allows, in bytes.
pub(crate) const LENGTHS: RangeInclusive<u32> = 512..=LENGTH_MAX;

/// The kind of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// For commands, with this target.
    Normal(IscsiName),
    /// To ask a portal for its targets.
    Discovery,
}

/// The initiator's half of a session's name. A target takes the login of a second session with the
/// same name, ISID and portal group for the reinstatement of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isid(pub [u8; 6]);

impl Isid {
    /// The random form: 24 random bits for the host, and a qualifier that tells its sessions apart.
    #[must_use]
    pub const fn random(host: [u8; 3], qualifier: u16) -> Self {
        let [high, low] = qualifier.to_be_bytes();
        Self([0x80, host[0], host[1], host[2], high, low])
    }
}

/// How the sides prove who they are.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all.
    None,
    /// The initiator proves itself, and with `target` the target as well.
    Chap {
        /// The initiator's.
        initiator: Credentials,
        /// The target's; without, a target that asks for no proof is taken too.
        target: Option<Credentials>,
        /// The hashes offered, the preferred first.
        algorithms: Vec<Algorithm>,
    },
}

impl Auth {
    pub(crate) const fn is_mutual(&self) -> bool {
        matches!(self, Self::Chap { target: Some(_), .. })
    }

    /// The value of AuthMethod.
    pub(crate) const fn methods(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Chap { target: None, .. } => "CHAP,None",
            Self::Chap { target: Some(_), .. } => "CHAP",
        }
    }
}

/// What is offered for a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestOffer {
    /// None.
    #[default]
    Never,
    /// None is preferred, CRC-32C is taken.
    Accept,
    /// CRC-32C is preferred, none is taken.
    Prefer,
    /// CRC-32C, or there is no session.
    Require,
}

impl DigestOffer {
    pub(crate) const fn list(self) -> &'static str {
        match self {
            Self::Never => "None",
            Self::Accept => "None,CRC32C",
            Self::Prefer => "CRC32C,None",
            Self::Require => "CRC32C",
        }
    }

    /// Whether a digest (or none) is in the offer.
    pub(crate) const fn allows(self, digest: bool) -> bool {
        match self {
            Self::Never => !digest,
            Self::Require => digest,
            Self::Accept | Self::Prefer => true,
        }
    }
}

/// The values offered for the operational keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// HeaderDigest.
    pub header_digest: DigestOffer,
    /// DataDigest.
    pub data_digest: DigestOffer,
    /// InitialR2T: whether a write waits for the target before it sends more than immediate data.
    pub initial_r2t: bool,
    /// ImmediateData: whether data may come in the command's own PDU.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of the initiator, 512 to 2^24-1 bytes.
    pub segment_max: u32,
    /// MaxBurstLength, 512 to 2^24-1 bytes.
    pub burst_max: u32,
    /// FirstBurstLength: unsolicited data of a write, 512 bytes to `burst_max`.
    pub first_burst: u32,
    /// MaxOutstandingR2T, 1 to 65535.
    pub r2ts: u16,
    /// DefaultTime2Wait: seconds before a new login after a failure, at most 3600.
    pub time2wait_s: u16,
    /// DefaultTime2Retain: seconds for which a target keeps the tasks of a lost connection.
    pub time2retain_s: u16,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            header_digest: DigestOffer::Accept,
            data_digest: DigestOffer::Accept,
            initial_r2t: false,
            immediate_data: true,
            segment_max: 256 << 10,
            burst_max: (16 << 20) - 1024,
            first_burst: 256 << 10,
            r2ts: 4,
            time2wait_s: 2,
            time2retain_s: 0,
        }
    }
}

/// The initiator's own challenge, for mutual CHAP. Random bytes, new for each login: a target that
/// can foresee them needs no secret.
#[derive(Clone, Copy)]
pub struct Nonce {
    /// CHAP_I.
    pub id: u8,
    /// CHAP_C.
    pub challenge: [u8; CHALLENGE_LEN],
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

/// All that a login needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The initiator's name.
    pub initiator: IscsiName,
    /// What is asked for.
    pub session: SessionKind,
    /// The session's name. The same as before reinstates a session that was lost.
    pub isid: Isid,
    /// Who proves what.
    pub auth: Auth,
    /// What is negotiated.
    pub offer: Offer,
    /// The challenge for the target.
    pub nonce: Nonce,
    /// The number of the first command.
    pub cmd_sn: Serial,
}

/// Settings that make no login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// A number out of its range.
    Range {
        /// The key.
        key: &'static str,
        /// The number.
        value: u32,
        /// Its range.
        range: RangeInclusive<u32>,
    },
    /// Both sides have the same secret, so each could answer with what the other has said.
    /// RFC 7143, section 12.1.3.
    SameSecret,
    /// CHAP without an algorithm.
    NoAlgorithm,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { key, value, range } => {
                write!(f, "{key}={value} is outside {}..={}", range.start(), range.end())
            }
            Self::SameSecret => f.write_str("initiator and target have the same CHAP secret"),
            Self::NoAlgorithm => f.write_str("CHAP without an algorithm"),
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Settings for a session without proof, with the default offer.
    #[must_use]
    pub fn new(initiator: IscsiName, session: SessionKind, isid: Isid) -> Self {
        let nonce = Nonce { id: 0, challenge: [0; CHALLENGE_LEN] };
        let (auth, offer, cmd_sn) = (Auth::None, Offer::default(), Serial(1));
        Self { initiator, session, isid, auth, offer, nonce, cmd_sn }
    }

    /// Holds them against the standard.
    ///
    /// # Errors
    /// The first that does not fit.
    pub fn check(&self) -> Result<(), SettingsError> {
        let offer = &self.offer;
        let burst = *LENGTHS.start()..=offer.burst_max;
        for (key, value, range) in [
            ("MaxRecvDataSegmentLength", offer.segment_max, LENGTHS),
            ("MaxBurstLength", offer.burst_max, LENGTHS),
            ("FirstBurstLength", offer.first_burst, burst),
            ("MaxOutstandingR2T", offer.r2ts.into(), 1..=65535),
            ("DefaultTime2Wait", offer.time2wait_s.into(), 0..=3600),
            ("DefaultTime2Retain", offer.time2retain_s.into(), 0..=3600),
        ] {
            if !range.contains(&value) {
                return Err(SettingsError::Range { key, value, range });
            }
        }
        let Auth::Chap { initiator, target, algorithms } = &self.auth else { return Ok(()) };
        if algorithms.is_empty() {
            return Err(SettingsError::NoAlgorithm);
        }
        match target {
            Some(target) if target.secret().is(initiator.secret()) => {
                Err(SettingsError::SameSecret)
            }
            _ => Ok(()),
        }
    }
}
