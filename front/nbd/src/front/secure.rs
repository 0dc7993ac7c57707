//! TLS at an address: certificates and keys to what the address says.

use weir_access::{Listen, Tls, TlsRule};
use weir_tls::ServerTls;

use crate::channel::Security;
use crate::plan::Nbd;

/// Completes the TLS settings of an address with those of `[nbd]`.
pub(super) fn complete(tls: &mut Tls, nbd: &Nbd) {
    tls.rule = tls.rule.or(nbd.tls);
    tls.verify_peer = tls.verify_peer.or(nbd.tls_verify_peer);
    if tls.certificates.is_none() {
        tls.certificates.clone_from(&nbd.tls_certificates);
    }
}

/// The security of a complete address.
///
/// # Errors
/// The folder, and what is missing or wrong there; names of clients where no TLS tells them.
pub(super) fn of(listen: &Listen) -> Result<Security, String> {
    let named = |why: &dyn std::fmt::Display| format!("address {}: {why}", listen.address);
    let names: Vec<String> = listen.allow.names().map(String::from).collect();
    let Listen { tls: Tls { rule, certificates, verify_peer }, allow, .. } = listen;
    let rule = rule.unwrap_or(TlsRule::Off);
    if rule == TlsRule::Off {
        return match allow.is_names_alone() {
            true => Err(named(&format!("allow={allow} lets nobody in without tls=require"))),
            false => Ok(Security::default()),
        };
    }
    let folder = certificates.as_ref().ok_or_else(|| {
        let what = "TLS needs tls_certificates=DIR, a folder with server-cert.pem, server-key.pem";
        named(&what)
    })?;
    let read = |verify_peer, names: &[String]| {
        ServerTls::read(folder, verify_peer, names).map_err(|why| named(&why))
    };
    let tls = read(verify_peer.unwrap_or(true), &[])?;
    let security = match rule {
        TlsRule::Require => Security::require(tls),
        TlsRule::On | TlsRule::Off => Security::on(tls),
    };
    match names.is_empty() {
        true => Ok(security),
        false => Ok(security.named(read(true, &names)?)),
    }
}

/// The same where there is no address.
///
/// # Errors
/// As [`of`].
pub(super) fn of_all(nbd: &Nbd) -> Result<Security, String> {
    let mut listen = Listen::from(weir_access::Address::Unix("stdio".into()));
    complete(&mut listen.tls, nbd);
    of(&listen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_address() {
        for (options, words) in [
            ("tls=on", "tls_certificates=DIR"),
            ("tls=require,tls_certificates=/nowhere", "/nowhere/server-cert.pem"),
            ("allow=tls:a", "lets nobody in without tls=require"),
        ] {
            let listen: Listen = format!("[::1]:1,{options}").parse().expect("an address");
            let why = of(&listen).expect_err(options);
            assert!(why.contains("[::1]:1") && why.contains(words), "{why}");
        }
        of(&"unix:x,allow=uid:0,allow=tls:a".parse().expect("an address")).expect("root gets in");
    }

    #[test]
    fn an_address_has_what_it_says_itself_and_the_rest_from_the_file() {
        let nbd = Nbd {
            tls: Some(TlsRule::Require),
            tls_certificates: Some("/c".into()),
            tls_verify_peer: Some(false),
            ..Nbd::default()
        };
        let mut listen: Listen = "unix:x,tls=on,tls_verify_peer=on".parse().expect("an address");
        complete(&mut listen.tls, &nbd);
        let expected = Tls {
            rule: Some(TlsRule::On),
            certificates: Some("/c".into()),
            verify_peer: Some(true),
        };
        assert_eq!(listen.tls, expected);
    }
}
