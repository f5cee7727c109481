//! Problems reported in public about the gauges of engines, from page to header, log and our own
//! page. Each test is named by the id of its case; inputs are in `tests/data/cases`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::time::{Duration, Instant};
use support::client::post;
use support::page::Behaviour;
use support::pools::pool;
use support::upstream::STREAM;
use support::{Kvgauge, Next, Page, Response, Setup, Upstream, eventually, fetch, get, pause};

fn start(page: &Page) -> (Upstream, Kvgauge) {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"50ms\"\n")
        .source("d", "decode", page)
        .start();
    kvgauge.until_up("d");
    (upstream, kvgauge)
}

/// Asks until the header is this: the stamp follows a reading by an instant.
fn until_usage(kvgauge: &Kvgauge, wanted: Option<&str>) -> Response {
    eventually(&format!("X-KV-Usage is {wanted:?}"), || {
        let answer = get(kvgauge.listen, "/");
        (answer.head.get("x-kv-usage").as_deref() == wanted).then_some(answer)
    })
}

fn case(name: &str) -> String {
    String::from_utf8(support::data::case(name)).unwrap()
}

#[test]
fn b15_a_renamed_gauge_is_read_by_both_names_and_it_is_told_which() {
    for (file, metric, header) in [
        ("b15-old.prom", "gpu_cache_usage_perc", Some("0.6100")),
        ("b15-new.prom", "kv_cache_usage_perc", Some("0.6200")),
        ("b15-none.prom", "cache_usage_other", None),
    ] {
        let page = Page::case(file);
        let (_upstream, kvgauge) = start(&page);
        let answer = until_usage(&kvgauge, header);
        let member = pool(&answer.head, "decode");
        assert_eq!(member.unknown(), header.is_none().then_some("absent"));
        let told = if header.is_some() {
            format!("usage from {metric}")
        } else {
            "it has no KV usage".to_owned()
        };
        assert!(kvgauge.says("reading vllm").contains(&told), "{told}");
        // The name stands on the page as it came.
        let name = format!("vllm:{metric}");
        let series = kvgauge.metrics().all(&name, &[("source", "d")]).len();
        assert_eq!(series, 1, "{name}");
    }
}

#[test]
fn b16_of_several_ranks_and_models_the_fullest_is_the_usage_in_any_order() {
    let page = Page::case("b16-dp.prom");
    let (_upstream, kvgauge) = start(&page);
    let backwards = |name: &str| {
        let text = case(name);
        let lines: Vec<&str> = text.lines().rev().collect();
        Behaviour::Text(lines.join("\n") + "\n")
    };
    // No capacity to weigh by: the fullest rank.
    until_usage(&kvgauge, Some("0.9000"));
    page.set(Behaviour::Text("up 1\n".into()));
    until_usage(&kvgauge, None);
    page.set(backwards("b16-dp.prom"));
    let answer = until_usage(&kvgauge, Some("0.9000"));
    assert_eq!(pool(&answer.head, "decode").number("max"), Some(0.9));
    let labels = [("source", "d")];
    let series = kvgauge
        .metrics()
        .all("vllm:kv_cache_usage_perc", &labels)
        .len();
    assert_eq!(series, 2);

    // Models are members of their own, and the fullest is the usage.
    for behaviour in [
        Behaviour::Text(case("b16-models.prom")),
        backwards("b16-models.prom"),
    ] {
        page.set(behaviour);
        let answer = until_usage(&kvgauge, Some("0.8000"));
        let pools = answer.head.get("x-kv-pools").unwrap();
        for member in ["model=\"m-a\";usage=0.200", "model=\"org/m-b\";usage=0.800"] {
            assert!(pools.contains(member), "{pools}");
        }
    }
}

/// Two engines of a role, of which one names no model: each is a member, and told apart everywhere.
#[test]
fn b16_an_engine_without_a_model_is_no_part_of_anothers_model() {
    let named = Page::text(
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m-a\"} 0.25\n\
         vllm:num_requests_running{engine=\"0\",model_name=\"m-a\"} 3\n"
            .to_owned(),
    );
    let nameless = Page::text(
        "llamacpp:kv_cache_usage_ratio 0.75\nllamacpp:requests_processing 5\n".to_owned(),
    );
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"50ms\"\n")
        .source("a", "unified", &named)
        .source("b", "unified", &nameless)
        .start();
    kvgauge.until_up("a");
    kvgauge.until_up("b");
    let pools = eventually("both are members", || {
        let pools = get(kvgauge.listen, "/").head.get("x-kv-pools")?;
        pools.contains("model=\"m-a\";usage=0.250").then_some(pools)
    });
    let members: Vec<_> = pools
        .split(", ")
        .map(|member| member.split(";age=").next().unwrap())
        .collect();
    assert_eq!(
        members,
        [
            "unified;usage=0.750;max=0.750;running=5",
            "unified;model=\"m-a\";usage=0.250;max=0.250;running=3",
        ]
    );
    let metrics = kvgauge.metrics();
    for (model, usage) in [("", 0.75), ("m-a", 0.25)] {
        let labels = [("role", "unified"), ("model", model)];
        assert_eq!(metrics.all("kvgauge_kv_usage_ratio", &labels).len(), 1);
        assert_eq!(
            metrics.value("kvgauge_kv_usage_ratio", &labels),
            Some(usage)
        );
    }
    let status = support::kvgauge::run(&["status", &named.url(), &nameless.url()]);
    let status = String::from_utf8(status.stdout).unwrap();
    let lines: Vec<_> = status.lines().collect();
    assert!(
        lines[0].starts_with("unified (no model named)  tokens unknown  75.00%")
            && lines[1].starts_with("unified m-a               tokens unknown  25.00%"),
        "{status}"
    );
}

#[test]
fn b17_of_eight_processes_the_one_that_knows_counts() {
    let page = Page::case("b17.prom");
    let (_upstream, kvgauge) = start(&page);
    let answer = until_usage(&kvgauge, Some("0.4700"));
    assert_eq!(pool(&answer.head, "decode").number("max"), Some(0.47));
    let labels = [("source", "d")];
    let series = kvgauge
        .metrics()
        .all("vllm:kv_cache_usage_perc", &labels)
        .len();
    assert_eq!(series, 8);
}

#[test]
fn b20_counters_that_fall_are_shown_as_they_fall() {
    let page = Page::case("b20-1.prom");
    let (_upstream, kvgauge) = start(&page);
    for (file, tokens, started) in [
        ("b20-1.prom", 1000.0, 1_700_000_000.0),
        ("b20-2.prom", 1040.0, 1_700_000_000.0),
        ("b20-3.prom", 3.0, 1_700_000_500.0),
        ("b20-4.prom", 9.0, 1_700_000_500.0),
    ] {
        page.set(Behaviour::Text(case(file)));
        let labels = [("source", "d")];
        kvgauge.until_metric("sglang:generation_tokens_total", &labels, Some(tokens));
        let start = kvgauge
            .metrics()
            .value("process_start_time_seconds", &labels);
        assert_eq!(start, Some(started), "{file}");
    }
}

#[test]
fn b21_nothing_of_nothing_is_unknown_and_a_little_over_one_is_one() {
    let page = Page::case("b21-zero.prom");
    let (_upstream, kvgauge) = start(&page);
    let odd = |reason| {
        let labels = [("source", "d"), ("reason", reason)];
        kvgauge
            .metrics()
            .sum("kvgauge_source_odd_values_total", &labels)
    };
    let answer = until_usage(&kvgauge, None);
    let member = pool(&answer.head, "decode");
    assert_eq!(
        (member.unknown(), member.number("used")),
        (Some("absent"), None)
    );
    assert!(odd("zero_capacity") >= 1.0);
    // `line_of` parses the log as JSON.
    let asked = "GET / HTTP/1.1\r\nHost: k\r\nx-request-id: zero\r\n\r\n";
    assert_eq!(fetch(kvgauge.listen, asked).status(), 200);
    assert!(kvgauge.line_of("zero")["kv.start.usage"].is_null());
    let own = kvgauge.metrics();
    assert_eq!(
        own.value("kvgauge_kv_usage_ratio", &[("role", "decode")]),
        None
    );

    page.set(Behaviour::Text(case("b21-over.prom")));
    until_usage(&kvgauge, Some("1.0000"));
    assert!(odd("above_one") >= 1.0);
    let shown = kvgauge
        .metrics()
        .value("sglang:token_usage", &[("source", "d")]);
    assert_eq!(shown, Some(1.03));
}

#[test]
fn b22_the_usage_is_the_engines_headline_and_sources_says_what_it_is_not() {
    let page = Page::case("b22.prom");
    let (_upstream, kvgauge) = start(&page);
    let answer = until_usage(&kvgauge, Some("0.9100"));
    assert!(
        answer
            .head
            .get("x-kv-pools")
            .unwrap()
            .contains(";pool=mamba"),
        "{}",
        answer.head.text()
    );
    let sources = get(kvgauge.admin, "/sources").json();
    let source = &sources["sources"][0];
    assert_eq!(source["chosen"]["usage"], "mamba_usage", "{sources}");
    let passed: Vec<(&str, &str)> = source["passed_over"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["metric"].as_str().unwrap(), p["why"].as_str().unwrap()))
        .collect();
    assert!(
        passed.contains(&("swa_token_usage", "of a pool that is less full")),
        "{passed:?}"
    );
    assert!(!passed.iter().any(|p| p.0.contains("lora")), "{passed:?}");
}

#[test]
fn b23_a_page_that_hangs_holds_up_nothing_timed() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        for _ in 0..40 {
            connection.chunk("data: {}\n\n")?;
            pause(Duration::from_millis(50));
        }
        connection.send("0\r\n\r\n")?;
        Ok(Next::Again)
    });
    let decode = Page::new(Behaviour::Hang);
    let prefill = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .settings("[scrape]\ninterval = \"100ms\"\ntimeout = \"500ms\"\n")
        .source("d", "decode", &decode)
        .source("p", "prefill", &prefill)
        .start();
    kvgauge.until_up("p");
    kvgauge.until_metric("kvgauge_source_up", &[("source", "d")], Some(0.0));
    std::thread::scope(|scope| {
        let streams: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    let asked = Instant::now();
                    let answer = fetch(kvgauge.listen, post("/v1/completions", "", "{}"));
                    assert_eq!(answer.status(), 200);
                    asked.elapsed()
                })
            })
            .collect();
        while streams.iter().any(|stream| !stream.is_finished()) {
            let asked = Instant::now();
            let metrics = kvgauge.metrics();
            assert!(asked.elapsed() < Duration::from_secs(1));
            let of = |name, source| metrics.value(name, &[("source", source)]);
            assert_eq!(of("kvgauge_source_up", "d"), Some(0.0));
            assert_eq!(of("kvgauge_source_up", "p"), Some(1.0));
            assert!(of("kvgauge_source_age_seconds", "p").unwrap() < 1.0);
            pause(Duration::from_millis(100));
        }
        for stream in streams {
            // 40 events in 2 s.
            let took = stream.join().unwrap();
            assert!(took < Duration::from_millis(2800), "{took:?}");
        }
    });
    assert!(decode.asked() >= 3, "{}", decode.asked());
    assert!(decode.most_open() <= 2, "{}", decode.most_open());
}

#[test]
fn b24_a_redirected_page_is_followed_or_named_and_never_up_with_nothing() {
    let redirect = Behaviour::Raw(support::data::case("b24-redir.http"));
    let there = Behaviour::Text(case("b24.prom"));
    let page = Page::new(Behaviour::Paths(vec![
        ("/metrics", redirect.clone()),
        ("/metrics/", there.clone()),
    ]));
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"50ms\"\nscrape.max_age = \"300ms\"\n")
        .source("d", "decode", &page)
        .start();
    until_usage(&kvgauge, Some("0.1800"));
    let source = || get(kvgauge.admin, "/sources").json()["sources"][0].clone();
    assert_eq!(source()["redirected_to"], "/metrics/");
    // From then on the server is asked once for each read, not twice.
    page.take_targets();
    let mut reads = Vec::new();
    eventually("some more reads", || {
        reads.extend(page.take_targets());
        (reads.len() >= 5).then_some(())
    });
    assert!(reads.iter().all(|path| path == "/metrics/"), "{reads:?}");

    // It moves back: where it went before there is nothing any more.
    page.set(Behaviour::Paths(vec![("/metrics", there)]));
    eventually("it is found at the path that is set", || {
        source()["redirected_to"].is_null().then_some(())
    });
    until_usage(&kvgauge, Some("0.1800"));

    // What leads nowhere is named, and never up with nothing.
    page.set(Behaviour::Paths(vec![("/metrics", redirect)]));
    kvgauge.until_metric("kvgauge_source_up", &[("source", "d")], Some(0.0));
    until_usage(&kvgauge, None);
    let error = &source()["last_error"];
    assert_eq!(error["reason"], "status", "{error}");
    let message = error["message"].as_str().unwrap();
    let named = "d (redirected from /metrics to /metrics/) answered 404 at /metrics/";
    assert!(message.starts_with(named), "{message}");
}

/// One redirect on the same server, and no more: what is sent along is for that server.
#[test]
fn a_redirect_elsewhere_or_a_second_one_is_not_followed() {
    let elsewhere = Page::text("sglang:token_usage 0.5\n");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let page = Page::text("");
    let to = |url: String| Behaviour::Redirect(307, url);
    let upstream = Upstream::ok();
    let url = format!("{},role=decode,bearer_file={}", page.url(), token.display());
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"50ms\"\n")
        .source_at("d", "", &url)
        .start();
    let until_said = |words: &str| {
        eventually(words, || {
            let sources = get(kvgauge.admin, "/sources").json();
            let error = &sources["sources"][0]["last_error"];
            let said = error["message"].as_str()?.contains(words);
            (said && error["resolved"] == false).then_some(())
        });
    };
    page.set(to(elsewhere.url()));
    until_said(&format!(
        "answered 307 at /metrics with a redirect to {}",
        elsewhere.url()
    ));
    page.set(Behaviour::Paths(vec![
        ("/metrics", to("/a".to_owned())),
        ("/a", to(format!("http://{}/b", page.address()))),
        ("/b", Behaviour::Text("sglang:token_usage 0.5\n".to_owned())),
    ]));
    until_said(&format!(
        "d redirects from /metrics to /a, and from there to http://{}/b: set the source's url",
        page.address()
    ));
    assert_eq!(page.authorization().as_deref(), Some("Bearer secret"));
    assert!(!page.take_targets().contains(&"/b".to_owned()));
    assert_eq!((elsewhere.asked(), elsewhere.authorization()), (0, None));
}

/// What a server showed for a moment (a login page) is not where its page is for ever.
#[test]
fn a_redirect_that_leads_to_no_page_is_not_remembered() {
    let page = Page::new(Behaviour::Paths(vec![
        ("/metrics", Behaviour::Redirect(302, "/login".to_owned())),
        ("/login", Behaviour::Html),
    ]));
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"50ms\"\n")
        .source("d", "decode", &page)
        .start();
    let said = kvgauge.says("redirected from /metrics to /login");
    assert!(said.contains("answered HTML at /login"), "{said}");
    page.set(Behaviour::Paths(vec![
        (
            "/metrics",
            Behaviour::Text("sglang:token_usage 0.5\n".to_owned()),
        ),
        ("/login", Behaviour::Html),
    ]));
    eventually("the page where it was", || {
        let usage = get(kvgauge.listen, "/").head.get("x-kv-usage");
        (usage.as_deref() == Some("0.5000")).then_some(())
    });
}

#[test]
fn b14_our_own_reads_do_not_make_a_page_that_stands_still_move() {
    // As SGLang does it: the page counts who reads it.
    let page = Page::text("");
    let (_upstream, kvgauge) = {
        page.set(Behaviour::Text(moving(0, 0.11)));
        start(&page)
    };
    let unchanged = || {
        let metrics = kvgauge.metrics();
        metrics
            .value("kvgauge_source_unchanged_seconds", &[("source", "d")])
            .unwrap()
    };
    let mut reads = 0;
    eventually("it stands still", || {
        reads += 1;
        page.set(Behaviour::Text(moving(reads, 0.11)));
        (unchanged() > 1.5).then_some(())
    });
    assert!(reads > 5, "{reads}");
    page.set(Behaviour::Text(moving(reads, 0.12)));
    eventually("it has moved", || (unchanged() < 1.0).then_some(()));
}

fn moving(reads: u32, usage: f64) -> String {
    format!(
        "sglang:http_requests_total{{endpoint=\"/metrics\"}} {reads}\nsglang:token_usage {usage}\n"
    )
}

#[test]
fn a_source_without_a_role_is_unified_where_it_is_an_engine_and_keeps_the_role_it_named() {
    let upstream = Upstream::ok();
    let vllm = Page::real("vllm-0.32.0-loaded");
    let router = Page::real("vllm-router-0.1.17-after-traffic");
    let sglang = Page::real("sglang-0.5.10-decode-tp4-busy");
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape.interval = \"50ms\"\n")
        .source("a", "", &vllm)
        .source("b", "", &router)
        .source("c", "", &sglang)
        .start();
    for source in ["a", "b", "c"] {
        kvgauge.until_up(source);
    }
    let answer = until_usage(&kvgauge, Some("0.0047"));
    assert_eq!(pool(&answer.head, "unified").number("usage"), Some(1.0));
    assert_eq!(pool(&answer.head, "unified").number("missing"), None);
    // Started again, this version says neither usage nor role.
    sglang.set(Behaviour::Text(support::data::page(
        "sglang-0.5.10-decode-tp4-fresh",
    )));
    let answer = until_usage(&kvgauge, None);
    let decode = pool(&answer.head, "decode");
    assert_eq!(decode.unknown(), Some("absent"));
    assert_eq!(decode.number("capacity"), Some(2_581_504.0));
    let sources = get(kvgauge.admin, "/sources").json();
    let roles: Vec<_> = (0..3)
        .map(|n| sources["sources"][n]["role"].clone())
        .collect();
    assert_eq!(
        roles,
        ["unified".into(), serde_json::Value::Null, "decode".into()]
    );
}
