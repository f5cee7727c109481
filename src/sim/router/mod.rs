//! A simulated sglang-router 0.3.2 with prefill/decode disaggregation, for where there is no Python:
//! its endpoints, headers, errors and quirks as seen on the real one, and its metrics page.
//!
//! Requests go to the engines in this process, not over HTTP.

mod infer;
mod page;

use super::rng::Rng;
use super::runner::{Condition, Runner};
use super::wire::answer::{json_response, response};
use super::wire::ask::Api;
use super::wire::serve::serve;
use super::wire::{Body, Handle};
use crate::kv::Role;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use infer::infer;
use page::RouterPage;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// A worker that the router knows.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its address as the router shows it.
    pub url: String,
    /// The engine.
    pub runner: Runner,
}

/// The simulated router. Dropping it ends it.
#[derive(Debug)]
pub struct Router {
    /// The `OpenAI` API.
    pub addr: SocketAddr,
    /// The metrics, on every path.
    pub metrics: SocketAddr,
    _handles: [Handle; 2],
}

#[derive(Debug)]
struct State {
    prefill: Backend,
    decode: Backend,
    model: String,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    page: RouterPage,
    rng: Rng,
    order: Rng,
}

const VARY: &str = "origin, access-control-request-method, access-control-request-headers";
const ERROR_CODE: HeaderName = HeaderName::from_static("x-smg-error-code");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

impl Router {
    /// Starts a router over one prefill and one decode engine that hand over to each other.
    ///
    /// # Errors
    /// When an address can't be bound.
    pub async fn start(
        listen: SocketAddr,
        metrics: SocketAddr,
        prefill: Backend,
        decode: Backend,
        seed: u64,
    ) -> io::Result<Router> {
        let state = Arc::new(State {
            model: decode.runner.config().model,
            prefill,
            decode,
            inner: Mutex::new(Inner {
                page: RouterPage::default(),
                rng: Rng::new(seed),
                order: Rng::new(seed ^ 0x0bde),
            }),
        });
        state.begin();
        let api = {
            let state = Arc::clone(&state);
            serve(listen, move |request| handle(Arc::clone(&state), request)).await?
        };
        let page = serve(metrics, move |request: Request<Incoming>| {
            let health = request.uri().path() == "/health";
            let body = if health {
                "OK".to_owned()
            } else {
                state.render()
            };
            async move { response(StatusCode::OK, "text/plain", Body::Whole(body.into())) }
        })
        .await?;
        Ok(Router {
            addr: api.addr,
            metrics: page.addr,
            _handles: [api, page],
        })
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn render(&self) -> String {
        let mut inner = self.lock();
        let Inner { page, order, .. } = &mut *inner;
        for (_, backend) in self.workers() {
            let condition = *backend.runner.condition().borrow();
            let there = !matches!(condition, Condition::Down | Condition::Starting);
            let worker = [("worker", backend.url.as_str())];
            page.set("smg_worker_health", &worker, f64::from(u8::from(there)));
        }
        page.render(order)
    }

    fn workers(&self) -> [(&'static str, &Backend); 2] {
        [("prefill", &self.prefill), ("decode", &self.decode)]
    }

    /// What stands on the page before the first request.
    fn begin(&self) {
        let mut inner = self.lock();
        for (kind, backend) in self.workers() {
            let page = &mut inner.page;
            let kind = ("worker_type", kind);
            page.add(
                "smg_worker_health_checks_total",
                &[kind, ("result", "success")],
                1.0,
            );
            page.set(
                "smg_worker_pool_size",
                &[kind, ("connection_mode", "http"), ("model", &self.model)],
                1.0,
            );
            let worker = [("worker", backend.url.as_str())];
            page.set("smg_worker_cb_state", &worker, 0.0);
            page.set("smg_worker_health", &worker, 1.0);
        }
    }

    /// The client's request id (else correlation id), or a new one.
    fn request_id(&self, path: &str, headers: &HeaderMap) -> HeaderValue {
        let given = [REQUEST_ID, HeaderName::from_static("x-correlation-id")]
            .iter()
            .find_map(|name| headers.get(name).filter(|id| id.to_str().is_ok()).cloned());
        given.unwrap_or_else(|| {
            let prefix = match path {
                "/v1/chat/completions" => "chatcmpl",
                "/v1/completions" => "cmpl",
                "/generate" => "gnt",
                "/v1/responses" => "resp",
                _ => "req",
            };
            let id = format!("{prefix}-{}", self.lock().rng.token(24));
            HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("req"))
        })
    }

    fn count_attempt(&self, ok: bool) {
        let mut inner = self.lock();
        for ((kind, backend), policy) in self.workers().into_iter().zip(["cache_aware", "random"]) {
            let page = &mut inner.page;
            let mode = ("connection_mode", "http");
            let kind = ("worker_type", kind);
            let worker = ("worker", backend.url.as_str());
            page.add(
                "smg_worker_selection_total",
                &[kind, mode, ("model", &self.model), ("policy", policy)],
                1.0,
            );
            let outcome = if ok { "success" } else { "failure" };
            page.add(
                "smg_worker_cb_outcomes_total",
                &[worker, ("outcome", outcome)],
                1.0,
            );
            for (name, mine) in [
                ("smg_worker_cb_consecutive_successes", ok),
                ("smg_worker_cb_consecutive_failures", !ok),
            ] {
                if mine {
                    page.shift(name, &[worker], 1.0);
                } else {
                    page.set(name, &[worker], 0.0);
                }
            }
            if !ok {
                page.add(
                    "smg_worker_errors_total",
                    &[kind, mode, ("error_type", "backend_error")],
                    1.0,
                );
            }
        }
    }

    fn count_for_both(&self, name: &'static str, endpoint: &str) {
        let mut inner = self.lock();
        for (kind, _) in self.workers() {
            let labels = [("worker_type", kind), ("endpoint", endpoint)];
            inner.page.add(name, &labels, 1.0);
        }
    }

    fn shift_active(&self, by: f64) {
        let mut inner = self.lock();
        for (_, backend) in self.workers() {
            let worker = [("worker", backend.url.as_str())];
            inner.page.shift("smg_worker_requests_active", &worker, by);
        }
    }
}

async fn handle(state: Arc<State>, request: Request<Incoming>) -> Response<Body> {
    let began = Instant::now();
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let api = match path.as_str() {
        "/v1/chat/completions" => Some(Api::Chat),
        "/v1/completions" => Some(Api::Completions),
        "/generate" => Some(Api::Generate),
        _ => None,
    };
    if api.is_none() && !KNOWN.contains(&path.as_str()) {
        // Nothing at all: no body, no request id.
        return bare(StatusCode::NOT_FOUND);
    }
    let id = state.request_id(&path, request.headers());
    state
        .lock()
        .page
        .add("smg_http_requests_total", &http(&method, &path), 1.0);
    let mut response = match (api, &method) {
        (Some(api), &Method::POST) => infer(&state, api, request).await,
        (Some(_), _) => not_allowed("POST"),
        (None, &Method::POST) if path == "/flush_cache" => other(&state, &path),
        (None, _) if path == "/flush_cache" => not_allowed("POST"),
        (None, &Method::GET | &Method::HEAD) => other(&state, &path),
        (None, _) => not_allowed("GET,HEAD"),
    };
    let status = response.status().as_u16().to_string();
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.append(header::VARY, HeaderValue::from_static(VARY));
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ] {
        headers.insert(name, HeaderValue::from_static("*"));
    }
    let code = headers.get(ERROR_CODE).and_then(|code| code.to_str().ok());
    let mut inner = state.lock();
    inner.page.add(
        "smg_http_responses_total",
        &[
            ("status_code", &status),
            ("error_code", code.unwrap_or_default()),
        ],
        1.0,
    );
    inner.page.observe(
        "smg_http_request_duration_seconds",
        &http(&method, &path),
        began.elapsed().as_secs_f64(),
    );
    inner.page.set("smg_http_connections_active", &[], 0.0);
    drop(inner);
    response
}

/// Paths besides inference.
const KNOWN: [&str; 10] = [
    "/health",
    "/liveness",
    "/readiness",
    "/health_generate",
    "/workers",
    "/get_loads",
    "/v1/models",
    "/get_server_info",
    "/get_model_info",
    "/flush_cache",
];

fn other(state: &State, path: &str) -> Response<Body> {
    let text = |body: String| {
        let body = Body::Whole(body.into());
        response(StatusCode::OK, "text/plain; charset=utf-8", body)
    };
    let json = |body: Value| json_response(StatusCode::OK, body.to_string());
    match path {
        "/health" | "/liveness" => text("OK".to_owned()),
        "/health_generate" => text("At least one router has healthy workers".to_owned()),
        "/readiness" => json(json!({"status": "ready", "healthy_workers": 2, "total_workers": 2})),
        // The real one sends these two as text, too.
        "/v1/models" => text(
            json!({"object": "list", "data": [
                {"id": state.model, "object": "model", "owned_by": "local"},
            ]})
            .to_string(),
        ),
        "/get_server_info" => text(
            json!({"router_manager": true, "routers_count": 1, "workers_count": 2}).to_string(),
        ),
        "/get_loads" => json(json!({"workers": state.workers().map(|(_, backend)| {
            json!({"worker": backend.url, "load": -1})
        })})),
        "/workers" => json(json!({
            "workers": state.workers().map(|(kind, backend)| worker(kind, backend)),
            "total": 2,
            "stats": {"prefill_count": 1, "decode_count": 1, "regular_count": 0},
        })),
        "/get_model_info" => json(json!({
            "model_path": state.model,
            "tokenizer_path": state.model,
            "is_generation": true,
            "served_model_name": state.model,
            "weight_version": "default",
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
        })),
        "/flush_cache" => {
            for (_, backend) in state.workers() {
                backend.runner.flush_cache();
            }
            json(json!({
                "status": "success",
                "message": "Successfully flushed cache on all 2 HTTP workers",
                "workers_flushed": 2,
                "total_http_workers": 2,
                "total_workers": 2,
            }))
        }
        _ => bare(StatusCode::NOT_FOUND),
    }
}

fn worker(kind: &str, backend: &Backend) -> Value {
    let config = backend.runner.config();
    let mut worker = json!({
        "id": format!("sim-{kind}"),
        "url": backend.url,
        "model_id": config.model,
        "priority": 50,
        "cost": 1.0,
        "worker_type": kind,
        "is_healthy": true,
        "load": 0,
        "connection_mode": "HTTP",
        "metadata": {
            "model_path": config.model,
            "served_model_name": config.model,
            "tp_size": config.ranks.to_string(),
            "dp_size": "1",
            "load_balance_method": "round_robin",
            "disaggregation_mode": kind,
            "model_type": "llama",
            "architectures": "[\"LlamaForCausalLM\"]",
        },
        "disable_health_check": false,
    });
    if config.role == Role::Prefill {
        worker["bootstrap_port"] = json!(8998);
    }
    worker
}

fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = bare(StatusCode::METHOD_NOT_ALLOWED);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn http<'a>(method: &'a Method, path: &'a str) -> [(&'a str, &'a str); 2] {
    [("method", method.as_str()), ("path", path)]
}
