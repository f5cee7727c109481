//! A client that sends the bytes it is told and reads what comes.

use super::http::{End, Head, Response, Wire};
use super::wait::PATIENCE;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct Client {
    wire: Wire,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address)
            .unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            wire: Wire::new(stream),
        })
    }

    /// One for whom the kernel keeps little of what it does not read.
    pub(crate) fn slow(address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::STREAM,
            None,
        )
        .unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            wire: Wire::new(stream),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.wire.stream.local_addr().unwrap()
    }

    /// How long a read and a write wait; else 10 s.
    pub(crate) fn patience(&mut self, time: Duration) -> &mut Self {
        self.wire.stream.set_read_timeout(Some(time)).unwrap();
        self.wire.stream.set_write_timeout(Some(time)).unwrap();
        self
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap();
        self
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.wire.stream.write_all(bytes.as_ref())
    }

    /// The next head, an interim one too.
    pub(crate) fn head(&mut self) -> Head {
        self.try_head()
            .unwrap_or_else(|end| panic!("no head: {end:?}"))
    }

    pub(crate) fn try_head(&mut self) -> Result<Head, End> {
        self.wire.head().map_err(End::from)
    }

    /// The next response to a request of this method; interim heads are passed over.
    pub(crate) fn response(&mut self, method: &str) -> Response {
        self.try_response(method)
            .unwrap_or_else(|end| panic!("no response: {end:?}"))
    }

    pub(crate) fn try_response(&mut self, method: &str) -> Result<Response, End> {
        let mut head = self.try_head()?;
        while matches!(head.status(), 100 | 102..=199) {
            head = self.try_head()?;
        }
        Ok(self.body_of(head, method))
    }

    /// The body that belongs to a head.
    pub(crate) fn body_of(&mut self, head: Head, method: &str) -> Response {
        let body = self.wire.response_body(&head, method);
        Response {
            head,
            body: body.bytes,
            trailers: body.trailers,
            end: body.end,
        }
    }

    /// The next chunk's data; `None` after the last one.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        self.try_chunk()
            .unwrap_or_else(|end| panic!("no chunk: {end:?}"))
    }

    pub(crate) fn try_chunk(&mut self) -> Result<Option<Vec<u8>>, End> {
        let chunk = self.wire.chunk(&mut Vec::new())?;
        if chunk.is_none() {
            self.wire.trailers(&mut Vec::new())?;
        }
        Ok(chunk)
    }

    /// What one read of the socket brings.
    pub(crate) fn some(&mut self) -> Result<Vec<u8>, End> {
        self.wire.some().map_err(End::from)
    }

    /// As much as this from what comes.
    pub(crate) fn exactly(&mut self, n: usize) -> Vec<u8> {
        let bytes = self.wire.exactly(n);
        bytes.unwrap_or_else(|error| panic!("fewer than {n} bytes: {error}"))
    }

    /// The socket, for a thread of its own.
    pub(crate) fn socket(&self) -> TcpStream {
        self.wire.stream.try_clone().unwrap()
    }

    /// Everything up to the connection's end.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, End) {
        self.wire.rest()
    }

    /// Whether the other side closes the connection, without a byte more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let (bytes, end) = self.wire.rest();
        bytes.is_empty() && matches!(end, End::Cut | End::Reset)
    }

    /// Sends FIN but goes on reading.
    pub(crate) fn finish(&mut self) {
        self.wire.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Leaves by RST.
    pub(crate) fn reset(self) {
        self.wire.reset_on_close();
    }

    /// Leaves by FIN.
    pub(crate) fn close(self) {}
}

/// One request on a connection of its own.
pub(crate) fn fetch(address: SocketAddr, request: impl AsRef<[u8]>) -> Response {
    let request = request.as_ref();
    let method = Head::parse(request).method().to_owned();
    Client::connect(address).send(request).response(&method)
}

/// A plain GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    fetch(
        address,
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"),
    )
}

/// The bytes of a POST of JSON.
pub(crate) fn post(path: &str, more_fields: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: k.test\r\nContent-Type: application/json\r\n\
         {more_fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
