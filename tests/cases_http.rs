//! Problems reported in public about headers, bodies, errors and framing in proxies, each as a test
//! that is named by its id. Inputs are in `tests/data/cases`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::io::Write;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::client::post;
use support::steps::{self, Step};
use support::upstream::OK;
use support::{Client, End, Head, Kvgauge, Next, Page, Response, Setup, Upstream, fetch};

fn start(upstream: &Upstream) -> (Kvgauge, Page) {
    let decode = Page::case("b13-d.prom");
    let kvgauge = Setup::new(upstream.address())
        .source("decode", "decode", &decode)
        .start();
    kvgauge.until_metric("kvgauge_kv_usage_ratio", &[("role", "decode")], Some(0.37));
    (kvgauge, decode)
}

const CHAT: &str = "/v1/chat/completions";

/// A chat call of this many bytes with a picture in it.
fn b32_call(length: usize) -> String {
    let before = "{\"model\":\"m-a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\
                  \"image_url\":{\"url\":\"data:image/png;base64,";
    let after = "\"}}]}]}";
    // A period that no buffer size is a multiple of: a lost or repeated piece shifts the rest.
    let picture = (0..length - before.len() - after.len())
        .map(|n| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ/+0123456789abcdefghi"[n % 47]));
    before.chars().chain(picture).chain(after.chars()).collect()
}

#[test]
fn b32_a_call_with_pictures_arrives_whole() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = start(&upstream);
    for (n, length) in [(1, 2_100_000), (2, 12 << 20)] {
        let body = b32_call(length);
        let id = format!("x-request-id: b32-{n}\r\n");
        let answer = fetch(kvgauge.listen, post(CHAT, &id, &body));
        assert_eq!((answer.status(), answer.text().as_str()), (200, "{}"));
        let request = upstream.request(n);
        assert_eq!(
            request.head.get("content-length").unwrap(),
            length.to_string()
        );
        assert!(request.body == body.as_bytes(), "{length}: it differs");
        let line = kvgauge.line_of(&format!("b32-{n}"));
        assert_eq!(line["outcome"], "complete", "{line}");
        assert_eq!(line["bytes_in"], length, "{line}");
    }
}

#[test]
fn b32_a_limit_that_is_set_says_so_in_the_answer_and_in_the_log() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("limits.request_body = 2000000\n")
        .start();
    let mut client = Client::connect(kvgauge.listen);
    // It may be refused before it is all sent.
    let _ = client.try_send(post(CHAT, "x-request-id: b32\r\n", &b32_call(2_100_000)));
    let answer = client.response("POST");
    assert_eq!(answer.status(), 413);
    let error = &answer.json()["error"];
    for name in ["message", "type", "code"] {
        assert!(error[name].is_string(), "{name}: {error}");
    }
    let line = kvgauge.line_of("b32");
    assert_eq!(line["http.response.status_code"], 413, "{line}");
    assert_eq!(line["outcome"], "rejected", "{line}");
    assert_eq!(upstream.requests().len(), 0, "it reached the router");
}

/// The body that belongs to the head in `b33.http`.
fn b33_body() -> Vec<u8> {
    (0..1 << 20).map(|n| b"abcdefghijk"[n % 11]).collect()
}

#[test]
fn b33_a_client_that_asks_for_leave_gets_it_before_it_sends_timed() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    let asked = Instant::now();
    client.send(support::data::case("b33.http"));
    assert_eq!(client.head().start, "HTTP/1.1 100 Continue");
    let waited = asked.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    let body = b33_body();
    let answer = client.send(&body).response("POST");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "{}"));
    let request = upstream.request(1);
    assert!(request.body == body, "the body differs");
    assert!(!request.head.has("expect"), "{}", request.head.text());
    assert_eq!(kvgauge.line(1)["outcome"], "complete");
}

#[test]
fn b33_a_client_that_does_not_ask_neither_waits_nor_gets_leave_timed() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = start(&upstream);
    let head = String::from_utf8(support::data::case("b33.http")).unwrap();
    let head = head.replace("Expect: 100-continue\r\n", "");
    assert!(!head.contains("Expect"), "{head}");
    let mut client = Client::connect(kvgauge.listen);
    let asked = Instant::now();
    client.send(head).send(b33_body());
    assert_eq!(client.head().start, "HTTP/1.1 200 OK");
    let waited = asked.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    assert!(upstream.request(1).body == b33_body(), "the body differs");
}

#[test]
fn b35_an_answer_keeps_its_bytes_and_loses_its_hop() {
    let upstream = Upstream::case("b35.http");
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(
        kvgauge.listen,
        post("/v1/chat/completions", "x-request-id: b35\r\n", "{}"),
    );
    let head = &answer.head;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.body, b"{}");
    assert_eq!(head.all("x-note"), [b"Dienstag, 31. M\xe4rz"]);
    assert_eq!(head.all("x-utf"), ["你".as_bytes()]);
    assert_eq!(head.all("x-empty"), [b""]);
    assert_eq!(head.all("set-cookie"), [b"a=1; Path=/", b"b=2; Path=/"]);
    assert!(!head.has("x-hop"), "{}", head.text());
    let connection = head.all("connection").concat().to_ascii_lowercase();
    assert!(
        !connection.windows(5).any(|part| part == b"x-hop"),
        "{}",
        head.text()
    );
    assert_eq!(kvgauge.line_of("b35")["outcome"], "complete");
}

#[test]
fn b35_a_request_keeps_its_bytes_and_loses_its_hop() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = start(&upstream);
    let mut request =
        b"GET /a?b=c HTTP/1.1\r\nHost: k.test\r\nx-request-id: b35\r\nX-Note: M\xe4rz\r\n".to_vec();
    request.extend_from_slice("X-Utf: 你\r\nX-Empty:\r\nX-Two: 1\r\nX-Two: 2\r\n".as_bytes());
    request.extend_from_slice(b"User-Agent: a\xe4b\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n");
    assert_eq!(fetch(kvgauge.listen, request).status(), 200);
    let head = upstream.request(1).head;
    assert_eq!(head.all("x-note"), [b"M\xe4rz"]);
    assert_eq!(head.all("x-utf"), ["你".as_bytes()]);
    assert_eq!(head.all("x-empty"), [b""]);
    assert_eq!(head.all("x-two"), [b"1", b"2"]);
    assert_eq!(head.all("user-agent"), [b"a\xe4b"]);
    assert!(!head.has("x-hop"), "{}", head.text());
    assert_eq!(kvgauge.line_of("b35")["outcome"], "complete");
}

/// A request of a client that asks for gzip, as SDKs do on their own.
fn b36_request(id: &str) -> String {
    let fields = format!("Accept-Encoding: gzip\r\nx-request-id: {id}\r\n");
    post(CHAT, &fields, "{\"model\":\"m-a\"}")
}

/// kvgauge asks for what the client asks for.
fn b36_passes(upstream: &Upstream, line: &serde_json::Value) {
    let asked = upstream.request(1).head.get("accept-encoding");
    assert_eq!(asked.unwrap(), "gzip");
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(line["gen_ai.usage.input_tokens"], 12, "{line}");
    assert_eq!(line["gen_ai.usage.output_tokens"], 34, "{line}");
    assert!(line["ttft_ms"].is_number(), "{line}");
}

#[test]
fn b36_a_packed_answer_stays_packed() {
    let upstream = Upstream::case("b36-json.http");
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(kvgauge.listen, b36_request("b36"));
    let sent = support::data::case("b36-json.http");
    assert_eq!(answer.head.get("content-encoding").unwrap(), "gzip");
    assert_eq!(answer.end, End::Complete);
    assert!(sent.ends_with(&answer.body), "the body differs");
    let text: serde_json::Value =
        serde_json::from_reader(flate2::read::GzDecoder::new(answer.body.as_slice())).unwrap();
    assert_eq!(text["usage"]["completion_tokens"], 34);
    b36_passes(&upstream, &kvgauge.line_of("b36"));
}

#[test]
fn b36_packed_events_come_one_by_one() {
    // What the steps send waits for the client to have read what came before, not for a time.
    let (got, more) = mpsc::sync_channel(8);
    let more = std::sync::Mutex::new(more);
    let steps = steps::of_case("b36-sse.steps.json");
    let upstream = Upstream::new(move |connection| {
        for step in &steps {
            if matches!(step, Step::Sleep(_)) {
                let _ = more.lock().unwrap().recv_timeout(Duration::from_secs(10));
            } else {
                steps::play(std::slice::from_ref(step), connection)?;
            }
        }
        Ok(Next::Again)
    });
    let (kvgauge, _decode) = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    let head = client.send(b36_request("b36")).head();
    assert_eq!(head.get("content-encoding").unwrap(), "gzip");
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    let mut body = Vec::new();
    for part in ["\"a\"", "\"b\"", "\"usage\"", "[DONE]"] {
        let piece = client.chunk().unwrap();
        std::io::Write::write_all(&mut decoder, &piece).unwrap();
        std::io::Write::flush(&mut decoder).unwrap();
        body.extend(piece);
        let text = String::from_utf8(std::mem::take(decoder.get_mut())).unwrap();
        assert_eq!(text.matches("data: ").count(), 1, "{text}");
        assert!(text.contains(part) && text.ends_with("\n\n"), "{text}");
        got.send(()).unwrap();
    }
    while let Some(piece) = client.chunk() {
        body.extend(piece);
    }
    let sent = steps::body(&steps::of_case("b36-sse.steps.json"));
    assert!(body == sent, "the body differs");
    b36_passes(&upstream, &kvgauge.line_of("b36"));
}

/// An answer with this coding and body; the body as the client gets it, and the log line.
fn b36_packed(coding: &str, body: &[u8]) -> (Vec<u8>, serde_json::Value) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let upstream = Upstream::answering([head.as_bytes(), body].concat());
    let kvgauge = Setup::new(upstream.address()).start();
    let answer = fetch(kvgauge.listen, b36_request("b36"));
    assert_eq!(answer.head.get("content-encoding").unwrap(), coding);
    assert_eq!(answer.end, End::Complete);
    (answer.body, kvgauge.line_of("b36"))
}

#[test]
fn b36_an_answer_that_is_packed_wrongly_passes_and_is_not_read() {
    let whole = support::data::case("b36-json.http");
    let at = whole.windows(4).position(|part| part == b"\r\n\r\n");
    let good = &whole[at.unwrap() + 4..];
    let mut broken = good.to_vec();
    *broken.iter_mut().nth_back(5).unwrap() ^= 1;
    for (coding, body) in [
        ("gzip", broken.as_slice()),
        ("gzip", b"{\"usage\":{\"prompt_tokens\":1}}"),
        ("br", good),
        ("zstd", good),
    ] {
        let (got, line) = b36_packed(coding, body);
        assert!(got == body, "the body differs");
        assert_eq!(line["outcome"], "complete", "{line}");
        assert!(line["gen_ai.usage.input_tokens"].is_null(), "{line}");
        assert!(line["gen_ai.response.model"].is_null(), "{line}");
    }
}

#[test]
fn b36_a_bomb_passes_packed_and_is_not_unpacked_to_its_end() {
    // Blanks that are a thousand times as long unpacked, behind them a usage.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let blanks = vec![b' '; 1 << 20];
    for _ in 0..96 {
        std::io::Write::write_all(&mut packer, &blanks).unwrap();
    }
    std::io::Write::write_all(&mut packer, b"{\"usage\":{\"prompt_tokens\":1}}").unwrap();
    let bomb = packer.finish().unwrap();
    let (got, line) = b36_packed("gzip", &bomb);
    assert!(got == bomb, "the body differs");
    assert_eq!(line["outcome"], "complete", "{line}");
    // It stands behind the bound.
    assert!(line["gen_ai.usage.input_tokens"].is_null(), "{line}");
}

#[test]
fn b36_a_request_that_says_it_is_not_packed_is_read() {
    let upstream = Upstream::ok();
    let (kvgauge, _decode) = start(&upstream);
    for (coding, model) in [
        ("identity", "m-a".into()),
        ("gzip", serde_json::Value::Null),
    ] {
        let fields = format!("Content-Encoding: {coding}\r\nx-request-id: {coding}\r\n");
        fetch(kvgauge.listen, post(CHAT, &fields, "{\"model\":\"m-a\"}"));
        let line = kvgauge.line_of(coding);
        assert_eq!(line["gen_ai.request.model"], model, "{line}");
    }
}

#[test]
fn b36_an_answer_that_comes_plain_all_the_same_is_read() {
    let body = "{\"model\":\"m-a\",\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}";
    let upstream = Upstream::answering(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(kvgauge.listen, b36_request("b36"));
    assert_eq!(answer.text(), body);
    assert!(!answer.head.has("content-encoding"));
    let line = kvgauge.line_of("b36");
    assert_eq!(line["gen_ai.usage.input_tokens"], 12, "{line}");
    assert_eq!(line["gen_ai.usage.output_tokens"], 34, "{line}");
}

/// Sends one POST through kvgauge to an upstream that answers with these bytes. Everything in the
/// answer must reach the client, and the request the upstream once.
fn b37(bytes: &[u8]) -> Head {
    let upstream = Upstream::answering(bytes);
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(kvgauge.listen, post("/v1/chat/completions", "", "{}"));
    let sent = Head::parse(bytes);
    assert_eq!(answer.head.start, sent.start);
    for (name, value) in &sent.fields {
        assert_eq!(answer.head.all(name), std::slice::from_ref(value), "{name}");
    }
    assert_eq!(answer.body, &bytes[bytes.len() - answer.body.len()..]);
    assert_eq!(answer.head.get("x-kv-usage").unwrap(), "0.3700");
    let line = kvgauge.line(1);
    assert_eq!(line["http.response.status_code"], sent.status(), "{line}");
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(upstream.requests().len(), 1, "no second try");
    answer.head
}

#[test]
fn b37_a_429_passes_as_it_is() {
    let head = b37(&support::data::case("b37.http"));
    assert_eq!(head.get("retry-after").unwrap(), "30");
}

#[test]
fn b37_a_503_with_a_date_passes_as_it_is() {
    let head = b37(
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
          Retry-After: Fri, 31 Dec 2027 23:59:59 GMT\r\nContent-Length: 4\r\n\r\nlate",
    );
    assert_eq!(
        head.get("retry-after").unwrap(),
        "Fri, 31 Dec 2027 23:59:59 GMT"
    );
}

/// What a client that calls kvgauge `k.test:8080` gets where the router redirects it.
fn b38(location: impl Fn(&str) -> String + Send + Sync + 'static) -> Head {
    let upstream = Upstream::replying(move |request| {
        let host = request.head.get("host").unwrap();
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
            location(&host)
        )
    });
    let (kvgauge, _decode) = start(&upstream);
    let request = "POST /v1/models/ HTTP/1.1\r\nHost: k.test:8080\r\nContent-Length: 2\r\n\r\n{}";
    let answer = fetch(kvgauge.listen, request);
    assert_eq!(answer.head.start, "HTTP/1.1 307 Temporary Redirect");
    let line = kvgauge.line(1);
    assert_eq!(line["http.response.status_code"], 307, "{line}");
    assert_eq!(line["outcome"], "complete", "{line}");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 1, "it was followed");
    let forwarded = requests[0].head.get("x-forwarded-host");
    assert_eq!(forwarded.unwrap(), "k.test:8080");
    answer.head
}

#[test]
fn b38_a_redirect_leads_to_where_the_client_can_go() {
    let head = b38(|host| format!("http://{host}/v1/models"));
    assert_eq!(
        head.get("location").unwrap(),
        "http://k.test:8080/v1/models"
    );
}

#[test]
fn b38_a_redirect_to_a_third_host_is_not_touched() {
    for location in [
        "https://login.test/in?to=http://k.test:8080/%2f",
        "/v1/models",
        "//other.test:1/x",
    ] {
        let head = b38(|_| location.to_owned());
        assert_eq!(head.get("location").unwrap(), location);
    }
}

/// 1 MiB with a period that no buffer size is a multiple of.
fn b39_bytes(seed: usize) -> Vec<u8> {
    let byte = |n: usize| u8::try_from((n * 7 + n / 251 + seed) % 251).unwrap();
    (0..1 << 20).map(byte).collect()
}

#[test]
fn b39_a_websocket_carries_both_ways_and_ends_when_the_router_closes_timed() {
    let (closes, came) = mpsc::sync_channel(1);
    let upstream = Upstream::new(move |connection| {
        connection.request()?;
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
             Sec-WebSocket-Protocol: realtime\r\n\r\n",
        )?;
        let ping = connection.exactly(4)?;
        connection.send(ping)?;
        let mut socket = connection.socket();
        let writer = std::thread::spawn(move || socket.write_all(&b39_bytes(1)));
        let bytes = connection.exactly(1 << 20)?;
        writer.join().unwrap()?;
        closes.send((bytes, Instant::now())).unwrap();
        Ok(Next::Close)
    });
    let (kvgauge, _decode) = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    let head = client.send(support::data::case("b39.http")).head();
    assert_eq!(head.status(), 101);
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("sec-websocket-protocol", "realtime"),
        ("x-kv-usage", "0.3700"),
    ] {
        assert_eq!(head.get(name).as_deref(), Some(value), "{}", head.text());
    }
    assert_eq!(client.send("ping").exactly(4), b"ping");
    let mut socket = client.socket();
    let writer = std::thread::spawn(move || socket.write_all(&b39_bytes(2)));
    let (bytes, end) = client.rest();
    let ended = Instant::now();
    writer.join().unwrap().unwrap();
    let (at_router, closed) = came.recv().unwrap();
    assert!(bytes == b39_bytes(1), "to the client: it differs");
    assert!(at_router == b39_bytes(2), "to the router: it differs");
    assert_eq!(end, End::Cut);
    let took = ended.saturating_duration_since(closed);
    assert!(took < Duration::from_secs(1), "the close took {took:?}");
    client.close();
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "upgraded", "{line}");
    assert_eq!(line["http.response.status_code"], 101, "{line}");
    assert_eq!(line["url.path"], "/v1/realtime", "{line}");
    for name in ["bytes_in", "bytes_out"] {
        assert_eq!(line[name], (1 << 20) + 4, "{line}");
    }
    assert_eq!(line["kv.end.usage"], 0.37, "{line}");
    assert_eq!(kvgauge.lines().len(), 1);
}

#[test]
fn b40_an_upload_arrives_as_it_is_and_nothing_of_it_is_logged() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"text\":\"hi\"}\n",
    );
    let (mut kvgauge, _decode) = start(&upstream);
    let sent = support::data::case("b40.http");
    let answer = fetch(kvgauge.listen, &sent);
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (200, "{\"text\":\"hi\"}\n")
    );
    let request = upstream.request(1);
    assert_eq!(request.head.start, "POST /v1/audio/transcriptions HTTP/1.1");
    assert_eq!(
        request.head.get("content-type").unwrap(),
        "multipart/form-data; boundary=\"=_b 1\""
    );
    assert_eq!(request.head.get("content-length").unwrap(), "193");
    assert_eq!(request.body.len(), 193);
    assert!(sent.ends_with(&request.body), "the body differs");
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let line = &lines[0];
    assert_eq!(line["outcome"], "complete", "{line}");
    assert!(line["error.type"].is_null(), "{line}");
    assert_eq!(line["bytes_in"], 193, "{line}");
    for output in [kvgauge.log.text(), kvgauge.diagnostics.text()] {
        for part in ["RIFF", ".wav", "form-data", "w-a", "=_b"] {
            assert!(!output.contains(part), "{part}: {output}");
        }
    }
}

#[test]
fn b41_an_answer_to_head_keeps_its_length() {
    let to_head = support::data::case("b41.http");
    let upstream = Upstream::replying(move |request| match request.head.method() {
        "HEAD" => to_head.clone(),
        _ => OK.into(),
    });
    let (kvgauge, _decode) = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    let answer = client
        .send("HEAD /x HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("HEAD");
    assert_eq!(answer.head.get("content-length").unwrap(), "1488");
    assert!(answer.head.has("x-kv-usage"));
    let answer = client
        .send("GET /x HTTP/1.1\r\nHost: k\r\n\r\n")
        .response("GET");
    assert_eq!(
        (answer.status(), answer.body.as_slice()),
        (200, b"{}".as_slice())
    );
    let methods: Vec<_> = upstream
        .requests()
        .iter()
        .map(|r| r.head.method().to_owned())
        .collect();
    assert_eq!(methods, ["HEAD", "GET"]);
    assert_eq!(kvgauge.line(1)["outcome"], "complete");
    assert_eq!(kvgauge.line(2)["outcome"], "complete");
}

#[test]
fn b42_a_request_with_length_and_chunks_hides_no_second_one() {
    let upstream = Upstream::ok();
    let (mut kvgauge, _decode) = start(&upstream);
    let mut client = Client::connect(kvgauge.listen);
    let answer = client
        .send(support::data::case("b42.http"))
        .response("POST");
    assert!(client.is_closed(), "the connection must not be used again");
    // When it has ended, nothing can reach the router any more.
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let requests = upstream.requests();
    match answer.status() {
        400 => assert_eq!(requests.len(), 0),
        200 => {
            assert_eq!(requests.len(), 1);
            let request = &requests[0];
            let head = &request.head;
            assert_eq!(head.target(), CHAT);
            assert!(!head.has("content-length"), "{}", head.text());
            assert_eq!(head.get("transfer-encoding").unwrap(), "chunked");
            assert_eq!(request.body, b"");
        }
        other => panic!("status {other}"),
    }
}

/// What a page's script may read of an answer, in lower case.
fn b46_exposed(answer: &Response) -> Vec<String> {
    let lists = answer.head.all("access-control-expose-headers");
    let list = String::from_utf8(lists.join(&b","[..])).unwrap();
    let names = list.split(',').map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn b46_a_page_in_a_browser_can_read_what_kvgauge_adds() {
    let upstream = Upstream::case("b46.http");
    let (kvgauge, _decode) = start(&upstream);
    let request = post(CHAT, "Origin: http://app.test\r\n", "{}");
    let answer = fetch(kvgauge.listen, request);
    assert!(answer.head.has("x-kv-usage"), "{}", answer.head.text());
    assert_eq!(answer.head.all("access-control-allow-origin"), [b"*"]);
    assert_eq!(answer.head.all("vary"), [b"Origin"]);
    let exposed = b46_exposed(&answer);
    for name in ["x-request-id", "x-kv-usage", "x-kv-pools"] {
        assert!(exposed.iter().any(|one| one == name), "{name}: {exposed:?}");
    }
    assert_eq!(upstream.request(1).head.all("origin"), [b"http://app.test"]);
}

#[test]
fn b46_without_an_origin_nothing_is_said_of_cors() {
    // The router answers a browser with CORS, and others without.
    let to_browsers = support::data::case("b46.http");
    let upstream = Upstream::replying(move |request| {
        if request.head.has("origin") {
            to_browsers.clone()
        } else {
            OK.into()
        }
    });
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(kvgauge.listen, post(CHAT, "", "{}"));
    assert!(answer.head.has("x-kv-usage"), "{}", answer.head.text());
    let cors = |(name, _): &(String, Vec<u8>)| name.starts_with("access-control-");
    assert!(
        !answer.head.fields.iter().any(cors),
        "{}",
        answer.head.text()
    );
}

#[test]
fn b46_without_an_origin_what_the_router_says_of_cors_stands() {
    let upstream = Upstream::case("b46.http");
    let (kvgauge, _decode) = start(&upstream);
    let answer = fetch(kvgauge.listen, post(CHAT, "", "{}"));
    assert!(answer.head.has("x-kv-usage"), "{}", answer.head.text());
    assert_eq!(b46_exposed(&answer), ["x-request-id"]);
    assert_eq!(answer.head.all("access-control-allow-origin"), [b"*"]);
    assert_eq!(answer.head.all("vary"), [b"Origin"]);
}
