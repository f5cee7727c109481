//! How a [`Pool`](super::Pool) comes to a connection.

use super::{DialError, dial};
use crate::config::Target;
use std::error::Error;
use std::future::Future;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Opens connections to a target.
pub trait Connect {
    /// What HTTP is spoken over.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Why there is none.
    type Error: Error + 'static;

    /// The address at the other end, where there is one.
    fn peer(stream: &Self::Stream) -> Option<IpAddr>;

    /// Whether nothing has come on a stream, not even its end; `None` where only a poll can tell.
    fn is_quiet(_: &Self::Stream) -> Option<bool> {
        None
    }

    /// Opens one within `limit`, the name look-up included.
    fn connect(
        &self,
        target: &Target,
        limit: Duration,
    ) -> impl Future<Output = Result<Self::Stream, Self::Error>>;
}

/// Plain TCP, whatever the target's scheme.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Connect for Plain {
    type Stream = TcpStream;
    type Error = DialError;

    fn peer(stream: &TcpStream) -> Option<IpAddr> {
        stream.peer_addr().ok().map(|addr| addr.ip())
    }

    fn is_quiet(stream: &TcpStream) -> Option<bool> {
        let read = stream.try_read(&mut [0]);
        Some(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
    }

    async fn connect(&self, target: &Target, limit: Duration) -> Result<TcpStream, DialError> {
        dial(&target.host, target.port, limit).await
    }
}
