//! The login phase of an initiator: security, negotiation, and what a session begins with. RFC
//! 7143, chapter 6.
//!
//! One request is outstanding at a time. The memory held is a pair of text, the values of the keys
//! that the standard knows, and answers to others, bounded by one data segment; a target that never
//! comes to an end is left after [`ROUNDS_MAX`] PDUs. A target that says nothing leaves the machine
//! waiting: how long is the caller's rule.

mod error;
mod negotiation;
mod security;
mod settings;

pub use error::{LoginError, LoginStatus, ROUNDS_MAX};
pub use negotiation::Agreed;
pub use settings::{Auth, DigestOffer, Isid, Nonce, Offer, SessionKind, Settings, SettingsError};

use crate::Portal;
use crate::chap::Algorithm;
use crate::text::{Text, number, put};
use crate::wire::{
    Decoder, Digests, LoginRequest, LoginResponse, Numbers, Opcode, Piece, SEGMENT_DEFAULT, Serial,
    put_pdu,
};
pub(crate) use negotiation::Negotiation;
use security::Security;

/// The time that a login may take, in nanoseconds: open-iscsi's default.
pub const LOGIN_TIMEOUT_NS: u64 = 15_000_000_000;

/// Bytes of answers to keys of the target: with our own offer behind them they fit into a segment.
const ANSWER_MAX: usize = SEGMENT_DEFAULT as usize - 1024;

/// The stage of a login. The numbers are those on the wire.
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// The target goes to the next stage, and was not asked to or has nothing proved.
const EARLY: LoginError = LoginError::Field { field: "a transit out of turn", value: 1 };

/// The outcome of bytes given to a login.
#[derive(Clone, Debug)]
pub enum Step {
    /// It waits for the target, after what was appended for it has been sent.
    NeedMore,
    /// The session begins.
    Ready(Box<LoggedIn>),
    /// The target is to be found elsewhere.
    Moved {
        /// Where.
        portal: Portal,
        /// Whether it will not come back.
        for_good: bool,
    },
    /// There is no session. Repeated by later calls.
    Failed(LoginError),
}

/// A session at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The values of the operational keys.
    pub agreed: Agreed,
    /// The initiator's half of its name.
    pub isid: Isid,
    /// The target's half.
    pub tsih: u16,
    /// The number of the first command.
    pub cmd_sn: Serial,
    /// The first answer expected.
    pub exp_stat_sn: Serial,
    /// The command window.
    pub numbers: Numbers,
    /// TargetPortalGroupTag.
    pub group: Option<u16>,
    /// TargetAlias.
    pub alias: Option<String>,
    /// The hash of CHAP, if the initiator had to prove itself.
    pub chap: Option<Algorithm>,
}

/// The login of one connection.
#[derive(Debug)]
pub struct Login {
    settings: Settings,
    stage: u8,
    /// The stage asked for in the last request.
    asked: Option<u8>,
    decoder: Decoder,
    text: Text,
    security: Security,
    negotiation: Negotiation,
    /// Answers to keys of the target.
    answer: Vec<u8>,
    heard: Heard,
    /// The header of the response that is coming in.
    response: Option<LoginResponse>,
    exp_stat_sn: Option<Serial>,
    rounds: u32,
    failed: Option<LoginError>,
}

/// What the target has told of itself.
#[derive(Debug, Default)]
struct Heard {
    address: Option<String>,
    alias: Option<String>,
    group: Option<u16>,
}

impl Login {
    /// A login whose first request is appended to `out`.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn new(settings: Settings, out: &mut Vec<u8>) -> Result<Self, SettingsError> {
        settings.check()?;
        let mut keys = Vec::new();
        put(&mut keys, "InitiatorName", &settings.initiator);
        match &settings.session {
            SessionKind::Normal(target) => {
                put(&mut keys, "SessionType", "Normal");
                put(&mut keys, "TargetName", target);
            }
            SessionKind::Discovery => put(&mut keys, "SessionType", "Discovery"),
        }
        let security = Security::new(&settings, &mut keys);
        let discovery = settings.session == SessionKind::Discovery;
        let mut login = Self {
            stage: SECURITY,
            asked: None,
            decoder: Decoder::new(Digests::NONE, SEGMENT_DEFAULT),
            text: Text::new(),
            security,
            negotiation: Negotiation::new(&settings.offer, discovery),
            answer: Vec::new(),
            heard: Heard::default(),
            response: None,
            exp_stat_sn: None,
            rounds: 0,
            failed: None,
            settings,
        };
        // Where nothing has to be proved, the stage may be over with its first PDU. Some targets
        // that choose no proof then take it for over, whether they were asked or not.
        let next = (!login.settings.auth.is_mutual()).then_some(OPERATIONAL);
        login.send(&keys, next, out);
        Ok(login)
    }

    /// Takes bytes of the target off the front of `input`, and appends what is to be sent. Once the
    /// session is ready, what is left of the input belongs to it.
    pub fn input(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Step {
        if let Some(why) = &self.failed {
            return Step::Failed(why.clone());
        }
        self.advance(input, out).unwrap_or_else(|why| {
            self.failed = Some(why.clone());
            Step::Failed(why)
        })
    }

    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        loop {
            match self.decoder.next(input)? {
                Piece::NeedMore => return Ok(Step::NeedMore),
                Piece::Header => self.response = Some(self.header()?),
                Piece::Data(bytes) => self.keys(bytes)?,
                Piece::End => {
                    let response = self.response.take().expect("a header is before its end");
                    if let Some(step) = self.end(&response, out)? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    /// Judges the header of a response.
    fn header(&mut self) -> Result<LoginResponse, LoginError> {
        let bhs = self.decoder.header();
        match bhs.opcode() {
            Opcode::LOGIN_RESPONSE => {}
            Opcode::REJECT => return Err(LoginError::Rejected(bhs.byte(2))),
            opcode => return Err(LoginError::Unexpected(opcode)),
        }
        let response = LoginResponse::decode(bhs);
        let field = |field, value| Err(LoginError::Field { field, value });
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Err(LoginError::Rounds);
        }
        if response.status != 0 {
            return Ok(response);
        }
        if response.itt != 0 {
            return field("task tag", response.itt);
        }
        if response.version != 0 {
            return field("version", response.version.into());
        }
        if response.isid != self.settings.isid.0 {
            return field("another ISID, that ends in", response.isid[5].into());
        }
        if response.stage != self.stage {
            return field("stage", response.stage.into());
        }
        if response.transit && (response.more || self.asked != Some(response.next)) {
            return Err(EARLY);
        }
        let stat_sn = response.numbers.stat_sn;
        if self.exp_stat_sn.is_some_and(|expected| expected != stat_sn) {
            return field("StatSN", stat_sn.0);
        }
        self.exp_stat_sn = Some(stat_sn.next());
        Ok(response)
    }

    /// Takes the pairs of a data segment in.
    fn keys(&mut self, bytes: &[u8]) -> Result<(), LoginError> {
        let Self { text, heard, security, negotiation, answer, stage, response, .. } = self;
        let refused = response.is_some_and(|response| response.status != 0);
        text.take(bytes, |key, value| match key {
            "TargetAddress" => {
                heard.address = Some(value.to_owned());
                Ok(())
            }
            _ if refused => Ok(()),
            "TargetAlias" => {
                heard.alias = Some(value.to_owned());
                Ok(())
            }
            "TargetPortalGroupTag" => {
                let group = number(value).and_then(|group| u16::try_from(group).ok());
                heard.group =
                    Some(group.ok_or_else(|| LoginError::key(key, value, "no legal value"))?);
                Ok(())
            }
            _ if Security::knows(key) && *stage == SECURITY => security.hear(key, value),
            _ if Security::knows(key) => Err(LoginError::key(key, value, "it is out of place")),
            _ if answer.len() > ANSWER_MAX => Err(LoginError::Keys),
            _ => negotiation.take(key, value, answer),
        })
    }

    /// Acts on a whole response.
    fn end(
        &mut self,
        response: &LoginResponse,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step>, LoginError> {
        let status = LoginStatus(response.status);
        match status {
            LoginStatus(0) => {}
            LoginStatus::MOVED | LoginStatus::MOVED_FOR_GOOD => {
                let address = self.heard.address.take().ok_or(LoginError::Nowhere)?;
                let portal = Portal::new(&address).map_err(LoginError::Portal)?;
                let for_good = status == LoginStatus::MOVED_FOR_GOOD;
                return Ok(Some(Step::Moved { portal, for_good }));
            }
            _ => return Err(LoginError::Refused(status)),
        }
        if response.more {
            self.send(&[], None, out);
            return Ok(None);
        }
        self.text.end()?;
        let mut keys = std::mem::take(&mut self.answer);
        if self.stage == SECURITY {
            let next = self.security.advance(&self.settings, response.transit, &mut keys)?;
            if response.transit && !next {
                return Err(EARLY);
            }
            if response.transit {
                self.stage = OPERATIONAL;
                self.negotiation.offer(&mut keys);
                self.send(&keys, Some(FULL_FEATURE), out);
            } else {
                self.send(&keys, next.then_some(OPERATIONAL), out);
            }
            return Ok(None);
        }
        if !response.transit {
            self.send(&keys, Some(FULL_FEATURE), out);
            return Ok(None);
        }
        if !keys.is_empty() {
            let what = "a target that ends the negotiation offers nothing";
            return Err(LoginError::Field { field: what, value: 0 });
        }
        self.ready(response).map(|ready| Some(Step::Ready(Box::new(ready))))
    }

    fn ready(&mut self, response: &LoginResponse) -> Result<LoggedIn, LoginError> {
        if response.tsih == 0 {
            return Err(LoginError::Field { field: "TSIH", value: 0 });
        }
        Ok(LoggedIn {
            agreed: self.negotiation.agreed()?,
            isid: self.settings.isid,
            tsih: response.tsih,
            cmd_sn: self.settings.cmd_sn,
            exp_stat_sn: response.numbers.stat_sn.next(),
            numbers: response.numbers,
            group: self.heard.group,
            alias: self.heard.alias.take(),
            chap: self.security.algorithm(),
        })
    }

    fn send(&mut self, keys: &[u8], next: Option<u8>, out: &mut Vec<u8>) {
        self.asked = next;
        let request = LoginRequest {
            transit: next.is_some(),
            more: false,
            stage: self.stage,
            next: next.unwrap_or(0),
            isid: self.settings.isid.0,
            tsih: 0,
            itt: 0,
            cid: 0,
            cmd_sn: self.settings.cmd_sn,
            exp_stat_sn: self.exp_stat_sn.unwrap_or_default(),
        };
        put_pdu(out, request.encode(), keys, Digests::NONE);
    }
}
