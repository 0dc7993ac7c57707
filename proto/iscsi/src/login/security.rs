//! The security stage: which method, and the exchange of CHAP. RFC 7143, sections 6.3.2 and 12.1.3.
//!
//! A target's proof comes with the response that begins the next stage. Without it, or with a wrong
//! one, the login has failed, and nothing of the next stage is said.

use super::error::LoginError;
use super::settings::{Auth, Nonce, Settings};
use crate::chap::{Algorithm, Challenge, Credentials};
use crate::secret::equal;
use crate::text::{binary, hex, number, put};

/// Where the exchange stands: what was sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// The methods.
    Methods,
    /// The algorithms.
    Algorithms,
    /// The answer to the target's challenge, and perhaps our own.
    Answer(Algorithm),
    /// All that there is to say.
    All,
}

/// The keys of this stage.
const KEYS: [&str; 6] = ["AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"];

/// The initiator's side of the stage.
#[derive(Debug)]
pub(super) struct Security {
    sent: Sent,
    heard: Heard,
    /// The algorithm with which it ended.
    algorithm: Option<Algorithm>,
}

/// The values heard since the last request, in the order of [`KEYS`].
#[derive(Default)]
struct Heard([Option<String>; KEYS.len()]);

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let heard = KEYS.iter().zip(&self.0).filter(|(_, value)| value.is_some());
        f.debug_list().entries(heard.map(|(key, _)| key)).finish()
    }
}

impl Heard {
    fn take(&mut self, key: &'static str) -> Result<String, LoginError> {
        let at = KEYS.iter().position(|known| *known == key).expect("a key of the stage");
        self.0[at].take().ok_or(LoginError::Missing(key))
    }
}

impl Security {
    pub(super) fn new(settings: &Settings, out: &mut Vec<u8>) -> Self {
        put(out, "AuthMethod", settings.auth.methods());
        Self { sent: Sent::Methods, heard: Heard::default(), algorithm: None }
    }

    /// The algorithm of CHAP, once it has ended.
    pub(super) const fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// Whether the key is one of this stage.
    pub(super) fn knows(key: &str) -> bool {
        KEYS.contains(&key)
    }

    /// Takes a key of this stage.
    pub(super) fn hear(&mut self, key: &str, value: &str) -> Result<(), LoginError> {
        let at = KEYS.iter().position(|known| *known == key).expect("a key of the stage");
        if self.heard.0[at].replace(value.to_owned()).is_some() {
            return Err(LoginError::key(key, value, "it comes twice"));
        }
        Ok(())
    }

    /// Judges what was heard, appends what is to be said, and tells whether the next stage may be
    /// asked for.
    pub(super) fn advance(
        &mut self,
        settings: &Settings,
        transit: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, LoginError> {
        match self.sent {
            Sent::Methods => self.method(&settings.auth, transit, out)?,
            Sent::Algorithms => self.challenge(settings, out)?,
            Sent::Answer(algorithm) => {
                if let Auth::Chap { target: Some(target), .. } = &settings.auth {
                    self.proof(target, &settings.nonce, algorithm)?;
                }
                (self.sent, self.algorithm) = (Sent::All, Some(algorithm));
            }
            Sent::All => {}
        }
        if let Some(at) = self.heard.0.iter().position(Option::is_some) {
            return Err(LoginError::key(KEYS[at], "", "it is out of place"));
        }
        Ok(match self.sent {
            Sent::Methods | Sent::Algorithms => false,
            // Also where a proof is due: tgtd takes the stage for over once it has given its own.
            Sent::Answer(_) | Sent::All => true,
        })
    }

    fn method(&mut self, auth: &Auth, transit: bool, out: &mut Vec<u8>) -> Result<(), LoginError> {
        // Some targets say nothing of a method where none is all that there is.
        let none = matches!(auth, Auth::None) && transit;
        let method = match self.heard.take("AuthMethod") {
            Err(_) if none => "None".to_owned(),
            method => method?,
        };
        match auth {
            _ if method == "Reject" => {
                Err(LoginError::key("AuthMethod", &method, "the target wants another proof"))
            }
            _ if !auth.methods().split(',').any(|offered| offered == method) => {
                Err(LoginError::key("AuthMethod", &method, "it was not offered"))
            }
            Auth::Chap { algorithms, .. } if method == "CHAP" => {
                let numbers: Vec<_> =
                    algorithms.iter().map(|algorithm| algorithm.number().to_string()).collect();
                put(out, "CHAP_A", numbers.join(","));
                self.sent = Sent::Algorithms;
                Ok(())
            }
            _ => {
                self.sent = Sent::All;
                Ok(())
            }
        }
    }

    /// Answers the target's challenge.
    fn challenge(&mut self, settings: &Settings, out: &mut Vec<u8>) -> Result<(), LoginError> {
        let Auth::Chap { initiator, target, algorithms } = &settings.auth else {
            unreachable!("CHAP was offered")
        };
        let chosen = self.heard.take("CHAP_A")?;
        let (id, bytes) = (self.heard.take("CHAP_I")?, self.heard.take("CHAP_C")?);
        let algorithm = number(&chosen)
            .and_then(Algorithm::of)
            .filter(|algorithm| algorithms.contains(algorithm))
            .ok_or_else(|| LoginError::key("CHAP_A", "", "it was not offered"))?;
        let challenge = Challenge::parse(&id, &bytes)
            .ok_or_else(|| LoginError::key("CHAP_C", "", "no challenge"))?;
        put(out, "CHAP_N", initiator.user());
        put(out, "CHAP_R", hex(&challenge.answer(algorithm, initiator.secret())));
        if target.is_some() {
            let Nonce { id, challenge: own } = &settings.nonce;
            // A target that knows it already may have it from a login of ours under way, and wants
            // the answer for that.
            if equal(&challenge.bytes, own) {
                return Err(LoginError::Reflected);
            }
            put(out, "CHAP_I", id);
            put(out, "CHAP_C", hex(own));
        }
        self.sent = Sent::Answer(algorithm);
        Ok(())
    }

    /// Holds the target's answer against its secret.
    fn proof(
        &mut self,
        target: &Credentials,
        nonce: &Nonce,
        algorithm: Algorithm,
    ) -> Result<(), LoginError> {
        let (user, answer) = (self.heard.take("CHAP_N")?, self.heard.take("CHAP_R")?);
        let asked = Challenge { id: nonce.id, bytes: nonce.challenge.to_vec() };
        let is_right = binary(&answer)
            .is_some_and(|answer| asked.is_answered(algorithm, target.secret(), &answer));
        if is_right && user == target.user() { Ok(()) } else { Err(LoginError::Unproven) }
    }
}
