//! The names in a certificate: what a list of those who may come in is held against.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The object identifier of a common name, 2.5.4.3, as DER has it.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;

/// The common names of the subject and the DNS names beside it. A certificate that cannot be read
/// has none.
pub(crate) fn of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let mut names = common_names(parsed.subject());
    names.extend(parsed.valid_dns_names().map(String::from));
    names.dedup();
    names
}

/// The common names in a subject, the content of a Name (RFC 5280, 4.1.2.4): SETs of SEQUENCEs of
/// an object identifier and a string. Strings that are no UTF-8 are left out.
fn common_names(mut subject: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((SET, mut set)) = element(&mut subject) {
        while let Some((SEQUENCE, mut pair)) = element(&mut set) {
            if element(&mut pair) == Some((OBJECT, COMMON_NAME))
                && let Some((_, value)) = element(&mut pair)
                && let Ok(name) = std::str::from_utf8(value)
            {
                names.push(String::from(name));
            }
        }
    }
    names
}

/// Takes one element of DER off the front: its tag and content. `None` if there is no whole one.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        // No certificate has a length of more than four bytes.
        let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(length)?;
    *bytes = behind;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_names_are_found_among_others() {
        // O=ab, CN=cd in a SET of two, CN of no UTF-8.
        let subject = [
            &[0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 10, 12, 2, b'a', b'b'][..],
            &[0x31, 0x81, 22, 0x30, 9, 6, 3, 0x55, 4, 3, 12, 2, b'c', b'd'],
            &[0x30, 9, 6, 3, 0x55, 4, 3, 12, 2, 0xff, 0xfe],
        ];
        assert_eq!(common_names(&subject.concat()), ["cd"]);
    }

    #[test]
    fn a_name_that_is_cut_short_or_lies_about_its_length_yields_nothing() {
        let whole = [0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 3, 12, 2, b'a', b'b'];
        assert_eq!(common_names(&whole), ["ab"]);
        for cut in 0..whole.len() {
            assert!(common_names(&whole[..cut]).is_empty(), "cut at {cut}");
        }
        for length in
            [&[0x80][..], &[0x85, 0, 0, 0, 0, 1], &[0x84, 0xff, 0xff, 0xff, 0xff], &[0x82]]
        {
            assert!(common_names(&[&[0x31], length].concat()).is_empty(), "{length:?}");
        }
    }
}
