//! The steps of a handshake, and the reasons for which it fails.

use std::fmt;

use super::Negotiated;
use crate::wire::{BadText, ClientFlags, OPTION_MAGIC, OptionCode};

/// The step a server takes after handing bytes to the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Everything is consumed: receive more.
    NeedMore,
    /// An option has been answered: send the output, then come back with the rest of the input.
    /// One option an answer keeps the output of a client that never reads within one reply.
    Answered,
    /// Send the output as it is, then do the TLS handshake; [`Handshake::secured`] goes on behind
    /// it. No byte has been received beyond those consumed.
    ///
    /// [`Handshake::secured`]: super::Handshake::secured
    StartTls,
    /// Send the output; what follows the consumed bytes belongs to the transmission phase.
    Transmission(Negotiated),
    /// Send the output if there is any, then close. Repeated by every later call.
    Close(CloseReason),
}

/// Why a server ends a session in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client sent ABORT, as it may.
    Aborted,
    /// The client's flags hold bits that were not offered: all its flags.
    ClientFlags(ClientFlags),
    /// An option starts with these eight bytes instead of IHAVEOPT.
    OptionMagic(u64),
    /// Too many options: the bound.
    TooManyOptions(u32),
    /// Data too long to be dropped.
    OptionTooLong {
        /// The option.
        option: OptionCode,
        /// Bytes of data it announced.
        length: u32,
        /// Bytes that would have been dropped, or for EXPORT_NAME accepted.
        bound: u32,
    },
    /// EXPORT_NAME, which has no error answer, asked for something not served.
    UnknownExport(String),
    /// EXPORT_NAME asked for something this client may not use.
    NotAllowed(String),
    /// EXPORT_NAME with a name that is no string of the protocol.
    BadExportName(BadText),
    /// EXPORT_NAME after EXTENDED_HEADERS was granted.
    ExportNameWhileExtended,
    /// EXPORT_NAME while the server is going away.
    Shutdown,
    /// EXPORT_NAME without TLS, which is required.
    TlsRequired,
    /// So many bytes stood behind STARTTLS before it was answered: taken in later, they would pass
    /// for bytes that came over TLS.
    BehindStartTls(usize),
    /// Bytes between the answer to STARTTLS and the end of the TLS handshake.
    NotSecured,
    /// The handshake is already over.
    Over,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted => f.write_str("client aborted the handshake"),
            Self::ClientFlags(flags) => write!(f, "client flags {flags:?} were not offered"),
            Self::OptionMagic(magic) => {
                write!(f, "option starts with {magic:#018x}, not with {OPTION_MAGIC:#018x}")
            }
            Self::TooManyOptions(bound) => write!(f, "client sent more than {bound} options"),
            Self::OptionTooLong { option, length, bound } => {
                write!(f, "data of option {option} has {length} bytes, the bound is {bound}")
            }
            Self::UnknownExport(name) => write!(f, "no export is named {name:?}"),
            Self::NotAllowed(name) => write!(f, "client may not use export {name:?}"),
            Self::BadExportName(why) => write!(f, "export name: {why}"),
            Self::ExportNameWhileExtended => {
                f.write_str("option EXPORT_NAME is forbidden once extended headers are agreed on")
            }
            Self::Shutdown => f.write_str("server is shutting down"),
            Self::TlsRequired => f.write_str("client asked for an export without TLS"),
            Self::BehindStartTls(bytes) => {
                write!(f, "client sent {bytes} bytes behind STARTTLS before it was answered")
            }
            Self::NotSecured => f.write_str("options came before the TLS handshake had ended"),
            Self::Over => f.write_str("handshake is over"),
        }
    }
}

impl std::error::Error for CloseReason {}
