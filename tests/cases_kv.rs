//! Problems reported in public about what engines say of their KV cache, each as a test that is
//! named by its id. Inputs are in `tests/data/cases`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::sync::Mutex;
use std::time::{Duration, Instant};
use support::client::post;
use support::page::Behaviour;
use support::pools::pool;
use support::upstream::{OK, STREAM};
use support::{
    Client, Kvgauge, Next, Page, Response, Setup, Upstream, eventually, fetch, get, pause, strict,
};

/// The number in `X-KV-Usage`; `None` where the header is absent.
fn usage(response: &Response) -> Option<f64> {
    response
        .head
        .get("x-kv-usage")
        .map(|text| text.parse().unwrap())
}

fn usage_gauge(kvgauge: &Kvgauge, role: &str) -> Option<f64> {
    kvgauge
        .metrics()
        .value("kvgauge_kv_usage_ratio", &[("role", role)])
}

/// Asks until the header is this: the stamp follows a reading by an instant.
fn until_usage(kvgauge: &Kvgauge, wanted: Option<&str>) -> Response {
    eventually(&format!("X-KV-Usage is {wanted:?}"), || {
        let answer = get(kvgauge.listen, "/");
        (answer.head.get("x-kv-usage").as_deref() == wanted).then_some(answer)
    })
}

#[test]
fn b13_a_gauge_without_a_sample_is_unknown_not_zero() {
    let upstream = Upstream::ok();
    let prefill = Page::case("b13-p.prom");
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("prefill", "prefill", &prefill)
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("prefill");
    kvgauge.until_up("decode");
    let answer = until_usage(&kvgauge, Some("0.3700"));
    assert_eq!(pool(&answer.head, "decode").number("usage"), Some(0.37));
    let member = pool(&answer.head, "prefill");
    assert!(member.unknown().is_some(), "{}", answer.head.text());
    assert_eq!(member.number("usage"), None);
    // The page says how many requests run there: that much is known.
    assert_eq!(member.number("running"), Some(0.0));
    assert_eq!(usage_gauge(&kvgauge, "decode"), Some(0.37));
    assert_eq!(usage_gauge(&kvgauge, "prefill"), None);

    // A sample that is 0 is a true 0.
    let text = String::from_utf8(support::data::case("b13-p.prom")).unwrap();
    prefill.set(Behaviour::Text(
        text + "sglang:token_usage{model_name=\"m-a\"} 0.0\n",
    ));
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "prefill")], Some(0.0));
    let answer = eventually("the header knows of prefill", || {
        let answer = get(kvgauge.listen, "/");
        pool(&answer.head, "prefill")
            .unknown()
            .is_none()
            .then_some(answer)
    });
    assert_eq!(pool(&answer.head, "prefill").number("usage"), Some(0.0));
}

#[test]
fn b13_an_unknown_headline_leaves_the_header_out_and_the_log_null() {
    let upstream = Upstream::ok();
    let decode = Page::case("b13-p.prom");
    let mut kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    let answer = get(kvgauge.listen, "/");
    assert_eq!(answer.status(), 200);
    assert_eq!(usage(&answer), None);
    for line in kvgauge.lines_to_the_end() {
        assert!(line["kv.start.usage"].is_null(), "{line}");
        assert!(line["kv.end.usage"].is_null(), "{line}");
    }
}

#[test]
fn b14_a_gauge_that_stands_still_is_shown_as_it_is() {
    let upstream = Upstream::ok();
    let decode = Page::case("b14.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("decode");
    eventually("20 scrapes", || {
        let metrics = kvgauge.metrics();
        let of = |name| metrics.value(name, &[("source", "decode")]);
        assert_eq!(of("sglang:gen_throughput"), Some(37.5));
        assert_eq!(of("sglang:token_usage"), Some(0.11));
        assert_eq!(of("sglang:num_running_reqs"), Some(0.0));
        let age = of("kvgauge_source_age_seconds").unwrap();
        assert!(age < 2.0, "age {age}");
        (decode.asked() >= 20).then_some(())
    });
    until_usage(&kvgauge, Some("0.1100"));
    let metrics = kvgauge.metrics();
    let unchanged = metrics.value("kvgauge_source_unchanged_seconds", &[("source", "decode")]);
    assert!(unchanged.unwrap() >= 1.0, "unchanged for {unchanged:?}");
}

#[test]
fn b18_the_role_is_that_of_the_settings() {
    let upstream = Upstream::ok();
    let text = String::from_utf8(support::data::case("b18.prom")).unwrap();
    let decode = Page::text(text.clone());
    let prefill = Page::text(
        text.replace("engine_type=\"decode\"", "engine_type=\"prefill\"")
            .replace("0.52", "0.25"),
    );
    let kvgauge = Setup::new(upstream.address())
        .source("p", "prefill", &prefill)
        .source("d", "decode", &decode)
        .start();
    kvgauge.until_up("p");
    kvgauge.until_up("d");
    let answer = until_usage(&kvgauge, Some("0.5200"));
    assert_eq!(pool(&answer.head, "decode").number("usage"), Some(0.52));
    assert_eq!(pool(&answer.head, "prefill").number("usage"), Some(0.25));
    let metrics = kvgauge.metrics();
    let counter = |source| {
        let labels = [("source", source), ("engine_type", "unified")];
        metrics.value("sglang:prompt_tokens_total", &labels)
    };
    assert_eq!((counter("p"), counter("d")), (Some(1200.0), Some(1200.0)));
    let gauge = [("source", "d"), ("engine_type", "decode")];
    assert_eq!(metrics.value("sglang:token_usage", &gauge), Some(0.52));

    // Whatever engine_type says.
    decode.set(Behaviour::Text(
        text.replace("engine_type=\"decode\"", "engine_type=\"prefill\"")
            .replace("0.52", "0.53"),
    ));
    let answer = until_usage(&kvgauge, Some("0.5300"));
    assert_eq!(pool(&answer.head, "decode").number("usage"), Some(0.53));
}

#[test]
fn b19_a_source_that_was_never_read_is_unknown_not_idle() {
    let upstream = Upstream::ok();
    let prefill = Page::text("# TYPE sglang:token_usage gauge\nsglang:token_usage 0.4\n");
    let decode = Page::refusing();
    let kvgauge = Setup::new(upstream.address())
        .source("prefill", "prefill", &prefill)
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("prefill");
    let start = prefill.asked();
    let mut n = 0;
    eventually("20 scrapes", || {
        n += 1;
        let id = format!("unknown-{n}");
        let answer = fetch(
            kvgauge.listen,
            format!("GET / HTTP/1.1\r\nHost: k\r\nx-request-id: {id}\r\n\r\n"),
        );
        assert_eq!((answer.status(), usage(&answer)), (200, None));
        let member = pool(&answer.head, "decode");
        assert!(member.unknown().is_some(), "{}", answer.head.text());
        assert_eq!(member.number("usage"), None);
        let line = kvgauge.line_of(&id);
        assert!(
            line["kv.start.usage"].is_null() && line["kv.end.usage"].is_null(),
            "{line}"
        );
        let metrics = kvgauge.metrics();
        assert_eq!(
            metrics.value("kvgauge_source_up", &[("source", "decode")]),
            Some(0.0)
        );
        assert_eq!(
            metrics.value("kvgauge_kv_usage_ratio", &[("role", "decode")]),
            None
        );
        assert!(
            metrics
                .all("sglang:token_usage", &[("source", "decode")])
                .is_empty()
        );
        (prefill.asked() >= start + 20).then_some(())
    });
    decode.set(Behaviour::Text(
        "# TYPE sglang:token_usage gauge\nsglang:token_usage 0.0\n".into(),
    ));
    kvgauge.until_up("decode");
    let answer = until_usage(&kvgauge, Some("0.0000"));
    assert_eq!(pool(&answer.head, "decode").number("usage"), Some(0.0));
    assert_eq!(usage_gauge(&kvgauge, "decode"), Some(0.0));
}

/// The three pages of a real deployment, and what they are called here.
fn deployment() -> [(&'static str, &'static str, Page, String); 3] {
    [
        ("router", "", "sglang-router-0.3.2-pd-after-traffic"),
        ("prefill", "prefill", "sglang-0.5.23-prefill-tp4-busy"),
        ("decode", "decode", "sglang-0.5.23-decode-tp4-busy"),
    ]
    .map(|(name, role, page)| (name, role, Page::real(page), support::data::page(page)))
}

#[test]
fn b48_one_page_holds_every_series_of_every_source() {
    let upstream = Upstream::ok();
    let deployment = deployment();
    let run = || {
        let mut setup = Setup::new(upstream.address());
        for (name, role, page, _) in &deployment {
            setup = setup.source(name, role, page);
        }
        let kvgauge = setup.start();
        for (name, ..) in &deployment {
            kvgauge.until_up(name);
        }
        assert_eq!(get(kvgauge.listen, "/").status(), 200);
        kvgauge.until_metric("kvgauge_requests_in_flight", &[], Some(0.0));
        kvgauge.metrics_text()
    };
    let page = run();
    strict::check(&page);
    let merged = support::Samples::parse(&page);
    for (source, _, _, text) in &deployment {
        let own = support::Samples::parse(text).0;
        assert!(own.len() > 200, "{source}: {}", own.len());
        for sample in own {
            let mut labels: Vec<_> = sample
                .labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            labels.push(("source", source));
            let all = merged.all(&sample.name, &labels);
            let same: Vec<_> = all
                .iter()
                .filter(|found| found.labels.len() == labels.len())
                .collect();
            assert_eq!(same.len(), 1, "{source}: {sample:?}");
            assert_eq!(same[0].text, sample.text, "{source}: {sample:?}");
        }
        // And no more than these.
        let of_source = merged.0.iter().filter(|sample| {
            sample.label("source") == Some(source) && !sample.name.starts_with("kvgauge_")
        });
        assert_eq!(
            of_source.count(),
            support::Samples::parse(text).0.len(),
            "{source}"
        );
    }
    for family in [
        "kvgauge_requests_total",
        "kvgauge_source_up",
        "kvgauge_build_info",
    ] {
        assert!(page.contains(&format!("# TYPE {family} ")), "{family}");
    }
    assert!(
        !merged
            .all("process_resident_memory_bytes", &[("source", "kvgauge")])
            .is_empty()
    );

    // After a restart every series has the same name and labels.
    let series = |page: &str| {
        let mut all: Vec<_> = support::Samples::parse(page)
            .0
            .into_iter()
            .map(|sample| (sample.name, sample.labels))
            .filter(|(name, _)| !name.starts_with("kvgauge_") && !name.starts_with("process_"))
            .collect();
        all.sort();
        all
    };
    assert_eq!(series(&run()), series(&page));
}

#[test]
fn b49_every_response_says_what_the_engine_last_published() {
    let upstream = Upstream::new(|connection| {
        let request = connection.request()?;
        match request.head.target() {
            "/stream" => {
                connection.send(STREAM)?;
                connection.chunk("data: {}\n\n")?;
                connection.chunk("data: [DONE]\n\n")?;
                connection.send("0\r\n\r\n")?;
            }
            "/bad" => connection.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")?,
            _ => connection.send(OK)?,
        }
        Ok(Next::Again)
    });
    let text = |value: &str| {
        format!("# TYPE sglang:token_usage gauge\nsglang:token_usage{{model_name=\"m\"}} {value}\n")
    };
    let decode = Page::text(text("0.10"));
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    until_usage(&kvgauge, Some("0.1000"));

    // The interval, and half a second.
    let allowed = Duration::from_millis(600);
    let published = Mutex::new(vec![(Instant::now(), "0.1000")]);
    let mut answers = Vec::new();
    for (page, header) in [("0.10", "0.1000"), ("0.55", "0.5500"), ("1.00", "1.0000")] {
        decode.set(Behaviour::Text(text(page)));
        published.lock().unwrap().push((Instant::now(), header));
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            for (path, status) in [("/stream", 200), ("/plain", 200), ("/bad", 400)] {
                let id = format!("{path}-{}", answers.len());
                let asked = Instant::now();
                let request = post(path, &format!("x-request-id: {id}\r\n"), "{}");
                let answer = fetch(kvgauge.listen, request);
                assert_eq!(answer.status(), status);
                let got = answer.head.get("x-kv-usage").expect("X-KV-Usage");
                answers.push((id, asked, Instant::now(), got));
            }
            pause(Duration::from_millis(100));
        }
    }
    let published = published.into_inner().unwrap();
    for (id, asked, answered, got) in &answers {
        // Published before the answer, and not replaced long before the question.
        let right = published.iter().enumerate().any(|(i, (since, value))| {
            let replaced = published.get(i + 1).map_or(*answered, |next| next.0);
            value == got && since <= answered && replaced + allowed >= *asked
        });
        assert!(right, "{id} got {got}");
        let line = kvgauge.line_of(id);
        // The same form; the answer stands between the request's start and its end.
        let logged = ["kv.start.usage", "kv.end.usage"].map(|field| line[field].as_f64());
        let same =
            |usage: &Option<f64>| usage.map(|usage| format!("{usage:.4}")).as_ref() == Some(got);
        assert!(logged.iter().any(same), "{got} in {line}");
    }
    for value in ["0.1000", "0.5500", "1.0000"] {
        assert!(
            answers.iter().any(|answer| answer.3 == value),
            "{value} never came"
        );
    }
}

#[test]
fn b49_the_header_is_there_before_the_first_body_byte() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    let usage = eventually("the stamp", || {
        let mut client = Client::connect(kvgauge.listen);
        client.send(post("/v1/chat/completions", "", "{\"stream\":true}"));
        client.head().get("x-kv-usage")
    });
    assert_eq!(usage, "0.3700");
}

#[test]
fn b06_a_family_typed_two_ways_keeps_one_and_says_so() {
    let upstream = Upstream::ok();
    let (prefill, decode) = (Page::case("b06-p.prom"), Page::case("b06-d.prom"));
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"100ms\"\n")
        .source("prefill", "prefill", &prefill)
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_up("prefill");
    kvgauge.until_up("decode");
    let page = kvgauge.metrics_text();
    strict::check(&page);
    // One of each: the first in order stays.
    let sources = support::get(kvgauge.admin, "/sources").json();
    let conflicts = &sources["sources"][1]["type_conflicts"];
    assert_eq!(conflicts[0]["type"], "histogram", "{sources}");
    assert_eq!(conflicts[0]["kept"], "summary", "{sources}");
    assert!(conflicts[0]["samples"].as_u64() > Some(0), "{sources}");
    assert_eq!(
        sources["sources"][0]["type_conflicts"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let family = conflicts[0]["family"].as_str().unwrap();
    assert!(kvgauge.says("left out of /metrics").contains(family));
    // Counted once a page, told once.
    let counted = || {
        let labels = [("source", "decode"), ("reason", "type_conflict")];
        let metrics = kvgauge.metrics();
        metrics.sum("kvgauge_source_dropped_samples_total", &labels)
    };
    support::eventually("the count to grow with the pages", || {
        (counted() > 3.0 * conflicts[0]["samples"].as_f64().unwrap()).then_some(())
    });
    let told = kvgauge
        .diagnostics
        .text()
        .matches("left out of /metrics")
        .count();
    assert_eq!(told, 1);
}
