//! A server that a script plays, in place of the router.

use super::http::{End, Head, Wire};
use super::wait::{self, PATIENCE};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: Head,
    /// Without the chunks' framing.
    pub(crate) body: Vec<u8>,
    /// With it.
    pub(crate) raw_body: Vec<u8>,
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    /// How the body ended; `None` where the script read the head alone.
    pub(crate) end: Option<End>,
    /// The connection it came on, counted from 0.
    pub(crate) connection: usize,
}

/// What a script does after its turn.
pub(crate) enum Next {
    /// Play it again on this connection.
    Again,
    /// Close by FIN.
    Close,
    /// Close by RST.
    Reset,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The script.
    Us,
    /// The other side, by FIN or RST, or a write to it failed.
    Peer,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    /// A member per connection: when and by whom it was ended.
    ended: Vec<Option<(Instant, By)>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        result
    }

    fn wait<T>(&self, what: &str, limit: Duration, look: impl Fn(&State) -> Option<T>) -> T {
        let start = Instant::now();
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(found) = look(&state) {
                return found;
            }
            let left = limit.saturating_sub(start.elapsed());
            assert!(
                !left.is_zero(),
                "not within {limit:?} at the upstream: {what}"
            );
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

/// One connection, in the hands of a script.
pub(crate) struct Connection {
    wire: Wire,
    number: usize,
    shared: Arc<Shared>,
}

impl Connection {
    /// Reads and records a request with its body.
    pub(crate) fn request(&mut self) -> io::Result<Request> {
        let head = self.wire.head()?;
        let body = self.wire.request_body(&head);
        let request = Request {
            head,
            body: body.bytes,
            raw_body: body.raw,
            trailers: body.trailers,
            end: Some(body.end),
            connection: self.number,
        };
        self.shared
            .change(|state| state.requests.push(request.clone()));
        match body.end {
            End::Complete => Ok(request),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The same, unless none has begun to come in this time: that is an error, as the end of a
    /// connection is.
    pub(crate) fn request_within(&mut self, time: Duration) -> io::Result<Request> {
        self.wire.stream.set_read_timeout(Some(time))?;
        let request = self.request();
        self.wire.stream.set_read_timeout(None)?;
        request
    }

    /// Reads and records a request's head alone.
    pub(crate) fn request_head(&mut self) -> io::Result<Head> {
        let head = self.wire.head()?;
        let request = Request {
            head: head.clone(),
            body: Vec::new(),
            raw_body: Vec::new(),
            trailers: Vec::new(),
            end: None,
            connection: self.number,
        };
        self.shared.change(|state| state.requests.push(request));
        Ok(head)
    }

    /// What one read brings of the body.
    pub(crate) fn some(&mut self) -> io::Result<Vec<u8>> {
        self.wire.some()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.wire.stream.write_all(bytes.as_ref())
    }

    /// As much as this from what comes.
    pub(crate) fn exactly(&mut self, n: usize) -> io::Result<Vec<u8>> {
        self.wire.exactly(n)
    }

    /// Everything up to the other side's end, and how it ended.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, End) {
        self.wire.rest()
    }

    /// Sends FIN but goes on reading.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.wire.stream.shutdown(std::net::Shutdown::Write)
    }

    /// The socket, for a thread of its own.
    pub(crate) fn socket(&self) -> TcpStream {
        self.wire.stream.try_clone().unwrap()
    }

    /// Sends a chunk.
    pub(crate) fn chunk(&mut self, data: impl AsRef<[u8]>) -> io::Result<()> {
        let data = data.as_ref();
        let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
        framed.extend_from_slice(data);
        framed.extend_from_slice(b"\r\n");
        self.send(framed)
    }

    /// Waits, unless the other side leaves first: that is an error.
    pub(crate) fn pause(&mut self, time: Duration) -> io::Result<()> {
        let start = Instant::now();
        while let Some(left) = time
            .checked_sub(start.elapsed())
            .filter(|left| !left.is_zero())
        {
            self.wire.stream.set_read_timeout(Some(left))?;
            let peeked = self.wire.stream.peek(&mut [0]);
            self.wire.stream.set_read_timeout(None)?;
            match peeked {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                // Something to read is no leaving, but hides one.
                Ok(_) => wait::pause(left.min(Duration::from_millis(5))),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the other side to leave.
    pub(crate) fn until_peer_leaves(&mut self) -> io::Result<()> {
        self.pause(PATIENCE * 6)
    }
}

/// The server; a thread a connection.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Upstream {
    /// Plays the script on each connection, again and again.
    pub(crate) fn new<F>(script: F) -> Self
    where
        F: Fn(&mut Connection) -> io::Result<Next> + Send + Sync + 'static,
    {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// The same where it listens already.
    pub(crate) fn on<F>(listener: TcpListener, script: F) -> Self
    where
        F: Fn(&mut Connection) -> io::Result<Next> + Send + Sync + 'static,
    {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let (script, at) = (Arc::new(script), Arc::clone(&shared));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if at.stopping.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (script, shared) = (Arc::clone(&script), Arc::clone(&at));
                std::thread::spawn(move || play(stream, shared, script.as_ref()));
            }
        });
        Self { address, shared }
    }

    /// Answers each request by what the function makes of it.
    pub(crate) fn replying<F, B>(reply: F) -> Self
    where
        F: Fn(&Request) -> B + Send + Sync + 'static,
        B: AsRef<[u8]>,
    {
        Self::new(move |connection| {
            let request = connection.request()?;
            connection.send(reply(&request))?;
            Ok(Next::Again)
        })
    }

    /// Answers each request with these bytes.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::replying(move |_| bytes.clone())
    }

    /// Answers each request with 200 and `{}`.
    pub(crate) fn ok() -> Self {
        Self::answering(OK)
    }

    /// Plays a file of `tests/data/cases`.
    pub(crate) fn case(name: &str) -> Self {
        let steps = super::steps::of_case(name);
        Self::new(move |connection| super::steps::play(&steps, connection))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has come so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// Waits for the n-th request, counted from 1.
    pub(crate) fn request(&self, n: usize) -> Request {
        let what = format!("request {n}");
        self.shared
            .wait(&what, PATIENCE, |state| state.requests.get(n - 1).cloned())
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state.lock().unwrap().ended.len()
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        let state = self.shared.state.lock().unwrap();
        state.ended.iter().filter(|ended| ended.is_none()).count()
    }

    /// Waits for a connection's end; when it came and who ended it.
    pub(crate) fn end_of(&self, connection: usize, limit: Duration) -> (Instant, By) {
        let what = format!("the end of connection {connection}");
        self.shared.wait(&what, limit, |state| {
            state.ended.get(connection).copied().flatten()
        })
    }

    /// Waits until no connection is open.
    pub(crate) fn none_open(&self, limit: Duration) {
        self.shared.wait("no open connection", limit, |state| {
            state.ended.iter().all(Option::is_some).then_some(())
        });
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// 200 and `{}`.
pub(crate) const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// The head of a streamed answer.
pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn play<F>(stream: TcpStream, shared: Arc<Shared>, script: &F)
where
    F: Fn(&mut Connection) -> io::Result<Next>,
{
    let number = shared.change(|state| {
        state.ended.push(None);
        state.ended.len() - 1
    });
    let mut connection = Connection {
        wire: Wire::new(stream),
        number,
        shared,
    };
    let by = loop {
        match script(&mut connection) {
            Ok(Next::Again) => {}
            Ok(Next::Close) => break By::Us,
            Ok(Next::Reset) => {
                connection.wire.reset_on_close();
                break By::Us;
            }
            Err(_) => break By::Peer,
        }
    };
    let Connection { wire, shared, .. } = connection;
    drop(wire);
    shared.change(|state| state.ended[number] = Some((Instant::now(), by)));
}
