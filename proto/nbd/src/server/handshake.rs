//! The handshake's state machine: cuts the stream into options, bounds them, and hands each whole
//! option to [`super::options`].
//!
//! Source: NBD protocol, "Newstyle negotiation", "Fixed newstyle negotiation" and "Termination of
//! the session during option haggling".

use super::options::Session;
use super::{CloseReason, Export, Offer, Settings, Step};
use crate::wire::{
    ClientFlags, Greeting, HandshakeFlags, OPTION_DATA_MAX, OptionCode, OptionHeader, STRING_MAX,
};

/// The outcome of one call of [`Handshake::input`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Bytes of the input that are used up. Less than all of them unless `step` is
    /// [`Step::NeedMore`].
    pub consumed: usize,
    /// The next step.
    pub step: Step,
}

/// The message that the bytes in hand are part of.
#[derive(Clone, Copy, Debug)]
enum Expect {
    ClientFlags,
    Header,
    Data(OptionHeader),
    /// Data too long to be kept: so many bytes are still to be dropped.
    Skip {
        option: OptionCode,
        left: u32,
    },
    /// The end of the TLS handshake.
    Secured,
    Over,
}

/// The server's side of the handshake, for one connection.
///
/// Never blocks and keeps no time: half a handshake waits for as long as the caller lets it. Its
/// memory is bounded by [`OPTION_DATA_MAX`] and one option header.
#[derive(Debug)]
pub struct Handshake<E> {
    session: Session<E>,
    settings: Settings,
    expect: Expect,
    /// The part of the expected piece that has arrived.
    held: Vec<u8>,
    options: u32,
}

/// The flags that the handshake offers every client.
const OFFERED: HandshakeFlags = HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES);

impl<E: AsRef<[Export]>> Handshake<E> {
    /// Starts a handshake and appends the greeting to `out`. The exports are those this client
    /// can choose from; the first one is the default export, the one with the empty name.
    pub fn new(exports: E, settings: Settings, out: &mut Vec<u8>) -> Self {
        Greeting { flags: OFFERED }.put(out);
        Self {
            session: Session::new(exports, settings),
            settings,
            expect: Expect::ClientFlags,
            held: Vec::new(),
            options: 0,
        }
    }

    /// Says what each export is to this client; without it all are served.
    #[must_use]
    pub fn offering(mut self, offers: Box<[Offer]>) -> Self {
        self.session.offer(offers);
        self
    }

    /// Says it anew, where TLS has told who the client is.
    pub fn offer(&mut self, offers: Box<[Offer]>) {
        self.session.offer(offers);
    }

    /// The name of the export that was refused to this client since last asked.
    pub fn take_refused(&mut self) -> Option<String> {
        self.session.take_refused()
    }

    /// Heap bytes held for pieces that have not arrived whole; at most twice the longest piece.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// From now on every option but ABORT is answered with ERR_SHUTDOWN.
    pub fn shut_down(&mut self) {
        self.session.shut_down();
    }

    /// The TLS handshake that [`Step::StartTls`] asked for has ended well: what comes from now on
    /// came over TLS. All that was negotiated before is forgotten, but for the client's flags,
    /// which no client sends twice.
    ///
    /// # Panics
    /// If no TLS handshake was due.
    pub fn secured(&mut self) {
        assert!(matches!(self.expect, Expect::Secured), "no TLS handshake was due");
        self.session.secured();
        self.expect = Expect::Header;
    }

    /// Takes bytes as they arrived, in any fragmentation, and appends answers to `out`.
    ///
    /// Keeps what it needs: bytes counted as consumed are not to be given again.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Input {
        let mut rest = bytes;
        let step = loop {
            match self.piece(&mut rest, out) {
                Some(Step::NeedMore) => {}
                Some(step) => break step,
                None => break Step::NeedMore,
            }
        };
        if matches!(step, Step::Transmission(_) | Step::Close(_)) {
            self.expect = Expect::Over;
            self.held = Vec::new();
        }
        Input { consumed: bytes.len() - rest.len(), step }
    }

    /// Handles one piece of the stream: `None` if it has not arrived whole, [`Step::NeedMore`] if
    /// the next piece may be looked at.
    fn piece(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> Option<Step> {
        match self.expect {
            Expect::ClientFlags => {
                self.fill(rest, 4)?;
                Some(self.client_flags())
            }
            Expect::Header => {
                self.fill(rest, OptionHeader::LEN)?;
                Some(self.header())
            }
            Expect::Data(header) => {
                self.fill(rest, header.length as usize)?;
                self.expect = Expect::Header;
                let step = self.session.answer(header.code, &self.held, rest.len(), out);
                self.held.clear();
                if step == Step::StartTls {
                    self.expect = Expect::Secured;
                }
                Some(step)
            }
            Expect::Skip { option, left } => {
                let dropped = rest.len().min(left as usize);
                *rest = &rest[dropped..];
                let left = left - dropped as u32;
                self.expect = Expect::Skip { option, left };
                if left > 0 {
                    return None;
                }
                self.expect = Expect::Header;
                self.session.answer_too_long(option, out);
                Some(Step::Answered)
            }
            Expect::Secured if rest.is_empty() => None,
            Expect::Secured => Some(Step::Close(CloseReason::NotSecured)),
            Expect::Over => Some(Step::Close(CloseReason::Over)),
        }
    }

    /// Moves bytes from the input to those held until there are `want`; `None` if the input ends
    /// first. Only what has arrived is ever allocated.
    fn fill(&mut self, rest: &mut &[u8], want: usize) -> Option<()> {
        let missing = want.saturating_sub(self.held.len());
        let (part, after) = rest.split_at(missing.min(rest.len()));
        self.held.extend_from_slice(part);
        *rest = after;
        (self.held.len() >= want).then_some(())
    }

    fn client_flags(&mut self) -> Step {
        let bits = self.held[..4].iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        self.held.clear();
        let flags = ClientFlags::from_bits(bits);
        // A client without FIXED_NEWSTYLE is taken for one that speaks it, as the protocol allows:
        // it can send EXPORT_NAME, and the options it must not send do no harm.
        if bits & !u32::from(OFFERED.bits()) != 0 {
            return Step::Close(CloseReason::ClientFlags(flags));
        }
        self.session.no_zeroes = flags.contains(ClientFlags::NO_ZEROES);
        self.expect = Expect::Header;
        Step::NeedMore
    }

    /// Reads the header that is held, and decides whether its data is kept, dropped or refused.
    fn header(&mut self) -> Step {
        let header = OptionHeader::decode(&self.held);
        let magic = self.held[..8].iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        self.held.clear();
        let Some(OptionHeader { code, length }) = header else {
            return Step::Close(CloseReason::OptionMagic(magic));
        };
        self.options += 1;
        if self.options > self.settings.options_max {
            return Step::Close(CloseReason::TooManyOptions(self.settings.options_max));
        }
        // EXPORT_NAME cannot be answered with an error, so there is no use in reading on.
        let bound = if code == OptionCode::EXPORT_NAME {
            STRING_MAX as u32
        } else {
            self.settings.skip_max
        };
        if length > bound {
            return Step::Close(CloseReason::OptionTooLong { option: code, length, bound });
        }
        self.expect = if length > OPTION_DATA_MAX {
            Expect::Skip { option: code, left: length }
        } else {
            Expect::Data(OptionHeader { code, length })
        };
        Step::NeedMore
    }
}
