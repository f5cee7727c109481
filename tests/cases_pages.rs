//! What a client and an operator see when the sources serve real pages, and when they fail in
//! every way they can.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::time::{Duration, Instant};
use support::page::Behaviour;
use support::{
    Client, Kvgauge, Page, Response, Setup, Upstream, eventually, fetch, get, pool, strict,
};

const ROUTER: &str = "sglang-router-0.3.2-pd-after-traffic";
const PREFILL: &str = "sglang-0.5.23-prefill-tp4-busy";

/// kvgauge in front of a disaggregated deployment whose decode server serves this page.
fn deployment(decode: &str) -> (Kvgauge, Upstream, [Page; 3]) {
    let upstream = Upstream::ok();
    let pages = [Page::real(ROUTER), Page::real(PREFILL), Page::real(decode)];
    let kvgauge = Setup::new(upstream.address())
        .source("router", "", &pages[0])
        .source("prefill", "prefill", &pages[1])
        .source("decode", "decode", &pages[2])
        .start();
    for name in ["router", "prefill", "decode"] {
        kvgauge.until_up(name);
    }
    (kvgauge, upstream, pages)
}

fn ask(kvgauge: &Kvgauge, id: &str) -> Response {
    let request = format!("GET / HTTP/1.1\r\nHost: k\r\nx-request-id: {id}\r\n\r\n");
    fetch(kvgauge.listen, request)
}

/// Asks until the stamp is as `fits` says.
fn until_stamp(kvgauge: &Kvgauge, id: &str, fits: impl Fn(&Response) -> bool) -> Response {
    let mut n = 0;
    eventually(&format!("the stamp of {id}"), || {
        n += 1;
        let answer = ask(kvgauge, &format!("{id}-{n}"));
        fits(&answer).then_some(answer)
    })
}

#[test]
fn a_busy_deployment_is_shown_in_header_and_log() {
    // With gauges on one rank, and with the same ones repeated by all.
    for page in [
        "sglang-0.5.23-decode-tp4-busy",
        "sglang-0.5.23-decode-tp4-allranks-busy",
    ] {
        let (kvgauge, _upstream, _pages) = deployment(page);
        let answer = until_stamp(&kvgauge, "busy", |answer| answer.head.has("x-kv-usage"));
        assert_eq!(answer.head.get("x-kv-usage").unwrap(), "0.0047", "{page}");
        let member = pool(&answer.head, "decode");
        for (name, value) in [
            ("usage", 0.005),
            ("max", 0.005),
            ("fill", 0.028),
            ("used", 12_034.0),
            ("capacity", 2_581_504.0),
            ("running", 3.0),
            ("queued", 0.0),
            ("prealloc", 2.0),
            ("transfer", 1.0),
        ] {
            assert_eq!(
                member.number(name),
                Some(value),
                "{page}: {name} in {}",
                answer.head.text()
            );
        }
        assert!(member.number("age").unwrap() < 5000.0);
        let text = answer.head.get("x-kv-pools").unwrap();
        let expected = "used=12034;capacity=2581504;running=3;queued=0;prealloc=2;transfer=1";
        assert!(text.contains(expected), "{text}");
        pool(&answer.head, "prefill")
            .number("usage")
            .expect("prefill is known too");

        let id = answer.head.get("x-request-id").unwrap();
        let line = kvgauge.line_of(&id);
        assert_eq!(line["kv.start.used"], 12_034, "{line}");
        assert_eq!(line["kv.start.capacity"], 2_581_504, "{line}");
        assert_eq!(line["kv.start.running"], 3, "{line}");
        assert_eq!(line["kv.start.queued"], 0, "{line}");
        let usage = line["kv.start.usage"].as_f64().unwrap();
        assert!((usage - 12_034.0 / 2_581_504.0).abs() < 0.00006, "{line}");
        assert!(line["kv.start.age_ms"].is_number(), "{line}");
        assert!(line["kv.end.usage"].is_number(), "{line}");
        assert!(
            line["kv.start.pools"].to_string().contains("prefill"),
            "{line}"
        );
    }
}

#[test]
fn a_hot_deployment_is_shown_as_hot() {
    let (kvgauge, _upstream, _pages) = deployment("sglang-0.5.23-decode-tp4-hot");
    let answer = until_stamp(&kvgauge, "hot", |answer| answer.head.has("x-kv-usage"));
    assert_eq!(answer.head.get("x-kv-usage").unwrap(), "0.9305");
    let member = pool(&answer.head, "decode");
    assert_eq!(member.number("running"), Some(311.0));
    assert_eq!(member.number("queued"), Some(41.0));
}

#[test]
fn a_fresh_deployment_is_unknown_but_its_capacity() {
    let (kvgauge, _upstream, _pages) = deployment("sglang-0.5.23-decode-tp4-fresh");
    let answer = until_stamp(&kvgauge, "fresh", |answer| {
        answer
            .head
            .get("x-kv-pools")
            .is_some_and(|text| text.contains("decode;"))
            && pool(&answer.head, "decode").number("capacity").is_some()
    });
    assert_eq!(answer.head.get("x-kv-usage"), None);
    let member = pool(&answer.head, "decode");
    assert_eq!(member.number("capacity"), Some(2_581_504.0));
    assert!(member.unknown().is_some() && member.number("usage").is_none());
    let line = kvgauge.line_of(&answer.head.get("x-request-id").unwrap());
    assert!(
        line["kv.start.usage"].is_null() && line["kv.start.used"].is_null(),
        "{line}"
    );
    assert_eq!(line["kv.start.capacity"], 2_581_504, "{line}");
    let metrics = kvgauge.metrics();
    let decode = [("role", "decode")];
    assert_eq!(metrics.value("kvgauge_kv_usage_ratio", &decode), None);
    assert_eq!(metrics.value("kvgauge_kv_used_tokens", &decode), None);
    assert_eq!(
        metrics.value("kvgauge_kv_capacity_tokens", &decode),
        Some(2_581_504.0)
    );
}

#[test]
fn the_operators_see_the_same_as_json() {
    let (kvgauge, _upstream, _pages) = deployment("sglang-0.5.23-decode-tp4-busy");
    let kv = get(kvgauge.admin, "/kv");
    assert_eq!(kv.status(), 200);
    assert!(
        kv.head
            .get("content-type")
            .unwrap()
            .starts_with("application/json")
    );
    let text = kv.json().to_string();
    for word in ["12034", "2581504", "decode", "prefill"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let sources = get(kvgauge.admin, "/sources").json().to_string();
    for word in ["router", "prefill", "decode", "kv_used_tokens"] {
        assert!(sources.contains(word), "{word} in {sources}");
    }
}

const NAMES: [&str; 3] = ["router", "prefill", "decode"];

/// Asks both by turns; the median times of an answer. No answer may fail.
fn medians(one: &Kvgauge, other: &Kvgauge) -> (Duration, Duration) {
    let mut clients = [one, other].map(|kvgauge| Client::connect(kvgauge.listen));
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..400 {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let asked = Instant::now();
            let answer = client
                .send("GET / HTTP/1.1\r\nHost: k\r\n\r\n")
                .response("GET");
            times.push(asked.elapsed());
            assert_eq!(
                (answer.status(), answer.body.as_slice()),
                (200, b"{}".as_slice())
            );
        }
    }
    let [mut one, mut other] = times;
    one.sort();
    other.sort();
    (one[200], other[200])
}

#[test]
fn sources_that_fail_cost_no_request_anything_timed() {
    let upstream = Upstream::ok();
    let start = |pages: &[Page; 3]| {
        let mut setup = Setup::new(upstream.address())
            .workers(1)
            .settings("scrape = { interval = \"100ms\", timeout = \"300ms\", max_age = \"1s\" }\n");
        for ((name, role), page) in NAMES.into_iter().zip(["", "prefill", "decode"]).zip(pages) {
            setup = setup.source(name, role, page);
        }
        let kvgauge = setup.start();
        for name in NAMES {
            kvgauge.until_up(name);
        }
        kvgauge
    };
    let pages = || [ROUTER, PREFILL, "sglang-0.5.23-decode-tp4-busy"].map(Page::real);
    let (good, bad) = (pages(), pages());
    let (healthy, failing) = (start(&good), start(&bad));
    until_stamp(&failing, "good", |answer| answer.head.has("x-kv-usage"));

    for behaviour in [Behaviour::Hang, Behaviour::Refuse, Behaviour::Html] {
        let what = format!("{behaviour:?}");
        let failures = |name| {
            let metrics = failing.metrics();
            metrics.sum("kvgauge_source_scrape_failures_total", &[("source", name)])
        };
        let before = NAMES.map(failures);
        for page in &bad {
            page.set(behaviour.clone());
        }
        // A busy machine can disturb one comparison, not three.
        let slower = (0..3).all(|_| {
            let (without, with) = medians(&healthy, &failing);
            let allowed = (without / 10).max(Duration::from_micros(100));
            eprintln!("{what}: {without:?} healthy, {with:?} failing");
            with > without + allowed
        });
        assert!(!slower, "{what}: slower in each of three runs");
        for (name, before) in NAMES.into_iter().zip(before) {
            failing.until_metric("kvgauge_source_up", &[("source", name)], Some(0.0));
            eventually(&format!("{what} of {name} is counted"), || {
                (failures(name) > before).then_some(())
            });
        }
        // By the rules: at once where it refuses, else after max_age.
        let answer = until_stamp(&failing, &what, |answer| !answer.head.has("x-kv-usage"));
        let member = pool(&answer.head, "decode");
        assert!(member.unknown().is_some() && member.number("usage").is_none());
        // Each at its own time: they were read one after the other.
        let page = eventually(&format!("{what}: no series of what has failed"), || {
            let page = failing.metrics_text();
            (!page.contains("sglang:")).then_some(page)
        });
        strict::check(&page);
        // And the operators are told which, and why, as soon as each has been tried again.
        let reason = match behaviour {
            Behaviour::Hang => "timeout",
            Behaviour::Refuse => "connect",
            _ => "content",
        };
        for (at, name) in NAMES.into_iter().enumerate() {
            let source = eventually(&format!("{name}: {reason}"), || {
                let source = get(failing.admin, "/sources").json()["sources"][at].clone();
                (source["last_error"]["reason"] == reason).then_some(source)
            });
            assert_eq!(source["name"], name, "{source}");
            let message = source["last_error"]["message"].as_str().unwrap();
            assert!(message.contains(name), "{message}");
        }
    }

    for (page, name) in bad
        .iter()
        .zip([ROUTER, PREFILL, "sglang-0.5.23-decode-tp4-busy"])
    {
        page.set(Behaviour::Text(support::data::page(name)));
    }
    until_stamp(&failing, "again", |answer| {
        answer.head.get("x-kv-usage").as_deref() == Some("0.0047")
    });
}

/// kvgauge that knows its only source, and forgets it within 2 s.
fn one_source() -> (Kvgauge, Upstream, Page) {
    let upstream = Upstream::ok();
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape = { interval = \"100ms\", timeout = \"300ms\", max_age = \"2s\" }\n")
        .source("decode", "decode", &decode)
        .start();
    until_stamp(&kvgauge, "good", |answer| answer.head.has("x-kv-usage"));
    (kvgauge, upstream, decode)
}

/// How long the last reading holds when the page begins to behave like this.
fn holds(behaviour: Behaviour) -> Duration {
    let (kvgauge, _upstream, decode) = one_source();
    decode.set(behaviour);
    let start = Instant::now();
    // `up` is the last attempt and falls with the first failure, in all cases.
    kvgauge.until_metric("kvgauge_source_up", &[("source", "decode")], Some(0.0));
    until_stamp(&kvgauge, "unknown", |answer| !answer.head.has("x-kv-usage"));
    let held = start.elapsed();
    decode.set(Behaviour::Text(support::data::page(
        "sglang-0.5.23-decode-tp4-busy",
    )));
    until_stamp(&kvgauge, "back", |answer| answer.head.has("x-kv-usage"));
    held
}

#[test]
fn a_source_that_refuses_is_unknown_at_once() {
    let held = holds(Behaviour::Refuse);
    assert!(held < Duration::from_millis(1500), "held for {held:?}");
}

#[test]
fn a_source_that_resets_is_unknown_at_once() {
    let held = holds(Behaviour::Reset);
    assert!(held < Duration::from_millis(1500), "held for {held:?}");
}

#[test]
fn a_source_that_errs_is_unknown_after_its_time() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nsglang:token".to_vec();
    for behaviour in [Behaviour::Status(503), Behaviour::Raw(cut), Behaviour::Hang] {
        let what = format!("{behaviour:?}");
        let held = holds(behaviour);
        assert!(
            held > Duration::from_millis(1500),
            "{what}: gone after {held:?}"
        );
        assert!(held < Duration::from_secs(4), "{what}: held for {held:?}");
    }
}

#[test]
fn a_good_page_without_the_gauges_is_unknown_at_once_and_up() {
    let (kvgauge, _upstream, decode) = one_source();
    decode.set(Behaviour::Text("# TYPE a gauge\na 1\n".into()));
    let start = Instant::now();
    until_stamp(&kvgauge, "without", |answer| !answer.head.has("x-kv-usage"));
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "{:?}",
        start.elapsed()
    );
    kvgauge.until_up("decode");
    let metrics = kvgauge.metrics();
    assert_eq!(metrics.value("a", &[("source", "decode")]), Some(1.0));
}
