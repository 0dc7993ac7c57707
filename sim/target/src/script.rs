//! What happens to a target from outside: by its spec's script, or when a test says so.

use serde::Deserialize;
use weir_proto_scsi::alua::AccessState;

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When, nanoseconds on the target's clock.
    #[serde(rename = "at", deserialize_with = "crate::read::time")]
    pub at_ns: u64,
    /// What: `action = { port = { id = 1, health = "up" } }` and the like, or `"power-cut"`.
    pub action: Action,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// A group goes to another state, and is in transition for the spec's time before.
    Group {
        /// TARGET PORT GROUP.
        id: u16,
        /// The state.
        #[serde(deserialize_with = "crate::read::state")]
        state: AccessState,
    },
    /// A port gets better or worse.
    Port {
        /// RELATIVE TARGET PORT IDENTIFIER.
        id: u16,
        /// How it is from now on.
        health: PortHealth,
    },
    /// A logical unit changes.
    Lun {
        /// Its number.
        number: u32,
        /// What of it.
        change: LunChange,
    },
    /// The power goes off and comes back: each block that was written into a volatile cache and
    /// not flushed keeps a value it had since its last flush, chosen by the seed. All nexuses and
    /// commands end.
    PowerCut,
}

/// How a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PortHealth {
    /// Well.
    #[default]
    Up,
    /// Its commands take so much longer.
    Slow {
        /// The time.
        #[serde(rename = "by", deserialize_with = "crate::read::time")]
        by_ns: u64,
    },
    /// No answer and no task management function gets through, and none can connect. Commands
    /// that were here before are carried out.
    Dead {
        /// How many of 100 commands reach the target, chosen by the seed.
        #[serde(default, deserialize_with = "crate::read::percent")]
        arrive: u32,
        /// Those that do are carried out so much later, unless their nexus ends before.
        #[serde(default, rename = "after", deserialize_with = "crate::read::time")]
        after_ns: u64,
    },
}

/// What changes of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LunChange {
    /// It is taken out of the map; its blocks stay.
    Remove,
    /// It is in the map again.
    Add,
    /// It becomes ready by itself: NOT READY 04h/01h until it is online.
    Offline,
    /// It is ready.
    Online,
    /// It has so many bytes.
    Resize(#[serde(deserialize_with = "crate::read::size")] u64),
    /// Its write cache is turned on, or off: then what it holds is written.
    WriteCache(bool),
}
