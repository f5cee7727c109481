//! The simulated servers over HTTP: workers, router, deployment.
#![allow(clippy::disallowed_methods)] // spawn_blocking: a test has threads to give
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use kvgauge::kv::Role;
use kvgauge::sim::{
    Condition, Deployment, DeploymentConfig, EngineConfig, Load, Rate, Servers, Traffic, Worker,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MODEL: &str = "demo/llama-70b";

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
    /// Whether the body came to its proper end.
    whole: bool,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    fn events(&self) -> Vec<&str> {
        self.body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .collect()
    }
}

async fn ask(to: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let (head, mut body) = response.into_parts();
    let (mut bytes, mut whole) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap()),
            Err(_) => whole = false,
        }
    }
    Answer {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(bytes).unwrap(),
        whole,
    }
}

fn builder(to: SocketAddr, method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", to.to_string())
}

async fn get(to: SocketAddr, path: &str) -> Answer {
    ask(to, builder(to, "GET", path).body(Full::default()).unwrap()).await
}

async fn post(to: SocketAddr, path: &str, body: impl Into<Bytes>) -> Answer {
    let request = builder(to, "POST", path)
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap();
    ask(to, request).await
}

fn chat(text: &str, stream: bool) -> String {
    let mut body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
    });
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body.to_string()
}

/// What the page of an engine says of the tokens in use, where it says it.
fn used(page: &str) -> Option<f64> {
    page.lines()
        .find(|line| line.starts_with("sglang:kv_used_tokens{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn unified() -> Worker {
    Worker::start(free(), EngineConfig::new(Role::Unified, MODEL))
        .await
        .unwrap()
}

async fn servers() -> Servers {
    Servers::start(DeploymentConfig::new(MODEL, 1))
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_answers_chat_whole_and_streamed() {
    let worker = unified().await;
    let text = "sim:prompt=2000 sim:output=12";
    let whole = post(worker.addr, "/v1/chat/completions", chat(text, false)).await;
    assert_eq!(whole.status, 200);
    assert_eq!(whole.header("content-type"), "application/json");
    let answer = whole.json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["usage"]["prompt_tokens"], 2_000);
    assert_eq!(answer["usage"]["completion_tokens"], 12);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!content.is_empty());

    let streamed = post(worker.addr, "/v1/chat/completions", chat(text, true)).await;
    assert!(
        streamed
            .header("content-type")
            .starts_with("text/event-stream")
    );
    assert_eq!(streamed.header("transfer-encoding"), "chunked");
    let events = streamed.events();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let text: String = chunks
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, content);
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 2_012);
}

#[tokio::test(start_paused = true)]
async fn a_worker_answers_the_other_apis() {
    let worker = unified().await;
    let to = worker.addr;
    let body = json!({"model": MODEL, "prompt": "hi", "max_tokens": 3}).to_string();
    let answer = post(to, "/v1/completions", body).await.json();
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let body = json!({"text": "hi", "sampling_params": {"max_new_tokens": 3}}).to_string();
    let answer = post(to, "/generate", body).await.json();
    assert_eq!(answer["meta_info"]["completion_tokens"], 3);
    assert_eq!(get(to, "/v1/models").await.json()["data"][0]["id"], MODEL);
    assert_eq!(get(to, "/health").await.status, 200);
    assert_eq!(get(to, "/health_generate").await.status, 200);
    for path in ["/server_info", "/get_server_info"] {
        let info = get(to, path).await.json();
        assert_eq!(info["max_total_num_tokens"], 2_581_504);
        assert_eq!(info["tp_size"], 4);
    }
    let info = get(to, "/get_model_info").await.json();
    assert_eq!(info["served_model_name"], MODEL);
    let loads = get(to, "/v1/loads").await.json();
    assert_eq!(loads["loads"][0]["max_total_num_tokens"], 2_581_504);
    assert_eq!(loads["loads"][0]["disaggregation"]["mode"], "null");
}

#[tokio::test(start_paused = true)]
async fn a_worker_refuses_what_it_should_and_what_it_is_asked_to() {
    let worker = unified().await;
    let path = "/v1/chat/completions";
    let other = chat("hi", false).replace(MODEL, "nope");
    for (body, status) in [
        ("{bad".to_owned(), 400),
        (chat("sim:prompt=200000", false), 400),
        (other, 404),
        (chat("sim:status=429", false), 429),
        (chat("sim:status=503", true), 503),
    ] {
        let answer = post(worker.addr, path, body).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.json()["object"], "error");
        assert_eq!(answer.json()["code"], status);
    }
    assert_eq!(get(worker.addr, "/nope").await.status, 404);
    assert_eq!(get(worker.addr, path).await.status, 405);
}

#[tokio::test(start_paused = true)]
async fn a_worker_dies_in_mid_stream_when_asked() {
    let worker = unified().await;
    let body = chat("sim:output=50 sim:abort=3", true);
    let answer = post(worker.addr, "/v1/chat/completions", body).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.whole);
    // The opening event and three with content.
    assert_eq!(answer.events().len(), 4);
    // Nothing of it stays in the engine.
    assert_eq!(worker.runner.loads().num_used_tokens, 0);
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_engine() {
    let worker = unified().await;
    let stream = tokio::net::TcpStream::connect(worker.addr).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = builder(worker.addr, "POST", "/v1/chat/completions")
        .body(Full::new(Bytes::from(chat(
            "sim:prompt=50000 sim:output=9000",
            true,
        ))))
        .unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(worker.runner.loads().num_running_reqs, 1);
    assert!(worker.runner.loads().num_used_tokens >= 50_000);
    drop((body, sender));
    connection.abort();
    let gone = async {
        while worker.runner.loads().num_used_tokens > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone)
        .await
        .expect("the engine still holds the request of a client that has left");
}

#[tokio::test]
async fn the_metrics_page_is_chunked_and_its_gauges_lazy() {
    let worker = unified().await;
    let page = get(worker.addr, "/metrics").await;
    assert_eq!(page.header("transfer-encoding"), "chunked");
    assert!(
        page.header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(page.body.contains("sglang:max_total_num_tokens{"));
    assert!(!page.body.contains("sglang:token_usage"));
    post(worker.addr, "/v1/chat/completions", chat("hi", false)).await;
    let page = get(worker.addr, "/metrics").await;
    assert!(page.body.contains("sglang:token_usage{"));
    assert!(page.body.contains(
        "sglang:http_responses_total{endpoint=\"/v1/chat/completions\",method=\"POST\",status_code=\"200\"} 1.0"
    ));
}

#[tokio::test(start_paused = true)]
async fn the_router_answers_with_the_real_ones_headers() {
    let servers = servers().await;
    let to = servers.router.addr;
    for stream in [false, true] {
        let body = chat("sim:prompt=30000 sim:output=10", stream);
        let answer = post(to, "/v1/chat/completions", body).await;
        assert_eq!(answer.status, 200);
        assert!(answer.whole);
        assert!(answer.header("x-request-id").starts_with("chatcmpl-"));
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-expose-headers"), "*");
        assert!(answer.header("vary").starts_with("origin, "));
        assert!(answer.body.contains("\"completion_tokens\":10"));
    }
    let request = builder(to, "POST", "/v1/completions")
        .header("content-type", "application/json")
        .header("x-request-id", "mine-1")
        .body(Full::new(Bytes::from(r#"{"prompt":"hi","max_tokens":2}"#)))
        .unwrap();
    let answer = ask(to, request).await;
    assert_eq!(answer.header("x-request-id"), "mine-1");
    assert_eq!(answer.json()["model"], "unknown");

    let models = get(to, "/v1/models").await;
    assert_eq!(models.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(get(to, "/readiness").await.status, 200);
    let workers = get(to, "/workers").await.json();
    assert_eq!(workers["stats"]["decode_count"], 1);
    for path in ["/metrics", "/nope", "/v1/loads"] {
        let answer = get(to, path).await;
        assert_eq!(answer.status, 404);
        assert_eq!(answer.body, "");
        assert!(!answer.headers.contains_key("x-request-id"));
    }
    let answer = get(to, "/v1/chat/completions").await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("allow")),
        (405, "POST")
    );
}

#[tokio::test(start_paused = true)]
async fn the_router_wraps_errors_as_the_real_one_does() {
    let servers = servers().await;
    let (to, path) = (servers.router.addr, "/v1/chat/completions");
    for (wish, status, code) in [
        (400, 400, "decode_bad_request"),
        (404, 404, "decode_not_found"),
        (429, 500, "decode_error"),
        (500, 500, "decode_internal_error"),
        (503, 503, "decode_unavailable"),
    ] {
        let text = format!("sim:status={wish}");
        let answer = post(to, path, chat(&text, false)).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-smg-error-code"), code);
        assert_eq!(answer.json()["error"]["code"], code);
        // Streamed: the worker's status, and an event that is cut short.
        let answer = post(to, path, chat(&text, true)).await;
        assert_eq!(answer.status, wish);
        assert_eq!(answer.header("content-type"), "text/event-stream");
        assert!(answer.body.starts_with("data: {'error': {\"message\":{"));
        assert!(!answer.body.ends_with('}'));
    }
    for body in ["{bad", "{\"model\":\"x\"}"] {
        let answer = post(to, path, body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["code"], "json_parse_error");
    }
    let options = chat("hi", true).replace("\"stream\":true", "\"stream\":false");
    let empty = r#"{"model":"x","messages":[]}"#.to_owned();
    for body in [options, empty] {
        let answer = post(to, path, body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["code"], 400);
    }
    let answer = post(to, path, chat("sim:output=40 sim:abort=2", true)).await;
    assert_eq!((answer.status.as_u16(), answer.whole), (200, false));
}

#[tokio::test(start_paused = true)]
async fn the_routers_page_has_the_real_ones_families() {
    let servers = servers().await;
    let (to, metrics) = (servers.router.addr, servers.router.metrics);
    let page = get(metrics, "/metrics").await;
    assert_eq!(page.header("content-type"), "text/plain");
    assert_eq!(
        families(&page.body),
        real("sglang-router-0.3.2-pd-before-traffic.prom")
    );
    let path = "/v1/chat/completions";
    for text in ["hi", "sim:status=400", "sim:status=503"] {
        post(to, path, chat(text, false)).await;
    }
    let page = get(metrics, "/anything").await;
    assert_eq!(
        families(&page.body),
        real("sglang-router-0.3.2-pd-after-traffic.prom")
    );
    assert_eq!(get(metrics, "/health").await.body, "OK");
}

/// Name, type, and label names of each family on a router's page.
fn families(page: &str) -> BTreeSet<(String, String, BTreeSet<String>)> {
    page.split("\n\n")
        .filter_map(|block| {
            let mut lines = block.lines();
            let (name, kind) = lines.next()?.strip_prefix("# TYPE ")?.split_once(' ')?;
            let labels = lines
                .filter_map(|line| line.split_once('{'))
                .flat_map(|(_, labels)| labels.split("\","))
                .filter_map(|pair| pair.split_once("=\""))
                .map(|(name, _)| name.to_owned())
                .collect();
            Some((name.to_owned(), kind.to_owned(), labels))
        })
        .collect()
}

fn real(name: &str) -> BTreeSet<(String, String, BTreeSet<String>)> {
    let shared = std::env::var("KVGAUGE_SHARED")
        .unwrap_or_else(|_| format!("{}/tests/data", env!("CARGO_MANIFEST_DIR")));
    families(&std::fs::read_to_string(format!("{shared}/expositions/{name}")).unwrap())
}

#[tokio::test(start_paused = true)]
async fn usage_follows_the_requests() {
    let servers = servers().await;
    let decode = servers.decode.addr;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let to = servers.router.addr;
            let body = chat("sim:prompt=100000 sim:output=2000", true);
            tokio::spawn(async move { post(to, "/v1/chat/completions", body).await })
        })
        .collect();
    // The clock is paused: these sleeps take no time, they let the engines' time pass.
    while servers.decode.runner.loads().num_running_reqs < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let full = used(&get(decode, "/metrics").await.body).unwrap();
    assert!((800_000.0..830_000.0).contains(&full), "{full}");
    for call in calls {
        assert!(call.await.unwrap().whole);
    }
    assert_eq!(used(&get(decode, "/metrics").await.body), Some(0.0));
}

#[tokio::test]
async fn a_deployment_runs_on_a_thread_of_its_own_and_ends_with_its_handle() {
    let config = DeploymentConfig::new(MODEL, 1);
    let deployment = tokio::task::spawn_blocking(|| Deployment::start(config).unwrap())
        .await
        .unwrap();
    let load = Load {
        model: MODEL.to_owned(),
        traffic: vec![Traffic {
            rate: Rate::steady(20.0),
            prompt: (1_000, 2_000),
            output: (2, 4),
            dp_rank: None,
            most: 2,
        }],
        seed: 1,
    };
    let stats = deployment.load(deployment.router, load);
    let some = async {
        while stats.completed.load(Ordering::Relaxed) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), some)
        .await
        .expect("the load gets answers");
    assert_eq!(stats.failed.load(Ordering::Relaxed), 0);
    let page = get(deployment.router_metrics, "/").await.body;
    assert!(page.contains("smg_router_requests_total{"));
    let decode = deployment.decode;
    tokio::task::spawn_blocking(move || drop(deployment))
        .await
        .unwrap();
    assert!(tokio::net::TcpStream::connect(decode).await.is_err());
}

#[tokio::test]
async fn without_metrics_a_worker_answers_404_and_serves() {
    let config = EngineConfig {
        metrics: false,
        ..EngineConfig::new(Role::Unified, MODEL)
    };
    let worker = Worker::start(free(), config).await.unwrap();
    for path in ["/metrics", "/metrics/"] {
        let answer = get(worker.addr, path).await;
        assert_eq!(
            (answer.status, &*answer.body),
            (StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#)
        );
    }
    let answer = post(worker.addr, "/v1/chat/completions", chat("hi", false)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        get(worker.addr, "/server_info").await.json()["enable_metrics"],
        false
    );
}

/// As a killed process: its streams break off, its port refuses, and the next one at that port knows
/// nothing of what was before.
#[tokio::test]
async fn a_worker_that_goes_down_is_refused_and_comes_back_fresh() {
    let servers = servers().await;
    let (router, decode) = (servers.router.addr, servers.decode.addr);
    let long = tokio::spawn(post(
        router,
        "/v1/chat/completions",
        chat("sim:prompt=5000 sim:output=9000", true),
    ));
    let gauges = || async move { used(&get(decode, "/metrics").await.body).is_some() };
    eventually(gauges).await;
    servers.decode.runner.set(Condition::Down);
    let broken = long.await.unwrap();
    assert_eq!((broken.status, broken.whole), (StatusCode::OK, false));
    let refused = || async move { tokio::net::TcpStream::connect(decode).await.is_err() };
    eventually(refused).await;
    let ask = || post(router, "/v1/chat/completions", chat("hi", false));
    assert_eq!(ask().await.status, 502);

    servers.decode.runner.set(Condition::Starting);
    let back = || async move { tokio::net::TcpStream::connect(decode).await.is_ok() };
    eventually(back).await;
    assert_eq!(used(&get(decode, "/metrics").await.body), None);
    assert_eq!(ask().await.status, 503);
    servers.decode.runner.set(Condition::Serving);
    assert_eq!(ask().await.status, 200);
}

async fn eventually<F: Future<Output = bool>>(look: impl Fn() -> F) {
    let looked = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looked)
        .await
        .expect("what should happen does not");
}

/// A request that names a data-parallel rank goes there, through the router too.
#[tokio::test]
async fn ranks_have_pools_of_their_own() {
    let mut config = DeploymentConfig::new(MODEL, 1);
    config.decode_engine.dp_ranks = 4;
    let servers = Servers::start(config).await.unwrap();
    let mut body: Value =
        serde_json::from_str(&chat("sim:prompt=50000 sim:output=9000", true)).unwrap();
    body["data_parallel_rank"] = json!(2);
    let call = tokio::spawn(post(
        servers.router.addr,
        "/v1/chat/completions",
        body.to_string(),
    ));
    let runner = servers.decode.runner.clone();
    eventually(|| {
        let held = runner.loads_of_ranks()[2].num_used_tokens;
        async move { held >= 50_000 }
    })
    .await;
    let loads = get(servers.decode.addr, "/v1/loads").await.json();
    let used = |rank: usize| loads["loads"][rank]["num_used_tokens"].as_u64().unwrap();
    assert!(used(2) >= 50_000);
    assert_eq!((used(0), used(1), used(3)), (0, 0, 0));
    assert_eq!(loads["loads"][3]["dp_rank"], 3);
    call.abort();
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind(free()).unwrap();
    let config = DeploymentConfig {
        decode: taken.local_addr().unwrap(),
        ..DeploymentConfig::new(MODEL, 1)
    };
    let error = Deployment::start(config).unwrap_err().to_string();
    assert!(
        error.contains(&taken.local_addr().unwrap().to_string()),
        "{error}"
    );
}
