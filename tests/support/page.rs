//! A metrics page whose behaviour can be changed while it is read.

use super::http::{Head, Wire};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The model of the recorded pages.
pub(crate) const MODEL: &str = "/models/tiny";

/// What the page does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// 200 with this text.
    Text(String),
    /// 200 with this text, called `OpenMetrics` 1.0.0.
    OpenMetrics(String),
    /// These bytes, then FIN.
    Raw(Vec<u8>),
    /// These bytes to whatever comes first, be it HTTP or not, then FIN.
    Bare(Vec<u8>),
    /// Accepts and never answers.
    Hang,
    /// Refuses the connection.
    Refuse,
    /// Resets the connection once the request is there.
    Reset,
    /// 401, or 200 with this text where the request has this bearer token.
    Token(String, String),
    /// SGLang: the page, and its `/v1/loads` (404 where it has none).
    Sglang(String, Option<String>),
    /// An engine as far as a router looks at it, with this page.
    Engine(String),
    /// What each path does; any other answers 404.
    Paths(Vec<(&'static str, Behaviour)>),
    /// A redirect to this address.
    Redirect(u16, String),
    /// 200 with a login page.
    Html,
    /// This status and a line of text.
    Status(u16),
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    asked: AtomicUsize,
    asked_loads: AtomicUsize,
    targets: Mutex<Vec<String>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
    authorization: Mutex<Option<String>>,
    host: Mutex<Option<String>>,
    tls: Mutex<Option<Arc<ServerConfig>>>,
}

/// A connection, in TLS or not.
enum Io {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

pub(crate) struct Page {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Bound but not listening: keeps the port ours while the page refuses.
    _reserved: Socket,
    listening: Mutex<Option<Arc<AtomicBool>>>,
}

impl Page {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        let reserved = bound(0);
        let address = reserved.local_addr().unwrap().as_socket().unwrap();
        let page = Self {
            address,
            shared: Arc::new(Shared {
                behaviour: Mutex::new(Behaviour::Refuse),
                asked: AtomicUsize::new(0),
                asked_loads: AtomicUsize::new(0),
                targets: Mutex::default(),
                open: AtomicUsize::new(0),
                most_open: AtomicUsize::new(0),
                authorization: Mutex::new(None),
                host: Mutex::new(None),
                tls: Mutex::new(None),
            }),
            _reserved: reserved,
            listening: Mutex::new(None),
        };
        page.set(behaviour);
        page
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(Behaviour::Text(text.into()))
    }

    /// A page of `tests/data/expositions`, without `.prom`.
    pub(crate) fn real(name: &str) -> Self {
        Self::text(super::data::page(name))
    }

    /// A page of `tests/data/cases`.
    pub(crate) fn case(name: &str) -> Self {
        Self::text(String::from_utf8(super::data::case(name)).unwrap())
    }

    /// A page of `tests/data/expositions` at an https address.
    pub(crate) fn real_in_tls(name: &str, server: &Arc<ServerConfig>) -> Self {
        let page = Self::refusing();
        page.show(server);
        page.set(Behaviour::Text(super::data::page(name)));
        page
    }

    /// Speaks TLS so from the next connection on.
    pub(crate) fn show(&self, server: &Arc<ServerConfig>) {
        *self.shared.tls.lock().unwrap() = Some(Arc::clone(server));
    }

    /// Speaks plain HTTP from the next connection on.
    pub(crate) fn show_nothing(&self) {
        *self.shared.tls.lock().unwrap() = None;
    }

    pub(crate) fn refusing() -> Self {
        Self::new(Behaviour::Refuse)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        let tls = self.shared.tls.lock().unwrap().is_some();
        let scheme = if tls { "https" } else { "http" };
        format!("{scheme}://{}/metrics", self.address)
    }

    /// What the last request had as `Host`.
    pub(crate) fn host(&self) -> Option<String> {
        self.shared.host.lock().unwrap().clone()
    }

    /// How often it has been asked.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// How often of these for its loads.
    pub(crate) fn asked_loads(&self) -> usize {
        self.shared.asked_loads.load(Ordering::Relaxed)
    }

    /// The paths that it has been asked for since it was last asked this.
    pub(crate) fn take_targets(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.targets.lock().unwrap())
    }

    /// The most connections that have been open at one time.
    pub(crate) fn most_open(&self) -> usize {
        self.shared.most_open.load(Ordering::Relaxed)
    }

    /// What the last request had as `Authorization`.
    pub(crate) fn authorization(&self) -> Option<String> {
        self.shared.authorization.lock().unwrap().clone()
    }

    /// From the next request on.
    pub(crate) fn set(&self, behaviour: Behaviour) {
        let refuses = matches!(behaviour, Behaviour::Refuse);
        *self.shared.behaviour.lock().unwrap() = behaviour;
        let mut listening = self.listening.lock().unwrap();
        match listening.take() {
            Some(stop) if refuses => self.close(&stop),
            None if !refuses => *listening = Some(self.open()),
            same => *listening = same,
        }
    }

    fn open(&self) -> Arc<AtomicBool> {
        let socket = bound(self.address.port());
        socket.listen(128).unwrap();
        let listener = TcpListener::from(socket);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&self.shared));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else {
                    continue;
                };
                std::thread::spawn(move || {
                    let open = shared.open.fetch_add(1, Ordering::Relaxed) + 1;
                    shared.most_open.fetch_max(open, Ordering::Relaxed);
                    serve(stream, &shared);
                    shared.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        stop
    }

    fn close(&self, stop: &AtomicBool) {
        stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; then it is gone when a connection is refused.
        while TcpStream::connect(self.address).is_ok() {
            super::wait::pause(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.set(Behaviour::Refuse);
    }
}

fn bound(port: u16) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
        .unwrap();
    socket
}

impl Io {
    fn socket(&self) -> &TcpStream {
        match self {
            Io::Plain(stream) => stream,
            Io::Tls(stream) => &stream.sock,
        }
    }

    /// Nothing more is said.
    fn end(&self) {
        let _ = self.socket().shutdown(Shutdown::Write);
    }

    fn reset_on_close(&self) {
        let socket = SockRef::from(self.socket());
        socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl Read for Io {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Io::Plain(stream) => stream.read(bytes),
            Io::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Io {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Io::Plain(stream) => stream.write(bytes),
            Io::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Io::Plain(stream) => stream.flush(),
            Io::Tls(stream) => stream.flush(),
        }
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    stream.set_nodelay(true).unwrap();
    let tls = shared.tls.lock().unwrap().clone();
    let mut wire = Wire::over(match tls {
        None => Io::Plain(stream),
        Some(config) => {
            let connection = ServerConnection::new(config).unwrap();
            Io::Tls(Box::new(StreamOwned::new(connection, stream)))
        }
    });
    let behaviour = shared.behaviour.lock().unwrap().clone();
    if let Behaviour::Bare(bytes) = behaviour {
        if wire.some().is_ok() && wire.stream.write_all(&bytes).is_ok() {
            wire.stream.end();
            wire.rest();
        }
        return;
    }
    while let Ok(head) = wire.head() {
        *shared.authorization.lock().unwrap() = head.get("authorization");
        *shared.host.lock().unwrap() = head.get("host");
        shared.asked.fetch_add(1, Ordering::Relaxed);
        let target = head.target().to_owned();
        shared.targets.lock().unwrap().push(target.clone());
        let mut behaviour = shared.behaviour.lock().unwrap().clone();
        if let Behaviour::Paths(paths) = behaviour {
            let there = paths.into_iter().find(|(path, _)| *path == target);
            behaviour = there.map_or(Behaviour::Status(404), |(_, behaviour)| behaviour);
        }
        let bytes = match behaviour {
            Behaviour::Text(text) => answer(200, "text/plain; version=0.0.4; charset=utf-8", &text),
            Behaviour::OpenMetrics(text) => answer(
                200,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                &text,
            ),
            Behaviour::Token(token, text) => {
                let sent = head.get("authorization");
                if sent == Some(format!("Bearer {token}")) {
                    answer(200, "text/plain; version=0.0.4", &text)
                } else {
                    answer(401, "text/plain", &format!("not with {sent:?}\n"))
                }
            }
            Behaviour::Sglang(_, loads) if head.target() == "/v1/loads" => {
                shared.asked_loads.fetch_add(1, Ordering::Relaxed);
                match loads {
                    Some(loads) => answer(200, "application/json", &loads),
                    None => answer(404, "application/json", "{\"detail\":\"Not Found\"}"),
                }
            }
            Behaviour::Sglang(page, _) => answer(200, "text/plain; version=0.0.4", &page),
            Behaviour::Engine(page) => engine(&mut wire, &head, &page),
            Behaviour::Html => answer(200, "text/html", "<!doctype html><title>Log in</title>"),
            Behaviour::Status(status) => answer(status, "text/plain", "no metrics today\n"),
            Behaviour::Redirect(status, to) => format!(
                "HTTP/1.1 {status} Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
            )
            .into_bytes(),
            Behaviour::Raw(bytes) | Behaviour::Bare(bytes) => {
                let _ = wire.stream.write_all(&bytes);
                return;
            }
            Behaviour::Hang => {
                // Until the other side has had enough.
                wire.rest();
                return;
            }
            Behaviour::Reset | Behaviour::Refuse | Behaviour::Paths(_) => {
                wire.stream.reset_on_close();
                return;
            }
        };
        if wire.stream.write_all(&bytes).is_err() || wire.stream.flush().is_err() {
            return;
        }
    }
}

/// What sglang-router asks of a worker.
fn engine(wire: &mut Wire<Io>, head: &Head, page: &str) -> Vec<u8> {
    wire.request_body(head);
    let json = |value: serde_json::Value| answer(200, "application/json", &value.to_string());
    match head.target() {
        "/metrics" => answer(200, "text/plain; version=0.0.4; charset=utf-8", page),
        "/health" => answer(200, "text/plain", ""),
        "/server_info" | "/get_server_info" | "/model_info" | "/get_model_info" => json(
            json!({"model_path": MODEL, "served_model_name": MODEL, "tp_size": 4, "dp_size": 1, "is_generation": true}),
        ),
        "/v1/models" => json(json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]})),
        "/v1/chat/completions" => json(json!({
            "id": "1", "object": "chat.completion", "created": 1, "model": MODEL,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        })),
        _ => answer(404, "application/json", "{\"detail\":\"Not Found\"}"),
    }
}

fn answer(status: u16, content_type: &str, text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Whatever\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}
