//! The operational keys: what is offered, and what each answer makes of it. RFC 7143, chapter 13.
//!
//! A key is negotiated once. Most of the time the initiator offers and the target answers; a target
//! that offers first is answered.

use std::ops::RangeInclusive;

use super::error::LoginError;
use super::settings::{DigestOffer, LENGTHS, Offer};
use crate::text::{boolean, number, put};
use crate::wire::{Digests, SEGMENT_DEFAULT};

/// The values of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// HeaderDigest and DataDigest.
    pub digests: Digests,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of the initiator.
    pub segment_in: u32,
    /// MaxRecvDataSegmentLength of the target.
    pub segment_out: u32,
    /// MaxBurstLength.
    pub burst_max: u32,
    /// FirstBurstLength, at most MaxBurstLength.
    pub first_burst: u32,
    /// MaxOutstandingR2T.
    pub r2ts: u16,
    /// DefaultTime2Wait, in seconds.
    pub time2wait_s: u16,
    /// DefaultTime2Retain, in seconds.
    pub time2retain_s: u16,
}

/// How the values of both sides make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The smaller. Of booleans: Yes if both say so.
    Least,
    /// The greater. Of booleans: Yes if one says so.
    Greatest,
    /// The first of the list that the other side takes.
    Listed,
    /// Each side tells its own.
    Declared,
}

#[derive(Clone, Debug)]
enum Kind {
    Number(RangeInclusive<u32>),
    Boolean,
    Digest,
}

/// One key, with what has become of it. Booleans and digests are 0 and 1.
#[derive(Clone, Debug)]
struct Row {
    key: &'static str,
    kind: Kind,
    rule: Rule,
    /// The value if the sides say nothing.
    default: u32,
    offer: u32,
    /// For digests, the list.
    list: DigestOffer,
    offered: bool,
    result: Option<u32>,
}

/// The negotiation of one login.
#[derive(Clone, Debug)]
pub(crate) struct Negotiation {
    rows: Vec<Row>,
    segment_in: u32,
}

impl Negotiation {
    pub(crate) fn new(offer: &Offer, discovery: bool) -> Self {
        let number = |key, range, rule, default, offer| Row {
            key,
            kind: Kind::Number(range),
            rule,
            default,
            offer,
            list: DigestOffer::Never,
            offered: false,
            result: None,
        };
        let boolean = |key, rule, default: bool, offer: bool| Row {
            kind: Kind::Boolean,
            ..number(key, 0..=1, rule, default.into(), offer.into())
        };
        let digest =
            |key, list| Row { kind: Kind::Digest, list, ..number(key, 0..=1, Rule::Listed, 0, 0) };
        let (least, greatest) = (Rule::Least, Rule::Greatest);
        let (wait, retain) = (offer.time2wait_s.into(), offer.time2retain_s.into());
        let mut rows = vec![
            digest("HeaderDigest", offer.header_digest),
            digest("DataDigest", offer.data_digest),
            number(
                "MaxRecvDataSegmentLength",
                LENGTHS,
                Rule::Declared,
                SEGMENT_DEFAULT,
                offer.segment_max,
            ),
            number("ErrorRecoveryLevel", 0..=2, least, 0, 0),
            number("DefaultTime2Wait", 0..=3600, greatest, 2, wait),
            number("DefaultTime2Retain", 0..=3600, least, 20, retain),
        ];
        if !discovery {
            rows.extend([
                number("MaxConnections", 1..=65535, least, 1, 1),
                boolean("InitialR2T", greatest, true, offer.initial_r2t),
                boolean("ImmediateData", least, true, offer.immediate_data),
                number("MaxBurstLength", LENGTHS, least, 262_144, offer.burst_max),
                number("FirstBurstLength", LENGTHS, least, 65_536, offer.first_burst),
                number("MaxOutstandingR2T", 1..=65535, least, 1, offer.r2ts.into()),
                boolean("DataPDUInOrder", greatest, true, true),
                boolean("DataSequenceInOrder", greatest, true, true),
            ]);
        }
        Self { rows, segment_in: offer.segment_max }
    }

    /// Offers what the target has not offered before.
    pub(crate) fn offer(&mut self, out: &mut Vec<u8>) {
        for row in self.rows.iter_mut().filter(|row| !row.offered) {
            row.offered = true;
            match row.kind {
                Kind::Digest => put(out, row.key, row.list.list()),
                _ => put(out, row.key, row.shown(row.offer)),
            }
        }
    }

    /// Takes a key of the target, and appends the answer if it takes one.
    pub(crate) fn take(
        &mut self,
        key: &str,
        value: &str,
        answer: &mut Vec<u8>,
    ) -> Result<(), LoginError> {
        let Some(row) = self.rows.iter_mut().find(|row| row.key == key) else {
            if !matches!(value, "NotUnderstood" | "Reject" | "Irrelevant") {
                put(answer, key, "NotUnderstood");
            }
            return Ok(());
        };
        if row.result.is_some() {
            return Err(LoginError::key(key, value, "it is negotiated already"));
        }
        match value {
            "Reject" => return Err(LoginError::key(key, value, "the offer was legal")),
            "NotUnderstood" | "Irrelevant" if row.offered => {
                row.result = Some(row.default);
                return Ok(());
            }
            _ => {}
        }
        if row.rule == Rule::Declared {
            row.result = Some(row.read(value)?);
        } else if row.offered {
            row.result = Some(row.judge(value)?);
        } else {
            let result = row.choose(value)?;
            (row.offered, row.result) = (true, Some(result));
            put(answer, key, row.shown(result));
        }
        Ok(())
    }

    /// The values, once both sides have said all.
    pub(crate) fn agreed(&self) -> Result<Agreed, LoginError> {
        for row in self.rows.iter().filter(|row| row.rule == Rule::Listed) {
            if !row.list.allows(row.value() == 1) {
                return Err(LoginError::Missing(row.key));
            }
        }
        let value = |key: &str, absent| {
            let row = self.rows.iter().find(|row| row.key == key);
            row.map_or(absent, Row::value)
        };
        let seconds = |key| value(key, 0).try_into().expect("at most 3600");
        let burst_max = value("MaxBurstLength", 262_144);
        Ok(Agreed {
            digests: Digests {
                header: value("HeaderDigest", 0) == 1,
                data: value("DataDigest", 0) == 1,
            },
            initial_r2t: value("InitialR2T", 1) == 1,
            immediate_data: value("ImmediateData", 1) == 1,
            segment_in: self.segment_in,
            segment_out: value("MaxRecvDataSegmentLength", SEGMENT_DEFAULT),
            burst_max,
            first_burst: value("FirstBurstLength", 65_536).min(burst_max),
            r2ts: value("MaxOutstandingR2T", 1).try_into().expect("at most 65535"),
            time2wait_s: seconds("DefaultTime2Wait"),
            time2retain_s: seconds("DefaultTime2Retain"),
        })
    }
}

impl Row {
    fn value(&self) -> u32 {
        self.result.unwrap_or(self.default)
    }

    /// Reads one value.
    fn read(&self, value: &str) -> Result<u32, LoginError> {
        let read = match &self.kind {
            Kind::Number(range) => number(value).filter(|number| range.contains(number)),
            Kind::Boolean => boolean(value).map(u32::from),
            Kind::Digest => digest(value),
        };
        read.ok_or_else(|| LoginError::key(self.key, value, "no legal value"))
    }

    /// The result that the target answers to our offer.
    fn judge(&self, value: &str) -> Result<u32, LoginError> {
        let result = self.read(value)?;
        let follows = match self.rule {
            Rule::Least => result <= self.offer,
            Rule::Greatest => result >= self.offer,
            Rule::Listed => self.list.allows(result == 1),
            Rule::Declared => true,
        };
        if follows {
            Ok(result)
        } else {
            Err(LoginError::key(self.key, value, "it does not follow from the offer"))
        }
    }

    /// The result of a target's offer.
    fn choose(&self, value: &str) -> Result<u32, LoginError> {
        match self.rule {
            Rule::Least => Ok(self.read(value)?.min(self.offer)),
            Rule::Greatest => Ok(self.read(value)?.max(self.offer)),
            Rule::Declared => self.read(value),
            Rule::Listed => value
                .split(',')
                .filter_map(digest)
                .find(|&digest| self.list.allows(digest == 1))
                .ok_or_else(|| LoginError::key(self.key, value, "nothing in it is taken here")),
        }
    }

    fn shown(&self, value: u32) -> String {
        let text = match (&self.kind, value) {
            (Kind::Number(_), number) => return number.to_string(),
            (Kind::Boolean, 0) => "No",
            (Kind::Boolean, _) => "Yes",
            (Kind::Digest, 0) => "None",
            (Kind::Digest, _) => "CRC32C",
        };
        text.to_owned()
    }
}

fn digest(value: &str) -> Option<u32> {
    match value {
        "None" => Some(0),
        "CRC32C" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreed, Negotiation};
    use crate::login::error::LoginError;
    use crate::login::settings::{DigestOffer, Offer};
    use crate::wire::Digests;

    fn offer() -> Offer {
        Offer {
            header_digest: DigestOffer::Prefer,
            data_digest: DigestOffer::Accept,
            burst_max: 1 << 20,
            first_burst: 1 << 18,
            ..Offer::default()
        }
    }

    /// What the target's pairs make of the offer, and the answers to them.
    fn negotiate(offered: bool, pairs: &[(&str, &str)]) -> Result<(Agreed, String), LoginError> {
        let mut negotiation = Negotiation::new(&offer(), false);
        let (mut sent, mut answer) = (Vec::new(), Vec::new());
        if offered {
            negotiation.offer(&mut sent);
        }
        for (key, value) in pairs {
            negotiation.take(key, value, &mut answer)?;
        }
        let answer = String::from_utf8(answer).expect("text").replace('\0', " ");
        Ok((negotiation.agreed()?, answer))
    }

    #[test]
    fn every_key_is_offered_once() {
        let (mut negotiation, mut out) = (Negotiation::new(&offer(), false), Vec::new());
        negotiation.offer(&mut out);
        let text = String::from_utf8(out).expect("text").replace('\0', " ");
        assert_eq!(
            text,
            "HeaderDigest=CRC32C,None DataDigest=None,CRC32C MaxRecvDataSegmentLength=262144 \
             ErrorRecoveryLevel=0 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxConnections=1 \
             InitialR2T=No ImmediateData=Yes MaxBurstLength=1048576 FirstBurstLength=262144 \
             MaxOutstandingR2T=4 DataPDUInOrder=Yes DataSequenceInOrder=Yes "
        );
        let mut again = Vec::new();
        negotiation.offer(&mut again);
        assert!(again.is_empty());
        let mut discovery = Vec::new();
        Negotiation::new(&offer(), true).offer(&mut discovery);
        assert!(!String::from_utf8(discovery).expect("text").contains("Burst"));
    }

    const LEGAL: [(&str, &str); 14] = [
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "None"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("ErrorRecoveryLevel", "0"),
        ("DefaultTime2Wait", "5"),
        ("DefaultTime2Retain", "0"),
        ("MaxConnections", "1"),
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("MaxBurstLength", "0x8000"),
        ("FirstBurstLength", "8192"),
        ("MaxOutstandingR2T", "2"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
    ];

    #[test]
    fn answers_make_the_values_of_the_session() {
        let (agreed, answer) = negotiate(true, &LEGAL).expect("legal answers");
        let expected = Agreed {
            digests: Digests { header: true, data: false },
            initial_r2t: true,
            immediate_data: false,
            segment_in: 262_144,
            segment_out: 65_536,
            burst_max: 32_768,
            first_burst: 8192,
            r2ts: 2,
            time2wait_s: 5,
            time2retain_s: 0,
        };
        assert_eq!((agreed, &*answer), (expected, ""));
    }

    #[test]
    fn an_answer_that_does_not_follow_from_the_offer_is_refused() {
        for (key, value) in [
            ("HeaderDigest", "CRC64"),
            ("HeaderDigest", "CRC32C,None"),
            ("MaxRecvDataSegmentLength", "511"),
            ("MaxRecvDataSegmentLength", "16777216"),
            ("ErrorRecoveryLevel", "1"),
            ("DefaultTime2Wait", "1"),
            ("DefaultTime2Wait", "3601"),
            ("DefaultTime2Retain", "1"),
            ("MaxConnections", "2"),
            ("MaxConnections", "0"),
            ("InitialR2T", "yes"),
            ("MaxBurstLength", "1048577"),
            ("MaxBurstLength", "511"),
            ("FirstBurstLength", "262145"),
            ("MaxOutstandingR2T", "5"),
            ("MaxOutstandingR2T", "0"),
            ("DataPDUInOrder", "No"),
            ("DataSequenceInOrder", "No"),
            ("MaxBurstLength", "Reject"),
        ] {
            let refused = negotiate(true, &[(key, value)]);
            assert!(matches!(refused, Err(LoginError::Key { .. })), "{key}={value} {refused:?}");
        }
        let twice = negotiate(true, &[("InitialR2T", "No"), ("InitialR2T", "No")]);
        assert!(twice.expect_err("twice").to_string().contains("already"));
    }

    #[test]
    fn a_target_that_offers_first_is_answered_with_the_result() {
        let offers = [
            ("HeaderDigest", "X-own,None,CRC32C"),
            ("MaxBurstLength", "16776192"),
            ("FirstBurstLength", "4096"),
            ("InitialR2T", "No"),
            ("ImmediateData", "No"),
            ("DefaultTime2Wait", "1"),
            ("MaxRecvDataSegmentLength", "1024"),
            ("X-com.example.thing", "7"),
            ("X-com.example.other", "NotUnderstood"),
        ];
        let (agreed, answer) = negotiate(false, &offers).expect("legal offers");
        assert_eq!(
            answer,
            "HeaderDigest=None MaxBurstLength=1048576 FirstBurstLength=4096 InitialR2T=No \
             ImmediateData=No DefaultTime2Wait=2 X-com.example.thing=NotUnderstood "
        );
        assert_eq!((agreed.burst_max, agreed.first_burst), (1 << 20, 4096));
        assert_eq!((agreed.initial_r2t, agreed.immediate_data), (false, false));
        assert_eq!((agreed.digests.header, agreed.segment_out), (false, 1024));
    }

    #[test]
    fn keys_without_an_answer_have_the_defaults_of_the_standard() {
        let (agreed, _) = negotiate(true, &[("InitialR2T", "Irrelevant")]).expect("defaults");
        let expected = Agreed {
            digests: Digests::NONE,
            initial_r2t: true,
            immediate_data: true,
            segment_in: 262_144,
            segment_out: 8192,
            burst_max: 262_144,
            first_burst: 65_536,
            r2ts: 1,
            time2wait_s: 2,
            time2retain_s: 20,
        };
        assert_eq!(agreed, expected);
        let (small, _) = negotiate(true, &[("MaxBurstLength", "1024")]).expect("defaults");
        assert_eq!(small.first_burst, 1024, "no more than a burst");
    }

    #[test]
    fn a_required_digest_that_the_target_does_not_take_ends_the_login() {
        let required = Offer { data_digest: DigestOffer::Require, ..offer() };
        let mut negotiation = Negotiation::new(&required, false);
        negotiation.offer(&mut Vec::new());
        assert_eq!(negotiation.agreed(), Err(LoginError::Missing("DataDigest")));
        let refused = negotiation.clone().take("DataDigest", "None", &mut Vec::new());
        assert!(refused.is_err());
        negotiation.take("DataDigest", "CRC32C", &mut Vec::new()).expect("as offered");
        assert!(negotiation.agreed().expect("agreed").digests.data);
        let never = Offer { data_digest: DigestOffer::Never, ..offer() };
        let mut negotiation = Negotiation::new(&never, false);
        negotiation.offer(&mut Vec::new());
        assert!(negotiation.take("DataDigest", "CRC32C", &mut Vec::new()).is_err());
    }
}
