//! Lists that mislead, hang or change all the time: what kvgauge makes of them, and how it ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use support::kvgauge::{run, run_with};
use support::names::slow_names;
use support::page::Behaviour;
use support::{Kvgauge, Page, Setup, Upstream, eventually, get, pool};

const DECODE: &str = "sglang-0.5.23-decode-tp4-busy";
const DECODE_USAGE: &str = "0.0047";
const HOT: &str = "sglang-0.5.23-decode-tp4-hot";
const HOT_USAGE: &str = "0.9305";

/// kvgauge that reads, and looks for sources, each 100 ms.
fn setup(upstream: &Upstream, discovery: &str) -> Setup {
    Setup::new(upstream.address()).settings(&format!(
        "scrape = {{ interval = \"100ms\", timeout = \"500ms\", max_age = \"3s\" }}\n\
         [discovery]\ninterval = \"100ms\"\n{discovery}\n"
    ))
}

fn listing(urls: &[String]) -> String {
    let one = |url| json!({"id": url, "url": url, "worker_type": "decode", "is_healthy": true});
    let workers: Vec<Value> = urls.iter().map(one).collect();
    json!({"total": workers.len(), "workers": workers, "stats": {}}).to_string()
}

fn urls(addresses: &[SocketAddr]) -> Vec<String> {
    let url = |address| format!("http://{address}");
    addresses.iter().map(url).collect()
}

fn file_sd(targets: &[String]) -> String {
    json!([{"targets": targets, "labels": {"role": "decode"}}]).to_string()
}

fn until_usage(kvgauge: &Kvgauge, wanted: &str) {
    eventually(&format!("X-KV-Usage is {wanted}"), || {
        let answer = get(kvgauge.listen, "/");
        (answer.head.get("x-kv-usage").as_deref() == Some(wanted)).then_some(())
    });
}

/// What `/sources` says of the source with this name.
fn source(kvgauge: &Kvgauge, name: &str) -> Option<Value> {
    let answer = get(kvgauge.admin, "/sources").json();
    let mut all = answer["sources"].as_array().unwrap().iter();
    all.find(|source| source["name"] == name).cloned()
}

fn until_problem(kvgauge: &Kvgauge, words: &str) {
    eventually(&format!("discovery says {words}"), || {
        let seen = get(kvgauge.admin, "/sources").json()["discovery"][0].clone();
        let problem = seen["problem"].as_str().unwrap_or_default();
        problem.contains(words).then_some(())
    });
}

#[test]
fn a_kvgauges_page_under_any_name_is_not_merged() {
    let upstream = Upstream::ok();
    let decode = Page::real(DECODE);
    let router = Page::text(listing(&urls(&[decode.address()])));
    let at = format!("workers = \"http://{}\"", router.address());
    let kvgauge = setup(&upstream, &at).start();
    kvgauge.until_up(&format!("decode-{}", decode.address()));
    until_usage(&kvgauge, DECODE_USAGE);

    // Its own page, at an address that does not tell.
    router.set(Behaviour::Text(listing(&urls(&[
        decode.address(),
        kvgauge.admin,
    ]))));
    let name = format!("decode-{}", kvgauge.admin);
    kvgauge.until_metric("kvgauge_source_up", &[("source", &name)], Some(0.0));
    kvgauge.says("answered at /metrics with a kvgauge's own page, which repeats those of others");
    let error = source(&kvgauge, &name).unwrap()["last_error"].clone();
    assert_eq!(error["reason"], "content", "{error}");
    let page = kvgauge.metrics_text();
    let label = format!("source=\"{name}\"");
    let repeated: Vec<&str> = page
        .lines()
        .filter(|line| line.contains(&label) && !line.starts_with("kvgauge_"))
        .collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    let answer = get(kvgauge.listen, "/");
    let member = pool(&answer.head, "decode");
    assert_eq!(member.number("capacity"), Some(2_581_504.0));
    assert_eq!(member.number("missing"), Some(1.0));
}

#[test]
fn a_pipe_in_place_of_a_file_stops_nothing() {
    let upstream = Upstream::ok();
    let decode = Page::real(DECODE);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sd.json");
    fs::write(&path, file_sd(&[decode.address().to_string()])).unwrap();
    let at = format!("file_sd = [\"{}\"]", path.display());
    let mut kvgauge = setup(&upstream, &at).start();
    until_usage(&kvgauge, DECODE_USAGE);
    fs::remove_file(&path).unwrap();
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    until_problem(&kvgauge, "sd.json (discovery.file_sd) is no file");
    // What was known holds, and is read on.
    let asked = decode.asked();
    eventually("more reads", || (decode.asked() >= asked + 3).then_some(()));
    until_usage(&kvgauge, DECODE_USAGE);
    assert_eq!(kvgauge.stop(), 0);
}

#[test]
fn another_file_of_the_same_length_and_age_is_seen() {
    let upstream = Upstream::ok();
    let (decode, hot) = (Page::real(DECODE), Page::real(HOT));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let age = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    for (name, page) in [("1", &decode), ("2", &hot)] {
        // As long, whatever the port.
        let text = format!("{:<200}", file_sd(&[page.address().to_string()]));
        fs::write(path(name), text).unwrap();
        let file = fs::File::options().write(true).open(path(name)).unwrap();
        file.set_modified(age).unwrap();
    }
    let link = |to: &str| {
        std::os::unix::fs::symlink(path(to), path("new")).unwrap();
        fs::rename(path("new"), path("sd.json")).unwrap();
    };
    link("1");
    let at = format!("file_sd = [\"{}\"]", path("sd.json").display());
    let kvgauge = setup(&upstream, &at).start();
    until_usage(&kvgauge, DECODE_USAGE);
    link("2");
    until_usage(&kvgauge, HOT_USAGE);
}

#[test]
fn no_list_makes_a_password_known() {
    let upstream = Upstream::ok();
    let listed = "http://user:s3cret@10.0.0.1:8000".to_owned();
    let router = Page::text(listing(std::slice::from_ref(&listed)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sd.json");
    let settings = folder.path().join("kvgauge.toml");
    let workers = format!("workers = \"http://{}\"", router.address());
    let files = format!("file_sd = [\"{}\"]", path.display());
    fs::write(&path, file_sd(&["user:s3cret@10.0.0.1:8000".to_owned()])).unwrap();
    let kvgauge = setup(&upstream, &format!("{workers}\n{files}")).start();
    let said = kvgauge.says("(discovery.workers) lists");
    assert!(said.contains("http://…@10.0.0.1:8000"), "{said}");
    let said = kvgauge.says("(discovery.file_sd) has the target");
    assert!(said.contains("…@10.0.0.1:8000"), "{said}");
    // What has another form is repeated by whoever reads it.
    fs::write(&path, json!([{"targets": listed}]).to_string()).unwrap();
    kvgauge.says("is no list of targets in JSON");
    let text = format!(
        "{}{}",
        kvgauge.diagnostics.text(),
        get(kvgauge.admin, "/sources").json()
    );
    assert!(!text.contains("s3cret"), "{text}");

    fs::write(&settings, format!("[discovery]\n{workers}\n{files}\n")).unwrap();
    let output = run(&["doctor", "--config", settings.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("http://…@10.0.0.1:8000"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn sources_that_come_and_go_do_not_fill_the_log() {
    const ROUNDS: usize = 15;
    let upstream = Upstream::ok();
    let pages: Vec<Page> = (0..4).map(|_| Page::refusing()).collect();
    let addresses: Vec<SocketAddr> = pages.iter().map(Page::address).collect();
    let router = Page::text(listing(&[]));
    let at = format!("workers = \"http://{}\"\nmax_sources = 4", router.address());
    let kvgauge = setup(&upstream, &at).start();
    for round in 0..ROUNDS {
        let shown = &addresses[round % 2 * 2..][..2];
        router.set(Behaviour::Text(listing(&urls(shown))));
        for address in shown {
            let name = format!("decode-{address}");
            kvgauge.until_metric("kvgauge_source_up", &[("source", &name)], Some(0.0));
        }
    }
    let text = kvgauge.diagnostics.text();
    let told = text.matches("refused the connection").count();
    assert!((2..=22).contains(&told), "{told} lines: {text}");
    kvgauge.says("the sources that were found change so often");
}

// === names ===

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn threads(kvgauge: &Kvgauge) -> usize {
    let tasks = format!("/proc/{}/task", kvgauge.pid());
    fs::read_dir(tasks).unwrap().count()
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_name_that_is_not_answered_for_holds_up_nobody() {
    let upstream = Upstream::ok();
    let decode = Page::real(DECODE);
    let port = decode.address().port();
    let folder = tempfile::tempdir().unwrap();
    let library = slow_names(folder.path());
    let at =
        format!("dns = [\"http://slow-a:1\", \"http://slow-b:1\", \"http://localhost:{port}\"]");
    let mut kvgauge = setup(&upstream, &at)
        .source_at("set", "prefill", "http://slow-c:1")
        .source_at("more", "prefill", "http://slow-c:2")
        .environment("LD_PRELOAD", library.to_str().unwrap())
        .start();
    kvgauge.until_up(&format!("127.0.0.1:{port}"));
    until_usage(&kvgauge, DECODE_USAGE);
    until_problem(&kvgauge, "the name \"slow-a\" has not been resolved within");
    let said = kvgauge.says("set: the name \"slow-c\" has not been resolved within");
    assert!(said.contains("see who resolves names"), "{said}");
    let error = source(&kvgauge, "set").unwrap()["last_error"].clone();
    assert_eq!(error["reason"], "resolve", "{error}");

    // It is told once.
    let text = kvgauge.diagnostics.text();
    assert_eq!(text.matches("set: the name").count(), 1, "{text}");
    // However often they are asked for, each is looked up once.
    let (before, asked) = (threads(&kvgauge), decode.asked());
    eventually("more reads", || (decode.asked() >= asked + 4).then_some(()));
    assert!(threads(&kvgauge) <= before, "{before} threads before");
    assert_eq!(kvgauge.stop(), 0);
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_name_that_is_not_answered_for_holds_up_neither_doctor_nor_status() {
    let folder = tempfile::tempdir().unwrap();
    let library = slow_names(folder.path());
    let environment = [("LD_PRELOAD", library.to_str().unwrap())];
    for command in ["doctor", "status"] {
        let output = run_with(&[command, "http://slow:1"], &environment);
        let text = String::from_utf8_lossy(&output.stdout);
        let said = "the name \"slow\" has not been resolved within";
        assert!(text.contains(said), "{command}: {text}");
    }
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn requests_to_a_router_whose_name_is_not_answered_for_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let library = slow_names(folder.path());
    let upstream = Upstream::ok();
    let mut kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"100ms\"\ntimeouts.connect = \"500ms\"\n")
        .upstream_at("http://slow:1")
        .workers(1)
        .environment("LD_PRELOAD", library.to_str().unwrap())
        .start();
    // The second does not wait.
    for _ in 0..2 {
        let answer = get(kvgauge.listen, "/");
        assert_eq!(answer.status(), 504, "{}", answer.head.text());
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(body.contains("has not been resolved within"), "{body}");
    }
    assert_eq!(kvgauge.stop(), 0);
}
