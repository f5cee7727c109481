//! The messages that the pieces of the data path are measured on: a chat request of 0.7 kB with the
//! headers of an `OpenAI` client, an answer of 1.25 kB, a stream of events of 200 bytes.

#![allow(dead_code, reason = "each of those who include this uses a part")]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};

pub(crate) const MODEL: &str = "Qwen/Qwen3-235B-A22B-Instruct-2507";
pub(crate) const REQUEST_ID: &str = "019ac5b0-7c1e-7d02-b6a4-3f0a6f4c9b11";

pub(crate) fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let lines = lines.iter();
    lines
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .collect()
}

pub(crate) fn of_type(media_type: &'static str) -> HeaderMap {
    fields(&[("content-type", media_type)])
}

/// As `OpenAI`'s client for Python sends it.
const REQUEST_FIELDS: [(&str, &str); 17] = [
    ("host", "127.0.0.1:30080"),
    ("accept-encoding", "gzip, deflate"),
    ("connection", "keep-alive"),
    ("accept", "application/json"),
    ("content-type", "application/json"),
    ("user-agent", "OpenAI/Python 2.8.1"),
    ("x-stainless-lang", "python"),
    ("x-stainless-package-version", "2.8.1"),
    ("x-stainless-os", "Linux"),
    ("x-stainless-arch", "x64"),
    ("x-stainless-runtime", "CPython"),
    ("x-stainless-runtime-version", "3.13.9"),
    (
        "authorization",
        "Bearer sk-0123456789abcdef0123456789abcdef",
    ),
    ("x-stainless-async", "false"),
    ("x-stainless-retry-count", "0"),
    ("x-stainless-read-timeout", "600"),
    ("content-length", "700"),
];

/// With the id that kvgauge has given it.
pub(crate) fn request<B>(body: B) -> Request<B> {
    let mut request = Request::post("/v1/chat/completions").body(body).unwrap();
    let mut headers = fields(&REQUEST_FIELDS);
    headers.insert("x-request-id", HeaderValue::from_static(REQUEST_ID));
    *request.headers_mut() = headers;
    request
}

/// As a client sends it.
pub(crate) fn request_on_the_wire() -> Vec<u8> {
    let mut text = "POST /v1/chat/completions HTTP/1.1\r\n".to_owned();
    for (name, value) in REQUEST_FIELDS {
        text.extend([name, ": ", value, "\r\n"]);
    }
    [text.as_bytes(), b"\r\n", &request_body()].concat()
}

/// Of 700 bytes.
pub(crate) fn request_body() -> Vec<u8> {
    let begin = r#"{"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Say in three sentences what a \"KV cache\" is.\n"#;
    let end = format!(
        r#""}}],"model":"{MODEL}","max_tokens":256,"stream":true,"stream_options":{{"include_usage":true}},"temperature":0.7}}"#
    );
    let left = 700 - begin.len() - end.len();
    format!("{begin}{}{end}", words(left)).into_bytes()
}

/// Of 1,250 bytes.
pub(crate) fn answer_body() -> Vec<u8> {
    let begin = format!(
        r#"{{"id":"6f0c2d7b1e9a4c55","object":"chat.completion","model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"A \"KV cache\" holds what attention has computed.\n"#
    );
    let end = r#"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":{"prompt_tokens":1234,"total_tokens":1362,"completion_tokens":128,"prompt_tokens_details":{"cached_tokens":1024},"reasoning_tokens":0},"metadata":{"weight_version":"default"}}"#;
    let left = 1250 - begin.len() - end.len();
    format!("{begin}{}{end}", words(left)).into_bytes()
}

fn words(bytes: usize) -> String {
    "what was computed before need not be computed again, "
        .chars()
        .cycle()
        .take(bytes)
        .collect()
}

/// A stream of so many events: the role, contents of 200 bytes, and at the end the usage and `[DONE]`.
pub(crate) fn events(count: usize) -> Vec<Vec<u8>> {
    let event = |choices: &str, more: &str| {
        format!(
            "data: {{\"id\":\"6f0c2d7b1e9a4c55\",\"object\":\"chat.completion.chunk\",\"created\":1764512345,\"model\":\"{MODEL}\",\"choices\":[{choices}]{more}}}\n\n"
        )
        .into_bytes()
    };
    let mut events = vec![event(
        r#"{"index":0,"delta":{"role":"assistant","content":""}}"#,
        "",
    )];
    let content = |text: &str| {
        let choice = format!(r#"{{"index":0,"delta":{{"content":"{text}"}}}}"#);
        event(&choice, "")
    };
    let content = content(&words(200 - content("").len()));
    events.extend(std::iter::repeat_n(content, count - 3));
    events.push(event(
        "",
        r#","usage":{"prompt_tokens":1234,"total_tokens":1362,"completion_tokens":128,"prompt_tokens_details":{"cached_tokens":1024}}"#,
    ));
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}

pub(crate) fn chunk(data: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

pub(crate) fn answer_on_the_wire() -> Bytes {
    let body = answer_body();
    let head = format!(
        "HTTP/1.1 200 OK\r\ndate: Sun, 30 Nov 2025 14:12:40 GMT\r\nserver: uvicorn\r\ncontent-type: application/json\r\nx-request-id: {REQUEST_ID}\r\nvary: accept-encoding\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat().into()
}

pub(crate) fn stream_head_on_the_wire() -> Bytes {
    Bytes::from_static(
        b"HTTP/1.1 200 OK\r\ndate: Sun, 30 Nov 2025 14:12:40 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
    )
}
