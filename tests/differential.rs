//! Generated requests, sent to a recording router directly and through kvgauge: what the router reads,
//! and what the client reads, is the same but for what is documented, which stands in `documented_…`
//! below. Raw sockets and an own strict reader on both ends.
//!
//! `KVGAUGE_SEED=7 KVGAUGE_CASES=20000` plays others, and more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Setup;
use support::rng::Rng;

// --- Chance --------------------------------------------------------------------------------------

/// What a case is made of, by chance.
struct Chance(Rng);

impl Chance {
    fn of(seed: u64, case: usize, what: u64) -> Self {
        let mixed = seed ^ (case as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (what << 56);
        let mut rng = Rng::new(mixed);
        Self(rng.split())
    }

    /// Below `n`.
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.0.below(n as u64)).unwrap()
    }

    fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Mostly small, sometimes up to a megabyte.
    fn size(&mut self) -> usize {
        match self.below(100) {
            0..20 => 0,
            20..75 => self.below(2_000),
            75..96 => self.below(40_000),
            _ => self.below(1_000_000),
        }
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(n + 8);
        while bytes.len() < n {
            bytes.extend_from_slice(&self.0.next().to_le_bytes());
        }
        bytes.truncate(n);
        bytes
    }

    /// A field's value: visible, with blanks inside, and bytes beyond ASCII.
    fn value(&mut self) -> Vec<u8> {
        let length = self.below(24);
        let mut value: Vec<u8> = (0..length)
            .map(|_| match self.below(20) {
                0 => b' ',
                1 => b'\t',
                2 => 0x80 + self.0.below(0x80) as u8,
                _ => 0x21 + self.0.below(0x5E) as u8,
            })
            .collect();
        while value.first().is_some_and(u8::is_ascii_whitespace) {
            value.remove(0);
        }
        while value.last().is_some_and(u8::is_ascii_whitespace) {
            value.pop();
        }
        value
    }

    /// Cuts bytes into pieces, each to be written by itself.
    fn cut(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() && pieces.len() < 6 && self.percent(40) {
            let (piece, more) = rest.split_at(self.below(rest.len() + 1));
            pieces.push(piece.to_vec());
            rest = more;
        }
        pieces.push(rest.to_vec());
        pieces
    }
}

// --- Messages ------------------------------------------------------------------------------------

type Field = (String, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Length,
    Chunked,
    Close,
}

/// A message as its reader sees it: names in lower case, in an order that depends on the names alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    start: String,
    fields: Vec<Field>,
    framing: Framing,
    body: Vec<u8>,
    trailers: Vec<Field>,
}

impl View {
    fn sort(&mut self) {
        self.fields.sort_by(|a, b| a.0.cmp(&b.0));
        self.trailers.sort_by(|a, b| a.0.cmp(&b.0));
    }

    fn all(&self, name: &str) -> Vec<Vec<u8>> {
        let same = self.fields.iter().filter(|field| field.0 == name);
        same.map(|field| field.1.clone()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.0 == name)
    }

    fn remove(&mut self, name: &str) {
        self.fields.retain(|field| field.0 != name);
    }

    fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
    }

    /// All members of a list, in lower case.
    fn list(&self, name: &str) -> Vec<String> {
        let lines = self.all(name).join(&b","[..]);
        let text = String::from_utf8_lossy(&lines).to_ascii_lowercase();
        let members = text.split(',').map(|member| member.trim().to_owned());
        members.filter(|member| !member.is_empty()).collect()
    }
}

/// A socket with what was read from it and not used.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 65536];
        match self.stream.read(&mut piece)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            n => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(())
            }
        }
    }

    fn write(&mut self, pieces: &[Vec<u8>]) -> io::Result<()> {
        pieces
            .iter()
            .try_for_each(|piece| self.stream.write_all(piece))
    }

    /// A line, which ends with CR LF and holds neither.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return match line.strip_suffix(b"\r\n") {
                    Some(line) if !line.contains(&b'\r') => Ok(line.to_vec()),
                    _ => Err(wrong(format!("a line that ends oddly: {line:?}"))),
                };
            }
            self.fill()?;
        }
    }

    fn exactly(&mut self, n: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < n {
            self.fill()?;
        }
        Ok(self.buffer.drain(..n).collect())
    }

    fn fields(&mut self) -> io::Result<Vec<Field>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let colon = line.iter().position(|b| *b == b':').unwrap_or(0);
            let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
            let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
            let text = |b: &u8| *b == b'\t' || (*b >= b' ' && *b != 0x7F);
            if name.is_empty() || !name.iter().all(token) || !value.iter().all(text) {
                return Err(wrong(format!("a field that is none: {line:?}")));
            }
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            fields.push((name, value.trim_ascii().to_vec()));
        }
    }

    /// The head, with what its framing fields say taken out of the fields.
    fn head(&mut self, other: Framing) -> io::Result<(View, usize)> {
        let start = String::from_utf8_lossy(&self.line()?).into_owned();
        let mut view = View {
            start,
            fields: self.fields()?,
            framing: other,
            body: Vec::new(),
            trailers: Vec::new(),
        };
        let (codings, lengths) = (view.all("transfer-encoding"), view.all("content-length"));
        let mut length = 0;
        match (codings.as_slice(), lengths.as_slice()) {
            ([], []) => {}
            ([coding], []) if coding == b"chunked" => view.framing = Framing::Chunked,
            ([], [digits]) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
                length = std::str::from_utf8(digits).unwrap().parse().unwrap();
                view.framing = Framing::Length;
            }
            _ => return Err(wrong(format!("framing in doubt: {codings:?} {lengths:?}"))),
        }
        view.remove("transfer-encoding");
        Ok((view, length))
    }

    fn body(&mut self, view: &mut View, length: usize) -> io::Result<()> {
        match view.framing {
            Framing::None => {}
            Framing::Length => view.body = self.exactly(length)?,
            Framing::Chunked => {
                loop {
                    let line = self.line()?;
                    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
                    let digits = std::str::from_utf8(digits).unwrap_or("?");
                    let size = usize::from_str_radix(digits, 16)
                        .map_err(|_| wrong(format!("a chunk size that is none: {line:?}")))?;
                    if size == 0 {
                        break;
                    }
                    view.body.extend(self.exactly(size)?);
                    if self.exactly(2)? != b"\r\n" {
                        return Err(wrong("a chunk of another size"));
                    }
                }
                view.trailers = self.fields()?;
            }
            Framing::Close => loop {
                view.body.append(&mut self.buffer);
                match self.fill() {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                    other => other?,
                }
            },
        }
        Ok(())
    }
}

/// What ends the head's fields, in whichever way it says where the body ends.
fn framed(
    chance: &mut Chance,
    framing: Framing,
    body: &[u8],
    trailers: &[Field],
) -> (Vec<u8>, Vec<u8>) {
    match framing {
        Framing::None | Framing::Close => (b"\r\n".to_vec(), body.to_vec()),
        Framing::Length => {
            let field = format!("Content-Length: {}\r\n\r\n", body.len());
            (field.into_bytes(), body.to_vec())
        }
        Framing::Chunked => {
            let mut bytes = Vec::new();
            let mut rest = body;
            while !rest.is_empty() {
                let most = if chance.percent(50) { 64 } else { 20_000 };
                let (chunk, more) = rest.split_at((1 + chance.below(most)).min(rest.len()));
                let size = chunk.len();
                let line = match chance.below(4) {
                    0 => format!("{size:X}"),
                    1 => format!("{size:05x}"),
                    2 => format!("{size:x};a=\"b c\";d"),
                    _ => format!("{size:x}"),
                };
                bytes.extend_from_slice(line.as_bytes());
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
                rest = more;
            }
            bytes.extend_from_slice(b"0\r\n");
            for (name, value) in trailers {
                bytes.extend_from_slice(&line_of(name, value));
            }
            bytes.extend_from_slice(b"\r\n");
            (b"Transfer-Encoding: chunked\r\n\r\n".to_vec(), bytes)
        }
    }
}

fn line_of(name: &str, value: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", value, b"\r\n"].concat()
}

// --- Cases ---------------------------------------------------------------------------------------

struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
    method: String,
    is_old: bool,
    /// Waits for 100 before it sends the body.
    asks_leave: bool,
    takes_trailers: bool,
}

struct Answer {
    pieces: Vec<Vec<u8>>,
    /// The end of the connection is the body's, or the answer says that it ends.
    closes: bool,
}

const METHODS: [&str; 10] = [
    "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "M-SEARCH",
];

fn target(chance: &mut Chance) -> String {
    const ODD: &[u8] = b"abcXYZ019-._~!$&'()*+,;=:@%/|{}^";
    let mut path = chance
        .one(&["/", "//", "/v1/chat/completions", "/v1/models", "/a/../b"])
        .to_owned();
    for _ in 0..chance.below(12) {
        path.push(char::from(ODD[chance.below(ODD.len())]));
    }
    if chance.percent(40) {
        path.push('?');
        for _ in 0..chance.below(16) {
            path.push(char::from(ODD[chance.below(ODD.len())]));
        }
        if chance.percent(20) {
            path.push_str("?\u{e4}");
        }
    }
    path
}

fn request(seed: u64, case: usize) -> Request {
    let chance = &mut Chance::of(seed, case, 1);
    let method = chance.one(&METHODS);
    let is_old = chance.percent(12);
    let host = chance.one(&["k.test", "K.test:8080", "[::1]:80", "127.0.0.1"]);
    let mut target = target(chance);
    if method == "OPTIONS" && chance.percent(40) {
        "*".clone_into(&mut target);
    } else if chance.percent(8) {
        target = format!("http://{host}{target}");
    }
    let version = if is_old { "1.0" } else { "1.1" };
    let mut fields: Vec<Field> = Vec::new();
    let mut field = |name: &str, value: &[u8]| fields.push((name.to_owned(), value.to_vec()));
    if !is_old || chance.percent(50) {
        field("Host", host.as_bytes());
    }
    field("X-Case", case.to_string().as_bytes());
    for _ in 0..chance.below(9) {
        match chance.below(18) {
            0 => field("Cookie", b"a=1; b=\"2\""),
            1 => field("Authorization", b"Bearer sk-\x7e"),
            2 => field(
                "Accept-Encoding",
                chance.one(&["gzip", "identity", "br, gzip"]).as_bytes(),
            ),
            3 => field(
                "Content-Encoding",
                chance.one(&["gzip", "identity", "x"]).as_bytes(),
            ),
            4 => field(
                "Content-Type",
                chance
                    .one(&["application/json", "text/plain; a=\"b\""])
                    .as_bytes(),
            ),
            5 => field(
                "X-Request-Id",
                chance.one(&["good-1", "not good", "", "\u{e4}"]).as_bytes(),
            ),
            6 => field("X-KV-Usage", b"fake"),
            7 => field(
                "X-Forwarded-For",
                chance.one(&["192.0.2.1", "192.0.2.2, ::1"]).as_bytes(),
            ),
            8 => field("X-Forwarded-Proto", b"https"),
            9 => field("Origin", b"http://app.test"),
            10 => field("X_odd!#$%&'*+.^`|~", &chance.value()),
            11 => field("User-Agent", &chance.value()),
            12 => field("Keep-Alive", b"timeout=5"),
            13 => {
                field("Connection", b"X-Hop");
                field("X-Hop", &chance.value());
            }
            14 => field(
                "traceparent",
                b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
            _ => field(chance.one(&["X-A", "x-b", "X-C"]), &chance.value()),
        }
    }
    let takes_trailers = chance.percent(30);
    if takes_trailers {
        field(
            "TE",
            chance.one(&["trailers", "gzip;q=0.5, trailers"]).as_bytes(),
        );
        field("Connection", b"TE");
    } else if chance.percent(5) {
        field("TE", b"deflate");
    }
    let framing = match chance.below(10) {
        0..4 => Framing::None,
        4..8 => Framing::Length,
        _ if is_old => Framing::Length,
        _ => Framing::Chunked,
    };
    let body = if framing == Framing::None {
        Vec::new()
    } else {
        let size = chance.size();
        chance.bytes(size)
    };
    let mut trailers = Vec::new();
    if framing == Framing::Chunked && chance.percent(30) {
        field("Trailer", b"X-Sum, x-sig");
        trailers = vec![
            ("X-Sum".to_owned(), chance.value()),
            ("x-sig".to_owned(), chance.value()),
        ];
    }
    let asks_leave = !is_old && !body.is_empty() && chance.percent(8);
    if asks_leave {
        field("Expect", b"100-continue");
    }
    if chance.percent(8) {
        field(
            "Connection",
            chance.one(&["close", "keep-alive"]).as_bytes(),
        );
    }
    let mut head = format!("{method} {target} HTTP/{version}\r\n").into_bytes();
    for (name, value) in &fields {
        head.extend_from_slice(&line_of(name, value));
    }
    let (end_of_head, body) = framed(chance, framing, &body, &trailers);
    head.extend_from_slice(&end_of_head);
    Request {
        head,
        body,
        method: method.to_owned(),
        is_old,
        asks_leave,
        takes_trailers,
    }
}

/// A body, and the fields that say what it is.
fn content(chance: &mut Chance) -> (Vec<u8>, Vec<Field>) {
    let field = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    let size = chance.size();
    let text = |n: usize| {
        let mut events = String::new();
        for n in 0..n / 60 + 1 {
            let _ = write!(
                events,
                "data: {{\"model\":\"m\",\"choices\":[{{\"delta\":{{\"content\":\"{n}\"}}}}]}}\n\n"
            );
        }
        events.push_str("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n");
        events.into_bytes()
    };
    match chance.below(4) {
        0 => (
            text(size.min(40_000)),
            vec![field("content-type", "text/event-stream")],
        ),
        1 => {
            let level = flate2::Compression::fast();
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
            packer.write_all(&text(size.min(40_000))).unwrap();
            let kind = chance.one(&["text/event-stream", "application/json"]);
            let fields = vec![
                field("content-type", kind),
                field("content-encoding", "gzip"),
            ];
            (packer.finish().unwrap(), fields)
        }
        2 => {
            let body = b"{\"model\":\"m\",\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
            (
                body.to_vec(),
                vec![field("Content-Type", "application/json")],
            )
        }
        _ => (chance.bytes(size), Vec::new()),
    }
}

/// What the router answers; made by both of its instances alike.
fn answer(seed: u64, case: usize, method: &str, is_pipelined: bool) -> Answer {
    let chance = &mut Chance::of(seed, case, 2);
    let status = match chance.below(20) {
        0 => "204 No Content",
        1 => "304 Not Modified",
        2 => "404 Not Found",
        3 => "429 Too Many Requests",
        4 => "503 ",
        5 => "299 An odd one",
        6 => "201 Created",
        _ => "200 OK",
    };
    let mut bytes = Vec::new();
    if chance.percent(8) {
        bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    }
    let (mut body, mut fields) = content(chance);
    let mut field = |name: &str, value: &[u8]| fields.push((name.to_owned(), value.to_vec()));
    for _ in 0..chance.below(8) {
        match chance.below(14) {
            0 => field("Set-Cookie", b"a=1; Path=/"),
            1 => field("Set-Cookie", b"b=\"2\""),
            2 => field("Vary", b"Origin"),
            3 => field("Access-Control-Allow-Origin", b"*"),
            4 => field(
                "Access-Control-Expose-Headers",
                chance.one(&["x-a", "*"]).as_bytes(),
            ),
            5 => field("X-KV-Usage", b"fake"),
            6 => field("X-KV-Pools", b"fake"),
            7 => field("x-request-id", b"theirs"),
            8 => field("Server", b"uvicorn"),
            9 => field("Date", b"Mon, 01 Jan 2029 00:00:00 GMT"),
            10 => {
                field("Connection", b"x-hop");
                field("X-Hop", &chance.value());
                field("Keep-Alive", b"timeout=5");
            }
            11 => field("Retry-After", b"30"),
            _ => field(chance.one(&["X-A", "x-b", "ETag"]), &chance.value()),
        }
    }
    // One answer in one of these ways: a page is not read twice.
    fields.sort_by_key(|(name, _)| name == "x-request-id");
    while fields
        .iter()
        .filter(|(name, _)| name == "x-request-id")
        .count()
        > 1
    {
        fields.pop();
    }
    let is_bodiless = status.starts_with("204") || status.starts_with("304") || method == "HEAD";
    let mut framing = match chance.below(10) {
        0..4 => Framing::Length,
        4..8 => Framing::Chunked,
        _ => Framing::Close,
    };
    if framing == Framing::Close && (is_pipelined || is_bodiless) {
        framing = Framing::Length;
    }
    let mut trailers = Vec::new();
    if framing == Framing::Chunked && !is_bodiless && chance.percent(40) {
        fields.push(("Trailer".to_owned(), b"x-sum".to_vec()));
        trailers.push(("X-Sum".to_owned(), chance.value()));
    }
    // HTTP/1.0 knows no chunks, and of its connection the answer is the last.
    let is_old = framing != Framing::Chunked && !is_pipelined && chance.percent(10);
    let version = if is_old { "1.0" } else { "1.1" };
    bytes.extend_from_slice(format!("HTTP/{version} {status}\r\n").as_bytes());
    for (name, value) in &fields {
        bytes.extend_from_slice(&line_of(name, value));
    }
    if is_bodiless {
        // What it would have been long.
        let says_length = method == "HEAD" || status.starts_with("304");
        if says_length && framing == Framing::Length {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        body.clear();
        framing = Framing::None;
    }
    let (end_of_head, body) = framed(chance, framing, &body, &trailers);
    bytes.extend_from_slice(&end_of_head);
    bytes.extend_from_slice(&body);
    Answer {
        pieces: chance.cut(&bytes),
        closes: is_old || framing == Framing::Close,
    }
}

// --- The router ----------------------------------------------------------------------------------

struct Router {
    address: SocketAddr,
    seen: Arc<Mutex<HashMap<usize, View>>>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Router {
    fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let router = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            faults: Arc::default(),
        };
        let (seen, faults) = (Arc::clone(&router.seen), Arc::clone(&router.faults));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, faults) = (Arc::clone(&seen), Arc::clone(&faults));
                std::thread::spawn(move || {
                    let mut wire = Wire::new(stream);
                    loop {
                        match one(&mut wire, seed, &seen) {
                            Ok(true) => {}
                            Ok(false) => break,
                            Err(error) => {
                                if error.kind() == ErrorKind::InvalidData {
                                    faults.lock().unwrap().push(error.to_string());
                                }
                                break;
                            }
                        }
                    }
                });
            }
        });
        router
    }
}

/// Reads a request and answers it; whether another may follow.
fn one(wire: &mut Wire, seed: u64, seen: &Mutex<HashMap<usize, View>>) -> io::Result<bool> {
    let (mut view, length) = wire.head(Framing::None)?;
    let case = view.all("x-case").concat();
    let case: usize = String::from_utf8_lossy(&case)
        .parse()
        .map_err(|_| wrong(format!("a request of no case: {view:?}")))?;
    if view.has("expect") {
        wire.write(&[b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()])?;
    }
    wire.body(&mut view, length)?;
    view.sort();
    let method = view.start.split(' ').next().unwrap_or_default().to_owned();
    let is_old = view.start.ends_with("HTTP/1.0");
    let leaves = view.list("connection").contains(&"close".to_owned());
    if let Some(twice) = seen.lock().unwrap().insert(case, view) {
        return Err(wrong(format!("case {case} came twice: {twice:?}")));
    }
    let answer = answer(seed, case, &method, is_pipelined(seed, case));
    wire.write(&answer.pieces)?;
    Ok(!answer.closes && !leaves && !is_old)
}

// --- The client ----------------------------------------------------------------------------------

/// Whether a case is sent behind the one before it without waiting for that one's answer, or the other
/// way round.
fn is_pipelined(seed: u64, case: usize) -> bool {
    Chance::of(seed, case / 4, 3).percent(25)
}

struct Client {
    address: SocketAddr,
    wire: Option<Wire>,
}

impl Client {
    fn wire(&mut self) -> &mut Wire {
        let address = self.address;
        self.wire
            .get_or_insert_with(|| Wire::new(TcpStream::connect(address).unwrap()))
    }

    fn send(&mut self, chance: &mut Chance, request: &Request) -> io::Result<()> {
        let wire = self.wire();
        if request.asks_leave {
            wire.write(std::slice::from_ref(&request.head))?;
            let (interim, _) = wire.head(Framing::None)?;
            if !interim.start.starts_with("HTTP/1.1 100 ") {
                return Err(wrong(format!("no leave to send: {}", interim.start)));
            }
            return wire.write(&chance.cut(&request.body));
        }
        let bytes = [request.head.as_slice(), &request.body].concat();
        wire.write(&chance.cut(&bytes))
    }

    fn receive(&mut self, request: &Request) -> io::Result<View> {
        let wire = self.wire();
        let (mut view, length) = loop {
            let (view, length) = wire.head(Framing::Close)?;
            let status = view.start.split(' ').nth(1).unwrap_or_default();
            if !status.starts_with('1') {
                break (view, length);
            }
        };
        let status = view.start.split(' ').nth(1).unwrap_or_default();
        if request.method == "HEAD" || matches!(status, "204" | "304") {
            view.framing = Framing::None;
        }
        wire.body(&mut view, length)?;
        let connection = view.list("connection");
        let says = |word: &str| connection.iter().any(|member| member == word);
        let is_old = request.is_old || view.start.starts_with("HTTP/1.0");
        let asked = String::from_utf8_lossy(&request.head).to_ascii_lowercase();
        let leaves = asked.contains("connection: close\r\n");
        if view.framing == Framing::Close
            || says("close")
            || leaves
            || (is_old && !says("keep-alive"))
        {
            // The other side ends the connection, and sends nothing more.
            match wire.fill() {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                other => return Err(wrong(format!("not the end of the connection: {other:?}"))),
            }
            self.wire = None;
        }
        view.sort();
        Ok(view)
    }

    /// Plays cases that belong together.
    fn play(&mut self, seed: u64, cases: &[usize], requests: &[Request]) -> Vec<io::Result<View>> {
        let mut views = Vec::new();
        let mut chance = Chance::of(seed, cases[0], 4);
        if is_pipelined(seed, cases[0]) {
            let sent = requests
                .iter()
                .try_for_each(|request| self.send(&mut chance, request));
            for request in requests {
                views.push(self.receive(request));
            }
            if let Err(error) = sent {
                views[0] = Err(error);
            }
        } else {
            for request in requests {
                let view = self
                    .send(&mut chance, request)
                    .and_then(|()| self.receive(request));
                views.push(view);
            }
        }
        views
    }
}

// --- What is documented --------------------------------------------------------------------------

const OF_ONE_HOP: [&str; 6] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "upgrade",
    "transfer-encoding",
];

fn remove_hop(view: &mut View) {
    let named = view.list("connection");
    view.fields
        .retain(|(name, _)| !named.contains(name) && !OF_ONE_HOP.contains(&name.as_str()));
}

/// What kvgauge makes of a request that the router read directly so.
fn documented_request(direct: &View, router: SocketAddr, request_id: &[u8]) -> View {
    let mut view = direct.clone();
    let takes_trailers = view.list("te").iter().any(|coding| coding == "trailers");
    remove_hop(&mut view);
    if takes_trailers {
        view.add("te", "trailers");
        view.add("connection", "te");
    }
    for name in ["expect", "x-kv-usage", "x-kv-pools", "x-request-id"] {
        view.remove(name);
    }
    view.add("x-request-id", request_id);
    // Origin form, in HTTP/1.1; the target's authority becomes the Host.
    let words: Vec<&str> = direct.start.split(' ').collect();
    let mut target = words[1];
    if let Some(rest) = target.strip_prefix("http://") {
        let path = rest.find('/').unwrap();
        target = &rest[path..];
        view.remove("host");
        view.add("host", &rest[..path]);
    }
    view.start = format!("{} {target} HTTP/1.1", words[0]);
    if !view.has("host") {
        view.add("host", router.to_string());
    }
    // The client is trusted, as it is of this machine.
    let mut chain = view.all("x-forwarded-for");
    chain.push(b"127.0.0.1".to_vec());
    view.remove("x-forwarded-for");
    view.add("x-forwarded-for", chain.join(&b", "[..]));
    if !view.has("x-forwarded-proto") {
        view.add("x-forwarded-proto", "http");
    }
    let host = view.all("host").concat();
    view.add("x-forwarded-host", host);
    view.sort();
    view
}

/// What kvgauge makes of an answer that the client read directly so.
fn documented_answer(
    direct: &View,
    request: &Request,
    has_origin: bool,
    request_id: &[u8],
) -> View {
    let mut view = direct.clone();
    remove_hop(&mut view);
    view.remove("x-kv-usage");
    view.remove("x-kv-pools");
    if !view.has("x-request-id") {
        view.add("x-request-id", request_id);
    }
    if has_origin
        && view.has("access-control-allow-origin")
        && !view
            .list("access-control-expose-headers")
            .contains(&"*".to_owned())
    {
        view.add("access-control-expose-headers", "x-kv-usage, x-kv-pools");
    }
    let status = direct.start.split_once(' ').unwrap().1.to_owned();
    let version = if request.is_old { "1.0" } else { "1.1" };
    view.start = format!("HTTP/{version} {status}");
    match (view.framing, request.is_old) {
        (Framing::Chunked | Framing::Close, true) => view.framing = Framing::Close,
        (Framing::Close, false) => view.framing = Framing::Chunked,
        _ => {}
    }
    if status.starts_with("304") && request.method != "HEAD" {
        view.remove("content-length");
    }
    if request.is_old {
        view.remove("trailer");
    }
    if request.is_old || !request.takes_trailers {
        view.trailers.clear();
    }
    view.sort();
    view
}

/// The id that the router must see; what the client sent, or, where that is no id, what it did see.
fn request_id(direct: &View, through: &View) -> Vec<u8> {
    let sent = direct.all("x-request-id");
    match sent.first() {
        Some(id) if !id.is_empty() && id.iter().all(u8::is_ascii_graphic) => id.clone(),
        _ => {
            let made = through.all("x-request-id").concat();
            assert_eq!(made.len(), 36, "an id that kvgauge made: {made:?}");
            made
        }
    }
}

// --- The comparison ------------------------------------------------------------------------------

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// The first difference, in words; bodies by length alone.
fn differs(what: &str, wanted: &View, found: &View) -> Option<String> {
    if wanted == found {
        return None;
    }
    let short = |view: &View| {
        let mut text = format!("{}\n", view.start.escape_debug());
        for (name, value) in view.fields.iter().chain(&view.trailers) {
            let _ = writeln!(text, "{name}: {}", value.escape_ascii());
        }
        let _ = write!(text, "{:?}, {} bytes", view.framing, view.body.len());
        text
    };
    Some(format!(
        "{what} differs\n--- documented\n{}\n--- through kvgauge\n{}",
        short(wanted),
        short(found)
    ))
}

#[test]
fn what_passes_is_the_same_on_both_sides_but_for_what_is_documented() {
    const THREADS: usize = 4;
    let seed = number("KVGAUGE_SEED", 20_261_130);
    let count = usize::try_from(number("KVGAUGE_CASES", 2_000)).unwrap();
    println!("KVGAUGE_SEED={seed} KVGAUGE_CASES={count}");
    let (direct, behind) = (Router::start(seed), Router::start(seed));
    let mut kvgauge = Setup::new(behind.address).start();
    let wrong = Mutex::new(Vec::new());
    let groups: Vec<Vec<usize>> = (0..count)
        .collect::<Vec<_>>()
        .chunks(4)
        .map(<[usize]>::to_vec)
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (direct, behind, wrong, groups) = (&direct, &behind, &wrong, &groups);
            let through = kvgauge.listen;
            scope.spawn(move || {
                let mut clients = [direct.address, through].map(|address| Client {
                    address,
                    wire: None,
                });
                for cases in groups.iter().skip(thread).step_by(THREADS) {
                    if wrong.lock().unwrap().len() >= 5 {
                        break;
                    }
                    let requests: Vec<Request> = cases.iter().map(|case| prepared(seed, *case)).collect();
                    let [plain, proxied] = &mut clients;
                    let left = plain.play(seed, cases, &requests);
                    let right = proxied.play(seed, cases, &requests);
                    for (((case, request), left), right) in cases.iter().zip(&requests).zip(left).zip(right) {
                        if let Some(problem) = compare(direct, behind, *case, request, left, right) {
                            let answer = answer(seed, *case, &request.method, is_pipelined(seed, *case));
                            let answer = answer.pieces.concat();
                            wrong.lock().unwrap().push(format!(
                                "case {case} of seed {seed}: {problem}\n--- request\n{}\n--- answer\n{}",
                                start_of(&[request.head.as_slice(), &request.body].concat()),
                                start_of(&answer)
                            ));
                            clients.iter_mut().for_each(|client| client.wire = None);
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let faults = behind.faults.lock().unwrap().join("\n");
    assert!(
        wrong.is_empty() && faults.is_empty(),
        "{} of {count} cases differ (KVGAUGE_SEED={seed}); the first ones:\n{}\n{faults}",
        wrong.len(),
        wrong
            .iter()
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n\n")
    );
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), count, "log lines");
    for line in lines {
        assert_eq!(line["outcome"], "complete", "{line}");
    }
}

/// The request of a case; what can't be pipelined is made so that it can.
fn prepared(seed: u64, case: usize) -> Request {
    if !is_pipelined(seed, case) {
        return request(seed, case);
    }
    (0..)
        .map(|n| request(seed, case + n * 1_000_000_007))
        .find(|request| {
            let text = String::from_utf8_lossy(&request.head).to_ascii_lowercase();
            !request.is_old && !request.asks_leave && !text.contains("connection: close\r\n")
        })
        .map(|mut request| {
            let text = request.head.clone();
            let at = text
                .windows(8)
                .position(|part| part == b"X-Case: ")
                .unwrap()
                + 8;
            let end = at + text[at..].iter().position(|b| *b == b'\r').unwrap();
            request.head.splice(at..end, case.to_string().into_bytes());
            request
        })
        .unwrap()
}

fn start_of(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(3000)].escape_ascii().to_string();
    text.replace("\\r\\n", "\\r\\n\n")
}

fn compare(
    direct: &Router,
    behind: &Router,
    case: usize,
    request: &Request,
    left: io::Result<View>,
    right: io::Result<View>,
) -> Option<String> {
    let left = left.unwrap_or_else(|error| panic!("case {case}, the test's own peers: {error}"));
    let right = match right {
        Ok(right) => right,
        Err(error) => return Some(format!("no answer through kvgauge: {error}")),
    };
    let plain = direct.seen.lock().unwrap().remove(&case).unwrap();
    let Some(proxied) = behind.seen.lock().unwrap().remove(&case) else {
        return Some(format!(
            "the router has seen nothing; the answer is {}",
            right.start
        ));
    };
    let id = request_id(&plain, &proxied);
    let wanted = documented_request(&plain, behind.address, &id);
    if let Some(problem) = differs("the request", &wanted, &proxied) {
        return Some(problem);
    }
    let wanted = documented_answer(&left, request, plain.has("origin"), &id);
    let mut found = right;
    if found
        .all("x-kv-usage")
        .iter()
        .chain(&found.all("x-kv-pools"))
        .any(|value| value == b"fake")
    {
        return Some("the router's own KV headers have passed".to_owned());
    }
    for name in ["x-kv-usage", "x-kv-pools", "connection"] {
        found.remove(name);
    }
    differs("the answer", &wanted, &found)
}
