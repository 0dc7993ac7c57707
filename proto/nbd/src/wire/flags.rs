//! The protocol's bit sets. Unknown bits survive decoding, so that the place that knows the rule
//! can refuse or ignore them.

/// Declares a set of bits over an integer, with one constant a bit.
macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$bdoc:meta])* $bit:ident = $at:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name($int);

        impl $name {
            $($(#[$bdoc])* pub const $bit: Self = Self(1 << $at);)*
            /// No bit.
            pub const EMPTY: Self = Self(0);
            /// Every bit the protocol defines.
            pub const KNOWN: Self = Self(0 $(| (1 << $at))*);

            /// The set with exactly these bits, known or not.
            #[must_use]
            pub const fn from_bits(bits: $int) -> Self {
                Self(bits)
            }

            /// The bits as they stand on the wire.
            #[must_use]
            pub const fn bits(self) -> $int {
                self.0
            }

            /// Whether every bit of `other` is in this set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether no bit is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The bits of either set.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The bits of this set that are not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// The bits the protocol does not define.
            #[must_use]
            pub const fn unknown(self) -> Self {
                self.without(Self::KNOWN)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let names: &[(Self, &str)] = &[$((Self::$bit, stringify!($bit)),)*];
                f.write_str(concat!(stringify!($name), "("))?;
                let mut between = "";
                for &(_, name) in names.iter().filter(|&&(bit, _)| self.contains(bit)) {
                    write!(f, "{between}{name}")?;
                    between = " | ";
                }
                match self.unknown().0 {
                    0 => f.write_str(")"),
                    bits => write!(f, "{between}{bits:#x})"),
                }
            }
        }
    };
}

bit_set! {
    /// The flags a server offers in its greeting.
    HandshakeFlags: u16 {
        /// Options other than EXPORT_NAME may be sent, and are answered.
        FIXED_NEWSTYLE = 0,
        /// The zeroes behind an EXPORT_NAME answer can be left out.
        NO_ZEROES = 1,
    }
}

bit_set! {
    /// The flags a client answers to the greeting. A server closes on a bit it did not offer.
    ClientFlags: u32 {
        /// The client speaks fixed newstyle.
        FIXED_NEWSTYLE = 0,
        /// The client wants no zeroes behind an EXPORT_NAME answer.
        NO_ZEROES = 1,
    }
}

bit_set! {
    /// The abilities of an export.
    TransmissionFlags: u16 {
        /// Always set.
        HAS_FLAGS = 0,
        /// Writes of every kind get EPERM.
        READ_ONLY = 1,
        /// FLUSH is understood.
        SEND_FLUSH = 2,
        /// The FUA command flag is understood, on every command.
        SEND_FUA = 3,
        /// Seeks are dear: schedule as for a rotating disk.
        ROTATIONAL = 4,
        /// TRIM is understood.
        SEND_TRIM = 5,
        /// WRITE_ZEROES and NO_HOLE are understood.
        SEND_WRITE_ZEROES = 6,
        /// The DF command flag is understood; only with structured or extended replies.
        SEND_DF = 7,
        /// A flush or FUA on one connection covers what every other connection was answered.
        CAN_MULTI_CONN = 8,
        /// The RESIZE extension, which weir does not speak.
        SEND_RESIZE = 9,
        /// CACHE is understood.
        SEND_CACHE = 10,
        /// FAST_ZERO is understood; only together with SEND_WRITE_ZEROES.
        SEND_FAST_ZERO = 11,
        /// BLOCK_STATUS may carry a list of contexts; weir does not advertise it.
        BLOCK_STATUS_PAYLOAD = 12,
    }
}

bit_set! {
    /// The flags of a request beside its command.
    CommandFlags: u16 {
        /// Answer only once the written data is on stable storage.
        FUA = 0,
        /// WRITE_ZEROES: leave the range allocated.
        NO_HOLE = 1,
        /// READ: answer with at most one content chunk.
        DF = 2,
        /// BLOCK_STATUS: answer with exactly one extent.
        REQ_ONE = 3,
        /// WRITE_ZEROES: fail with ENOTSUP unless faster than a write.
        FAST_ZERO = 4,
        /// Extended headers: the length is that of a payload which follows.
        PAYLOAD_LEN = 5,
    }
}

bit_set! {
    /// Flags of a structured or extended reply chunk. Clients ignore unknown bits.
    ReplyFlags: u16 {
        /// The last chunk of this reply.
        DONE = 0,
    }
}

bit_set! {
    /// Status of an extent in `base:allocation`. Reporting nothing is always legal.
    StatusFlags: u64 {
        /// Not allocated: a write here may fragment, or run out of space.
        HOLE = 0,
        /// Reads as zeroes.
        ZERO = 1,
    }
}
