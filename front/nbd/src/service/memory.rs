//! The part of a reactor's connections in the memory that all clients share: they give back memory
//! they do not need, ask again when there is some, and leave the turn of a large request.

use weir_bio::Nanos;
use weir_live::Turn;

use super::{COARSE_NS, Name, NbdService};

/// Bytes that the connection with the turn has to move in a fifth of the time that a handshake may
/// take (2 s unless told otherwise), while others wait for the turn.
const MOVED_LEAST: usize = 256 << 10;

/// Free memory goes back to the system in steps so far apart, ns.
const TRIM_NS: u64 = 1_000_000;

/// Memory that may come back without a word is looked for in steps so far apart, ns.
const LOOK_NS: u64 = 5_000_000_000;

/// The connection that has the turn of a large request.
pub(super) struct Holder {
    name: Name,
    /// When the holder is looked at.
    pub(super) until: Nanos,
    /// Bytes the holder owed when its time began.
    owed: usize,
}

impl NbdService {
    fn turn_patience(&self) -> u64 {
        self.shared.settings.handshake_timeout_ns / 5
    }

    /// Connections had something to do: free memory goes back when they have nothing for a while.
    pub(super) fn note_memory(&mut self, now: Nanos) {
        self.active = (!self.pool.is_empty()).then_some(now);
        if self.look.is_none() && self.pool.has_slabs() {
            self.look = Some(now + LOOK_NS);
        }
    }

    /// Gives memory that is free back to the system, after a pause.
    pub(super) fn give_memory_back(&mut self, now: Nanos) {
        if self.look.take_if(|at| *at <= now).is_some() {
            // I/O that outlives its client; connections may well have something to do meanwhile.
            if self.pool.look() {
                self.active.get_or_insert(now);
            }
            self.look = self.pool.has_slabs().then(|| now + LOOK_NS);
        }
        if self.active.is_some_and(|at| at + COARSE_NS <= now) {
            // Piece by piece: a connection may wait meanwhile.
            let more = self.pool.trim();
            self.active = more.then(|| Nanos(now.0 + TRIM_NS - COARSE_NS));
        }
    }

    /// Notes what a connection has drawn from the memory of all.
    pub(super) fn account(&mut self, now: Nanos, name: Name) {
        let patience = self.turn_patience();
        let Some(connection) = self.tenant(name.place) else { return };
        let Some(session) = connection.session() else { return };
        if session.quota.has_turn() {
            // It is lent for one request.
            connection.shrink();
            let owed = connection.owed();
            let holds = connection.session().is_some_and(|session| session.quota.has_turn());
            let known = self.holder.as_ref().is_some_and(|holder| holder.name == name);
            match (holds, known) {
                (true, false) => self.holder = Some(Holder { name, until: now + patience, owed }),
                (false, true) => self.holder = None,
                (true, true) | (false, false) => {}
            }
        }
        self.sweep.get_or_insert(now + COARSE_NS);
    }

    /// A request waits for memory somewhere, or there is some again.
    pub(crate) fn ease(&mut self, turn: &mut Turn<'_>) {
        for place in 0..self.places.len() as u32 {
            if self.tenant(place).is_some_and(|connection| connection.shrink()) {
                self.touch(place);
                turn.again();
            }
        }
    }

    /// Takes from the connections what they did not need for a second.
    pub(super) fn sweep(&mut self, turn: &mut Turn<'_>) {
        if self.sweep.take_if(|at| *at <= turn.now()).is_some() {
            // A connection that does something draws again and has itself noted again.
            for place in self.places.iter_mut() {
                place.tenant.as_mut().map(|connection| connection.shrink());
            }
        }
    }

    /// Closes the connection that has the turn if others wait for it in vain.
    pub(super) fn watch_holder(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now();
        let Some(Holder { name, owed, .. }) = self.holder.take_if(|holder| holder.until <= now)
        else {
            return;
        };
        let Some(entry) = self.places.get_mut(name.place as usize) else { return };
        let Some(connection) =
            entry.tenant.as_mut().filter(|_| entry.generation == name.generation)
        else {
            return;
        };
        let left = connection.owed();
        // Nothing was owed while the device worked for it.
        let stands = owed > 0 && left > 0 && owed.saturating_sub(left) < MOVED_LEAST;
        if stands && self.shared.budget.has_line() {
            let peer = &connection.peer;
            tracing::info!(%peer, "client given up: a large request of others waits for its own");
            let why = "closed by us: a large request of others waited for its own";
            return self.end(turn, name.place, why);
        }
        let until = now + self.turn_patience();
        self.holder = Some(Holder { name, until, owed: left });
    }
}
