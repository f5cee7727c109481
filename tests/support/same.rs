//! What passes kvgauge untouched: an exchange in front of it, compared with the same one behind it.

use super::http::Head;
use super::tap::Exchange;

/// What kvgauge may take off, put on or change in an answer.
const ANSWER: [&str; 3] = ["x-kv-usage", "x-kv-pools", EXPOSE];
const EXPOSE: &str = "access-control-expose-headers";
/// And in a request.
const REQUEST: [&str; 4] = [
    "x-request-id",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
];
/// What belongs to a hop.
const HOP: [&str; 4] = ["connection", "keep-alive", "transfer-encoding", "te"];

/// Panics, saying what differs, unless both are the same but for the documented fields.
pub(crate) fn check(what: &str, front: &Exchange, back: &Exchange) {
    assert_eq!(
        front.request.start, back.request.start,
        "{what}: request line"
    );
    assert_eq!(
        fields(&front.request, &REQUEST),
        fields(&back.request, &REQUEST),
        "{what}: request fields"
    );
    let (ours, theirs) = (&front.request_body, &back.request_body);
    assert!(
        ours == theirs,
        "{what}: request body:\n{}\nand\n{}",
        String::from_utf8_lossy(ours),
        String::from_utf8_lossy(theirs)
    );
    assert_eq!(front.answer.start, back.answer.start, "{what}: status line");
    let mut allowed = ANSWER.to_vec();
    // An answer that has no id gets the request's.
    if !back.answer.has("x-request-id") {
        allowed.push("x-request-id");
    }
    assert_eq!(
        fields(&front.answer, &allowed),
        fields(&back.answer, &allowed),
        "{what}: answer fields"
    );
    let (ours, theirs) = (&front.body, &back.body);
    assert!(
        ours == theirs,
        "{what}: answer body:\n{}\nand\n{}",
        String::from_utf8_lossy(ours),
        String::from_utf8_lossy(theirs)
    );
    assert_eq!(front.end, back.end, "{what}: the end of the body");
    assert!(
        front.answer.all("x-kv-pools").len() < 2,
        "{what}: X-KV-Pools"
    );
    assert!(
        front.answer.all("x-kv-usage").len() < 2,
        "{what}: X-KV-Usage"
    );
    let (ours, theirs) = (exposed(&front.answer), exposed(&back.answer));
    let cors = front.request.has("origin")
        && back.answer.has("access-control-allow-origin")
        && !theirs.contains(&"*".to_owned());
    let mut expected = theirs;
    if cors {
        expected.extend(["x-kv-usage", "x-kv-pools"].map(String::from));
    }
    assert_eq!(ours, expected, "{what}: what scripts may read");
}

/// The names that scripts in a browser may read.
fn exposed(head: &Head) -> Vec<String> {
    let text = String::from_utf8(head.all(EXPOSE).join(&b","[..])).unwrap();
    let names = text.split(',').map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty()).collect()
}

/// All fields but these, by name; values of one name in their order.
fn fields(head: &Head, but: &[&str]) -> Vec<(String, String)> {
    let mut fields: Vec<_> = head
        .fields
        .iter()
        .map(|(name, value)| {
            (
                name.to_ascii_lowercase(),
                String::from_utf8_lossy(value).into_owned(),
            )
        })
        .filter(|(name, _)| !but.contains(&name.as_str()) && !HOP.contains(&name.as_str()))
        .collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields
}
