//! `kvgauge status`: lines, JSON and exit codes, against a running kvgauge and against pages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use serde_json::{Value, json};
use std::process::Command;
use support::kvgauge::{program, run};
use support::page::Behaviour;
use support::schema::Schema;
use support::{Kvgauge, Page, Setup, Upstream, get};

/// What it says, standard error behind standard output, and its exit code.
fn status(arguments: &[&str]) -> (String, i32) {
    let mut all = vec!["status"];
    all.extend(arguments);
    let output = run(&all);
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().unwrap())
}

fn status_json(arguments: &[&str]) -> (Value, i32) {
    let mut all = arguments.to_vec();
    all.push("--json");
    let (text, code) = status(&all);
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let faults = faults(&json);
    assert!(faults.is_empty(), "against the schema: {faults:?}\n{text}");
    assert_eq!(json["exit_code"], code);
    (json, code)
}

/// Prefill and decode server as they were for the contract's example: 12,034 of 2,581,504.
const BUSY: &str = "\
prefill  12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  inflight 2  bootstrap 1
decode   12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  transfer 1  prealloc 2";

fn busy() -> (Page, Page) {
    (
        Page::real("sglang-0.5.23-prefill-tp4-busy"),
        Page::real("sglang-0.5.23-decode-tp4-busy"),
    )
}

/// Decode comes first, as in the header.
fn in_order(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.reverse();
    lines.join("\n")
}

#[test]
fn pages_of_engines_are_said_a_line_a_role() {
    let (prefill, decode) = busy();
    let (text, code) = status(&[&prefill.url(), &decode.url()]);
    assert_eq!((text, code), (in_order(BUSY), 0));
    let one = Page::real("sglang-0.5.23-unified-dp2-tp1-busy");
    let want = "unified  413,698 / 5,163,008 tokens  8.01% of 2 pools, the fullest 15.56%";
    let (text, code) = status(&[&one.url()]);
    assert!(text.starts_with(want), "{text}");
    assert_eq!(code, 0);
    let swa = Page::real("sglang-0.5.23-unified-swa-busy");
    let (text, code) = status(&[&swa.url()]);
    let want = "unified  175,616 / 206,528 tokens  85.03% of the swa pool";
    assert!(text.starts_with(want), "{text}");
    // 0.8503 is above 0.85.
    assert!(text.ends_with(" | WARNING from 85.00%"), "{text}");
    assert_eq!(code, 1);
}

/// The usage is 0.9305.
#[test]
fn a_full_cache_is_a_warning_and_then_critical() {
    let hot = Page::real("sglang-0.5.23-decode-tp4-hot");
    let url = hot.url();
    for (arguments, code, ends) in [
        (vec![&*url], 1, " | WARNING from 85.00%"),
        (vec![&*url, "--crit", "0.93"], 2, " | CRITICAL from 93.00%"),
        (vec![&*url, "--warn", "0.94"], 0, "prealloc 17"),
    ] {
        let (text, seen) = status(&arguments);
        assert!(text.ends_with(ends), "{arguments:?}: {text}");
        assert_eq!(seen, code, "{arguments:?}: {text}");
    }
}

#[test]
fn unknown_is_said_in_words_and_never_0() {
    let fresh = Page::real("sglang-0.5.23-decode-tp4-fresh");
    let (text, code) = status(&[&fresh.url()]);
    let want = format!(
        "decode  usage unknown of 2,581,504 tokens: there is no KV usage on its page (absent) | \
                running unknown  queued unknown\n{}: it has no KV usage yet: its gauges come with the first \
                request; send a request through the router (kvgauge doctor --warmup does), then look again",
        fresh.address()
    );
    assert_eq!((text, code), (want, 3));
    let (json, _) = status_json(&[&fresh.url()]);
    let role = &json["roles"][0];
    assert_eq!(role["usage"], Value::Null);
    assert_eq!(role["unknown"], "absent");
    assert_eq!(json["status"], "unknown");

    let nobody = Page::refusing();
    let address = nobody.address();
    let (text, code) = status(&[&format!("decode={}", nobody.url())]);
    let want = format!(
        "decode  usage unknown: the server refuses, or can't be reached (unreachable) | running unknown  \
         queued unknown\ndecode refused the connection at {address}: check that the server runs, and on \
         that port"
    );
    assert_eq!((text, code), (want, 3));

    let router = Page::real("sglang-router-0.3.2-pd-before-traffic");
    let (text, code) = status(&[&router.url()]);
    let want = "usage unknown: this is a router's page, and how full the KV cache is stands on those of its \
                engines: name them, such as kvgauge status http://127.0.0.1:30002, or a running kvgauge";
    assert_eq!((&*text, code), (want, 3));
    // Beside an engine there is nothing to say of it.
    let (_, decode) = busy();
    let (text, code) = status(&[&router.url(), &decode.url()]);
    assert!(text.starts_with("decode") && code == 0, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// One page of several is not read: what the others say stands there, but the whole is not fine.
#[test]
fn a_page_that_is_in_no_role_makes_the_whole_unknown() {
    let (_, decode) = busy();
    let nobody = Page::refusing();
    let (json, code) = status_json(&[&decode.url(), &nobody.url()]);
    assert_eq!(code, 3);
    assert_eq!(json["roles"][0]["level"], "ok");
    assert_eq!(json["sources"][1]["unknown"], "unreachable");
}

fn front(sources: &[(&str, &Page)]) -> (Kvgauge, Upstream) {
    let upstream = Upstream::ok();
    let mut setup = Setup::new(upstream.address());
    for (name, page) in sources {
        setup = setup.source(name, "", page);
    }
    (setup.start(), upstream)
}

#[test]
fn a_running_kvgauge_says_the_same() {
    let (prefill, decode) = busy();
    let (kvgauge, _upstream) = front(&[("prefill", &prefill), ("decode", &decode)]);
    kvgauge.until_up("prefill");
    kvgauge.until_up("decode");
    let admin = format!("http://{}", kvgauge.admin);
    let want = (in_order(BUSY), 0);
    assert_eq!(status(&[&admin]), want);
    assert_eq!(status(&[&format!("{admin}/metrics")]), want);
    assert_eq!(status(&[&format!("{admin}/kv")]), want);

    // Where nobody is named, it is the one that would be started here.
    let output = Command::new(program())
        .arg("status")
        .env("KVGAUGE_ADMIN_LISTEN", kvgauge.admin.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.trim_end(), in_order(BUSY));

    // The roles are those of /kv, value by value.
    let (mut said, _) = status_json(&[&admin]);
    let kv = get(kvgauge.admin, "/kv").body;
    let mut kv: Value = serde_json::from_slice(&kv).unwrap();
    for role in said["roles"].as_array_mut().unwrap() {
        role.as_object_mut().unwrap().remove("level").unwrap();
    }
    for roles in [&mut said["roles"], &mut kv["roles"]] {
        for role in roles.as_array_mut().unwrap() {
            assert!(role["age_ms"].take().is_u64());
        }
    }
    assert_eq!(said["roles"], kv["roles"]);
    assert_eq!(said["sources"][0]["engine"], "sglang");
}

/// What is wrong with a page is said of it by itself too.
#[test]
fn what_is_wrong_with_a_page_is_said_beside_its_role() {
    let page = Page::real("sglang-0.5.23-prefill-tp4-busy");
    for (options, words) in [
        (
            "",
            "it is set as decode, but its page says that it is a prefill server",
        ),
        (
            ",engine=vllm",
            "it is read as vllm, as it is set, but its page is sglang's",
        ),
    ] {
        let (text, _) = status(&[&format!("decode={}{options}", page.url())]);
        assert!(text.contains(words), "{text}");
        assert!(!text.contains("--disable-log-stats"), "{text}");
    }
}

/// The page of a kvgauge repeats several engines as if they were one.
#[test]
fn a_kvgauge_of_which_only_the_page_can_be_had_is_unknown() {
    use support::page::Behaviour;
    let text = |name, used| {
        format!(
            "sglang:kv_used_tokens{{source=\"{name}\"}} {used}\nsglang:max_total_num_tokens{{source=\"{name}\"}} 1000\n"
        )
    };
    let merged = format!(
        "# TYPE kvgauge_build_info gauge\nkvgauge_build_info{{version=\"0\"}} 1\n{}{}",
        text("decode-0", 100),
        text("decode-1", 900)
    );
    for kv in [Behaviour::Status(403), Behaviour::Html] {
        let front = Page::new(Behaviour::Paths(vec![
            ("/metrics", Behaviour::Text(merged.clone())),
            ("/kv", kv),
        ]));
        let (text, code) = status(&[&front.url()]);
        assert_eq!(code, 3, "{text}");
        assert!(
            text.contains("is a kvgauge whose /kv can't be read"),
            "{text}"
        );
        assert!(!text.contains("900"), "{text}");
    }
}

/// Retractions and the tier in host memory stand in `/kv`, at `/sources` and in the report.
#[test]
fn what_was_preempted_and_how_full_host_memory_is_is_said_everywhere() {
    let hot = support::data::page("sglang-0.5.23-decode-tp4-hot");
    let labels = "{engine_type=\"decode\",model_name=\"/models/tiny\",tp_rank=\"0\"}";
    let tier = format!(
        "{hot}sglang:hicache_host_used_tokens{labels} 300\nsglang:hicache_host_total_tokens{labels} 400\n"
    );
    let page = Page::text(tier);
    let (kvgauge, _upstream) = front(&[("decode", &page)]);
    kvgauge.until_up("decode");
    let kv = get(kvgauge.admin, "/kv").json();
    let sources = get(kvgauge.admin, "/sources").json();
    let (report, _) = status_json(&[&format!("http://{}", kvgauge.admin)]);
    let (of_page, _) = status_json(&[&page.url()]);
    for said in [
        &kv["roles"][0],
        &sources["sources"][0]["pools"][0],
        &report["roles"][0],
        &of_page["roles"][0],
    ] {
        assert_eq!(
            (&said["preempted"], &said["host"]),
            (&json!(7), &json!(0.75))
        );
    }
    page.set(support::page::Behaviour::Text(support::data::page(
        "sglang-0.5.5-decode-tp4-busy",
    )));
    support::eventually("an engine that says neither", || {
        let kv = get(kvgauge.admin, "/kv").json();
        let role = &kv["roles"][0];
        (role["preempted"].is_null() && role["host"].is_null()).then_some(())
    });
}

#[test]
fn a_part_that_is_missing_is_a_warning() {
    let (_, decode) = busy();
    let nobody = Page::refusing();
    let (kvgauge, _upstream) = front(&[("decode-1", &decode), ("decode-2", &nobody)]);
    kvgauge.until_up("decode-1");
    let failures = [("source", "decode-2"), ("reason", "connect")];
    support::eventually("decode-2 has been tried", || {
        let n = kvgauge
            .metrics()
            .value("kvgauge_source_scrape_failures_total", &failures);
        n.is_some_and(|n| n > 0.0).then_some(())
    });
    let (text, code) = status(&[&format!("http://{}", kvgauge.admin)]);
    let want = format!(
        "decode  12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  transfer 1  prealloc 2 | \
         1 source or pool is not in it (unreachable) | WARNING\n\
         decode-2 refused the connection at {}: check that the server runs, and on that port",
        nobody.address()
    );
    assert_eq!((text, code), (want, 1));
}

#[test]
fn a_kvgauge_that_is_not_there_is_unknown() {
    let nobody = Page::refusing();
    let (text, code) = status(&[&format!("http://{}", nobody.address())]);
    let first = "usage unknown: nothing that was asked could be read\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("refused the connection"), "{text}");
    assert_eq!(code, 3);
}

#[test]
fn wrong_usage_ends_with_3_as_monitors_expect() {
    for (arguments, said) in [
        (&["--nonsense"][..], "unexpected argument '--nonsense'"),
        (&["--warn", "85"], "write a fraction from 0 to 1"),
        (
            &["--warn", "0.9", "--crit", "0.8"],
            "--warn is above --crit",
        ),
        (
            &["127.0.0.1:30090"],
            "`127.0.0.1:30090` has no http:// before it",
        ),
        (
            &["a=http://h:1", "a=http://h:2"],
            "two sources are called \"a\" (the other: argument)",
        ),
    ] {
        let (text, code) = status(arguments);
        assert!(text.contains(said), "{arguments:?}: {text}");
        assert_eq!(code, 3, "{arguments:?}");
    }
    assert_eq!(status(&["--help"]).1, 0);
}

/// A model's name comes from a page, and may be anything.
#[test]
fn what_a_page_says_does_not_reach_the_terminal_as_it_is() {
    let page = |model: &str| {
        format!("vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"{model}\"}} 0.5\n")
    };
    let (a, b) = (Page::text(page("a\u{1b}[31m")), Page::text(page("b")));
    let (text, code) = status(&[&a.url(), &b.url()]);
    assert!(
        text.starts_with("unified a\\u{1b}[31m  tokens unknown  50.00%"),
        "{text}"
    );
    assert_eq!(code, 0);
    // Neither what nobody sees, nor what shows the rest in another order.
    let odd = Page::text(page("a\u{202e}b\u{200b}\u{2066}é"));
    let (text, _) = status(&[&odd.url(), &b.url()]);
    assert!(
        text.starts_with("unified a\\u{202e}b\\u{200b}\\u{2066}é  "),
        "{text}"
    );
}

// === the schema ===

/// What is wrong with a report.
fn faults(report: &Value) -> Vec<String> {
    Schema::named("status").faults("", report)
}

/// That the schema can refuse: each of these is a report that it must not let pass.
#[test]
fn the_schema_refuses_what_is_no_report() {
    let (_, decode) = busy();
    let (report, _) = status_json(&[&decode.url()]);
    for (pointer, value) in [
        ("/status", json!("fine")),
        ("/exit_code", json!(4)),
        ("/warn", json!("0.85")),
        ("/roles/0/usage", json!(1.5)),
        ("/roles/0/used", json!(-1)),
        ("/roles/0/capacity", json!(0.5)),
        ("/roles/0/queues", json!({"other": 1})),
        ("/roles/0/missing", json!({"count": 1})),
        ("/sources/0/state", json!("sideways")),
        ("/sources/0/message", json!(7)),
    ] {
        let mut wrong = report.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        assert!(!faults(&wrong).is_empty(), "{pointer}");
    }
    let mut wrong = report;
    wrong["roles"][0].as_object_mut().unwrap().remove("usage");
    assert!(!faults(&wrong).is_empty());
}

#[test]
fn loads_are_read_as_serve_reads_them() {
    // The page says 0.93, the loads of the same engine that it is half full.
    let hot = support::data::page("sglang-0.5.23-decode-tp4-hot");
    let loads = r#"{"loads":[{"dp_rank":0,"num_running_reqs":7,"num_waiting_reqs":0,
        "num_used_tokens":1290752,"max_total_num_tokens":2581504,"token_usage":0.5,
        "disaggregation":{"mode":"decode"}}]}"#;
    let page = Page::new(Behaviour::Sglang(hot, Some(loads.to_owned())));
    for kind in ["auto", "sglang-loads"] {
        for url in [page.url(), format!("http://{}", page.address())] {
            let (text, code) = status(&[&format!("x={url},kind={kind}")]);
            let want = "decode  1,290,752 / 2,581,504 tokens  50.00% | running 7  queued 0";
            assert_eq!((&*text, code), (want, 0), "{kind} {url}");
        }
    }
    let (text, _) = status(&[&page.url()]);
    assert!(text.contains("93.05%"), "{text}");
}
