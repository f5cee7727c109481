//! What of the sources' pages is shown again, and which pages are not taken at all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use support::page::Behaviour;
use support::{Kvgauge, Page, Setup, Upstream, eventually, get, pool, strict};

const ROUTER: &str = "sglang-router-0.3.2-pd-after-traffic";
const PREFILL: &str = "sglang-0.5.23-prefill-tp4-busy";
const DECODE: &str = "sglang-0.5.23-decode-tp4-busy";

/// What `/sources` says of the source at this place.
fn source(kvgauge: &Kvgauge, at: usize) -> Value {
    get(kvgauge.admin, "/sources").json()["sources"][at].clone()
}

/// The families on the unified page that are not kvgauge's own.
fn foreign(kvgauge: &Kvgauge) -> BTreeSet<String> {
    let page = kvgauge.metrics_text();
    strict::check(&page);
    let types = page.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    types
        .filter_map(|t| t.split(' ').next())
        .filter(|name| !name.starts_with("kvgauge_") && !name.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

fn until_usage(kvgauge: &Kvgauge, usage: &str) {
    eventually(&format!("X-KV-Usage is {usage}"), || {
        let answer = get(kvgauge.listen, "/");
        (answer.head.get("x-kv-usage").as_deref() == Some(usage)).then_some(())
    });
}

// === what is shown again ===

/// kvgauge in front of a disaggregated deployment, with this line of settings.
fn deployment(settings: &str) -> (Kvgauge, Upstream, [Page; 3]) {
    let upstream = Upstream::ok();
    let pages = [ROUTER, PREFILL, DECODE].map(Page::real);
    let kvgauge = Setup::new(upstream.address())
        .settings(&format!("scrape.interval = \"100ms\"\n{settings}\n"))
        .source("router", "", &pages[0])
        .source("prefill", "prefill", &pages[1])
        .source("decode", "decode", &pages[2])
        .start();
    for name in ["router", "prefill", "decode"] {
        kvgauge.until_up(name);
    }
    (kvgauge, upstream, pages)
}

#[test]
fn what_is_exposed_is_all_or_the_kv_state_or_nothing() {
    let (all, _upstream, _pages) = deployment("metrics.expose = \"all\"");
    let everything = foreign(&all);
    for name in ["sglang:token_usage", "sglang:time_to_first_token_seconds"] {
        assert!(everything.contains(name), "{name} of {everything:?}");
    }

    let (kv, _upstream, _pages) = deployment("metrics.expose = \"kv\"");
    let some = foreign(&kv);
    for name in [
        "sglang:token_usage",
        "sglang:kv_used_tokens",
        "sglang:max_total_num_tokens",
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
        "sglang:cache_hit_rate",
        "sglang:num_retracted_reqs",
    ] {
        assert!(some.contains(name), "{name} of {some:?}");
    }
    assert!(some.is_subset(&everything));
    for name in everything.difference(&some) {
        for word in ["token_usage", "kv_used", "running_reqs", "max_total_num"] {
            // Offline batches and routing keys are no state of the pool.
            let other = name.ends_with("_offline_batch") || name.contains("routing_key");
            assert!(!name.contains(word) || other, "{name} is not exposed");
        }
    }
    // No histogram, nothing of the router, nothing of Python.
    let page = kv.metrics_text();
    let types: Vec<&str> = page.lines().filter(|l| l.starts_with("# TYPE ")).collect();
    for line in types {
        let own = line.starts_with("# TYPE kvgauge_");
        assert!(own || !line.ends_with(" histogram"), "{line}");
    }
    assert!(
        some.iter().all(|name| name.starts_with("sglang:")),
        "{some:?}"
    );
    assert!(
        page.contains("kvgauge_source_up{source=\"router\"} 1"),
        "{page}"
    );
    assert!(page.contains("\nprocess_"), "{page}");
    let router = source(&kv, 0);
    assert_eq!(router["exposed_samples"], 0, "{router}");
    assert!(router["samples"].as_u64().unwrap() > 0, "{router}");

    let (none, _upstream, _pages) = deployment("metrics.expose = \"none\"");
    assert_eq!(foreign(&none), BTreeSet::new());

    // Whatever is exposed, the values are the same.
    for kvgauge in [&all, &kv, &none] {
        until_usage(kvgauge, "0.0047");
        let answer = get(kvgauge.listen, "/");
        let member = pool(&answer.head, "decode");
        for (name, value) in [("used", 12_034.0), ("running", 3.0), ("transfer", 1.0)] {
            assert_eq!(member.number(name), Some(value), "{}", answer.head.text());
        }
        let labels = [("role", "decode")];
        let running = kvgauge
            .metrics()
            .value("kvgauge_engine_requests_running", &labels);
        assert_eq!(running, Some(3.0));
    }
}

#[test]
fn an_engine_is_read_as_settings_say_and_kv_keeps_what_a_mapping_reads() {
    let upstream = Upstream::ok();
    let text = "acme_used_percent 42\nacme_running 3\nacme_other 1\nvllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25\n";
    let page = Page::text(text);
    let settings = "scrape.interval = \"100ms\"\nmetrics.expose = \"kv\"\n[engine.acme]\n\
                    usage = { metric = \"acme_used_percent\", unit = \"percent\" }\n\
                    running = { metric = \"acme_running\", unit = \"requests\" }\n";
    let start = |option: &str| {
        Setup::new(upstream.address())
            .settings(settings)
            .source_at("a", "", &format!("{},role=decode{option}", page.url()))
            .start()
    };
    let mapped = start(",engine=acme");
    until_usage(&mapped, "0.4200");
    let member = pool(&get(mapped.listen, "/").head, "decode");
    assert_eq!(member.number("running"), Some(3.0));
    assert_eq!(source(&mapped, 0)["engine"], "acme");
    let shown: Vec<String> = foreign(&mapped).into_iter().collect();
    let kept = [
        "acme_running",
        "acme_used_percent",
        "vllm:kv_cache_usage_perc",
    ];
    assert_eq!(shown, kept);

    let recognised = start("");
    until_usage(&recognised, "0.2500");
    assert_eq!(foreign(&recognised).len(), 1);

    // Forced, and nothing of it there: unknown, whatever else is on the page.
    let forced = start(",engine=sglang");
    forced.until_up("a");
    let answer = get(forced.listen, "/");
    assert_eq!(answer.head.get("x-kv-usage"), None);
    let state = source(&forced, 0);
    assert_eq!(
        (&state["engine"], &state["unknown"]),
        (&"sglang".into(), &"absent".into())
    );
}

#[test]
fn both_spellings_of_an_engine_are_kv_state() {
    let upstream = Upstream::ok();
    for name in ["b50-colon.prom", "b50-under.prom"] {
        let text = String::from_utf8(support::data::case(name)).unwrap();
        let page = Page::text(format!("{text}# TYPE sglang_other gauge\nsglang_other 1\n"));
        let kvgauge = Setup::new(upstream.address())
            .settings("scrape.interval = \"100ms\"\nmetrics.expose = \"kv\"\n")
            .source("decode", "decode", &page)
            .start();
        kvgauge.until_up("decode");
        let role = [("role", "decode")];
        let usage = kvgauge.metrics().value("kvgauge_kv_usage_ratio", &role);
        assert!(usage.is_some(), "{name}");
        let spelled = ["sglang:token_usage", "sglang_token_usage"];
        let shown = foreign(&kvgauge);
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(
            spelled.iter().any(|name| shown.contains(*name)),
            "{shown:?}"
        );
    }
}

#[test]
fn patterns_of_a_source_choose_its_families_and_no_values() {
    let upstream = Upstream::ok();
    let pages = [DECODE, DECODE].map(Page::real);
    let start = |settings: &str, patterns: &str| {
        let kvgauge = Setup::new(upstream.address())
            .settings(&format!("scrape.interval = \"100ms\"\n{settings}\n"))
            .source_at("decode", "decode", &format!("{}{patterns}", pages[0].url()))
            .source("other", "", &pages[1])
            .start();
        kvgauge.until_up("decode");
        kvgauge.until_up("other");
        kvgauge
    };
    let of = |kvgauge: &Kvgauge, source: &str| -> BTreeSet<String> {
        let samples = kvgauge.metrics();
        let theirs = samples
            .0
            .iter()
            .filter(|s| s.label("source") == Some(source) && !s.name.starts_with("kvgauge_"));
        theirs.map(|s| s.name.clone()).collect()
    };

    // Everything that the readings come from is dropped, and they stand.
    let kvgauge = start("", ",drop=sglang:.*");
    until_usage(&kvgauge, "0.0047");
    let gone = of(&kvgauge, "decode");
    assert!(
        !gone.iter().any(|name| name.starts_with("sglang:")),
        "{gone:?}"
    );
    // Of this source only.
    let whole = of(&kvgauge, "other");
    assert!(whole.contains("sglang:token_usage"), "{whole:?}");

    // A histogram goes as one, a counter by its name with `_total`; drop wins over keep.
    let kvgauge = start(
        "",
        ",keep=sglang:.*,keep=python_info,drop=sglang:time_to_first_token_seconds,drop=.*_total",
    );
    until_usage(&kvgauge, "0.0047");
    let ttft = "sglang:time_to_first_token_seconds";
    let wanted: BTreeSet<String> = whole
        .iter()
        .filter(|n| n.starts_with("sglang:") || *n == "python_info")
        .filter(|n| !n.starts_with(&format!("{ttft}_")) && !n.ends_with("_total"))
        .cloned()
        .collect();
    assert!(whole.contains(&format!("{ttft}_bucket")), "{whole:?}");
    assert!(whole.iter().any(|n| n.ends_with("_total")), "{whole:?}");
    assert_eq!(of(&kvgauge, "decode"), wanted);

    // A part of a name is no name.
    let kvgauge = start("", ",drop=token_usage,drop=sglang");
    assert_eq!(of(&kvgauge, "decode"), whole);

    // With `kv`, what both let through.
    let kvgauge = start(
        "metrics.expose = \"kv\"",
        ",keep=sglang:num_.*,drop=.*queue.*",
    );
    let shown = of(&kvgauge, "decode");
    assert!(shown.contains("sglang:num_running_reqs"), "{shown:?}");
    assert!(!shown.contains("sglang:num_queue_reqs"), "{shown:?}");
    assert!(!shown.contains("sglang:token_usage"), "{shown:?}");
    assert!(of(&kvgauge, "other").contains("sglang:token_usage"));
}

#[test]
fn a_page_moves_also_where_its_moving_family_is_not_shown() {
    let upstream = Upstream::ok();
    let page = Page::text("still 1\nmoving 1\n");
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"20ms\"\n")
        .source_at("a", "", &format!("{},drop=moving", page.url()))
        .start();
    kvgauge.until_up("a");
    let unchanged = || source(&kvgauge, 0)["unchanged_ms"].as_f64().unwrap();
    eventually("it stands still", || (unchanged() > 1000.0).then_some(()));
    page.set(Behaviour::Text("still 1\nmoving 2\n".to_owned()));
    eventually("it has moved", || (unchanged() < 1000.0).then_some(()));
    let metrics = kvgauge.metrics();
    assert_eq!(metrics.value("still", &[]), Some(1.0));
    assert_eq!(metrics.value("moving", &[]), None);
}

// === which pages are not taken ===

/// Serves a page beside a good one; what `/sources` says of its failure.
fn refused(settings: &str, behaviour: Behaviour, reason: &str) -> String {
    let upstream = Upstream::ok();
    let bad = Page::new(behaviour);
    let good = Page::text("good 1\n");
    let kvgauge = Setup::new(upstream.address())
        .settings(&format!("[scrape]\ninterval = \"50ms\"\n{settings}\n"))
        .source("bad", "decode", &bad)
        .source("good", "", &good)
        .start();
    kvgauge.until_up("good");
    let labels = [("source", "bad"), ("reason", reason)];
    eventually(&format!("{reason} is counted twice"), || {
        let metrics = kvgauge.metrics();
        let failures = metrics.sum("kvgauge_source_scrape_failures_total", &labels);
        (failures >= 2.0).then_some(())
    });
    let metrics = kvgauge.metrics();
    assert_eq!(metrics.value("kvgauge_source_up", &labels[..1]), Some(0.0));
    // Nothing of it is taken, and the other costs it nothing.
    assert_eq!(metrics.all("a_0", &[]).len(), 0);
    assert_eq!(metrics.value("good", &[("source", "good")]), Some(1.0));
    assert_eq!(
        metrics.value("kvgauge_source_up", &[("source", "good")]),
        Some(1.0)
    );

    let shown = source(&kvgauge, 0);
    assert_eq!(shown["state"], "down", "{shown}");
    assert_eq!(shown["last_error"]["reason"], reason, "{shown}");
    let message = shown["last_error"]["message"].as_str().unwrap().to_owned();
    // The log has the same words, once.
    let said = kvgauge.says(&message);
    assert!(said.contains("WARN"), "{said}");
    let times = kvgauge.diagnostics.text().matches(&message).count();
    assert_eq!(times, 1, "{message}");
    message
}

#[test]
fn a_page_over_a_limit_is_left_out_whole_with_the_limit_and_its_key() {
    let lines = |n: usize| -> String { (0..n).map(|n| format!("a_{n} 1\n")).collect() };
    let series = |n: usize| -> String { (0..n).map(|n| format!("a_0{{b=\"{n}\"}} 1\n")).collect() };
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        lines(300).len(),
        lines(300)
    );
    for (setting, behaviour, seen, key) in [
        (
            "max_page_bytes = \"1KiB\"",
            Behaviour::Text(lines(300)),
            format!("has {} bytes", lines(300).len()),
            "scrape.max_page_bytes",
        ),
        (
            "max_page_bytes = \"1KiB\"",
            Behaviour::Raw(chunked.into_bytes()),
            "has more than 1024 bytes".to_owned(),
            "scrape.max_page_bytes",
        ),
        (
            "max_series = 20",
            Behaviour::Text(series(21)),
            "has more than 20 series".to_owned(),
            "scrape.max_series",
        ),
        (
            "max_families = 20",
            Behaviour::Text(lines(21)),
            "has more than 20 metric families".to_owned(),
            "scrape.max_families",
        ),
        (
            "max_label_bytes = 64",
            Behaviour::Text(format!("a_0 1\n\na_0{{b=\"{}\"}} 1\n", "c".repeat(64))),
            "has more than 64 bytes of name and labels in line 3".to_owned(),
            "scrape.max_label_bytes",
        ),
    ] {
        let message = refused(setting, behaviour, "too_large");
        assert_eq!(
            message,
            format!(
                "bad's page at /metrics {seen}, so nothing of it is taken: raise {key} if that is right"
            )
        );
    }
}

#[test]
fn a_page_at_its_limits_is_taken() {
    let upstream = Upstream::ok();
    let text: String = (0..20).map(|n| format!("a_{n} 1\n")).collect();
    let page = Page::text(format!("{text}a_0{{b=\"{}\"}} 1\n", "c".repeat(64 - 7)));
    let kvgauge = Setup::new(upstream.address())
        .settings("[scrape]\nmax_series = 21\nmax_families = 20\nmax_label_bytes = 64\n")
        .source("a", "", &page)
        .start();
    kvgauge.until_up("a");
    assert_eq!(source(&kvgauge, 0)["samples"], 21);
}

/// `a_0 1` and a newline, by gzip.
const GZIPPED: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x8c, 0x37, 0x50, 0x30, 0xe4, 2, 0, 0xb5, 0x1e, 0x6a,
    0x3c, 6, 0, 0, 0,
];

#[test]
fn a_page_that_is_compressed_unasked_is_refused_with_the_reason() {
    let answer = |header: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{header}Content-Length: {}\r\n\r\n",
            GZIPPED.len()
        );
        Behaviour::Raw([head.as_bytes(), GZIPPED].concat())
    };
    let message = refused("", answer("Content-Encoding: gzip\r\n"), "content");
    assert_eq!(
        message,
        "bad answered at /metrics with Content-Encoding gzip, which kvgauge had not asked for: \
         switch compression of that page off in the server, or in the proxy before it"
    );
    // Compressed, and it does not even say so.
    let message = refused("", answer(""), "content");
    assert_eq!(
        message,
        "bad answered bytes that are no text at /metrics, not a Prometheus page: correct the source's url"
    );

    // `identity` is no coding.
    let upstream = Upstream::ok();
    let text = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 6\r\n\r\na_0 1\n";
    let page = Page::new(Behaviour::Raw(text.to_vec()));
    let kvgauge = Setup::new(upstream.address())
        .source("a", "", &page)
        .start();
    kvgauge.until_up("a");
}

#[test]
fn a_page_is_asked_for_as_classic_text_without_a_coding() {
    // An upstream records what it was asked.
    let page = Upstream::ok();
    let upstream = Upstream::ok();
    let _kvgauge = Setup::new(upstream.address())
        .source_at("a", "", &format!("http://{}/metrics", page.address()))
        .start();
    let head = page.request(1).head;
    assert_eq!(head.get("accept-encoding").as_deref(), Some("identity"));
    assert_eq!(
        head.get("accept").as_deref(),
        Some("text/plain;version=0.0.4")
    );
}

// === a token ===

#[test]
fn a_token_opens_its_source_is_renewed_and_is_seen_by_nobody_else() {
    let text = "sglang:token_usage{engine_type=\"decode\"} 0.25\n";
    let page = Page::new(Behaviour::Token("s3cret-1".to_owned(), text.to_owned()));
    let open = Page::text("up 1\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let path = file.display().to_string();
    let kvgauge = Setup::new(Upstream::ok().address())
        .source_at(
            "decode",
            "decode",
            &format!("{},bearer_file={path}", page.url()),
        )
        .source("open", "", &open)
        .start();
    // No file yet: the source says no, and why is told.
    let said = kvgauge.says("answered 401");
    assert!(
        said.contains(&format!("its bearer_file {path} can't be read")),
        "{said}"
    );
    std::fs::write(&file, "s3cret-0\n").unwrap();
    kvgauge.says(&format!(
        "it does not take the token in its bearer_file {path}"
    ));
    std::fs::write(&file, "s3cret-1\n").unwrap();
    until_usage(&kvgauge, "0.2500");
    assert_eq!(page.authorization().as_deref(), Some("Bearer s3cret-1"));
    // The server wants another one, which is in the file already.
    std::fs::write(&file, "s3cret-2\n").unwrap();
    page.set(Behaviour::Token("s3cret-2".to_owned(), text.to_owned()));
    eventually("the new token is sent", || {
        (page.authorization()? == "Bearer s3cret-2").then_some(())
    });
    until_usage(&kvgauge, "0.2500");
    kvgauge.until_up("decode");
    assert_eq!(open.authorization(), None);

    assert_eq!(source(&kvgauge, 0)["bearer_file"], path);
    assert!(source(&kvgauge, 1)["bearer_file"].is_null());
    let mut seen = kvgauge.diagnostics.text();
    for path in ["/sources", "/kv", "/metrics"] {
        seen.push_str(&get(kvgauge.admin, path).text());
    }
    let answer = get(kvgauge.listen, "/");
    seen.push_str(&answer.head.text());
    assert!(seen.contains("bearer_file"), "{seen}");
    assert!(!seen.contains("s3cret"), "{seen}");
}

/// How often a source is asked now: as set, less often while it fails, and again as set.
#[test]
fn the_interval_in_force_is_shown() {
    let upstream = Upstream::ok();
    let page = Page::text("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n");
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"500ms\"\nscrape.max_age = \"2s\"\n")
        .source("a", "unified", &page)
        .start();
    let until = |what: &str, fits: &dyn Fn(u64) -> bool| {
        eventually(what, || {
            let interval = source(&kvgauge, 0)["interval_ms"].as_u64()?;
            fits(interval).then_some(())
        });
    };
    until("as set", &|ms| ms == 500);
    assert_eq!(source(&kvgauge, 0)["kind"], "metrics");
    assert_eq!(source(&kvgauge, 0)["reading_from"], "page");
    page.set(Behaviour::Status(503));
    // Half of max_age at most.
    until("doubled, to a second at most", &|ms| ms == 1000);
    // To ask where nobody listens costs nobody anything.
    page.set(Behaviour::Refuse);
    until("as set, where nobody listens", &|ms| ms == 500);
    assert!(source(&kvgauge, 0)["reading_from"].is_null());
    page.set(Behaviour::Text(
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n".to_owned(),
    ));
    until("as set again", &|ms| ms == 500);
}

// === SGLang's loads ===

const BUSY: &str = "sglang-0.5.23-unified-tp1-cpu-real-busy";

/// The real page, and the real loads of the same moment (15,585 of 16,384 tokens, 0.9512).
fn sglang() -> (String, String) {
    let loads = support::data::beside_pages(&format!("{BUSY}.v1_loads.json"));
    (support::data::page(BUSY), loads)
}

/// kvgauge in front of this page, of this kind.
fn of_kind(kind: &str, upstream: &Upstream, page: &Page) -> Kvgauge {
    let url = format!("{},kind={kind}", page.url());
    Setup::new(upstream.address())
        .source_at("unified", "unified", &url)
        .start()
}

#[test]
fn loads_give_the_values_and_the_page_its_series_over_one_connection() {
    let upstream = Upstream::ok();
    let (text, loads) = sglang();
    let page = Page::new(Behaviour::Sglang(text, Some(loads.clone())));
    let kvgauge = of_kind("auto", &upstream, &page);
    until_usage(&kvgauge, "0.9512");
    let member = pool(&get(kvgauge.listen, "/").head, "unified");
    for (name, value) in [
        ("used", 15_585.0),
        ("capacity", 16_384.0),
        ("running", 22.0),
        ("queued", 2.0),
    ] {
        assert_eq!(member.number(name), Some(value), "{name}");
    }
    // The page's series stand there, and its model is that of the values.
    let metrics = kvgauge.metrics();
    let labels = [("source", "unified")];
    assert!(metrics.value("sglang:token_usage", &labels).is_some());
    let labels = [("role", "unified"), ("model", "/models/tiny")];
    assert_eq!(
        metrics.value("kvgauge_kv_used_tokens", &labels),
        Some(15_585.0)
    );
    let state = source(&kvgauge, 0);
    assert_eq!(
        state["chosen"]["usage"],
        "/v1/loads num_used_tokens / max_total_num_tokens"
    );

    assert_eq!(state["kind"], "auto");
    assert_eq!(state["reading_from"], "loads");
    assert!(state["without_loads"].is_null(), "{state}");

    // Every interval the loads, and the page at most once in ten seconds' third.
    eventually("the loads are asked ten times more", || {
        (page.asked_loads() > 10).then_some(())
    });
    let pages = page.asked() - page.asked_loads();
    assert!(pages <= 2, "{pages} pages, {} loads", page.asked_loads());
    assert_eq!(page.most_open(), 1);

    // They move, and the values follow.
    let moved = loads.replace("15585", "8192").replace("0.9512", "0.5");
    page.set(Behaviour::Sglang(sglang().0, Some(moved)));
    until_usage(&kvgauge, "0.5000");
}

/// Loads that can't be used, of a source of this kind, for each reason; `more` holds each time.
fn without_loads(kind: &str, more: impl Fn(&Kvgauge)) {
    let upstream = Upstream::ok();
    let (text, loads) = sglang();
    // The page alone says as much.
    let plain = Page::text(text.clone());
    let metrics = of_kind("metrics", &upstream, &plain);
    let wanted = eventually("the page's usage", || {
        get(metrics.listen, "/").head.get("x-kv-usage")
    });
    // 0.97 is not 15,585 of 16,384, so another pool is the fullest.
    let hybrid = loads.replace("0.9512", "0.97");
    for (loads, why) in [
        (None, "answered 404 at /v1/loads: only newer SGLang has it"),
        (
            Some("<html>".to_owned()),
            "no loads of SGLang's that can be used",
        ),
        (Some(hybrid), "which pool is the fullest"),
    ] {
        let page = Page::new(Behaviour::Sglang(text.clone(), loads));
        let kvgauge = of_kind(kind, &upstream, &page);
        until_usage(&kvgauge, &wanted);
        let said = kvgauge.says(why);
        assert!(said.contains("its values come from its page"), "{said}");
        let before = page.asked();
        eventually("it is read on", || {
            (page.asked() > before + 2).then_some(())
        });
        // Not asked again at every interval, and not told again.
        assert_eq!(page.asked_loads(), 1);
        assert_eq!(kvgauge.diagnostics.text().matches(why).count(), 1);
        let state = source(&kvgauge, 0);
        assert_eq!(
            (&state["state"], &state["reading_from"]),
            (&"up".into(), &"page".into())
        );
        let said = state["without_loads"].as_str().unwrap();
        assert!(said.contains(why), "{said}");
        more(&kvgauge);
    }
}

#[test]
fn without_loads_the_page_gives_the_values_and_it_is_said_once() {
    without_loads("auto", |_| {});
    let upstream = Upstream::ok();
    // Another engine is never asked.
    let vllm = Page::real("vllm-0.32.0-loaded");
    let kvgauge = of_kind("auto", &upstream, &vllm);
    until_usage(&kvgauge, "1.0000");
    assert_eq!(vllm.asked_loads(), 0);
    let said = source(&kvgauge, 0)["without_loads"].to_string();
    assert!(said.contains("is not SGLang's"), "{said}");
}

/// Of what the page says and the loads don't, nothing is lost: a rank, a role.
#[test]
fn loads_that_say_less_than_the_page_do_not_stand_in_for_it() {
    let upstream = Upstream::ok();
    let rank = |rank: u64, used: u64| {
        format!(
            "{{\"dp_rank\":{rank},\"num_used_tokens\":{used},\"max_total_num_tokens\":1000,\"token_usage\":{}}}",
            used as f64 / 1000.0
        )
    };
    let series = |rank: u64, used: u64| {
        let labels = format!("{{engine_type=\"decode\",dp_rank=\"{rank}\"}}");
        format!("sglang:kv_used_tokens{labels} {used}\nsglang:max_total_num_tokens{labels} 1000\n")
    };
    let text = series(0, 100) + &series(1, 1000);
    // One of two ranks.
    let less = format!("{{\"loads\":[{}]}}", rank(0, 100));
    let page = Page::new(Behaviour::Sglang(text.clone(), Some(less)));
    let start = |page: &Page| {
        Setup::new(upstream.address())
            .source_at("engine", "", &format!("{},kind=auto", page.url()))
            .start()
    };
    let kvgauge = start(&page);
    until_usage(&kvgauge, "0.5500");
    let said = kvgauge.says("of 1 pools, and the page is of 2");
    assert!(said.contains("its values come from its page"), "{said}");

    // Both, without a word of what they do: that is the page's.
    let both = format!("{{\"loads\":[{},{}]}}", rank(0, 200), rank(1, 1000));
    let page = Page::new(Behaviour::Sglang(text, Some(both)));
    let kvgauge = start(&page);
    until_usage(&kvgauge, "0.6000");
    let member = pool(&get(kvgauge.listen, "/").head, "decode");
    assert_eq!(member.number("used"), Some(1200.0));
    assert_eq!(source(&kvgauge, 0)["role"], "decode");
}

#[test]
fn a_page_that_ends_with_its_connection_ends_with_a_line() {
    let upstream = Upstream::ok();
    let raw = |page: &str| {
        Behaviour::Raw(format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{page}").into())
    };
    let whole = "sglang:max_total_num_tokens 2581504\nsglang:kv_used_tokens 2200000\n";
    let page = Page::new(raw(whole));
    let kvgauge = of_kind("metrics", &upstream, &page);
    until_usage(&kvgauge, "0.8522");
    // 2,200,000 is not 220.
    page.set(raw(&whole[..whole.len() - 5]));
    let said = kvgauge.says("ended in the middle of a line");
    assert!(said.contains("broke off its answer"), "{said}");
    let usage = get(kvgauge.listen, "/").head.get("x-kv-usage");
    assert!(
        [None, Some("0.8522")].contains(&usage.as_deref()),
        "{usage:?}"
    );
}

#[test]
fn loads_alone_are_read_without_a_page() {
    let upstream = Upstream::ok();
    let (text, loads) = sglang();
    let page = Page::new(Behaviour::Sglang(text, Some(loads)));
    let kvgauge = of_kind("sglang-loads", &upstream, &page);
    until_usage(&kvgauge, "0.9512");
    assert_eq!(foreign(&kvgauge), BTreeSet::new());
    assert_eq!(page.asked(), page.asked_loads());
    let state = source(&kvgauge, 0);
    let url = state["url"].as_str().unwrap();
    assert!(url.ends_with("/v1/loads"), "{url}");
    assert_eq!(state["reading_from"], "loads");
    assert!(state["without_loads"].is_null(), "{state}");

    page.set(Behaviour::Refuse);
    eventually("usage is gone", || {
        let answer = get(kvgauge.listen, "/");
        answer.head.get("x-kv-usage").is_none().then_some(())
    });
    kvgauge.says("refused the connection");
}

#[test]
fn where_loads_alone_can_not_be_used_the_page_gives_the_values_and_no_series() {
    without_loads("sglang-loads", |kvgauge| {
        assert_eq!(foreign(kvgauge), BTreeSet::new());
    });
}

#[test]
fn without_a_page_loads_that_say_less_are_taken_and_without_both_the_source_fails() {
    let upstream = Upstream::ok();
    let hybrid = sglang().1.replace("0.9512", "0.97");
    let loads = |loads: &str| {
        let loads = Behaviour::Text(loads.to_owned());
        Behaviour::Paths(vec![("/v1/loads", loads)])
    };
    let page = Page::new(loads(&hybrid));
    let kvgauge = of_kind("sglang-loads", &upstream, &page);
    until_usage(&kvgauge, "0.9700");
    let before = page.asked();
    eventually("it is read on", || {
        (page.asked() > before + 5).then_some(())
    });
    let asked = page.take_targets();
    let pages = asked.iter().filter(|path| *path == "/metrics").count();
    assert_eq!(pages, 1, "{asked:?}");
    assert_eq!(source(&kvgauge, 0)["reading_from"], "loads");

    page.set(Behaviour::Paths(Vec::new()));
    kvgauge.says(
        "unified answered 404 at /v1/loads, and unified answered 404 at /metrics: metrics are off",
    );
    // Who was asked in vain is asked again at once when it is there.
    page.set(loads(&sglang().1));
    until_usage(&kvgauge, "0.9512");
}

/// What is not known, and of whom, is on `/metrics` too, so that an alert can go by it.
#[test]
fn metrics_say_what_is_unknown_and_of_whom() {
    let upstream = Upstream::ok();
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let vllm = Page::real("vllm-0.32.0-loaded");
    let router = Page::real("sglang-router-0.3.2-pd-after-traffic");
    let (nobody, nobody_else) = (Page::refusing(), Page::refusing());
    let kvgauge = Setup::new(upstream.address())
        .source("decode-1", "decode", &decode)
        .source("decode-2", "decode", &nobody)
        .source("prefill", "prefill", &nobody_else)
        .source("vllm", "", &vllm)
        .source("router", "", &router)
        .start();
    for source in ["decode-1", "vllm", "router"] {
        kvgauge.until_up(source);
    }
    kvgauge.until_metric("kvgauge_source_up", &[("source", "prefill")], Some(0.0));
    kvgauge.until_metric("kvgauge_source_up", &[("source", "decode-2")], Some(0.0));
    let metrics = kvgauge.metrics();
    let is = |name: &str, labels: &[(&str, &str)], wanted: Option<f64>| {
        assert_eq!(metrics.value(name, labels), wanted, "{name} {labels:?}");
    };
    let decode = [("role", "decode"), ("model", "/models/tiny")];
    is("kvgauge_kv_missing", &decode, Some(1.0));
    is("kvgauge_kv_unknown", &[("role", "decode")], None);
    let unknown = [("role", "prefill"), ("reason", "unreachable")];
    is("kvgauge_kv_unknown", &unknown, Some(1.0));
    is("kvgauge_kv_missing", &[("role", "prefill")], None);
    is("kvgauge_kv_usage_ratio", &[("role", "prefill")], None);
    is("kvgauge_kv_missing", &[("role", "unified")], Some(0.0));
    // vLLM counts preemptions from the start, SGLang from the first.
    let preempted = "kvgauge_source_preempted_requests_total";
    is(preempted, &[("source", "vllm"), ("rank", "0")], Some(0.0));
    is(preempted, &[("source", "decode-1")], None);

    for (source, role, engine) in [
        ("decode-1", "decode", "sglang"),
        ("decode-2", "decode", ""),
        ("prefill", "prefill", ""),
        ("vllm", "unified", "vllm"),
        ("router", "", ""),
    ] {
        let labels = [("source", source), ("role", role), ("engine", engine)];
        is("kvgauge_source_info", &labels, Some(1.0));
    }
    let running = "kvgauge_source_requests_running";
    is(running, &[("source", "decode-1")], Some(3.0));
    is(running, &[("source", "vllm")], Some(9.0));
    // SGLang: none in the scheduler's queue, two in prealloc, one in transfer.
    let waiting = "kvgauge_source_requests_waiting";
    is(waiting, &[("source", "decode-1")], Some(3.0));
    is(waiting, &[("source", "vllm")], Some(14.0));
    for source in ["decode-2", "prefill", "router"] {
        is(running, &[("source", source)], None);
        is(waiting, &[("source", source)], None);
    }
}
