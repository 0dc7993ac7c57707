//! The PDUs that an initiator sends, both ways. RFC 7143, sections 11.3, 11.5, 11.7, 11.10, 11.12,
//! 11.14 and 11.18.

use super::{Bhs, NO_TAG, Opcode, Serial};

/// Bytes of the longest CDB: SPC has none that is longer.
pub const CDB_MAX: usize = 260;

const FINAL: u8 = 0x80;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const CONTINUE: u8 = 0x40;

/// How a command is ordered among those of its logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribute {
    /// No attribute.
    Untagged,
    /// In any order.
    #[default]
    Simple,
    /// After all before it and before all after it.
    Ordered,
    /// Before all others.
    HeadOfQueue,
    /// During an auto contingent allegiance.
    Aca,
}

impl Attribute {
    const fn to_wire(self) -> u8 {
        match self {
            Self::Untagged => 0,
            Self::Simple => 1,
            Self::Ordered => 2,
            Self::HeadOfQueue => 3,
            Self::Aca => 4,
        }
    }

    const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Untagged,
            1 => Self::Simple,
            2 => Self::Ordered,
            3 => Self::HeadOfQueue,
            4 => Self::Aca,
            _ => return None,
        })
    }
}

/// A SCSI Command, but for a CDB longer than 16 bytes, whose rest is in an additional header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// Whether no unsolicited Data-Out follows.
    pub last: bool,
    /// Whether data comes back.
    pub read: bool,
    /// Whether data goes out.
    pub write: bool,
    /// Its order.
    pub attribute: Attribute,
    /// The logical unit.
    pub lun: u64,
    /// Its tag.
    pub itt: u32,
    /// Bytes of data that are expected to move.
    pub expected: u32,
    /// Its place among the commands.
    pub cmd_sn: Serial,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
    /// The first 16 bytes of the CDB.
    pub cdb: [u8; 16],
}

impl ScsiCommand {
    /// As a header.
    #[must_use]
    #[inline]
    pub const fn encode(&self) -> Bhs {
        let mut flags = self.attribute.to_wire();
        flags |= if self.last { FINAL } else { 0 };
        flags |= if self.read { READ } else { 0 };
        flags |= if self.write { WRITE } else { 0 };
        Bhs::new(Opcode::SCSI_COMMAND)
            .with_byte(1, flags)
            .with_lun(self.lun)
            .with_word(16, self.itt)
            .with_word(20, self.expected)
            .with_word(24, self.cmd_sn.0)
            .with_word(28, self.exp_stat_sn.0)
            .with(32, self.cdb)
    }

    /// Of a header; `None` for an attribute that does not exist.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Option<Self> {
        let flags = bhs.byte(1);
        Some(Self {
            last: flags & FINAL != 0,
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            attribute: Attribute::from_wire(flags & 7)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            expected: bhs.word(20),
            cmd_sn: Serial(bhs.word(24)),
            exp_stat_sn: Serial(bhs.word(28)),
            cdb: *bhs.bytes()[32..].first_chunk().expect("16 bytes from byte 32 on"),
        })
    }
}

/// A SCSI Data-Out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// Whether its sequence ends with it.
    pub last: bool,
    /// The logical unit, for solicited data.
    pub lun: u64,
    /// The write it belongs to.
    pub itt: u32,
    /// The tag of the R2T, [`NO_TAG`] for unsolicited data.
    pub ttt: u32,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
    /// Its place in its sequence.
    pub data_sn: u32,
    /// Where its data belongs, from the start of the write.
    pub offset: u32,
}

impl DataOut {
    /// As a header.
    #[must_use]
    #[inline]
    pub const fn encode(&self) -> Bhs {
        Bhs::new(Opcode::DATA_OUT)
            .with_byte(1, if self.last { FINAL } else { 0 })
            .with_lun(self.lun)
            .with_word(16, self.itt)
            .with_word(20, self.ttt)
            .with_word(28, self.exp_stat_sn.0)
            .with_word(36, self.data_sn)
            .with_word(40, self.offset)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self {
            last: bhs.byte(1) & FINAL != 0,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.word(20),
            exp_stat_sn: Serial(bhs.word(28)),
            data_sn: bhs.word(36),
            offset: bhs.word(40),
        }
    }
}

/// A NOP-Out: a ping, or the answer to one. Always immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// The logical unit that the target named in its ping.
    pub lun: u64,
    /// The tag of our ping, [`NO_TAG`] if no answer is wanted.
    pub itt: u32,
    /// The tag of the target's ping, or [`NO_TAG`].
    pub ttt: u32,
    /// The number that the next command will have.
    pub cmd_sn: Serial,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
}

impl NopOut {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        Bhs::new(Opcode::NOP_OUT)
            .with_immediate(true)
            .with_byte(1, FINAL)
            .with_lun(self.lun)
            .with_word(16, self.itt)
            .with_word(20, self.ttt)
            .with_word(24, self.cmd_sn.0)
            .with_word(28, self.exp_stat_sn.0)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: bhs.word(20),
            cmd_sn: Serial(bhs.word(24)),
            exp_stat_sn: Serial(bhs.word(28)),
        }
    }
}

/// A task management function that weir uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// Ends one task.
    AbortTask,
    /// Ends every task of a logical unit, and puts the unit in its first state.
    LunReset,
    /// Ends every task of the target.
    TargetWarmReset,
    /// The same, and the target drops its connections.
    TargetColdReset,
}

impl Function {
    const fn to_wire(self) -> u8 {
        match self {
            Self::AbortTask => 1,
            Self::LunReset => 5,
            Self::TargetWarmReset => 6,
            Self::TargetColdReset => 7,
        }
    }

    const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::AbortTask,
            5 => Self::LunReset,
            6 => Self::TargetWarmReset,
            7 => Self::TargetColdReset,
            _ => return None,
        })
    }
}

/// A Task Management Function Request. Always immediate, so that it passes a closed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// What is asked.
    pub function: Function,
    /// The logical unit, for the functions that have one.
    pub lun: u64,
    /// Its own tag.
    pub itt: u32,
    /// The tag of the task to be aborted, or [`NO_TAG`].
    pub referenced: u32,
    /// The number that the next command will have.
    pub cmd_sn: Serial,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
    /// CmdSN of the task to be aborted.
    pub ref_cmd_sn: Serial,
}

impl TaskRequest {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        Bhs::new(Opcode::TASK_REQUEST)
            .with_immediate(true)
            .with_byte(1, FINAL | self.function.to_wire())
            .with_lun(self.lun)
            .with_word(16, self.itt)
            .with_word(20, self.referenced)
            .with_word(24, self.cmd_sn.0)
            .with_word(28, self.exp_stat_sn.0)
            .with_word(32, self.ref_cmd_sn.0)
    }

    /// Of a header; `None` for another function.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Option<Self> {
        Some(Self {
            function: Function::from_wire(bhs.byte(1) & !FINAL)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            referenced: bhs.word(20),
            cmd_sn: Serial(bhs.word(24)),
            exp_stat_sn: Serial(bhs.word(28)),
            ref_cmd_sn: Serial(bhs.word(32)),
        })
    }
}

/// A Login Request. Always immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// Whether the next stage is asked for.
    pub transit: bool,
    /// Whether the text goes on in the next one.
    pub more: bool,
    /// The stage: 0 security, 1 operational.
    pub stage: u8,
    /// The stage asked for: 1 operational, 3 full feature.
    pub next: u8,
    /// The initiator's half of the session's name.
    pub isid: [u8; 6],
    /// The target's half, 0 for a new session.
    pub tsih: u16,
    /// The tag of the whole login.
    pub itt: u32,
    /// The connection in its session.
    pub cid: u16,
    /// The number that the first command will have.
    pub cmd_sn: Serial,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
}

impl LoginRequest {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let mut flags = (self.stage & 3) << 2 | (self.next & 3);
        flags |= if self.transit { FINAL } else { 0 };
        flags |= if self.more { CONTINUE } else { 0 };
        Bhs::new(Opcode::LOGIN_REQUEST)
            .with_immediate(true)
            .with_byte(1, flags)
            .with(8, self.isid)
            .with_half(14, self.tsih)
            .with_word(16, self.itt)
            .with_half(20, self.cid)
            .with_word(24, self.cmd_sn.0)
            .with_word(28, self.exp_stat_sn.0)
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
            isid: *bhs.bytes()[8..].first_chunk().expect("6 bytes from byte 8 on"),
            tsih: bhs.half(14),
            itt: bhs.itt(),
            cid: bhs.half(20),
            cmd_sn: Serial(bhs.word(24)),
            exp_stat_sn: Serial(bhs.word(28)),
        }
    }
}

/// A Text Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// Whether the initiator has said all.
    pub last: bool,
    /// Its tag.
    pub itt: u32,
    /// The tag of an answer that goes on, or [`NO_TAG`] to begin.
    pub ttt: u32,
    /// Its place among the commands.
    pub cmd_sn: Serial,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
}

impl TextRequest {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        Bhs::new(Opcode::TEXT_REQUEST)
            .with_byte(1, if self.last { FINAL } else { 0 })
            .with_word(16, self.itt)
            .with_word(20, self.ttt)
            .with_word(24, self.cmd_sn.0)
            .with_word(28, self.exp_stat_sn.0)
    }

    /// Of a header.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Self {
        Self {
            last: bhs.byte(1) & FINAL != 0,
            itt: bhs.itt(),
            ttt: bhs.word(20),
            cmd_sn: Serial(bhs.word(24)),
            exp_stat_sn: Serial(bhs.word(28)),
        }
    }
}

/// Why a session or connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutReason {
    /// The session ends.
    CloseSession,
    /// The connection ends.
    CloseConnection,
}

/// A Logout Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// What ends.
    pub reason: LogoutReason,
    /// Its tag.
    pub itt: u32,
    /// The connection.
    pub cid: u16,
    /// The number that the next command would have.
    pub cmd_sn: Serial,
    /// The first answer not received.
    pub exp_stat_sn: Serial,
}

impl LogoutRequest {
    /// As a header.
    #[must_use]
    pub const fn encode(&self) -> Bhs {
        let reason = match self.reason {
            LogoutReason::CloseSession => 0,
            LogoutReason::CloseConnection => 1,
        };
        Bhs::new(Opcode::LOGOUT_REQUEST)
            .with_immediate(true)
            .with_byte(1, FINAL | reason)
            .with_word(16, self.itt)
            .with_half(20, self.cid)
            .with_word(24, self.cmd_sn.0)
            .with_word(28, self.exp_stat_sn.0)
    }

    /// Of a header; `None` for the removal of a connection for recovery, and what does not exist.
    #[must_use]
    pub fn decode(bhs: &Bhs) -> Option<Self> {
        let reason = match bhs.byte(1) & !FINAL {
            0 => LogoutReason::CloseSession,
            1 => LogoutReason::CloseConnection,
            _ => return None,
        };
        Some(Self {
            reason,
            itt: bhs.itt(),
            cid: bhs.half(20),
            cmd_sn: Serial(bhs.word(24)),
            exp_stat_sn: Serial(bhs.word(28)),
        })
    }
}

impl NopOut {
    /// Whether an answer is wanted.
    #[must_use]
    pub const fn is_ping(&self) -> bool {
        self.itt != NO_TAG
    }
}
