//! The PDUs that a target sends, both ways. RFC 7143, sections 11.4, 11.6 to 11.9, 11.11, 11.13,
//! 11.15, 11.17 and 11.19.

use super::{Bhs, Opcode, Serial};

const FINAL: u8 = 0x80;
const CONTINUE: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

/// The numbers that each PDU of a target carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Its place among the answers, or that of the next answer.
    pub stat_sn: Serial,
    /// The command that the target expects next.
    pub exp_cmd_sn: Serial,
    /// The last command that the target takes.
    pub max_cmd_sn: Serial,
}

impl Numbers {
    /// Of a header.
    #[must_use]
    #[inline]
    pub const fn decode(bhs: &Bhs) -> Self {
        Self {
            stat_sn: Serial(bhs.word(24)),
            exp_cmd_sn: Serial(bhs.word(28)),
            max_cmd_sn: Serial(bhs.word(32)),
        }
    }

    #[inline]
    const fn encode(self, bhs: Bhs) -> Bhs {
        bhs.with_word(24, self.stat_sn.0)
            .with_word(28, self.exp_cmd_sn.0)
            .with_word(32, self.max_cmd_sn.0)
    }
}

/// Bytes that were expected to move and did not, or that would have moved and were not expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// As expected.
    #[default]
    None,
    /// So many bytes less.
    Under(u32),
    /// So many bytes more were there than fitted.
    Over(u32),
}

impl Residual {
    const fn decode(bhs: &Bhs) -> Option<Self> {
        match bhs.byte(1) & (OVERFLOW | UNDERFLOW) {
            0 => Some(Self::None),
            UNDERFLOW => Some(Self::Under(bhs.word(44))),
            OVERFLOW => Some(Self::Over(bhs.word(44))),
            _ => None,
        }
    }

    const fn encode(self) -> (u8, u32) {
        match self {
            Self::None => (0, 0),
            Self::Under(bytes) => (UNDERFLOW, bytes),
            Self::Over(bytes) => (OVERFLOW, bytes),
        }
    }
}

/// A SCSI Response. Its data segment is the length of the sense data, two bytes, and the sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// 0 if the command has been completed at the target.
    pub response: u8,
    /// The SCSI status, of a completed command.
    pub status: u8,
    /// The command.
    pub itt: u32,
    /// The numbers; StatSN counts it.
    pub numbers: Numbers,
    /// R2T and Data-In PDUs that were sent for the command.
    pub exp_data_sn: u32,
    /// Bytes that did not move.
    pub residual: Residual,
}

impl ScsiResponse {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let (flags, residual) = self.residual.encode();
        let bhs = Bhs::new(Opcode::SCSI_RESPONSE)
            .with_byte(1, FINAL | flags)
            .with_byte(2, self.response)
            .with_byte(3, self.status)
            .with_word(16, self.itt)
            .with_word(36, self.exp_data_sn)
            .with_word(44, residual);
        self.numbers.encode(bhs)
    }

    /// Of a header; `None` if it tells of an overflow and an underflow.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Option<Self> {
        Some(Self {
            response: bhs.byte(2),
            status: bhs.byte(3),
            itt: bhs.itt(),
            numbers: Numbers::decode(bhs),
            exp_data_sn: bhs.word(36),
            residual: Residual::decode(bhs)?,
        })
    }
}

/// A SCSI Data-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// Whether its sequence ends with it.
    pub last: bool,
    /// The SCSI status with what did not move: then no SCSI Response follows.
    pub status: Option<(u8, Residual)>,
    /// The read it belongs to.
    pub itt: u32,
    /// The numbers; StatSN counts it only with a status.
    pub numbers: Numbers,
    /// Its place among the Data-In PDUs of the read.
    pub data_sn: u32,
    /// Where its data belongs, from the start of the read.
    pub offset: u32,
}

impl DataIn {
    /// As a header.
    #[must_use]
    #[inline]
    pub const fn encode(&self) -> Bhs {
        let (mut flags, mut status, mut residual) = (if self.last { FINAL } else { 0 }, 0, 0);
        if let Some((code, bytes)) = self.status {
            let (bits, count) = bytes.encode();
            (flags, status, residual) = (flags | STATUS | bits, code, count);
        }
        let bhs = Bhs::new(Opcode::DATA_IN)
            .with_byte(1, flags)
            .with_byte(3, status)
            .with_word(16, self.itt)
            .with_word(20, super::NO_TAG)
            .with_word(36, self.data_sn)
            .with_word(40, self.offset)
            .with_word(44, residual);
        self.numbers.encode(bhs)
    }

    /// Of a header; `None` if a status comes without the end of the sequence, or tells of an
    /// overflow and an underflow.
    #[must_use]
    #[inline]
    pub fn decode(bhs: &Bhs) -> Option<Self> {
        let last = bhs.byte(1) & FINAL != 0;
        let status = if bhs.byte(1) & STATUS == 0 {
            None
        } else if last {
            Some((bhs.byte(3), Residual::decode(bhs)?))
        } else {
            return None;
        };
        Some(Self {
            last,
            status,
            itt: bhs.itt(),
            numbers: Numbers::decode(bhs),
            data_sn: bhs.word(36),
            offset: bhs.word(40),
        })
    }
}

/// A Ready To Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The logical unit, which the data sends back.
    pub lun: u64,
    /// The write.
    pub itt: u32,
    /// Its tag, which the data sends back.
    pub ttt: u32,
    /// The numbers; StatSN does not count it.
    pub numbers: Numbers,
    /// Its place among those of the write.
    pub r2t_sn: u32,
    /// The first byte asked for, from the start of the write.
    pub offset: u32,
    /// Bytes asked for.
    pub length: u32,
}

impl R2t {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let bhs = Bhs::new(Opcode::R2T)
            .with_byte(1, FINAL)
            .with_lun(self.lun)
            .with_word(16, self.itt)
            .with_word(20, self.ttt)
            .with_word(36, self.r2t_sn)
            .with_word(40, self.offset)
            .with_word(44, self.length);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.word(20),
            numbers: Numbers::decode(bhs),
            r2t_sn: bhs.word(36),
            offset: bhs.word(40),
            length: bhs.word(44),
        }
    }
}

/// A NOP-In: the answer to a ping, or a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// The logical unit, which the answer sends back.
    pub lun: u64,
    /// The tag of our ping, [`super::NO_TAG`] if it is none's answer.
    pub itt: u32,
    /// The tag to answer with, [`super::NO_TAG`] if no answer is wanted.
    pub ttt: u32,
    /// The numbers; StatSN counts it only as an answer.
    pub numbers: Numbers,
}

impl NopIn {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let bhs = Bhs::new(Opcode::NOP_IN)
            .with_byte(1, FINAL)
            .with_lun(self.lun)
            .with_word(16, self.itt)
            .with_word(20, self.ttt);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self { lun: bhs.lun(), itt: bhs.itt(), ttt: bhs.word(20), numbers: Numbers::decode(bhs) }
    }
}

/// A Task Management Function Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResponse {
    /// How it ended: 0 done, 1 no such task, 2 no such logical unit, 5 not supported, 255 rejected.
    pub response: u8,
    /// The tag of the request.
    pub itt: u32,
    /// The numbers; StatSN counts it.
    pub numbers: Numbers,
}

impl TaskResponse {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let bhs = Bhs::new(Opcode::TASK_RESPONSE)
            .with_byte(1, FINAL)
            .with_byte(2, self.response)
            .with_word(16, self.itt);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self { response: bhs.byte(2), itt: bhs.itt(), numbers: Numbers::decode(bhs) }
    }
}

/// A Login Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// Whether the next stage begins.
    pub transit: bool,
    /// Whether the text goes on in the next one.
    pub more: bool,
    /// The stage.
    pub stage: u8,
    /// The next stage.
    pub next: u8,
    /// The target speaks no version above this.
    pub version_max: u8,
    /// The version of the session.
    pub version: u8,
    /// The initiator's half of the session's name.
    pub isid: [u8; 6],
    /// The target's half, in the last response.
    pub tsih: u16,
    /// The tag of the login.
    pub itt: u32,
    /// The numbers.
    pub numbers: Numbers,
    /// Class (high byte) and detail; 0 while all is well.
    pub status: u16,
}

impl LoginResponse {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let mut flags = (self.stage & 3) << 2 | (self.next & 3);
        flags |= if self.transit { FINAL } else { 0 };
        flags |= if self.more { CONTINUE } else { 0 };
        let bhs = Bhs::new(Opcode::LOGIN_RESPONSE)
            .with_byte(1, flags)
            .with_byte(2, self.version_max)
            .with_byte(3, self.version)
            .with(8, self.isid)
            .with_half(14, self.tsih)
            .with_word(16, self.itt)
            .with_half(36, self.status);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        let flags = bhs.byte(1);
        Self {
            transit: flags & FINAL != 0,
            more: flags & CONTINUE != 0,
            stage: flags >> 2 & 3,
            next: flags & 3,
            version_max: bhs.byte(2),
            version: bhs.byte(3),
            isid: *bhs.bytes()[8..].first_chunk().expect("6 bytes from byte 8 on"),
            tsih: bhs.half(14),
            itt: bhs.itt(),
            numbers: Numbers::decode(bhs),
            status: bhs.half(36),
        }
    }
}

/// A Text Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// Whether the target has said all.
    pub last: bool,
    /// Whether the text goes on in the next one, perhaps within a pair.
    pub more: bool,
    /// The tag of the request.
    pub itt: u32,
    /// The tag with which to ask for the rest, or [`super::NO_TAG`].
    pub ttt: u32,
    /// The numbers; StatSN counts it.
    pub numbers: Numbers,
}

impl TextResponse {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let mut flags = if self.last { FINAL } else { 0 };
        flags |= if self.more { CONTINUE } else { 0 };
        let bhs = Bhs::new(Opcode::TEXT_RESPONSE)
            .with_byte(1, flags)
            .with_word(16, self.itt)
            .with_word(20, self.ttt);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self {
            last: bhs.byte(1) & FINAL != 0,
            more: bhs.byte(1) & CONTINUE != 0,
            itt: bhs.itt(),
            ttt: bhs.word(20),
            numbers: Numbers::decode(bhs),
        }
    }
}

/// A Logout Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// 0 if the session or connection has been closed.
    pub response: u8,
    /// The tag of the request.
    pub itt: u32,
    /// The numbers; StatSN counts it.
    pub numbers: Numbers,
}

impl LogoutResponse {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let bhs = Bhs::new(Opcode::LOGOUT_RESPONSE)
            .with_byte(1, FINAL)
            .with_byte(2, self.response)
            .with_word(16, self.itt);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self { response: bhs.byte(2), itt: bhs.itt(), numbers: Numbers::decode(bhs) }
    }
}

/// An Asynchronous Message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// The logical unit, of a SCSI event.
    pub lun: u64,
    /// The numbers; StatSN counts it.
    pub numbers: Numbers,
    /// 0 SCSI event, 1 logout wanted, 2 the connection and 3 the session will be dropped, 4
    /// negotiation wanted.
    pub event: u8,
    /// The code of an event of the vendor.
    pub code: u8,
    /// Parameters 1 to 3.
    pub parameters: [u16; 3],
}

impl AsyncMessage {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let bhs = Bhs::new(Opcode::ASYNC)
            .with_byte(1, FINAL)
            .with_lun(self.lun)
            .with_word(16, super::NO_TAG)
            .with_byte(36, self.event)
            .with_byte(37, self.code)
            .with_half(38, self.parameters[0])
            .with_half(40, self.parameters[1])
            .with_half(42, self.parameters[2]);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self {
            lun: bhs.lun(),
            numbers: Numbers::decode(bhs),
            event: bhs.byte(36),
            code: bhs.byte(37),
            parameters: [bhs.half(38), bhs.half(40), bhs.half(42)],
        }
    }
}

/// A Reject. Its data segment is the header of the PDU that was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: u8,
    /// The numbers; StatSN counts it.
    pub numbers: Numbers,
}

impl Reject {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let bhs = Bhs::new(Opcode::REJECT)
            .with_byte(1, FINAL)
            .with_byte(2, self.reason)
            .with_word(16, super::NO_TAG);
        self.numbers.encode(bhs)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self { reason: bhs.byte(2), numbers: Numbers::decode(bhs) }
    }
}
