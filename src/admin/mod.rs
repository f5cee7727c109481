//! The operators' listener. Every endpoint, with one line each, is in [`ROUTES`]; the files of the page
//! for browsers are in [`web`].

mod body;
mod conflicts;
mod gate;
mod gzip;
mod history;
mod hosts;
mod json;
mod live;
mod moment;
mod page;
mod places;
mod requests;
mod server;
mod sharing;
mod short;
mod stall;
mod web;

pub use conflicts::Conflicts;
pub use gate::{Gate, Reading, TokenNews};
pub use live::Live;
pub use server::{Admin, Shared};
pub use sharing::Sharing;

use body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;

/// A handler's answer.
type Answer = Response<Body>;

/// An answer to come.
type Answering = Pin<Box<dyn Future<Output = Answer>>>;

/// One endpoint.
struct Route {
    path: &'static str,
    about: &'static str,
    /// Whether it is for whoever asks, without the token too: probes have none.
    open: bool,
    answer: fn(&Rc<Shared>, &HeaderMap) -> Answering,
}

/// Every endpoint, for GET and HEAD.
const ROUTES: [Route; 8] = [
    Route {
        path: "/metrics",
        about: "router, engines and kvgauge as one Prometheus target",
        open: false,
        answer: |shared, headers| Box::pin(page::metrics(Rc::clone(shared), headers)),
    },
    Route {
        path: "/kv",
        about: "the KV state of every role, as JSON",
        open: false,
        answer: |shared, _| at_once(json::kv(shared)),
    },
    Route {
        path: "/kv/stream",
        about: "what there is to see, each second, as server-sent events",
        open: false,
        answer: |shared, headers| at_once(live::stream(shared, headers)),
    },
    Route {
        path: "/kv/history",
        about: "the last hour, a number each two seconds, as JSON",
        open: false,
        answer: |shared, headers| Box::pin(history::history(Rc::clone(shared), headers)),
    },
    Route {
        path: "/sources",
        about: "every source: state, last error, engine, the gauge chosen for each value",
        open: false,
        answer: |shared, _| Box::pin(json::sources(Rc::clone(shared))),
    },
    Route {
        path: "/healthz",
        about: "200 while the process lives",
        open: true,
        answer: |_, _| at_once(probed(StatusCode::OK, "ok\n")),
    },
    Route {
        path: "/readyz",
        about: "200 while traffic is welcome, 503 while draining",
        open: true,
        answer: |shared, _| {
            at_once(if shared.ready() {
                probed(StatusCode::OK, "ready\n")
            } else {
                probed(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            })
        },
    },
    Route {
        path: "/",
        about: "this list; in a browser, a page that shows all of it",
        open: false,
        answer: |_, _| {
            let head = concat!("kvgauge ", env!("CARGO_PKG_VERSION"), "\n\n");
            let mut list = text(StatusCode::OK, &format!("{head}{}", index()));
            // Whoever names HTML gets another answer.
            let vary = HeaderValue::from_static("accept");
            list.headers_mut().insert(VARY, vary);
            at_once(list)
        },
    },
];

fn index() -> String {
    let mut text = String::new();
    for route in &ROUTES {
        text.push_str(&format!("{:<12} {}\n", route.path, route.about));
    }
    text
}

fn at_once(answer: Answer) -> Answering {
    Box::pin(ready(answer))
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Body::Whole(Full::new(body)));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

fn text(status: StatusCode, text: &str) -> Answer {
    let body = Bytes::copy_from_slice(text.as_bytes());
    answer(status, "text/plain; charset=utf-8", body)
}

/// For a probe, which comes again over another connection: this one need not be kept for it.
fn probed(status: StatusCode, word: &str) -> Answer {
    let mut answer = text(status, word);
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

fn json(value: &serde_json::Value) -> Answer {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    answer(StatusCode::OK, "application/json", body.into())
}
