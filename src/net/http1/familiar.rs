//! Heads like those before. A server says the same fields in the same order, answer after answer, and
//! most of them with the same values, so a thread keeps the shapes of a few heads: one that has such a
//! shape to the byte needs no parser, and none of its names and old values is looked at twice.
//!
//! What differs in anything but its values is not for this module, nor is what may be wrong.

use super::head::{Head, Limits, STAMPED_FIELDS, Says};
use super::scratch;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode, Version, response};
use httparse::Header;
use memchr::memchr;
use std::cell::RefCell;

/// Shapes that a thread keeps, each of so many fields and bytes at most.
const SHAPES: usize = 4;
const MOST_FIELDS: usize = 24;
const MOST_BYTES: usize = 2 << 10;

/// One head in so many is learnt where all shapes are taken, and one new value of a field: what never comes
/// twice would be learnt in vain each time.
const PATIENCE: u8 = 16;

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known::new()) };
}

struct Known {
    /// Those met more often tend to the front.
    shapes: Vec<Shape>,
    /// Heads that had none of them.
    strange: u8,
}

struct Shape {
    /// The first line, with its end.
    line: Box<[u8]>,
    status: StatusCode,
    version: Version,
    fields: Vec<Field>,
}

struct Field {
    name: HeaderName,
    /// It says something of the body.
    frames: bool,
    /// A whole line, with its end, and where its value begins.
    line: Vec<u8>,
    from: usize,
    /// In memory of its own.
    value: HeaderValue,
    /// Lines that had another value since.
    others: u8,
}

/// Where a value stands in a head, and its length. Without one it is the value that is known.
type Place = (usize, usize);

/// Reads a head from the beginning of what came, where it is whole, right and of a known shape. `fields`
/// is room for its fields.
pub(super) fn read(came: &[u8], limits: &Limits, fields: &mut HeaderMap) -> Option<Head> {
    KNOWN.with_borrow_mut(|known| known.read(came, limits, fields))
}

/// Takes note of a head whose reason is the usual one.
pub(super) fn learn(head: &[u8], fields: &[Header<'_>], parts: &response::Parts) {
    KNOWN.with_borrow_mut(|known| known.learn(head, fields, parts));
}

// === impl Known ===

impl Known {
    const fn new() -> Known {
        Known {
            shapes: Vec::new(),
            strange: 0,
        }
    }

    fn read(&mut self, came: &[u8], limits: &Limits, fields: &mut HeaderMap) -> Option<Head> {
        let mut shapes = self.shapes.iter_mut().enumerate();
        let (at, head) = shapes.find_map(|(at, shape)| {
            let head = shape.read(came, limits, fields)?;
            Some((at, head))
        })?;
        if at > 0 {
            self.shapes.swap(at, at - 1);
        }
        Some(head)
    }

    fn learn(&mut self, head: &[u8], fields: &[Header<'_>], parts: &response::Parts) {
        let is_full = self.shapes.len() >= SHAPES;
        if is_full {
            self.strange = (self.strange + 1) % PATIENCE;
            if self.strange != 0 {
                return;
            }
        }
        if let Some(shape) = Shape::of(head, fields, parts) {
            if is_full {
                self.shapes.pop();
            }
            self.shapes.push(shape);
        }
    }
}

// === impl Shape ===

impl Shape {
    fn of(head: &[u8], fields: &[Header<'_>], parts: &response::Parts) -> Option<Shape> {
        if head.len() > MOST_BYTES || fields.len() > MOST_FIELDS {
            return None;
        }
        let line_end = memchr(b'\n', head)?;
        let (line, mut rest) = head.split_at_checked(line_end + 1)?;
        // Empty lines may stand before the first.
        if !line.starts_with(b"HTTP/") || !line.ends_with(b"\r\n") {
            return None;
        }
        let mut found = Vec::with_capacity(fields.len());
        for field in fields {
            let line = [field.name.as_bytes(), b": ", field.value, b"\r\n"].concat();
            rest = rest.strip_prefix(&*line)?;
            if !is_plain(field.value) {
                return None;
            }
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            found.push(Field {
                frames: Says::heeds(&name),
                name,
                line,
                from: field.name.len() + 2,
                value: HeaderValue::from_bytes(field.value).ok()?,
                others: 0,
            });
        }
        (rest == b"\r\n").then(|| Shape {
            line: line.into(),
            status: parts.status,
            version: parts.version,
            fields: found,
        })
    }

    fn read(&mut self, came: &[u8], limits: &Limits, fields: &mut HeaderMap) -> Option<Head> {
        let mut places = [Place::default(); MOST_FIELDS];
        let length = self.find(came, &mut places)?;
        if self.fields.len() > limits.fields || length > limits.head_bytes {
            return None;
        }
        let head = came.get(..length)?;
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = self.status;
        parts.version = self.version;
        let mut says = Says::default();
        let mut copy = None;
        if !fields.is_empty() {
            fields.clear();
        }
        fields.reserve(self.fields.len() + STAMPED_FIELDS);
        for (field, (from, length)) in self.fields.iter_mut().zip(places) {
            let value = if length == 0 {
                field.value.clone()
            } else {
                let copy = copy.get_or_insert_with(|| scratch::passing(head).freeze());
                let value = copy.slice(from..from + length);
                let value = HeaderValue::from_maybe_shared(value).ok()?;
                field.meet(&value);
                value
            };
            if field.frames {
                says.take(&field.name, value.as_bytes());
            }
            fields.append(field.name.clone(), value);
        }
        parts.headers = std::mem::take(fields);
        Some(Head {
            length,
            parts,
            says,
        })
    }

    /// The head's length, where it has this shape.
    fn find(&self, came: &[u8], places: &mut [Place; MOST_FIELDS]) -> Option<usize> {
        let mut rest = came.strip_prefix(&*self.line)?;
        for (field, place) in self.fields.iter().zip(places) {
            if let Some(behind) = rest.strip_prefix(&*field.line) {
                rest = behind;
                continue;
            }
            let value = rest.strip_prefix(field.line.get(..field.from)?)?;
            let length = memchr(b'\r', value)?;
            let (here, behind) = value.split_at_checked(length)?;
            if !is_plain(here) {
                return None;
            }
            *place = (came.len() - value.len(), length);
            rest = behind.strip_prefix(b"\r\n")?;
        }
        let behind = rest.strip_prefix(b"\r\n")?;
        Some(came.len() - behind.len())
    }
}

/// Whether it has a beginning and an end, which are no blanks.
fn is_plain(value: &[u8]) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte > b' ');
    is_edge(value.first()) && is_edge(value.last())
}

// === impl Field ===

impl Field {
    /// Another value than the known one has come.
    fn meet(&mut self, value: &HeaderValue) {
        self.others = (self.others + 1) % PATIENCE;
        if self.others == 0
            && let Ok(own) = HeaderValue::from_bytes(value.as_bytes())
        {
            self.line.truncate(self.from);
            self.line.extend_from_slice(value.as_bytes());
            self.line.extend_from_slice(b"\r\n");
            self.value = own;
        }
    }
}
