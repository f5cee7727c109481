//! For the official clients of the OpenAI API: servers that play what a router in front of simulated
//! engines does not, and the look at what passed on both sides of kvgauge.

use super::http::{End, Head};
use super::kvgauge::{Kvgauge, Setup};
use super::page::Page;
use super::same;
use super::tap::Tap;
use super::upstream::{Next, STREAM, Upstream};
use flate2::Crc;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// kvgauge with a tap on each side.
pub(crate) struct Passage {
    pub(crate) kvgauge: Kvgauge,
    pub(crate) front: Tap,
    pub(crate) back: Tap,
    _page: Option<Page>,
}

impl Passage {
    /// To this server, with these sources: name, role, URL.
    pub(crate) fn to(server: SocketAddr, sources: &[(&str, &str, String)]) -> Self {
        let back = Tap::new(server);
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
            _page: None,
        }
    }

    /// To a server that is no real router, with a decode engine's page beside it.
    pub(crate) fn to_played(server: SocketAddr) -> Self {
        let page = Page::real("sglang-0.5.23-decode-tp4-busy");
        let mut passage = Self::to(server, &[("decode", "decode", page.url())]);
        passage._page = Some(page);
        passage
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.front.address())
    }

    /// So many exchanges passed, each the same on both sides, and logged with its status and how it
    /// ended.
    pub(crate) fn passed(&self, calls: usize) {
        let exchanges = self.front.exchanges();
        assert_eq!(exchanges.len(), calls, "one exchange a call");
        let behind = self.back.exchanges();
        assert_eq!(behind.len(), calls, "and each was forwarded once");
        for exchange in &exchanges {
            let id = exchange.answer.get("x-request-id").unwrap();
            let same_id = |head: &Head| head.get("x-request-id").as_deref() == Some(&id);
            let other = behind
                .iter()
                .find(|other| same_id(&other.request))
                .unwrap_or_else(|| panic!("{id} behind"));
            same::check(&exchange.request.start, exchange, other);
            let line = self.kvgauge.line_of(&id);
            assert_eq!(
                line["http.response.status_code"],
                exchange.answer.status(),
                "{line}"
            );
            let outcome = match exchange.end {
                End::Complete => "complete",
                _ => "upstream_aborted",
            };
            assert_eq!(line["outcome"], outcome, "{line}");
        }
    }
}

/// A server whose answers follow from the model that is asked for: `status-429` is answered so,
/// `busy-twice` with 503 two times and then well, `silent` never, `breaks-off` with a stream that ends
/// in its middle. Embeddings and transcriptions are there as well, and what makes it a router's worker.
pub(crate) fn played() -> Upstream {
    let busy = AtomicUsize::new(0);
    Upstream::new(move |connection| {
        let request = connection.request()?;
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let model = body["model"].as_str().unwrap_or_default();
        let well = |value: &Value| answer(200, "", value);
        match (request.head.target(), model) {
            ("/v1/embeddings", _) => {
                // 0.25 and -0.5, as floats or as their bytes.
                let embedding = match body["encoding_format"].as_str() {
                    Some("base64") => json!("AACAPgAAAL8="),
                    _ => json!([0.25, -0.5]),
                };
                connection.send(well(&json!({
                    "object": "list", "model": model,
                    "data": [{"object": "embedding", "index": 0, "embedding": embedding}],
                    "usage": {"prompt_tokens": 3, "total_tokens": 3},
                })))?;
            }
            ("/v1/audio/transcriptions", _) => {
                let text = format!("{} bytes", request.body.len());
                connection.send(well(&json!({"text": text})))?;
            }
            // What sglang-router asks of a worker.
            ("/server_info" | "/get_server_info" | "/model_info" | "/get_model_info", _) => {
                connection.send(well(&json!({
                    "model_path": "m", "served_model_name": "m", "tp_size": 1, "dp_size": 1,
                })))?;
            }
            ("/v1/models", _) => {
                let models = json!([{"id": "m", "object": "model"}]);
                connection.send(well(&json!({"object": "list", "data": models})))?;
            }
            (_, "silent") => connection.until_peer_leaves()?,
            (_, "breaks-off") => {
                connection.send(STREAM)?;
                for n in 0..3 {
                    connection.chunk(format!("data: {}\n\n", piece(n)))?;
                }
                // As it is when the router dies: what it has sent arrives, and no end.
                connection.pause(Duration::from_millis(50))?;
                return Ok(Next::Close);
            }
            (_, "busy-twice") if busy.fetch_add(1, Ordering::Relaxed) < 2 => {
                connection.send(answer(503, "Retry-After: 0\r\n", &error(503)))?;
            }
            (_, model) if model.starts_with("status-") => {
                let status = model["status-".len()..].parse().unwrap();
                connection.send(answer(status, "", &error(status)))?;
            }
            _ => connection.send(well(&completion()))?,
        }
        Ok(Next::Again)
    })
}

/// A server that keeps nothing of a body but its length and sum. It holds the sum against the one that
/// the client has written into `x-body-crc`, unless a router has written the body anew.
pub(crate) fn summing(anew: bool) -> Upstream {
    Upstream::new(move |connection| {
        let head = connection.request_head()?;
        let length = head.get("content-length");
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let (mut read, mut sum) = (0, Crc::new());
        while read < length {
            let piece = connection.some()?;
            read += piece.len();
            sum.update(&piece);
        }
        let model =
            json!({"model_path": "m", "served_model_name": "m", "tp_size": 1, "dp_size": 1});
        let right = anew || head.get("x-body-crc") == Some(sum.sum().to_string());
        connection.send(match head.method() {
            "GET" => answer(200, "", &model),
            _ if right && read > 100_000_000 => answer(200, "", &completion()),
            _ => answer(400, "", &error(400)),
        })?;
        io::Result::Ok(Next::Again)
    })
}

fn answer(status: u16, more: &str, value: &Value) -> String {
    let text = value.to_string();
    format!(
        "HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

fn error(status: u16) -> Value {
    json!({"error": {"message": format!("{status} it is"), "type": "played", "param": null, "code": status}})
}

fn completion() -> Value {
    json!({
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    })
}

fn piece(n: usize) -> Value {
    json!({
        "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": format!("{n} ")}}],
    })
}
