//! A discovery session: the targets of a portal, and where each listens. RFC 7143, section 4.3 and
//! appendix C.
//!
//! One Text Request asks for all; the answer may take many PDUs, of which each is asked for in
//! turn. What is kept is bounded by [`TEXT_MAX`], the exchange by [`PDUS_MAX`].

use std::fmt;

use crate::login::LoggedIn;
use crate::text::{Text, TextError, put};
use crate::wire::{
    Decoder, Digests, LogoutReason, LogoutRequest, NO_TAG, NopIn, NopOut, Opcode, Piece, Reject,
    Serial, TextRequest, TextResponse, WireError, put_pdu,
};
use crate::{IscsiName, Portal};

/// Bytes of text that are taken from a portal: some tens of thousands of targets.
pub const TEXT_MAX: usize = 4 << 20;
/// PDUs that are taken from a portal.
pub const PDUS_MAX: u32 = 8192;

const ITT: u32 = 1;
const LOGOUT_ITT: u32 = 2;

/// A target that a portal knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Its name.
    pub name: IscsiName,
    /// Where it listens. None: at the portal that was asked.
    pub portals: Vec<Portal>,
}

/// The answer of a portal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// The targets, in the portal's order.
    pub targets: Vec<Discovered>,
    /// What is wrong with names and addresses that could not be read.
    pub refused: Vec<String>,
}

/// The outcome of bytes given to a discovery.
#[derive(Clone, Debug)]
pub enum Step {
    /// It waits for the portal, after what was appended has been sent.
    NeedMore,
    /// The answer is whole. A logout was appended; the connection may be closed behind it.
    Found(Targets),
    /// There is no answer. Repeated by later calls.
    Failed(DiscoveryError),
}

/// Why a portal's answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryError {
    /// The stream cannot be read.
    Wire(WireError),
    /// The text cannot be read.
    Text(TextError),
    /// The request was rejected, for this reason.
    Rejected(u8),
    /// A PDU that answers nothing.
    Unexpected(Opcode),
    /// A field of a Text Response.
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// An address in front of the first name.
    Orphan,
    /// More than [`TEXT_MAX`] bytes or [`PDUS_MAX`] PDUs.
    TooMuch,
}

impl fmt::Display for DiscoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(why) => why.fmt(f),
            Self::Text(why) => why.fmt(f),
            Self::Rejected(reason) => write!(f, "the portal rejects it, reason {reason:#04x}"),
            Self::Unexpected(opcode) => write!(f, "{opcode} in a discovery session"),
            Self::Field { field, value } => write!(f, "Text Response with {field} {value}"),
            Self::Orphan => f.write_str("TargetAddress without a TargetName before it"),
            Self::TooMuch => {
                write!(f, "the answer exceeds {TEXT_MAX} bytes of text or {PDUS_MAX} PDUs")
            }
        }
    }
}

impl std::error::Error for DiscoveryError {}

impl From<WireError> for DiscoveryError {
    fn from(why: WireError) -> Self {
        Self::Wire(why)
    }
}

impl From<TextError> for DiscoveryError {
    fn from(why: TextError) -> Self {
        Self::Text(why)
    }
}

/// The question to one portal, after the login.
#[derive(Debug)]
pub struct Discovery {
    decoder: Decoder,
    digests: Digests,
    text: Text,
    cmd_sn: Serial,
    exp_stat_sn: Serial,
    found: Targets,
    /// The last name could not be read, nor do its addresses count.
    skipping: bool,
    bytes: usize,
    pdus: u32,
    failed: Option<DiscoveryError>,
}

impl Discovery {
    /// Asks for all targets.
    pub fn new(start: &LoggedIn, out: &mut Vec<u8>) -> Self {
        let digests = start.agreed.digests;
        let mut discovery = Self {
            decoder: Decoder::new(digests, start.agreed.segment_in),
            digests,
            text: Text::new(),
            cmd_sn: start.cmd_sn,
            exp_stat_sn: start.exp_stat_sn,
            found: Targets::default(),
            skipping: false,
            bytes: 0,
            pdus: 0,
            failed: None,
        };
        let mut keys = Vec::new();
        put(&mut keys, "SendTargets", "All");
        discovery.ask(NO_TAG, &keys, out);
        discovery
    }

    /// Takes bytes of the portal off the front of `input`, and appends what is to be sent.
    pub fn input(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Step {
        if let Some(why) = &self.failed {
            return Step::Failed(why.clone());
        }
        self.advance(input, out).unwrap_or_else(|why| {
            self.failed = Some(why.clone());
            Step::Failed(why)
        })
    }

    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, DiscoveryError> {
        loop {
            match self.decoder.next(input)? {
                Piece::NeedMore => return Ok(Step::NeedMore),
                Piece::Header => self.header()?,
                Piece::Data(bytes) => self.pairs(bytes)?,
                Piece::End => {
                    if self.end(out)? {
                        return Ok(Step::Found(std::mem::take(&mut self.found)));
                    }
                }
            }
        }
    }

    fn header(&mut self) -> Result<(), DiscoveryError> {
        let bhs = self.decoder.header();
        let field = |field, value| Err(DiscoveryError::Field { field, value });
        self.pdus += 1;
        if self.pdus > PDUS_MAX {
            return Err(DiscoveryError::TooMuch);
        }
        match bhs.opcode() {
            Opcode::TEXT_RESPONSE => {}
            Opcode::NOP_IN if bhs.itt() == NO_TAG => return Ok(()),
            Opcode::REJECT => return Err(DiscoveryError::Rejected(Reject::decode(bhs).reason)),
            opcode => return Err(DiscoveryError::Unexpected(opcode)),
        }
        let response = TextResponse::decode(bhs);
        if response.itt != ITT {
            return field("task tag", response.itt);
        }
        let stat_sn = response.numbers.stat_sn;
        if stat_sn != self.exp_stat_sn {
            return field("StatSN", stat_sn.0);
        }
        // The end has no tag to go on with; anything else has.
        if response.last && response.more || response.last != (response.ttt == NO_TAG) {
            return field("target transfer tag", response.ttt);
        }
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }

    fn pairs(&mut self, bytes: &[u8]) -> Result<(), DiscoveryError> {
        if self.decoder.header().opcode() != Opcode::TEXT_RESPONSE {
            return Ok(());
        }
        self.bytes += bytes.len();
        if self.bytes > TEXT_MAX {
            return Err(DiscoveryError::TooMuch);
        }
        let Self { text, found, skipping, .. } = self;
        let Targets { targets, refused } = found;
        text.take(bytes, |key, value| {
            match key {
                "TargetName" => match IscsiName::new(value) {
                    Ok(name) => {
                        *skipping = false;
                        targets.push(Discovered { name, portals: Vec::new() });
                    }
                    Err(why) => {
                        *skipping = true;
                        refused.push(why.to_string());
                    }
                },
                "TargetAddress" if *skipping => {}
                "TargetAddress" => {
                    let target = targets.last_mut().ok_or(DiscoveryError::Orphan)?;
                    match Portal::new(value) {
                        Ok(portal) => target.portals.push(portal),
                        Err(why) => refused.push(why.to_string()),
                    }
                }
                // A target may tell more of itself.
                _ => {}
            }
            Ok(())
        })
    }

    /// Acts on a whole PDU. Whether the answer is whole.
    fn end(&mut self, out: &mut Vec<u8>) -> Result<bool, DiscoveryError> {
        let bhs = *self.decoder.header();
        if bhs.opcode() == Opcode::NOP_IN {
            let NopIn { lun, ttt, .. } = NopIn::decode(&bhs);
            if ttt != NO_TAG {
                let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
                let nop = NopOut { lun, itt: NO_TAG, ttt, cmd_sn, exp_stat_sn };
                put_pdu(out, nop.encode(), &[], self.digests);
            }
            return Ok(false);
        }
        let response = TextResponse::decode(&bhs);
        if !response.more {
            self.text.end()?;
        }
        if !response.last {
            self.ask(response.ttt, &[], out);
            return Ok(false);
        }
        let logout = LogoutRequest {
            reason: LogoutReason::CloseSession,
            itt: LOGOUT_ITT,
            cid: 0,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        put_pdu(out, logout.encode(), &[], self.digests);
        Ok(true)
    }

    fn ask(&mut self, ttt: u32, keys: &[u8], out: &mut Vec<u8>) {
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        self.cmd_sn = cmd_sn.next();
        let request = TextRequest { last: true, itt: ITT, ttt, cmd_sn, exp_stat_sn };
        put_pdu(out, request.encode(), keys, self.digests);
    }
}
