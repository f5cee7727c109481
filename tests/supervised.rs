//! Under a service manager: what it is told (`sd_notify(3)`), and listeners that it has opened
//! (`sd_listen_fds(3)`). With systemd's own programs: `tests/real_deploy.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::{Pid, Signal as Unix, kill_process};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use support::lines::Lines;
use support::upstream::STREAM;
use support::wait::{PATIENCE, within};
use support::{Client, Next, Page, Setup, Upstream, get};

/// Where it tells; each message is its lines.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, folder }
    }

    fn path(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    fn told(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let n = self
            .socket
            .recv(&mut buffer)
            .expect("kvgauge tells something");
        let text = String::from_utf8(buffer[..n].to_vec()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The next message with this line.
    fn until(&self, line: &str) -> Vec<String> {
        for _ in 0..1000 {
            let told = self.told();
            if told.iter().any(|told| told.starts_with(line)) {
                return told;
            }
        }
        panic!("never told {line}");
    }
}

#[test]
fn the_manager_is_told_of_begin_reload_drain_and_end() {
    let manager = Manager::new();
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Again)
    });
    let page = Page::refusing();
    let settings = format!("[[source]]\nname = \"a\"\nurl = \"{}\"\n", page.url());
    let mut kvgauge = Setup::new(upstream.address())
        .settings(&settings)
        .environment("NOTIFY_SOCKET", &manager.path())
        .start();
    let ready = manager.told();
    let listen = kvgauge.listen;
    assert_eq!(ready, ["READY=1", &format!("STATUS=serving on {listen}")]);

    kvgauge.reload(&settings);
    let reloading = manager.told();
    assert_eq!(reloading[0], "RELOADING=1");
    let at: u64 = reloading[1]
        .strip_prefix("MONOTONIC_USEC=")
        .unwrap()
        .parse()
        .unwrap();
    assert!(at > 0);
    assert_eq!(
        manager.told(),
        ["READY=1", "STATUS=the settings are reloaded"]
    );
    kvgauge.reload("nonsense = 1\n");
    assert_eq!(manager.told()[0], "RELOADING=1");
    let told = manager.told();
    assert_eq!(told[0], "READY=1");
    assert!(
        told[1].contains("refused, those from before are in force"),
        "{told:?}"
    );

    let mut client = Client::connect(kvgauge.listen);
    client.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    assert!(client.chunk().is_some());
    kvgauge.signal(Unix::TERM);
    assert_eq!(manager.told(), ["STOPPING=1", "STATUS=draining"]);
    let told = manager.until("STATUS=draining, 1 in flight");
    assert!(told[1].starts_with("EXTEND_TIMEOUT_USEC="), "{told:?}");
    kvgauge.signal(Unix::TERM);
    assert_eq!(kvgauge.exit_code(PATIENCE), 0);
}

#[test]
fn the_manager_hears_that_it_lives_for_as_long_as_it_does() {
    let manager = Manager::new();
    let mut kvgauge = Setup::new(Upstream::ok().address())
        .environment("NOTIFY_SOCKET", &manager.path())
        .environment("WATCHDOG_USEC", "600000")
        .start();
    for _ in 0..3 {
        manager.until("WATCHDOG=1");
    }
    // While it stands still nothing comes for longer than that.
    kvgauge.signal(Unix::STOP);
    manager.socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 256];
    while manager.socket.recv(&mut buffer).is_ok() {}
    manager.socket.set_nonblocking(false).unwrap();
    let quiet = std::time::Duration::from_millis(700);
    manager.socket.set_read_timeout(Some(quiet)).unwrap();
    assert!(
        manager.socket.recv(&mut buffer).is_err(),
        "it is told of one that stands still"
    );
    manager.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    kvgauge.signal(Unix::CONT);
    manager.until("WATCHDOG=1");
    assert_eq!(kvgauge.stop(), 0);
    // Who is not meant tells nothing.
    let manager = Manager::new();
    let _other = Setup::new(Upstream::ok().address())
        .environment("NOTIFY_SOCKET", &manager.path())
        .environment("WATCHDOG_USEC", "600000")
        .environment("WATCHDOG_PID", "1")
        .start();
    manager.until("READY=1");
    manager.socket.set_read_timeout(Some(quiet)).unwrap();
    assert!(manager.socket.recv(&mut buffer).is_err());
}

#[test]
fn a_manager_that_is_not_there_is_told_once_and_nothing_else_happens() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .environment("NOTIFY_SOCKET", "/nowhere/notify")
        .start();
    kvgauge.says("the service manager that NOTIFY_SOCKET names can't be told");
    assert_eq!(get(kvgauge.listen, "/").status(), 200);
}

#[test]
fn a_manager_that_takes_nothing_holds_nothing_up_and_is_told_later() {
    let manager = Manager::new();
    let settings = "scrape.interval = \"200ms\"\n";
    let mut kvgauge = Setup::new(Upstream::ok().address())
        .settings(settings)
        .environment("NOTIFY_SOCKET", &manager.path())
        .start();
    manager.until("READY=1");
    let fill = || {
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        while other.send_to(b"OTHER=1", manager.path()).is_ok() {}
    };
    fill();
    kvgauge.reload(settings);
    kvgauge.says("does not take what it is told, and its queue is full");
    kvgauge.says("the settings are reloaded");
    let told = manager.until("READY=1");
    assert_eq!(told[1], "STATUS=the settings are reloaded");
    fill();
    assert_eq!(kvgauge.stop(), 0);
}

#[test]
fn a_manager_may_listen_at_a_name_that_is_no_file() {
    let name = format!("kvgauge-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager { socket, folder };
    let _kvgauge = Setup::new(Upstream::ok().address())
        .environment("NOTIFY_SOCKET", &format!("@{name}"))
        .start();
    assert_eq!(manager.told()[0], "READY=1");
}

/// kvgauge with sockets 3 and 4, as a service manager passes them. Killed when dropped.
struct Passed {
    child: Child,
    said: Lines,
}

impl Passed {
    /// A shell moves the sockets from where a child gets them to where they are looked for. The request
    /// log goes nowhere.
    fn start(sockets: [TcpListener; 2], environment: &str, arguments: &[&str]) -> Passed {
        let [first, second] = sockets.map(OwnedFd::from);
        let script = format!(
            "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_PID=$$ LISTEN_FDS=2 {environment}; exec \"$0\" \"$@\""
        );
        let mut child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_kvgauge"), "serve"])
            .args(arguments)
            .stdin(Stdio::from(first))
            .stdout(Stdio::from(second))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Lines::of(child.stderr.take().unwrap());
        Passed { child, said }
    }

    fn says(&self, words: &str) {
        let found = self.said.wait(PATIENCE, |lines, ended| {
            let there = lines
                .iter()
                .any(|l| String::from_utf8_lossy(l).contains(words));
            there.then_some(true).or_else(|| ended.then_some(false))
        });
        assert_eq!(found, Some(true), "{words}: {}", self.said.text());
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn sockets_that_are_passed_are_listened_on_and_stay_open_behind_it() {
    let upstream = Upstream::ok();
    let page = Page::refusing();
    let url = format!("http://{}", upstream.address());
    let source = format!("a={}", page.url());
    // The addresses of the settings are taken: nobody binds them.
    let (taken, used) = listener();
    let used = used.to_string();
    let arguments = [
        "--upstream",
        &url,
        "--source",
        &source,
        "--listen",
        &used,
        "--admin",
        "127.0.0.1:1",
        "--workers",
        "1",
    ];
    for (names, swapped) in [
        ("", false),
        ("LISTEN_FDNAMES=kvgauge.socket:kvgauge.socket", false),
        ("LISTEN_FDNAMES=admin:listen", true),
    ] {
        let ((first, a), (second, b)) = (listener(), listener());
        let kept = [first.try_clone().unwrap(), second.try_clone().unwrap()];
        let (listen, admin) = if swapped { (b, a) } else { (a, b) };
        let mut kvgauge = Passed::start([first, second], names, &arguments);
        kvgauge.says(&format!(
            "a socket was passed for {listen}: listen = {used} is not used"
        ));
        kvgauge.says(&format!("listening on {listen}"));
        kvgauge.says(&format!("admin on {admin}"));
        assert_eq!(get(listen, "/").status(), 200, "{names}");
        assert_eq!(get(admin, "/readyz").status(), 200, "{names}");
        let pid = Pid::from_raw(i32::try_from(kvgauge.child.id()).unwrap()).unwrap();
        kill_process(pid, Unix::TERM).unwrap();
        let ended = within(PATIENCE, "it ends", || kvgauge.child.try_wait().unwrap());
        assert!(ended.success());
        // Whoever comes now waits for the next one.
        let waiting = Client::try_connect(listen);
        assert!(waiting.is_ok(), "{names}");
        drop(kept);
    }
    drop(taken);
}

#[test]
fn sockets_for_somebody_else_are_left_alone_and_what_is_wrong_is_said() {
    let page = Page::refusing();
    let source = format!("a={}", page.url());
    let arguments = [
        "--source",
        &source,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--workers",
        "1",
    ];
    let ((first, a), (second, _)) = (listener(), listener());
    let kvgauge = Passed::start([first, second], "LISTEN_PID=1", &arguments);
    kvgauge.says("admin on");
    assert!(
        !kvgauge.said.text().contains(&a.to_string()),
        "{}",
        kvgauge.said.text()
    );
    for (environment, said) in [
        ("LISTEN_FDS=two", "LISTEN_FDS=\"two\" is no number"),
        (
            "LISTEN_FDS=4000000000",
            "LISTEN_FDS=4000000000 are more than 16",
        ),
        (
            "LISTEN_FDNAMES=listen:listen",
            "Two sockets were passed for listen",
        ),
    ] {
        let kvgauge = Passed::start([listener().0, listener().0], environment, &arguments);
        kvgauge.says(said);
    }
}
