//! How a [`Pool`](super::Pool) comes to a connection.

use super::{DialError, dial};
use crate::config::Target;
use std::error::Error;
use std::future::Future;
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

    async fn connect(&self, target: &Target, limit: Duration) -> Result<TcpStream, DialError> {
        dial(&target.host, target.port, limit).await
    }
}
