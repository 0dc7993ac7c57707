//! How the threads of a daemon wait.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::value::within;

/// `[host]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Whether a thread with nothing to do polls before it sleeps.
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

/// Whether a thread with nothing to do polls before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let value = within("poll_share", i64::deserialize(from)?, 1, 100)?;
    Ok(value.and_then(|share| u8::try_from(share).ok()).unwrap_or(POLL_SHARE))
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
            ("poll = \"on\"", "line 2: unknown variant `on`, expected one of `off`, `adaptive`"),
            ("polls = 1", "line 2: unknown field `polls`, expected `poll` or `poll_share`"),
        ] {
            let error = host(&format!("[host]\n{text}\n")).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
        for poll in [Poll::Off, Poll::Adaptive, Poll::Always] {
            assert_eq!(poll.to_string().parse(), Ok(poll));
        }
        assert!("Off".parse::<Poll>().is_err());
    }
}
