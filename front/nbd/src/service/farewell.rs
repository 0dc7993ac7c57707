//! Lines of the log on clients that come and go.

use std::fmt;

use weir_bio::Nanos;
use weir_proto_nbd::server::Negotiated;
use weir_proto_nbd::wire::Mode;

use crate::connection::{Connection, Parting};
use crate::shared::Gone;

/// What a client has agreed on, in words.
pub(super) fn negotiated(agreed: &Negotiated, sealed: bool) -> String {
    let mut words = vec![match agreed.mode {
        Mode::Simple => "simple replies",
        Mode::Structured => "structured replies",
        Mode::Extended => "extended headers",
    }];
    let has = [
        (agreed.allocation.is_some(), "block status"),
        (agreed.is_read_only(), "read-only"),
        (sealed, "TLS"),
    ];
    words.extend(has.into_iter().filter(|(has, _)| *has).map(|(_, word)| word));
    words.join(", ")
}

/// Says that a connection has ended: of a client how long it was there and what it moved.
pub(super) fn tell(connection: &Connection, gone: Option<&Gone>, now: Nanos) {
    let (peer, why) = (&connection.peer, connection.reason());
    tracing::debug!(%peer, why, "connection closed");
    let Some(gone) = gone else { return };
    let (read, wrote) = (Amount(gone.read_bytes), Amount(gone.written_bytes));
    let (export, lasted) = (&gone.export, Lasted(now.since(gone.came)));
    let client = connection.client;
    // A place in the code each: the log leaves lines out by that, and a storm of clients that leave
    // as they should must not hide one that does not.
    match connection.parting() {
        Parting::InOrder => {
            tracing::info!(%peer, %export, client, %lasted, %read, %wrote, %why, "client gone");
        }
        Parting::Lost => {
            tracing::info!(%peer, %export, client, %lasted, %read, %wrote, %why, "client gone");
        }
        Parting::Fault => {
            tracing::warn!(%peer, %export, client, %lasted, %read, %wrote, %why, "client gone");
        }
    }
}

/// Bytes as people read them.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| self.0 >> shift > 0) {
            Some((shift, unit)) => {
                write!(f, "{:.1} {unit}", self.0 as f64 / (1_u64 << shift) as f64)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// A time as people read it, ns.
struct Lasted(u64);

impl fmt::Display for Lasted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000_000;
        match (seconds / 3600, seconds / 60 % 60) {
            (0, 0) if seconds < 10 => write!(f, "{:.2} s", self.0 as f64 / 1e9),
            (0, 0) => write!(f, "{seconds} s"),
            (0, minutes) => write!(f, "{minutes} min {} s", seconds % 60),
            (hours, minutes) => write!(f, "{hours} h {minutes} min"),
        }
    }
}
