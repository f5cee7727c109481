//! Sources that come and go: from the router's own list of workers, from `file_sd` files, from DNS.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::page::Behaviour;
use support::{Kvgauge, Page, Setup, Upstream, eventually, get, pool, strict};

const PREFILL: &str = "sglang-0.5.23-prefill-tp4-busy";
const DECODE: &str = "sglang-0.5.23-decode-tp4-busy";
const DECODE_USAGE: &str = "0.0047";
const HOT: &str = "sglang-0.5.23-decode-tp4-hot";
const HOT_USAGE: &str = "0.9305";

/// What `/workers` of sglang-router 0.3.2 says, as far as it matters.
fn listing(workers: &[(&Page, &str)]) -> String {
    let workers: Vec<Value> = workers
        .iter()
        .map(|(page, kind)| {
            let url = format!("http://{}", page.address());
            json!({"id": url, "url": url, "worker_type": kind, "is_healthy": true, "load": 0})
        })
        .collect();
    json!({"total": workers.len(), "workers": workers, "stats": {}}).to_string()
}

fn named(role: &str, page: &Page) -> String {
    format!("{role}-{}", page.address())
}

/// Names and states at `/sources`.
fn sources(kvgauge: &Kvgauge) -> Vec<(String, String)> {
    let answer = get(kvgauge.admin, "/sources").json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = answer["sources"].as_array().unwrap().iter();
    all.map(|s| (text(&s["name"]), text(&s["state"])))
        .filter(|(name, _)| name != "nobody")
        .collect()
}

fn discovery(kvgauge: &Kvgauge) -> Value {
    get(kvgauge.admin, "/sources").json()["discovery"][0].clone()
}

fn usage(kvgauge: &Kvgauge) -> Option<String> {
    get(kvgauge.listen, "/").head.get("x-kv-usage")
}

fn until_usage(kvgauge: &Kvgauge, wanted: Option<&str>) {
    eventually(&format!("X-KV-Usage is {wanted:?}"), || {
        (usage(kvgauge).as_deref() == wanted).then_some(())
    });
}

/// kvgauge that reads, and looks for sources, each 100 ms.
fn start(upstream: &Upstream, discovery: &str) -> Kvgauge {
    Setup::new(upstream.address())
        .settings(&format!(
            "scrape.interval = \"100ms\"\n[discovery]\ninterval = \"100ms\"\n{discovery}\n"
        ))
        .start()
}

#[test]
fn workers_come_and_go_with_the_routers_list() {
    let upstream = Upstream::ok();
    let (prefill, decode, hot) = (Page::real(PREFILL), Page::real(DECODE), Page::real(HOT));
    let router = Page::text(listing(&[(&prefill, "prefill"), (&decode, "decode")]));
    let kvgauge = start(
        &upstream,
        &format!("workers = \"http://{}\"", router.address()),
    );
    kvgauge.until_up(&named("prefill", &prefill));
    kvgauge.until_up(&named("decode", &decode));
    until_usage(&kvgauge, Some(DECODE_USAGE));

    // One leaves, one comes.
    router.set(Behaviour::Text(listing(&[
        (&hot, "decode"),
        (&prefill, "prefill"),
    ])));
    // What is shown meanwhile is what one of them says, or nothing.
    eventually("the header is the newcomer's", || {
        let usage = usage(&kvgauge);
        let known = [None, Some(DECODE_USAGE), Some(HOT_USAGE)];
        assert!(known.contains(&usage.as_deref()), "{usage:?}");
        (usage.as_deref() == Some(HOT_USAGE)).then_some(())
    });
    let answer = get(kvgauge.listen, "/");
    let member = pool(&answer.head, "decode");
    assert_eq!(
        member.number("running"),
        Some(311.0),
        "{}",
        answer.head.text()
    );
    assert_eq!(member.number("missing"), None, "{}", answer.head.text());
    let up = |name: String| (name, "up".to_owned());
    assert_eq!(
        sources(&kvgauge),
        [up(named("decode", &hot)), up(named("prefill", &prefill))]
    );
    let page = kvgauge.metrics_text();
    strict::check(&page);
    let gone = format!("\"{}\"", named("decode", &decode));
    assert!(!page.contains(&gone), "series of a source that has left");

    // Nobody asks the one that left, while the one that stayed is read on.
    let (left, stayed) = (decode.asked(), prefill.asked());
    eventually("more reads", || {
        (prefill.asked() >= stayed + 5).then_some(())
    });
    assert_eq!(decode.asked(), left);
    assert_eq!(prefill.most_open(), 1);

    // All leave: nothing is known, and nothing made up.
    router.set(Behaviour::Text(listing(&[])));
    until_usage(&kvgauge, None);
    assert_eq!(sources(&kvgauge), []);
    let answer = get(kvgauge.listen, "/");
    assert!(!answer.head.has("x-kv-pools"), "{}", answer.head.text());
}

#[test]
fn a_list_that_can_not_be_had_keeps_the_last_one_and_is_told() {
    let upstream = Upstream::ok();
    let decode = Page::real(DECODE);
    let router = Page::text(listing(&[(&decode, "regular")]));
    let kvgauge = start(
        &upstream,
        &format!("workers = \"http://{}\"", router.address()),
    );
    let name = named("unified", &decode);
    kvgauge.until_up(&name);
    let labels = [("discovery", "workers")];
    kvgauge.until_metric("kvgauge_discovery_up", &labels, Some(1.0));
    kvgauge.until_metric("kvgauge_discovery_found_sources", &labels, Some(1.0));

    for (behaviour, words) in [
        (Behaviour::Status(404), "only sglang-router has this list"),
        (Behaviour::Refuse, "refused the connection"),
        (Behaviour::Html, "no list of workers"),
    ] {
        let before = kvgauge
            .metrics()
            .value("kvgauge_discovery_failures_total", &labels);
        router.set(behaviour);
        kvgauge.says(words);
        kvgauge.until_metric("kvgauge_discovery_up", &labels, Some(0.0));
        eventually("it is at /sources", || {
            let seen = discovery(&kvgauge);
            let problem = seen["problem"].as_str().unwrap_or_default().to_owned();
            (seen["state"] == "failing" && problem.contains(words)).then_some(())
        });
        let after = kvgauge
            .metrics()
            .value("kvgauge_discovery_failures_total", &labels);
        assert!(after > before, "{after:?} {before:?}");
        // The source is read on.
        let asked = decode.asked();
        eventually("more reads", || (decode.asked() >= asked + 3).then_some(()));
        assert_eq!(sources(&kvgauge), [(name.clone(), "up".to_owned())]);
    }
    router.set(Behaviour::Text(listing(&[(&decode, "regular")])));
    kvgauge.until_metric("kvgauge_discovery_up", &labels, Some(1.0));
    kvgauge.says("whole again");
}

#[test]
fn an_unhealthy_worker_stays_and_one_that_settings_name_is_read_once() {
    let upstream = Upstream::ok();
    let (mine, gone) = (Page::real(DECODE), Page::refusing());
    let list = listing(&[(&mine, "decode"), (&gone, "decode")]);
    let router = Page::text(list.replace("true", "false"));
    let kvgauge = Setup::new(upstream.address())
        .settings(&format!(
            "scrape.interval = \"100ms\"\n[discovery]\ninterval = \"100ms\"\nworkers = \"http://{}\"\n",
            router.address()
        ))
        .source("mine", "decode", &mine)
        .start();
    let labels = [("source", &*named("decode", &gone))];
    kvgauge.until_metric("kvgauge_source_up", &labels, Some(0.0));
    kvgauge.until_up("mine");
    let names: Vec<String> = sources(&kvgauge).into_iter().map(|s| s.0).collect();
    assert_eq!(names, ["mine".to_owned(), named("decode", &gone)]);
    eventually("one of two is missing", || {
        let answer = get(kvgauge.listen, "/");
        (pool(&answer.head, "decode").number("missing") == Some(1.0)).then_some(())
    });
    until_usage(&kvgauge, Some(DECODE_USAGE));
    // Whom the router takes for unhealthy is told, and again when that is over.
    let both = [mine.address().to_string(), gone.address().to_string()];
    assert_eq!(discovery(&kvgauge)["unhealthy"], json!(both));
    let told = kvgauge.says("for unhealthy");
    assert!(told.contains(&both.join(", ")), "{told}");
    router.set(Behaviour::Text(list));
    kvgauge.says("takes all of its workers for healthy again");
    eventually("nobody is called unhealthy", || {
        (discovery(&kvgauge)["unhealthy"] == json!([])).then_some(())
    });
}

#[test]
fn more_sources_than_allowed_are_counted_and_told_once() {
    let upstream = Upstream::ok();
    let (a, b) = (Page::real(DECODE), Page::real(DECODE));
    let router = Page::text(listing(&[(&a, "decode"), (&b, "decode")]));
    let kvgauge = start(
        &upstream,
        &format!("workers = \"http://{}\"\nmax_sources = 1", router.address()),
    );
    let labels = [("discovery", "workers")];
    kvgauge.until_metric("kvgauge_discovery_left_out_sources", &labels, Some(1.0));
    assert_eq!(sources(&kvgauge).len(), 1);
    let first = named("decode", &a).min(named("decode", &b));
    kvgauge.until_up(&first);
    let asked = router.asked();
    eventually("more looks", || (router.asked() >= asked + 5).then_some(()));
    let told = kvgauge.diagnostics.text();
    assert_eq!(
        told.matches("raise discovery.max_sources").count(),
        1,
        "{told}"
    );
}

/// A `file_sd` file, put in its place as a whole.
fn put(path: &Path, targets: &[(&Page, &str)]) {
    let groups: Vec<Value> = targets
        .iter()
        .map(|(page, role)| {
            json!({"targets": [page.address().to_string()], "labels": {"role": role, "zone": "a"}})
        })
        .collect();
    let new = path.with_extension("new");
    fs::write(&new, json!(groups).to_string()).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn sources_follow_file_sd_files() {
    let upstream = Upstream::ok();
    let (prefill, decode, hot) = (Page::real(PREFILL), Page::real(DECODE), Page::real(HOT));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    put(&file("a.json"), &[(&decode, "decode")]);
    put(&file("b.json"), &[(&prefill, "prefill")]);
    let kvgauge = start(
        &upstream,
        &format!("file_sd = [\"{}/*.json\"]", folder.path().display()),
    );
    kvgauge.until_up(&named("decode", &decode));
    kvgauge.until_up(&named("prefill", &prefill));
    until_usage(&kvgauge, Some(DECODE_USAGE));

    // A broken file says nothing of what is there.
    fs::write(file("a.json"), "[{\"targets\": [\"127.0.0.1:1\"").unwrap();
    let labels = [("discovery", "file_sd")];
    kvgauge.until_metric("kvgauge_discovery_up", &labels, Some(0.0));
    let told = kvgauge.says("is no list of targets in JSON");
    assert!(told.contains("a.json"), "{told}");
    assert_eq!(sources(&kvgauge).len(), 2);
    until_usage(&kvgauge, Some(DECODE_USAGE));

    put(&file("a.json"), &[(&hot, "decode")]);
    until_usage(&kvgauge, Some(HOT_USAGE));
    kvgauge.until_metric("kvgauge_discovery_up", &labels, Some(1.0));
    fs::remove_file(file("b.json")).unwrap();
    eventually("only one is left", || {
        (sources(&kvgauge) == [(named("decode", &hot), "up".to_owned())]).then_some(())
    });
    let page = kvgauge.metrics_text();
    strict::check(&page);
    for gone in [named("decode", &decode), named("prefill", &prefill)] {
        assert!(!page.contains(&format!("\"{gone}\"")), "{gone} has left");
    }
}

#[test]
fn a_role_of_somebody_elses_is_told_once_and_the_page_says_it() {
    let upstream = Upstream::ok();
    let decode = Page::real(DECODE);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.json");
    put(&path, &[(&decode, "inference")]);
    let kvgauge = start(&upstream, &format!("file_sd = [{path:?}]"));
    kvgauge.until_up(&decode.address().to_string());
    until_usage(&kvgauge, Some(DECODE_USAGE));
    let words = "has the role \"inference\", which is none that kvgauge knows";
    let told = kvgauge.says(words);
    assert!(!told.contains("holds"), "{told}");
    // Looked at each time, and told once; nothing has failed, as nothing is lost.
    let asked = decode.asked();
    eventually("it is read on, and the list looked at", || {
        (decode.asked() > asked + 5).then_some(())
    });
    assert_eq!(kvgauge.diagnostics.text().matches(words).count(), 1);
    let seen = discovery(&kvgauge);
    assert_eq!((&seen["found"], &seen["failures"]), (&json!(1), &json!(0)));
    assert_eq!(seen["state"], "up");
    put(&path, &[(&decode, "decode")]);
    kvgauge.until_up(&named("decode", &decode));
    assert!(discovery(&kvgauge)["problem"].is_null());
}

#[test]
fn a_list_that_was_never_had_is_not_said_to_hold() {
    let upstream = Upstream::ok();
    let router = Page::refusing();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.json");
    fs::write(&path, "[").unwrap();
    let kvgauge = start(
        &upstream,
        &format!(
            "workers = \"http://{}\"\nfile_sd = [{path:?}]",
            router.address()
        ),
    );
    for words in ["refused the connection", "is no list of targets"] {
        let told = kvgauge.says(words);
        assert!(!told.contains("holds"), "{told}");
    }
    // Once there was one, it does.
    router.set(Behaviour::Text(listing(&[])));
    kvgauge.says("discovery.workers: the list of sources is whole again");
    router.set(Behaviour::Refuse);
    kvgauge.says("its last list holds");
}

#[test]
fn every_address_of_a_name_is_a_source() {
    let upstream = Upstream::ok();
    let decode = Page::real(DECODE);
    let port = decode.address().port();
    let kvgauge = start(
        &upstream,
        &format!("dns = [\"decode=http://localhost:{port}\", \"http://no.invalid:1\"]"),
    );
    kvgauge.until_up(&named("decode", &decode));
    until_usage(&kvgauge, Some(DECODE_USAGE));
    // The other name is told, and costs this one nothing.
    let told = kvgauge.says("\"no.invalid\" does not resolve");
    assert!(!told.contains("holds"), "it never came to any: {told}");
}

#[test]
fn a_change_of_the_list_is_everywhere_within_two_intervals_timed() {
    const INTERVAL: Duration = Duration::from_millis(500);
    let upstream = Upstream::ok();
    let (decode, hot) = (Page::real(DECODE), Page::real(HOT));
    let router = Page::text(listing(&[(&decode, "decode")]));
    let kvgauge = Setup::new(upstream.address())
        .settings(&format!(
            "scrape.interval = \"500ms\"\n[discovery]\ninterval = \"500ms\"\nworkers = \"http://{}\"\n",
            router.address()
        ))
        .start();
    until_usage(&kvgauge, Some(DECODE_USAGE));
    let start = Instant::now();
    router.set(Behaviour::Text(listing(&[(&hot, "decode")])));
    until_usage(&kvgauge, Some(HOT_USAGE));
    kvgauge.until_up(&named("decode", &hot));
    let took = start.elapsed();
    assert!(took < 2 * INTERVAL, "{took:?}");
}

#[test]
fn a_source_that_fails_is_asked_more_seldom_and_at_once_again_when_it_is_well_timed() {
    let upstream = Upstream::ok();
    let decode = Page::new(Behaviour::Status(503));
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape = { interval = \"50ms\", timeout = \"300ms\", max_age = \"3s\" }\n")
        .source("decode", "decode", &decode)
        .start();
    // After 0, 50, 150, 350, 750 and 1550 ms; at the same pace as before it would be 30.
    eventually("six attempts", || (decode.asked() >= 6).then_some(()));
    let start = Instant::now();
    // A small page, for a read that takes long is followed by a long pause.
    decode.set(Behaviour::Text("probe 1\n".to_owned()));
    kvgauge.until_up("decode");
    assert!(start.elapsed() > Duration::from_millis(200));
    // Half of max_age is the longest pause.
    assert!(start.elapsed() < Duration::from_millis(1_800));
    // Four pauses, of which each was 1.5 s before; stretched by a busy machine they are 1 s at most.
    let (asked, start) = (decode.asked(), Instant::now());
    eventually("the old pace", || {
        (decode.asked() >= asked + 4).then_some(())
    });
    assert!(start.elapsed() < Duration::from_millis(4_500));
}
