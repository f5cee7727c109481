//! Inference through the simulated router: both halves posted, errors retried and wrapped.

use super::{Backend, ERROR_CODE, State};
use crate::sim::runner::Ticket;
use crate::sim::wire::Body;
use crate::sim::wire::answer::{Answer, error_body, json_response, response};
use crate::sim::wire::ask::{Api, Ask, BadAsk};
use crate::sim::worker::{HttpCount, MAX_BODY, broken, refused_status};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The router's own count of one inference request, from its begin to the end of its answer.
struct Exchange {
    state: Arc<State>,
    endpoint: &'static str,
    began: Instant,
}

impl Exchange {
    fn labels(&self) -> [(&'static str, &str); 5] {
        [
            ("router_type", "http"),
            ("backend_type", "pd"),
            ("connection_mode", "http"),
            ("model", &self.state.model),
            ("endpoint", self.endpoint),
        ]
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.state.shift_active(-1.0);
        let took = self.began.elapsed().as_secs_f64();
        self.state
            .lock()
            .page
            .observe("smg_router_request_duration_seconds", &self.labels(), took);
    }
}

pub(super) async fn infer(
    state: &Arc<State>,
    api: Api,
    request: Request<Incoming>,
) -> Response<Body> {
    let json_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/json"));
    if !json_type {
        return bad_request("Missing Content-Type: application/json header");
    }
    #[allow(clippy::disallowed_methods, reason = "bounded by Limited")]
    let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            let body = Body::Whole("length limit exceeded".into());
            return response(
                StatusCode::PAYLOAD_TOO_LARGE,
                "text/plain; charset=utf-8",
                body,
            );
        }
    };
    let mut ask = match Ask::read(api, &body) {
        Ok(ask) => ask,
        Err(BadAsk::Json(error)) if error.is_data() => {
            return bad_request(&format!(
                "Invalid JSON data: Failed to deserialize the JSON body into the target type: {error}"
            ));
        }
        Err(BadAsk::Json(error)) => {
            return bad_request(&format!(
                "JSON syntax error: Failed to parse the request body as JSON: {error}"
            ));
        }
        Err(error) => return invalid(&error.to_string()),
    };
    if ask.stream_options && !ask.request.stream {
        return invalid("'stream_options' without 'stream' is not allowed.");
    }
    drop(body);
    ask.model.get_or_insert_with(|| "unknown".to_owned());
    let (endpoint, path) = match api {
        Api::Chat => ("chat", "/v1/chat/completions"),
        Api::Completions => ("completions", "/v1/completions"),
        Api::Generate => ("generate", "/generate"),
    };
    state.shift_active(1.0);
    let exchange = Exchange {
        state: Arc::clone(state),
        endpoint,
        began: Instant::now(),
    };
    let streaming = if ask.request.stream { "true" } else { "false" };
    let mut labels = exchange.labels().to_vec();
    labels.push(("streaming", streaming));
    state
        .lock()
        .page
        .add("smg_router_requests_total", &labels, 1.0);
    drop(labels);
    ask.request.room = Some(state.lock().rng.next() >> 1);
    let mut attempt = 1;
    loop {
        match post(state, &ask, path).await {
            Ok(tickets) => {
                state.count_attempt(true);
                return answer(state, ask, tickets, exchange).await;
            }
            Err((status, message)) => {
                let ours = matches!(status.as_u16(), 400 | 404);
                state.count_attempt(ours);
                if ours || attempt == ATTEMPTS {
                    return fail(state, &ask, status, &message, &exchange);
                }
                state.count_for_both("smg_worker_retries_total", endpoint);
                let wait = state.backoff(attempt);
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
        }
    }
}

/// Tries of one request, the first included.
const ATTEMPTS: u32 = 5;

impl State {
    fn backoff(&self, attempt: u32) -> Duration {
        let mut inner = self.lock();
        let millis = 50.0 * 1.5f64.powi(attempt as i32 - 1) * (0.8 + 0.4 * inner.rng.unit());
        let seconds = millis.round() / 1e3;
        let attempt = attempt.to_string();
        inner.page.summarize(
            "smg_worker_retry_backoff_seconds",
            &[("attempt", &attempt)],
            seconds,
        );
        Duration::from_secs_f64(seconds)
    }
}

/// Both halves of a request, and their counts on the engines' pages.
struct Tickets {
    decode: Ticket,
    rest: (Ticket, [HttpCount; 2]),
}

/// Posts to both engines; what the worker would answer if it refuses.
async fn post(state: &State, ask: &Ask, path: &str) -> Result<Tickets, (StatusCode, String)> {
    let mut counts = [&state.prefill, &state.decode]
        .map(|backend| HttpCount::new(backend.runner.clone(), "POST", path));
    let mut refused = |status: StatusCode, message: String| {
        for count in &mut counts {
            count.status = Some(status.as_u16());
        }
        Err((status, message))
    };
    tokio::time::sleep(ask.wishes.delay).await;
    if let Some(model) = &ask.model
        && ![state.model.as_str(), "unknown", "default"].contains(&model.as_str())
    {
        let message = format!("The model `{model}` does not exist.");
        return refused(StatusCode::NOT_FOUND, message);
    }
    if let Some(status) = ask.wishes.status {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return refused(status, "The request asked for this error.".to_owned());
    }
    if ask.wishes.abort == Some(0) {
        return Err((StatusCode::BAD_GATEWAY, "Decode server error".to_owned()));
    }
    let submit = |backend: &Backend| {
        backend
            .runner
            .submit(ask.request)
            .map_err(|refused| (refused_status(refused), refused.to_string()))
    };
    match submit(&state.prefill).and_then(|prefill| Ok((prefill, submit(&state.decode)?))) {
        Ok((prefill, decode)) => {
            for count in &mut counts {
                count.status = Some(200);
            }
            Ok(Tickets {
                decode,
                rest: (prefill, counts),
            })
        }
        Err((status, message)) => refused(status, message),
    }
}

async fn answer(state: &State, ask: Ask, tickets: Tickets, exchange: Exchange) -> Response<Body> {
    let stream = ask.request.stream;
    if ask.wishes.abort.is_some() && !stream {
        return broken();
    }
    let answer = Answer::new(ask, &state.decode.runner.config());
    let mut response = if stream {
        let body = answer.stream(tickets.decode, (tickets.rest, exchange));
        response(StatusCode::OK, "text/event-stream", body)
    } else {
        match answer.whole(tickets.decode).await {
            Some(json) => json_response(StatusCode::OK, json),
            None => router_error(
                StatusCode::BAD_GATEWAY,
                "decode_server_error",
                "Decode server error: the KV transfer failed",
            ),
        }
    };
    response
        .headers_mut()
        .insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    response
}

/// A worker's error, wrapped as the router wraps it.
fn fail(
    state: &State,
    ask: &Ask,
    status: StatusCode,
    message: &str,
    exchange: &Exchange,
) -> Response<Body> {
    let ours = matches!(status.as_u16(), 400 | 404);
    if ours {
        let mut labels = exchange.labels().to_vec();
        labels.push(("error_type", "validation_error"));
        let mut inner = state.lock();
        inner
            .page
            .add("smg_router_request_errors_total", &labels, 1.0);
    } else {
        state.count_for_both("smg_worker_retries_exhausted_total", exchange.endpoint);
    }
    if ask.request.stream {
        // The real router's flaw: the body is rewritten, the worker's content-length kept, so the
        // event is cut short.
        let inner = error_body(status, message);
        let mut event = format!("data: {{'error': {{\"message\":{inner}}}}}\n\n").into_bytes();
        event.truncate(inner.len());
        return response(status, "text/event-stream", Body::Whole(event.into()));
    }
    let (status, code) = match status.as_u16() {
        400 => (status, "decode_bad_request"),
        404 => (status, "decode_not_found"),
        502 => (status, "decode_bad_gateway"),
        503 => (status, "decode_unavailable"),
        500 => (status, "decode_internal_error"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "decode_error"),
    };
    router_error(status, code, message)
}

fn router_error(status: StatusCode, code: &'static str, message: &str) -> Response<Body> {
    #[derive(serde::Serialize)]
    struct Wire<'a> {
        error: Error<'a>,
    }
    #[derive(serde::Serialize)]
    struct Error<'a> {
        r#type: &'a str,
        code: &'a str,
        message: &'a str,
    }
    let body = serde_json::to_string(&Wire {
        error: Error {
            r#type: status.canonical_reason().unwrap_or_default(),
            code,
            message,
        },
    });
    let mut response = json_response(status, body.unwrap_or_default());
    response
        .headers_mut()
        .insert(ERROR_CODE, HeaderValue::from_static(code));
    response
}

/// A body that is no request.
fn bad_request(message: &str) -> Response<Body> {
    refuse(message, &json!("json_parse_error"))
}

/// A request that can't be: here the code is a number.
fn invalid(message: &str) -> Response<Body> {
    refuse(message, &json!(400))
}

fn refuse(message: &str, code: &serde_json::Value) -> Response<Body> {
    json_response(
        StatusCode::BAD_REQUEST,
        json!({"error": {
            "message": message,
            "type": "invalid_request_error",
            "code": code,
        }})
        .to_string(),
    )
}
