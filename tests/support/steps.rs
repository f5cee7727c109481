//! Plays the timed answers of `tests/data/cases`.
//!
//! `*.steps.json` is `{"steps": […]}` of `read_request`, `read_headers`, `send` (text, perhaps
//! `times`), `send_hex`, `sleep_ms`, `repeat` with `steps`, `close` (`fin` or `rst`). `*.http` is
//! sent byte for byte after each request. Steps start again for the next request.

use super::upstream::{Connection, Next};
use serde_json::Value;
use std::io;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    ReadRequest,
    ReadHead,
    Send(Vec<u8>, u64),
    Sleep(Duration),
    Repeat(u64, Vec<Step>),
    Close,
    Reset,
}

/// The steps of a file of `tests/data/cases`.
pub(crate) fn of_case(name: &str) -> Vec<Step> {
    let bytes = super::data::case(name);
    if name.ends_with(".steps.json") {
        let file: Value = serde_json::from_slice(&bytes).unwrap();
        return all(&file["steps"]);
    }
    let closes = super::http::Head::parse(&bytes)
        .all("connection")
        .iter()
        .any(|value| value.eq_ignore_ascii_case(b"close"));
    let mut steps = vec![Step::ReadRequest, Step::Send(bytes, 1)];
    steps.extend(closes.then_some(Step::Close));
    steps
}

fn all(steps: &Value) -> Vec<Step> {
    steps.as_array().unwrap().iter().map(one).collect()
}

fn one(step: &Value) -> Step {
    let field = |name: &str| step.get(name);
    let times = field("times").map_or(1, |n| n.as_u64().unwrap());
    if field("read_request").is_some() {
        Step::ReadRequest
    } else if field("read_headers").is_some() {
        Step::ReadHead
    } else if let Some(text) = field("send") {
        Step::Send(text.as_str().unwrap().as_bytes().to_vec(), times)
    } else if let Some(digits) = field("send_hex") {
        Step::Send(from_hex(digits.as_str().unwrap()), times)
    } else if let Some(time) = field("sleep_ms") {
        Step::Sleep(Duration::from_millis(time.as_u64().unwrap()))
    } else if let Some(count) = field("repeat") {
        Step::Repeat(count.as_u64().unwrap(), all(&step["steps"]))
    } else {
        match field("close").and_then(Value::as_str) {
            Some("rst") => Step::Reset,
            Some(_) => Step::Close,
            None => panic!("an unknown step: {step}"),
        }
    }
}

fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Plays the steps once.
pub(crate) fn play(steps: &[Step], connection: &mut Connection) -> io::Result<Next> {
    for step in steps {
        match step {
            Step::ReadRequest => {
                connection.request()?;
            }
            Step::ReadHead => {
                connection.request_head()?;
            }
            Step::Send(bytes, times) => {
                for _ in 0..*times {
                    connection.send(bytes)?;
                }
            }
            Step::Sleep(time) => connection.pause(*time)?,
            Step::Repeat(count, steps) => {
                for _ in 0..*count {
                    match play(steps, connection)? {
                        Next::Again => {}
                        end => return Ok(end),
                    }
                }
            }
            Step::Close => return Ok(Next::Close),
            Step::Reset => return Ok(Next::Reset),
        }
    }
    Ok(Next::Again)
}

/// All that the steps send, in one piece.
pub(crate) fn sent(steps: &[Step]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps {
        match step {
            Step::Send(piece, times) => (0..*times).for_each(|_| bytes.extend_from_slice(piece)),
            Step::Repeat(count, steps) => (0..*count).for_each(|_| bytes.extend(sent(steps))),
            _ => {}
        }
    }
    bytes
}

/// The body that the steps send in chunks, without the chunks' framing.
pub(crate) fn body(steps: &[Step]) -> Vec<u8> {
    let bytes = sent(steps);
    let head = bytes
        .windows(4)
        .position(|part| part == b"\r\n\r\n")
        .unwrap()
        + 4;
    let mut rest = &bytes[head..];
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|part| part == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend_from_slice(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 2 + size + 2..];
    }
    body
}
