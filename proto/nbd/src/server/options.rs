//! The options of the handshake: the negotiated state, and the answer to one whole option.
//!
//! Source: NBD protocol, "Option types" and "Option reply types".

use super::{CloseReason, Export, Negotiated, Offer, Settings, Step, Tls};
use crate::wire::{
    BASE_ALLOCATION, ExportSize, InfoQuery, InfoType, MetaQuery, Mode, OptionCode,
    OptionReplyCode as Reply, put_block_sizes, put_export_entry, put_export_name_reply,
    put_export_size, put_info_text, put_meta_context, put_option_reply, text,
};

/// The id status chunks carry for `base:allocation`. Any number would do; zero is what a list
/// must carry, so a client that confuses the two answers is found out.
const ALLOCATION_ID: u32 = 1;

/// The terms one client has negotiated so far.
#[derive(Debug)]
pub(super) struct Session<E> {
    exports: E,
    /// How each export is offered to this client; those beyond its end are served.
    offers: Box<[Offer]>,
    /// The export that was refused last, until that is told.
    refused: Option<usize>,
    settings: Settings,
    mode: Mode,
    pub(super) no_zeroes: bool,
    /// The export `base:allocation` was last selected for.
    allocation_of: Option<usize>,
    shutting_down: bool,
    /// The client talks over TLS.
    secured: bool,
}

/// An error answer: the code, and words for a person.
type Refusal = (Reply, &'static str);

const NO_DATA_ALLOWED: Refusal = (Reply::ERR_INVALID, "this option has no data");
const BAD_LAYOUT: Refusal = (Reply::ERR_INVALID, "counts and lengths do not fill the option data");
const BAD_NAME: Refusal =
    (Reply::ERR_INVALID, "export name is not UTF-8, has a NUL, or exceeds 4096 bytes");
const NO_SUCH_EXPORT: Refusal = (Reply::ERR_UNKNOWN, "no export of that name is served here");
const NOT_ALLOWED: Refusal = (Reply::ERR_POLICY, "this client may not use this export");
const NOT_STRUCTURED: Refusal =
    (Reply::ERR_INVALID, "metadata contexts need structured replies or extended headers first");
const TLS_REQUIRED: Refusal =
    (Reply::ERR_TLS_REQD, "this server requires TLS: STARTTLS has to come first");
const SHUTTING_DOWN: Refusal = (Reply::ERR_SHUTDOWN, "server is shutting down");

impl<E: AsRef<[Export]>> Session<E> {
    pub(super) fn new(exports: E, settings: Settings) -> Self {
        Self {
            exports,
            offers: Box::default(),
            refused: None,
            settings,
            mode: Mode::Simple,
            no_zeroes: false,
            allocation_of: None,
            shutting_down: false,
            secured: false,
        }
    }

    /// From now on the client talks over TLS: what it negotiated before may have come from others.
    pub(super) fn secured(&mut self) {
        self.mode = Mode::Simple;
        self.allocation_of = None;
        self.secured = true;
    }

    /// Whether nothing is granted before STARTTLS.
    fn needs_tls(&self) -> bool {
        self.settings.tls == Tls::Require && !self.secured
    }

    pub(super) fn offer(&mut self, offers: Box<[Offer]>) {
        self.offers = offers;
    }

    /// The name of the export that was refused since last asked.
    pub(super) fn take_refused(&mut self) -> Option<String> {
        self.refused.take().map(|at| self.exports.as_ref()[at].name.clone())
    }

    pub(super) fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Answers one whole option, behind which so many bytes have been received.
    pub(super) fn answer(
        &mut self,
        option: OptionCode,
        data: &[u8],
        behind: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        let outcome = match option {
            OptionCode::ABORT => {
                ack(out, option);
                return Step::Close(CloseReason::Aborted);
            }
            OptionCode::EXPORT_NAME => return self.export_name(data, out),
            _ if self.shutting_down => Err(SHUTTING_DOWN),
            OptionCode::STARTTLS => match self.start_tls(data) {
                Ok(()) if behind > 0 => return Step::Close(CloseReason::BehindStartTls(behind)),
                Ok(()) => {
                    ack(out, option);
                    return Step::StartTls;
                }
                Err(refusal) => Err(refusal),
            },
            _ if self.needs_tls() => Err(TLS_REQUIRED),
            OptionCode::GO => match self.info(option, data, out) {
                Ok(export) => return Step::Transmission(self.negotiated(export)),
                Err(refusal) => Err(refusal),
            },
            OptionCode::INFO => self.info(option, data, out).map(|_| ()),
            OptionCode::LIST => self.list(data, out),
            OptionCode::STRUCTURED_REPLY => self.structured_reply(data, out),
            OptionCode::EXTENDED_HEADERS => self.extended_headers(data, out),
            OptionCode::LIST_META_CONTEXT => self.list_meta_context(data, out),
            OptionCode::SET_META_CONTEXT => self.set_meta_context(data, out),
            _ => Err((Reply::ERR_UNSUP, "option is not known here")),
        };
        if let Err((code, message)) = outcome {
            put_refusal(out, option, code, message);
        }
        Step::Answered
    }

    /// Answers an option whose data was dropped because it was too long to be kept.
    pub(super) fn answer_too_long(&mut self, option: OptionCode, out: &mut Vec<u8>) {
        if option == OptionCode::SET_META_CONTEXT {
            self.allocation_of = None;
        }
        let (code, message) = if self.shutting_down {
            SHUTTING_DOWN
        } else if self.needs_tls() && option != OptionCode::STARTTLS {
            TLS_REQUIRED
        } else if option.name().is_none() {
            (Reply::ERR_UNSUP, "option is not known here")
        } else {
            (Reply::ERR_TOO_BIG, "option data exceeds 65536 bytes")
        };
        put_refusal(out, option, code, message);
    }

    /// Whether the client may start TLS.
    fn start_tls(&self, data: &[u8]) -> Result<(), Refusal> {
        without_data(data)?;
        if self.secured {
            return Err((Reply::ERR_INVALID, "this connection uses TLS already"));
        }
        if self.settings.tls == Tls::Off {
            return Err((Reply::ERR_POLICY, "this server does not offer TLS"));
        }
        Ok(())
    }

    fn negotiated(&self, at: usize) -> Negotiated {
        let export = &self.exports.as_ref()[at];
        Negotiated {
            export: at,
            name: export.name.clone(),
            mode: self.mode,
            size: export.size,
            flags: export.advertised(self.mode),
            block: export.block,
            device_block: export.device_block,
            allocation: (self.allocation_of == Some(at)).then_some(ALLOCATION_ID),
            no_zeroes: self.no_zeroes,
        }
    }

    fn offer_of(&self, at: usize) -> Offer {
        self.offers.get(at).copied().unwrap_or_default()
    }

    /// The export of this name. The empty name is that of the default export, the first one that
    /// is there, unless an export is really called so.
    fn find(&self, name: &str) -> Option<usize> {
        let all = self.exports.as_ref().iter().enumerate();
        let mut there = all.filter(|(at, _)| self.offer_of(*at) != Offer::Absent);
        let exact = there.clone().find(|(_, export)| export.name == name);
        let found = exact.or_else(|| there.next().filter(|_| name.is_empty()));
        found.map(|(at, _)| at)
    }

    fn find_named(&mut self, name: &[u8]) -> Result<usize, Refusal> {
        let name = text(name).map_err(|_| BAD_NAME)?;
        let at = self.find(name).ok_or(NO_SUCH_EXPORT)?;
        if self.offer_of(at) == Offer::Refused {
            self.refused = Some(at);
            return Err(NOT_ALLOWED);
        }
        Ok(at)
    }

    fn size_of(&self, at: usize) -> ExportSize {
        let export = &self.exports.as_ref()[at];
        ExportSize { size: export.size, flags: export.advertised(self.mode) }
    }

    fn export_name(&mut self, data: &[u8], out: &mut Vec<u8>) -> Step {
        if self.shutting_down {
            return Step::Close(CloseReason::Shutdown);
        }
        if self.needs_tls() {
            return Step::Close(CloseReason::TlsRequired);
        }
        if self.mode == Mode::Extended {
            return Step::Close(CloseReason::ExportNameWhileExtended);
        }
        let name = match text(data) {
            Ok(name) => name,
            Err(why) => return Step::Close(CloseReason::BadExportName(why)),
        };
        let Some(at) = self.find(name) else {
            return Step::Close(CloseReason::UnknownExport(name.to_owned()));
        };
        if self.offer_of(at) == Offer::Refused {
            self.refused = Some(at);
            return Step::Close(CloseReason::NotAllowed(name.to_owned()));
        }
        put_export_name_reply(out, self.size_of(at), self.no_zeroes);
        Step::Transmission(self.negotiated(at))
    }

    fn info(
        &mut self,
        option: OptionCode,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, Refusal> {
        let query = InfoQuery::decode(data).ok_or(BAD_LAYOUT)?;
        let at = self.find_named(query.name)?;
        let export = &self.exports.as_ref()[at];
        let size = self.size_of(at);
        put_option_reply(out, option, Reply::INFO, |out| put_export_size(out, size));
        for (info, words) in
            [(InfoType::NAME, &export.name), (InfoType::DESCRIPTION, &export.description)]
        {
            if query.wants(info) && !words.is_empty() {
                put_option_reply(out, option, Reply::INFO, |out| put_info_text(out, info, words));
            }
        }
        // Sent unasked too: a client has to ignore what it does not understand, and one that
        // does understand is spared an EINVAL.
        put_option_reply(out, option, Reply::INFO, |out| put_block_sizes(out, export.block));
        ack(out, option);
        Ok(at)
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        without_data(data)?;
        for (at, export) in self.exports.as_ref().iter().enumerate() {
            if self.offer_of(at) != Offer::Served {
                continue;
            }
            put_option_reply(out, OptionCode::LIST, Reply::SERVER, |out| {
                put_export_entry(out, &export.name, &export.description);
            });
        }
        ack(out, OptionCode::LIST);
        Ok(())
    }

    fn structured_reply(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        if !self.settings.structured {
            return Err((Reply::ERR_UNSUP, "structured replies are switched off"));
        }
        without_data(data)?;
        if self.mode == Mode::Extended {
            return Err((Reply::ERR_EXT_HEADER_REQD, "extended headers are already agreed on"));
        }
        self.mode = Mode::Structured;
        ack(out, OptionCode::STRUCTURED_REPLY);
        Ok(())
    }

    fn extended_headers(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        if !self.settings.extended {
            return Err((Reply::ERR_UNSUP, "extended headers are switched off"));
        }
        without_data(data)?;
        self.mode = Mode::Extended;
        ack(out, OptionCode::EXTENDED_HEADERS);
        Ok(())
    }

    /// Reads the data of either metadata option: which export, and the queries.
    fn meta_query<'a>(&mut self, data: &'a [u8]) -> Result<(usize, MetaQuery<'a>), Refusal> {
        if self.mode == Mode::Simple {
            return Err(NOT_STRUCTURED);
        }
        let query = MetaQuery::decode(data).ok_or(BAD_LAYOUT)?;
        if query.queries().any(|query| text(query).is_err()) {
            let words = "query is not UTF-8, has a NUL, or exceeds 4096 bytes";
            return Err((Reply::ERR_INVALID, words));
        }
        Ok((self.find_named(query.name)?, query))
    }

    fn list_meta_context(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let (at, query) = self.meta_query(data)?;
        // The bare namespace is a wildcard here, and only here. Queries in other namespaces, and
        // other names in this one, find nothing, which is no error.
        let asked = query.count == 0
            || query
                .queries()
                .any(|query| query == b"base:" || query == BASE_ALLOCATION.as_bytes());
        if asked && self.exports.as_ref()[at].allocation {
            put_allocation(out, OptionCode::LIST_META_CONTEXT, 0);
        }
        ack(out, OptionCode::LIST_META_CONTEXT);
        Ok(())
    }

    fn set_meta_context(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        // The former selection is gone even if this one fails.
        self.allocation_of = None;
        let (at, query) = self.meta_query(data)?;
        let asked = query.queries().any(|query| query == BASE_ALLOCATION.as_bytes());
        if asked && self.exports.as_ref()[at].allocation {
            self.allocation_of = Some(at);
            put_allocation(out, OptionCode::SET_META_CONTEXT, ALLOCATION_ID);
        }
        ack(out, OptionCode::SET_META_CONTEXT);
        Ok(())
    }
}

fn without_data(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() { Ok(()) } else { Err(NO_DATA_ALLOWED) }
}

fn ack(out: &mut Vec<u8>, option: OptionCode) {
    put_option_reply(out, option, Reply::ACK, |_| ());
}

fn put_allocation(out: &mut Vec<u8>, option: OptionCode, id: u32) {
    put_option_reply(out, option, Reply::META_CONTEXT, |out| {
        put_meta_context(out, id, BASE_ALLOCATION);
    });
}

/// Appends an error reply with words for a person.
fn put_refusal(out: &mut Vec<u8>, option: OptionCode, code: Reply, message: &str) {
    put_option_reply(out, option, code, |out| out.extend_from_slice(message.as_bytes()));
}
