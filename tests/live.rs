//! `/kv/stream` and `/kv/history`: what an operator's page and terminal are fed with.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::client::post;
use support::page::Behaviour;
use support::schema::Schema;
use support::wait::PATIENCE;
use support::{
    Client, End, Head, Kvgauge, Next, Page, Response, Setup, Upstream, eventually, fetch, get,
};

/// One who listens to the stream.
struct Listener {
    client: Client,
    head: Head,
    text: String,
}

/// An event as it came.
struct Event {
    fields: Vec<(String, String)>,
}

impl Event {
    fn field(&self, name: &str) -> &str {
        let mut named = self.fields.iter().filter(|(of, _)| of == name);
        let (_, value) = named.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(named.next().is_none(), "{name} stands twice");
        value
    }

    /// Its data, which fit the schema.
    fn moment(&self) -> Value {
        assert_eq!(self.field("event"), "moment");
        let moment: Value = serde_json::from_str(self.field("data")).unwrap();
        let faults = Schema::named("live").faults("/$defs/moment", &moment);
        assert!(
            faults.is_empty(),
            "against the schema: {faults:?}\n{moment:#}"
        );
        moment
    }
}

impl Listener {
    fn to(kvgauge: &Kvgauge) -> Listener {
        Listener::of(Client::connect(kvgauge.admin), "")
    }

    fn of(mut client: Client, fields: &str) -> Listener {
        client.send(format!(
            "GET /kv/stream HTTP/1.1\r\nHost: k\r\n{fields}\r\n"
        ));
        let head = client.head();
        assert_eq!(head.status(), 200, "{}", head.text());
        Listener {
            client,
            head,
            text: String::new(),
        }
    }

    /// The next event; `None` where the stream ends in order.
    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let fields = event.lines().map(|line| {
                    let (name, value) = line.split_once(": ").unwrap();
                    (name.to_owned(), value.to_owned())
                });
                let fields = fields.collect();
                self.text = rest.to_owned();
                return Some(Event { fields });
            }
            let chunk = self.client.chunk()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    fn moment(&mut self) -> Value {
        self.next().unwrap_or_else(|| panic!("it ended")).moment()
    }

    /// The first moment that is so; each second brings one.
    fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let moment = self.moment();
            if is(&moment) {
                return moment;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {moment:#}");
        }
    }
}

/// `/kv/history`, which fits the schema.
fn history(kvgauge: &Kvgauge) -> Value {
    let history = get(kvgauge.admin, "/kv/history");
    assert_eq!(history.status(), 200);
    let history = history.json();
    let faults = Schema::named("live").faults("/$defs/history", &history);
    assert!(faults.is_empty(), "against the schema: {faults:?}");
    // Every column is as long as the times are.
    let steps = history["times"].as_array().unwrap().len();
    let mut columns: Vec<&Value> = history["traffic"].as_object().unwrap().values().collect();
    for role in history["roles"].as_array().unwrap() {
        columns.extend(role["queues"].as_object().unwrap().values());
        columns.extend(role.as_object().unwrap().values().filter(|v| v.is_array()));
    }
    for column in columns {
        assert_eq!(column.as_array().unwrap().len(), steps);
    }
    history
}

fn times(history: &Value) -> Vec<u64> {
    let times = history["times"].as_array().unwrap().iter();
    times.map(|time| time.as_u64().unwrap()).collect()
}

fn numbers(column: &Value) -> Vec<Option<f64>> {
    column
        .as_array()
        .unwrap()
        .iter()
        .map(Value::as_f64)
        .collect()
}

fn with(decode: &Page) -> (Kvgauge, Upstream) {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", decode)
        .start();
    (kvgauge, upstream)
}

fn hot() -> Page {
    Page::real("sglang-0.5.23-decode-tp4-hot")
}

#[test]
fn a_moment_comes_at_once_and_then_each_second() {
    let page = hot();
    let (kvgauge, upstream) = with(&page);
    kvgauge.until_up("decode");
    let start = Instant::now();
    // A client that takes gzip gets events as they are: packing would hold them back.
    let client = Client::connect(kvgauge.admin);
    let mut listener = Listener::of(client, "Accept-Encoding: gzip\r\n");
    let head = &listener.head;
    assert_eq!(
        head.get("content-type").as_deref(),
        Some("text/event-stream")
    );
    assert_eq!(head.get("cache-control").as_deref(), Some("no-store"));
    assert_eq!(head.get("content-encoding"), None);
    let first = listener.moment();
    assert!(start.elapsed() < Duration::from_millis(900), "at once");
    assert_eq!(first["kvgauge"]["phase"], "serving");
    let url = format!("http://{}", upstream.address());
    assert_eq!(first["kvgauge"]["upstream"], url);
    assert_eq!(
        (&first["warn"], &first["crit"]),
        (&json!(0.85), &json!(0.95))
    );
    assert_eq!(first["headline"], "decode");
    // The role is that of /kv.
    let mut role = first["roles"][0].clone();
    let mut of_kv = get(kvgauge.admin, "/kv").json()["roles"][0].take();
    for role in [&mut role, &mut of_kv] {
        assert!(role["age_ms"].take().is_u64());
    }
    assert_eq!(role, of_kv);
    let pool = &first["pools"][0];
    assert_eq!(pool["source"], "decode");
    assert_eq!(pool["usage"], role["usage"]);
    assert_eq!(pool["pool"], Value::Null, "it is the only one");
    assert_eq!(
        (&first["roles_left_out"], &first["pools_left_out"]),
        (&json!(0), &json!(0))
    );
    let source = &first["sources"][0];
    assert_eq!(
        (&source["state"], &source["message"]),
        (&json!("up"), &Value::Null)
    );
    assert_eq!(first["errors"], json!([]));
    assert_eq!(first["requests"], json!([]));
    // Nothing ended, so nothing is known of how long it took.
    assert_eq!(first["traffic"]["ttft_ms"]["p50"], Value::Null);

    let first_id: u64 = {
        let next = listener.next().unwrap();
        next.moment();
        next.field("id").parse().unwrap()
    };
    for n in 1..3 {
        let id: u64 = listener.next().unwrap().field("id").parse().unwrap();
        assert!(
            (n..=n + 1).contains(&(id - first_id)),
            "{n}: {id} {first_id}"
        );
    }
    let taken = start.elapsed();
    assert!(taken >= Duration::from_millis(2_900), "{taken:?}");
}

#[test]
fn a_source_that_dies_is_unknown_and_a_gap_in_the_history() {
    let page = hot();
    let (kvgauge, _upstream) = with(&page);
    kvgauge.until_up("decode");
    let mut listener = Listener::to(&kvgauge);
    listener.until("known", |moment| moment["roles"][0]["usage"].is_number());
    let last_of = |name: &str| {
        numbers(&history(&kvgauge)["roles"][0][name])
            .last()
            .copied()
    };
    eventually("a step with a usage", || last_of("usage").flatten());

    page.set(Behaviour::Refuse);
    let moment = listener.until("unknown", |moment| moment["roles"][0]["usage"].is_null());
    assert_eq!(moment["roles"][0]["unknown"], "unreachable");
    assert_eq!(moment["pools"], json!([]));
    let moment = listener.until("the error", |moment| moment["errors"] != json!([]));
    let said = format!(
        "decode refused the connection at {}: check that the server runs, and on that port",
        page.address()
    );
    assert_eq!(moment["sources"][0]["state"], "down");
    assert_eq!(moment["sources"][0]["message"], said);
    assert_eq!(moment["errors"].as_array().unwrap().len(), 1, "{moment:#}");
    assert_eq!(moment["errors"][0]["who"], "decode");
    assert_eq!(moment["errors"][0]["message"], said);
    eventually("a step without one", || {
        last_of("usage").filter(Option::is_none)
    });

    page.set(Behaviour::Text(support::data::page(
        "sglang-0.5.23-decode-tp4-busy",
    )));
    listener.until("known again", |moment| {
        moment["roles"][0]["usage"].is_number()
    });
    eventually("a step with one again", || last_of("usage").flatten());
    // Whoever comes now sees the past: known, a gap with its reason, known.
    let history = history(&kvgauge);
    let usage = numbers(&history["roles"][0]["usage"]);
    let reasons = history["roles"][0]["unknown"].as_array().unwrap();
    let first = usage.iter().position(Option::is_some).unwrap();
    let gap = first + usage[first..].iter().position(Option::is_none).unwrap();
    let again = gap + usage[gap..].iter().position(Option::is_some).unwrap();
    assert!((usage[first].unwrap() - 0.93).abs() < 0.01, "{usage:?}");
    assert!(usage[again].unwrap() < 0.01, "{usage:?}");
    for (usage, reason) in usage.iter().zip(reasons) {
        assert_eq!(usage.is_none(), reason.is_string(), "{history:#}");
    }
    assert_eq!(reasons[gap], "unreachable");
    let marks = eventually("both marks", || {
        let marks = crate::history(&kvgauge)["marks"].take();
        (marks.as_array().unwrap().len() == 2).then_some(marks)
    });
    let down = format!("decode: refused the connection at {}", page.address());
    assert_eq!(marks[0]["text"], down);
    assert_eq!(marks[1]["text"], "decode: is read again");
    let times = times(&history);
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] == 2),
        "{times:?}"
    );
    let at = marks[0]["time"].as_u64().unwrap();
    assert!((times[0]..=times[0] + 60).contains(&at), "{at} {times:?}");
}

/// What was not seen is not made up: neither drawn through nor moved together.
#[test]
fn a_time_in_which_it_was_suspended_is_a_gap() {
    let page = hot();
    let (kvgauge, _upstream) = with(&page);
    kvgauge.until_up("decode");
    let last = || {
        numbers(&history(&kvgauge)["roles"][0]["usage"])
            .last()
            .copied()
    };
    eventually("a step with a usage", || last().flatten());
    let before = times(&history(&kvgauge)).len();
    kvgauge.signal(rustix::process::Signal::STOP);
    support::pause(Duration::from_secs(7));
    kvgauge.signal(rustix::process::Signal::CONT);
    let history = eventually("steps behind the gap", || {
        let history = history(&kvgauge);
        let last = numbers(&history["roles"][0]["usage"]).last().copied();
        (times(&history).len() > before + 2 && last.flatten().is_some()).then_some(history)
    });
    let role = &history["roles"][0];
    let reasons = role["unknown"].as_array().unwrap();
    let gap = reasons
        .iter()
        .filter(|reason| **reason == "stalled")
        .count();
    assert!((2..=4).contains(&gap), "{role:#}");
    let times = times(&history);
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] == 2),
        "{times:?}"
    );
}

/// A stream of two pieces and a usage.
fn streaming() -> Upstream {
    Upstream::new(|connection| {
        let request = connection.request()?;
        if request.head.target() == "/v1/models" {
            connection.send("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(Next::Again);
        }
        connection.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        for piece in [
            r#"{"model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"model":"m","choices":[{"index":0,"delta":{"content":"b"}}]}"#,
            r#"{"model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#,
            "[DONE]",
        ] {
            connection.chunk(format!("data: {piece}\n\n"))?;
        }
        connection.send("0\r\n\r\n")?;
        Ok(Next::Again)
    })
}

fn ask(kvgauge: &Kvgauge) -> Response {
    let body = r#"{"model":"m","stream":true}"#;
    fetch(
        kvgauge.listen,
        post("/v1/chat/completions?secret=1", "", body),
    )
}

#[test]
fn traffic_and_the_last_requests_are_shown_with_how_full_it_was() {
    let upstream = streaming();
    let page = hot();
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &page)
        .start();
    kvgauge.until_up("decode");
    // The first step: what is counted from here on is in the window.
    eventually("a step", || {
        (!times(&history(&kvgauge)).is_empty()).then_some(())
    });
    for _ in 0..3 {
        assert_eq!(ask(&kvgauge).status(), 200);
    }
    for _ in 0..2 {
        assert_eq!(get(kvgauge.listen, "/v1/models").status(), 500);
    }
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.until("all five", |moment| {
        moment["requests"].as_array().unwrap().len() == 5
    });
    let request = &moment["requests"][4];
    let line = kvgauge.line_of(request["id"].as_str().unwrap());
    assert_eq!(request["path"], "/v1/chat/completions");
    assert_eq!(request["method"], "POST");
    assert_eq!(request["status"], 200);
    assert_eq!(request["outcome"], "complete");
    assert_eq!(request["model"], "m");
    assert_eq!(request["stream"], true);
    assert_eq!(request["id"], line["request.id"]);
    assert_eq!(request["timestamp"], line["timestamp"]);
    assert_eq!(request["ttft_ms"], line["ttft_ms"]);
    assert_eq!(
        (&request["input_tokens"], &request["output_tokens"]),
        (&json!(7), &json!(2))
    );
    for end in ["kv_start_usage", "kv_end_usage"] {
        assert_eq!(request[end], 0.9305, "{end}");
    }
    assert_eq!(moment["requests"][0]["path"], "/v1/models", "newest first");
    assert!(!moment.to_string().contains("secret"));
    // Equal errors stand once.
    let errors = moment["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["who"], "GET /v1/models");
    assert_eq!(errors[0]["message"], "the router's answer, status 500");
    assert_eq!(errors[0]["count"], 2);
    assert_eq!(errors[0]["timestamp"], moment["requests"][0]["timestamp"]);

    let moment = listener.until("rates", |moment| {
        moment["traffic"]["requests_per_s"].is_number()
    });
    let traffic = &moment["traffic"];
    assert_eq!(traffic["in_flight"], 0);
    let rate = |name: &str| traffic[name].as_f64().unwrap();
    let ratio = |a: &str, b: &str| rate(a) / rate(b);
    assert!(
        (ratio("requests_per_s", "failed_per_s") - 2.5).abs() < 1e-9,
        "{traffic:#}"
    );
    assert!((ratio("input_tokens_per_s", "output_tokens_per_s") - 3.5).abs() < 1e-9);
    for what in ["ttft_ms", "duration_ms"] {
        for quantile in ["p50", "p90", "p99"] {
            let ms = traffic[what][quantile].as_f64().unwrap();
            assert!(ms > 0.0 && ms < 10_000.0, "{what} {quantile}: {ms}");
        }
    }
    let rates = |name: &str| numbers(&history(&kvgauge)["traffic"][name]);
    eventually("a step of it", || {
        rates("requests_per_s").last().copied().flatten()
    });
    let first = rates("requests_per_s")[0];
    assert_eq!(first, None, "one look gives no rate");
    eventually("its times", || {
        rates("ttft_p50_ms").last().copied().flatten()
    });
}

/// What keeps the list bounded: the newest fifty.
#[test]
fn of_many_requests_the_last_fifty_are_shown() {
    let page = hot();
    let (kvgauge, _upstream) = with(&page);
    let mut client = Client::connect(kvgauge.listen);
    for n in 0..120 {
        client.send(format!("GET /{n} HTTP/1.1\r\nHost: k\r\n\r\n"));
        assert_eq!(client.response("GET").status(), 200);
    }
    kvgauge.line(120);
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.until("the last", |moment| moment["requests"][0]["path"] == "/119");
    let requests = moment["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 50);
    assert_eq!(requests[49]["path"], "/70");
}

/// However many good ones come behind it, and however long ago it was.
#[test]
fn what_went_wrong_stays_when_many_requests_have_pushed_it_out_of_the_last() {
    let page = hot();
    let upstream = Upstream::new(|connection| {
        let request = connection.request()?;
        let bad = request.head.target().starts_with("/bad");
        let status = if bad { "503 No" } else { "200 OK" };
        connection.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))?;
        Ok(Next::Again)
    });
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &page)
        .start();
    let mut client = Client::connect(kvgauge.listen);
    let mut ask = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: k\r\n\r\n"));
        client.response("GET").status()
    };
    for n in 0..30 {
        assert_eq!(ask("/bad"), 503);
        assert_eq!(ask(&format!("/bad/{n}")), 503);
    }
    for _ in 0..120 {
        assert_eq!(ask("/good"), 200);
    }
    kvgauge.line(180);
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.until("the good ones", |moment| {
        let requests = moment["requests"].as_array().unwrap();
        requests.len() == 50 && requests.iter().all(|request| request["path"] == "/good")
    });
    let errors = moment["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 20, "{errors:?}");
    // The kinds that were seen last, and how often.
    assert_eq!(errors[0]["who"], "GET /bad/29");
    let often = errors.iter().find(|error| error["who"] == "GET /bad");
    let often = often.unwrap();
    assert_eq!(often["count"], 30);
    assert_eq!(often["message"], "the router's answer, status 503");
    assert_eq!(errors[19]["who"], "GET /bad/11");
}

#[test]
fn the_fullest_pools_come_first_and_are_told_apart() {
    let page = Page::real("sglang-0.5.23-unified-dp2-tp1-busy");
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .source("engine", "", &page)
        .start();
    kvgauge.until_up("engine");
    let moment = Listener::to(&kvgauge).moment();
    let pools = moment["pools"].as_array().unwrap();
    let said: Vec<(&Value, f64)> = pools
        .iter()
        .map(|pool| (&pool["pool"], pool["usage"].as_f64().unwrap()))
        .collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].1 > said[1].1, "{said:?}");
    let mut labels = [said[0].0.clone(), said[1].0.clone()];
    labels.sort_by_key(Value::to_string);
    assert_eq!(labels, [json!("rank 0"), json!("rank 1")]);

    // The history keeps which one it was.
    eventually("a step that names it", || {
        let history = history(&kvgauge);
        let last = history["roles"][0]["fullest"].as_array()?.last()?.clone();
        (last == *said[0].0).then_some(())
    });

    // Of very many, the fullest sixty-four.
    let line = |n: usize| {
        let usage = f64::from(u32::try_from(n).unwrap()) / 1000.0;
        format!("vllm:kv_cache_usage_perc{{engine=\"{n}\",model_name=\"m\"}} {usage}\n")
    };
    page.set(Behaviour::Text((0..100).map(line).collect()));
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.until("all", |moment| moment["pools_left_out"] == 36);
    assert_eq!(moment["pools"].as_array().unwrap().len(), 64);
    assert_eq!(moment["pools"][0]["pool"], "rank 99");
    assert_eq!(moment["pools"][63]["pool"], "rank 36");
}

/// A page may name as many models as it has pools; an event stays one that can be taken each second.
#[test]
fn of_very_many_models_those_that_matter_are_shown() {
    let line = |n: usize| {
        let usage = match n {
            7 => "NaN".to_owned(),
            n => format!("{}", f64::from(u32::try_from(n).unwrap()) / 2000.0),
        };
        format!("vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m{n:04}\"}} {usage}\n")
    };
    let page = Page::text((0..1_000).map(line).collect::<String>());
    let (kvgauge, _upstream) = with(&page);
    kvgauge.until_up("decode");
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.until("all", |moment| moment["roles_left_out"] == 936);
    let roles = moment["roles"].as_array().unwrap();
    let models: Vec<&str> = roles.iter().map(|r| r["model"].as_str().unwrap()).collect();
    // The one that is unknown, and the fullest, in the order of /kv.
    assert_eq!(models.len(), 64);
    assert_eq!(
        (models[0], models[1], models[63]),
        ("m0007", "m0937", "m0999")
    );
    assert!(models.is_sorted());
    let all = get(kvgauge.admin, "/kv").json();
    assert_eq!(
        all["roles"].as_array().unwrap().len(),
        1_000,
        "/kv is whole"
    );
    assert!(
        moment.to_string().len() < 128 * 1024,
        "{}",
        moment.to_string().len()
    );
}

/// Whatever a page calls its models, an event and the history are as short as others, and go together.
#[test]
fn names_of_a_hostile_page_are_cut_alike_everywhere() {
    let model = |n: usize| format!("{n:04}{}{n:04}", "<\u{202e}é>".repeat(1_000));
    let line = |n: usize| {
        let usage = f64::from(u32::try_from(n).unwrap()) / 2000.0;
        let labels = |rank| format!("engine=\"{rank}\",model_name=\"{}\"", model(n));
        format!(
            "vllm:kv_cache_usage_perc{{{}}} {usage}\nvllm:kv_cache_usage_perc{{{}}} 0\n",
            labels("0"),
            labels("1"),
        )
    };
    let page = Page::text((0..200).map(line).collect::<String>());
    let (kvgauge, _upstream) = with(&page);
    kvgauge.until_up("decode");
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.until("all", |moment| moment["roles_left_out"] == 136);
    let size = moment.to_string().len();
    assert!(size < 256 * 1024, "{size}");
    let texts = |of: &Value, name: &str| -> Vec<String> {
        let of = of.as_array().unwrap().iter();
        of.filter_map(|one| Some(one[name].as_str()?.to_owned()))
            .collect()
    };
    let models = texts(&moment["roles"], "model");
    assert_eq!(models.len(), 64);
    assert!(models.iter().all(|model| model.chars().count() == 200));
    let told_apart: std::collections::BTreeSet<&String> = models.iter().collect();
    assert_eq!(told_apart.len(), 64);
    for pool in texts(&moment["pools"], "model") {
        assert!(models.contains(&pool), "{pool}");
    }
    for pool in texts(&moment["pools"], "pool") {
        assert!(pool.chars().count() <= 200, "{pool}");
    }
    // The page and the terminal look for a role's past by its model.
    eventually("a past of those models", || {
        let history = history(&kvgauge);
        let past = texts(&history["roles"], "model");
        let alike = past.iter().all(|model| model.chars().count() == 200);
        (!past.is_empty() && alike).then_some(())
    });
    // What is whole stays so.
    let all = get(kvgauge.admin, "/kv").json();
    assert_eq!(all["roles"][0]["model"], model(0));
}

#[test]
fn both_ask_for_the_token_and_take_get_and_head_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret").unwrap();
    let settings = format!("admin.bearer_file = \"{}\"\n", file.display());
    let kvgauge = Setup::new(Upstream::ok().address())
        .settings(&settings)
        .start();
    for path in ["/kv/stream", "/kv/history"] {
        assert_eq!(get(kvgauge.admin, path).status(), 401, "{path}");
    }
    let token = "Authorization: Bearer s3cret\r\n";
    let request = |method: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: k\r\n{token}\r\n");
        fetch(kvgauge.admin, head)
    };
    for (path, kind) in [
        ("/kv/stream", "text/event-stream"),
        ("/kv/history", "application/json"),
    ] {
        let head = request("HEAD", path);
        assert_eq!(head.status(), 200, "{path}");
        assert_eq!(head.head.get("content-type").as_deref(), Some(kind));
        assert!(head.body.is_empty());
        assert_eq!(request("POST", path).status(), 405, "{path}");
    }
    let mut listener = Listener::of(Client::connect(kvgauge.admin), token);
    listener.moment();
}

#[test]
fn the_thirty_third_stream_is_refused_until_another_ends() {
    let page = hot();
    let (kvgauge, _upstream) = with(&page);
    let mut listeners: Vec<Listener> = (0..32).map(|_| Listener::to(&kvgauge)).collect();
    let refused = get(kvgauge.admin, "/kv/stream");
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.head.get("retry-after").as_deref(), Some("10"));
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "too_many_streams");
    // Everything else is answered, and all who listen hear the same.
    assert_eq!(get(kvgauge.admin, "/healthz").status(), 200);
    let moments: Vec<Value> = listeners.iter_mut().map(Listener::moment).collect();
    assert_eq!(moments.len(), 32);
    listeners.pop().unwrap().client.close();
    eventually("a place", || {
        let mut client = Client::connect(kvgauge.admin);
        client.send("GET /kv/stream HTTP/1.1\r\nHost: k\r\n\r\n");
        (client.head().status() == 200).then_some(())
    });
}

/// Its place is free again when it is dropped, and nobody else waits for it.
#[test]
fn a_reader_that_takes_nothing_is_dropped_and_others_go_on() {
    // Events of some 100 kB, so that what the kernel takes is full soon.
    let name = "n".repeat(1_000);
    let line = |n: usize| {
        format!("vllm:kv_cache_usage_perc{{engine=\"{n}\",model_name=\"{name}{n}\"}} 0.5\n")
    };
    let page = Page::text((0..64).map(line).collect::<String>());
    let (kvgauge, _upstream) = with(&page);
    kvgauge.until_up("decode");
    let mut stuck = Listener::of(Client::slow(kvgauge.admin), "");
    let mut others: Vec<Listener> = (0..31).map(|_| Listener::to(&kvgauge)).collect();
    assert_eq!(get(kvgauge.admin, "/kv/stream").status(), 503);
    let start = Instant::now();
    let mut last = Instant::now();
    let place = loop {
        for other in &mut others {
            other.moment();
        }
        assert!(last.elapsed() < Duration::from_secs(4), "others wait");
        last = Instant::now();
        let mut client = Client::connect(kvgauge.admin);
        client.send("GET /kv/stream HTTP/1.1\r\nHost: k\r\n\r\n");
        if client.head().status() == 200 {
            break start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(40), "never dropped");
    };
    assert!(place >= Duration::from_secs(9), "{place:?}");
    let (_, end) = stuck.client.rest();
    assert!(matches!(end, End::Reset | End::Cut), "{end:?}");
}

#[test]
fn streams_end_at_once_when_it_leaves() {
    let upstream = Upstream::new(|connection| {
        let _ = connection.request()?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let mut kvgauge = Setup::new(upstream.address())
        .settings("drain.timeout = \"20s\"\n")
        .start();
    // A request that does not end holds the drain up, and no stream does.
    let mut held = Client::connect(kvgauge.listen);
    held.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n");
    upstream.request(1);
    let mut listener = Listener::to(&kvgauge);
    let moment = listener.moment();
    assert_eq!(moment["kvgauge"]["phase"], "serving");
    assert_eq!(moment["traffic"]["in_flight"], 1);
    let start = Instant::now();
    kvgauge.signal(rustix::process::Signal::TERM);
    // The last event says why.
    let last = loop {
        let moment = listener.moment();
        if moment["kvgauge"]["phase"] == "draining" {
            break moment;
        }
    };
    assert!(listener.next().is_none(), "an end in order");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(last["traffic"]["in_flight"], 1);
    // Who comes back can watch the drain; that one ends with the process.
    let mut watching = Listener::to(&kvgauge);
    assert_eq!(watching.moment()["kvgauge"]["phase"], "draining");
    held.reset();
    assert_eq!(kvgauge.exit_code(PATIENCE), 0);
    let (_, end) = watching.client.rest();
    assert!(
        matches!(end, End::Complete | End::Cut | End::Reset),
        "{end:?}"
    );
}

#[test]
fn the_history_is_packed_where_the_client_takes_that() {
    use std::io::Read as _;
    let page = hot();
    let (kvgauge, _upstream) = with(&page);
    let request = "GET /kv/history HTTP/1.1\r\nHost: k\r\nAccept-Encoding: gzip\r\n\r\n";
    let answer = fetch(kvgauge.admin, request);
    assert_eq!(answer.head.get("content-encoding").as_deref(), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..])
        .read_to_string(&mut text)
        .unwrap();
    let history: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(history["step_s"], 2);
}

/// That the schema can refuse.
#[test]
fn the_schema_refuses_what_is_neither() {
    let page = hot();
    let (kvgauge, _upstream) = with(&page);
    kvgauge.until_up("decode");
    get(kvgauge.listen, "/");
    let moment = Listener::to(&kvgauge).until("a request and a pool", |moment| {
        moment["requests"][0].is_object() && moment["pools"][0].is_object()
    });
    let schema = Schema::named("live");
    schema.refuses(
        "",
        &moment,
        &[
            ("/kvgauge/phase", json!("leaving")),
            ("/headline", json!("router")),
            ("/roles/0/usage", json!(1.5)),
            ("/pools/0/pool", json!(1)),
            ("/traffic/ttft_ms", json!(null)),
            ("/traffic/in_flight", json!(0.5)),
            ("/sources/0/state", json!("sideways")),
            ("/requests/0/stream", json!("no")),
            (
                "/errors",
                json!([{"timestamp": "2026-11-30T23:58:00Z", "who": "a", "message": "b"}]),
            ),
            ("/errors", json!(null)),
        ],
    );
    let history = eventually("a step", || {
        let history = history(&kvgauge);
        (history["roles"][0].is_object()).then_some(history)
    });
    schema.refuses(
        "",
        &history,
        &[
            ("/times/0", json!("now")),
            ("/roles/0/usage/0", json!("0.5")),
            ("/roles/0/queues", json!({"other": []})),
            ("/roles/0/unknown/0", json!(0)),
            ("/traffic/requests_per_s", json!(null)),
            ("/marks", json!({})),
        ],
    );
}
