//! Offers to switch protocols (RFC 9110, 7.8): what of a request's offer is passed on, whether a 101
//! answers it, and what of the answer's head the client sees.
//!
//! An offer is passed on where taking it can't be misread by anyone: HTTP/1.1, named in `Connection`,
//! and without a body, since the new protocol begins where the request ends. `h2c` is left out
//! (RFC 9113, 3.1): requests that pass in such a tunnel would be seen by nobody.

use super::headers::{holds, lists};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;

/// Not passed on, in any version (`h2c/1`).
const LEFT_OUT: &[u8] = b"h2c";

/// The lines of an `Upgrade` field.
#[derive(Debug)]
pub(super) struct Offer(Vec<HeaderValue>);

/// What an answer says of the switch that was made (101), or is asked for (426).
pub(super) struct Switch {
    connection: HeaderValue,
    upgrade: Offer,
}

// === impl Offer ===

impl Offer {
    /// Whether a request may have one that is passed on. Mostly its body, which is asked for first, tells
    /// that it has not.
    pub(super) fn may_be_in<B: Body>(request: &Request<B>) -> bool {
        request.body().is_end_stream() && holds(request.headers(), &UPGRADE)
    }

    /// Of a client's request: what is to be passed on, if anything.
    pub(super) fn of_client<B: Body>(request: &Request<B>) -> Option<Offer> {
        let headers = request.headers();
        if !Offer::may_be_in(request)
            || request.version() != Version::HTTP_11
            || !lists(headers, &CONNECTION, b"upgrade")
        {
            return None;
        }
        let lines = headers.get_all(UPGRADE).iter().filter_map(without_h2c);
        let offer = Offer(lines.collect());
        let is_empty = offer.protocols().next().is_none();
        (!is_empty).then_some(offer)
    }

    /// Of a request as it is sent.
    pub(super) fn of_sent<B: Body>(request: &Request<B>) -> Option<Offer> {
        Offer::may_be_in(request).then(|| Offer::lines_of(request.headers()))
    }

    /// Of an answer as it was received.
    fn of_answer(headers: &HeaderMap) -> Option<Offer> {
        holds(headers, &UPGRADE).then(|| Offer::lines_of(headers))
    }

    fn lines_of(headers: &HeaderMap) -> Offer {
        Offer(headers.get_all(UPGRADE).iter().cloned().collect())
    }

    /// Puts it on a message.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        for line in self.0 {
            headers.append(UPGRADE, line);
        }
    }

    /// Whether each protocol that the 101 names, and it must name one, was offered.
    pub(super) fn is_answered_by(&self, headers: &HeaderMap) -> bool {
        let Some(answer) = Offer::of_answer(headers) else {
            return false;
        };
        answer.protocols().next().is_some()
            && answer
                .protocols()
                .all(|chosen| self.protocols().any(|p| p.eq_ignore_ascii_case(chosen)))
    }

    fn protocols(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(members)
    }
}

fn members(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let members = line.as_bytes().split(|b| *b == b',');
    members.map(<[u8]>::trim_ascii).filter(|m| !m.is_empty())
}

fn is_left_out(protocol: &[u8]) -> bool {
    let name = protocol.split(|b| *b == b'/').next().unwrap_or(protocol);
    name.trim_ascii().eq_ignore_ascii_case(LEFT_OUT)
}

/// The line as it is, unless something has to be left out of it.
fn without_h2c(line: &HeaderValue) -> Option<HeaderValue> {
    if !members(line).any(is_left_out) {
        return Some(line.clone());
    }
    let kept: Vec<&[u8]> = members(line).filter(|p| !is_left_out(p)).collect();
    if kept.is_empty() {
        return None;
    }
    HeaderValue::from_bytes(&kept.join(&b", "[..])).ok()
}

// === impl Switch ===

impl Switch {
    /// Of an answer that must say it (RFC 9110, 7.8 and 15.5.22).
    pub(super) fn of<B>(response: &Response<B>) -> Option<Switch> {
        let (made, asked) = (
            StatusCode::SWITCHING_PROTOCOLS,
            StatusCode::UPGRADE_REQUIRED,
        );
        if response.status() != made && response.status() != asked {
            return None;
        }
        let headers = response.headers();
        let upgrade = Offer::of_answer(headers)?;
        let lines = headers.get_all(CONNECTION).iter();
        // As the router spells it: some clients compare letter by letter.
        let connection = lines
            .flat_map(members)
            .find(|name| name.eq_ignore_ascii_case(b"upgrade"))
            .and_then(|name| HeaderValue::from_bytes(name).ok())
            .unwrap_or(HeaderValue::from_static("upgrade"));
        Some(Switch {
            connection,
            upgrade,
        })
    }

    /// Puts it back, once what belongs to one hop has been taken off.
    pub(super) fn put_back(self, headers: &mut HeaderMap) {
        self.upgrade.write(headers);
        headers.insert(CONNECTION, self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    fn request(lines: &[(&str, &str)]) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        for (name, value) in lines {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
    }

    fn offered<B: Body>(request: &Request<B>) -> Vec<String> {
        let lines = Offer::of_client(request).map_or(Vec::new(), |offer| offer.0);
        let text = |line: &HeaderValue| line.to_str().unwrap().to_owned();
        lines.iter().map(text).collect()
    }

    #[test]
    fn an_offer_is_passed_on_by_the_rule() {
        for (lines, kept) in [
            (
                &[("connection", "keep-alive, Upgrade"), ("upgrade", "a/1")][..],
                &["a/1"][..],
            ),
            (&[("connection", "close"), ("upgrade", "a")], &[]),
            (&[("upgrade", "a")], &[]),
            (&[("connection", "upgrade")], &[]),
            (&[("connection", "upgrade"), ("upgrade", " , ")], &[]),
            (&[("connection", "upgrade"), ("upgrade", "H2C")], &[]),
            (
                &[("connection", "upgrade"), ("upgrade", "h2c/1 ,WebSocket,b")],
                &["WebSocket, b"],
            ),
            (
                &[
                    ("connection", "upgrade"),
                    ("upgrade", "h2c"),
                    ("upgrade", "a, b"),
                    ("upgrade", "h2cx"),
                ],
                &["a, b", "h2cx"],
            ),
        ] {
            assert_eq!(offered(&request(lines)), kept, "{lines:?}");
        }
    }

    #[test]
    fn an_offer_in_another_version_or_with_a_body_is_none() {
        let lines = [("connection", "upgrade"), ("upgrade", "a")];
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let mut request = request(&lines);
            *request.version_mut() = version;
            assert!(offered(&request).is_empty(), "{version:?}");
        }
        let with_body = request(&lines).map(|_| Full::new(Bytes::from_static(b"x")));
        assert!(offered(&with_body).is_empty());
        assert!(!Offer::may_be_in(&with_body) && Offer::of_sent(&with_body).is_none());
        assert!(Offer::of_sent(&request(&lines)).is_some());
    }

    #[test]
    fn an_answer_names_what_was_offered_and_nothing_else() {
        let mut asked = HeaderMap::new();
        asked.append(UPGRADE, HeaderValue::from_static("websocket, a/1"));
        asked.append(UPGRADE, HeaderValue::from_static("b"));
        let asked = Offer::of_answer(&asked).unwrap();
        for (answer, fits) in [
            (Some("WebSocket"), true),
            (Some("b"), true),
            (Some("a/1, b"), true),
            (Some("a/2"), false),
            (Some("a"), false),
            (Some("b, c"), false),
            (Some(""), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(answer) = answer {
                headers.insert(UPGRADE, HeaderValue::from_static(answer));
            }
            assert_eq!(asked.is_answered_by(&headers), fits, "{answer:?}");
        }
    }
}
