//! How the threads of a daemon wait.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::Export;
use super::value::within;

/// `[host]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Whether a thread with nothing to do polls before it sleeps.
    #[serde(deserialize_with = "mode")]
    pub poll: Poll,
    /// The part of its time that it may poll if that is `adaptive`, percent.
    #[serde(deserialize_with = "share")]
    pub poll_share: u8,
}

/// The share of a thread's time that it may poll, percent.
pub const POLL_SHARE: u8 = 80;

impl Default for Host {
    fn default() -> Host {
        Host { poll: Poll::Off, poll_share: POLL_SHARE }
    }
}

/// How threads that serve clients of an export wait; what it leaves out is as `[host]` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportPolling {
    /// Whether a thread with nothing to do polls before it sleeps.
    pub poll: Option<Poll>,
    /// The part of its time that it may poll if that is `adaptive`, percent.
    pub poll_share: Option<u8>,
}

impl ExportPolling {
    /// Whether it leaves everything to `[host]`.
    #[must_use]
    pub fn is_default(self) -> bool {
        self == ExportPolling::default()
    }
}

impl Export {
    /// Whether it differs in nothing from `other` but in how threads wait, which a reload changes.
    #[must_use]
    pub fn is_same_but_for_polling(&self, other: &Export) -> bool {
        let Export { poll, poll_share, .. } = *other;
        Export { poll, poll_share, ..self.clone() } == *other
    }

    /// How threads that serve its clients wait.
    #[must_use]
    pub fn polling(&self) -> ExportPolling {
        ExportPolling { poll: self.poll, poll_share: self.poll_share }
    }
}

/// Whether a thread with nothing to do polls before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// It sleeps.
    #[default]
    Off,
    /// It polls while waits are short.
    Adaptive,
    /// It never sleeps.
    Always,
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Poll::Off => "off",
            Poll::Adaptive => "adaptive",
            Poll::Always => "always",
        })
    }
}

impl FromStr for Poll {
    type Err = String;

    fn from_str(text: &str) -> Result<Poll, String> {
        let all = [Poll::Off, Poll::Adaptive, Poll::Always];
        let named = all.into_iter().find(|poll| poll.to_string() == text);
        named.ok_or_else(|| String::from("not one of off, adaptive, always"))
    }
}

fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Poll, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|why| serde::de::Error::custom(format!("poll={text:?} is {why}")))
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let value = within("poll_share", i64::deserialize(from)?, 1, 100)?;
    Ok(value.and_then(|share| u8::try_from(share).ok()).unwrap_or(POLL_SHARE))
}

/// That of an export, which may leave it out.
pub(super) fn mode_of_export<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Poll>, D::Error> {
    mode(from).map(Some)
}

/// The same of its share.
pub(super) fn share_of_export<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    share(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn how_threads_wait_is_read_and_refused_with_its_line() {
        let host = |text: &str| Config::parse(text, &[]).map(|config| config.host);
        assert_eq!(host("").unwrap(), Host { poll: Poll::Off, poll_share: 80 });
        let stated = host("[host]\npoll = \"adaptive\"\npoll_share = 100\n").unwrap();
        assert_eq!(stated, Host { poll: Poll::Adaptive, poll_share: 100 });
        for (text, told) in [
            ("poll_share = 0", "line 2: poll_share=0 is outside 1..=100"),
            ("poll_share = 101", "line 2: poll_share=101 is outside 1..=100"),
            ("poll = \"on\"", "line 2: poll=\"on\" is not one of off, adaptive, always"),
            ("poll = 1", "line 2: invalid type: integer `1`, expected a string"),
            ("polls = 1", "line 2: unknown field `polls`, expected `poll` or `poll_share`"),
        ] {
            let error = host(&format!("[host]\n{text}\n")).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
        for (text, told) in [
            ("poll_share = 0", "line 7: poll_share=0 is outside 1..=100"),
            ("poll = \"fast\"", "line 7: poll=\"fast\" is not one of off, adaptive, always"),
        ] {
            let error = exports(&format!("{EXPORT}{text}\n")).unwrap_err().to_string();
            assert_eq!(error, told);
        }
        for poll in [Poll::Off, Poll::Adaptive, Poll::Always] {
            assert_eq!(poll.to_string().parse(), Ok(poll));
        }
        assert!("Off".parse::<Poll>().is_err());
    }

    const DISK: &str = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1M\"\n";
    const EXPORT: &str = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1M\"\n\
                          [[export]]\nname = \"a\"\ndisk = \"sda\"\n";

    fn exports(text: &str) -> Result<Vec<super::super::Export>, super::super::ConfigError> {
        Config::parse(text, &[]).map(|config| config.exports())
    }

    #[test]
    fn an_export_says_what_it_says_and_leaves_the_rest_to_the_daemon() {
        let of = |text: &str| exports(text).expect("a file").remove(0).polling();
        let stated = |poll, poll_share| ExportPolling { poll, poll_share };
        let (adaptive, share) = ("poll = \"adaptive\"\n", "poll_share = 30\n");
        // That of a disk is for the export of its own.
        for head in [EXPORT, DISK] {
            assert!(of(head).is_default());
            assert_eq!(of(&format!("{head}{adaptive}")), stated(Some(Poll::Adaptive), None));
            assert_eq!(of(&format!("{head}{share}")), stated(None, Some(30)));
            let both = of(&format!("{head}{share}{adaptive}"));
            assert_eq!(both, stated(Some(Poll::Adaptive), Some(30)));
        }
        for (key, name) in [(adaptive, "poll"), (share, "poll_share")] {
            let beside = EXPORT.replacen("[[export]]", &format!("{key}[[export]]"), 1);
            let error = exports(&beside).unwrap_err().to_string();
            let told = format!("line 2: disk \"sda\": {name} is for the clients of its own export");
            assert!(error.starts_with(&told), "{error}");
        }
    }

    #[test]
    fn an_export_with_another_rule_is_the_same_but_for_that() {
        let of = |text: &str| exports(text).expect("a file").remove(0);
        let (plain, polls) = (of(DISK), of(&format!("{DISK}poll = \"always\"\n")));
        assert!(plain != polls && plain.is_same_but_for_polling(&polls));
        assert!(plain.is_implicit() && polls.is_implicit());
        let other = of(&format!("{EXPORT}readonly = true\npoll = \"always\"\n"));
        assert!(!of(EXPORT).is_same_but_for_polling(&other));
    }
}
