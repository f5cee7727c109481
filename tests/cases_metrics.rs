//! `/metrics` as scrapers ask for it: which form they get, in which coding, and what many at once cost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use rustix::process::Signal;
use std::collections::HashSet;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::page::Behaviour;
use support::{Client, Kvgauge, Page, Response, Setup, Upstream, strict};

const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OPEN_METRICS_UTF8: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8";

const PROMETHEUS_2: &str = "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
const PROMETHEUS_3: &str = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n";
const PROTOBUF: &str = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n";

/// Header lines of a request, and the content type of the answer.
const ASKED_FOR_CLASSIC: [(&str, &str); 9] = [
    ("", CLASSIC),
    ("Accept: */*\r\n", CLASSIC),
    ("Accept: application/json\r\n", CLASSIC),
    ("Accept:\r\n", CLASSIC),
    ("Accept: \u{e9},;q=\"\r\n", CLASSIC),
    (PROTOBUF, CLASSIC),
    ("Accept: text/plain;q=0, text/*;q=0, */*;q=0\r\n", CLASSIC),
    (
        "Accept: application/openmetrics-text;q=0\r\nAccept: */*\r\n",
        CLASSIC,
    ),
    (
        "Accept: text/plain;version=1.0.0;escaping=dots\r\n",
        "text/plain; version=1.0.0; charset=utf-8; escaping=dots",
    ),
];
const ASKED_FOR_OPEN_METRICS: [(&str, &str); 4] = [
    (PROMETHEUS_2, OPEN_METRICS),
    (PROMETHEUS_3, OPEN_METRICS_UTF8),
    (
        "Accept: application/openmetrics-text;version=0.0.1\r\n",
        "application/openmetrics-text; version=0.0.1; charset=utf-8",
    ),
    (
        "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n",
        OPEN_METRICS,
    ),
];

/// Header lines of a request, and whether the answer is packed.
const CODINGS: [(&str, bool); 6] = [
    ("", false),
    ("Accept-Encoding: gzip\r\n", true),
    ("Accept-Encoding: br, *;q=0.1\r\n", true),
    ("Accept-Encoding: gzip;q=0\r\n", false),
    ("Accept-Encoding: identity, gzip;q=0.5\r\n", false),
    // Nothing that we have is welcome: the page all the same, and no 406.
    ("Accept-Encoding: br, identity;q=0\r\n", false),
];

/// kvgauge in every state in which somebody may ask for its page.
fn states(look: impl Fn(&str, &Kvgauge)) {
    let upstream = Upstream::ok();
    let page = Page::real("sglang-0.5.23-decode-tp4-busy");
    let start = |settings: &str, page: &Page| {
        Setup::new(upstream.address())
            .settings(&format!("scrape.interval = \"100ms\"\n{settings}"))
            .source("decode", "decode", page)
            .start()
    };

    let hanging = Page::new(Behaviour::Hang);
    look("before the first scrape", &start("", &hanging));

    let kvgauge = start("", &page);
    kvgauge.until_up("decode");
    look("all is well", &kvgauge);

    let kvgauge = start("metrics.expose = \"none\"\n", &page);
    kvgauge.until_up("decode");
    look("the sources' pages are not shown", &kvgauge);

    let kvgauge = start("", &page);
    kvgauge.until_up("decode");
    page.set(Behaviour::Refuse);
    kvgauge.until_metric("kvgauge_source_up", &[("source", "decode")], Some(0.0));
    look("all sources are down", &kvgauge);
}

fn ask(client: &mut Client, method: &str, lines: &str) -> Response {
    let request = format!("{method} /metrics HTTP/1.1\r\nHost: k\r\n{lines}\r\n");
    client.send(request).response(method)
}

fn unpacked(answer: &Response) -> String {
    let mut text = String::new();
    if answer.head.has("content-encoding") {
        let mut packed = flate2::read::GzDecoder::new(answer.body.as_slice());
        packed.read_to_string(&mut text).unwrap();
        assert!(packed.into_inner().is_empty(), "bytes behind the gzip");
    } else {
        text = answer.text();
    }
    text
}

/// Names and values of a head, but for the date and the length.
fn lasting(answer: &Response) -> Vec<(String, Vec<u8>)> {
    let fields = answer.head.fields.iter().cloned();
    let changes = |name: &str| {
        ["date", "content-length"]
            .iter()
            .any(|n| name.eq_ignore_ascii_case(n))
    };
    fields.filter(|(name, _)| !changes(name)).collect()
}

fn length(answer: &Response) -> usize {
    let text = answer.head.get("content-length");
    let text = text.unwrap_or_else(|| panic!("no length: {}", answer.head.text()));
    text.parse().unwrap()
}

/// GET and HEAD, packed and not, in every state: the right heads, and bodies that pass the check.
fn answers_are_right(requests: &[(&str, &str)], check: impl Fn(&str)) {
    states(|state, kvgauge| {
        let mut client = Client::connect(kvgauge.admin);
        for (nth, (accept, content_type)) in requests.iter().enumerate() {
            // All codings with the first form, the usual two with each.
            let codings = if nth == 0 { CODINGS.len() } else { 2 };
            for (coding, packed) in CODINGS.into_iter().take(codings) {
                let lines = format!("{accept}{coding}");
                let what = format!("{state}: {lines}");
                let got = ask(&mut client, "GET", &lines);
                assert_eq!(got.status(), 200, "{what}");
                let head = &got.head;
                assert_eq!(head.get("content-type").unwrap(), *content_type, "{what}");
                let encoding = packed.then(|| "gzip".to_owned());
                assert_eq!(head.get("content-encoding"), encoding, "{what}");
                let vary = head.get("vary").unwrap().to_ascii_lowercase();
                assert_eq!(vary, "accept, accept-encoding", "{what}");
                assert_eq!(got.body.len(), length(&got), "{what}");
                let text = unpacked(&got);
                assert!(text.contains("\nkvgauge_build_info{"), "{what}: {text}");
                check(&text);

                // On the same connection: a body would be taken for the next head.
                let told = ask(&mut client, "HEAD", &lines);
                assert_eq!(told.head.start, got.head.start, "{what}");
                assert_eq!(lasting(&told), lasting(&got), "{what}");
                // Some numbers have more digits by now.
                assert!(length(&told).abs_diff(length(&got)) < 500, "{what}");
            }
        }
    });
}

#[test]
fn b10_whoever_does_not_ask_for_open_metrics_gets_classic_text() {
    answers_are_right(&ASKED_FOR_CLASSIC, strict::check);
}

#[test]
fn b10_whoever_asks_for_open_metrics_gets_it_whole() {
    answers_are_right(&ASKED_FOR_OPEN_METRICS, |page| {
        assert!(page.ends_with("\n# EOF\n"), "{page}");
        assert_eq!(page.matches("# EOF").count(), 1, "{page}");
    });
}

#[test]
fn the_other_pages_are_packed_too_and_none_is_406() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.admin);
    for path in ["/", "/kv", "/sources"] {
        for (coding, packed) in CODINGS {
            let request = format!("GET {path} HTTP/1.1\r\nHost: k\r\n{coding}\r\n");
            let answer = client.send(request).response("GET");
            assert_eq!(answer.status(), 200, "{path} {coding}");
            let encoding = packed.then(|| "gzip".to_owned());
            let told = answer.head.get("content-encoding");
            assert_eq!(told, encoding, "{path} {coding}");
            assert!(unpacked(&answer).len() > 20, "{path} {coding}");
        }
    }
}

/// How often the page had been put together when this one was.
fn merges(page: &str) -> u64 {
    let count = |line: &str| {
        line.strip_prefix("kvgauge_metrics_merges_total ")?
            .parse()
            .ok()
    };
    page.lines().find_map(count).unwrap()
}

#[test]
fn scrapers_that_ask_at_once_cost_one_merge() {
    let upstream = Upstream::ok();
    let page = Page::real("sglang-0.5.23-decode-dpattn4-busy");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &page)
        .start();
    kvgauge.until_up("decode");
    let mut clients: Vec<Client> = (0..30).map(|_| Client::connect(kvgauge.admin)).collect();
    let before = merges(&kvgauge.metrics_text());

    // While it is stopped all of them ask: then all wait at the same time.
    kvgauge.signal(Signal::STOP);
    for (n, client) in clients.iter_mut().enumerate() {
        let coding = ["", "Accept-Encoding: gzip\r\n"][n % 2];
        client.send(format!(
            "GET /metrics HTTP/1.1\r\nHost: k\r\nAccept: text/plain\r\n{coding}\r\n"
        ));
    }
    kvgauge.signal(Signal::CONT);
    let mut seen = HashSet::new();
    for client in &mut clients {
        let answer = client.response("GET");
        assert_eq!(answer.status(), 200);
        seen.insert(unpacked(&answer));
    }
    for page in &seen {
        strict::check(page);
        assert!(merges(page) > before, "a page from before the request");
    }
    // A second one where one of them came late.
    assert!(seen.len() <= 2, "{} pages", seen.len());
    let after = merges(&kvgauge.metrics_text());
    assert!(after - before <= 3, "{before} merges, then {after}");
}

#[test]
fn a_page_is_never_older_than_its_request() {
    let upstream = Upstream::ok();
    let page = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &page)
        .start();
    kvgauge.until_up("decode");
    // The newest page that anybody has.
    let newest = AtomicU64::new(0);
    let ask = |client: &mut Client, coding| {
        let page = unpacked(&ask(client, "GET", coding));
        let this = merges(&page);
        newest.fetch_max(this, Ordering::SeqCst);
        this
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Others ask all the time, so that there is always a rendering that one could join too late.
        for coding in ["", "", "Accept-Encoding: gzip\r\n"] {
            let mut other = Client::connect(kvgauge.admin);
            let (ask, done) = (&ask, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    ask(&mut other, coding);
                }
            });
        }
        let mut client = Client::connect(kvgauge.admin);
        let late = (0..100).find_map(|n| {
            let before = newest.load(Ordering::SeqCst);
            let this = ask(&mut client, ["", "Accept-Encoding: gzip\r\n"][n % 2]);
            // That one was made before this request came: this one is another.
            (this <= before).then_some((before, this))
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(late, None, "the newest page before a request, and its own");
    });
}
