//! For the benches and the instruction counts (`benches/`): pieces of the data path that have no public
//! face, each by its outermost function. Nothing else may use this.

use super::client::Client;
use super::hop::{Hop, HopLayer};
use super::usage::{AskedModel, Kind, Reader};
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
    stamps: &Stamps,
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
    let mut asked = AskedModel::for_request(headers, carry)?;
    for (frame, is_last) in with_last(frames) {
        asked.feed(frame, is_last);
    }
    asked.finish().as_deref().map(Into::into)
}

/// Tokens and model that an answer reports, whose body comes in these frames.
#[must_use]
pub fn reported(headers: &HeaderMap, frames: &[&[u8]], carry: usize) -> (Usage, Option<Box<str>>) {
    let mut reader = Reader::for_response(Kind::of(headers), headers, carry);
    for (frame, is_last) in with_last(frames) {
        reader.feed(frame, is_last);
    }
    let found = reader.finish();
    (found.usage, found.model.as_deref().map(Into::into))
}

/// Frames as a body whose length is known gives them: the last one is seen to be it.
fn with_last<'a>(frames: &'a [&'a [u8]]) -> impl Iterator<Item = (&'a [u8], bool)> {
    let left = (0..frames.len()).rev();
    frames
        .iter()
        .zip(left)
        .map(|(frame, left)| (*frame, left == 0))
}
