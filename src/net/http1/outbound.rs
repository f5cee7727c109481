//! A request as it is handed to a connection: beside its own fields, lines that are ready to be written.

use super::outgoing::write_field;
use super::scratch;
use http::{HeaderName, HeaderValue, Request};

/// A request, and lines that stand behind its fields.
pub struct Outbound<B> {
    /// The request.
    pub request: Request<B>,
    /// What else its head says. Nothing that says how the body is framed may stand there.
    pub lines: Lines,
}

/// Fields as they are written: for what a proxy adds to every request alike, this costs a copy, where a
/// place in a `HeaderMap` costs much more.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

// === impl Outbound ===

impl<B> From<Request<B>> for Outbound<B> {
    fn from(request: Request<B>) -> Outbound<B> {
        Outbound {
            request,
            lines: Lines::default(),
        }
    }
}

impl<B> Outbound<B> {
    /// The same with another body.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Outbound<C> {
        Outbound {
            request: self.request.map(f),
            lines: self.lines,
        }
    }
}

// === impl Lines ===

impl Lines {
    /// None yet, in room that its thread keeps for it.
    #[must_use]
    pub fn in_kept_room() -> Lines {
        Lines(scratch::text())
    }

    /// Adds a field.
    pub fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        write_field(name, value.as_bytes(), &mut self.0);
    }

    /// Adds lines that were made before.
    pub fn add_all(&mut self, lines: &Lines) {
        self.0.extend_from_slice(&lines.0);
    }

    /// Writes them, and leaves their room to the next ones.
    pub(super) fn write(self, text: &mut Vec<u8>) {
        if self.0.capacity() > 0 {
            text.extend_from_slice(&self.0);
            scratch::give_back(self.0);
        }
    }
}
