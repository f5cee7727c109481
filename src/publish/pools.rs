//! `X-KV-Pools`: a list (RFC 9651, 3.1), a member per role, and per model where a role has several.

use super::{millis, write_fraction};
use crate::kv::{PoolKind, RoleState};
use std::fmt::Write as _;

/// Members at most, in the order of [`crate::kv::Role`].
const MOST_MEMBERS: usize = 16;

/// No member begins behind so many bytes: proxies and clients take 4 to 8 KiB of head.
const MOST_BYTES: usize = 2048;

/// Bytes of a model's name that are shown.
const MOST_MODEL_BYTES: usize = 64;

/// The largest integer there is (RFC 9651, 3.3.1); one that is larger would make the whole header
/// unreadable, and is no number of tokens or requests.
const MOST_INTEGER: u64 = 999_999_999_999_999;

/// Places behind the point: a decimal has at most three (RFC 9651, 3.3.2).
const PLACES: usize = 3;

/// The value; `None` where there is no role at all.
pub(super) fn render(states: &[RoleState]) -> Option<String> {
    let mut out = String::with_capacity(160 * states.len().min(MOST_MEMBERS));
    for state in states.iter().take(MOST_MEMBERS) {
        if out.len() > MOST_BYTES {
            break;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        let several = states.iter().filter(|s| s.role == state.role).count() > 1;
        member(&mut out, state, several);
    }
    (!out.is_empty()).then_some(out)
}

fn member(out: &mut String, state: &RoleState, several_models: bool) {
    out.push_str(state.role.as_str());
    if several_models && let Some(model) = &state.model {
        out.push_str(";model=");
        text(out, beginning(model));
    }
    match state.usage {
        Ok(usage) => fraction(out, "usage", Some(usage)),
        Err(why) => {
            let _ = write!(out, ";unknown={why}");
        }
    }
    fraction(out, "max", state.max);
    fraction(out, "fill", state.fill);
    integer(out, "used", state.used);
    integer(out, "capacity", state.capacity);
    if state.kind != PoolKind::Full {
        let _ = write!(out, ";pool={}", state.kind.as_str());
    }
    integer(out, "running", state.running);
    integer(out, "queued", state.queued);
    for (queue, requests) in state.queues.iter() {
        integer(out, queue, requests);
    }
    if state.usage.is_ok()
        && let Some((missing, _)) = state.missing
    {
        // Some engines of the role are not in the value.
        integer(out, "missing", Some(missing as u64));
    }
    integer(out, "age", state.age.map(millis));
}

fn fraction(out: &mut String, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        let _ = write!(out, ";{name}=");
        write_fraction(out, value, PLACES);
    }
}

fn integer(out: &mut String, name: &str, value: Option<u64>) {
    if let Some(value) = value.filter(|value| *value <= MOST_INTEGER) {
        let _ = write!(out, ";{name}={value}");
    }
}

/// Cut between characters.
fn beginning(model: &str) -> &str {
    let mut end = MOST_MODEL_BYTES.min(model.len());
    while !model.is_char_boundary(end) {
        end -= 1;
    }
    &model[..end]
}

/// A string (RFC 9651, 3.3.3), or a display string (3.3.8) where the text is not ASCII.
fn text(out: &mut String, text: &str) {
    if text.bytes().all(|b| (0x20..0x7F).contains(&b)) {
        out.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
    } else {
        out.push_str("%\"");
        for b in text.bytes() {
            if (0x20..0x7F).contains(&b) && b != b'%' && b != b'"' {
                out.push(char::from(b));
            } else {
                let _ = write!(out, "%{b:02x}");
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Role, Unknown};

    #[test]
    fn however_long_the_names_the_header_stays_short() {
        let states: Vec<RoleState> = (0..40)
            .map(|n| {
                let model = format!("{n}{}", "模".repeat(5_000));
                RoleState::unknown(Role::Unified, Some(model.into()), Unknown::Absent)
            })
            .collect();
        let header = render(&states).unwrap();
        assert!(header.len() < 3 * 1024, "{}", header.len());
        assert!(
            header.starts_with("unified;model=%\"0%e6%a8%a1"),
            "{header}"
        );
    }

    #[test]
    fn an_integer_that_no_header_can_hold_is_left_out() {
        let state = RoleState {
            used: Some(MOST_INTEGER),
            capacity: Some(MOST_INTEGER + 1),
            ..RoleState::unknown(Role::Decode, None, Unknown::Absent)
        };
        let header = render(&[state]).unwrap();
        assert_eq!(header, "decode;unknown=absent;used=999999999999999");
    }

    #[test]
    fn model_names_are_strings_or_display_strings() {
        for (name, expected) in [
            ("a/b", r#""a/b""#),
            (r#"q"b\"#, r#""q\"b\\""#),
            ("模", "%\"%e6%a8%a1\""),
        ] {
            let mut out = String::new();
            text(&mut out, name);
            assert_eq!(out, expected);
        }
    }
}
