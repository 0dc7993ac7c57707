//! The credentials that sessions share: certificates and keys out of a folder, and the authorities
//! to trust.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer as Crl, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName,
    Error, OtherError, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

use crate::{Session, TlsError, names};

const CA: &str = "ca-cert.pem";
const CRL: &str = "ca-crl.pem";

/// No file of a folder of certificates is longer, bytes.
const FILE_MAX: u64 = 4 << 20;

/// Bits of a key file's mode that let every user of the machine read or write it.
const EVERYBODY: u32 = 0o006;

/// A server's certificate, its key, and which clients it lets in.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

/// A client's trust, the name its server has to have, and its own certificate if it has one.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({:?})", self.name)
    }
}

impl ServerTls {
    /// Reads a folder. With `verify_peer` a client has to show a certificate of the folder's
    /// authority; with `names` one that has one of them, as a common or a DNS name.
    ///
    /// # Errors
    /// The file, and what is wrong with it; names without `verify_peer`.
    pub fn read(folder: &Path, verify_peer: bool, names: &[String]) -> Result<Self, TlsError> {
        if !verify_peer && !names.is_empty() {
            let names = names.join(", ");
            let why = format!("tls names {names} cannot be held without asking for certificates");
            return Err(TlsError(why));
        }
        let folder = Folder(folder);
        let (chain, key) = folder.identity("server")?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = if verify_peer {
            builder.with_client_cert_verifier(folder.judge_of_clients(&provider, names)?)
        } else {
            builder.with_no_client_auth()
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| folder.pair("server", &error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }

    /// A session with a client that is about to begin its handshake.
    ///
    /// # Errors
    /// None that is known of.
    pub fn session(&self) -> Result<Session, TlsError> {
        Ok(Session::new(ServerConnection::new(Arc::clone(&self.0))?.into()))
    }
}

impl ClientTls {
    /// Reads a folder, for servers whose certificate bears `name`: a DNS name or a numeric address.
    ///
    /// # Errors
    /// The file, and what is wrong with it; a name that is none.
    pub fn read(folder: &Path, name: &str) -> Result<Self, TlsError> {
        let server = ServerName::try_from(String::from(name))
            .map_err(|_| TlsError(format!("{name:?} is neither a DNS name nor an address")))?;
        let folder = Folder(folder);
        let provider = Arc::new(ring::default_provider());
        let roots = folder.authority()?;
        let judge = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .with_crls(folder.taken_back()?)
            .build()
            .map_err(|error| folder.error(CA, &error))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_webpki_verifier(judge);
        let mut config = if folder.has("client-cert.pem") || folder.has("client-key.pem") {
            let (chain, key) = folder.identity("client")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| folder.pair("client", &error))?
        } else {
            builder.with_no_client_auth()
        };
        config.resumption = Resumption::disabled();
        Ok(ClientTls { config: Arc::new(config), name: server })
    }

    /// A session whose handshake begins with what there is to send.
    ///
    /// # Errors
    /// None that is known of.
    pub fn session(&self) -> Result<Session, TlsError> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        Ok(Session::new(connection.into()))
    }
}

/// A folder of certificates.
struct Folder<'a>(&'a Path);

impl Folder<'_> {
    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn error(&self, file: &str, why: &dyn fmt::Display) -> TlsError {
        TlsError(format!("{}: {why}", self.path(file).display()))
    }

    /// A certificate and a key that do not belong together.
    fn pair(&self, who: &str, why: &dyn fmt::Display) -> TlsError {
        self.error(&format!("{who}-cert.pem"), &format!("with {who}-key.pem: {why}"))
    }

    fn has(&self, file: &str) -> bool {
        // A file that cannot be looked at counts as there: reading it says why.
        self.path(file).try_exists().unwrap_or(true)
    }

    fn read(&self, file: &str, secret: bool) -> Result<Vec<u8>, TlsError> {
        let mut open = File::open(self.path(file)).map_err(|error| self.error(file, &error))?;
        let metadata = open.metadata().map_err(|error| self.error(file, &error))?;
        let mode = metadata.mode() & 0o7777;
        if secret && mode & EVERYBODY != 0 {
            let why = format!(
                "mode {mode:04o} lets every user of this machine at a private key; chmod o-rw it"
            );
            return Err(self.error(file, &why));
        }
        let mut bytes = Vec::new();
        let read = open.by_ref().take(FILE_MAX + 1).read_to_end(&mut bytes);
        match read {
            Ok(count) if count as u64 > FILE_MAX => {
                Err(self.error(file, &format!("it has more than {FILE_MAX} bytes")))
            }
            Ok(_) => Ok(bytes),
            Err(error) => Err(self.error(file, &error)),
        }
    }

    /// Everything of one kind in a file, at least one.
    fn all<T: PemObject>(&self, file: &str, what: &str) -> Result<Vec<T>, TlsError> {
        let bytes = self.read(file, false)?;
        let found: Result<Vec<T>, pem::Error> = T::pem_slice_iter(&bytes).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.error(file, &format!("it has no {what}"))),
            Ok(found) => Ok(found),
            Err(error) => Err(self.error(file, &error)),
        }
    }

    /// A certificate with those between it and its authority, and its key.
    fn identity(
        &self,
        who: &str,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let (cert, key) = (format!("{who}-cert.pem"), format!("{who}-key.pem"));
        let chain = self.all(&cert, "certificate")?;
        let bytes = self.read(&key, true)?;
        // Which of them it is says nothing of the key.
        let read = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                self.error(&key, &"it has no private key; one under a password is not taken")
            }
            error => self.error(&key, &error),
        })?;
        Ok((chain, read))
    }

    fn authority(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.all(CA, "certificate")? {
            roots.add(certificate).map_err(|error| self.error(CA, &error))?;
        }
        Ok(Arc::new(roots))
    }

    /// Lists of certificates that were taken back, if there is such a file.
    fn taken_back(&self) -> Result<Vec<Crl<'static>>, TlsError> {
        if self.has(CRL) { self.all(CRL, "list of certificates taken back") } else { Ok(vec![]) }
    }

    fn judge_of_clients(
        &self,
        provider: &Arc<CryptoProvider>,
        names: &[String],
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let roots = self.authority()?;
        let judge = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
            .with_crls(self.taken_back()?)
            .build()
            .map_err(|error| self.error(CA, &error))?;
        match names.is_empty() {
            true => Ok(judge),
            false => Ok(Arc::new(Listed { judge, names: names.to_vec() })),
        }
    }
}

/// Judges clients as `judge` does, and lets those in whose certificate bears a listed name.
#[derive(Debug)]
struct Listed {
    judge: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl ClientCertVerifier for Listed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.judge.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.judge.verify_client_cert(certificate, between, now)?;
        let shown = names::of(certificate);
        if shown.iter().any(|name| self.names.contains(name)) {
            return Ok(verified);
        }
        let why = format!("the client's names {shown:?} are not in the list of those allowed");
        let why = OtherError(Arc::new(io::Error::other(why)));
        Err(Error::InvalidCertificate(CertificateError::Other(why)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}
