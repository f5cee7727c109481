//! Whether a message is clearly one message. hyper reads more than RFC 9110 and 9112 allow, and two
//! readers that read it differently could be made to see different requests; what is in doubt is
//! refused here, so that the router and the client never have to guess.

use super::error::{ProxyError, Stage};
use super::headers::{Held, holds_any};
use crate::net::members;
use http::header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Version};

/// The checks of a request's head, but for what hyper checks itself (`Content-Length`, the characters
/// of names and values).
///
/// # Errors
/// The first thing that is in doubt.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), ProxyError> {
    target(request)?;
    host(request)?;
    let held = Held::of(request.headers());
    if held.any(Held::TRANSFER_ENCODING) {
        coding(request.headers())?;
    }
    if held.any(Held::EXPECT) {
        expectation(request.headers())?;
    }
    Ok(())
}

/// Whether an answer's framing is clear: no transfer coding, or `chunked` alone and once, and a
/// length that is one number, however often it stands there. hyper looks at the length only where it
/// reads a body by it, and takes a coding that it does not know for one that ends with the connection.
pub(super) fn is_clear(headers: &HeaderMap) -> bool {
    let (mut is_coded, mut length) = (false, None);
    headers.iter().all(|(name, line)| {
        if *name == TRANSFER_ENCODING {
            !std::mem::replace(&mut is_coded, true) && is_chunked(line)
        } else if *name == CONTENT_LENGTH {
            let mut members = line.as_bytes().split(|b| *b == b',');
            members.all(|member| is_length(member.trim_ascii(), &mut length))
        } else {
            true
        }
    })
}

/// RFC 9110, 8.6: the same number several times is that number.
fn is_length<'a>(member: &'a [u8], length: &mut Option<&'a [u8]>) -> bool {
    match length {
        Some(length) => member == *length,
        None => {
            *length = Some(member);
            !member.is_empty() && member.iter().all(u8::is_ascii_digit)
        }
    }
}

fn is_chunked(line: &HeaderValue) -> bool {
    line.as_bytes().eq_ignore_ascii_case(b"chunked")
}

/// Whether a message has no transfer coding, or `chunked` alone and once (RFC 9112, 6.1). Only that is
/// taken off and put on again by a hop; of any other coding the next one would have to be told.
fn has_clear_coding(headers: &HeaderMap) -> bool {
    if !holds_any(headers, &[TRANSFER_ENCODING]) {
        return true;
    }
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    let clear = lines.next().is_none_or(is_chunked);
    clear && lines.next().is_none()
}

/// Writes a length that stands there several times once, as not everybody reads a list. Whether it
/// had to.
pub(super) fn say_length_once(headers: &mut HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(line) = lines.next() else {
        return false;
    };
    if lines.next().is_none() && !line.as_bytes().contains(&b',') {
        return false;
    }
    let first = line.as_bytes().split(|b| *b == b',').next();
    if let Some(Ok(first)) = first.map(|f| HeaderValue::from_bytes(f.trim_ascii())) {
        headers.insert(CONTENT_LENGTH, first);
    }
    true
}

/// RFC 9112, 3.2: origin form, absolute form, or `*` with OPTIONS. (CONNECT is refused elsewhere.)
fn target<B>(request: &Request<B>) -> Result<(), ProxyError> {
    let uri = request.uri();
    let wrong = if uri.authority().is_some() && uri.scheme().is_none() {
        "the request's target is a host alone, which is for CONNECT only: send a path, which begins with /"
    } else if uri.authority().is_none() && uri.path() == "*" && request.method() != Method::OPTIONS
    {
        "the request's target is *, which is for OPTIONS only: send a path, which begins with /"
    } else if !uri
        .scheme()
        .is_none_or(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS)
    {
        "the request's target has a scheme that is neither http nor https: send a path, which begins with /"
    } else if !uri
        .authority()
        .is_none_or(|a| is_host(a.as_str().as_bytes()))
    {
        "the request's target has an authority that is not a host with an optional port: send the name or address that kvgauge is reached by"
    } else {
        return Ok(());
    };
    Err(ProxyError::refused(Stage::RequestHead, wrong))
}

/// RFC 9112, 3.2: exactly one `Host` in HTTP/1.1; none is well in HTTP/1.0. One that contradicts the
/// authority of an absolute-form target is refused, as two servers could take it for two requests.
fn host<B>(request: &Request<B>) -> Result<(), ProxyError> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let authority = request.uri().authority();
    let wrong = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => "the request has more than one Host header: send one",
        (None, _) if request.version() == Version::HTTP_11 => {
            "the request has no Host header, which HTTP/1.1 requires: send the name or address that kvgauge is reached by"
        }
        (Some(host), None) if !is_host(host.as_bytes()) => {
            "the request's Host header is not a host with an optional port: send the name or address that kvgauge is reached by"
        }
        (Some(host), None)
            if !authority.is_none_or(|a| same_host(a, request.uri().scheme(), host)) =>
        {
            "the request's target and its Host header name different hosts: send one of them, or the same in both"
        }
        _ => return Ok(()),
    };
    Err(ProxyError::refused(Stage::RequestHead, wrong))
}

/// `uri-host [ ":" port ]` (RFC 9110, 7.2; RFC 3986, 3.2.2), and not empty. A comma, which a name might
/// hold by the grammar, is what joins two lines of a header.
fn is_host(text: &[u8]) -> bool {
    let (host, port) = match text.iter().rposition(|b| *b == b':') {
        Some(colon) if !text.ends_with(b"]") => (&text[..colon], &text[colon + 1..]),
        _ => (text, &b""[..]),
    };
    let address = host
        .strip_prefix(b"[")
        .and_then(|rest| rest.strip_suffix(b"]"));
    let host = match address {
        Some(address) => {
            !address.is_empty()
                && address
                    .iter()
                    .all(|b| b.is_ascii_alphanumeric() || b":._~-".contains(b))
        }
        None => {
            !host.is_empty()
                && host
                    .iter()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(b))
        }
    };
    host && is_port(port)
}

/// Digits that make a port, or none (RFC 3986, 3.2.3).
fn is_port(text: &[u8]) -> bool {
    let digits = text.iter().all(u8::is_ascii_digit);
    let number = || str::from_utf8(text).is_ok_and(|port| port.parse::<u16>().is_ok());
    digits && (text.is_empty() || number())
}

/// Without a port it is the scheme's (RFC 9110, 4.2).
fn same_host(authority: &Authority, scheme: Option<&Scheme>, host: &HeaderValue) -> bool {
    let Ok(host) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let usual = match scheme {
        Some(scheme) if *scheme == Scheme::HTTPS => 443,
        _ => 80,
    };
    let port = |a: &Authority| a.port_u16().unwrap_or(usual);
    authority.host().eq_ignore_ascii_case(host.host()) && port(authority) == port(&host)
}

/// RFC 9112, 6.1: a coding that is not understood is 501, as the body can't be passed on as it was meant.
fn coding(headers: &HeaderMap) -> Result<(), ProxyError> {
    if has_clear_coding(headers) {
        return Ok(());
    }
    Err(ProxyError::refused(
        Stage::Unsupported,
        "the request has a Transfer-Encoding other than chunked, once: send the body chunked, or with its length",
    ))
}

/// RFC 9110, 10.1.1: kvgauge meets `100-continue`, and the router is not told of any other.
fn expectation(headers: &HeaderMap) -> Result<(), ProxyError> {
    let met = members(headers, &EXPECT)
        .all(|one| one.is_empty() || one.eq_ignore_ascii_case(b"100-continue"));
    if met {
        return Ok(());
    }
    Err(ProxyError::refused(
        Stage::Expectation,
        "the request expects something other than 100-continue: leave the Expect header out",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_an_optional_port() {
        for good in [
            "k",
            "k.test",
            "K.test:8080",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:8080",
            "a_b",
            "k:",
            "k:65535",
            "k:00080",
            "xn--bcher-kva.test",
            "%41.test",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a,b",
            "a/b",
            "u@k",
            "u:p@k",
            "k:x",
            "k:65536",
            "[::1]:99999",
            "k:80:80",
            "::1",
            "[::1",
            "::1]",
            "[]",
            "[::1]x",
            "[::1]:x",
            "k?",
            "k#",
            "k\\",
            "b\u{fc}cher.test",
            "k\t",
            "[k]:80]",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
