//! The client's handshake: asks for what it wants, takes what it gets, falls back where the
//! protocol says so.
//!
//! The order is STARTTLS where it is wanted, extended headers, else structured replies, then
//! `base:allocation`, then GO, and EXPORT_NAME where GO is not known. One option is outstanding at
//! a time.

use super::failure::{HandshakeError, REPLIES_MAX, REPLY_DATA_MAX};
use crate::wire::{
    BASE_ALLOCATION, BadText, BlockSizes, ClientFlags, EXPORT_NAME_ZEROES, ExportSize, Greeting,
    HandshakeFlags, InfoType, MetaContext, Mode, NBD_MAGIC, OLDSTYLE_MAGIC, OptionCode,
    OptionReplyCode as Reply, OptionReplyHeader, TransmissionFlags, clipped, put_info_query,
    put_meta_query, put_option, text,
};

/// The options that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the export; empty for the default one.
    pub export: String,
    /// Ask for structured replies.
    pub structured: bool,
    /// Ask for extended headers first.
    pub extended: bool,
    /// Ask for `base:allocation`; comes to nothing without structured or extended replies.
    pub allocation: bool,
    /// Ask for nothing before TLS, and give up on a server that does not offer it.
    pub tls: bool,
}

impl Wanted {
    /// The best the server can do, without TLS.
    #[must_use]
    pub fn everything(export: impl Into<String>) -> Self {
        let export = export.into();
        Self { export, structured: true, extended: true, allocation: true, tls: false }
    }

    /// The plainest session.
    #[must_use]
    pub fn nothing(export: impl Into<String>) -> Self {
        let export = export.into();
        Self { export, structured: false, extended: false, allocation: false, tls: false }
    }
}

/// The server's description of the export, and the terms agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Size of the export in bytes.
    pub size: u64,
    /// The abilities of the export; unknown bits are to be ignored.
    pub flags: TransmissionFlags,
    /// Sizes requests have to keep to, [`BlockSizes::UNADVERTISED`] if the server said nothing.
    pub block: BlockSizes,
    /// How requests and replies look.
    pub mode: Mode,
    /// The context id of `base:allocation`, if granted.
    pub allocation: Option<u32>,
}

/// The outcome of one call of [`Handshake::input`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Bytes of the input that are used up; all of them for [`Step::NeedMore`].
    pub consumed: usize,
    /// The next step.
    pub step: Step,
}

/// The step a client takes after handing bytes to the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the output if there is any, then receive more.
    NeedMore,
    /// Send the output, which is empty unless bytes of it were left over, then do the TLS
    /// handshake; [`Handshake::secured`] goes on behind it.
    StartTls,
    /// Transmission: what follows the consumed bytes are replies.
    Ready(ServerInfo),
    /// Send the output if there is any, then close.
    Failed(HandshakeError),
}

/// The message that the bytes in hand are part of.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Greeting,
    Header,
    Data(OptionReplyHeader),
    /// The answer to EXPORT_NAME, which has no header.
    ExportName,
    /// The end of the TLS handshake.
    Secured,
    Over,
}

/// The client's side of the handshake, for one connection. Its memory is bounded by
/// [`REPLY_DATA_MAX`].
#[derive(Debug)]
pub struct Handshake {
    wanted: Wanted,
    expect: Expect,
    held: Vec<u8>,
    /// The option that is outstanding.
    asked: OptionCode,
    replies: u32,
    no_zeroes: bool,
    mode: Mode,
    allocation: Option<u32>,
    export: Option<ExportSize>,
    block: BlockSizes,
}

impl Handshake {
    /// A handshake that waits for the server's greeting.
    ///
    /// # Errors
    /// [`BadText`] if the export's name is no string of the protocol.
    pub fn new(wanted: Wanted) -> Result<Self, BadText> {
        text(wanted.export.as_bytes())?;
        Ok(Self {
            wanted,
            expect: Expect::Greeting,
            held: Vec::new(),
            asked: OptionCode::ABORT,
            replies: 0,
            no_zeroes: false,
            mode: Mode::Simple,
            allocation: None,
            export: None,
            block: BlockSizes::UNADVERTISED,
        })
    }

    /// Heap bytes held for pieces that have not arrived whole; at most twice the longest piece.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// The message the server owes, in words for the error of a connection that ends or times out.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        match self.expect {
            Expect::Greeting => "the greeting".to_owned(),
            Expect::Header | Expect::Data(_) => format!("the reply to option {}", self.asked),
            Expect::ExportName => format!(
                "the reply to option EXPORT_NAME, which a server without an export {:?} answers \
                 by closing",
                self.wanted.export
            ),
            Expect::Secured => "its part of the TLS handshake".to_owned(),
            Expect::Over => "nothing".to_owned(),
        }
    }

    /// The TLS handshake that [`Step::StartTls`] asked for has ended well, and the server is the
    /// one that was meant. Appends the next option to `out`.
    ///
    /// # Panics
    /// If no TLS handshake was due.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        assert!(matches!(self.expect, Expect::Secured), "no TLS handshake was due");
        self.ask_next(Some(OptionCode::STARTTLS), out);
    }

    /// Takes bytes as they arrived, in any fragmentation, and appends what is to be sent to
    /// `out`. Bytes counted as consumed are not to be given again.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Input {
        let mut rest = bytes;
        let step = loop {
            match self.piece(&mut rest, out) {
                Ok(Some(Step::NeedMore)) => {}
                Ok(Some(step)) => break step,
                Ok(None) => break Step::NeedMore,
                Err(why) => break Step::Failed(why),
            }
        };
        if !matches!(step, Step::NeedMore | Step::StartTls) {
            self.expect = Expect::Over;
            self.held = Vec::new();
        }
        Input { consumed: bytes.len() - rest.len(), step }
    }

    /// Handles one piece of the stream: `None` if it has not arrived whole, [`Step::NeedMore`] if
    /// the next piece may be looked at.
    fn piece(
        &mut self,
        rest: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step>, HandshakeError> {
        let want = match self.expect {
            Expect::Greeting => Greeting::LEN,
            Expect::Header => OptionReplyHeader::LEN,
            Expect::Data(header) => header.length as usize,
            Expect::ExportName if self.no_zeroes => ExportSize::LEN,
            Expect::ExportName => ExportSize::LEN + EXPORT_NAME_ZEROES,
            Expect::Secured if rest.is_empty() => return Ok(None),
            Expect::Secured => return Err(HandshakeError::BehindStartTls(rest.len())),
            Expect::Over => return Err(HandshakeError::Over),
        };
        let missing = want.saturating_sub(self.held.len());
        let (part, after) = rest.split_at(missing.min(rest.len()));
        self.held.extend_from_slice(part);
        *rest = after;
        if self.held.len() < want {
            return Ok(None);
        }
        let held = std::mem::take(&mut self.held);
        let step = match self.expect {
            Expect::Greeting => self.greeting(&held, out)?,
            Expect::Header => self.header(&held)?,
            Expect::Data(header) => self.reply(header, &held, out)?,
            Expect::ExportName => {
                self.export = ExportSize::decode(&held);
                self.ready()?
            }
            Expect::Secured | Expect::Over => return Err(HandshakeError::Over),
        };
        self.held = held;
        self.held.clear();
        // Taken in later, they would pass for bytes that came over TLS.
        if step == Step::StartTls && !rest.is_empty() {
            return Err(HandshakeError::BehindStartTls(rest.len()));
        }
        Ok(Some(step))
    }

    fn greeting(&mut self, held: &[u8], out: &mut Vec<u8>) -> Result<Step, HandshakeError> {
        let Some(Greeting { flags }) = Greeting::decode(held) else {
            let (magics, _) = held.split_first_chunk::<16>().expect("a whole greeting");
            let words = u128::from_be_bytes(*magics);
            let oldstyle = u128::from(NBD_MAGIC) << 64 | u128::from(OLDSTYLE_MAGIC);
            return Err(if words == oldstyle {
                HandshakeError::Oldstyle
            } else {
                HandshakeError::NotNbd(*magics)
            });
        };
        let fixed = flags.contains(HandshakeFlags::FIXED_NEWSTYLE);
        self.no_zeroes = flags.contains(HandshakeFlags::NO_ZEROES);
        let mut answer = ClientFlags::EMPTY;
        if fixed {
            answer = answer | ClientFlags::FIXED_NEWSTYLE;
        }
        if self.no_zeroes {
            answer = answer | ClientFlags::NO_ZEROES;
        }
        out.extend_from_slice(&answer.bits().to_be_bytes());
        if fixed {
            self.ask_next(None, out);
        } else if self.wanted.tls {
            return Err(HandshakeError::NotFixed);
        } else {
            // Such a server knows one option only.
            self.ask(OptionCode::EXPORT_NAME, out);
        }
        Ok(Step::NeedMore)
    }

    /// Asks for the next thing wanted after the option that has just been answered.
    fn ask_next(&mut self, answered: Option<OptionCode>, out: &mut Vec<u8>) {
        use OptionCode as O;
        let simple = self.mode == Mode::Simple;
        let plan = [
            (O::STARTTLS, self.wanted.tls),
            (O::EXTENDED_HEADERS, self.wanted.extended),
            (O::STRUCTURED_REPLY, self.wanted.structured && simple),
            (O::SET_META_CONTEXT, self.wanted.allocation && !simple),
            (O::GO, true),
        ];
        let from = plan.iter().position(|&(option, _)| Some(option) == answered);
        let mut left = plan[from.map_or(0, |at| at + 1)..].iter();
        let (next, _) = left.find(|&&(_, wanted)| wanted).expect("GO is always wanted, and last");
        self.ask(*next, out);
    }

    fn ask(&mut self, option: OptionCode, out: &mut Vec<u8>) {
        let name = &self.wanted.export;
        put_option(out, option, |out| match option {
            OptionCode::EXPORT_NAME => out.extend_from_slice(name.as_bytes()),
            OptionCode::GO => put_info_query(out, name, &[InfoType::BLOCK_SIZE]),
            OptionCode::SET_META_CONTEXT => put_meta_query(out, name, &[BASE_ALLOCATION]),
            _ => {}
        });
        self.asked = option;
        self.replies = 0;
        self.expect =
            if option == OptionCode::EXPORT_NAME { Expect::ExportName } else { Expect::Header };
    }

    fn header(&mut self, held: &[u8]) -> Result<Step, HandshakeError> {
        let Some(header) = OptionReplyHeader::decode(held) else {
            let (magic, _) = held.split_first_chunk().expect("a whole header");
            return Err(HandshakeError::ReplyMagic(u64::from_be_bytes(*magic)));
        };
        if header.option != self.asked {
            let (answered, asked) = (header.option, self.asked);
            return Err(HandshakeError::WrongOption { answered, asked });
        }
        if header.length > REPLY_DATA_MAX {
            let (option, length) = (header.option, header.length);
            return Err(HandshakeError::ReplyTooLong { option, length });
        }
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(HandshakeError::TooManyReplies(self.asked));
        }
        self.expect = Expect::Data(header);
        Ok(Step::NeedMore)
    }

    /// Handles one whole reply to the outstanding option.
    fn reply(
        &mut self,
        header: OptionReplyHeader,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, HandshakeError> {
        use OptionCode as O;
        self.expect = Expect::Header;
        let OptionReplyHeader { option, code, .. } = header;
        if code.is_error() {
            return self.refusal(option, code, data, out);
        }
        let fits = match (option, code) {
            (O::GO, Reply::ACK) if data.is_empty() => return self.ready(),
            (O::STARTTLS, Reply::ACK) if data.is_empty() => {
                self.expect = Expect::Secured;
                return Ok(Step::StartTls);
            }
            (O::GO, Reply::INFO) => self.info(data),
            (O::SET_META_CONTEXT, Reply::META_CONTEXT) => self.meta_context(data),
            (O::SET_META_CONTEXT, Reply::ACK) if data.is_empty() => {
                self.ask_next(Some(option), out);
                true
            }
            (O::EXTENDED_HEADERS | O::STRUCTURED_REPLY, Reply::ACK) if data.is_empty() => {
                let extended = option == O::EXTENDED_HEADERS;
                self.mode = if extended { Mode::Extended } else { Mode::Structured };
                self.ask_next(Some(option), out);
                true
            }
            _ => false,
        };
        let length = data.len();
        if fits {
            Ok(Step::NeedMore)
        } else {
            Err(HandshakeError::BadReply { option, code, length })
        }
    }

    fn refusal(
        &mut self,
        option: OptionCode,
        code: Reply,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, HandshakeError> {
        let optional =
            !matches!(option, OptionCode::GO | OptionCode::STARTTLS) && code != Reply::ERR_SHUTDOWN;
        if optional {
            // Contexts that were named before the error do not count.
            self.allocation = None;
            self.ask_next(Some(option), out);
            return Ok(Step::NeedMore);
        }
        // A server that granted extended headers has to know GO, and EXPORT_NAME is forbidden
        // then.
        let has_a_fallback = option == OptionCode::GO && self.mode != Mode::Extended;
        if code == Reply::ERR_UNSUP && has_a_fallback {
            self.ask(OptionCode::EXPORT_NAME, out);
            return Ok(Step::NeedMore);
        }
        put_option(out, OptionCode::ABORT, |_| ());
        let message = clipped(&String::from_utf8_lossy(data)).to_owned();
        Err(HandshakeError::Refused { option, code, message })
    }

    /// Takes one fact about the export; whether it has the length of its type.
    fn info(&mut self, data: &[u8]) -> bool {
        let Some((info, payload)) = data.split_first_chunk() else { return false };
        match InfoType(u16::from_be_bytes(*info)) {
            InfoType::EXPORT => {
                self.export = ExportSize::decode(payload);
                payload.len() == ExportSize::LEN
            }
            InfoType::BLOCK_SIZE => {
                self.block = BlockSizes::decode(payload).unwrap_or(self.block);
                payload.len() == BlockSizes::LEN
            }
            _ => true,
        }
    }

    fn meta_context(&mut self, data: &[u8]) -> bool {
        let Some(context) = MetaContext::decode(data) else { return false };
        if context.name == BASE_ALLOCATION.as_bytes() {
            self.allocation = Some(context.id);
        }
        true
    }

    /// Holds what the server told against the protocol.
    fn ready(&mut self) -> Result<Step, HandshakeError> {
        let ExportSize { size, flags } = self.export.ok_or(HandshakeError::NoExportInfo)?;
        if !flags.contains(TransmissionFlags::HAS_FLAGS) {
            return Err(HandshakeError::NoFlags(flags));
        }
        if !self.block.is_valid() {
            return Err(HandshakeError::BlockSizes(self.block));
        }
        let Self { block, mode, allocation, .. } = *self;
        Ok(Step::Ready(ServerInfo { size, flags, block, mode, allocation }))
    }
}
