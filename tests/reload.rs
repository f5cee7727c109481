//! SIGHUP: settings that are read anew while kvgauge runs. What is in force at once and what is not, key by
//! key, is in `tests/config_reference.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal as Unix;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::lines::Lines;
use support::upstream::STREAM;
use support::wait::{PATIENCE, within};
use support::{Client, Kvgauge, Next, Page, Samples, Setup, Upstream, eventually, fetch, get};

const DECODE: &str = "sglang-0.5.23-decode-tp4-busy";
const PREFILL: &str = "sglang-0.5.23-prefill-tp4-busy";
const FAST: &str = "scrape.interval = \"100ms\"\n";

fn source(name: &str, page: &Page) -> String {
    format!("[[source]]\nname = \"{name}\"\nurl = \"{}\"\n", page.url())
}

fn started(settings: &str) -> Kvgauge {
    // It answers until the tests are over.
    let upstream = Box::leak(Box::new(Upstream::ok()));
    Setup::new(upstream.address()).settings(settings).start()
}

/// Names at `/sources`.
fn sources(kvgauge: &Kvgauge) -> Vec<String> {
    let answer = get(kvgauge.admin, "/sources").json();
    let all = answer["sources"].as_array().unwrap().iter();
    all.map(|s| s["name"].as_str().unwrap().to_owned())
        .collect()
}

fn usage(kvgauge: &Kvgauge) -> Option<String> {
    get(kvgauge.listen, "/").head.get("x-kv-usage")
}

fn until_reloads(kvgauge: &Kvgauge, result: &str, wanted: f64) {
    let labels = [("result", result)];
    kvgauge.until_metric("kvgauge_config_reloads_total", &labels, Some(wanted));
}

#[test]
fn a_source_that_is_added_is_read_and_one_that_is_taken_out_is_gone() {
    let (decode, prefill) = (Page::real(DECODE), Page::real(PREFILL));
    let one = format!("{FAST}{}", source("decode", &decode));
    let kvgauge = started(&one);
    kvgauge.until_up("decode");
    assert_eq!(sources(&kvgauge), ["decode"]);
    let both = format!("{one}{}", source("prefill", &prefill));
    kvgauge.reload_and_say(
        &both,
        "SIGHUP: the settings are reloaded: source prefill is new",
    );
    kvgauge.until_up("prefill");
    assert_eq!(sources(&kvgauge), ["decode", "prefill"]);
    let asked = decode.asked();
    let other = format!("{FAST}{}", source("prefill", &prefill));
    kvgauge.reload_and_say(&other, "source decode is gone");
    eventually("it is gone", || {
        (sources(&kvgauge) == ["prefill"]
            && kvgauge
                .metrics()
                .sum("sglang:max_total_num_tokens", &[("source", "decode")])
                == 0.0)
            .then_some(())
    });
    assert!(asked > 0);
    until_reloads(&kvgauge, "applied", 2.0);
}

#[test]
fn what_is_known_of_a_source_stays_while_it_is_read_otherwise() {
    let decode = Page::real(DECODE);
    let kvgauge = started(&format!("{FAST}{}", source("decode", &decode)));
    eventually("there is a usage", || usage(&kvgauge));
    for n in 0..10 {
        let label = if n % 2 == 0 { "origin" } else { "source" };
        kvgauge.reload_and_say(
            &format!(
                "{FAST}metrics.source_label = \"{label}\"\n{}",
                source("decode", &decode)
            ),
            &format!("-> {label}"),
        );
        // The next reading may not be there yet.
        for _ in 0..5 {
            assert_eq!(usage(&kvgauge).as_deref(), Some("0.0047"));
        }
        eventually("its series have the label", || {
            kvgauge.metrics().value(
                "sglang:num_running_reqs",
                &[(label, "decode"), ("tp_rank", "0")],
            )
        });
    }
}

#[test]
fn settings_with_a_fault_are_refused_whole_and_those_before_stay() {
    let (decode, prefill) = (Page::real(DECODE), Page::real(PREFILL));
    let good = format!("{FAST}{}", source("decode", &decode));
    let mut kvgauge = started(&good);
    kvgauge.until_up("decode");
    let last = "kvgauge_config_last_reload_successful";
    kvgauge.until_metric(last, &[], Some(1.0));
    let broken = format!("scrape.intervall = \"2s\"\n{}", source("prefill", &prefill));
    let said = kvgauge.reload_and_say(&broken, "SIGHUP: the settings are refused");
    assert!(said.contains("those from before stay in force"), "{said}");
    kvgauge.says("scrape.intervall");
    kvgauge.until_metric(last, &[], Some(0.0));
    until_reloads(&kvgauge, "refused", 1.0);
    assert_eq!(sources(&kvgauge), ["decode"]);
    assert_eq!(prefill.asked(), 0);
    assert_eq!(get(kvgauge.listen, "/").status(), 200);
    kvgauge.reload_and_say(
        &good,
        "nothing that can be changed while it runs has changed",
    );
    kvgauge.until_metric(last, &[], Some(1.0));
    until_reloads(&kvgauge, "applied", 1.0);
    assert_eq!(kvgauge.stop(), 0);
}

#[test]
fn what_needs_a_restart_is_named_with_both_values() {
    let decode = Page::real(DECODE);
    let own = source("decode", &decode);
    let kvgauge = started(&format!("{FAST}{own}"));
    let settings =
        "scrape.interval = \"200ms\"\nlimits.request_body = \"1KiB\"\nheaders.usage = \"\"\n";
    let said = kvgauge.reload_and_say(&format!("{settings}{own}"), "restart to apply");
    assert!(
        said.contains(
            "restart to apply headers.usage x-kv-usage -> \"\", limits.request_body off -> 1KiB"
        ),
        "{said}"
    );
    kvgauge.says("the settings are reloaded: scrape.interval 100ms -> 200ms");
    until_reloads(&kvgauge, "partly", 1.0);
    // As before.
    let body = support::client::post("/", "", &"x".repeat(2000));
    assert_eq!(fetch(kvgauge.listen, body).status(), 200);
    eventually("the header is there", || usage(&kvgauge));
}

#[test]
fn the_page_the_header_and_the_token_follow() {
    let (decode, prefill) = (
        Page::real("sglang-0.5.23-decode-tp4-hot"),
        Page::real(PREFILL),
    );
    let own = format!(
        "{}{}",
        source("decode", &decode),
        source("prefill", &prefill)
    );
    let kvgauge = started(&format!("{FAST}{own}"));
    kvgauge.until_up("decode");
    kvgauge.until_up("prefill");
    let is = |wanted: &str| (usage(&kvgauge).as_deref() == Some(wanted)).then_some(());
    eventually("the header speaks of decode", || is("0.9305"));
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let settings = format!(
        "{FAST}metrics.expose = \"none\"\nheaders.headline = \"prefill\"\nadmin.bearer_file = \"{}\"\n{own}",
        token.display()
    );
    let said = kvgauge.reload_and_say(&settings, "headers.headline auto -> prefill");
    assert!(said.contains("metrics.expose all -> none"), "{said}");
    assert_eq!(get(kvgauge.admin, "/metrics").status(), 401);
    let ask = "GET /metrics HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer s3cret\r\n\r\n";
    let page = fetch(kvgauge.admin, ask).text();
    assert!(page.contains("kvgauge_kv_usage_ratio"), "{page}");
    assert!(!page.contains("sglang:"), "{page}");
    eventually("the header speaks of prefill", || is("0.0047"));
    // A token that is taken back opens nothing from then on.
    std::fs::write(&token, "0ther\n").unwrap();
    kvgauge.reload_and_say(&settings, "the settings are reloaded");
    assert_eq!(fetch(kvgauge.admin, ask).status(), 401);
}

#[test]
fn ways_to_find_sources_come_go_and_go_on() {
    let decode = Page::real(DECODE);
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.json");
    let targets = serde_json::json!([{"targets": [decode.address().to_string()], "labels": {"role": "decode"}}]);
    std::fs::write(&list, targets.to_string()).unwrap();
    let kvgauge = started(&format!("{FAST}{}", source("own", &decode)));
    kvgauge.until_up("own");
    let found = format!("decode-{}", decode.address());
    let finding = format!(
        "{FAST}discovery.file_sd = [\"{}\"]\ndiscovery.interval = \"100ms\"\n",
        list.display()
    );
    kvgauge.reload_and_say(&finding, "source own is gone");
    kvgauge.until_up(&found);
    assert_eq!(sources(&kvgauge), [found.as_str()]);
    // The list is as it was, so what it has found is not lost in between.
    kvgauge.reload_and_say(
        &format!("{finding}discovery.max_sources = 7\n"),
        "discovery.max_sources 256 -> 7",
    );
    for _ in 0..5 {
        assert_eq!(sources(&kvgauge), [found.as_str()]);
        assert_eq!(usage(&kvgauge).as_deref(), Some("0.0047"));
    }
    kvgauge.reload_and_say(
        &format!("{FAST}{}", source("own", &decode)),
        "source own is new",
    );
    eventually("it is read as before", || {
        (sources(&kvgauge) == ["own"]).then_some(())
    });
}

#[test]
fn streams_go_on_and_a_drain_is_not_held_up() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Again)
    });
    let decode = Page::real(DECODE);
    let settings = format!(
        "{FAST}drain.timeout = \"1h\"\n{}",
        source("decode", &decode)
    );
    let mut kvgauge = Setup::new(upstream.address()).settings(&settings).start();
    let mut client = Client::connect(kvgauge.listen);
    client.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    assert!(client.chunk().is_some());
    let shorter = settings.replace("1h", "300ms");
    kvgauge.reload_and_say(&shorter, "drain.timeout 1h -> 300ms");
    assert_eq!(
        kvgauge.metrics().sum("kvgauge_requests_in_flight", &[]),
        1.0
    );
    kvgauge.signal(Unix::TERM);
    kvgauge.says("SIGTERM: draining");
    kvgauge.signal(Unix::HUP);
    kvgauge.says("SIGHUP: the settings are not read any more");
    // The new time holds, and SIGHUP is no second signal.
    assert_eq!(kvgauge.exit_code(PATIENCE), 0);
    kvgauge.says("cutting what still runs");
}

#[test]
fn a_terminal_that_closes_takes_it_along() {
    let mut started = InTerminal::start(&[]);
    started.hang_up();
    started.says("SIGHUP: the settings are reloaded");
    started.close_terminal();
    started.hang_up();
    started.says("SIGHUP (the terminal is gone): draining");
    started.ends();
}

/// As `nohup` starts it where that leaves standard input alone, and a shell behind `trap '' HUP`.
#[test]
fn who_ignores_a_lost_terminal_keeps_it() {
    let mut started = InTerminal::start(&["sh", "-c", "trap '' HUP && exec \"$@\"", "sh"]);
    started.close_terminal();
    started.hang_up();
    started.says("SIGHUP: the settings are reloaded");
    started.signal(Unix::TERM);
    started.says("SIGTERM: draining");
    started.ends();
}

/// kvgauge with a terminal as standard input.
struct InTerminal {
    child: Child,
    said: Lines,
    master: Option<OwnedFd>,
    _page: Page,
}

impl InTerminal {
    /// `before` stands before the command.
    fn start(before: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = std::fs::File::open(name).unwrap();
        let page = Page::refusing();
        let mut line = before.to_vec();
        line.push(env!("CARGO_BIN_EXE_kvgauge"));
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--workers", "1", "--source", &format!("a={}", page.url())])
            .stdin(terminal)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Lines::of(child.stderr.take().unwrap());
        let started = Self {
            child,
            said,
            master: Some(master),
            _page: page,
        };
        started.says("admin on");
        started
    }

    fn says(&self, words: &str) {
        let found = self.said.wait(PATIENCE, |lines, _| {
            lines
                .iter()
                .any(|l| String::from_utf8_lossy(l).contains(words))
                .then_some(())
        });
        assert!(found.is_some(), "{words}: {}", self.said.text());
    }

    fn close_terminal(&mut self) {
        self.master = None;
    }

    fn signal(&self, signal: Unix) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn hang_up(&self) {
        self.signal(Unix::HUP);
    }

    fn ends(&mut self) {
        let ended = within(Duration::from_secs(10), "it ends", || {
            self.child.try_wait().unwrap()
        });
        assert!(ended.success());
    }
}

impl Drop for InTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_pipe_in_place_of_the_file_is_refused() {
    let decode = Page::real(DECODE);
    let own = format!("{FAST}{}", source("decode", &decode));
    let mut kvgauge = started(&own);
    let file = kvgauge.settings_file();
    fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    kvgauge.signal(Unix::HUP);
    let said = kvgauge.says("is a pipe, which can't be read again");
    assert!(said.contains("SIGHUP: the settings are refused"), "{said}");
    until_reloads(&kvgauge, "refused", 1.0);
    fs::remove_file(&file).unwrap();
    kvgauge.reload_and_say(&own, "the settings are reloaded");
    assert_eq!(kvgauge.stop(), 0);
}

/// How many threads read the settings now.
fn reading(kvgauge: &Kvgauge) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", kvgauge.pid())).unwrap();
    let named = threads.filter(|thread| {
        let name = thread.as_ref().unwrap().path().join("comm");
        fs::read_to_string(name).is_ok_and(|name| name.trim() == "kvgauge-reload")
    });
    named.count()
}

#[test]
fn a_file_that_hangs_is_given_up_and_holds_up_no_end() {
    // Nobody types.
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let silent = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let decode = Page::real(DECODE);
    let own = source("decode", &decode);
    let mut kvgauge = started(&format!("{FAST}{own}"));
    let file = kvgauge.settings_file();
    let hang = |threads: usize| {
        fs::remove_file(&file).unwrap();
        symlink(&silent, &file).unwrap();
        kvgauge.signal(Unix::HUP);
        eventually("it is read", || {
            (reading(&kvgauge) == threads).then_some(())
        });
    };
    hang(1);
    // What comes meanwhile is done behind it.
    fs::remove_file(&file).unwrap();
    let said = kvgauge.reload_and_say(
        &format!("scrape.interval = \"200ms\"\n{own}"),
        "could not be read within 5 s",
    );
    assert!(said.contains("the settings are refused"), "{said}");
    kvgauge.says("the settings are reloaded: scrape.interval 100ms -> 200ms");
    until_reloads(&kvgauge, "refused", 1.0);
    hang(2);
    kvgauge.signal(Unix::TERM);
    kvgauge.says("the settings are not waited for");
    kvgauge.says("SIGTERM: draining");
    assert_eq!(kvgauge.exit_code(PATIENCE), 0);
}

/// A stream that this token has opened.
fn stream(kvgauge: &Kvgauge, token: &str) -> Client {
    let mut client = Client::connect(kvgauge.admin);
    client.send(format!(
        "GET /kv/stream HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer {token}\r\n\r\n"
    ));
    let head = client.head();
    assert_eq!(head.status(), 200, "{}", head.text());
    assert!(client.chunk().is_some());
    client
}

fn until_it_ends(stream: &mut Client) {
    let start = Instant::now();
    while stream.chunk().is_some() {
        assert!(start.elapsed() < PATIENCE, "it goes on");
    }
}

#[test]
fn a_token_that_is_taken_back_ends_what_it_has_opened_and_one_that_is_gone_does_not() {
    let decode = Page::real(DECODE);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "one").unwrap();
    let open = format!("{FAST}{}", source("decode", &decode));
    let guarded = format!("admin.bearer_file = \"{}\"\n{open}", token.display());
    let kvgauge = started(&open);
    let mut anybodys = stream(&kvgauge, "");
    kvgauge.reload_and_say(&guarded, "admin.bearer_file");
    until_it_ends(&mut anybodys);
    // By a reload.
    let mut first = stream(&kvgauge, "one");
    fs::write(&token, "two").unwrap();
    kvgauge.reload_and_say(&guarded, "the token in admin.bearer_file is another");
    until_it_ends(&mut first);
    // Without one.
    let mut second = stream(&kvgauge, "two");
    fs::write(&token, "three").unwrap();
    let ask = "GET /kv HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer three\r\n\r\n";
    eventually("the new one opens", || {
        (fetch(kvgauge.admin, ask).status() == 200).then_some(())
    });
    until_it_ends(&mut second);
    // A file that is gone takes nothing back, and each reload says so.
    let mut third = stream(&kvgauge, "three");
    until_reloads_with(&kvgauge, "three", "applied", 2.0);
    fs::remove_file(&token).unwrap();
    for n in 1..=2 {
        let said = kvgauge.reload_and_say(&guarded, "SIGHUP: admin.bearer_file");
        assert!(
            said.contains("the token read before is asked for"),
            "{said}"
        );
        until_reloads_with(&kvgauge, "three", "partly", f64::from(n));
    }
    for _ in 0..3 {
        assert!(third.chunk().is_some(), "the stream goes on");
    }
    // Nor does a listener that is open again.
    kvgauge.reload_and_say(&open, "admin.bearer_file");
    for _ in 0..2 {
        assert!(third.chunk().is_some(), "the stream goes on");
    }
}

/// As [`until_reloads`], of one that asks for this token.
fn until_reloads_with(kvgauge: &Kvgauge, token: &str, result: &str, wanted: f64) {
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer {token}\r\n\r\n");
    eventually("it is counted", || {
        let page = Samples::parse(&fetch(kvgauge.admin, &ask).text());
        let seen = page.value("kvgauge_config_reloads_total", &[("result", result)]);
        (seen == Some(wanted)).then_some(())
    });
}
