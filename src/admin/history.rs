//! `/kv/history`: the last hour, a column a value. Its schema is `docs/live.schema.json`.

use super::gzip::gzip;
use super::moment::timestamp;
use super::{Answer, Shared, page, short};
use crate::exposition::takes_gzip;
use crate::kv::Unknown;
use crate::publish::{History, Mark, Now, Past, RoleHistory, STEP};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::cell::Cell;
use std::rc::Rc;

/// Packed by itself, in pieces: it is larger than other answers.
pub(super) fn history(
    shared: Rc<Shared>,
    headers: &HeaderMap,
) -> impl Future<Output = Answer> + use<> {
    let packed = takes_gzip(page::values(headers, ACCEPT_ENCODING));
    async move {
        let text = render(&shared.chronicle.past(), Now::look());
        let packed = match packed {
            true => gzip(&text).await.ok(),
            false => None,
        };
        let is_packed = packed.is_some();
        let body = packed.unwrap_or_else(|| text.into());
        let mut answer = super::answer(StatusCode::OK, "application/json", body);
        let headers = answer.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

fn render(past: &Past, now: Now) -> Vec<u8> {
    let mut text = serde_json::to_vec(&Whole { past, now }).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The answer. Written straight from the columns: as a tree it would be several megabytes.
struct Whole<'a> {
    past: &'a Past,
    now: Now,
}

struct Role<'a> {
    history: &'a History,
    role: &'a RoleHistory,
}

struct MarkAt<'a> {
    mark: &'a Mark,
    now: Now,
}

/// An array, from an iterator that is run through once.
struct Array<I>(Cell<Option<I>>);

/// An object, from names and values.
struct Object<I>(Cell<Option<I>>);

impl<I: Iterator> Array<I> {
    fn of(items: I) -> Array<I> {
        Array(Cell::new(Some(items)))
    }
}

impl<I: Iterator> Object<I> {
    fn of(members: I) -> Object<I> {
        Object(Cell::new(Some(members)))
    }
}

impl<I: Iterator<Item: Serialize>> Serialize for Array<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for item in self.0.take().into_iter().flatten() {
            seq.serialize_element(&item)?;
        }
        seq.end()
    }
}

impl<V: Serialize, I: Iterator<Item = (&'static str, V)>> Serialize for Object<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.take().into_iter().flatten() {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

/// NaN is null in JSON, as serde_json writes it.
fn columns<'a>(
    columns: impl Iterator<Item = (&'static str, impl Iterator<Item = f32> + 'a)>,
) -> impl Iterator<Item = (&'static str, impl Serialize)> {
    columns.map(|(name, numbers)| (name, Array::of(numbers)))
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Whole { past, now } = *self;
        let history = &past.history;
        let roles = history.roles().iter().map(|role| Role { history, role });
        let marks = past.incidents.marks().map(|mark| MarkAt { mark, now });
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("timestamp", &timestamp(now.unix))?;
        map.serialize_entry("step_s", &STEP.as_secs())?;
        map.serialize_entry("times", &Array::of(history.times(now.unix, now.at)))?;
        map.serialize_entry("roles", &Array::of(roles))?;
        map.serialize_entry("traffic", &Object::of(columns(history.traffic())))?;
        map.serialize_entry("marks", &Array::of(marks))?;
        map.end()
    }
}

impl Serialize for Role<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Role { history, role } = *self;
        let reasons = history.reasons(role).map(|why| why.map(Unknown::as_str));
        let fullest = history.fullest(role).map(|name| name.map(short::name));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", role.role.as_str())?;
        map.serialize_entry("model", &role.model.as_deref().map(short::name))?;
        for (name, numbers) in columns(history.values(role)) {
            map.serialize_entry(name, &numbers)?;
        }
        map.serialize_entry("queues", &Object::of(columns(history.queues(role))))?;
        map.serialize_entry("unknown", &Array::of(reasons))?;
        map.serialize_entry("fullest", &Array::of(fullest))?;
        map.end()
    }
}

impl Serialize for MarkAt<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = (self.now.unix + self.mark.at).saturating_sub(self.now.at);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &time.as_secs())?;
        map.serialize_entry("text", &short::message(&self.mark.text))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{self, RoleState};
    use crate::telemetry::Traffic;
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    #[test]
    fn columns_stand_by_their_names_and_unknown_is_null() {
        let mut past = Past::default();
        let at = Duration::from_secs;
        let state = RoleState {
            usage: Ok(0.25),
            used: Some(2_581_504),
            queues: kv::Queues {
                transfer: Some(3),
                ..kv::Queues::default()
            },
            ..RoleState::unknown(kv::Role::Decode, None, Unknown::Absent)
        };
        let fullest = |_: &RoleState| Some("rank 2".to_owned());
        past.history
            .note(at(100), &[], fullest, &Traffic::default());
        past.history
            .note(at(102), &[state], fullest, &Traffic::default());
        let now = Now {
            at: at(103),
            instant: Instant::now(),
            unix: at(1_764_547_000),
        };
        let said: Value = serde_json::from_slice(&render(&past, now)).unwrap();
        assert_eq!(said["timestamp"], "2025-11-30T23:56:40.000Z");
        assert_eq!(said["times"], json!([1_764_546_997, 1_764_546_999]));
        let role = &said["roles"][0];
        assert_eq!(role["usage"], json!([null, 0.25]));
        assert_eq!(role["used"], json!([null, 2_581_504.0]));
        assert_eq!(role["fill"], json!([null, null]));
        assert_eq!(role["queues"], json!({"transfer": [null, 3.0]}));
        assert_eq!(role["unknown"], json!(["not_read", null]));
        assert_eq!(role["fullest"], json!([null, "rank 2"]));
        assert_eq!(said["traffic"]["ttft_p99_ms"], json!([null, null]));
        assert_eq!(said["marks"], json!([]));
    }
}
