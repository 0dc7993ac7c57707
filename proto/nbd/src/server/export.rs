//! Exports as clients see them, and the outcome of a client's handshake.

use super::{Geometry, Replies};
use crate::wire::{BlockSizes, Mode, PAYLOAD_MAX_DEFAULT, TransmissionFlags};

/// One export as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name clients ask for: a string of the protocol, not empty if it is to be listed
    /// usefully.
    pub name: String,
    /// Words for a person; may be empty.
    pub description: String,
    /// Size in bytes; should be a multiple of `block.minimum`.
    pub size: u64,
    /// The abilities of the device. HAS_FLAGS and SEND_DF are added, and combinations the protocol
    /// forbids are removed, when a client is told: see [`Export::advertised`].
    pub flags: TransmissionFlags,
    /// Sizes requests have to keep to; see [`BlockSizes::is_valid`].
    pub block: BlockSizes,
    /// The device's block in bytes: see [`Geometry::device_block`]. With 1 no request is unaligned.
    pub device_block: u32,
    /// Whether `base:allocation` is offered, that is whether BLOCK_STATUS can be answered.
    pub allocation: bool,
}

impl Export {
    /// A writable export of a 512-byte-block disk with every command weir speaks.
    #[must_use]
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            size,
            flags: TransmissionFlags::SEND_FLUSH
                | TransmissionFlags::SEND_FUA
                | TransmissionFlags::SEND_TRIM
                | TransmissionFlags::SEND_WRITE_ZEROES
                | TransmissionFlags::CAN_MULTI_CONN
                | TransmissionFlags::SEND_CACHE
                | TransmissionFlags::SEND_FAST_ZERO,
            block: BlockSizes { minimum: 512, preferred: 4096, maximum: PAYLOAD_MAX_DEFAULT },
            device_block: 1,
            allocation: true,
        }
    }

    /// The flags a client of this mode is told.
    ///
    /// HAS_FLAGS always, DF unless replies are simple; no TRIM or WRITE_ZEROES on a read-only
    /// export, no FAST_ZERO without WRITE_ZEROES, and neither of the two extensions that are not
    /// spoken here.
    #[must_use]
    pub fn advertised(&self, mode: Mode) -> TransmissionFlags {
        use TransmissionFlags as F;
        let mut flags = self.flags.without(F::SEND_DF | F::SEND_RESIZE | F::BLOCK_STATUS_PAYLOAD)
            | F::HAS_FLAGS;
        if mode != Mode::Simple {
            flags = flags | F::SEND_DF;
        }
        if flags.contains(F::READ_ONLY) {
            flags = flags.without(F::SEND_TRIM | F::SEND_WRITE_ZEROES);
        }
        if !flags.contains(F::SEND_WRITE_ZEROES) {
            flags = flags.without(F::SEND_FAST_ZERO);
        }
        flags
    }
}

/// How one export is offered to one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// It may be used.
    #[default]
    Served,
    /// It is there, and this client may not use it: asked for by name it is refused with
    /// ERR_POLICY, and lists leave it out.
    Refused,
    /// It is not there for this client: not served where the client connected.
    Absent,
}

/// The outcome of a handshake: everything the transmission phase depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Which of the exports given to the handshake.
    pub export: usize,
    /// Its own name, also where the client asked for the default export.
    pub name: String,
    /// How requests and replies look.
    pub mode: Mode,
    /// Size of the export in bytes.
    pub size: u64,
    /// The flags the client was told.
    pub flags: TransmissionFlags,
    /// Sizes requests have to keep to.
    pub block: BlockSizes,
    /// The device's block in bytes.
    pub device_block: u32,
    /// The context id of `base:allocation`, if the client selected it for this very export.
    pub allocation: Option<u32>,
    /// Whether the client agreed to go without zeroes behind an EXPORT_NAME answer.
    pub no_zeroes: bool,
}

impl Negotiated {
    /// Whether writes of every kind are refused.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.flags.contains(TransmissionFlags::READ_ONLY)
    }

    /// The rules for this client's requests, of an export that begins where its device does.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry {
            mode: self.mode,
            size: self.size,
            start: 0,
            minimum_block: self.block.minimum,
            device_block: self.device_block,
            payload_max: self.block.maximum,
            flags: self.flags,
            block_status: self.allocation.is_some(),
        }
    }

    /// The encoder of replies to this client.
    #[must_use]
    pub const fn replies(&self) -> Replies {
        Replies::new(self.mode)
    }
}
