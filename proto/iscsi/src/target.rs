//! A target's side, for tests and for a bench that needs a target which costs little: one session
//! of one connection, without a disk. The caller is the disk.
//!
//! It judges what an initiator does to the commands (their order, the window, the lengths of
//! unsolicited data) and little else. It is no front: it knows no access lists, and what it holds
//! of a login is bounded by a pair of text for each key that an initiator names.

mod login;

use std::fmt;

use crate::chap::{Algorithm, Challenge, Credentials};
use crate::login::{Agreed, LoginError, Offer};
use crate::text::put;
use crate::wire::{
    Crc, DataIn, DataOut, Decoder, Digests, LoginRequest, LogoutRequest, LogoutResponse, NO_TAG,
    NopIn, NopOut, Numbers, Opcode, Piece, R2t, Residual, SEGMENT_DEFAULT, ScsiCommand,
    ScsiResponse, Serial, TaskRequest, TaskResponse, TextRequest, TextResponse, WireError,
    put_head, put_pdu, put_tail,
};
use crate::{IscsiName, Portal};
use login::{Login, Outcome};

/// What a target is.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name.
    pub name: IscsiName,
    /// What it negotiates.
    pub offer: Offer,
    /// Commands that it takes at a time.
    pub window: u32,
    /// The proof that it asks for.
    pub chap: Option<ChapProfile>,
    /// Where it has moved to.
    pub moved: Option<Portal>,
    /// Its half of the name of the next session, not 0.
    pub tsih: u16,
    /// What a discovery session is told: names, each with addresses.
    pub targets: Vec<(String, Vec<String>)>,
    /// Bytes of text in one response, so that a test can have it cut.
    pub text_max: usize,
}

/// The proof that a target asks for.
#[derive(Clone, Debug)]
pub struct ChapProfile {
    /// The initiator's.
    pub initiator: Credentials,
    /// Its own, for initiators that ask for it.
    pub target: Option<Credentials>,
    /// The hashes it takes.
    pub algorithms: Vec<Algorithm>,
    /// What it asks.
    pub challenge: Challenge,
}

impl Profile {
    /// A target without proof, with the default offer and a window of 64 commands.
    #[must_use]
    pub fn new(name: IscsiName) -> Self {
        Self {
            name,
            offer: Offer::default(),
            window: 64,
            chap: None,
            moved: None,
            tsih: 1,
            targets: Vec::new(),
            text_max: SEGMENT_DEFAULT as usize,
        }
    }
}

/// What an initiator asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Nothing more in this input.
    NeedMore,
    /// It has logged in.
    LoggedIn,
    /// A command. Its immediate data follows.
    Command {
        /// The command.
        command: ScsiCommand,
        /// The rest of a CDB longer than 16 bytes.
        extended: Vec<u8>,
    },
    /// A piece of the data of a write.
    Data {
        /// The write.
        itt: u32,
        /// Where it belongs.
        offset: u32,
        /// The piece.
        bytes: &'a [u8],
    },
    /// The end of a PDU with data of a write.
    DataEnd {
        /// The write.
        itt: u32,
        /// The request that it answers, or [`NO_TAG`].
        ttt: u32,
        /// Whether the sequence ends with it.
        last: bool,
        /// Its number in the sequence, `None` of immediate data.
        data_sn: Option<u32>,
    },
    /// A task management function.
    Manage(TaskRequest),
    /// The answer to a ping of ours, by the ping's tag.
    Pong(u32),
    /// It has left, and is told so.
    LoggedOut,
}

/// Why a target ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The stream cannot be read.
    Wire(WireError),
    /// The login cannot be followed.
    Login(LoginError),
    /// The initiator was refused.
    Refused,
    /// A PDU that has no place here.
    Unexpected(Opcode),
    /// A command out of order or beyond the window.
    CmdSn {
        /// The number received.
        found: u32,
        /// The one expected.
        expected: u32,
    },
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(why) => why.fmt(f),
            Self::Login(why) => why.fmt(f),
            Self::Refused => f.write_str("the login was refused"),
            Self::Unexpected(opcode) => write!(f, "{opcode} has no place here"),
            Self::CmdSn { found, expected } => write!(f, "CmdSN {found}, expected {expected}"),
        }
    }
}

impl std::error::Error for TargetError {}

impl From<WireError> for TargetError {
    fn from(why: WireError) -> Self {
        Self::Wire(why)
    }
}

impl From<LoginError> for TargetError {
    fn from(why: LoginError) -> Self {
        Self::Login(why)
    }
}

/// The place of the data under way.
#[derive(Clone, Copy, Debug)]
enum Under {
    Login,
    Write { itt: u32, ttt: u32, last: bool, offset: u32, data_sn: Option<u32> },
    Text,
    Nothing,
}

/// A target's side of one connection.
#[derive(Debug)]
pub struct Target {
    profile: Profile,
    decoder: Decoder,
    login: Option<Login>,
    agreed: Option<Agreed>,
    under: Under,
    stat_sn: Serial,
    exp_cmd_sn: Serial,
    /// Commands beyond those that were received that it takes now.
    window: u32,
    text: Vec<u8>,
    /// The text of an answer that has not been sent.
    rest: Vec<u8>,
}

impl Target {
    /// A target that waits for a login.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self {
            decoder: Decoder::new(Digests::NONE, SEGMENT_DEFAULT),
            login: Some(Login::new()),
            agreed: None,
            under: Under::Nothing,
            stat_sn: Serial(0x0100),
            exp_cmd_sn: Serial(0),
            window: profile.window,
            text: Vec::new(),
            rest: Vec::new(),
            profile,
        }
    }

    /// What was agreed on, once there is a session.
    #[must_use]
    pub const fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    /// The numbers for a PDU that StatSN does not count.
    #[must_use]
    pub const fn numbers(&self) -> Numbers {
        let max_cmd_sn = Serial(self.exp_cmd_sn.0.wrapping_add(self.window).wrapping_sub(1));
        Numbers { stat_sn: self.stat_sn, exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn }
    }

    /// The numbers for a PDU that StatSN counts.
    pub const fn count(&mut self) -> Numbers {
        let numbers = self.numbers();
        self.stat_sn = self.stat_sn.next();
        numbers
    }

    /// Takes so many commands beyond those received from now on, as the next PDU tells.
    pub const fn open(&mut self, window: u32) {
        self.window = window;
    }

    /// The digests of the session.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.agreed.map_or(Digests::NONE, |agreed| agreed.digests)
    }

    /// Takes what comes next off the front of `input`, and appends answers that need no disk.
    ///
    /// # Errors
    /// Why the connection has to be closed, after what was appended is sent.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Asked<'a>, TargetError> {
        loop {
            match self.decoder.next(input)? {
                Piece::NeedMore => return Ok(Asked::NeedMore),
                Piece::Header => {
                    if let Some(asked) = self.header()? {
                        return Ok(asked);
                    }
                }
                Piece::Data(bytes) => match &mut self.under {
                    Under::Write { itt, offset, .. } => {
                        let (itt, at) = (*itt, *offset);
                        *offset = offset.wrapping_add(bytes.len() as u32);
                        return Ok(Asked::Data { itt, offset: at, bytes });
                    }
                    Under::Login => {
                        let login = self.login.as_mut().expect("a login is under way");
                        login.keys(&self.profile, bytes)?;
                    }
                    Under::Text => self.text.extend_from_slice(bytes),
                    Under::Nothing => {}
                },
                Piece::End => {
                    if let Some(asked) = self.end(out)? {
                        return Ok(asked);
                    }
                }
            }
        }
    }

    fn header(&mut self) -> Result<Option<Asked<'static>>, TargetError> {
        let bhs = *self.decoder.header();
        let opcode = bhs.opcode();
        self.under = Under::Nothing;
        if self.login.is_some() != (opcode == Opcode::LOGIN_REQUEST) {
            return Err(TargetError::Unexpected(opcode));
        }
        match opcode {
            Opcode::LOGIN_REQUEST => {
                self.exp_cmd_sn = Serial(bhs.word(24));
                self.under = Under::Login;
            }
            Opcode::TEXT_REQUEST => {
                self.command_number(bhs.is_immediate(), Serial(bhs.word(24)))?;
                self.text.clear();
                self.under = Under::Text;
            }
            Opcode::SCSI_COMMAND => {
                let command = ScsiCommand::decode(&bhs).ok_or(TargetError::Unexpected(opcode))?;
                self.command_number(bhs.is_immediate(), command.cmd_sn)?;
                if bhs.data_len() > 0 {
                    let (itt, last) = (command.itt, command.last);
                    self.under = Under::Write { itt, ttt: NO_TAG, last, offset: 0, data_sn: None };
                }
                let extended = self.decoder.ahs().get(4..).unwrap_or_default().to_vec();
                return Ok(Some(Asked::Command { command, extended }));
            }
            Opcode::DATA_OUT => {
                let DataOut { itt, ttt, last, offset, data_sn, .. } = DataOut::decode(&bhs);
                self.under = Under::Write { itt, ttt, last, offset, data_sn: Some(data_sn) };
            }
            Opcode::NOP_OUT | Opcode::TASK_REQUEST | Opcode::LOGOUT_REQUEST => {}
            opcode => return Err(TargetError::Unexpected(opcode)),
        }
        Ok(None)
    }

    /// Commands come in order, and within the window.
    fn command_number(&mut self, immediate: bool, found: Serial) -> Result<(), TargetError> {
        let expected = self.exp_cmd_sn;
        if found != expected || (!immediate && self.window == 0) {
            return Err(TargetError::CmdSn { found: found.0, expected: expected.0 });
        }
        if !immediate {
            self.exp_cmd_sn = expected.next();
            // MaxCmdSN stays where it was told, until the window is opened again.
            self.window -= 1;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<Option<Asked<'static>>, TargetError> {
        let bhs = *self.decoder.header();
        match (self.under, bhs.opcode()) {
            (Under::Login, _) => return self.login_end(&LoginRequest::decode(&bhs), out),
            (Under::Text, _) => self.text_end(TextRequest::decode(&bhs), out),
            (Under::Write { itt, ttt, last, data_sn, .. }, _) => {
                return Ok(Some(Asked::DataEnd { itt, ttt, last, data_sn }));
            }
            (_, Opcode::NOP_OUT) => {
                let nop = NopOut::decode(&bhs);
                if nop.ttt != NO_TAG {
                    return Ok(Some(Asked::Pong(nop.ttt)));
                }
                if nop.is_ping() {
                    let numbers = self.count();
                    let answer = NopIn { lun: 0, itt: nop.itt, ttt: NO_TAG, numbers };
                    self.bare(answer.encode(), out);
                }
            }
            (_, Opcode::TASK_REQUEST) => {
                let opcode = Opcode::TASK_REQUEST;
                let request = TaskRequest::decode(&bhs).ok_or(TargetError::Unexpected(opcode))?;
                return Ok(Some(Asked::Manage(request)));
            }
            (_, Opcode::LOGOUT_REQUEST) => {
                let opcode = Opcode::LOGOUT_REQUEST;
                let itt = LogoutRequest::decode(&bhs).ok_or(TargetError::Unexpected(opcode))?.itt;
                let numbers = self.count();
                self.bare(LogoutResponse { response: 0, itt, numbers }.encode(), out);
                return Ok(Some(Asked::LoggedOut));
            }
            _ => {}
        }
        Ok(None)
    }

    fn login_end(
        &mut self,
        request: &LoginRequest,
        out: &mut Vec<u8>,
    ) -> Result<Option<Asked<'static>>, TargetError> {
        let numbers = self.count();
        let login = self.login.as_mut().expect("a login is under way");
        match login.end(&self.profile, request, numbers, out)? {
            Outcome::Goes => Ok(None),
            Outcome::Refused => Err(TargetError::Refused),
            Outcome::Ends(agreed) => {
                self.login = None;
                self.agreed = Some(agreed);
                self.decoder = Decoder::new(agreed.digests, agreed.segment_in);
                Ok(Some(Asked::LoggedIn))
            }
        }
    }

    /// Answers SendTargets, in as many responses as it takes.
    fn text_end(&mut self, request: TextRequest, out: &mut Vec<u8>) {
        if request.ttt == NO_TAG {
            self.rest.clear();
            if self.text == b"SendTargets=All\0" {
                for (name, addresses) in &self.profile.targets {
                    put(&mut self.rest, "TargetName", name);
                    addresses.iter().for_each(|at| put(&mut self.rest, "TargetAddress", at));
                }
            }
        }
        let segment = self.agreed.map_or(SEGMENT_DEFAULT, |agreed| agreed.segment_out) as usize;
        self.open(self.profile.window);
        let here = self.rest.len().min(self.profile.text_max).min(segment);
        let data: Vec<u8> = self.rest.drain(..here).collect();
        let more = !self.rest.is_empty();
        let numbers = self.count();
        let ttt = if more { 7 } else { NO_TAG };
        let response = TextResponse { last: !more, more, itt: request.itt, ttt, numbers };
        put_pdu(out, response.encode(), &data, self.digests());
    }

    fn bare(&self, bhs: crate::wire::Bhs, out: &mut Vec<u8>) {
        put_pdu(out, bhs, &[], self.digests());
    }
}

/// The answers of a disk.
impl Target {
    /// Appends a part of a read's data, with the status if it is the last. The parts of a read are
    /// numbered by `data_sn` and no longer than the initiator's MaxRecvDataSegmentLength.
    pub fn data_in(
        &mut self,
        (itt, data_sn, offset): (u32, u32, u32),
        data: &[u8],
        status: Option<(u8, Residual)>,
        out: &mut Vec<u8>,
    ) {
        let length = u32::try_from(data.len()).expect("a data segment");
        let digests = self.digests();
        self.data_in_head((itt, data_sn, offset), length, status, out);
        out.extend_from_slice(data);
        let mut crc = Crc::new();
        if digests.data {
            crc.update(data);
        }
        put_tail(out, length, crc, digests);
    }

    /// Appends the header of a part of a read's data alone: the data, padding and a digest are the
    /// caller's.
    pub fn data_in_head(
        &mut self,
        (itt, data_sn, offset): (u32, u32, u32),
        length: u32,
        status: Option<(u8, Residual)>,
        out: &mut Vec<u8>,
    ) {
        let numbers = if status.is_some() { self.count() } else { self.numbers() };
        let head = DataIn { last: status.is_some(), status, itt, numbers, data_sn, offset };
        put_head(out, &head.encode().with_data_len(length), &[], self.digests());
    }

    /// Appends the end of a command.
    pub fn respond(
        &mut self,
        itt: u32,
        (response, status): (u8, u8),
        residual: Residual,
        sense: &[u8],
        out: &mut Vec<u8>,
    ) {
        let numbers = self.count();
        let head = ScsiResponse { response, status, itt, numbers, exp_data_sn: 0, residual };
        let mut data = Vec::new();
        if !sense.is_empty() {
            let length = u16::try_from(sense.len()).expect("sense data");
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(sense);
        }
        put_pdu(out, head.encode(), &data, self.digests());
    }

    /// Asks for a part of a write's data. Parts are numbered by `r2t_sn`.
    pub fn ask(
        &mut self,
        (itt, ttt, r2t_sn): (u32, u32, u32),
        lun: u64,
        (offset, length): (u32, u32),
        out: &mut Vec<u8>,
    ) {
        let numbers = self.numbers();
        self.bare(R2t { lun, itt, ttt, numbers, r2t_sn, offset, length }.encode(), out);
    }

    /// Answers a task management function.
    pub fn managed(&mut self, itt: u32, response: u8, out: &mut Vec<u8>) {
        let numbers = self.count();
        self.bare(TaskResponse { response, itt, numbers }.encode(), out);
    }

    /// Sends a ping, or without a tag just the numbers.
    pub fn ping(&mut self, ttt: u32, out: &mut Vec<u8>) {
        let numbers = self.numbers();
        self.bare(NopIn { lun: 0, itt: NO_TAG, ttt, numbers }.encode(), out);
    }
}
