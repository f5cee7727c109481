//! Which servers are trusted: those with a certificate of a CA in a file, or, where no file is named,
//! of a CA that the system knows.
//!
//! A file is read when a connection is to be opened and it has changed since, and again when a
//! certificate is refused, so that CAs that are renewed in place are taken up by themselves. While it
//! can't be read those read before are trusted, and without any nobody is. The system's are those of
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` where these are set.
//!
//! A certificate that stands among them itself is trusted too, even if it is a CA's: that is what
//! `openssl req -x509` makes for a server of its own.

use super::{Seen, small_file};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most bytes of a file of CAs. That of a whole system has about 220 KB.
const MOST_BYTES: u64 = 2 << 20;

/// The system's CAs are read again after this at the earliest.
const AGAIN: Duration = Duration::from_secs(60);

/// The CAs of one thread's connections, read once for all that name the same file.
#[derive(Clone, Default)]
pub struct Trusts(Rc<RefCell<ByFile>>);

/// Without a file it is the system's.
type ByFile = BTreeMap<Option<Arc<Path>>, Rc<Trust>>;

/// See the [module](self) description.
pub struct Trust {
    /// `None` is the system.
    file: Option<Arc<Path>>,
    known: RefCell<Known>,
}

/// What was read last.
#[derive(Default)]
struct Known {
    cas: Option<Cas>,
    /// What is wrong since then.
    problem: Option<String>,
    /// The file, as it was.
    seen: Option<Seen>,
    read: Option<Instant>,
}

struct Cas {
    /// Their certificates themselves.
    named: Arc<[CertificateDer<'static>]>,
    config: Arc<ClientConfig>,
}

// === impl Trusts ===

impl Trusts {
    /// The CAs in this file, or the system's.
    #[must_use]
    pub fn of(&self, ca_file: Option<&Arc<Path>>) -> Rc<Trust> {
        let mut all = self.0.borrow_mut();
        let trust = all.entry(ca_file.cloned()).or_insert_with(|| {
            Rc::new(Trust {
                file: ca_file.cloned(),
                known: RefCell::default(),
            })
        });
        Rc::clone(trust)
    }
}

// === impl Trust ===

impl Trust {
    /// The file of the CAs; `None` is the system.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<Path>> {
        self.file.as_ref()
    }

    /// What is wrong with it, if anything is, as in "can't be read".
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.known.borrow().problem.clone()
    }

    /// How to speak TLS with whom it trusts; the error is a [`problem`](Trust::problem).
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let stale = {
            let known = self.known.borrow();
            let now = self.file.as_deref().and_then(Seen::of);
            known.cas.is_none() || known.problem.is_some() || now != known.seen
        };
        if stale {
            self.read();
        }
        let known = self.known.borrow();
        match (&known.cas, &known.problem) {
            (Some(cas), _) => Ok(Arc::clone(&cas.config)),
            (None, Some(problem)) => Err(problem.clone()),
            (None, None) => Err("has not been read".to_owned()),
        }
    }

    /// Reads them again, as a certificate was refused. Whether there are others now.
    pub(super) fn renew(&self) -> bool {
        let lately = |read: Instant| read.elapsed() < AGAIN;
        if self.file.is_none() && self.known.borrow().read.is_some_and(lately) {
            return false;
        }
        self.read()
    }

    fn read(&self) -> bool {
        let mut known = self.known.borrow_mut();
        known.read = Some(Instant::now());
        // First, so that what is written meanwhile is seen the next time.
        known.seen = self.file.as_deref().and_then(Seen::of);
        let found = match &self.file {
            Some(path) => in_file(path),
            None => of_system(),
        };
        match found.and_then(Cas::of) {
            Ok(cas) => {
                known.problem = None;
                let same = known
                    .cas
                    .as_ref()
                    .is_some_and(|before| before.named == cas.named);
                if !same {
                    known.cas = Some(cas);
                }
                !same
            }
            Err(problem) => {
                let news = known.problem.as_ref() != Some(&problem);
                if let (Some(path), Some(_), true) = (&self.file, &known.cas, news) {
                    let path = path.display();
                    tracing::warn!(
                        "ca_file {path} {problem}; until it can be read the CAs read before are trusted"
                    );
                }
                known.problem = Some(problem);
                false
            }
        }
    }
}

// === impl Cas ===

impl Cas {
    fn of(certificates: Vec<CertificateDer<'static>>) -> Result<Cas, String> {
        let mut roots = RootCertStore::empty();
        let (good, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        if good == 0 {
            return Err("holds no certificate that can be used".to_owned());
        }
        let named: Arc<[_]> = certificates.into();
        let config = config(roots, &named).map_err(|error| format!("can't be used ({error})"))?;
        Ok(Cas {
            named,
            config: Arc::new(config),
        })
    }
}

fn config(
    roots: RootCertStore,
    named: &Arc<[CertificateDer<'static>]>,
) -> Result<ClientConfig, Box<dyn std::error::Error>> {
    // Named, as rustls panics where a process has no default provider or two.
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier {
        inner: WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()?,
        named: Arc::clone(named),
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A connection is kept as long as its source is read, and the certificate of a new one is looked at
    // whenever there is one: an expired one would go on in a resumed session.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// The certificates of a file; the error says what is wrong with it.
fn in_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = small_file(path, MOST_BYTES)?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(none) if none.is_empty() => Err("holds no certificate in PEM".to_owned()),
        Ok(all) => Ok(all),
        // Its text is not repeated: a private key may stand there.
        Err(_) => Err("holds PEM that is broken".to_owned()),
    }
}

fn of_system() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let first = found.errors.first();
        let why = first.map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!("has none that can be read{why}"));
    }
    Ok(found.certs)
}

/// What rustls verifies, and the certificates that are trusted as they are.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    named: Arc<[CertificateDer<'static>]>,
    provider: Arc<CryptoProvider>,
}

/// Whether it was refused only for being a CA's. Whether it is valid now has been looked at before.
fn is_of_a_ca(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    let cause = other.0.downcast_ref::<webpki::Error>();
    matches!(cause, Some(webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(error) if is_of_a_ca(&error) => {
                if !self.named.iter().any(|named| named == end_entity) {
                    return Err(CertificateError::UnknownIssuer.into());
                }
                let parsed = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&parsed, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let all = self.provider.signature_verification_algorithms;
        all.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;

    fn certificate() -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["h".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    fn trust(path: &Path) -> Rc<Trust> {
        Trusts::default().of(Some(&Arc::from(path)))
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_without_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let broken = "-----BEGIN CERTIFICATE-----\ns3cret!\n";
        let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let large = "x".repeat(usize::try_from(MOST_BYTES).unwrap() + 1);
        for (text, problem) in [
            ("", "holds no certificate in PEM"),
            ("s3cret", "holds no certificate in PEM"),
            (broken, "holds PEM that is broken"),
            (no_certificate, "holds no certificate that can be used"),
            (&large, "has more than 2097152 bytes"),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(trust(&path).config().unwrap_err(), problem);
        }
        assert_eq!(trust(folder.path()).config().unwrap_err(), "is no file");
        fs::remove_file(&path).unwrap();
        let problem = trust(&path).config().unwrap_err();
        assert!(problem.starts_with("can't be read ("), "{problem}");
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_kept_while_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        fs::write(&path, certificate()).unwrap();
        let trust = trust(&path);
        let first = trust.config().unwrap();
        assert!(Arc::ptr_eq(&first, &trust.config().unwrap()));
        assert!(!trust.renew());

        // As ConfigMaps do: a link that leads elsewhere.
        let (new, link) = (folder.path().join("new.pem"), folder.path().join("link"));
        fs::write(&new, certificate()).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        fs::rename(&link, &path).unwrap();
        let second = trust.config().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));

        fs::remove_file(&path).unwrap();
        assert!(Arc::ptr_eq(&second, &trust.config().unwrap()));
        assert!(trust.problem().unwrap().starts_with("can't be read"));
        fs::write(&path, certificate()).unwrap();
        assert!(!Arc::ptr_eq(&second, &trust.config().unwrap()));
        assert_eq!(trust.problem(), None);
    }

    #[test]
    fn those_who_name_the_same_file_share_what_is_read() {
        let trusts = Trusts::default();
        let path: Arc<Path> = Arc::from(Path::new("/a"));
        assert!(Rc::ptr_eq(&trusts.of(Some(&path)), &trusts.of(Some(&path))));
        assert!(!Rc::ptr_eq(&trusts.of(Some(&path)), &trusts.of(None)));
    }
}
