//! An engine's HTTP server, as far as routers, clients and Prometheus look at it.

use super::engine::{EngineConfig, Loads, Refused};
use super::runner::{AbortOnDrop, Condition, Runner};
use super::wire::answer::{Answer, error_body, json_response, response};
use super::wire::ask::{Api, Ask};
use super::wire::serve::serve;
use super::wire::{Body, Handle};
use crate::kv::Role;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// The most bytes of a request body: as SGLang's router.
pub(crate) const MAX_BODY: usize = 512 << 20;

/// A simulated engine with its HTTP server. Dropping it ends both.
#[derive(Debug)]
pub struct Worker {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The engine behind it.
    pub runner: Runner,
    _server: AbortOnDrop,
}

impl Worker {
    /// Starts an engine and its server on the current runtime; port 0 is any free one.
    ///
    /// # Errors
    /// When the address can't be bound.
    pub async fn start(listen: SocketAddr, config: EngineConfig) -> io::Result<Worker> {
        let runner = Runner::start(config);
        let first = open(listen, &runner).await?;
        let addr = first.addr;
        Ok(Worker {
            addr,
            _server: AbortOnDrop(tokio::spawn(stand(first, runner.clone()))),
            runner,
        })
    }

    /// Lets every prefill engine hand over to every decode engine. Those without a partner make
    /// their transfers up only if their configuration says so.
    pub fn pair_all(workers: &[Worker]) {
        let of = |role| {
            workers
                .iter()
                .filter(move |worker| worker.runner.config().role == role)
        };
        for prefill in of(Role::Prefill) {
            for decode in of(Role::Decode) {
                prefill.runner.pair(&decode.runner);
            }
        }
    }
}

async fn open(listen: SocketAddr, runner: &Runner) -> io::Result<Handle> {
    let runner = runner.clone();
    serve(listen, move |request| handle(runner.clone(), request)).await
}

/// Keeps a server open while the engine's process is there.
async fn stand(first: Handle, runner: Runner) {
    let addr = first.addr;
    let mut server = Some(first);
    let mut condition = runner.condition();
    loop {
        let down = *condition.borrow_and_update() == Condition::Down;
        if down {
            server = None;
        } else if server.is_none() {
            server = open(addr, &runner).await.ok();
        }
        // Somebody else has the port: perhaps not for long.
        let again = !down && server.is_none();
        tokio::select! {
            changed = condition.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if again => {}
        }
    }
}

/// From one try to listen to the next.
const RETRY: Duration = Duration::from_millis(100);

/// Counts a request on the engine's page from its begin to its end.
pub(crate) struct HttpCount {
    runner: Runner,
    method: String,
    path: String,
    life: u64,
    pub(crate) status: Option<u16>,
}

impl HttpCount {
    pub(crate) fn new(runner: Runner, method: &str, path: &str) -> HttpCount {
        HttpCount {
            life: runner.http_started(method, path),
            runner,
            method: method.to_owned(),
            path: path.to_owned(),
            status: None,
        }
    }
}

impl Drop for HttpCount {
    fn drop(&mut self) {
        self.runner
            .http_ended(self.life, &self.method, &self.path, self.status);
    }
}

async fn handle(runner: Runner, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let mut count = HttpCount::new(runner.clone(), request.method().as_str(), &path);
    let api = match path.as_str() {
        "/v1/chat/completions" => Some(Api::Chat),
        "/v1/completions" => Some(Api::Completions),
        "/generate" => Some(Api::Generate),
        _ => None,
    };
    let mut response = match api {
        Some(api) if request.method() == Method::POST => infer(&runner, api, request, count).await,
        Some(_) => json_response(
            StatusCode::METHOD_NOT_ALLOWED,
            json!({"detail": "Method Not Allowed"}).to_string(),
        ),
        None => {
            if NEEDS_SCHEDULER.contains(&path.as_str()) {
                scheduled(&runner).await;
            }
            let response = other(&runner, request.method(), &path);
            count.status = Some(response.status().as_u16());
            response
        }
    };
    response
        .headers_mut()
        .insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    response
}

/// What the scheduler answers, not the HTTP server by itself.
const NEEDS_SCHEDULER: [&str; 2] = ["/v1/loads", "/health_generate"];

/// Waits until the scheduler does not hang.
async fn scheduled(runner: &Runner) {
    let awake = |condition: &Condition| *condition != Condition::Hung;
    let _ = runner.condition().wait_for(awake).await;
}

/// Everything but inference.
fn other(runner: &Runner, method: &Method, path: &str) -> Response<Body> {
    let config = runner.config();
    let ok = StatusCode::OK;
    match (method, path) {
        (_, "/health" | "/health_generate" | "/ping") => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = ok;
            response
        }
        // `/metrics/anything` is the page too.
        (_, path) if config.metrics && (path == "/metrics" || path.starts_with("/metrics/")) => {
            response(
                ok,
                "text/plain; version=0.0.4; charset=utf-8",
                Body::chunked(runner.page()),
            )
        }
        (_, "/server_info" | "/get_server_info") => json_response(ok, server_info(&config)),
        (_, "/model_info" | "/get_model_info") => json_response(ok, model_info(&config)),
        (_, "/v1/models") => json_response(
            ok,
            json!({"object": "list", "data": [{
                "id": config.model,
                "object": "model",
                "created": 0,
                "owned_by": "sglang",
                "root": config.model,
                "parent": null,
                "max_model_len": config.context_length,
            }]})
            .to_string(),
        ),
        (_, "/v1/loads") => json_response(ok, loads(runner, &config)),
        (_, "/flush_cache") => {
            let (status, text) = if runner.flush_cache() {
                (ok, "Cache flushed.\n")
            } else {
                (StatusCode::BAD_REQUEST, "Requests are running.\n")
            };
            response(
                status,
                "text/plain; charset=utf-8",
                Body::Whole(text.into()),
            )
        }
        _ => json_response(
            StatusCode::NOT_FOUND,
            json!({"detail": "Not Found"}).to_string(),
        ),
    }
}

async fn infer(
    runner: &Runner,
    api: Api,
    request: Request<Incoming>,
    mut count: HttpCount,
) -> Response<Body> {
    let fail = |mut count: HttpCount, status: StatusCode, message: &str| {
        count.status = Some(status.as_u16());
        json_response(status, error_body(status, message))
    };
    #[allow(clippy::disallowed_methods, reason = "bounded by Limited")]
    let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return fail(count, StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let ask = match Ask::read(api, &body) {
        Ok(ask) => ask,
        Err(error) => return fail(count, StatusCode::BAD_REQUEST, &error.to_string()),
    };
    drop(body);
    let config = runner.config();
    if let Some(model) = &ask.model
        && ![config.model.as_str(), "unknown", "default"].contains(&model.as_str())
    {
        let message = format!("The model `{model}` does not exist.");
        return fail(count, StatusCode::NOT_FOUND, &message);
    }
    tokio::time::sleep(ask.wishes.delay).await;
    if let Some(status) = ask.wishes.status {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return fail(count, status, "The request asked for this error.");
    }
    let ticket = match runner.submit(ask.request) {
        Ok(ticket) => ticket,
        Err(refused) => {
            let status = refused_status(refused);
            return fail(count, status, &refused.to_string());
        }
    };
    count.status = Some(200);
    // Before the head: there is nothing to break off but the connection.
    if ask.wishes.abort == Some(0) || (ask.wishes.abort.is_some() && !ask.request.stream) {
        return broken();
    }
    let stream = ask.request.stream;
    let answer = Answer::new(ask, &config);
    if stream {
        let body = answer.stream(ticket, count);
        return response(StatusCode::OK, "text/event-stream; charset=utf-8", body);
    }
    match answer.whole(ticket).await {
        Some(json) => json_response(StatusCode::OK, json),
        None => fail(
            count,
            StatusCode::INTERNAL_SERVER_ERROR,
            "The KV transfer failed: the other side is gone.",
        ),
    }
}

pub(crate) fn refused_status(refused: Refused) -> StatusCode {
    match refused {
        Refused::TooLong { .. } => StatusCode::BAD_REQUEST,
        Refused::QueueFull | Refused::Starting => StatusCode::SERVICE_UNAVAILABLE,
        Refused::Down => StatusCode::BAD_GATEWAY,
    }
}

/// An answer that ends with its head, though its length says otherwise.
pub(crate) fn broken() -> Response<Body> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let _ = sender.try_send(Err(super::wire::body::Broken));
    json_response_stream(Body::Stream(receiver))
}

fn json_response_stream(body: Body) -> Response<Body> {
    response(StatusCode::OK, "application/json", body)
}

fn server_info(config: &EngineConfig) -> String {
    json!({
        "model_path": config.model,
        "tokenizer_path": config.model,
        "served_model_name": config.model,
        "disaggregation_mode": mode(config.role),
        "disaggregation_bootstrap_port": 8998,
        "tp_size": tp_size(config),
        "dp_size": config.dp_ranks.max(1),
        "pp_size": 1,
        "page_size": config.page_size,
        "context_length": config.context_length,
        "load_balance_method": "round_robin",
        "enable_metrics": config.metrics,
        "stream_interval": config.stream_interval,
        "decode_log_interval": config.log_interval,
        "max_running_requests": config.max_running,
        "max_total_num_tokens": config.capacity / config.page_size * config.page_size,
        "version": "0.5.23",
    })
    .to_string()
}

/// With DP attention each data-parallel rank is a tensor-parallel one.
fn tp_size(config: &EngineConfig) -> u32 {
    match config.dp_ranks {
        0 | 1 => config.ranks,
        n => n,
    }
}

fn model_info(config: &EngineConfig) -> String {
    json!({
        "model_path": config.model,
        "tokenizer_path": config.model,
        "is_generation": true,
        "served_model_name": config.model,
        "weight_version": "default",
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    })
    .to_string()
}

fn loads(runner: &Runner, config: &EngineConfig) -> String {
    let timestamp = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64());
    let ranks = runner.loads_of_ranks();
    let ranks: Vec<Value> = (0..)
        .zip(&ranks)
        .map(|(rank, loads)| load(timestamp, rank, loads, config))
        .collect();
    json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "version": "0.5.23",
        "accelerator": null,
        "num_accelerators": tp_size(config),
        "loads": ranks,
    })
    .to_string()
}

fn load(timestamp: f64, dp_rank: u32, loads: &Loads, config: &EngineConfig) -> Value {
    let mut load = json!({
        "timestamp": timestamp,
        "dp_rank": dp_rank,
        "memory": {
            "weight_gb": 61.03,
            "kv_cache_gb": 48.6,
            "graph_gb": 1.37,
            "token_capacity": loads.max_total_num_tokens,
        },
        "disaggregation": {
            "mode": mode(config.role),
            "prefill_bootstrap_queue_reqs": loads.prefill_bootstrap_queue_reqs,
            "prefill_inflight_queue_reqs": loads.prefill_inflight_queue_reqs,
            "decode_prealloc_queue_reqs": loads.decode_prealloc_queue_reqs,
            "decode_transfer_queue_reqs": loads.decode_transfer_queue_reqs,
            "decode_retracted_queue_reqs": loads.decode_retracted_queue_reqs,
        },
        "queues": {
            "waiting": loads.num_waiting_reqs,
            "grammar": 0,
            "paused": 0,
            "retracted": loads.decode_retracted_queue_reqs,
        },
    });
    if let (Value::Object(load), Ok(Value::Object(core))) = (&mut load, serde_json::to_value(loads))
    {
        let queues = |name: &String| name.ends_with("_queue_reqs");
        load.extend(core.into_iter().filter(|(name, _)| !queues(name)));
    }
    load
}

/// The disaggregation mode as SGLang writes it.
fn mode(role: Role) -> &'static str {
    match role {
        Role::Unified => "null",
        role => role.as_str(),
    }
}
