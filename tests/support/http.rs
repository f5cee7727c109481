//! HTTP/1.1 messages read from a socket, byte for byte, without an opinion on what is right.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

/// A request's or response's head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// As it came, up to and including the empty line.
    pub(crate) raw: Vec<u8>,
    /// The request line or status line.
    pub(crate) start: String,
    /// Names as they came, values without the blanks around them.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
}

impl Head {
    pub(crate) fn parse(raw: &[u8]) -> Self {
        let mut lines = raw
            .split(|b| *b == b'\n')
            .map(|l| l.strip_suffix(b"\r").unwrap_or(l));
        let start = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
        let fields = lines
            .take_while(|line| !line.is_empty())
            .map(field)
            .collect();
        Self {
            raw: raw.to_vec(),
            start,
            fields,
        }
    }

    /// The status of a response; 0 where the line has none.
    pub(crate) fn status(&self) -> u16 {
        let word = self.start.split(' ').nth(1).unwrap_or_default();
        word.parse().unwrap_or(0)
    }

    /// The method of a request.
    pub(crate) fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// The target of a request, as it stands.
    pub(crate) fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// All values of a name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<Vec<u8>> {
        let same = |field: &&(String, Vec<u8>)| field.0.eq_ignore_ascii_case(name);
        self.fields
            .iter()
            .filter(same)
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// The value of a name that stands once at most.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let mut all = self.all(name);
        assert!(
            all.len() < 2,
            "{name} stands {} times in {}",
            all.len(),
            self.text()
        );
        all.pop().map(|value| String::from_utf8(value).unwrap())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    /// For messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    fn is_chunked(&self) -> bool {
        let codings = self.all("transfer-encoding");
        codings
            .iter()
            .any(|value| value.to_ascii_lowercase().ends_with(b"chunked"))
    }

    fn length(&self) -> Option<usize> {
        let value = self.all("content-length").pop()?;
        Some(std::str::from_utf8(&value).unwrap().parse().unwrap())
    }

    fn request_framing(&self) -> Framing {
        if self.is_chunked() {
            return Framing::Chunked;
        }
        self.length().map_or(Framing::Empty, Framing::Length)
    }

    fn response_framing(&self, method: &str) -> Framing {
        if method == "HEAD" || matches!(self.status(), 100..=199 | 204 | 304) {
            return Framing::Empty;
        }
        if self.is_chunked() {
            return Framing::Chunked;
        }
        self.length().map_or(Framing::Close, Framing::Length)
    }
}

fn field(line: &[u8]) -> (String, Vec<u8>) {
    let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
    let name = String::from_utf8_lossy(&line[..colon]).into_owned();
    let value = line.get(colon + 1..).unwrap_or_default();
    (name, value.trim_ascii().to_vec())
}

enum Framing {
    Empty,
    Length(usize),
    Chunked,
    Close,
}

/// How a body or connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By its framing. For a body that ends with the connection: by FIN.
    Complete,
    /// FIN before the framing said so.
    Cut,
    /// RST.
    Reset,
    /// Nothing came for the socket's read timeout.
    Silent,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent,
            ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Reset,
        }
    }
}

/// A body as it came.
#[derive(Debug)]
pub(crate) struct Body {
    /// Without the chunks' framing.
    pub(crate) bytes: Vec<u8>,
    /// With it.
    pub(crate) raw: Vec<u8>,
    /// Behind the last chunk.
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    pub(crate) end: End,
}

/// A response, complete or not.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    pub(crate) end: End,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// A socket, or bytes that came from one, with a buffer for reading messages.
pub(crate) struct Wire<R = TcpStream> {
    pub(crate) stream: R,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Makes the coming close a RST.
    pub(crate) fn reset_on_close(&self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl<'a> Wire<&'a [u8]> {
    /// Reads recorded bytes again; they end like a connection that was closed.
    pub(crate) fn recorded(bytes: &'a [u8]) -> Self {
        Self {
            stream: bytes,
            buffer: Vec::new(),
        }
    }
}

impl<R: Read> Wire<R> {
    /// Over something else than a socket.
    pub(crate) fn over(stream: R) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// What has been read but not used.
    pub(crate) fn left(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads once; an end is an error of kind `UnexpectedEof`.
    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 65536];
        let n = loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&piece[..n]);
        Ok(())
    }

    /// What one read brings, or what is left over.
    pub(crate) fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Up to and including `mark`.
    fn until(&mut self, mark: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self
                .buffer
                .windows(mark.len())
                .position(|part| part == mark)
            {
                return Ok(self.buffer.drain(..at + mark.len()).collect());
            }
            self.fill()?;
        }
    }

    pub(crate) fn exactly(&mut self, n: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < n {
            self.fill()?;
        }
        Ok(self.buffer.drain(..n).collect())
    }

    pub(crate) fn head(&mut self) -> io::Result<Head> {
        Ok(Head::parse(&self.until(b"\r\n\r\n")?))
    }

    /// The next chunk with its framing; `None` for the last one, whose trailers are left unread.
    pub(crate) fn chunk(&mut self, raw: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        let line = self.until(b"\r\n")?;
        raw.extend_from_slice(&line);
        let digits = String::from_utf8_lossy(&line);
        let digits = digits.trim().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(digits, 16)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "a chunk size"))?;
        if size == 0 {
            return Ok(None);
        }
        let mut data = self.exactly(size + 2)?;
        raw.extend_from_slice(&data);
        data.truncate(size);
        Ok(Some(data))
    }

    pub(crate) fn trailers(&mut self, raw: &mut Vec<u8>) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        loop {
            let line = self.until(b"\r\n")?;
            raw.extend_from_slice(&line);
            if line == b"\r\n" {
                return Ok(found);
            }
            found.push(field(&line[..line.len() - 2]));
        }
    }

    pub(crate) fn request_body(&mut self, head: &Head) -> Body {
        self.body(&head.request_framing())
    }

    pub(crate) fn response_body(&mut self, head: &Head, method: &str) -> Body {
        self.body(&head.response_framing(method))
    }

    fn body(&mut self, framing: &Framing) -> Body {
        let mut body = Body {
            bytes: Vec::new(),
            raw: Vec::new(),
            trailers: Vec::new(),
            end: End::Complete,
        };
        let result = match framing {
            Framing::Empty => Ok(()),
            Framing::Length(length) => self.counted(*length, &mut body),
            Framing::Chunked => self.chunked(&mut body),
            Framing::Close => self.up_to_the_end(&mut body),
        };
        if let Err(error) = result {
            body.end = error.into();
        }
        body
    }

    fn counted(&mut self, length: usize, body: &mut Body) -> io::Result<()> {
        while body.bytes.len() < length {
            if self.buffer.is_empty() {
                self.fill()?;
            }
            let n = self.buffer.len().min(length - body.bytes.len());
            body.bytes.extend(self.buffer.drain(..n));
        }
        body.raw.clone_from(&body.bytes);
        Ok(())
    }

    fn chunked(&mut self, body: &mut Body) -> io::Result<()> {
        while let Some(data) = self.chunk(&mut body.raw)? {
            body.bytes.extend(data);
        }
        body.trailers = self.trailers(&mut body.raw)?;
        Ok(())
    }

    fn up_to_the_end(&mut self, body: &mut Body) -> io::Result<()> {
        loop {
            body.bytes.append(&mut self.buffer);
            match self.fill() {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                other => other?,
            }
        }
        body.raw.clone_from(&body.bytes);
        Ok(())
    }

    /// Everything up to the connection's end, and how it ended.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, End) {
        let mut bytes = Vec::new();
        loop {
            match self.some() {
                Ok(piece) => bytes.extend(piece),
                Err(error) => return (bytes, error.into()),
            }
        }
    }
}
