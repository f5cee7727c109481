//! The router's part: a server in a process of its own, so that it can be killed and stopped.
//!
//! It is this test binary again, told by a variable to play it. What it answers follows from the
//! request alone, so that a client knows each byte that may come.

use crate::support::Client;
use crate::support::wait::within;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Interval, interval};

/// The address to play at.
pub(crate) const AT: &str = "KVGAUGE_TEST_UPSTREAM";

/// The last event of a stream.
const DONE: &str = "data: [DONE]\n\n";

/// A server process, and its address, which stays ours while no process is there.
pub(crate) struct Upstream {
    address: SocketAddr,
    /// Holds the port, and refuses connections, as it does not listen.
    _reserved: Socket,
    child: Option<Child>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let reserved = bound("127.0.0.1:0".parse().unwrap());
        let address = reserved.local_addr().unwrap().as_socket().unwrap();
        let mut upstream = Self {
            address,
            _reserved: reserved,
            child: None,
        };
        upstream.run();
        upstream
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the process; returns when it answers.
    pub(crate) fn run(&mut self) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_upstream_answers_as_its_clients_expect"])
            .env(AT, self.address.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let address = self.address;
        within(Duration::from_secs(30), "the upstream answers", || {
            let mut client = Client::try_connect(address).ok()?;
            client.try_send(plain("ready", 0)).ok()?;
            client.try_response("POST").ok()
        });
    }

    /// Ends the process at once; connections to it are reset or closed, new ones refused.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The process does nothing any more, while its kernel still takes connections and bytes.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.kill();
    }
}

fn bound(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

// === what is asked and answered ===

/// A request whose answer is a stream of so many events, one each `pause`.
pub(crate) fn streamed(id: &str, events: usize, pause: Duration) -> String {
    let pause = pause.as_millis();
    let body = format!("{{\"id\":\"{id}\",\"stream\":true}}");
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: k.test\r\nx-request-id: {id}\r\n\
         x-events: {events}\r\nx-pause: {pause}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The head of a request with a body of so many bytes, whose answer is one piece of JSON.
pub(crate) fn plain(id: &str, bytes: usize) -> String {
    format!(
        "POST /v1/completions HTTP/1.1\r\nHost: k.test\r\nx-request-id: {id}\r\n\
         Content-Length: {bytes}\r\n\r\n"
    )
}

/// The answer to a plain request.
pub(crate) fn whole(id: &str, bytes: usize) -> String {
    format!("{{\"id\":\"{id}\",\"bytes\":{bytes}}}")
}

/// The n-th event, of a length of its own. Whose it is stands at its end too.
pub(crate) fn event(id: &str, n: usize) -> String {
    let filling = "x".repeat(n * 37 % 400);
    format!("data: {{\"id\":\"{id}\",\"n\":{n},\"text\":\"{filling}\",\"of\":\"{id}\"}}\n\n")
}

/// All that a stream of so many events is.
pub(crate) fn all_events(id: &str, events: usize) -> String {
    let mut text: String = (0..events).map(|n| event(id, n)).collect();
    text.push_str(DONE);
    text
}

// === the server ===

/// Serves until the process is killed, or the one that started it is gone.
pub(crate) fn play(address: SocketAddr) {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let socket = bound(address);
    socket.listen(4096).unwrap();
    socket.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(socket.into()).unwrap();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<Script>, hyper::Error> {
    let (head, mut body) = request.into_parts();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    let id = text(&head.headers, "x-request-id").unwrap_or_default();
    let Some(events) = number(&head.headers, "x-events") else {
        let script = Script::Whole(Some(whole(&id, bytes).into()));
        return Ok(Response::new(script));
    };
    let pause = number(&head.headers, "x-pause").unwrap_or(1).max(1);
    let script = Script::Events {
        id,
        next: 0,
        events,
        ticks: interval(Duration::from_millis(pause as u64)),
    };
    let response = Response::builder().header("content-type", "text/event-stream");
    Ok(response.body(script).unwrap())
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn number(headers: &HeaderMap, name: &str) -> Option<usize> {
    text(headers, name)?.parse().ok()
}

/// A body as it was asked for.
enum Script {
    Whole(Option<Bytes>),
    Events {
        id: String,
        next: usize,
        events: usize,
        ticks: Interval,
    },
}

impl Body for Script {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let data = match &mut *self {
            Script::Whole(bytes) => bytes.take(),
            Script::Events { next, events, .. } if *next > *events => None,
            Script::Events {
                id,
                next,
                events,
                ticks,
            } => {
                ready!(ticks.poll_tick(cx));
                let text = if *next < *events {
                    event(id, *next)
                } else {
                    DONE.to_owned()
                };
                *next += 1;
                Some(text.into())
            }
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }
}
