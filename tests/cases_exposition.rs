//! Problems reported in public about metrics pages, each as a test that is named by its id, on the
//! unified page as a scraper gets it, in every form. What of them concerns the exposition room alone
//! is in `tests/exposition/cases.rs`. Inputs are in `tests/data/cases`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "exposition/kit.rs"]
mod kit;
mod support;

use kit::forms::Form;
use kit::said;
use kit::strict::{Checked, Sample, sample_count, samples};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::page::Behaviour;
use support::upstream::STREAM;
use support::{Client, Kvgauge, Next, Page, Setup, Upstream, eventually, fetch, get, pool};

/// The unified page in a form; it says that it is in that form, and its strict reader takes it.
fn page(kvgauge: &Kvgauge, form: Form) -> (String, Checked) {
    let media_type = form.format.content_type();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: k\r\nAccept: {media_type}\r\n\r\n");
    let mut client = Client::connect(kvgauge.admin);
    client.patience(Duration::from_secs(60));
    let answer = client.send(request).response("GET");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.head.get("content-type").unwrap(), media_type);
    let checked = form.check(&answer.body);
    let checked = checked.unwrap_or_else(|e| panic!("{form:?}: {e}\n{}", answer.text()));
    (answer.text(), checked)
}

/// A page that is written in `OpenMetrics` is served as such.
fn case(name: &str) -> Page {
    let text = String::from_utf8(support::data::case(name)).unwrap();
    Page::new(if text.ends_with("# EOF\n") {
        Behaviour::OpenMetrics(text)
    } else {
        Behaviour::Text(text)
    })
}

/// A good body for a stand-in that a case does not name.
fn good(name: &str) -> Page {
    Page::text(format!("# TYPE good gauge\ngood{{of=\"{name}\"}} 1\n"))
}

struct Stage {
    kvgauge: Kvgauge,
    pages: [Page; 3],
    _upstream: Upstream,
}

/// kvgauge with router, prefill and decode server, in this order, that serve these pages.
fn stage(pages: [Page; 3]) -> Stage {
    let upstream = Upstream::ok();
    let mut setup = Setup::new(upstream.address());
    for (name, page) in ["router", "prefill", "decode"].into_iter().zip(&pages) {
        let role = if name == "router" { "" } else { name };
        setup = setup.source(name, role, page);
    }
    Stage {
        kvgauge: setup.start(),
        pages,
        _upstream: upstream,
    }
}

impl Stage {
    fn all_up(self) -> Stage {
        for name in ["router", "prefill", "decode"] {
            self.kvgauge.until_up(name);
        }
        self
    }

    /// Looks at the page in every form.
    fn look(&self, look: impl Fn(Form, &str, &Checked)) {
        for form in Form::ALL {
            let (text, checked) = page(&self.kvgauge, form);
            look(form, &text, &checked);
        }
    }

    /// Waits until the header says this.
    fn until_usage(&self, usage: Option<&str>) {
        let mut seen = None;
        support::wait::within(support::wait::PATIENCE, &format!("usage {usage:?}"), || {
            let answer = fetch(self.kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n");
            seen = answer.head.get("x-kv-usage");
            (seen.as_deref() == usage).then_some(())
        });
    }
}

/// The samples of a name that are of a source.
fn of<'c>(page: &'c Checked, name: &str, source: &str) -> Vec<&'c Sample> {
    let all = samples(page, name);
    let ours = all.into_iter();
    ours.filter(|s| s.label("source") == Some(source)).collect()
}

#[test]
fn b01_label_values_leave_byte_for_byte() {
    let stage = stage([good("router"), case("b01.prom"), good("decode")]).all_up();
    stage.look(|form, _, page| {
        let found = of(page, "kv_probe_requests_total", "prefill");
        assert_eq!(found.len(), 2, "{form:?}");
        let values = |s: &Sample| {
            let names = ["filter", "note", "route", "set", "source"];
            // No label that is neither in the input nor ours.
            assert!(s.labels.keys().eq(names.iter()), "{form:?}: {s:?}");
            names.map(|name| s.labels[name].clone())
        };
        let expected = [
            "x=1,y=2",
            "say \"hi\" } 9",
            "/items/{id}/size",
            "{a,b}",
            "prefill",
        ];
        assert_eq!(values(found[0]), expected, "{form:?}");
        assert_eq!(values(found[1]), ["f", "n", "/plain", "s", "prefill"]);
        assert_eq!((found[0].number(), found[1].number()), (4.0, 1.0));
    });
}

#[test]
fn b03_names_and_values_leave_as_they_came() {
    let stage = stage([good("router"), case("b03.prom"), good("decode")]).all_up();
    stage.look(|form, text, page| {
        for (name, value) in [
            ("sglang:max_total_num_tokens", 2_581_504.0),
            ("vllm:tiny_ratio", 0.00001),
            ("kv_probe_upper", 1000.0),
            ("kv_probe_limit", f64::INFINITY),
            ("kv_probe_zero", 0.0),
            ("kv_probe_big", 9_007_199_254_740_992.0),
        ] {
            let found = samples(page, name);
            assert_eq!(found.len(), 1, "{form:?}: {name}");
            assert_eq!(found[0].number(), value, "{form:?}: {name}");
            let respelled = name.replace(':', "_");
            assert!(respelled == name || !text.contains(&respelled), "{form:?}");
        }
    });
}

#[test]
fn b04_timestamps_are_left_out_and_are_no_values() {
    let stage = stage([good("router"), good("prefill"), case("b04.prom")]).all_up();
    stage.until_usage(Some("0.5000"));
    stage.look(|form, text, page| {
        assert!(!text.contains("1700000000000"), "{form:?}");
        for (name, value) in [
            ("sglang:token_usage", 0.5),
            ("kv_probe_total", 77.0),
            ("kv_probe_now", 3.0),
        ] {
            assert_eq!(of(page, name, "decode")[0].number(), value, "{form:?}");
        }
    });
}

#[test]
fn b05_a_family_of_three_is_one_block() {
    let stage = stage(["b05-r.prom", "b05-p.prom", "b05-d.prom"].map(case)).all_up();
    stage.look(|form, text, page| {
        let family = if form.is_open() {
            "process_cpu_seconds"
        } else {
            "process_cpu_seconds_total"
        };
        assert!(page.contains_key(family), "{form:?}: {text}");
        assert_eq!(page[family].kind, "counter", "{form:?}");
        assert_eq!(text.matches(&format!("# TYPE {family} ")).count(), 1);
        assert_eq!(text.matches(&format!("# HELP {family} ")).count(), 1);
        for (source, value) in [("router", 11.5), ("prefill", 22.5), ("decode", 33.5)] {
            let found = of(page, "process_cpu_seconds_total", source);
            assert_eq!(found.len(), 1, "{form:?}: {source}");
            assert_eq!(found[0].number(), value, "{form:?}: {source}");
        }
        // And kvgauge's own is told apart too.
        assert_eq!(of(page, "process_cpu_seconds_total", "kvgauge").len(), 1);
        assert_eq!(samples(page, "sglang:token_usage").len(), 2, "{form:?}");
    });
}

#[test]
fn b06_no_family_has_two_types_in_any_form() {
    let stage = stage([good("router"), case("b06-p.prom"), case("b06-d.prom")]).all_up();
    stage.look(|form, _, page| {
        let wait = &page["kv_probe_wait_seconds"];
        assert_eq!(wait.kind, "summary", "{form:?}: the first in order");
        assert_eq!(wait.samples.len(), 3, "{form:?}");
        assert!(samples(page, "kv_probe_wait_seconds_bucket").is_empty());
        assert_eq!(samples(page, "kv_probe_ok").len(), 2, "{form:?}");
    });
}

#[test]
fn b07_every_form_has_its_own_types_and_one_end() {
    let stage = stage([good("router"), case("b07-p.prom"), case("b07-d.prom")]).all_up();
    stage.look(|form, text, page| {
        let kinds = [
            ("kv_probe_build", "info"),
            ("kv_probe_hits", "counter"),
            ("kv_probe_tail", "gauge"),
            ("kv_probe_thing", "unknown"),
        ];
        let in_text = [
            ("kv_probe_build_info", "gauge"),
            ("kv_probe_hits_total", "counter"),
            ("kv_probe_tail", "gauge"),
            ("kv_probe_thing", "untyped"),
        ];
        let expected = if form.is_open() { kinds } else { in_text };
        let seen: Vec<(&str, &str)> = page
            .iter()
            .filter(|(name, _)| name.starts_with("kv_probe"))
            .map(|(name, family)| (name.as_str(), family.kind.as_str()))
            .collect();
        assert_eq!(seen, expected, "{form:?}");
        let ends = text.matches("# EOF").count();
        assert_eq!(ends, usize::from(form.is_open()), "{form:?}");
        assert_eq!(text.ends_with("\n# EOF\n"), form.is_open(), "{form:?}");
        // What came after the end marker of the other page is there.
        assert_eq!(of(page, "kv_probe_tail", "decode").len(), 1, "{form:?}");
        assert_eq!(of(page, "kv_probe_hits_total", "prefill")[0].number(), 17.0);
    });
}

#[test]
fn b08_carriage_returns_and_blanks_are_read_in_full() {
    // As the decode server, so that the header shows what was read.
    let stage = stage([good("router"), good("prefill"), case("b08.prom")]).all_up();
    stage.until_usage(Some("0.2500"));
    stage.look(|form, text, page| {
        assert!(!text.contains('\r'), "{form:?}");
        for (name, value) in [
            ("sglang:token_usage", 0.25),
            ("kv_probe_sp", 7.0),
            ("kv_probe_t", 8.0),
        ] {
            let found = of(page, name, "decode");
            assert_eq!(found.len(), 1, "{form:?}: {name}");
            assert_eq!(found[0].number(), value, "{form:?}: {name}");
        }
    });
    let sources = get(stage.kvgauge.admin, "/sources").json();
    assert_eq!(sources["sources"][2]["left_out"], serde_json::json!([]));
}

#[test]
fn b09_a_login_page_is_no_metrics_page() {
    let html = Page::new(Behaviour::Raw(support::data::case("b09-page.http")));
    let stage = stage([good("router"), good("prefill"), html]);
    stage.kvgauge.until_up("router");
    stage.kvgauge.until_up("prefill");
    let told = eventually("the failure of decode", || {
        let sources = get(stage.kvgauge.admin, "/sources").json();
        let told = sources["sources"][2]["last_error"].clone();
        (!told.is_null()).then_some(told)
    });
    assert_eq!(told["reason"], "content", "{told}");
    assert!(told["message"].as_str().unwrap().contains("HTML"), "{told}");
    stage.until_usage(None);
    let answer = fetch(stage.kvgauge.listen, "GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    let member = pool(&answer.head, "decode");
    assert!(member.unknown().is_some() && member.number("usage").is_none());
    stage.look(|form, text, page| {
        assert!(!text.contains('<'), "{form:?}: {text}");
        assert_eq!(samples(page, "good").len(), 2, "{form:?}");
        let up = of(page, "kvgauge_source_up", "decode");
        assert_eq!(up[0].number(), 0.0, "{form:?}");
    });
}

#[test]
fn b09_the_text_says_what_a_page_is_not_its_name() {
    let mislabeled = Page::new(Behaviour::Raw(support::data::case("b09-mislabel.http")));
    let stage = stage([good("router"), good("prefill"), mislabeled]).all_up();
    stage.until_usage(Some("0.3300"));
    stage.look(|form, _, page| {
        let found = of(page, "sglang:token_usage", "decode");
        assert_eq!(found[0].number(), 0.33, "{form:?}");
        assert_eq!(samples(page, "good").len(), 2, "{form:?}");
    });
}

#[test]
fn b12_a_label_that_is_missing_stays_missing() {
    let stage = stage([good("router"), case("b12-p.prom"), case("b12-d.prom")]).all_up();
    stage.look(|form, _, page| {
        let found = samples(page, "sglang:num_running_reqs");
        let seen: Vec<_> = found
            .iter()
            .map(|s| (s.label("source").unwrap(), s.label("dp_rank"), s.number()))
            .collect();
        let expected = [
            ("prefill", None, 4.0),
            ("decode", Some("0"), 7.0),
            ("decode", Some("1"), 9.0),
        ];
        assert_eq!(seen, expected, "{form:?}");
    });
}

/// In every form the same is said: of real pages, and of kvgauge itself.
#[test]
fn every_form_says_the_same_of_real_pages() {
    let real = [
        "sglang-router-0.3.2-pd-after-traffic",
        "sglang-0.5.23-prefill-tp4-busy",
        "sglang-0.5.23-decode-tp4-busy",
    ];
    let stage = stage(real.map(Page::real)).all_up();
    stage.until_usage(Some("0.0047"));
    // What kvgauge says of itself changes from page to page: names and types alone.
    let foreign = |page: &Checked| {
        let mut page = page.clone();
        for family in page.values_mut() {
            family.samples.retain(|s| {
                !s.name.starts_with("kvgauge_") && s.label("source") != Some("kvgauge")
            });
        }
        page
    };
    let own = |page: &Checked| {
        let samples = page.values().flat_map(|f| &f.samples);
        let own = samples.filter(|s| s.name.starts_with("kvgauge_"));
        own.map(|s| said::Said::new(&s.name, s.labels.clone(), 0.0).loose())
            .collect::<std::collections::BTreeSet<_>>()
    };
    // The request that found the usage is counted when it is over.
    let classic = eventually("the request is counted", || {
        let (_, classic) = page(&stage.kvgauge, Form::CLASSIC);
        let counted = own(&classic).iter().any(|said| {
            let method = said.labels.get("method").map(String::as_str);
            said.name == "kvgauge_requests_total" && method == Some("GET")
        });
        counted.then_some(classic)
    });
    assert!(sample_count(&foreign(&classic)) > 1_000);
    stage.look(|form, _, page| {
        said::compare(&foreign(&classic), &foreign(page), said::More::Nothing)
            .unwrap_or_else(|e| panic!("{form:?}: {e}"));
        assert_eq!(own(page), own(&classic), "{form:?}");
        let untyped = page.iter().find(|(name, family)| {
            name.starts_with("kvgauge_") && matches!(&*family.kind, "unknown" | "untyped")
        });
        assert!(untyped.is_none(), "{form:?}: {untyped:?}");
    });
}

#[test]
fn b50_a_gauge_that_is_renamed_in_mid_run_leaves_no_gap() {
    let stage = stage([good("router"), good("prefill"), case("b50-colon.prom")]).all_up();
    stage.until_usage(Some("0.4000"));
    let under = String::from_utf8(support::data::case("b50-under.prom")).unwrap();
    let role = [("role", "decode")];
    let mut seen = Vec::new();
    let look = |seen: &mut Vec<(f64, bool, bool)>| {
        let metrics = stage.kvgauge.metrics();
        // Name, unit and labels stay; there is always exactly one.
        let usage = metrics.all("kvgauge_kv_usage_ratio", &role);
        assert_eq!(usage.len(), 1, "{usage:?}");
        let labels: Vec<&str> = usage[0].labels.iter().map(|l| l.0.as_str()).collect();
        assert_eq!(labels, ["role", "model"]);
        let has = |name| metrics.value(name, &[("source", "decode")]).is_some();
        let now = (
            usage[0].value(),
            has("sglang:token_usage"),
            has("sglang_token_usage"),
        );
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        now
    };
    look(&mut seen);
    stage.pages[2].set(Behaviour::Text(under));
    eventually("the new name", || {
        (look(&mut seen) == (0.5, false, true)).then_some(())
    });
    // Both change at one time, and nothing else is ever seen.
    assert_eq!(seen, [(0.4, true, false), (0.5, false, true)]);
    stage.until_usage(Some("0.5000"));
    let (_, open) = page(&stage.kvgauge, Form::OPEN);
    assert_eq!(of(&open, "sglang_token_usage", "decode")[0].number(), 0.5);
    assert!(samples(&open, "sglang:token_usage").is_empty());
}

/// 100,000 series in about 12 MB: 10 histograms with 100 buckets over 98 label sets.
fn b11_page() -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(13 << 20);
    for family in 0..10 {
        let name = format!("kv_probe_large_page_{family}_seconds");
        let _ = writeln!(text, "# TYPE {name} histogram");
        for set in 0..98 {
            let labels = format!(
                "model_name=\"a-model\",engine_type=\"prefill\",tp_rank=\"{}\",set=\"{set}\"",
                set % 8
            );
            for bucket in 0..100 {
                let le = if bucket == 99 {
                    "+Inf".to_owned()
                } else {
                    format!("{bucket}.5")
                };
                let _ = writeln!(
                    text,
                    "{name}_bucket{{{labels},le=\"{le}\"}} {}.0",
                    bucket * 3
                );
            }
            let _ = writeln!(
                text,
                "{name}_sum{{{labels}}} 1234.5\n{name}_count{{{labels}}} 297.0"
            );
        }
    }
    text
}

/// The most memory that has been in use so far.
fn resident(kvgauge: &Kvgauge) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", kvgauge.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let text = line.unwrap().trim().strip_suffix(" kB").unwrap();
    text.parse::<usize>().unwrap() * 1024
}

/// What the events of 50 streams needed from the router to the client, sorted, while `during` ran.
fn delays(
    kvgauge: &Kvgauge,
    zero: Instant,
    stop: &AtomicBool,
    during: impl FnOnce(),
) -> Vec<Duration> {
    let mut delays = Vec::new();
    std::thread::scope(|scope| {
        let streams: Vec<_> = (0..50)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::connect(kvgauge.listen);
                    client.patience(Duration::from_secs(30));
                    client.send(support::client::post(
                        "/v1/chat/completions",
                        "",
                        "{\"stream\":true}",
                    ));
                    assert_eq!(client.head().status(), 200);
                    let mut delays = Vec::new();
                    while let Some(event) = client.chunk() {
                        let now = zero.elapsed();
                        let text = String::from_utf8(event).unwrap();
                        // What one read brought is one chunk: on a busy machine several events.
                        let mut events = text.split_terminator("\n\n").peekable();
                        assert!(events.peek().is_some(), "{text}");
                        for event in events {
                            let sent = event.strip_prefix("data: ").unwrap().parse().unwrap();
                            delays.push(now.saturating_sub(Duration::from_nanos(sent)));
                        }
                    }
                    delays
                })
            })
            .collect();
        during();
        stop.store(true, Ordering::Relaxed);
        delays = streams
            .into_iter()
            .flat_map(|s| s.join().unwrap())
            .collect();
    });
    delays.sort();
    delays
}

/// B11 with so many scrapes. What is wrong with the delays is given back: a busy machine can do that.
fn b11(scrapes: usize) -> Option<String> {
    let zero = Instant::now();
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let ends = std::sync::Arc::clone(&stop);
    let upstream = Upstream::new(move |connection| {
        connection.request()?;
        connection.send(STREAM)?;
        while !ends.load(Ordering::Relaxed) {
            connection.chunk(format!("data: {}\n\n", zero.elapsed().as_nanos()))?;
            support::pause(Duration::from_millis(100));
        }
        connection.send("0\r\n\r\n")?;
        Ok(Next::Close)
    });
    let text = b11_page();
    let (body, series) = (text.len(), 10 * 98 * 102_u32);
    assert!((11_500_000..13_000_000).contains(&body), "{body} bytes");
    let prefill = Page::text(text);
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape = { interval = \"2s\", timeout = \"3s\" }\n")
        .source("prefill", "prefill", &prefill)
        .start();
    let mut memory = Vec::new();
    let delays = delays(&kvgauge, zero, &stop, || {
        for scrape in 1..=scrapes {
            support::wait::within(Duration::from_secs(20), "the next scrape", || {
                (prefill.asked() > scrape).then_some(())
            });
            memory.push(resident(&kvgauge));
        }
    });
    kvgauge.until_up("prefill");
    let metrics = kvgauge.metrics();
    let of_prefill = [("source", "prefill")];
    assert_eq!(
        metrics.value("kvgauge_source_samples", &of_prefill),
        Some(f64::from(series))
    );
    assert_eq!(
        metrics.sum("kvgauge_source_scrape_failures_total", &of_prefill),
        0.0
    );
    // All series are there: in classic text too, which is counted only, since checking takes long.
    let text = kvgauge.metrics_text();
    let lines = text
        .lines()
        .filter(|l| l.starts_with("kv_probe_large_page"));
    assert_eq!(lines.count(), series as usize);
    let (_, page) = page(&kvgauge, Form::OPEN);
    let large = page
        .iter()
        .filter(|(name, _)| name.starts_with("kv_probe_large"));
    let large: Vec<_> = large
        .map(|(_, f)| (f.kind.as_str(), f.samples.len()))
        .collect();
    assert_eq!(large, [("histogram", 98 * 102); 10]);
    let with_answers = resident(&kvgauge);
    let in_mib = |memory: &[usize]| memory.iter().map(|m| m >> 20).collect::<Vec<_>>();
    eprintln!(
        "{body} bytes; MiB: {:?}, then {}",
        in_mib(&memory),
        with_answers >> 20
    );
    assert!(
        memory.iter().chain([&with_answers]).all(|m| *m < 10 * body),
        "{memory:?}"
    );
    // Settled: from the third scrape on the allocator may need one more place for a page and what is
    // made of it, and from the tenth on nothing more.
    let most = memory.last().unwrap();
    assert!(*most < memory[2] + 2 * body, "{memory:?}");
    if let Some(tenth) = memory.get(9) {
        assert!(*most < tenth + body / 4, "{memory:?}");
    }
    assert!(
        delays.len() > 50 * 10 * scrapes,
        "only {} events",
        delays.len()
    );
    let high = delays[delays.len() * 99 / 100];
    eprintln!(
        "{} events, p99 {high:?}, longest {:?}",
        delays.len(),
        delays.last()
    );
    (high >= Duration::from_millis(20)).then(|| format!("p99 of the delays: {high:?}"))
}

#[test]
fn b11_a_page_of_12_mb_is_taken_whole_and_disturbs_no_stream_timed() {
    let faults: Vec<String> = (0..3).map_while(|_| b11(5)).collect();
    assert!(faults.len() < 3, "{faults:?}");
}

/// What takes minutes: `tests/run --full`.
mod full {
    use super::*;

    #[test]
    #[ignore = "takes a minute: tests/run --full"]
    fn b11_a_page_of_12_mb_for_a_minute_timed() {
        let faults: Vec<String> = (0..3).map_while(|_| b11(30)).collect();
        assert!(faults.len() < 3, "{faults:?}");
    }
}
