//! For the benches and the instruction counts (`benches/`): pieces of the data path that have no public
//! face, each by its outermost function. Nothing else may use this.

use super::client::Client;
use super::hop::{Hop, HopLayer};
use super::usage::{Kind, Reader, TopLevel, is_plain_json, model_of};
use super::worker::Worker;
use crate::config::Settings;
use crate::net::Addresses;
use crate::publish::Stamps;
use crate::telemetry::log::{Log, Usage};
use crate::telemetry::{Meters, Telemetry};
use http::{HeaderMap, HeaderValue};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tower::Layer as _;

/// What rewrites heads from hop to hop, of one connection of a client at `peer`, around `inner`.
pub fn hop<S>(
    settings: Arc<Settings>,
    stamps: Stamps,
    log: &Log,
    telemetry: &Arc<Telemetry>,
    peer: SocketAddr,
    inner: S,
) -> Hop<S> {
    let client = Client::new(peer, &settings);
    let upstream_host = HeaderValue::from_str(&settings.upstream.authority())
        .unwrap_or(HeaderValue::from_static("localhost"));
    let worker = Worker::new(
        settings,
        stamps,
        log.sink(),
        Meters::new(telemetry),
        0,
        Arc::from([Arc::default()]),
        Arc::<Addresses>::default(),
    );
    HopLayer::new(Rc::new(worker), Rc::new(client), upstream_host).layer(inner)
}

/// The model that a request asks for, whose body comes in these frames.
#[must_use]
pub fn asked_model(headers: &HeaderMap, frames: &[&[u8]], carry: usize) -> Option<Box<str>> {
    if !is_plain_json(headers) {
        return None;
    }
    let mut scanner = TopLevel::new(["model"], carry);
    for frame in frames {
        scanner.feed(frame);
    }
    let [model] = scanner.finish();
    model_of(&model)
}

/// Tokens and model that an answer reports, whose body comes in these frames.
#[must_use]
pub fn reported(headers: &HeaderMap, frames: &[&[u8]], carry: usize) -> (Usage, Option<Box<str>>) {
    let mut reader = Reader::for_response(Kind::of(headers), headers, carry);
    for frame in frames {
        reader.feed(frame);
    }
    let found = reader.finish();
    (found.usage, found.model)
}
