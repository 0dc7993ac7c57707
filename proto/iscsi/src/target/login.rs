//! A target's side of the login.

use std::collections::BTreeMap;

use super::Profile;
use crate::chap::{Algorithm, Challenge};
use crate::login::{Agreed, LoginError, LoginStatus, Negotiation};
use crate::text::{Text, binary, hex, put};
use crate::wire::{Digests, LoginRequest, LoginResponse, Numbers, put_pdu};

const SECURITY: u8 = 0;
const FULL_FEATURE: u8 = 3;

/// The keys of which an initiator tells its own value.
const TOLD: [&str; 5] =
    ["InitiatorName", "InitiatorAlias", "SessionType", "TargetName", "AuthMethod"];

/// A login under way.
#[derive(Debug)]
pub(super) struct Login {
    text: Text,
    /// Keys of names and of security.
    heard: BTreeMap<String, String>,
    answer: Vec<u8>,
    negotiation: Option<Negotiation>,
    /// The algorithm of CHAP that was chosen.
    chosen: Option<Algorithm>,
    proved: bool,
    declared: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    Goes,
    Ends(Agreed),
    Refused,
}

impl Login {
    pub(super) fn new() -> Self {
        Self {
            text: Text::new(),
            heard: BTreeMap::new(),
            answer: Vec::new(),
            negotiation: None,
            chosen: None,
            proved: false,
            declared: false,
        }
    }

    pub(super) fn keys(&mut self, profile: &Profile, bytes: &[u8]) -> Result<(), LoginError> {
        let Self { text, heard, answer, negotiation, .. } = self;
        text.take(bytes, |key, value| {
            if TOLD.contains(&key) || key.starts_with("CHAP_") {
                heard.insert(key.to_owned(), value.to_owned());
                return Ok(());
            }
            let discovery = heard.get("SessionType").is_some_and(|kind| kind == "Discovery");
            negotiation
                .get_or_insert_with(|| Negotiation::new(&profile.offer, discovery))
                .take(key, value, answer)
        })
    }

    /// Answers a whole request.
    pub(super) fn end(
        &mut self,
        profile: &Profile,
        request: &LoginRequest,
        numbers: Numbers,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, LoginError> {
        let mut keys = std::mem::take(&mut self.answer);
        let (mut status, mut transit) = (0, request.transit);
        if !request.more {
            self.text.end()?;
            status = self.judge(profile, &mut keys);
            if status == 0 && request.stage != SECURITY && profile.chap.is_some() && !self.proved {
                status = LoginStatus::AUTHENTICATION.0;
            }
            transit &= status == 0 && (profile.chap.is_none() || self.proved);
            if request.stage != SECURITY && !self.declared {
                self.declared = true;
                put(&mut keys, "MaxRecvDataSegmentLength", profile.offer.segment_max);
            }
        }
        let full = transit && request.next == FULL_FEATURE;
        let response = LoginResponse {
            transit,
            more: false,
            stage: request.stage,
            next: if transit { request.next } else { 0 },
            version_max: 0,
            version: 0,
            isid: request.isid,
            tsih: if full { profile.tsih } else { 0 },
            itt: request.itt,
            numbers,
            status,
        };
        put_pdu(out, response.encode(), &keys, Digests::NONE);
        if status != 0 {
            return Ok(Outcome::Refused);
        }
        if !full {
            return Ok(Outcome::Goes);
        }
        let discovery = self.heard.get("SessionType").is_some_and(|kind| kind == "Discovery");
        let fresh = || Negotiation::new(&profile.offer, discovery);
        let agreed = self.negotiation.get_or_insert_with(fresh).agreed()?;
        Ok(Outcome::Ends(agreed))
    }

    /// Looks at names and proofs: the status.
    fn judge(&mut self, profile: &Profile, keys: &mut Vec<u8>) -> u16 {
        if let Some(name) = self.heard.get("TargetName")
            && name != profile.name.as_str()
        {
            return LoginStatus::NOT_FOUND.0;
        }
        if let Some(portal) = &profile.moved {
            put(keys, "TargetAddress", portal);
            return LoginStatus::MOVED.0;
        }
        if let Some(methods) = self.heard.remove("AuthMethod") {
            let method = if profile.chap.is_some() { "CHAP" } else { "None" };
            if !methods.split(',').any(|offered| offered == method) {
                return LoginStatus::AUTHENTICATION.0;
            }
            self.proved = profile.chap.is_none();
            put(keys, "AuthMethod", method);
            put(keys, "TargetPortalGroupTag", 1);
        }
        self.chap(profile, keys)
    }

    fn chap(&mut self, profile: &Profile, keys: &mut Vec<u8>) -> u16 {
        let Some(chap) = &profile.chap else { return 0 };
        let refused = LoginStatus::AUTHENTICATION.0;
        if let Some(offered) = self.heard.remove("CHAP_A") {
            let mut offered = offered.split(',').filter_map(|n| Algorithm::of(n.parse().ok()?));
            self.chosen = offered.find(|algorithm| chap.algorithms.contains(algorithm));
            let Some(algorithm) = self.chosen else { return refused };
            put(keys, "CHAP_A", algorithm.number());
            put(keys, "CHAP_I", chap.challenge.id);
            put(keys, "CHAP_C", hex(&chap.challenge.bytes));
        }
        let Some(answer) = self.heard.remove("CHAP_R") else { return 0 };
        let (Some(algorithm), Some(answer)) = (self.chosen, binary(&answer)) else {
            return refused;
        };
        let user = self.heard.remove("CHAP_N");
        let secret = chap.initiator.secret();
        self.proved = user.as_deref() == Some(chap.initiator.user())
            && chap.challenge.is_answered(algorithm, secret, &answer);
        if !self.proved {
            return refused;
        }
        let asked = (self.heard.remove("CHAP_I"), self.heard.remove("CHAP_C"));
        if let (Some(id), Some(bytes)) = asked {
            let (Some(own), Some(asked)) = (&chap.target, Challenge::parse(&id, &bytes)) else {
                return refused;
            };
            put(keys, "CHAP_N", own.user());
            put(keys, "CHAP_R", hex(&asked.answer(algorithm, own.secret())));
        }
        0
    }
}
