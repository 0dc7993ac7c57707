//! Names of initiators and targets. RFC 7143, section 4.2.7, with the characters of RFC 3722.

use std::fmt;

/// Bytes of the longest name.
pub const NAME_MAX: usize = 223;

/// A name of the form `iqn.`, `eui.` or `naa.`, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IscsiName(String);

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    name: String,
    what: &'static str,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iSCSI name {:?}: {}", self.name, self.what)
    }
}

impl std::error::Error for NameError {}

impl IscsiName {
    /// Reads a name. Capital letters mean the small ones.
    ///
    /// An underscore is taken, although RFC 3722 has none: it is in wide use.
    ///
    /// # Errors
    /// The name and what is wrong with it.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let error = |what| {
            let name = name.chars().take(NAME_MAX + 1).collect();
            Err(NameError { name, what })
        };
        if name.len() > NAME_MAX {
            return error("longer than 223 bytes");
        }
        let lower = name.to_ascii_lowercase();
        let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match lower.split_once('.') {
            Some(("iqn", rest)) => {
                if !has_date_and_authority(rest) {
                    return error("behind iqn. comes a date as in 2001-04, a dot and a domain");
                }
                if !rest.chars().all(|c| c.is_alphanumeric() || "-.:_".contains(c)) {
                    return error("it has other characters than letters, digits and -.:_");
                }
            }
            Some(("eui", rest)) if rest.len() == 16 && hex(rest) => {}
            Some(("eui", _)) => return error("behind eui. come 16 hexadecimal digits"),
            Some(("naa", rest)) if matches!(rest.len(), 16 | 32) && hex(rest) => {}
            Some(("naa", _)) => return error("behind naa. come 16 or 32 hexadecimal digits"),
            _ => return error("it begins with none of iqn. eui. naa."),
        }
        Ok(Self(lower))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn has_date_and_authority(rest: &str) -> bool {
    let Some((date, authority)) = rest.split_once('.') else { return false };
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let month = |text: &str| digits(text, 2) && ("01"..="12").contains(&text);
    date.split_once('-').is_some_and(|(y, m)| digits(y, 4) && month(m))
        && authority.starts_with(char::is_alphanumeric)
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for IscsiName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{IscsiName, NAME_MAX};

    #[test]
    fn names_of_the_three_forms_are_taken_in_lower_case() {
        for (text, name) in [
            (
                "iqn.2001-04.com.example:storage:disk_2.x",
                "iqn.2001-04.com.example:storage:disk_2.x",
            ),
            ("IQN.2001-04.COM.Example", "iqn.2001-04.com.example"),
            ("iqn.1992-12.é.x:1", "iqn.1992-12.é.x:1"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            ("naa.62004567BA64678D0123456789ABCDEF", "naa.62004567ba64678d0123456789abcdef"),
        ] {
            assert_eq!(IscsiName::new(text).expect(text).as_str(), name);
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        let long = format!("iqn.2001-04.a:{}", "b".repeat(NAME_MAX - 14));
        assert!(IscsiName::new(&long).is_ok());
        for (text, why) in [
            (&*format!("{long}b"), "223"),
            ("", "none of"),
            ("disk", "none of"),
            ("iqx.2001-04.a", "none of"),
            ("iqn.2001-04", "date"),
            ("iqn.2001-13.a", "date"),
            ("iqn.2001-00.a", "date"),
            ("iqn.201-01.a", "date"),
            ("iqn.2001-1.a", "date"),
            ("iqn.2001-04.", "date"),
            ("iqn.2001-04.a b", "characters"),
            ("iqn.2001-04.a,b", "characters"),
            ("iqn.2001-04.a\0", "characters"),
            ("eui.0200", "16 hex"),
            ("eui.0200456789abcdeg", "16 hex"),
            ("naa.0200456789abcdef0", "16 or 32"),
        ] {
            let error = IscsiName::new(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
