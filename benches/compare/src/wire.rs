//! HTTP/1.1 as far as the bench needs it: heads, and bodies by length or in chunks.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What went wrong, in words.
pub type Fault = String;

/// Longest head, and longest line of a chunk's size.
const HEAD_LIMIT: usize = 64 * 1024;
const SIZE_LINE_LIMIT: usize = 256;
/// Room for a read: much for whoever fills what is little.
const LITTLE: usize = 16 * 1024;
const MUCH: usize = 256 * 1024;

/// A connection, and what has been read of it but not yet taken.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    held: Vec<u8>,
    taken: usize,
    room: usize,
}

/// The first lines of a message.
#[derive(Debug)]
pub struct Head(String);

/// How much of a body is still to come.
#[derive(Debug)]
pub enum Body {
    /// So many bytes.
    Length(u64),
    /// A chunk's size line comes next.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The line end behind a chunk's bytes.
    ChunkEnd,
    /// Lines behind the last chunk, up to an empty one.
    Trailer,
}

impl Head {
    /// All lines, without the empty one.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The request line or status line.
    pub fn first(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// The value of a field, its name in any case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// How the body ends; `None` where the head does not say.
    pub fn body(&self) -> Result<Option<Body>, Fault> {
        if self.field("transfer-encoding").is_some() {
            return Ok(Some(Body::Size));
        }
        match self.field("content-length") {
            None => Ok(None),
            Some(length) => match length.parse() {
                Ok(length) => Ok(Some(Body::Length(length))),
                Err(_) => Err(format!("a length that is no number: {length}")),
            },
        }
    }
}

impl Wire {
    /// Connects, without delay of small writes.
    pub async fn connect(to: SocketAddr) -> Result<Self, Fault> {
        let stream = TcpStream::connect(to)
            .await
            .map_err(|error| format!("no connection: {error}"))?;
        Self::over(stream).map_err(|error| format!("no connection: {error}"))
    }

    /// A connection that is there.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            held: Vec::new(),
            taken: 0,
            room: LITTLE,
        })
    }

    /// Writes all of it.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(|error| format!("a write failed: {error}"))
    }

    /// Ends when the other side has closed, or has sent something.
    pub async fn stirs(&self) {
        // A look, not a read; an error shows at the next read.
        let _ = self.stream.peek(&mut [0]).await;
    }

    fn rest(&self) -> &[u8] {
        &self.held[self.taken..]
    }

    /// Reads on; false at the end of the connection.
    async fn more(&mut self) -> Result<bool, Fault> {
        self.held.drain(..self.taken);
        self.taken = 0;
        self.held.reserve(self.room);
        let read = self
            .stream
            .read_buf(&mut self.held)
            .await
            .map_err(|error| format!("a read failed: {error}"))?;
        self.room = if read >= self.room { MUCH } else { LITTLE };
        Ok(read > 0)
    }

    /// The next head; `None` where the connection ends instead of one.
    pub async fn head(&mut self) -> Result<Option<Head>, Fault> {
        loop {
            if let Some(end) = memchr::memmem::find(self.rest(), b"\r\n\r\n") {
                let head = self.rest()[..end].to_vec();
                self.taken += end + 4;
                return match String::from_utf8(head) {
                    Ok(text) => Ok(Some(Head(text))),
                    Err(_) => Err("a head that is no text".into()),
                };
            }
            if self.rest().len() > HEAD_LIMIT {
                return Err("a head without an end".into());
            }
            if !self.more().await? {
                return match self.rest() {
                    [] => Ok(None),
                    _ => Err("closed within a head".into()),
                };
            }
        }
    }

    /// The next piece of the body, as it came; `None` at its end.
    pub async fn piece(&mut self, body: &mut Body) -> Result<Option<&[u8]>, Fault> {
        let piece = self.piece_at(body).await?;
        Ok(piece.map(|range| &self.held[range]))
    }

    /// Arms that got somewhere continue; the others need more.
    async fn piece_at(&mut self, body: &mut Body) -> Result<Option<Range<usize>>, Fault> {
        loop {
            match body {
                Body::Length(0) => return Ok(None),
                Body::Chunk(0) => {
                    *body = Body::ChunkEnd;
                    continue;
                }
                Body::Length(left) | Body::Chunk(left) => {
                    let there = self.held.len() - self.taken;
                    if there > 0 {
                        let part = usize::try_from(*left).unwrap_or(usize::MAX).min(there);
                        *left -= part as u64;
                        let from = self.taken;
                        self.taken += part;
                        return Ok(Some(from..self.taken));
                    }
                }
                Body::ChunkEnd => match self.rest() {
                    [b'\r', b'\n', ..] => {
                        self.taken += 2;
                        *body = Body::Size;
                        continue;
                    }
                    [] | [b'\r'] => {}
                    _ => return Err("no line end behind a chunk".into()),
                },
                Body::Size => {
                    if let Some(line) = self.line()? {
                        let size = chunk_size(&self.held[line])?;
                        *body = if size == 0 {
                            Body::Trailer
                        } else {
                            Body::Chunk(size)
                        };
                        continue;
                    }
                }
                Body::Trailer => {
                    if let Some(line) = self.line()? {
                        if line.is_empty() {
                            *body = Body::Length(0);
                        }
                        continue;
                    }
                }
            }
            if !self.more().await? {
                return Err("closed within a body".into());
            }
        }
    }

    /// Takes a line, if all of it is there.
    fn line(&mut self) -> Result<Option<Range<usize>>, Fault> {
        match memchr::memmem::find(self.rest(), b"\r\n") {
            Some(end) => {
                let line = self.taken..self.taken + end;
                self.taken += end + 2;
                Ok(Some(line))
            }
            None if self.rest().len() > SIZE_LINE_LIMIT => Err("a chunk without a size".into()),
            None => Ok(None),
        }
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, Fault> {
    let line = std::str::from_utf8(line).unwrap_or_default();
    let digits = line.split(';').next().unwrap_or_default().trim();
    u64::from_str_radix(digits, 16).map_err(|_| format!("a chunk's size that is none: {line:?}"))
}
