//! Many streams at once that say nothing, without a thread for each.

use super::process::{Process, connections_at};
use super::upstream::STREAM;
use super::wait::{PATIENCE, within};
use super::{Kvgauge, Setup};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

/// The one event of each stream.
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n";

/// How long the kernel may take to let all connections go.
const LEAVING: Duration = Duration::from_secs(60);

/// A server that begins a stream for each request, and says no more until the client leaves.
pub(crate) struct Beginning {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Beginning {
    pub(crate) fn start() -> Self {
        let (stop, stopped) = oneshot::channel();
        let (started, address) = sync_channel(1);
        // Ends when the test drops its half.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
                let listener = socket.listen(4096).unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let accepting = tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(begin(stream));
                    }
                });
                let _ = stopped.await;
                accepting.abort();
            });
        });
        Self {
            address: address.recv().unwrap(),
            _stop: stop,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn begin(mut stream: tokio::net::TcpStream) -> std::io::Result<()> {
    let mut piece = [0; 4096];
    let mut head = Vec::new();
    while !head.windows(4).any(|part| part == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..read]);
    }
    let start = format!("{STREAM}{:x}\r\n{EVENT}\r\n", EVENT.len());
    stream.write_all(start.as_bytes()).await?;
    // Until the other side leaves.
    while stream.read(&mut piece).await? > 0 {}
    Ok(())
}

/// What open streams need of kvgauge's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Resident before any was open, in KiB.
    pub(crate) before_kib: u64,
    /// While all are open.
    pub(crate) open_kib: u64,
    /// When they have been closed.
    pub(crate) after_kib: u64,
    /// How many there were.
    pub(crate) streams: usize,
}

impl Cost {
    /// KiB of one open stream.
    pub(crate) fn of_one_kib(&self) -> f64 {
        (self.open_kib.saturating_sub(self.before_kib)) as f64 / self.streams as f64
    }
}

/// Opens so many streams through kvgauge `times` times, and measures each time.
pub(crate) fn measure(streams: usize, times: usize) -> Vec<Cost> {
    let server = Beginning::start();
    let kvgauge = Setup::new(server.address()).start();
    // What the first few need is there for all.
    close(open(&kvgauge, 10), &kvgauge, server.address());
    let process = Process::new(kvgauge.pid());
    let mut costs = Vec::new();
    for _ in 0..times {
        let before_kib = process.resident_kib();
        let all = open(&kvgauge, streams);
        kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(streams as f64));
        let open_kib = process.resident_kib();
        close(all, &kvgauge, server.address());
        costs.push(Cost {
            before_kib,
            open_kib,
            after_kib: process.resident_kib(),
            streams,
        });
    }
    costs
}

/// Streams whose first event has come.
fn open(kvgauge: &Kvgauge, streams: usize) -> Vec<TcpStream> {
    let body = "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: k.test\r\nAuthorization: Bearer secret\r\n\
         User-Agent: OpenAI/Python 2.0.0\r\nAccept: text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let begin = |_| {
        let mut stream = TcpStream::connect(kvgauge.listen).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let (mut came, mut piece) = (Vec::new(), [0; 4096]);
        while !came.ends_with(format!("{EVENT}\r\n").as_bytes()) {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&came));
            came.extend_from_slice(&piece[..read]);
        }
        stream
    };
    (0..streams).map(begin).collect()
}

/// Leaves all of them; returns when kvgauge has let go of them, and the server too.
fn close(streams: Vec<TcpStream>, kvgauge: &Kvgauge, server: SocketAddr) {
    drop(streams);
    within(LEAVING, "all connections are closed", || {
        (connections_at(kvgauge.listen) + connections_at(server) == 0).then_some(())
    });
    kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
}
