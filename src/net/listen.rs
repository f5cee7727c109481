//! Listening sockets, and what every connected socket gets.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A dead peer is noticed after this much silence, by probes of the kernel's.
const KEEPALIVE: Duration = Duration::from_secs(60);

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
            .with_time(KEEPALIVE)
            .with_interval(Duration::from_secs(15)),
    );
}
