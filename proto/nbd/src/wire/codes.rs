//! Numbered words of the protocol. They are open sets: an unknown number is kept, so that it can be
//! answered, skipped or named in an error where the rule is known.

/// Declares a newtype over an integer, with named values.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$vdoc:meta])* $value:ident = $n:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$vdoc])* pub const $value: Self = Self($n);)*

            /// The protocol's name, or `None` for a number it does not define.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$value => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

codes! {
    /// An option: a client's question in the handshake.
    OptionCode: u32 {
        /// Choose an export and go over to transmission; cannot be answered with an error.
        EXPORT_NAME = 1,
        /// End the session.
        ABORT = 2,
        /// Name every export.
        LIST = 3,
        /// Go over to TLS.
        STARTTLS = 5,
        /// Describe an export.
        INFO = 6,
        /// Describe an export and go over to transmission.
        GO = 7,
        /// Use structured replies.
        STRUCTURED_REPLY = 8,
        /// Name the metadata contexts of an export.
        LIST_META_CONTEXT = 9,
        /// Choose the metadata contexts BLOCK_STATUS reports.
        SET_META_CONTEXT = 10,
        /// Use extended requests and replies.
        EXTENDED_HEADERS = 11,
    }
}

/// The bit that every error among the option reply codes has.
const ERROR_BIT: u32 = 1 << 31;

codes! {
    /// A server's answer to an option.
    OptionReplyCode: u32 {
        /// Granted, or the end of a list.
        ACK = 1,
        /// One export of a list.
        SERVER = 2,
        /// One fact about an export.
        INFO = 3,
        /// One metadata context.
        META_CONTEXT = 4,
        /// The option is not known here.
        ERR_UNSUP = ERROR_BIT + 1,
        /// The option is known and forbidden here.
        ERR_POLICY = ERROR_BIT + 2,
        /// The option's data does not make sense, or not now.
        ERR_INVALID = ERROR_BIT + 3,
        /// The platform cannot do it.
        ERR_PLATFORM = ERROR_BIT + 4,
        /// TLS has to be started first.
        ERR_TLS_REQD = ERROR_BIT + 5,
        /// There is no such export.
        ERR_UNKNOWN = ERROR_BIT + 6,
        /// The server is going away.
        ERR_SHUTDOWN = ERROR_BIT + 7,
        /// The client has to ask for block sizes first.
        ERR_BLOCK_SIZE_REQD = ERROR_BIT + 8,
        /// The option or its answer is too large.
        ERR_TOO_BIG = ERROR_BIT + 9,
        /// Extended headers have to be, or already are, negotiated.
        ERR_EXT_HEADER_REQD = ERROR_BIT + 10,
    }
}

impl OptionReplyCode {
    /// Whether the option failed; true for unknown errors too.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 & ERROR_BIT != 0
    }
}

codes! {
    /// Which fact about an export an INFO reply states.
    InfoType: u16 {
        /// Size and transmission flags; always sent.
        EXPORT = 0,
        /// The canonical name.
        NAME = 1,
        /// Words for a person.
        DESCRIPTION = 2,
        /// Minimum and preferred block, maximum payload.
        BLOCK_SIZE = 3,
    }
}

codes! {
    /// The command of a request.
    Command: u16 {
        /// Read a range.
        READ = 0,
        /// Write a range; the data follows the header.
        WRITE = 1,
        /// Finish what is outstanding and close; has no reply.
        DISC = 2,
        /// Make every answered write durable.
        FLUSH = 3,
        /// The range is no longer needed.
        TRIM = 4,
        /// The range will be needed soon.
        CACHE = 5,
        /// Make the range read as zeroes.
        WRITE_ZEROES = 6,
        /// Report the metadata contexts of a range.
        BLOCK_STATUS = 7,
        /// The RESIZE extension, which weir does not speak.
        RESIZE = 8,
    }
}

codes! {
    /// The kind of a structured or extended reply chunk.
    ChunkType: u16 {
        /// Nothing; only ever the last chunk.
        NONE = 0,
        /// An offset and the data there.
        OFFSET_DATA = 1,
        /// An offset and a length that reads as zeroes.
        OFFSET_HOLE = 2,
        /// Extents of one context, 32-bit; only with structured replies.
        BLOCK_STATUS = 5,
        /// Extents of one context, 64-bit; only with extended headers.
        BLOCK_STATUS_EXT = 6,
        /// An error of the whole request.
        ERROR = 0x8001,
        /// An error at an offset.
        ERROR_OFFSET = 0x8002,
    }
}

impl ChunkType {
    /// Whether the chunk reports an error; true for unknown error types too.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 & 0x8000 != 0
    }
}
