//! The options of TLS that an address has: `ADDR,tls=require,tls_certificates=DIR`.

use std::path::{Path, PathBuf};

use weir_control::config::{Nbd, Tls};
use weir_front_nbd::{Security, ServerTls};

/// What is done about TLS at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    tls: Tls,
    certificates: Option<PathBuf>,
    verify_peer: bool,
    /// Names of clients; without one every client with a good certificate comes in.
    names: Vec<String>,
}

impl Wish {
    fn of(defaults: &Nbd) -> Wish {
        Wish {
            tls: defaults.tls,
            certificates: defaults.tls_certificates.clone(),
            verify_peer: defaults.tls_verify_peer.unwrap_or(true),
            names: Vec::new(),
        }
    }

    /// Takes one option; false if it is none of TLS.
    fn take(&mut self, option: &str) -> Result<bool, String> {
        match option.split_once('=') {
            Some(("tls", value)) => {
                self.tls = match value {
                    "off" => Tls::Off,
                    "on" => Tls::On,
                    "require" => Tls::Require,
                    _ => return Err(format!("tls={value} is none of off, on and require")),
                };
            }
            Some(("tls_certificates", value)) => self.certificates = Some(PathBuf::from(value)),
            Some(("tls_verify_peer", value)) => {
                self.verify_peer = match value {
                    "on" | "1" | "true" | "yes" => true,
                    "off" | "0" | "false" | "no" => false,
                    _ => return Err(format!("tls_verify_peer={value} is neither on nor off")),
                };
            }
            Some(("allow", value)) => match value.strip_prefix("tls:") {
                Some(name) => self.names.push(String::from(name)),
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn security(&self) -> Result<Security, String> {
        if self.tls == Tls::Off {
            return match self.names.first() {
                Some(name) => Err(format!("allow=tls:{name} without tls=on or tls=require")),
                None => Ok(Security::Off),
            };
        }
        if self.tls == Tls::On && !self.names.is_empty() {
            let why = "allow=tls:NAME with tls=on keeps nobody out: it takes tls=require";
            return Err(String::from(why));
        }
        let folder: &Path = self.certificates.as_deref().ok_or(
            "TLS needs tls_certificates=DIR, a folder with server-cert.pem and server-key.pem",
        )?;
        let read = ServerTls::read(folder, self.verify_peer, &self.names);
        let tls = read.map_err(|why| why.to_string())?;
        Ok(match self.tls {
            Tls::Require => Security::Require(tls),
            Tls::On | Tls::Off => Security::On(tls),
        })
    }
}

/// What is done about TLS where an address says nothing.
///
/// # Errors
/// What is wrong with the folder, or missing.
pub(crate) fn default_of(defaults: &Nbd) -> Result<Security, String> {
    Wish::of(defaults).security()
}

/// Takes the options of TLS off an address: the rest of it, and what they come to.
///
/// # Errors
/// The address, and which option is wrong.
pub(crate) fn split(text: &str, defaults: &Nbd) -> Result<(String, Security), String> {
    let named = |why: String| format!("address {text:?}: {why}");
    let mut wish = Wish::of(defaults);
    let mut rest = String::new();
    for (index, part) in at_commas(text).into_iter().enumerate() {
        if index == 0 || !wish.take(&part.replace("\\,", ",")).map_err(named)? {
            let comma = if index == 0 { "" } else { "," };
            rest = format!("{rest}{comma}{part}");
        }
    }
    Ok((rest, wish.security().map_err(named)?))
}

/// Cuts at commas without a backslash before them.
fn at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut protected = false;
    for c in text.chars() {
        match c {
            ',' if !protected => parts.push(String::new()),
            c => parts.last_mut().expect("one part").push(c),
        }
        protected = c == '\\' && !protected;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_tls_are_taken_off_and_others_are_left() {
        let none = Nbd::default();
        let (rest, security) = split("unix:/a,b,mode=0660,allow=uid:1", &none).expect("fine");
        assert_eq!(rest, "unix:/a,b,mode=0660,allow=uid:1");
        assert!(matches!(security, Security::Off), "{security:?}");
        let mut wish = Wish::of(&none);
        for option in ["tls=require", "tls_certificates=/c", "tls_verify_peer=off", "allow=tls:a b"]
        {
            assert_eq!(wish.take(option), Ok(true), "{option}");
        }
        let expected = Wish {
            tls: Tls::Require,
            certificates: Some("/c".into()),
            verify_peer: false,
            names: vec![String::from("a b")],
        };
        assert_eq!(wish, expected);
        assert!(Wish::of(&none).verify_peer, "a client shows who it is unless told otherwise");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_address() {
        for (options, words) in [
            ("tls=yes", "none of off, on and require"),
            ("tls_verify_peer=2", "neither on nor off"),
            ("tls=on", "tls_certificates=DIR"),
            ("tls=require,tls_certificates=/nowhere", "/nowhere/server-cert.pem"),
            ("allow=tls:a", "without tls=on"),
            ("tls=on,tls_certificates=/c,allow=tls:a", "keeps nobody out"),
        ] {
            let why = split(&format!("[::1]:1,{options}"), &Nbd::default()).expect_err(options);
            assert!(why.contains("[::1]:1") && why.contains(words), "{why}");
        }
    }
}
