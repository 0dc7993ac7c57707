//! The live page: one document that asks for nothing but its events.

use std::fmt::Write;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The page, with the word [`NONCE`] where the nonce of an answer belongs.
const PAGE: &str = include_str!("page.html");
const NONCE: &str = "NONCE";

/// A page for one answer, and its Content-Security-Policy.
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) policy: String,
}

impl Page {
    /// A page with a nonce of its own: no script runs in it but the one that it came with.
    pub(crate) fn new() -> std::io::Result<Page> {
        let mut bytes = [0; 16];
        // So few bytes come whole, unless a signal came first.
        while let Err(error) = getrandom(&mut bytes, GetRandomFlags::empty()) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        let mut nonce = String::new();
        bytes.iter().for_each(|byte| _ = write!(nonce, "{byte:02x}"));
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'"
        );
        Ok(Page { text: PAGE.replace(NONCE, &nonce), policy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_nonce_of_its_own_and_makes_markup_of_no_name() {
        let (one, other) = (Page::new().expect("a page"), Page::new().expect("a page"));
        assert_ne!(one.policy, other.policy);
        let nonce = one.policy.split("nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        let nonce = format!("nonce=\"{}\"", nonce.expect("a nonce"));
        assert_eq!(one.text.matches(&nonce).count(), 2, "of the style and of the script");
        assert!(!one.text.contains(NONCE));
        for word in ["innerHTML", "insertAdjacent", "document.write", "eval(", "https://"] {
            assert!(!one.text.contains(word), "{word}");
        }
    }
}
