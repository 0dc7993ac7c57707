//! A session with a port, as a network transport has it: a port that is dead answers nothing,
//! which a keep-alive finds; the session is reinstated when the port is back. Until then the
//! commands that were sent are in limbo: the target may have them, and may carry them out.
//!
//! | time since the connection was lost | what happens |
//! |---|---|
//! | each second | the port is tried; a session that is reinstated has ended all commands |
//! | `replacement_ns` | reads end; what is sent from now on fails at once |
//! | `bound_ns` | the target has dropped the session, and everything else ends |

use weir_bio::Nanos;
use weir_driver_scsi::Direction;
use weir_proto_scsi::decide::Delivery;
use weir_sim_target::PortHealth;

use super::link::{Loss, Patience};
use super::shared::State;

/// Between two tries to connect.
const RETRY_NS: u64 = 1_000_000_000;

impl State {
    /// Connects a place, or loses its connection.
    pub(super) fn connect(&mut self, at: usize, now: Nanos) {
        let place = self.places[at].as_mut().expect("a place that was not left");
        match self.target.connect(place.port, place.initiator, now) {
            Ok(nexus) => {
                // The old nexus has ended with all its commands.
                place.end_without(Delivery::Disrupted, |_, _| true);
                place.answer_resets();
                place.link.nexus = Some(nexus);
                place.link.heard(now);
                if place.link.lost.take().is_some() {
                    place.notices.push(format!("port {}: connected again", place.port.0));
                }
                self.moved();
            }
            Err(_) => self.lose(at, "it gives no answer", now),
        }
    }

    /// The connection is lost.
    pub(super) fn lose(&mut self, at: usize, why: &str, now: Nanos) {
        let place = self.place(at);
        let retry_at = now + RETRY_NS;
        if let Some(loss) = &mut place.link.lost {
            loss.retry_at = retry_at;
            return;
        }
        let (reads_ended, all_ended) = (false, false);
        place.link.lost = Some(Loss { since: now, retry_at, reads_ended, all_ended });
        place.notices.push(format!("port {}: connection lost: {why}", place.port.0));
        self.moved();
    }

    /// Sees to the connection of a place: what time and the target have made of it.
    pub(super) fn tend(&mut self, at: usize, patience: &Patience, now: Nanos) {
        let link = &self.place(at).link;
        let (retry_at, nexus) = (link.lost.as_ref().map(|loss| loss.retry_at), link.nexus);
        match (retry_at, nexus) {
            (None, Some(nexus)) if !self.target.is_connected(nexus) => {
                // Its commands have ended with it.
                self.place(at).end_without(Delivery::Disrupted, |_, _| true);
                self.lose(at, "the target has ended it", now);
                self.connect(at, now);
            }
            (None, _) => self.keep_alive(at, patience, now),
            (Some(retry_at), _) if retry_at <= now => self.connect(at, now),
            (Some(_), _) => {}
        }
        self.outlast(at, patience, now);
        self.place(at).end_unanswered(now);
    }

    fn keep_alive(&mut self, at: usize, patience: &Patience, now: Nanos) {
        let Some(keep_alive) = patience.keep_alive_ns else { return };
        let dead = self.is_dead(at);
        let place = self.place(at);
        if place.outstanding == 0 {
            return place.link.heard(now);
        }
        match place.link.asked {
            None if now < place.link.heard + keep_alive => {}
            None if dead => place.link.asked = Some(now),
            Some(asked) if now < asked + keep_alive => {}
            Some(_) if dead => self.lose(at, "it gives no answer", now),
            None | Some(_) => place.link.heard(now),
        }
    }

    fn is_dead(&mut self, at: usize) -> bool {
        let port = self.place(at).port;
        let health = self.target.port_health(port);
        matches!(health, Some(PortHealth::Dead { .. }))
    }

    /// What ends while a connection stays lost.
    fn outlast(&mut self, at: usize, patience: &Patience, now: Nanos) {
        let State { target, places, .. } = self;
        let place = places[at].as_mut().expect("a place that was not left");
        let Some(loss) = &mut place.link.lost else { return };
        let passed = |ns| now >= loss.since + ns;
        let dropped = passed(patience.drops_ns);
        let reads = passed(patience.replacement_ns) && !loss.reads_ended;
        let all = passed(patience.bound_ns) && !loss.all_ended;
        loss.reads_ended |= reads;
        loss.all_ended |= all;
        if dropped && let Some(nexus) = place.link.nexus.take() {
            target.disconnect(nexus, now);
        }
        if reads {
            // They change no block.
            place.end_without(Delivery::FailFast, |_, one| {
                matches!(one.direction, Direction::In(_))
            });
        }
        if all {
            place.end_without(Delivery::FailFast, |_, _| true);
        }
        if reads || all {
            self.moved();
        }
    }
}
