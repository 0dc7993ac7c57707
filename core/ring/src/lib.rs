//! Everything atomic that weir's threads share: rings, inboxes, the right, doorbells, the gate,
//! tag words, pending bits, rosters and single-writer counters.
//!
//! Nothing here knows what it carries. Every primitive is small enough for a model checker and has
//! a model: `tests/loom.rs` has those with a wake-up rule, `tests/loom_small.rs` the mailbox, the
//! counters and the batched calls of the ring. Their atomics come through [`sync`], which is the
//! standard library live and loom's under `--cfg loom`.
//!
//! All of them share one rule for wake-ups. The producer *publishes, fences, then kicks*; the
//! consumer that stops looking *says so, fences, then looks once more*. Fences rather than
//! sequentially consistent accesses, because the model checker understands those.

#![warn(missing_docs)]

pub mod claim;
pub mod combiner;
pub mod counter;
pub mod doorbell;
pub mod gate;
pub mod inbox;
pub mod latest;
pub mod mailbox;
pub mod pending;
pub mod right;
pub mod ring;
pub mod roster;
pub mod sync;
pub mod tags;
pub mod ticks;

pub use claim::{Claim, Incoming, Outgoing};
pub use combiner::{Asked, Asking, Changing, Combiner, Work};
pub use counter::Counter;
pub use doorbell::{Doorbell, NoWake, Wake};
pub use gate::{Gate, Member};
pub use inbox::Inbox;
pub use latest::Latest;
pub use mailbox::Mailbox;
pub use pending::PendingBits;
pub use right::{Held, Right};
pub use ring::{Consumer, Producer, ring};
pub use roster::Roster;
pub use tags::TagWords;
pub use ticks::{BusyStamp, SharedCounter};
