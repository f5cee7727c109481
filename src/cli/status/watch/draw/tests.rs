//! The view as text: what stands on the screen, without colours.

use super::super::feed::Heard;
use super::super::model::Model;
use super::super::moment::Moment;
use super::*;
use crate::cli::status::report::{Limits, Said, SourceSays};
use ratatui::style::Modifier;
use serde_json::{Value, json};

const PLAIN: Look = Look {
    unicode: true,
    colour: false,
};
const ASCII: Look = Look {
    unicode: false,
    colour: false,
};
const COLOUR: Look = Look {
    unicode: true,
    colour: true,
};

const LIMITS: Limits = Limits {
    warn: 0.85,
    crit: 0.95,
};

/// 2026-11-30T23:59:40Z.
const NOW: i64 = 1_796_083_180;

fn role(name: &str, usage: f64) -> Value {
    json!({
        "role": name, "model": null, "usage": usage, "unknown": null, "max": usage, "fill": usage + 0.05,
        "used": (usage * 2_581_504.0) as u64, "capacity": 2_581_504, "pool": "full", "running": 3, "queued": 0,
        "queues": if name == "decode" { json!({"transfer": 1, "prealloc": 2}) } else { json!({"inflight": 2, "bootstrap": 1}) },
        "pending": null, "hit_rate": null, "preempted": 0, "host": null, "age_ms": 812, "pools": 1, "missing": null,
    })
}

fn unknown(name: &str, why: &str) -> Value {
    json!({
        "role": name, "usage": null, "unknown": why, "running": null, "queued": null, "queues": {},
        "pools": 0, "missing": {"count": 1, "reason": why}, "capacity": null,
    })
}

fn source(name: &str, role: Option<&str>) -> Value {
    json!({
        "name": name, "url": format!("http://127.0.0.1:30000/{name}"), "role": role, "engine": "sglang",
        "state": "up", "age_ms": 412, "unknown": null, "message": null,
    })
}

fn moment(roles: &[Value]) -> Value {
    json!({
        "timestamp": "2026-11-30T23:59:40.123Z",
        "kvgauge": {"version": "0.1.0", "uptime_s": 1234, "phase": "serving", "upstream": "http://127.0.0.1:30001"},
        "warn": 0.85, "crit": 0.95, "headline": "decode",
        "roles": roles, "pools": [], "pools_left_out": 0,
        "traffic": {
            "window_s": 60, "in_flight": 12, "requests_per_s": 3.24, "failed_per_s": 0.0,
            "input_tokens_per_s": 900.0, "output_tokens_per_s": 1200.0,
            "ttft_ms": {"p50": 80.0, "p90": 200.0, "p99": 1900.0},
            "tpot_ms": {"p50": 8.25, "p90": 12.0, "p99": null},
            "duration_ms": {"p50": 1.0, "p90": 2.0, "p99": 3.0},
        },
        "sources": [source("router", None), source("prefill", Some("prefill")), source("decode", Some("decode"))],
        "requests": [], "errors": [],
    })
}

fn model(moment: &Value, now: Instant) -> Model {
    let mut model = Model::new("http://127.0.0.1:30090".to_owned(), LIMITS);
    hear(&mut model, moment, now);
    model
}

fn hear(model: &mut Model, moment: &Value, now: Instant) {
    let moment = serde_json::from_value(moment.clone()).unwrap();
    model.take(Heard::Moment(Box::new(moment)), now);
}

fn buffer(model: &Model, mode: Mode, look: Look, now: Instant, size: (u16, u16)) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    draw(model, mode, look, now, &mut buffer);
    buffer
}

/// The rows, without the blanks at their ends.
fn rows(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let mut text = String::new();
        let mut covered = 0;
        for cell in cells {
            if covered > 0 {
                covered -= 1;
                continue;
            }
            text.push_str(cell.symbol());
            covered = text::width(cell.symbol()).saturating_sub(1);
        }
        text.trim_end().to_owned()
    };
    buffer.content().chunks(width).map(row).collect()
}

fn screen(model: &Model, look: Look, now: Instant, size: (u16, u16)) -> String {
    rows(&buffer(model, Mode::default(), look, now, size)).join("\n")
}

fn shown(moment: &Value, look: Look, size: (u16, u16)) -> String {
    let now = Instant::now();
    screen(&model(moment, now), look, now, size)
}

#[track_caller]
fn has(screen: &str, words: &[&str]) {
    for word in words {
        assert!(screen.contains(word), "no {word:?} in\n{screen}");
    }
}

#[test]
fn all_is_well_at_80_by_24() {
    let screen = shown(
        &moment(&[role("decode", 0.47), role("prefill", 0.25)]),
        PLAIN,
        (80, 24),
    );
    assert_eq!(screen.lines().count(), 24, "{screen}");
    has(
        &screen,
        &[
            "kvgauge 0.1.0  127.0.0.1:30090  serving, up 20 min",
            "heard 0 s ago",
            "ok: the fullest is decode at 47.00%",
            "decode  ok       [████",
            "  1,213,306 / 2,581,504 tokens  fill 52.00%\n  running 3  queued 0  transfer 1  prealloc 2\n",
            "   5 min ago ",
            "prefill ok       [████",
            "  running 3  queued 0  inflight 2  bootstrap 1",
            "traffic  3.2 requests/s  0 failed/s  12 in flight  tokens/s in 900 out 1,200",
            "TTFT     p50 80 ms     p90 200 ms    p99 1.9 s",
            "TPOT     p50 8.2 ms    p90 12 ms     p99 unknown",
            "sources  3 of 3 up, oldest read under 1 s ago",
            "  decode  up    read under 1 s ago  sglang  127.0.0.1:30000/decode",
            "q quit   p pause   ? help",
        ],
    );
    assert!(
        screen.lines().all(|line| text::width(line) <= 80),
        "{screen}"
    );
}

/// Without any colour each level is a word.
#[test]
fn levels_are_words() {
    let screen = shown(
        &moment(&[role("decode", 0.96), role("prefill", 0.86)]),
        PLAIN,
        (80, 24),
    );
    has(
        &screen,
        &[
            "CRITICAL: decode 96.00% (from 95.00%)   WARNING: prefill 86.00% (from 85.00%)",
            "decode  CRITICAL [",
            "prefill WARNING  [",
        ],
    );
    let buffer = |look| {
        let now = Instant::now();
        let model = model(&moment(&[role("decode", 0.96)]), now);
        buffer(&model, Mode::default(), look, now, (80, 24))
    };
    let colours = |buffer: &Buffer| {
        buffer
            .content()
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset)
    };
    assert!(colours(&buffer(COLOUR)));
    assert!(!colours(&buffer(PLAIN)));
    assert_eq!(rows(&buffer(COLOUR)), rows(&buffer(PLAIN)));
    let bold = |cell: &ratatui::buffer::Cell| cell.modifier.contains(Modifier::BOLD);
    assert!(buffer(PLAIN).content().iter().any(bold));
}

/// The limits are those that were typed.
#[test]
fn limits_are_as_typed() {
    let now = Instant::now();
    let mut model = Model::new(
        "a".to_owned(),
        Limits {
            warn: 0.3,
            crit: 0.95,
        },
    );
    hear(&mut model, &moment(&[role("decode", 0.47)]), now);
    has(
        &screen(&model, PLAIN, now, (80, 24)),
        &["WARNING: decode 47.00% (from 30.00%)"],
    );
}

#[test]
fn what_is_not_known_is_said_and_has_no_bar() {
    let mut moment = moment(&[unknown("decode", "unreachable"), role("prefill", 0.25)]);
    let refused = "decode refused the connection at 127.0.0.1:30002: check that the server runs, and on that port";
    moment["sources"][2]["state"] = json!("down");
    moment["sources"][2]["unknown"] = json!("unreachable");
    moment["sources"][2]["age_ms"] = json!(12_700);
    moment["sources"][2]["message"] = json!(refused);
    moment["traffic"] =
        json!({"window_s": 60, "in_flight": 0, "requests_per_s": 0.0, "failed_per_s": 0.0});
    let screen = shown(&moment, PLAIN, (80, 24));
    has(
        &screen,
        &[
            "UNKNOWN: decode unreachable",
            "decode  UNKNOWN  the server refuses, or can't be reached (unreachable)\n",
            "running unknown  queued unknown",
            "sources  2 of 3 up, oldest read under 1 s ago  NOT UP: decode",
            "decode  DOWN  read 12 s ago",
            "decode refused the connection at 127.0.0.1:30002: check that the server",
            "    runs, and on that port",
            "TTFT     unknown: no answer gave one in the last 60 s",
        ],
    );
    let line = screen
        .lines()
        .find(|line| line.starts_with("decode"))
        .unwrap();
    assert!(!line.contains('[') && !line.contains('%'), "{line}");
    moment["traffic"] = json!({"window_s": 60, "in_flight": 0});
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &["traffic  rates unknown yet"],
    );
}

/// What is no share is no usage, whoever says it.
#[test]
fn a_usage_above_1_is_unknown() {
    let screen = shown(&moment(&[role("decode", 1.5)]), PLAIN, (80, 24));
    has(
        &screen,
        &[
            "UNKNOWN: decode invalid",
            "a gauge holds what can't be a value",
        ],
    );
    assert!(!screen.contains("150"), "{screen}");
}

#[test]
fn a_part_that_is_missing_is_said() {
    let mut decode = role("decode", 0.2);
    decode["missing"] = json!({"count": 2, "reason": "stale"});
    let screen = shown(&moment(&[decode]), PLAIN, (80, 24));
    has(
        &screen,
        &[
            "WARNING: decode known in part",
            "2 sources or pools are not in these numbers (stale)",
        ],
    );
}

#[test]
fn a_lost_connection_is_said_and_what_is_shown_is_old() {
    let start = Instant::now();
    let mut model = model(&moment(&[role("decode", 0.99)]), start);
    let lost = |again| Heard::Lost {
        message: "kvgauge refused the connection at 127.0.0.1:30090: check that the server runs"
            .to_owned(),
        again: Duration::from_secs(again),
    };
    model.take(lost(1), start);
    model.take(lost(5), start + Duration::from_secs(10));
    let now = start + Duration::from_secs(12);
    let text = screen(&model, PLAIN, now, (80, 24));
    has(
        &text,
        &[
            "heard 12 s ago",
            "CONNECTION LOST 12 s ago, next try in 3 s; what is shown is OLD",
            "  kvgauge refused the connection at 127.0.0.1:30090: check that the server runs",
            "decode OLD      [",
            "99.00%",
        ],
    );
    // Nothing is said of now.
    assert!(!text.contains("CRITICAL"), "{text}");
    has(
        &screen(&model, PLAIN, now, (60, 15)),
        &["CONNECTION LOST", "decode OLD"],
    );
    has(
        &screen(&model, PLAIN, now, (20, 5)),
        &["CONNECTION LOST", "decode 99% OLD"],
    );
    // It comes back.
    hear(&mut model, &moment(&[role("decode", 0.5)]), now);
    let text = screen(&model, PLAIN, now, (80, 24));
    assert!(
        !text.contains("CONNECTION") && !text.contains("OLD"),
        "{text}"
    );
    // A connection over which nothing comes.
    let text = screen(&model, PLAIN, now + Duration::from_secs(7), (80, 24));
    has(&text, &["NOTHING HEARD", "decode OLD"]);
}

#[test]
fn never_connected_is_said() {
    let now = Instant::now();
    let mut model = Model::new("http://127.0.0.1:1".to_owned(), LIMITS);
    has(
        &screen(&model, PLAIN, now, (80, 24)),
        &["Nothing has been heard yet."],
    );
    let message = "kvgauge refused the connection".to_owned();
    let again = Duration::from_secs(2);
    model.take(Heard::Lost { message, again }, now);
    let text = screen(&model, PLAIN, now + Duration::from_secs(1), (80, 24));
    has(
        &text,
        &[
            "NO CONNECTION for 1 s, next try in 1 s",
            "  kvgauge refused the connection",
        ],
    );
}

#[test]
fn several_models_have_a_row_each() {
    let mut roles = vec![role("decode", 0.4), role("decode", 0.9)];
    roles[0]["model"] = json!("meta-llama/Llama-3.3-70B-Instruct");
    roles[1]["model"] = json!("qwen");
    let screen = shown(&moment(&roles), PLAIN, (80, 24));
    has(
        &screen,
        &[
            "decode meta-llama/Llama-3… ok       [",
            "decode qwen                WARNING  [",
            "WARNING: decode qwen 90.00%",
        ],
    );
}

#[test]
fn the_hottest_rank_is_told_where_it_is_worse_than_a_whole_that_is_not_well() {
    let mut decode = role("decode", 0.88);
    decode["pools"] = json!(2);
    decode["max"] = json!(0.97);
    let text = shown(&moment(&[decode]), PLAIN, (80, 24));
    has(
        &text,
        &["CRITICAL: decode 88.00%, its hottest pool 97.00% (from 95.00%)"],
    );
}

#[test]
fn the_hottest_rank_is_named() {
    let mut decode = role("decode", 0.5);
    decode["pools"] = json!(2);
    decode["max"] = json!(0.93);
    let mut moment = moment(&[decode]);
    let pool = |rank: &str, usage: f64| json!({"role": "decode", "model": "m", "source": "decode", "pool": rank, "usage": usage, "used": 12, "capacity": 34});
    moment["pools"] = json!([pool("rank 3", 0.93), pool("rank 1", 0.07)]);
    let text = shown(&moment, PLAIN, (80, 24));
    has(&text, &["hottest 93.00% WARNING: rank 3 of 2 pools"]);
    // A full rank is told, although the role as a whole is not.
    has(
        &text,
        &[
            "WARNING: decode 50.00%, its hottest pool 93.00% (from 85.00%)",
            "decode ok       [",
        ],
    );
    // There is room for the pools themselves.
    has(
        &text,
        &[
            "pools  the fullest of 2",
            "  decode rank 3 [",
            " 93.00%  12 / 34",
            "  decode rank 1 [",
        ],
    );
    moment["pools"][1]["source"] = json!("decode-2");
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &["hottest 93.00% WARNING: decode rank 3 of 2 pools"],
    );
}

#[test]
fn sixteen_roles_have_a_line_each_and_the_worst_come_first_where_there_is_no_room() {
    let mut roles: Vec<Value> = (0..16).map(|_| role("decode", 0.1)).collect();
    for (n, role) in roles.iter_mut().enumerate() {
        role["model"] = json!(format!("model-{n}"));
    }
    roles[14]["usage"] = json!(0.97);
    let moment = moment(&roles);
    let text = shown(&moment, PLAIN, (80, 24));
    for n in 0..16 {
        has(&text, &[&format!("decode model-{n} ")]);
    }
    has(
        &text,
        &[
            "10.00% running 3 queued 0",
            "sources  3 of 3 up",
            "traffic  3.2 requests/s",
        ],
    );
    let text = shown(&moment, PLAIN, (60, 15));
    has(
        &text,
        &[
            "and 5 more, none worse than ok",
            "CRITICAL: decode model-14 97.00%",
        ],
    );
    let second = text.lines().nth(2).unwrap();
    assert!(second.starts_with("decode model-14 "), "{text}");
}

#[test]
fn a_small_window_has_the_roles() {
    let screen = shown(
        &moment(&[role("decode", 0.96), role("prefill", 0.25)]),
        PLAIN,
        (60, 15),
    );
    has(
        &screen,
        &[
            "CRITICAL: decode 96.00%",
            "decode  CRITICAL [",
            "prefill ok       [",
            "running 3",
            "traffic",
            "sources  3 of 3 up",
            "q quit",
        ],
    );
    assert_eq!(screen.lines().count(), 15, "{screen}");
}

#[test]
fn a_tiny_window_has_the_worst_and_says_so() {
    let screen = shown(
        &moment(&[role("decode", 0.96), unknown("prefill", "stale")]),
        PLAIN,
        (20, 5),
    );
    assert_eq!(
        screen.trim_end(),
        "prefill UNKNOWN\ndecode 96% CRITICAL\ntoo small for more"
    );
    // And whatever the size, there is no panic.
    let now = Instant::now();
    let model = model(
        &moment(&[role("decode", 0.96), unknown("prefill", "stale")]),
        now,
    );
    for width in (0..60).step_by(3).chain([80, 120, 400]) {
        for height in (0..30).chain([100]) {
            for help in [false, true] {
                let mode = Mode {
                    help,
                    ..Mode::default()
                };
                buffer(&model, mode, ASCII, now, (width, height));
            }
        }
    }
}

#[test]
fn a_large_window_has_more() {
    let mut moment = moment(&[role("decode", 0.5), role("prefill", 0.2)]);
    moment["pools"] = (0..8)
        .map(|n| json!({"role": "decode", "source": "decode", "pool": format!("rank {n}"), "usage": 0.5 - 0.01 * f64::from(n), "used": 1000, "capacity": 2000}))
        .collect();
    moment["requests"] = (0..20)
        .map(|n| json!({"timestamp": format!("2026-11-30T23:59:{n:02}.5Z"), "id": "x", "method": "POST", "path": "/v1/completions", "status": 200, "outcome": "complete", "ttft_ms": 80.0, "duration_ms": 1500.0, "input_tokens": 900, "output_tokens": 120, "kv_start_usage": 0.47, "kv_end_usage": null}))
        .collect();
    moment["errors"] = json!([
        {"timestamp": "2026-11-30T23:58:00.0Z", "count": null, "who": "decode", "message": "decode timed out"},
        {"timestamp": "2026-11-30T23:57:00.0Z", "count": 448, "who": "POST /v1", "message": "the router's answer, status 502"},
    ]);
    let text = shown(&moment, PLAIN, (160, 60));
    has(
        &text,
        &[
            "  15 min ago",
            "decode rank 7",
            "last errors",
            "23:58:00 decode timed out",
            "23:57:00 448 times, last: POST /v1: the router's answer, status 502",
            "last requests",
            "  23:59:19  200 complete",
            "  80 ms ",
            " 47.00% to unknown",
            "  /v1/completions",
        ],
    );
}

#[test]
fn the_graph_shows_the_last_minutes_and_what_was_unknown() {
    let now = Instant::now();
    let mut model = Model::new("a".to_owned(), LIMITS);
    // A reading each 2 s: full, 20 s of which nothing is known, empty.
    let times: Vec<i64> = (0..60).map(|n| NOW - 120 + 2 * n).collect();
    let usage: Vec<Value> = (0..60)
        .map(|n| {
            if n < 20 {
                json!(1.0)
            } else if n < 30 {
                Value::Null
            } else {
                json!(0.0)
            }
        })
        .collect();
    let why: Vec<Value> = (0..60)
        .map(|n| {
            if (20..30).contains(&n) {
                json!("unreachable")
            } else {
                Value::Null
            }
        })
        .collect();
    let history = json!({"times": times, "roles": [{"role": "decode", "model": null, "usage": usage, "unknown": why}]});
    model.take(
        Heard::History(serde_json::from_value(history).unwrap()),
        now,
    );
    hear(&mut model, &moment(&[role("decode", 0.5)]), now);
    // Columns of 5 s; before it nothing had been heard.
    let row = |text: &str| {
        text.lines()
            .find(|line| line.contains("min ago"))
            .unwrap()
            .to_owned()
    };
    let graph = row(&screen(&model, PLAIN, now, (80, 24)));
    let want = format!(
        "   5 min ago {}{}{}{}▄ now",
        " ".repeat(35),
        "█".repeat(8),
        "?".repeat(4),
        "▁".repeat(12)
    );
    assert_eq!(graph, want);
    let graph = row(&screen(&model, ASCII, now, (80, 24)));
    assert!(
        graph.ends_with("########????____________= now")
            || graph.ends_with("########????____________- now"),
        "{graph}"
    );
    // While its page is gone a role has no model, and the same past.
    let mut other = role("decode", 0.5);
    other["model"] = json!("m");
    hear(&mut model, &moment(&[other]), now);
    assert!(row(&screen(&model, PLAIN, now, (80, 24))).contains("????▁"));
    hear(&mut model, &moment(&[role("decode", 0.5)]), now);
    // It moves on by whole columns.
    let later = row(&screen(
        &model,
        PLAIN,
        now + Duration::from_secs(4),
        (80, 24),
    ));
    assert_eq!(later, want);
    let later = row(&screen(
        &model,
        PLAIN,
        now + Duration::from_secs(5),
        (80, 24),
    ));
    assert!(later.ends_with("▁▄  now"), "{later}");
}

/// A page may hold any bytes; none of them steers the terminal.
#[test]
fn texts_from_elsewhere_can_do_nothing() {
    let evil = "m\u{1b}]0;pwned\u{7}\u{1b}[31m\r\n\u{202e}\u{200b}\u{9b}2J";
    let mut decode = role("decode", 0.5);
    decode["role"] = json!(evil);
    decode["model"] = json!(evil);
    decode["pool"] = json!(evil);
    decode["pools"] = json!(2);
    let mut other = role("decode", 0.5);
    other["role"] = json!(evil);
    other["usage"] = Value::Null;
    other["unknown"] = json!(evil);
    let mut moment = moment(&[decode, other]);
    moment["kvgauge"]["version"] = json!(evil);
    moment["kvgauge"]["phase"] = json!(evil);
    moment["pools"] = json!([{"role": evil, "model": evil, "source": evil, "pool": evil, "usage": 0.5, "used": 1, "capacity": 2}]);
    moment["sources"][0] = json!({"name": evil, "url": evil, "role": evil, "engine": evil, "state": evil, "unknown": evil, "message": evil});
    moment["requests"] = json!([{"timestamp": evil, "path": evil, "outcome": evil}]);
    moment["errors"] = json!([{"timestamp": evil, "who": evil, "message": evil}]);
    for (look, size) in [(PLAIN, (200, 60)), (ASCII, (80, 24)), (PLAIN, (20, 5))] {
        let now = Instant::now();
        let buffer = buffer(&model(&moment, now), Mode::default(), look, now, size);
        for cell in buffer.content() {
            let hidden = |c: char| {
                c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            assert!(!cell.symbol().contains(hidden), "{:?}", cell.symbol());
        }
    }
    has(&shown(&moment, PLAIN, (200, 60)), &["\\u{1b}]0;pwned"]);
}

#[test]
fn wide_names_keep_the_columns() {
    let mut roles = vec![role("decode", 0.5), role("decode", 0.5)];
    roles[0]["model"] = json!("通义千问-七十二亿-指令微调-版本");
    roles[1]["model"] = json!("m");
    let moment = moment(&roles);
    let text = shown(&moment, PLAIN, (80, 24));
    let columns: Vec<usize> = text
        .lines()
        .filter(|line| line.starts_with("decode "))
        .map(|line| text::width(line.split('[').next().unwrap()))
        .collect();
    assert_eq!(columns.len(), 2, "{text}");
    assert_eq!(columns[0], columns[1], "{text}");
    assert!(text.lines().all(|line| text::width(line) <= 80), "{text}");
    // In ASCII nothing else is written.
    let text = shown(&moment, ASCII, (80, 24));
    assert!(text.is_ascii(), "{text}");
    has(&text, &["decode ????-????-", "[####", "##==..."]);
}

#[test]
fn it_stands_still_and_says_so() {
    let now = Instant::now();
    let model = model(&moment(&[role("decode", 0.5)]), now);
    let mode = Mode {
        paused: Some(Duration::from_secs(12)),
        help: false,
    };
    let text = rows(&buffer(&model, mode, PLAIN, now, (80, 24))).join("\n");
    has(&text, &["PAUSED for 12 s, p goes on", "p go on"]);
    let mode = Mode {
        help: true,
        ..Mode::default()
    };
    let text = rows(&buffer(&model, mode, PLAIN, now, (80, 24))).join("\n");
    has(
        &text,
        &["nothing is known, which is not 0", "q, Esc, Ctrl-C  quit"],
    );
}

/// A page that can be read, of an engine that hangs.
#[test]
fn a_page_that_stands_still_while_requests_run_is_a_warning() {
    let mut moment = moment(&[role("decode", 0.5)]);
    moment["sources"][2]["unchanged_ms"] = json!(40_400);
    moment["sources"][2]["stands_still"] = json!(true);
    let words = "WARNING: decode's page unchanged for 40 s while it has requests: it may hang";
    has(&shown(&moment, PLAIN, (80, 24)), &[words]);
    // An idle one renews its gauges rarely.
    moment["sources"][2]["stands_still"] = json!(false);
    let text = shown(&moment, PLAIN, (80, 24));
    has(&text, &["ok: the fullest is decode", "decode ok       ["]);
}

/// The card of its role says so, too, as on the page, and that of no other.
#[test]
fn the_role_of_a_page_that_stands_still_is_not_ok() {
    let mut moment = moment(&[role("decode", 0.5), role("prefill", 0.2)]);
    moment["sources"][2]["unchanged_ms"] = json!(40_400);
    moment["sources"][2]["stands_still"] = json!(true);
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &[
            "decode  WARNING  [",
            "\n  decode's page unchanged for 40 s while it has requests: it may hang\n",
            "prefill ok       [",
            "  decode  up, UNCHANGED for 40 s  read under 1 s ago",
        ],
    );
    has(
        &shown(&moment, PLAIN, (60, 10)),
        &["decode  WARNING  [", " 50.00% may hang "],
    );
    has(
        &shown(&moment, PLAIN, (30, 5)),
        &["decode 50%, may hang WARNING", "prefill 20% ok"],
    );
    // What is worse stays.
    moment["roles"][0]["usage"] = json!(0.97);
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &["decode  CRITICAL [", "WARNING: decode's page unchanged"],
    );
    // Of several models those that it serves.
    let mut models = [role("decode", 0.5), role("decode", 0.4)];
    models[0]["model"] = json!("a");
    models[1]["model"] = json!("b");
    moment["roles"] = json!(models);
    moment["pools"] = json!([{"role": "decode", "model": "b", "source": "decode", "usage": 0.4}]);
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &["decode a ok       [", "decode b WARNING  ["],
    );
}

#[test]
fn draining_is_said() {
    let mut moment = moment(&[role("decode", 0.5)]);
    moment["kvgauge"]["phase"] = json!("draining");
    has(&shown(&moment, PLAIN, (80, 24)), &["DRAINING"]);
}

/// Pages that are read without a kvgauge.
#[test]
fn without_a_kvgauge_traffic_is_not_known() {
    let mut moment = moment(&[role("decode", 0.5)]);
    for name in ["kvgauge", "traffic"] {
        moment[name] = Value::Null;
    }
    let text = shown(&moment, PLAIN, (80, 24));
    has(
        &text,
        &[
            "kvgauge status",
            "traffic: not known here, as no kvgauge is asked that sees the requests",
        ],
    );
}

fn pool(source: &str, rank: &str, usage: f64) -> Value {
    json!({"role": "decode", "model": null, "source": source, "pool": rank, "usage": usage, "used": 12, "capacity": 34})
}

/// Four ranks of decode, one of them full.
fn hot_rank() -> Value {
    let mut decode = role("decode", 0.48);
    decode["pools"] = json!(4);
    decode["max"] = json!(0.9554);
    let mut moment = moment(&[decode, role("prefill", 0.2)]);
    moment["pools"] = json!([
        pool("decode", "rank 2", 0.9554),
        pool("decode", "rank 0", 0.0),
        pool("decode", "rank 1", 0.0),
        pool("decode", "rank 3", 0.0)
    ]);
    moment["sources"][2]["age_ms"] = json!(2_100);
    moment
}

/// The same, and two of five engines are gone.
fn hot_rank_and_two_gone() -> Value {
    let mut moment = hot_rank();
    for (n, name) in ["decode", "prefill"].into_iter().enumerate() {
        moment["roles"][n]["missing"] = json!({"count": 1, "reason": "unreachable"});
        let name = format!("{name}-2");
        let mut gone = source(&name, Some("decode"));
        gone["state"] = json!("down");
        gone["unknown"] = json!("unreachable");
        gone["age_ms"] = if n == 0 { json!(74_000) } else { Value::Null };
        gone["message"] = json!(format!(
            "{name} refused the connection at 127.0.0.1:30002: check that the server runs, and on that port"
        ));
        moment["sources"].as_array_mut().unwrap().push(gone);
    }
    moment
}

#[test]
fn sources_have_their_age_before_pools_that_say_nothing_have_room() {
    let text = shown(&hot_rank(), PLAIN, (80, 24));
    has(
        &text,
        &[
            "sources  3 of 3 up, oldest read 2 s ago",
            "  decode rank 2 [",
        ],
    );
    for height in [24, 30] {
        let text = shown(&hot_rank_and_two_gone(), PLAIN, (80, height));
        has(
            &text,
            &[
                "sources  3 of 5 up, oldest read 2 s ago  NOT UP: decode-2, prefill-2",
                "  decode-2  DOWN  read 74 s ago  ",
                "  prefill-2 DOWN  never read  ",
            ],
        );
        assert_eq!(text.matches("refused the connection").count(), 2, "{text}");
        assert!(!text.contains("  decode rank 0 ["), "{text}");
    }
    // The hot pool has room before the sources that are well, these before empty pools.
    let text = shown(&hot_rank_and_two_gone(), PLAIN, (80, 30));
    has(
        &text,
        &["  decode rank 2 [", "  router    up    read under 1 s ago"],
    );
    // What to do is said in full as soon as there is room.
    assert_eq!(text.matches("runs, and on that port").count(), 2, "{text}");
}

/// Which pool is hot says little without the others: a window that is higher shows no fewer of them.
#[test]
fn a_hot_pool_is_shown_beside_the_others() {
    let pools = |height| {
        let text = shown(&hot_rank(), PLAIN, (80, height));
        text.matches("  decode rank ").count()
    };
    let mut before = pools(24);
    assert!(before >= 2, "{before}");
    for height in 25..60 {
        let now = pools(height);
        assert!(
            now >= before,
            "{now} in {height} lines, {before} in one less"
        );
        before = now;
    }
    assert_eq!(before, 4);
}

/// Where many are gone the roles keep their room.
#[test]
fn many_sources_that_are_gone_leave_room_for_the_roles() {
    let mut moment = hot_rank_and_two_gone();
    let gone = moment["sources"][4].clone();
    moment["sources"] = json!(vec![gone; 30]);
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &[
            "   5 min ago ",
            "TTFT     p50 80 ms",
            "sources  0 of 30 up  NOT UP: prefill-2, ",
            "  prefill-2 DOWN  never read  refused the connection",
        ],
    );
}

/// Ages go on while nothing is heard.
#[test]
fn ages_of_sources_grow_while_nothing_is_heard() {
    let now = Instant::now();
    let model = model(&hot_rank(), now);
    let text = screen(&model, PLAIN, now + Duration::from_secs(10), (80, 24));
    has(&text, &["NOTHING HEARD", "3 of 3 up, oldest read 12 s ago"]);
    // And nothing is said of now.
    assert!(!text.contains("CRITICAL"), "{text}");
    let text = screen(&model, PLAIN, now + Duration::from_secs(10), (60, 8));
    assert!(!text.contains("CRITICAL"), "{text}");
}

/// Whatever else is wrong, and however little room there is, it is said that a part is unknown.
#[test]
fn no_size_hides_that_a_part_is_unknown_or_a_pool_full() {
    let moment = hot_rank_and_two_gone();
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &[
            "CRITICAL: decode known in part: 48.00%, its hottest pool 95.54% (from 95.00%)",
            "WARNING: prefill known in part: 20.00%",
            "decode  WARNING  [",
        ],
    );
    for width in [44, 51, 60, 79, 80, 100, 120, 200] {
        for height in [7, 8, 9, 10, 12, 15, 24, 30, 60] {
            let text = shown(&moment, ASCII, (width, height));
            let headline = text.lines().nth(1).unwrap();
            let both = headline.contains("CRITICAL: decode")
                && headline.contains("in part")
                && headline.contains("95.54%");
            assert!(both, "{width}x{height}\n{text}");
            has(&text, &["sources  3 of 5 up"]);
            assert!(text.is_ascii(), "{text}");
            assert!(
                text.lines()
                    .all(|line| text::width(line) <= usize::from(width))
            );
        }
    }
}

/// What there is no room for is counted.
#[test]
fn a_headline_that_is_too_long_says_how_much_is_left_out() {
    let mut roles: Vec<Value> = (0..8).map(|_| role("decode", 0.97)).collect();
    for (n, role) in roles.iter_mut().enumerate() {
        role["model"] = json!(format!("model-{n}"));
    }
    let moment = moment(&roles);
    let lines = |size| {
        let text = shown(&moment, PLAIN, size);
        text.lines().skip(1).take(3).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        lines((80, 9)).lines().next().unwrap(),
        "CRITICAL: decode model-0 97.00%   CRITICAL: decode model-1 97.00%   and 6 more"
    );
    let all = lines((80, 24));
    assert_eq!(all.matches("CRITICAL: decode model-").count(), 6, "{all}");
    assert!(all.ends_with("   and 2 more"), "{all}");
}

/// With a line each, a role's line is the only one that can say that its pool is full.
#[test]
fn a_role_in_one_line_says_what_is_gravest() {
    let mut roles: Vec<Value> = (0..16).map(|_| role("decode", 0.1)).collect();
    for (n, role) in roles.iter_mut().enumerate() {
        role["model"] = json!(format!("model-{n}"));
    }
    roles[9]["pools"] = json!(4);
    roles[9]["max"] = json!(0.96);
    roles[11]["missing"] = json!({"count": 1, "reason": "stale"});
    let moment = moment(&roles);
    let text = shown(&moment, PLAIN, (80, 24));
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    has(
        line("decode model-9 "),
        &["CRITICAL [", " 10.00% hottest 96.00% running 3"],
    );
    has(
        line("decode model-11 "),
        &["WARNING  [", " 10.00% in part running 3"],
    );
    // It comes first where there is no room for all, and in a tiny window.
    let text = shown(&moment, PLAIN, (60, 10));
    has(&text, &["none worse than ok"]);
    let first = text.lines().find(|line| line.starts_with("decode "));
    assert!(first.unwrap().starts_with("decode model-9 "), "{text}");
}

#[test]
fn a_tiny_window_says_the_graver_level_and_how_many_there_are() {
    let text = shown(&hot_rank(), PLAIN, (30, 5));
    has(&text, &["decode hottest 96% CRITICAL\nprefill 20% ok"]);
    let text = shown(&hot_rank_and_two_gone(), PLAIN, (43, 5));
    has(
        &text,
        &[
            "decode 48%, in part, hottest 96% CRITICAL",
            "prefill 20%, in part WARNING",
        ],
    );
    let text = shown(&hot_rank(), PLAIN, (20, 3));
    has(&text, &["decode CRITICAL\nprefill 20% ok"]);
    let text = shown(&hot_rank(), PLAIN, (20, 2));
    has(&text, &["decode CRITICAL\ntoo small: 1 more"]);
}

/// A router that is gone is in no role.
#[test]
fn all_is_ok_but_for_a_source_of_no_role() {
    let mut moment = moment(&[role("decode", 0.5)]);
    moment["sources"][0]["state"] = json!("down");
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &["ok: the fullest is decode at 50.00%   1 source is not up"],
    );
}

/// Names that begin alike are told apart by what follows.
#[test]
fn long_names_are_told_apart() {
    let model = |n| format!("meta-llama/Llama-3.3-70B-Instruct-FP8-dynamic-{n}");
    let mut roles = vec![role("decode", 0.97), role("decode", 0.96)];
    for (n, role) in roles.iter_mut().enumerate() {
        role["model"] = json!(model(n));
    }
    let mut moment = moment(&roles);
    let name = |n| format!("decode-worker-in-the-cluster-{n}.example.com:30000");
    moment["sources"] = (0..3).map(|n| source(&name(n), Some("decode"))).collect();
    let text = shown(&moment, PLAIN, (80, 24));
    has(
        &text,
        &[
            "CRITICAL: decode meta-…FP8-dynamic-0 97.00%",
            "decode meta-…FP8-dynamic-0 CRITICAL",
            "decode meta-…FP8-dynamic-1 CRITICAL",
            "  decode-work…0.example.c… up ",
            "  decode-work…2.example.c… up ",
        ],
    );
    has(
        &shown(&moment, ASCII, (30, 5)),
        &["-0 97% CRITICAL", "-1 96% CRITICAL"],
    );
}

/// Who waits is not pushed out by the name of a pool.
#[test]
fn two_lines_of_a_role_keep_those_that_wait() {
    let mut decode = role("decode", 0.48);
    decode["pools"] = json!(8);
    decode["max"] = json!(0.97);
    let mut roles = vec![decode];
    roles.extend((1..8).map(|n| role(&format!("role-{n}"), 0.1)));
    let mut moment = moment(&roles);
    moment["pools"] = json!([pool("decode", "dp_rank=0,tp_rank=0", 0.97)]);
    has(
        &shown(&moment, PLAIN, (80, 24)),
        &["hottest 97.00% CRITICAL  running 3  queued 0  transfer 1"],
    );
}

/// Pages that are read from here were read just now; of those that were not nothing is claimed.
#[test]
fn pages_read_from_here_have_an_age() {
    let now = Instant::now();
    let mut model = Model::new("a".to_owned(), LIMITS);
    let says = |state: &str| SourceSays {
        name: state.to_owned(),
        state: state.to_owned(),
        ..SourceSays::default()
    };
    let said = Said {
        sources: vec![says("up"), says("down")],
        ..Said::default()
    };
    model.take(Heard::Moment(Box::new(Moment::of(said))), now);
    let text = screen(&model, PLAIN, now, (80, 24));
    has(
        &text,
        &[
            "sources  1 of 2 up, read under 1 s ago",
            "NOT UP: down",
            "  down DOWN  not read since the start",
        ],
    );
    assert!(!text.contains("never"), "{text}");
    // What was seen is remembered.
    let said = Said {
        sources: vec![SourceSays {
            state: "down".to_owned(),
            ..says("up")
        }],
        ..Said::default()
    };
    let now = now + Duration::from_secs(7);
    model.take(Heard::Moment(Box::new(Moment::of(said))), now);
    let text = screen(&model, PLAIN, now, (80, 24));
    has(&text, &["  up DOWN  read 7 s ago"]);
}

/// At 80 columns all but the path; at 44 the KV usage. What one request lacks moves nothing.
#[test]
fn requests_are_a_table_that_begins_with_the_kv_usage() {
    let mut moment = moment(&[role("decode", 0.5)]);
    let request = |stream: bool, outcome: &str, input: u64| {
        json!({
            "timestamp": "2026-11-30T23:59:01.5Z", "path": "/v1/completions", "status": 200, "stream": stream,
            "outcome": outcome, "ttft_ms": 256.0, "duration_ms": 16_000.0, "input_tokens": input,
            "output_tokens": 785, "kv_start_usage": 0.47, "kv_end_usage": 1.0,
        })
    };
    moment["requests"] = json!([
        request(true, "complete", 9_414),
        request(false, "upstream_closed_early", 1_000_000),
        {"timestamp": "2026-11-30T23:59:01.5Z"},
    ]);
    let text = shown(&moment, PLAIN, (80, 40));
    has(
        &text,
        &[
            "last requests            KV start to end       TTFT    took      in     out\n",
            "  23:59:01  200 complete  47.00% to 100.00%  256 ms    16 s   9,414     785",
            "  23:59:01  200 upstrea…  47.00% to 100.00%       -    16 s   1.00M     785",
            "  23:59:01 none unknown  unknown to unknown unknown unknown unknown unknown",
        ],
    );
    has(&shown(&moment, PLAIN, (100, 40)), &["785  /v1/completions"]);
    has(
        &shown(&moment, PLAIN, (46, 40)),
        &["complete  47.00% to 100.00%"],
    );
}

/// No sentence of it is cut, and the keys are always there.
#[test]
fn the_help_is_whole() {
    let now = Instant::now();
    let model = model(&moment(&[role("decode", 0.5)]), now);
    let mode = Mode {
        help: true,
        ..Mode::default()
    };
    for look in [PLAIN, ASCII] {
        for (width, height) in [(44, 40), (50, 40), (60, 30), (80, 24), (120, 24)] {
            let rows = rows(&buffer(&model, mode, look, now, (width, height)));
            let text = rows.join("\n");
            assert!(!text.contains(['…', '~']), "{width}\n{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            has(
                &words.join(" "),
                &["which is not 0; the reason is beside it", "quit", "back"],
            );
        }
    }
    let low = rows(&buffer(&model, mode, PLAIN, now, (80, 8))).join("\n");
    has(&low, &["q, Esc, Ctrl-C  quit"]);
}

/// Of what was heard before nothing is said as if it were so now.
#[test]
fn nothing_old_is_said_of_now() {
    let start = Instant::now();
    let mut moment = moment(&[role("decode", 0.99)]);
    moment["kvgauge"]["phase"] = json!("draining");
    moment["pools"] = json!([pool("decode", "rank 1", 0.99)]);
    let mut model = model(&moment, start);
    has(
        &screen(&model, PLAIN, start, (80, 40)),
        &["  DRAINING, up 20 min"],
    );
    let message = "kvgauge has closed the connection".to_owned();
    let again = Duration::from_secs(1);
    // Without a word of its end, and with.
    let later = start + Duration::from_secs(7);
    let silent = screen(&model, PLAIN, later, (80, 40));
    model.take(Heard::Lost { message, again }, start);
    for text in [silent, screen(&model, PLAIN, start, (80, 40))] {
        has(
            &text,
            &[
                "  was DRAINING ",
                "sources OLD  3 of 3 up",
                "traffic OLD  3.2 requests/s",
                "pools OLD  ",
                "decode OLD ",
            ],
        );
        assert!(!text.contains("up 20 min"), "{text}");
    }
    let colours = buffer(&model, Mode::default(), COLOUR, start, (80, 40));
    let green = |cell: &ratatui::buffer::Cell| cell.fg == ratatui::style::Color::Green;
    let rows = rows(&colours);
    assert!(!colours.content().iter().any(green), "{rows:?}");
}

/// Those that kvgauge leaves out, and those that are too many here: the gravest are shown.
#[test]
fn roles_that_are_left_out_are_counted() {
    let mut few = moment(&[role("decode", 0.5), role("prefill", 0.2)]);
    few["roles_left_out"] = json!(1_200);
    has(
        &shown(&few, PLAIN, (80, 24)),
        &["\n1,200 more roles: kvgauge status, /kv\n"],
    );
    has(
        &shown(&few, PLAIN, (80, 8)),
        &["1,200 more roles are not in it"],
    );
    has(&shown(&few, PLAIN, (30, 5)), &["1200 more"]);
    let mut many: Vec<Value> = (0..400).map(|n| role(&format!("model-{n}"), 0.5)).collect();
    many[399] = role("model-399", 0.97);
    let text = shown(&moment(&many), PLAIN, (80, 24));
    has(
        &text,
        &[
            "CRITICAL: model-399 97.00%",
            "model-399 CRITICAL ",
            "more, none worse than ok; 144 more roles: kvgauge status, /kv",
        ],
    );
}

/// The number of the worst is there in each window, however long the names are.
#[test]
fn a_long_name_does_not_hide_the_number() {
    for (n, size) in [(1, (44, 7)), (1, (44, 12)), (20, (44, 7)), (20, (60, 12))] {
        let roles: Vec<Value> = (0..n)
            .map(|n| {
                let mut role = role(&format!("{}-{n}", "a-very-long-name".repeat(4)), 0.41);
                role["pools"] = json!(4);
                role["max"] = json!(0.9876);
                role["missing"] = json!({"count": 1, "reason": "stale"});
                role
            })
            .collect();
        let text = shown(&moment(&roles), PLAIN, size);
        let line = text.lines().find(|line| line.starts_with("CRITICAL: "));
        assert!(line.is_some_and(|line| line.contains("98.76%")), "{text}");
        if n > 1 {
            has(&text, &["more"]);
        }
    }
}
