//! The operators' listener. Every endpoint, with one line each, is in [`ROUTES`].

mod conflicts;
mod json;
mod page;
mod server;
mod stall;

pub use conflicts::Conflicts;
pub use server::{Admin, Shared};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

/// A handler's answer.
struct Answer {
    status: StatusCode,
    content_type: HeaderValue,
    body: Bytes,
}

/// One endpoint.
struct Route {
    path: &'static str,
    about: &'static str,
    answer: fn(&Shared) -> Answer,
}

/// Every endpoint, for GET and HEAD.
const ROUTES: [Route; 6] = [
    Route {
        path: "/metrics",
        about: "router, engines and kvgauge as one Prometheus target",
        answer: page::metrics,
    },
    Route {
        path: "/kv",
        about: "the KV state of every role, as JSON",
        answer: json::kv,
    },
    Route {
        path: "/sources",
        about: "every source: state, last error, engine, the gauge chosen for each value",
        answer: json::sources,
    },
    Route {
        path: "/healthz",
        about: "200 while the process lives",
        answer: |_| Answer::text(StatusCode::OK, "ok\n"),
    },
    Route {
        path: "/readyz",
        about: "200 while traffic is welcome, 503 while draining",
        answer: |shared| {
            if shared.ready() {
                Answer::text(StatusCode::OK, "ready\n")
            } else {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
        },
    },
    Route {
        path: "/",
        about: "this list",
        answer: |_| {
            let head = concat!("kvgauge ", env!("CARGO_PKG_VERSION"), "\n\n");
            Answer::text(StatusCode::OK, &format!("{head}{}", index()))
        },
    },
];

fn index() -> String {
    let mut text = String::new();
    for route in &ROUTES {
        text.push_str(&format!("{:<10} {}\n", route.path, route.about));
    }
    text
}

impl Answer {
    fn text(status: StatusCode, text: &str) -> Answer {
        Answer {
            status,
            content_type: HeaderValue::from_static("text/plain; charset=utf-8"),
            body: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn json(value: &serde_json::Value) -> Answer {
        let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
        body.push(b'\n');
        Answer {
            status: StatusCode::OK,
            content_type: HeaderValue::from_static("application/json"),
            body: body.into(),
        }
    }
}
