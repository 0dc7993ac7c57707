//! Certificates made for one test, in folders as nbdkit, qemu-nbd and libnbd take them.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A folder that goes with its test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder for certificates");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn remove(&self, file: &str) {
        std::fs::remove_file(self.0.join(file)).expect("the file was there");
    }

    pub fn write(&self, file: &str, mode: u32, text: &str) {
        let path = self.0.join(file);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut open = options.open(path).expect("a file in the folder");
        open.write_all(text.as_bytes()).expect("it takes everything");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that fails has more to say than this.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate authority, which signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("authority {number} of a test");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A folder for both sides: a server that is `localhost` and 127.0.0.1, and a client `alice`.
    pub fn folder(&self) -> Folder {
        let folder = self.trust();
        self.sign(&folder, "server", "localhost", &["localhost", "127.0.0.1"]);
        self.sign(&folder, "client", "alice", &[]);
        folder
    }

    /// A folder with the authority's certificate alone.
    pub fn trust(&self) -> Folder {
        let folder = Folder::new();
        folder.write("ca-cert.pem", 0o644, &self.pem);
        folder
    }

    /// Writes `WHO-cert.pem` and `WHO-key.pem`.
    pub fn sign(&self, folder: &Folder, who: &str, common_name: &str, names: &[&str]) {
        self.sign_until(folder, who, common_name, names, 2120);
    }

    /// The same, with a certificate that ran out at the beginning of a year.
    pub fn sign_until(
        &self,
        folder: &Folder,
        who: &str,
        common_name: &str,
        names: &[&str],
        year: i32,
    ) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let mut params = CertificateParams::new(names).expect("names of certificates");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match who {
            "server" => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.serial_number = Some(serial(who));
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        folder.write(&format!("{who}-cert.pem"), 0o644, &signed.pem());
        folder.write(&format!("{who}-key.pem"), 0o600, &key.serialize_pem());
    }

    /// Takes the certificates of `who` back.
    pub fn take_back(&self, folder: &Folder, who: &str) {
        let revoked = RevokedCertParams {
            serial_number: serial(who),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(2120, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("a list");
        folder.write("ca-crl.pem", 0o644, &list.pem().expect("text"));
    }
}

fn serial(who: &str) -> SerialNumber {
    SerialNumber::from_slice(who.as_bytes())
}
