//! Listening sockets, and what every connected socket gets.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::net::TcpStream;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// After this much silence the kernel asks whether the peer is still there.
const PROBED_AFTER: Duration = Duration::from_secs(30);

/// Between two probes that nobody answers.
const BETWEEN_PROBES: Duration = Duration::from_secs(10);

/// So many without an answer end the connection: a minute after the last byte.
const PROBES: u32 = 3;

/// Whether accepted sockets have the options of the listening one.
const ACCEPTED_INHERIT: bool = cfg!(target_os = "linux");

/// Binds a listening socket, ready to be handed to a runtime.
///
/// # Errors
/// What the system says: address in use, no permission, not an address of this machine.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if ACCEPTED_INHERIT {
        set_options(&socket);
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// No delay (an event must leave when it is written) and kernel keep-alive probes.
pub fn prepare(stream: &TcpStream) {
    set_options(&SockRef::from(stream));
}

/// The same of an accepted socket. Where it has them from the listening one, which one look tells (not
/// every system that calls itself Linux hands them on), the five calls are saved.
pub fn prepare_accepted(stream: &TcpStream) {
    if !ACCEPTED_INHERIT || !has_options(&SockRef::from(stream)) {
        prepare(stream);
    }
}

/// Has the kernel take no more than so many bytes before they can be sent (`TCP_NOTSENT_LOWAT`), so that
/// whoever writes waits for a peer that reads nothing, rather than the kernel's buffers.
pub fn keep_little_unsent(stream: &TcpStream, bytes: u32) {
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(bytes);
}

/// One of them stands for all: no system has it by itself.
fn has_options(socket: &Socket) -> bool {
    socket.keepalive().unwrap_or(false)
}

/// A socket that refuses an option still works, so failures are not errors.
fn set_options(socket: &Socket) {
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(
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

    #[tokio::test]
    async fn a_peer_that_vanishes_is_found_within_a_minute_on_both_sides() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialled = dial("127.0.0.1", port, Duration::from_secs(10))
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(has_options(&SockRef::from(&accepted)), ACCEPTED_INHERIT);
        prepare_accepted(&accepted);
        for (side, stream) in [("accepted", accepted), ("dialled", dialled)] {
            assert_eq!(probes(&stream), (true, 30, 10, 3), "{side}");
            assert!(stream.nodelay().unwrap(), "{side}");
        }
    }

    #[tokio::test]
    async fn so_it_is_where_somebody_else_has_bound_the_listener() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _dialled = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(!has_options(&SockRef::from(&accepted)));
        prepare_accepted(&accepted);
        assert_eq!(probes(&accepted), (true, 30, 10, 3));
        assert!(accepted.nodelay().unwrap());
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
