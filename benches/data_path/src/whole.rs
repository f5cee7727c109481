//! `kvgauge serve` as it is released, from a client's socket to the router's and back.
//!
//! It runs under valgrind, four times: with few requests and few chunks, with more requests, with more
//! chunks, and with a pause. What it takes to start and to end is the same each time, so the difference is
//! what a request and a chunk take, and what time takes by itself: a worker has something to do ten times
//! a second, whatever comes. That is taken off, as a slow machine has more of it in a request.
//!
//! This program plays the client and the router by turns: nothing waits for another thread, so each
//! request and each chunk passes by itself, in the same steps.

use crate::limits::no_valgrind;
use crate::pieces::messages::{
    answer_body, answer_on_the_wire, chunk, events, request_body, request_on_the_wire,
    stream_head_on_the_wire,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How much is sent, and how long nothing is.
#[derive(Clone, Copy)]
struct Load {
    requests: usize,
    chunks: usize,
    pause: Duration,
}

/// Enough that everything has been set up.
const FEW: Load = Load {
    requests: 100,
    chunks: 100,
    pause: Duration::ZERO,
};
/// What is counted comes on top.
const MORE: usize = 1000;
const PAUSE: Duration = Duration::from_secs(2);

/// For whatever is awaited: valgrind is slow, and other programs run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Instructions by thread, in the order in which threads were started.
type Threads = BTreeMap<String, u64>;

/// One run.
struct Ran {
    took: Duration,
    threads: Threads,
}

/// Instructions of the worker's thread for a request, and for a chunk.
pub(crate) fn count() -> Result<[f64; 2], String> {
    let few = run(FEW)?;
    let requests = run(Load {
        requests: FEW.requests + MORE,
        ..FEW
    })?;
    let chunks = run(Load {
        chunks: FEW.chunks + MORE,
        ..FEW
    })?;
    let pause = run(Load {
        pause: PAUSE,
        ..FEW
    })?;
    // It is the thread that has the most to do for requests.
    let names = few.threads.keys().cloned();
    let worker = names.max_by_key(|name| requests.of(name).saturating_sub(few.of(name)));
    let worker = worker.ok_or("valgrind saw no thread of kvgauge's")?;
    let beyond = |ran: &Ran| {
        let instructions = ran.of(&worker) as f64 - few.of(&worker) as f64;
        (
            instructions,
            ran.took.as_secs_f64() - few.took.as_secs_f64(),
        )
    };
    let (idle, seconds) = beyond(&pause);
    let a_second = idle / seconds;
    let each = |ran: &Ran| {
        let (instructions, seconds) = beyond(ran);
        (instructions - seconds * a_second) / MORE as f64
    };
    let counts = [each(&requests), each(&chunks)];
    if counts.iter().all(|count| *count > 0.0) {
        Ok(counts)
    } else {
        Err(format!(
            "valgrind saw no request or no chunk pass: {counts:?}"
        ))
    }
}

impl Ran {
    fn of(&self, thread: &str) -> u64 {
        self.threads.get(thread).copied().unwrap_or_default()
    }
}

fn run(load: Load) -> Result<Ran, String> {
    let folder = Folder::new().map_err(|error| format!("no folder for valgrind: {error}"))?;
    play(load, &folder.0).map_err(|error| format!("kvgauge under valgrind: {error}"))
}

fn play(load: Load, folder: &Path) -> Result<Ran, String> {
    let said = |error: std::io::Error| error.to_string();
    let router = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(said)?;
    let upstream = router.local_addr().map_err(said)?;
    let mut kvgauge = Running::start(upstream, folder)?;
    let listen = kvgauge.announced("listening on ")?;
    let start = Instant::now();
    exchange(listen, &router, load).map_err(|error| format!("{error}\n{}", kvgauge.text))?;
    let took = start.elapsed();
    kvgauge.end()?;
    let threads = read_threads(folder)?;
    Ok(Ran { took, threads })
}

fn exchange(listen: SocketAddr, router: &TcpListener, load: Load) -> std::io::Result<()> {
    let mut client = Peer::new(TcpStream::connect(listen)?)?;
    client.socket.write_all(&request_on_the_wire())?;
    let mut router = Peer::new(router.accept()?.0)?;
    let body = request_body().len();
    let answer = answer_on_the_wire();
    for request in 0..load.requests {
        if request > 0 {
            client.socket.write_all(&request_on_the_wire())?;
        }
        router.head_and(body)?;
        router.socket.write_all(&answer)?;
        client.head_and(answer_body().len())?;
    }
    std::thread::park_timeout(load.pause);
    client.socket.write_all(&request_on_the_wire())?;
    router.head_and(body)?;
    router.socket.write_all(&stream_head_on_the_wire())?;
    client.head_and(0)?;
    let chunk = chunk(&events(4)[1]);
    for _ in 0..load.chunks {
        router.socket.write_all(&chunk)?;
        client.read_until(chunk.len())?;
    }
    router.socket.write_all(b"0\r\n\r\n")?;
    client.read_until(5)
}

/// One of both ends of kvgauge.
struct Peer {
    socket: TcpStream,
    came: Vec<u8>,
}

impl Peer {
    fn new(socket: TcpStream) -> std::io::Result<Peer> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Peer {
            socket,
            came: Vec::new(),
        })
    }

    /// Reads a head, and so many bytes behind it.
    fn head_and(&mut self, body: usize) -> std::io::Result<()> {
        loop {
            let end = self.came.windows(4).position(|end| end == b"\r\n\r\n");
            if let Some(end) = end {
                return self.read_until(end + 4 + body);
            }
            self.read()?;
        }
    }

    /// Reads so many bytes, and no more may come.
    fn read_until(&mut self, bytes: usize) -> std::io::Result<()> {
        while self.came.len() < bytes {
            self.read()?;
        }
        if self.came.len() > bytes {
            let text = String::from_utf8_lossy(&self.came).into_owned();
            return Err(std::io::Error::other(format!(
                "more came than {bytes} bytes: {text}"
            )));
        }
        self.came.clear();
        Ok(())
    }

    fn read(&mut self) -> std::io::Result<()> {
        let mut room = [0; 16 << 10];
        match self.socket.read(&mut room)? {
            0 => Err(std::io::Error::other("kvgauge closed a connection")),
            bytes => {
                self.came.extend_from_slice(&room[..bytes]);
                Ok(())
            }
        }
    }
}

// === kvgauge ===

/// The process, ended when this is dropped.
struct Running {
    child: Child,
    diagnostics: BufReader<std::process::ChildStderr>,
    /// What it has said.
    text: String,
}

impl Running {
    /// One worker, and no source but one that nobody is at.
    fn start(upstream: SocketAddr, folder: &Path) -> Result<Running, String> {
        let out = folder.join("out").display().to_string();
        let mut child = Command::new("valgrind")
            .args(["--tool=callgrind", "--separate-threads=yes"])
            .arg(format!("--callgrind-out-file={out}"))
            .arg(program()?)
            .args(["serve", "--workers", "1"])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--source", "nobody=http://127.0.0.1:1"])
            .arg("--upstream")
            .arg(format!("http://{upstream}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_valgrind)?;
        let diagnostics = child.stderr.take().ok_or("it has no standard error")?;
        Ok(Running {
            child,
            diagnostics: BufReader::new(diagnostics),
            text: String::new(),
        })
    }

    /// Waits for the line with this in it, and reads the address behind it.
    fn announced(&mut self, what: &str) -> Result<SocketAddr, String> {
        loop {
            let mut line = String::new();
            let read = (&mut self.diagnostics).take(1 << 16).read_line(&mut line);
            if read.map_err(|error| error.to_string())? == 0 {
                return Err(format!(
                    "it ended without a word of {what:?}:\n{}",
                    self.text
                ));
            }
            self.text.push_str(&line);
            let Some((_, rest)) = line.split_once(what) else {
                continue;
            };
            let end = rest.find([',', ' ', '\n']).unwrap_or(rest.len());
            return rest[..end]
                .parse()
                .map_err(|_| format!("no address in {line:?}"));
        }
    }

    /// Asks it to end, which is when valgrind writes what it has counted.
    fn end(mut self) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("it has no process id")?;
        kill_process(pid, Signal::TERM).map_err(|error| error.to_string())?;
        let _ = self.diagnostics.read_to_string(&mut self.text);
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        Err(format!("it ended with {status}:\n{}", self.text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program is kvgauge too. Another one can be named, to compare.
fn program() -> Result<PathBuf, String> {
    match std::env::var_os("KVGAUGE_BINARY") {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().map_err(|error| error.to_string()),
    }
}

/// A file for each thread, in which one line says what all of it took.
fn read_threads(folder: &Path) -> Result<Threads, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut threads = Threads::new();
    for entry in std::fs::read_dir(folder).map_err(said)? {
        let path = entry.map_err(said)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).map_err(said)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        if let Some(total) = total.and_then(|total| total.trim().parse().ok()) {
            threads.insert(name, total);
        }
    }
    Ok(threads)
}

/// Gone with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let name = format!("kvgauge-data-path-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
