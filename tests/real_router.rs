//! kvgauge between a client and the real `sglang-router`: whatever the router answers, its quirks
//! included, reaches the client as it is, but for the documented fields.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/engines.rs"]
mod engines;
mod support;

use engines::{Engines, MODEL};
use kvgauge::kv::Role;
use std::net::SocketAddr;
use std::time::Duration;
use support::client::post;
use support::router::Router;
use support::tap::Tap;
use support::upstream::STREAM;
use support::{Client, End, Kvgauge, Next, Response, Setup, Upstream, same};

/// kvgauge with a tap on each side.
struct Line {
    front: Tap,
    kvgauge: Kvgauge,
    back: Tap,
}

impl Line {
    fn new(router: SocketAddr, sources: &[(&str, &str, String)]) -> Self {
        let back = Tap::new(router);
        let mut setup = Setup::new(back.address());
        for (name, role, url) in sources {
            setup = setup.source_at(name, role, url);
        }
        let kvgauge = setup.start();
        for (name, ..) in sources {
            kvgauge.until_up(name);
        }
        Self {
            front: Tap::new(kvgauge.listen),
            kvgauge,
            back,
        }
    }

    /// Sends one request and compares what passed on both sides.
    fn call(&self, id: &str, request: &str) -> Response {
        let method = request.split(' ').next().unwrap().to_owned();
        let answer = Client::connect(self.front.address())
            .patience(Duration::from_secs(30))
            .send(request)
            .response(&method);
        same::check(id, &self.front.of_id(id), &self.back.of_id(id));
        answer
    }
}

fn chat(id: &str, content: &str, more: &str) -> String {
    let body = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"{content}"}}],"max_tokens":8{more}}}"#
    );
    post(
        "/v1/chat/completions",
        &format!("x-request-id: {id}\r\n"),
        &body,
    )
}

fn plain(method: &str, target: &str, id: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: k.test\r\nx-request-id: {id}\r\n\r\n")
}

/// Every kind of call that both modes answer alike.
fn calls(line: &Line) {
    let answer = line.call("chat", &chat("chat", "hello", ""));
    assert_eq!(answer.status(), 200);
    let usage = &answer.json()["usage"];
    let logged = line.kvgauge.line_of("chat");
    assert_eq!(
        logged["gen_ai.usage.input_tokens"], usage["prompt_tokens"],
        "{logged}"
    );
    assert_eq!(
        logged["gen_ai.usage.output_tokens"], usage["completion_tokens"],
        "{logged}"
    );
    assert_eq!(logged["gen_ai.response.model"], MODEL, "{logged}");
    assert!(answer.head.has("x-kv-usage"), "{}", answer.head.text());

    let answer = line.call("stream", &chat("stream", "hello", r#","stream":true"#));
    assert_eq!(
        answer.head.get("content-type").unwrap(),
        "text/event-stream"
    );
    assert!(
        answer.text().ends_with("data: [DONE]\n\n"),
        "{}",
        answer.text()
    );
    let logged = line.kvgauge.line_of("stream");
    assert_eq!(logged["stream"], true, "{logged}");
    assert!(logged["ttft_ms"].is_number(), "{logged}");

    let with = r#","stream":true,"stream_options":{"include_usage":true}"#;
    let answer = line.call("usage", &chat("usage", "hello", with));
    assert!(answer.text().contains("\"usage\""), "{}", answer.text());
    let logged = line.kvgauge.line_of("usage");
    assert_eq!(logged["gen_ai.usage.output_tokens"], 8, "{logged}");
    assert!(
        logged["gen_ai.usage.input_tokens"].as_u64().unwrap() > 0,
        "{logged}"
    );

    let bad = post("/v1/chat/completions", "x-request-id: bad\r\n", "{bad json");
    assert_eq!(line.call("bad", &bad).status(), 400);
    let none = post(
        "/v1/chat/completions",
        "x-request-id: none\r\n",
        "{\"model\":\"m\"}",
    );
    assert_eq!(line.call("none", &none).status(), 400);
    for status in [400, 429, 503] {
        let id = format!("status-{status}");
        let answer = line.call(&id, &chat(&id, &format!("sim:status={status}"), ""));
        assert!(
            answer.status() >= 400,
            "{status} became {}",
            answer.status()
        );
        assert_eq!(
            line.kvgauge.line_of(&id)["http.response.status_code"],
            answer.status()
        );
    }

    // The router's own pages: JSON as text, an empty 404 without an id, 405 with Allow.
    let answer = line.call("models", &plain("GET", "/v1/models", "models"));
    assert!(
        answer
            .head
            .get("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    assert_eq!(answer.json()["object"], "list");
    let answer = line.call("nope", &plain("GET", "/v1/nope", "nope"));
    assert_eq!((answer.status(), answer.body.len()), (404, 0));
    assert!(!answer.head.has("content-type"), "{}", answer.head.text());
    let answer = line.call("get", &plain("GET", "/v1/chat/completions", "get"));
    assert_eq!(answer.status(), 405);
    assert!(answer.head.get("allow").unwrap().contains("POST"));
    assert_eq!(
        line.call("head", &plain("HEAD", "/health", "head"))
            .status(),
        200
    );
    let preflight = plain("OPTIONS", "/v1/chat/completions", "preflight").replace(
        "\r\n\r\n",
        "\r\nOrigin: http://app.test\r\nAccess-Control-Request-Method: POST\r\n\r\n",
    );
    line.call("preflight", &preflight);
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn a_plain_router_passes_untouched() {
    let engines = Engines::start(&[Role::Unified, Role::Unified]);
    let router = Router::plain(
        &[engines.address(0), engines.address(1)],
        &["--disable-retries"],
    );
    let line = Line::new(
        router.api,
        &[
            ("router", "", router.metrics_url()),
            ("one", "unified", engines.metrics_url(0)),
            ("two", "unified", engines.metrics_url(1)),
        ],
    );
    calls(&line);
    // A worker's error passes as it is.
    for status in [400, 429, 503] {
        let id = format!("plain-{status}");
        let answer = line.call(&id, &chat(&id, &format!("sim:status={status}"), ""));
        assert_eq!(answer.status(), status);
    }
    // A worker that breaks off: every event that came, then a broken end.
    let cut = chat("cut", "sim:abort=3", r#","stream":true"#);
    let answer = line.call("cut", &cut);
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    assert!(
        answer.text().matches("data:").count() >= 3,
        "{}",
        answer.text()
    );
    assert_eq!(line.kvgauge.line_of("cut")["outcome"], "upstream_aborted");
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn a_disaggregated_router_passes_untouched() {
    let engines = Engines::start(&[Role::Prefill, Role::Decode]);
    let router = Router::disaggregated(
        engines.address(0),
        engines.address(1),
        &["--disable-retries"],
    );
    let line = Line::new(
        router.api,
        &[
            ("router", "", router.metrics_url()),
            ("prefill", "prefill", engines.metrics_url(0)),
            ("decode", "decode", engines.metrics_url(1)),
        ],
    );
    calls(&line);
    // The router rewrites a streamed error but keeps the worker's length: a body that is too short
    // stays too short.
    let short = chat("short", "sim:status=400", r#","stream":true"#);
    let answer = line.call("short", &short);
    assert!(answer.status() >= 200);
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn the_routers_quirks_pass_as_they_are() {
    // A worker of our own, that answers as no engine of ours would.
    let worker = Upstream::new(|connection| {
        let request = connection.request()?;
        let json = |body: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nVary: Accept-Encoding\r\n\
                 Server: uvicorn\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let text = String::from_utf8_lossy(&request.body).into_owned();
        match request.head.target() {
            "/v1/chat/completions" if text.contains("dies") => {
                connection.send(STREAM)?;
                for n in 0..3 {
                    connection.chunk(format!("data: {{\"n\":{n}}}\n\n"))?;
                    connection.pause(Duration::from_millis(30))?;
                }
                return Ok(Next::Close);
            }
            "/v1/chat/completions" if text.contains("short") => {
                connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\ndata: {}\n\n")?;
                connection.pause(Duration::from_millis(50))?;
                return Ok(Next::Close);
            }
            "/v1/chat/completions" if text.contains("slow") => {
                connection.pause(Duration::from_secs(3))?;
                connection.send(json("{}"))?;
            }
            "/v1/models" => connection.send(json(
                r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#,
            ))?,
            "/server_info" | "/get_server_info" | "/model_info" | "/get_model_info" => {
                connection.send(json(
                    r#"{"model_path":"m","served_model_name":"m","tp_size":1,"dp_size":1}"#,
                ))?;
            }
            _ => connection.send(json("{\"ok\":true}"))?,
        }
        Ok(Next::Again)
    });
    let one_at_a_time = [
        "--disable-retries",
        "--max-concurrent-requests",
        "1",
        "--queue-size",
        "0",
    ];
    let router = Router::plain(&[worker.address()], &one_at_a_time);
    let line = Line::new(router.api, &[("router", "", router.metrics_url())]);

    let answer = line.call("vary", &chat("vary", "hello", ""));
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.head.all("vary").len(), 2, "{}", answer.head.text());

    let answer = line.call("dies", &chat("dies", "dies", r#","stream":true"#));
    assert_eq!(
        answer.text().matches("data:").count(),
        3,
        "every event that came"
    );
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    assert_eq!(line.kvgauge.line_of("dies")["outcome"], "upstream_aborted");

    let answer = line.call("short", &chat("short", "short", r#","stream":true"#));
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
    assert_eq!(line.kvgauge.line_of("short")["outcome"], "upstream_aborted");

    // 408 with an empty body while another request is at work.
    let slow = std::thread::scope(|scope| {
        let slow = scope.spawn(|| line.call("slow", &chat("slow", "slow", "")));
        support::eventually("the slow request is at work", || {
            worker
                .requests()
                .iter()
                .any(|r| String::from_utf8_lossy(&r.body).contains("slow"))
                .then_some(())
        });
        let answer = line.call("full", &chat("full", "hello", ""));
        assert!(
            matches!(answer.status(), 408 | 429),
            "{}",
            answer.head.text()
        );
        slow.join().unwrap()
    });
    assert_eq!(slow.status(), 200);

    // 431 with an empty body: more fields than the router takes, though not more than kvgauge.
    let fields: String = (0..98).map(|n| format!("x-{n}: 1\r\n")).collect();
    let many = format!("GET /health HTTP/1.1\r\nx-request-id: many\r\nHost: k\r\n{fields}\r\n");
    let answer = Client::connect(line.front.address())
        .send(many)
        .response("GET");
    assert_eq!(
        (answer.status(), answer.body.len()),
        (431, 0),
        "{}",
        answer.head.text()
    );
}
