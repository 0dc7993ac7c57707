//! What comes to a connection over TLS.

use rustix::net::{RecvFlags, recv};
use weir_bio::Nanos;
use weir_tls::TlsError;

use super::{Connection, Phase, Received};
use crate::channel::Channel;
use crate::pool::Pool;
use crate::session::End;

/// Of the room for plaintext, this is left to a record that came in part before: 16 KiB.
const RECORD: usize = 16 << 10;

impl Connection {
    /// Receives once what comes in records. Whatever is whole is taken in at once: nothing that the
    /// socket no longer tells of stays behind.
    pub(super) fn receive_sealed(&mut self, pool: &mut Pool, now: Nanos) -> Received {
        let Channel::Secure(secure) = &mut self.channel else { return Received::Nothing };
        let (mut input, mut sealed) = (pool.input(), pool.sealed());
        let mut filled = self.stash.len();
        input[..filled].copy_from_slice(&self.stash);
        // Records are longer than what they hold.
        let room = input.len() - filled - RECORD;
        let received = match recv(&self.fd, &mut sealed[..room], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                secure.cut = !secure.session.has_ended();
                self.ended()
            }
            Ok((count, _)) => {
                let opened = secure.session.open(&sealed[..count], |plain| {
                    input[filled..filled + plain.len()].copy_from_slice(plain);
                    filled += plain.len();
                    Ok::<(), TlsError>(())
                });
                self.eof |= secure.session.has_ended();
                self.stash.clear();
                match opened {
                    Ok(()) => self.take_opened(&input[..filled], pool, now),
                    Err(why) => self.break_off(&why),
                }
                Received::Bytes
            }
            Err(why) => self.failed(why, pool),
        };
        pool.give_input(input);
        pool.give_sealed(sealed);
        received
    }

    /// Takes in what came over TLS.
    fn take_opened(&mut self, mut bytes: &[u8], pool: &mut Pool, now: Nanos) {
        match &mut self.phase {
            Phase::Handshake(handshake) => {
                if let Channel::Secure(secure) = &mut self.channel
                    && !secure.told
                    && !secure.session.is_handshaking()
                {
                    secure.told = true;
                    handshake.secured();
                    let names = secure.session.peer_names();
                    if let Some(introduction) = self.introduction.take() {
                        handshake.offer((introduction.offers)(&names));
                    }
                    let names = names.join(", ");
                    tracing::debug!(peer = %self.peer, %names, "client talks over TLS");
                }
            }
            Phase::Session(session) => {
                if let Some(payload) = session.payload() {
                    let here = payload.missing().min(bytes.len());
                    payload.copy_in(&bytes[..here], pool);
                    session.payload_received(now);
                    bytes = &bytes[here..];
                }
            }
            Phase::Agreed(_) | Phase::Closing(_) => {}
        }
        self.digest(bytes, pool, now);
    }

    /// The client broke the rules of TLS, or is not to be let in.
    fn break_off(&mut self, why: &TlsError) {
        if let Phase::Session(session) = &mut self.phase {
            session.end.get_or_insert(End::Violation(why.to_string()));
        } else {
            tracing::info!(peer = %self.peer, %why, "client refused");
            self.phase = Phase::Closing(why.to_string());
        }
    }
}
