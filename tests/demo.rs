//! `kvgauge demo` as a user runs it: what it says at its begin, and that the scenarios show at `/kv` what
//! they promise. Each scenario's figures over time are held in virtual time, in `src/sim/scenario/`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;
use support::demo::Demo;
use support::kvgauge::{program, run};
use support::lines::Lines;
use support::wait::PATIENCE;
use support::{fetch, get};

/// Longer than a scenario takes to get there: only a failure takes that long.
const LIMIT: Duration = Duration::from_secs(38);

#[test]
fn its_first_lines_say_what_will_be_seen_and_where_to_look() {
    let demo = Demo::start("metrics-off");
    let text = demo.text();
    for said in [
        "Scenario metrics-off (--scenario NAME for another; --help lists them):",
        "without --enable-metrics",
        "Look at /sources",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    // Requests are answered, and decode's usage is unknown for a reason that says what to do.
    let state = demo.until(LIMIT, "prefill is known", "prefill", |role| {
        role["usage"].is_number()
    });
    assert_eq!(state["unknown"], serde_json::Value::Null);
    let decode = demo.role("decode");
    assert!(decode["usage"].is_null());
    assert_eq!(decode["unknown"], "not_read");
    let source = demo.source("decode").to_string();
    assert!(
        source.contains("start the server with --enable-metrics"),
        "{source}"
    );
    let body =
        r#"{"model":"demo/llama-70b","messages":[{"role":"user","content":"Hi"}],"max_tokens":2}"#;
    let answer = fetch(
        demo.listen,
        support::client::post("/v1/chat/completions", "", body),
    );
    assert_eq!(answer.status(), 200);
    assert!(!answer.head.has("x-kv-usage"));
    let pools = answer.head.get("x-kv-pools").unwrap();
    assert!(pools.contains("decode;unknown=not_read"), "{pools}");
}

#[test]
fn doctor_is_told_where_the_servers_of_the_demo_are() {
    let demo = Demo::start("calm");
    demo.until(LIMIT, "decode is known", "decode", |role| {
        role["usage"].is_number()
    });
    demo.until(LIMIT, "prefill is known", "prefill", |role| {
        role["usage"].is_number()
    });
    let text = demo.text();
    let mut commands = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("kvgauge doctor "));
    let command = commands.next().unwrap_or_else(|| panic!("none in {text}"));
    let mut arguments = vec!["doctor"];
    arguments.extend(command.split_whitespace());
    let output = run(&arguments);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for name in ["upstream", "router", "prefill", "decode"] {
        let fine = said
            .lines()
            .any(|line| line.starts_with("ok") && line.contains(&format!("  {name} ")));
        assert!(fine, "{name} in {said}");
    }
}

#[test]
fn sim_says_what_it_simulates_and_leaves_the_routers_port() {
    let help = String::from_utf8(run(&["sim", "--help"]).stdout).unwrap();
    for said in ["30001", "29001", "30000", "30002", "--router <ADDR>"] {
        assert!(help.contains(said), "{said} in {help}");
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut child = Command::new(program())
        .args(["sim", "--free-ports", "--router", &address.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    let first = lines.wait(PATIENCE, |lines, _| lines.first().cloned());
    let answer = get(address, "/readiness");
    child.kill().unwrap();
    child.wait().unwrap();
    let first = String::from_utf8(first.unwrap()).unwrap();
    assert_eq!(first.trim_end(), format!("router http://{address}"));
    assert_eq!(answer.status(), 200);
}

#[test]
fn another_name_is_wrong_usage_and_lists_the_scenarios() {
    let output = run(&["demo", "--scenario", "bogus"]);
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    let scenarios = [
        "calm",
        "rush",
        "full",
        "hot-rank",
        "decode-restart",
        "metrics-off",
        "hung",
    ];
    for name in scenarios {
        let line = said
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        assert!(line.unwrap_or_default().len() > 40, "{name} in {said}");
    }
}

/// The decode server is gone and comes back without gauges; each is told with its reason.
#[test]
fn decode_restart_shows_unknown_with_its_reason_and_recovers() {
    let demo = Demo::start("decode-restart");
    let known = |role: &serde_json::Value| role["usage"].is_number();
    demo.until(LIMIT, "decode is known", "decode", known);
    let gone = demo.until(LIMIT, "decode is gone", "decode", |role| {
        role["unknown"] == "unreachable"
    });
    assert!(gone["usage"].is_null(), "{gone}");
    assert_eq!(demo.source("decode")["unknown"], "unreachable");
    let prefill = demo.role("prefill");
    assert!(known(&prefill), "prefill is still there: {prefill}");
    let headers = get(demo.listen, "/v1/models").head;
    assert!(!headers.has("x-kv-usage"));
    let pools = headers.get("x-kv-pools").unwrap();
    assert!(pools.contains("decode;unknown=unreachable"), "{pools}");

    demo.until(LIMIT, "decode is back, fresh", "decode", |role| {
        role["unknown"] == "absent"
    });
    let back = demo.until(LIMIT, "decode is known again", "decode", known);
    assert!(back["usage"].as_f64().unwrap() < 0.5, "{back}");
}

/// The total looks harmless; the fullest pool tells.
#[test]
fn hot_rank_shows_in_the_fullest_pool_alone() {
    let demo = Demo::start("hot-rank");
    let hot = demo.until(LIMIT, "one rank is over 90 % full", "decode", |role| {
        role["max"].as_f64().is_some_and(|max| max > 0.9)
    });
    assert!(hot["usage"].as_f64().unwrap() < 0.6, "{hot}");
    assert_eq!(hot["pools"], 4);
    let headers = get(demo.listen, "/v1/models").head;
    let usage: f64 = headers.get("x-kv-usage").unwrap().parse().unwrap();
    assert!(usage < 0.6, "{usage}");
    let pools = headers.get("x-kv-pools").unwrap();
    let decode = pools
        .split(", ")
        .find(|member| member.starts_with("decode"))
        .unwrap();
    let max = decode
        .split(';')
        .find_map(|parameter| parameter.strip_prefix("max="));
    assert!(max.unwrap().parse::<f64>().unwrap() > 0.85, "{pools}");

    let source = demo.source("decode");
    let ranks: Vec<(String, f64)> = source["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| (pool["rank"].to_string(), pool["usage"].as_f64().unwrap()))
        .collect();
    let hot: Vec<_> = ranks.iter().filter(|(_, usage)| *usage > 0.8).collect();
    assert_eq!((ranks.len(), hot.len()), (4, 1), "{ranks:?}");
    assert!(hot[0].0.contains('2'), "{ranks:?}");
}
