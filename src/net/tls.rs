//! TLS to a server, over a connection that was dialled.

use super::connect::Connect;
use super::trust::Trust;
use super::{DialError, dial};
use crate::config::Target;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use std::error::Error;
use std::io;
use std::iter;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Plain TCP where a target's scheme is http, TLS where it is https.
pub struct MaybeTls {
    trust: Rc<Trust>,
}

/// A connection of [`MaybeTls`].
pub enum Stream {
    /// As dialled.
    Plain(TcpStream),
    /// In TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody is there.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// Somebody is, but TLS can't be spoken with them.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why TLS is not spoken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// There are no CAs to trust.
    #[error("the CAs that are trusted {problem}")]
    NoCas {
        /// Their file; `None` is the system.
        file: Option<Arc<Path>>,
        /// What is wrong, as in "can't be read".
        problem: String,
    },
    /// The certificate is of no CA that is trusted.
    #[error("its certificate is of no CA that is trusted")]
    Untrusted {
        /// The file of those that are; `None` is the system.
        file: Option<Arc<Path>>,
        /// What is wrong with it now, if anything is.
        problem: Option<String>,
    },
    /// The certificate is over, or is not valid yet: which of the two, and when, in RFC 3339.
    #[error("its certificate {0}")]
    NotNow(String),
    /// The certificate is another server's.
    #[error("its certificate is not for {expected}")]
    WrongName {
        /// Who was asked for.
        expected: String,
        /// Whom it is for.
        presented: Vec<String>,
    },
    /// Anything else about the certificate.
    #[error("its certificate can't be taken: {0}")]
    Certificate(String),
    /// What answers is no TLS.
    #[error("it speaks no TLS")]
    NotTls,
    /// The connection ended in the handshake.
    #[error("the connection ended in the TLS handshake")]
    Ended,
    /// The server asks for a client's certificate.
    #[error("it asks for a client certificate")]
    WantsCertificate,
    /// The server refused in another way.
    #[error("it refused the TLS handshake: {0}")]
    Refused(String),
    /// No handshake in time.
    #[error("no TLS handshake within {0:?}")]
    Timeout(Duration),
    /// Anything else.
    #[error("TLS failed: {0}")]
    Other(String),
}

/// The most names of a certificate that are told, and characters of what a peer wrote.
const MOST_NAMES: usize = 5;
const MOST_SHOWN: usize = 100;

// === impl MaybeTls ===

impl MaybeTls {
    /// Trusts these CAs. They are read only for a target with TLS.
    #[must_use]
    pub fn new(trust: Rc<Trust>) -> MaybeTls {
        MaybeTls { trust }
    }

    /// The configuration, and the name that is asked for.
    fn prepare(
        &self,
        target: &Target,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), TlsError> {
        let config = self.trust.config().map_err(|problem| TlsError::NoCas {
            file: self.trust.file().cloned(),
            problem,
        })?;
        // A name's last dot is no part of it in certificates (RFC 6066, 3).
        let name = target.known_as().trim_end_matches('.').to_owned();
        let name = ServerName::try_from(name).map_err(|_| {
            TlsError::Other("the host's name is none that a certificate can be for".to_owned())
        })?;
        Ok((config, name))
    }

    async fn secured(
        &self,
        target: &Target,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let start = Instant::now();
        let (config, name) = self.prepare(target)?;
        let stream = dial(&target.host, target.port, limit).await?;
        // A tenth is left, so that this is told from a page that does not come within the same limit.
        let most = limit - limit / 10;
        let left = most.saturating_sub(start.elapsed());
        let handshake = TlsConnector::from(config).connect(name, stream);
        match timeout(left, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(self.seen(&error).into()),
            Err(_) => Err(TlsError::Timeout(most).into()),
        }
    }

    fn seen(&self, error: &io::Error) -> TlsError {
        match TlsError::at_the_bottom_of(error) {
            Some(TlsError::Untrusted { .. }) => TlsError::Untrusted {
                file: self.trust.file().cloned(),
                problem: self.trust.problem(),
            },
            Some(seen) => seen,
            None => TlsError::Ended,
        }
    }
}

impl Connect for MaybeTls {
    type Stream = Stream;
    type Error = ConnectError;

    fn peer(stream: &Stream) -> Option<IpAddr> {
        let stream = match stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        stream.peer_addr().ok().map(|addr| addr.ip())
    }

    async fn connect(&self, target: &Target, limit: Duration) -> Result<Stream, ConnectError> {
        if !target.tls {
            let stream = dial(&target.host, target.port, limit).await?;
            return Ok(Stream::Plain(stream));
        }
        let mut stream = self.secured(target, limit).await;
        if let Err(ConnectError::Tls(TlsError::Untrusted { .. })) = &stream
            && self.trust.renew()
        {
            stream = self.secured(target, limit).await;
        }
        stream.map(|stream| Stream::Tls(Box::new(stream)))
    }
}

// === impl TlsError ===

impl TlsError {
    /// What TLS has to say of an error that others have wrapped: `None` where that is nothing.
    #[must_use]
    pub fn at_the_bottom_of(error: &(dyn Error + 'static)) -> Option<TlsError> {
        iter::successors(Some(error), |&cause| cause.source())
            .find_map(|cause| {
                // What an I/O error holds is not among its sources.
                let inner = cause
                    .downcast_ref::<io::Error>()
                    .and_then(io::Error::get_ref);
                inner
                    .and_then(|inner| inner.downcast_ref::<rustls::Error>())
                    .or_else(|| cause.downcast_ref::<rustls::Error>())
            })
            .map(TlsError::of)
    }

    fn of(error: &rustls::Error) -> TlsError {
        match error {
            rustls::Error::InvalidCertificate(why) => TlsError::of_certificate(why),
            rustls::Error::InvalidMessage(_) => TlsError::NotTls,
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                TlsError::WantsCertificate
            }
            rustls::Error::AlertReceived(alert) => TlsError::Refused(format!("{alert:?}")),
            rustls::Error::PeerIncompatible(_) => TlsError::Refused(shown(&error.to_string())),
            other => TlsError::Other(shown(&other.to_string())),
        }
    }

    fn of_certificate(why: &CertificateError) -> TlsError {
        match why {
            // A CA of the same name with another key is another CA.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                TlsError::Untrusted {
                    file: None,
                    problem: None,
                }
            }
            CertificateError::ExpiredContext { not_after, .. } => {
                TlsError::NotNow(format!("has expired at {}", date(not_after.as_secs())))
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                let from = date(not_before.as_secs());
                TlsError::NotNow(format!("is not valid before {from}"))
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => TlsError::WrongName {
                expected: shown(&expected.to_str()),
                presented: presented
                    .iter()
                    .take(MOST_NAMES)
                    .map(|name| shown(bare(name)))
                    .collect(),
            },
            other => TlsError::Certificate(shown(&other.to_string())),
        }
    }
}

/// `h` of the `DnsName("h")` that rustls writes.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, n)| n.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// What a peer wrote, as it may be shown.
fn shown(text: &str) -> String {
    let escaped = text.chars().flat_map(char::escape_debug);
    escaped.take(MOST_SHOWN).collect()
}

/// Seconds since 1970 as a date.
fn date(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_second(seconds) {
        Ok(date) => date.to_string(),
        Err(_) => "a time beyond the year 9999".to_owned(),
    }
}

// === impl Stream ===

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
