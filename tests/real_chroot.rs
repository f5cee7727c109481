//! A static build on its own: in an empty root folder, without a library, a shell or `/proc`, with a name
//! for its router. The name is answered for by a name server, or stands in `/etc/hosts`, as container
//! engines write it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use support::lines::Lines;
use support::wait::PATIENCE;
use support::{Page, Upstream, eventually, get};

const NEEDED: &str = "needs a static build, and root: tests/run";

/// kvgauge in an empty root folder; killed when dropped.
struct Alone {
    child: Child,
    said: Lines,
    _root: tempfile::TempDir,
}

impl Alone {
    /// `files` are what is in `/etc`.
    fn start(files: &[(&str, &str)], upstream: &str, source: &str) -> Alone {
        let root = tempfile::tempdir().unwrap();
        let program = std::env::var_os("KVGAUGE_STATIC").expect(NEEDED);
        fs::copy(program, root.path().join("kvgauge")).unwrap();
        if !files.is_empty() {
            fs::create_dir(root.path().join("etc")).unwrap();
        }
        for (name, text) in files {
            fs::write(root.path().join("etc").join(name), text).unwrap();
        }
        let mut child = Command::new("chroot")
            .args(["--userspec=65532:65532"])
            .arg(root.path())
            .args([
                "/kvgauge",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
            ])
            .args(["--workers", "1", "--upstream", upstream])
            .args(["--source", source])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect(NEEDED);
        let said = Lines::of(child.stderr.take().unwrap());
        Alone {
            child,
            said,
            _root: root,
        }
    }

    fn address(&self, words: &str) -> SocketAddr {
        let found = self.said.wait(PATIENCE, |lines, _| {
            lines.iter().find_map(|line| {
                let line = String::from_utf8_lossy(line).into_owned();
                let (_, rest) = line.split_once(words)?;
                let end = rest.find([',', ' ']).unwrap_or(rest.len());
                rest[..end].parse().ok()
            })
        });
        found.unwrap_or_else(|| panic!("{words}: {}", self.said.text()))
    }

    /// A request is carried, the source is read, and the operators are answered.
    fn works(&self) {
        let (listen, admin) = (self.address("listening on "), self.address("admin on "));
        let answer = get(listen, "/v1/models");
        assert_eq!(
            answer.status(),
            200,
            "{}\n{}",
            answer.text(),
            self.said.text()
        );
        eventually("the source is read", || {
            let page = get(admin, "/metrics").text();
            page.contains("kvgauge_source_up{source=\"decode\"} 1")
                .then_some(())
        });
        assert_eq!(get(admin, "/healthz").status(), 200);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A name server for one name, of which every address (RFC 1035; A only) is this machine. Its own address.
fn name_server(name: &'static str) -> (Ipv4Addr, mpsc::Receiver<()>) {
    // All of 127.0.0.0/8 is this machine, and somebody may have port 53 of 127.0.0.1.
    let id = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 53, id[2], id[3] | 1);
    let socket = UdpSocket::bind((address, 53)).expect(NEEDED);
    let (tell, asked) = mpsc::sync_channel(100);
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let query = &buffer[..n];
            let mut wanted = Vec::new();
            for label in name.split('.') {
                wanted.push(u8::try_from(label.len()).unwrap());
                wanted.extend(label.as_bytes());
            }
            wanted.push(0);
            let question = &query[12..12 + wanted.len() + 4];
            let ours = question.starts_with(&wanted);
            let is_a = question[wanted.len()..] == [0, 1, 0, 1];
            let mut answer = query[..2].to_vec();
            // An answer with authority, recursion there; no such name for any other.
            answer.extend([0x85, if ours { 0x80 } else { 0x83 }, 0, 1]);
            answer.extend([0, u8::from(ours && is_a), 0, 0, 0, 0]);
            answer.extend(question);
            if ours && is_a {
                // The name above, A, IN, 60 s, 4 bytes.
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            let _ = socket.send_to(&answer, from);
            let _ = tell.try_send(());
        }
    });
    (address, asked)
}

fn with_a_name(name: &str, files: &[(&str, &str)]) {
    let upstream = Upstream::ok();
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let port = upstream.address().port();
    let source = format!("decode=http://{name}:{}", decode.address().port());
    Alone::start(files, &format!("http://{name}:{port}"), &source).works();
}

#[test]
#[ignore = "needs a static build: tests/run --full"]
fn a_name_is_looked_up_at_the_name_server() {
    let (address, asked) = name_server("router.kvgauge.test");
    let resolv = format!("nameserver {address}\noptions timeout:5\n");
    with_a_name("router.kvgauge.test", &[("resolv.conf", &resolv)]);
    assert!(asked.try_recv().is_ok(), "the name server was not asked");
}

#[test]
#[ignore = "needs a static build: tests/run --full"]
fn a_name_is_looked_up_in_etc_hosts() {
    let hosts = "127.0.0.1 router.kvgauge.test\n";
    with_a_name("router.kvgauge.test", &[("hosts", hosts)]);
}

#[test]
#[ignore = "needs a static build: tests/run --full"]
fn an_address_needs_nothing_at_all() {
    with_a_name("127.0.0.1", &[]);
}
