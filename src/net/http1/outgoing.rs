//! A request on its way out.

use super::{Broken, Lines, Outbound, scratch, trailers};
use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, request};
use http_body::Body;
use std::error::Error;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Up to so many bytes a piece of the body is copied behind what goes out with it; a longer one goes
/// out from where it is.
const SHORT: usize = 4 << 10;

const CRLF: &[u8] = b"\r\n";

/// One request, of which nothing, a part or all has been written.
pub(super) struct Outgoing<B> {
    method: Method,
    /// Room for the fields of the answer: the request's own, emptied.
    fields: HeaderMap,
    /// What goes out next: the head, or what frames a piece, and short pieces.
    text: Vec<u8>,
    /// How much of that is out.
    at: usize,
    /// A long piece that goes out behind it.
    piece: Bytes,
    /// How much of a line end goes out behind the piece.
    line_end: &'static [u8],
    body: Option<B>,
    framing: Framing,
    /// Names that the trailers may have.
    announced: Vec<HeaderName>,
    written: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// So many bytes are still to be written.
    Length(u64),
    Chunked,
}

// === impl Outgoing ===

impl<B> Outgoing<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Of a request of which nothing is written yet.
    pub(super) fn new(outbound: Outbound<B>) -> Outgoing<B> {
        let Outbound { request, lines } = outbound;
        let (mut parts, body) = request.into_parts();
        let mut text = scratch::text();
        let framing = write_head(&parts, lines, &body, &mut text);
        let has_body = framing != Framing::Length(0);
        let announced = match framing {
            Framing::Chunked => trailers::announced(&parts.headers),
            Framing::Length(_) => Vec::new(),
        };
        parts.headers.clear();
        Outgoing {
            announced,
            method: parts.method,
            fields: parts.headers,
            text,
            at: 0,
            piece: Bytes::new(),
            line_end: b"",
            body: has_body.then_some(body),
            framing,
            written: false,
        }
    }

    /// What reading its answer takes: the request's method, and room for fields.
    pub(super) fn for_answer(&mut self) -> (&Method, &mut HeaderMap) {
        (&self.method, &mut self.fields)
    }

    /// Whether anything of it may have reached the peer.
    pub(super) fn is_written(&self) -> bool {
        self.written
    }

    /// Whether all of it is out.
    pub(super) fn is_out(&self) -> bool {
        self.body.is_none() && !self.has_left()
    }

    /// Nobody takes the rest.
    pub(super) fn give_up(&mut self) {
        self.body = None;
        self.at = self.text.len();
        self.piece = Bytes::new();
        self.line_end = b"";
    }

    fn has_left(&self) -> bool {
        self.at < self.text.len() || self.piece.has_remaining() || !self.line_end.is_empty()
    }

    /// Writes as much as there is, and goes.
    pub(super) fn poll<S>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>>
    where
        S: AsyncWrite + Unpin,
    {
        loop {
            // More of the body is taken while it is short, so that it goes out with what is there.
            let waits = match self.poll_piece(cx) {
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => true,
            };
            while self.has_left() {
                let written = ready!(self.poll_write(stream, cx)).map_err(Broken::Io)?;
                if written == 0 {
                    return Poll::Ready(Err(Broken::Io(io::ErrorKind::WriteZero.into())));
                }
                self.written = true;
                self.advance(written);
            }
            if self.body.is_none() {
                return Pin::new(stream).poll_flush(cx).map_err(Broken::Io);
            }
            if waits {
                // TLS may hold back what it was given.
                ready!(Pin::new(stream).poll_flush(cx)).map_err(Broken::Io)?;
                return Poll::Pending;
            }
        }
    }

    /// Takes pieces of the body as long as there is room for them; pending when there are none.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while let Some(body) = &mut self.body {
            if self.piece.has_remaining()
                || !self.line_end.is_empty()
                || self.text.len() - self.at > SHORT
            {
                break;
            }
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.take(data)?,
                    Err(frame) => {
                        let trailers = frame.into_trailers().ok();
                        self.end(trailers.as_ref())?;
                    }
                },
                Some(Err(error)) => {
                    self.body = None;
                    return Poll::Ready(Err(Broken::RequestBody(error.into())));
                }
                None => self.end(None)?,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, data: Bytes) -> Result<(), Broken> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            Framing::Length(left) => {
                *left = left
                    .checked_sub(data.len() as u64)
                    .ok_or_else(|| wrong_length("longer"))?;
                if *left == 0 {
                    self.body = None;
                }
            }
            Framing::Chunked => {
                let size = data.len();
                let _ = write!(self.text, "{size:x}\r\n");
            }
        }
        let chunked = self.framing == Framing::Chunked;
        if data.len() <= SHORT {
            self.text.extend_from_slice(&data);
            if chunked {
                self.text.extend_from_slice(CRLF);
            }
        } else {
            self.piece = data;
            self.line_end = if chunked { CRLF } else { b"" };
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Broken> {
        self.body = None;
        match self.framing {
            Framing::Length(0) => Ok(()),
            Framing::Length(_) => Err(wrong_length("shorter")),
            Framing::Chunked => {
                self.text.extend_from_slice(b"0\r\n");
                let fields = trailers.into_iter().flat_map(HeaderMap::iter);
                for (name, value) in fields.filter(|(name, _)| self.announced.contains(name)) {
                    write_field(name, value.as_bytes(), &mut self.text);
                }
                self.text.extend_from_slice(CRLF);
                Ok(())
            }
        }
    }

    fn poll_write<S>(&self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        let text = self.text.get(self.at..).unwrap_or_default();
        let stream = Pin::new(stream);
        if self.piece.is_empty() && self.line_end.is_empty() {
            return stream.poll_write(cx, text);
        }
        let all = [text, &self.piece, self.line_end].map(IoSlice::new);
        if stream.is_write_vectored() {
            return stream.poll_write_vectored(cx, &all);
        }
        let first = all.iter().find(|part| !part.is_empty());
        stream.poll_write(cx, first.map_or(b"", |part| part))
    }

    fn advance(&mut self, written: usize) {
        let of_text = written.min(self.text.len() - self.at);
        self.at += of_text;
        let of_piece = (written - of_text).min(self.piece.len());
        self.piece.advance(of_piece);
        let of_end = written - of_text - of_piece;
        self.line_end = self.line_end.get(of_end..).unwrap_or_default();
        if !self.has_left() {
            self.piece = Bytes::new();
            self.at = 0;
            if self.body.is_none() {
                scratch::give_back(std::mem::take(&mut self.text));
            } else {
                self.text.clear();
            }
        }
    }
}

fn wrong_length(how: &str) -> Broken {
    Broken::RequestBody(format!("it is {how} than its Content-Length").into())
}

/// Writes a head, and tells how it says that the body is framed.
fn write_head<B: Body>(
    parts: &request::Parts,
    lines: Lines,
    body: &B,
    text: &mut Vec<u8>,
) -> Framing {
    text.extend_from_slice(parts.method.as_str().as_bytes());
    text.push(b' ');
    let target = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if target.is_empty() || target.starts_with('?') {
        text.push(b'/');
    }
    text.extend_from_slice(target.as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let is_empty = body.is_end_stream();
    let (mut is_coded, mut length) = (false, None);
    for (name, value) in &parts.headers {
        if *name == TRANSFER_ENCODING {
            is_coded = true;
            // A coding without a body would announce one.
            if is_empty {
                continue;
            }
        } else if *name == CONTENT_LENGTH && length.is_none() {
            length = Some(value);
        }
        write_field(name, value.as_bytes(), text);
    }
    lines.write(text);
    let (framing, is_said) = if is_empty {
        (Framing::Length(0), true)
    } else if is_coded {
        (Framing::Chunked, true)
    } else {
        let said = length.and_then(|value| value.to_str().ok()?.parse().ok());
        match (said, body.size_hint().exact()) {
            (Some(length), _) => (Framing::Length(length), true),
            (None, Some(length)) => (Framing::Length(length), false),
            (None, None) => (Framing::Chunked, false),
        }
    };
    match framing {
        _ if is_said => {}
        Framing::Chunked => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Length(bytes) => {
            let _ = write!(text, "content-length: {bytes}\r\n");
        }
    }
    text.extend_from_slice(CRLF);
    framing
}

pub(super) fn write_field(name: &HeaderName, value: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(CRLF);
}
