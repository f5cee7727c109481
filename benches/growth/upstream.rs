//! A router and its sources' pages, on threads of this process: paced streams, short JSON answers,
//! and pages that are counted.

use super::machine::pause;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

/// What stands before the time at which a chunk was sent.
pub(crate) const MARK: &[u8] = b"{\"t\":\"";

/// Digits of that time, nanoseconds since the start.
pub(crate) const DIGITS: usize = 16;

/// The rest of an event as OpenAI's servers write it, 190 bytes in all.
const REST: &str = "\",\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n";

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// The pacer looks for new streams, and for the end, so often at least.
const LOOK: Duration = Duration::from_millis(1);

/// Ends when dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _stop: oneshot::Sender<()>,
}

/// What its threads share.
pub(crate) struct Shared {
    /// The clock of all chunks.
    start: Instant,
    pace: AtomicU64,
    /// Streams whose head has left.
    begun: Mutex<Vec<TcpStream>>,
    clear: AtomicBool,
    ended: AtomicBool,
    pages: Mutex<HashMap<String, Arc<Vec<u8>>>>,
    pages_sent: AtomicU64,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            pace: AtomicU64::new(1_000_000),
            begun: Mutex::default(),
            clear: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            pages: Mutex::default(),
            pages_sent: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let (started, address) = sync_channel(1);
        let of_server = Arc::clone(&shared);
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
                        tokio::spawn(serve(stream, Arc::clone(&of_server)));
                    }
                });
                let _ = stopped.await;
                accepting.abort();
            });
        });
        let of_pacer = Arc::clone(&shared);
        std::thread::spawn(move || of_pacer.keep_pacing());
        Self {
            address: address.recv().unwrap(),
            shared,
            _stop: stop,
        }
    }

    /// Nanoseconds since the start, by the clock that stands in the chunks.
    pub(crate) fn clock(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// From one chunk of a stream to its next, for all that begin from now on.
    pub(crate) fn pace(&self, pace: Duration) {
        self.shared.pace.store(pace.as_nanos() as u64, Relaxed);
    }

    /// Lets go of all streams.
    pub(crate) fn clear(&self) {
        self.shared.clear.store(true, Relaxed);
        while self.shared.clear.load(Relaxed) {
            pause(LOOK);
        }
    }

    /// Serves a page for so many sources, at an address each.
    pub(crate) fn pages(&self, text: Vec<u8>, sources: usize) -> Vec<String> {
        let text = Arc::new(text);
        let mut pages = self.shared.pages.lock().unwrap();
        let serve = |number| {
            let path = format!("/{number}/metrics");
            pages.insert(path.clone(), Arc::clone(&text));
            format!("http://{}{path}", self.address)
        };
        (0..sources).map(serve).collect()
    }

    /// Pages that have been sent whole.
    pub(crate) fn pages_sent(&self) -> u64 {
        self.shared.pages_sent.load(Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
    }
}

impl Shared {
    pub(crate) fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends each stream's chunks at their times, spread evenly. With a clock of its own: tokio's
    /// timers have milliseconds, and would send those of one millisecond together.
    fn keep_pacing(&self) {
        let mut chunk = Vec::new();
        let event = 6 + MARK.len() + DIGITS + REST.len();
        write!(chunk, "{event:x}\r\ndata: ").unwrap();
        chunk.extend_from_slice(MARK);
        let stamp = chunk.len()..chunk.len() + DIGITS;
        chunk.extend_from_slice(&[b'0'; DIGITS]);
        write!(chunk, "{REST}\r\n").unwrap();

        let mut streams: HashMap<u64, TcpStream> = HashMap::new();
        let mut due: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
        let mut number = 0;
        while !self.ended.load(Relaxed) {
            if self.clear.load(Relaxed) {
                streams.clear();
                due.clear();
                self.begun.lock().unwrap().clear();
                self.clear.store(false, Relaxed);
            }
            let pace = self.pace.load(Relaxed);
            for stream in self.begun.lock().unwrap().drain(..) {
                // The golden ratio spreads any number of them.
                let phase = (number as f64 * 0.618_033_988_749_895).fract();
                due.push(Reverse((
                    self.nanos() + (phase * pace as f64) as u64,
                    number,
                )));
                streams.insert(number, stream);
                number += 1;
            }
            let now = self.nanos();
            match due.peek() {
                Some(Reverse((at, _))) if *at <= now => {}
                Some(Reverse((at, _))) => {
                    pause(Duration::from_nanos(at - now).min(LOOK));
                    continue;
                }
                None => {
                    pause(LOOK);
                    continue;
                }
            }
            let Some(Reverse((at, of))) = due.pop() else {
                continue;
            };
            let time = format!("{:0width$}", self.nanos(), width = DIGITS);
            chunk[stamp.clone()].copy_from_slice(time.as_bytes());
            let sent = streams.get(&of).map(|mut stream| stream.write(&chunk));
            match sent {
                Some(Ok(n)) if n == chunk.len() => {}
                // Nothing of it is left out by halves: who takes nothing is given no more.
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
                _ => {
                    streams.remove(&of);
                    continue;
                }
            }
            // Behind by more than a chunk, it is not made up for.
            due.push(Reverse(((at + pace).max(self.nanos()), of)));
        }
    }
}

/// One connection. What it reads is small, and comes from kvgauge.
async fn serve(mut stream: tokio::net::TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut came = Vec::new();
    loop {
        let (head, whole) = loop {
            if let Some(found) = whole_request(&came) {
                break found;
            }
            if stream.read_buf(&mut came).await? == 0 {
                return Ok(());
            }
        };
        let target = came.split(|b| *b == b' ').nth(1).unwrap_or_default();
        let target = String::from_utf8_lossy(target).into_owned();
        let streams = memchr::memmem::find(&came[head..whole], b"\"stream\":true").is_some();
        came.drain(..whole);
        let page = shared.pages.lock().unwrap().get(&target).cloned();
        if streams {
            stream.write_all(STREAM).await?;
            shared.begun.lock().unwrap().push(stream.into_std()?);
            return Ok(());
        } else if let Some(page) = page {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n",
                page.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&page).await?;
            shared.pages_sent.fetch_add(1, Relaxed);
        } else if target.starts_with("/v1/chat") {
            const BODY: &str = "{\"id\":\"chatcmpl-0\",\"object\":\"chat.completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":1,\"total_tokens\":13}}";
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
                BODY.len()
            );
            stream.write_all(answer.as_bytes()).await?;
        } else {
            let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await?;
        }
    }
}

/// Where the head of a request ends, and where its body does, once both are there.
fn whole_request(came: &[u8]) -> Option<(usize, usize)> {
    let head = memchr::memmem::find(came, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&came[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |n| n.trim().parse().unwrap());
    (came.len() >= head + length).then_some((head, head + length))
}
