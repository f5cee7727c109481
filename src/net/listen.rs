//! Listening sockets, and what every connected socket gets.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// After this much silence the kernel asks whether the peer is still there.
const PROBED_AFTER: Duration = Duration::from_secs(30);

/// Between two probes that nobody answers.
const BETWEEN_PROBES: Duration = Duration::from_secs(10);

/// So many without an answer end the connection: a minute after the last byte.
const PROBES: u32 = 3;

/// Binds a listening socket, ready to be handed to a runtime.
///
/// # Errors
/// What the system says: address in use, no permission, not an address of this machine.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// No delay (an event must leave when it is written) and kernel keep-alive probes.
/// A socket that refuses an option still works, so failures are not errors.
pub fn prepare(stream: &tokio::net::TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(PROBED_AFTER)
            .with_interval(BETWEEN_PROBES)
            .with_retries(PROBES),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::dial;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_peer_that_vanishes_is_found_within_a_minute_on_both_sides() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialled = dial("127.0.0.1", port, Duration::from_secs(10))
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        prepare(&accepted);
        for (side, stream) in [("accepted", accepted), ("dialled", dialled)] {
            assert_eq!(probes(&stream), (true, 30, 10, 3), "{side}");
            assert!(stream.nodelay().unwrap(), "{side}");
        }
    }

    /// Whether there are any, seconds before the first and between two, and how many.
    fn probes(stream: &TcpStream) -> (bool, u64, u64, u32) {
        let socket = SockRef::from(stream);
        (
            socket.keepalive().unwrap(),
            socket.tcp_keepalive_time().unwrap().as_secs(),
            socket.tcp_keepalive_interval().unwrap().as_secs(),
            socket.tcp_keepalive_retries().unwrap(),
        )
    }
}
