//! The clients: streams whose chunks are counted and timed, and requests one after the other.

use super::machine::{pause, quantile};
use super::upstream::{DIGITS, MARK, Shared, Upstream};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// Streams that are opened at the same time.
const AT_ONCE: usize = 64;

/// For all of them to be open.
const PATIENCE: Duration = Duration::from_secs(60);

/// Open streams; closed when dropped.
pub(crate) struct Crowd {
    seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Seen {
    clock: Arc<Shared>,
    open: AtomicUsize,
    lost: AtomicUsize,
    chunks: AtomicU64,
    /// Which of the two lists delays go to.
    marked: AtomicBool,
    /// In microseconds, from the upstream's write to the client's read.
    delays: [Mutex<Vec<f32>>; 2],
}

impl Crowd {
    /// Opens so many streams; returns when the head of each has come.
    pub(crate) fn open(to: SocketAddr, streams: usize, upstream: &Upstream) -> Self {
        let seen = Arc::new(Seen {
            clock: upstream.clock(),
            open: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            chunks: AtomicU64::new(0),
            marked: AtomicBool::new(false),
            delays: Default::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let of_thread = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let runtime = runtime();
            runtime.block_on(async {
                let places = Arc::new(Semaphore::new(AT_ONCE));
                for _ in 0..streams {
                    let (seen, places) = (Arc::clone(&of_thread), Arc::clone(&places));
                    tokio::spawn(async move {
                        let _ = listen(to, &seen, &places).await;
                        seen.lost.fetch_add(1, Relaxed);
                    });
                }
                let _ = stopped.await;
            });
        });
        let crowd = Self {
            seen,
            stop: Some(stop),
            thread: Some(thread),
        };
        let start = Instant::now();
        while crowd.seen.open.load(Relaxed) < streams {
            crowd.none_is_lost();
            let open = crowd.seen.open.load(Relaxed);
            assert!(start.elapsed() < PATIENCE, "{open} of {streams} are open");
            pause(Duration::from_millis(2));
        }
        crowd
    }

    /// Chunks that have come.
    pub(crate) fn chunks(&self) -> u64 {
        self.none_is_lost();
        self.seen.chunks.load(Relaxed)
    }

    /// From now on, delays are put with the marked ones, or not.
    pub(crate) fn mark(&self, marked: bool) {
        self.seen.marked.store(marked, Relaxed);
    }

    /// Forgets all delays so far.
    pub(crate) fn forget(&self) {
        for delays in &self.seen.delays {
            delays.lock().unwrap().clear();
        }
    }

    /// The median delay in microseconds, of the marked chunks or the others.
    pub(crate) fn median_delay(&self, marked: bool) -> f64 {
        let delays = self.seen.delays[usize::from(marked)].lock().unwrap();
        assert!(!delays.is_empty(), "no chunk has come");
        let delays: Vec<f64> = delays.iter().map(|delay| f64::from(*delay)).collect();
        quantile(&delays, 0.5)
    }

    fn none_is_lost(&self) {
        let lost = self.seen.lost.load(Relaxed);
        assert_eq!(lost, 0, "streams that ended or were never opened");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Seen {
    fn take(&self, piece: &[u8]) {
        let now = self.clock.nanos();
        let marked = usize::from(self.marked.load(Relaxed));
        for at in memchr::memmem::find_iter(piece, MARK) {
            self.chunks.fetch_add(1, Relaxed);
            let digits = piece.get(at + MARK.len()..at + MARK.len() + DIGITS);
            let sent = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse::<u64>().ok());
            if let Some(sent) = sent {
                let delay = now.saturating_sub(sent) as f32 / 1e3;
                self.delays[marked].lock().unwrap().push(delay);
            }
        }
    }
}

/// One stream, until it ends.
async fn listen(to: SocketAddr, seen: &Seen, places: &Semaphore) -> std::io::Result<()> {
    let place = places.acquire().await;
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request(true).as_bytes()).await?;
    stream.readable().await?;
    seen.open.fetch_add(1, Relaxed);
    drop(place);
    while take_what_is_there(&stream, seen)? {
        stream.readable().await?;
    }
    Ok(())
}

/// Whether there may be more. The buffer is the thread's, not the stream's.
fn take_what_is_there(stream: &TcpStream, seen: &Seen) -> std::io::Result<bool> {
    let mut piece = [0; 8192];
    match stream.try_read(&mut piece) {
        Ok(0) => Ok(false),
        Ok(n) => {
            seen.take(&piece[..n]);
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// So many connections, each with a request at a time, for so long: requests answered.
pub(crate) fn requests(to: SocketAddr, connections: usize, time: Duration) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let of_thread = Arc::clone(&answered);
    let thread = std::thread::spawn(move || {
        runtime().block_on(async {
            for _ in 0..connections {
                let answered = Arc::clone(&of_thread);
                tokio::spawn(async move { ask(to, &answered).await.unwrap() });
            }
            tokio::time::sleep(time).await;
        });
    });
    thread.join().unwrap();
    answered.load(Relaxed)
}

async fn ask(to: SocketAddr, answered: &AtomicU64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let request = request(false);
    let mut came = Vec::with_capacity(4096);
    loop {
        stream.write_all(request.as_bytes()).await?;
        came.clear();
        // The answer's only line end that is followed by this is its last byte but one.
        while !came.ends_with(b"}}") {
            stream.ready(Interest::READABLE).await?;
            assert!(stream.read_buf(&mut came).await? > 0, "an answer");
        }
        assert!(came.starts_with(b"HTTP/1.1 200"), "an answer of 200");
        answered.fetch_add(1, Relaxed);
    }
}

fn request(stream: bool) -> String {
    let body = format!(
        "{{\"model\":\"m\",\"stream\":{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}"
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: k.test\r\nAuthorization: Bearer secret\r\n\
         User-Agent: OpenAI/Python 2.0.0\r\nAccept: */*\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
