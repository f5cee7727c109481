//! One small completion through the router, so that engines publish their first gauges.

use crate::config::Settings;
use crate::net::{Pool, PoolLimits};
use crate::scrape::{Look, Missed};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tower::Service;

/// For one request and its whole answer.
const LIMIT: Duration = Duration::from_secs(60);

/// `SGLang` writes its gauges every 40 decode steps: a shorter answer could leave none.
const TOKENS: u32 = 64;

/// Models that are asked for one after the other: each may be an engine of its own.
const MOST_MODELS: usize = 8;

/// Bytes of an answer that are read.
const MOST_BYTES: usize = 1024 * 1024;

const PATH: &str = "/v1/chat/completions";

#[derive(Deserialize)]
struct List {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// The models to ask for: the router's, or those that the engines' pages name.
pub(super) fn models(list: Option<&[u8]>, looks: &[Result<Look, Missed>]) -> Vec<String> {
    let list = list.and_then(|json| serde_json::from_slice::<List>(json).ok());
    let mut models: Vec<String> = list.map_or_else(Vec::new, |list| {
        list.data.into_iter().map(|model| model.id).collect()
    });
    if models.is_empty() {
        let pools = looks.iter().flatten().flat_map(|look| &look.reading.pools);
        models.extend(pools.filter_map(|pool| pool.model.as_deref().map(str::to_owned)));
    }
    models.sort();
    models.dedup();
    models.truncate(MOST_MODELS);
    if models.is_empty() {
        models.push("default".to_owned());
    }
    models
}

/// What is about to be sent.
pub(super) fn announcement(settings: &Settings, models: &[String]) -> String {
    let names: Vec<String> = models
        .iter()
        .map(|m| crate::cli::role_line::shown(m))
        .collect();
    format!(
        "warm-up: POST http://{}{PATH}, at most {TOKENS} tokens and {} s, for {}\n",
        settings.upstream.authority(),
        LIMIT.as_secs(),
        names.join(", ")
    )
}

/// Sends it, for each model; what came of it in words.
pub(super) async fn send(settings: &Settings, models: &[String]) -> String {
    let mut said = Vec::new();
    for model in models {
        let start = Instant::now();
        let answer = timeout(LIMIT, one(settings, model)).await;
        let took = start.elapsed().as_millis();
        said.push(match answer {
            Err(_) => format!("no whole answer within {} s", LIMIT.as_secs()),
            Ok(Err(why)) => format!("no answer: {why}"),
            Ok(Ok(StatusCode::OK)) => format!("answered 200 in {took} ms"),
            Ok(Ok(status)) => format!(
                "answered {} in {took} ms: see the router's own log",
                status.as_u16()
            ),
        });
    }
    said.join("\n  ")
}

async fn one(settings: &Settings, model: &str) -> Result<StatusCode, String> {
    let body = json!({
        "model": model,
        "messages": [{"role": "user", "content": "Count from 1 to 40, in words."}],
        "max_tokens": TOKENS,
        "temperature": 0,
    });
    let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(PATH);
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(&settings.upstream.authority());
    headers.insert(HOST, host.map_err(|error| error.to_string())?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let agent = concat!("kvgauge-doctor/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    let mut pool = Pool::new(
        settings.upstream.clone(),
        PoolLimits {
            connect: settings.timeouts.connect,
            idle: settings.upstream_pool.idle,
            max_age: settings.upstream_pool.max_age,
            max_idle: 0,
            header_fields: settings.limits.header_fields,
            header_bytes: settings.limits.header_bytes,
        },
    );
    let answer = pool.call(request).await.map_err(|e| e.to_string())?;
    let status = answer.status();
    // The gauges come while the answer is made, so it is heard out.
    let mut body = answer.into_body();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MOST_BYTES {
            break;
        }
    }
    Ok(status)
}
