//! Which form of a page, and which coding of it, a client takes: `Accept` and `Accept-Encoding`
//! (RFC 9110, 12.5.1 and 12.5.3).
//!
//! Every form that can be written has the weight of the most specific range that fits it; 0 rules it
//! out. The highest weight wins. At equal weights a form that a range names goes before one that only
//! `text/*`, `application/*` or `*/*` allows, then the client's order counts, then classic text goes
//! first: who takes anything gets what every reader takes. Protobuf is never written.
//!
//! Where the practice of the clients and servers in use (Prometheus, prometheus/common,
//! `client_python`) leaves room:
//! - `application/openmetrics-text` without a version is 1.0.0, as in `client_python` (Go says 0.0.1,
//!   which is the same text); `text/plain` without one is 0.0.4.
//! - A range with another version or charset fits nothing. Other parameters are passed over.
//! - `escaping` means nothing for 0.0.4 and 0.0.1; an unknown one counts as none.
//! - A range with a weight that is none is passed over as a whole.

use super::{Escaping, Format, Version};
use std::borrow::Cow;
use std::cmp::Reverse;

/// Elements of a list header that are looked at; what stands behind is not read. Real ones have 7.
const MOST_ELEMENTS: usize = 64;

/// Every form that can be written; of those that are equally welcome the first is taken.
const OFFERS: [Format; 12] = [
    Format::CLASSIC,
    Format::OPEN_METRICS,
    offer(Version::OpenMetrics100, Escaping::AllowUtf8),
    offer(Version::OpenMetrics100, Escaping::Underscores),
    offer(Version::OpenMetrics100, Escaping::Dots),
    offer(Version::OpenMetrics100, Escaping::Values),
    Format {
        version: Version::OpenMetrics001,
        escaping: None,
    },
    Format {
        version: Version::Text100,
        escaping: None,
    },
    offer(Version::Text100, Escaping::AllowUtf8),
    offer(Version::Text100, Escaping::Underscores),
    offer(Version::Text100, Escaping::Dots),
    offer(Version::Text100, Escaping::Values),
];

const fn offer(version: Version, escaping: Escaping) -> Format {
    Format {
        version,
        escaping: Some(escaping),
    }
}

impl Format {
    /// The form for a client that sends these values of `Accept` (one for each line, in order).
    /// [`Format::CLASSIC`] where there is none, or nothing that can be written is welcome: better a
    /// page than a 406.
    #[must_use]
    pub fn negotiate<'a>(accept: impl IntoIterator<Item = &'a [u8]>) -> Format {
        let ranges: Vec<Range<'_>> = elements(accept).filter_map(Range::read).collect();
        let welcome = OFFERS.into_iter().filter_map(|offer| {
            let fits = ranges.iter().enumerate().filter(|(_, r)| r.fits(offer));
            // Of equally specific ones the first.
            let (at, range) = fits.max_by_key(|(at, r)| (r.specificity(), Reverse(*at)))?;
            let rank = (range.weight, range.media.level(), Reverse(at));
            (range.weight > 0).then_some((offer, rank))
        });
        // The first of the highest; `max_by_key` would take the last.
        let best = welcome.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map_or(Format::CLASSIC, |(offer, _)| offer)
    }
}

/// Whether a client that sends these values of `Accept-Encoding` (one for each line) is best sent
/// gzip. Without the header it is not: a client may then take anything, but few that can say nothing.
/// Of gzip and no coding with equal weights it is gzip.
#[must_use]
pub fn takes_gzip<'a>(accept_encoding: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let (mut gzip, mut identity, mut others) = (None, None, None);
    for element in elements(accept_encoding) {
        let mut parts = split(element, b';');
        let Some(coding) = parts.next() else { continue };
        let place =
            if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
                &mut gzip
            } else if coding.eq_ignore_ascii_case(b"identity") {
                &mut identity
            } else if coding == b"*" {
                &mut others
            } else {
                continue;
            };
        let mut weight = Some(FULL);
        for (name, value) in parts.filter_map(parameter) {
            if name.eq_ignore_ascii_case(b"q") {
                weight = read_weight(value);
            }
        }
        if let Some(weight) = weight {
            place.get_or_insert(weight);
        }
    }
    let gzip = gzip.or(others).unwrap_or(0);
    gzip > 0 && gzip >= identity.or(others).unwrap_or(0)
}

/// What a media range stands for, as far as it can be served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    All,
    AllText,
    AllApplication,
    Plain,
    OpenMetrics,
}

/// A media range with its parameters.
struct Range<'a> {
    media: Media,
    version: Option<Cow<'a, [u8]>>,
    escaping: Option<Escaping>,
    /// In thousandths.
    weight: u16,
}

const FULL: u16 = 1000;

// === impl Media ===

impl Media {
    fn read(text: &[u8]) -> Option<Media> {
        const KNOWN: [(&[u8], Media); 5] = [
            (b"*/*", Media::All),
            (b"text/*", Media::AllText),
            (b"application/*", Media::AllApplication),
            (b"text/plain", Media::Plain),
            (b"application/openmetrics-text", Media::OpenMetrics),
        ];
        let known = |(name, _): &&(&[u8], Media)| text.eq_ignore_ascii_case(name);
        KNOWN.iter().find(known).map(|(_, media)| *media)
    }

    fn fits(self, format: Format) -> bool {
        match self {
            Media::All => true,
            Media::AllText | Media::Plain => !format.is_open_metrics(),
            Media::AllApplication | Media::OpenMetrics => format.is_open_metrics(),
        }
    }

    fn level(self) -> u8 {
        match self {
            Media::All => 0,
            Media::AllText | Media::AllApplication => 1,
            Media::Plain | Media::OpenMetrics => 2,
        }
    }
}

// === impl Range ===

impl<'a> Range<'a> {
    /// `None` for a range that fits nothing that can be written, or that is malformed.
    fn read(element: &'a [u8]) -> Option<Range<'a>> {
        let mut parts = split(element, b';');
        let mut range = Range {
            media: Media::read(parts.next()?)?,
            version: None,
            escaping: None,
            weight: FULL,
        };
        for (name, value) in parts.filter_map(parameter) {
            if name.eq_ignore_ascii_case(b"q") {
                range.weight = read_weight(value)?;
            } else if name.eq_ignore_ascii_case(b"version") {
                range.version = Some(unquoted(value)?);
            } else if name.eq_ignore_ascii_case(b"escaping") {
                range.escaping = read_escaping(&unquoted(value)?);
            } else if name.eq_ignore_ascii_case(b"charset")
                && !unquoted(value)?.eq_ignore_ascii_case(b"utf-8")
            {
                return None;
            }
        }
        Some(range)
    }

    fn fits(&self, format: Format) -> bool {
        let (number, escapes): (&[u8], bool) = match format.version {
            Version::Text004 => (b"0.0.4", false),
            Version::OpenMetrics001 => (b"0.0.1", false),
            Version::Text100 | Version::OpenMetrics100 => (b"1.0.0", true),
        };
        self.media.fits(format)
            && self.version.as_ref().is_none_or(|v| **v == *number)
            && (!escapes || self.escaping.is_none() || self.escaping == format.escaping)
    }

    fn specificity(&self) -> (u8, bool, bool) {
        (
            self.media.level(),
            self.version.is_some(),
            self.escaping.is_some(),
        )
    }
}

fn read_escaping(text: &[u8]) -> Option<Escaping> {
    const KNOWN: [(&[u8], Escaping); 4] = [
        (b"allow-utf-8", Escaping::AllowUtf8),
        (b"underscores", Escaping::Underscores),
        (b"dots", Escaping::Dots),
        (b"values", Escaping::Values),
    ];
    let known = |(name, _): &&(&[u8], Escaping)| text.eq_ignore_ascii_case(name);
    KNOWN.iter().find(known).map(|(_, escaping)| *escaping)
}

/// A weight in thousandths: at most 1, with at most three places.
fn read_weight(text: &[u8]) -> Option<u16> {
    let (whole, places) = match text {
        [whole] | [whole, b'.'] => (*whole, &[][..]),
        [whole, b'.', places @ ..] if places.len() <= 3 => (*whole, places),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => FULL,
        _ => return None,
    };
    for (place, unit) in places.iter().zip([100, 10, 1]) {
        weight += u16::from(place.is_ascii_digit().then(|| place - b'0')?) * unit;
    }
    (weight <= FULL).then_some(weight)
}

// === lists, parameters, quotes ===

/// The elements of all lines of a list header.
fn elements<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    lines
        .into_iter()
        .flat_map(|line| split(line, b','))
        .take(MOST_ELEMENTS)
}

/// The parts between the separators that stand outside quotes, without the blanks around them. A
/// quote that does not end goes to the end of the text.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = text.iter().position(|b| match *b {
            _ if escaped => {
                escaped = false;
                false
            }
            b'\\' if quoted => {
                escaped = true;
                false
            }
            b'"' => {
                quoted = !quoted;
                false
            }
            b => b == separator && !quoted,
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(text[..end.unwrap_or(text.len())].trim_ascii())
    })
}

/// Name and value of a parameter, the value as it stands.
fn parameter(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = part.iter().position(|b| *b == b'=')?;
    Some((part[..at].trim_ascii(), part[at + 1..].trim_ascii()))
}

/// A value without its quotes. `None` where they do not close.
fn unquoted(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(inside) = value.strip_prefix(b"\"") else {
        return Some(Cow::Borrowed(value));
    };
    let inside = inside.strip_suffix(b"\"")?;
    if !inside.contains(&b'\\') {
        return Some(Cow::Borrowed(inside));
    }
    let mut text = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(b) = bytes.next() {
        text.push(if *b == b'\\' { *bytes.next()? } else { *b });
    }
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    const OPEN_METRICS_001: &str = "application/openmetrics-text; version=0.0.1; charset=utf-8";

    fn chosen(accept: &[&str]) -> &'static str {
        Format::negotiate(accept.iter().map(|line| line.as_bytes())).content_type()
    }

    /// What real clients send, and the content type of the answer. Only Prometheus 2.42 is run for
    /// real, in `tests/real_prometheus.rs`; the others are strings from the clients' sources or from
    /// records of requests.
    #[test]
    fn real_clients_get_what_they_like_best() {
        for (who, accept, expected) in [
            ("curl, wget", "*/*", CLASSIC),
            (
                "Prometheus 2.0 to 2.4; vmagent; netdata",
                "text/plain;version=0.0.4;q=1,*/*;q=0.1",
                CLASSIC,
            ),
            (
                "Prometheus 2.5 to 2.33; Grafana Agent of that time",
                "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OPEN_METRICS_001,
            ),
            (
                "Prometheus 2.34 to 2.48 (2.42 is the one that is run); Datadog agent 7.46",
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OPEN_METRICS,
            ),
            (
                "Prometheus 2.40 to 2.48 with native histograms",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OPEN_METRICS,
            ),
            (
                "Prometheus 2.49 and later; OpenTelemetry collector's prometheusreceiver and Grafana Alloy built on it",
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OPEN_METRICS,
            ),
            (
                "Prometheus 2.49 and later with native histograms",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,application/openmetrics-text;version=0.0.1;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OPEN_METRICS,
            ),
            (
                "Prometheus 3",
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            ),
            (
                "Prometheus 3 with native histograms",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            ),
            (
                "Prometheus 3 with metric_name_validation_scheme: legacy",
                "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=underscores;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
            ),
            (
                "Prometheus 3 with native histograms and escaping with dots",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=dots;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=dots;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=dots",
            ),
            (
                "Prometheus 3 with scrape_protocols that begin with PrometheusText1.0.0",
                "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.3",
                "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            ),
            (
                "Telegraf",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
                CLASSIC,
            ),
            ("Datadog agent", "text/plain", CLASSIC),
            (
                "Datadog agent with use_latest_spec",
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1",
                OPEN_METRICS,
            ),
            (
                "Prometheus before 1.0",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3,application/json;schema=\"prometheus/telemetry\";version=0.0.2;q=0.2,*/*;q=0.1",
                CLASSIC,
            ),
            (
                "kube-apiserver's tests",
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                CLASSIC,
            ),
            (
                "Firefox",
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
                CLASSIC,
            ),
            (
                "Chrome",
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
                CLASSIC,
            ),
            (
                "Java's HttpURLConnection",
                "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
                CLASSIC,
            ),
            ("a client that wants JSON", "application/json", CLASSIC),
        ] {
            assert_eq!(chosen(&[accept]), expected, "{who}");
        }
        assert_eq!(chosen(&[]), CLASSIC, "no Accept at all");
    }

    #[test]
    fn weights_and_order() {
        for (accept, expected) in [
            // The higher weight, wherever it stands.
            (
                "text/plain;q=0.4,application/openmetrics-text;q=0.5",
                OPEN_METRICS,
            ),
            (
                "application/openmetrics-text;q=0.4,text/plain;q=0.5",
                CLASSIC,
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.1,application/openmetrics-text;version=0.0.1",
                OPEN_METRICS_001,
            ),
            // Equal ones: as the client lists them; what is named before what is only allowed.
            ("text/plain,application/openmetrics-text", CLASSIC),
            ("application/openmetrics-text,text/plain", OPEN_METRICS),
            ("*/*,application/openmetrics-text", OPEN_METRICS),
            ("text/*,application/openmetrics-text", OPEN_METRICS),
            ("text/*,*/*", CLASSIC),
            // Parameter order does not matter (RFC 9110, 12.4.2).
            (
                "text/plain;q=0.4,application/openmetrics-text;q=0.5;version=0.0.1",
                OPEN_METRICS_001,
            ),
            // A weight of 0 rules out.
            ("application/openmetrics-text;q=0,*/*", CLASSIC),
            ("text/plain;q=0,*/*", OPEN_METRICS),
            ("text/*;q=0,*/*;q=0.1", OPEN_METRICS),
            (
                "application/openmetrics-text;version=1.0.0;q=0,application/openmetrics-text",
                OPEN_METRICS_001,
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.000,application/openmetrics-text;version=0.0.1;q=0.001",
                OPEN_METRICS_001,
            ),
            (
                "text/plain;version=0.0.4;q=0,text/plain",
                "text/plain; version=1.0.0; charset=utf-8",
            ),
            // The more specific range has the say.
            (
                "text/plain;q=0.9,text/plain;version=0.0.4;q=0.1,application/openmetrics-text;q=0.5",
                "text/plain; version=1.0.0; charset=utf-8",
            ),
            ("application/openmetrics-text;q=0.2,*/*;q=0.9", CLASSIC),
            ("application/*,text/plain;q=0.9", OPEN_METRICS),
            // Nothing is welcome.
            ("*/*;q=0", CLASSIC),
            ("application/openmetrics-text;q=0", CLASSIC),
            ("", CLASSIC),
            (",, ,", CLASSIC),
            // A weight that is none: the range is passed over.
            (
                "application/openmetrics-text;q=1.001,text/plain;q=0.1",
                CLASSIC,
            ),
            ("application/openmetrics-text;q=2", CLASSIC),
            ("application/openmetrics-text;q=-1", CLASSIC),
            ("application/openmetrics-text;q=0.1234", CLASSIC),
            ("application/openmetrics-text;q=.5", CLASSIC),
            ("application/openmetrics-text;q=", CLASSIC),
            ("application/openmetrics-text;q=\"0.5\"", CLASSIC),
            ("application/openmetrics-text;q=1.", OPEN_METRICS),
            ("application/openmetrics-text;q=0.", CLASSIC),
            // Fuzzing found that the second dot was taken for a digit below 0, which panics in debug.
            ("application/openmetrics-text;q=0..", CLASSIC),
            ("application/openmetrics-text;q=0.5-", CLASSIC),
        ] {
            assert_eq!(chosen(&[accept]), expected, "{accept}");
        }
    }

    #[test]
    fn versions_and_parameters() {
        for (accept, expected) in [
            ("application/openmetrics-text", OPEN_METRICS),
            ("application/openmetrics-text;version=2.0.0", CLASSIC),
            (
                "application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.1",
                OPEN_METRICS,
            ),
            ("application/openmetrics-text;version=0.0.4", CLASSIC),
            (
                "text/plain;version=1.0.0",
                "text/plain; version=1.0.0; charset=utf-8",
            ),
            (
                "text/plain;version=0.0.1,application/openmetrics-text",
                OPEN_METRICS,
            ),
            (
                "text/*;version=1.0.0",
                "text/plain; version=1.0.0; charset=utf-8",
            ),
            (
                "APPLICATION/OpenMetrics-Text; VERSION=1.0.0; Q=0.5",
                OPEN_METRICS,
            ),
            (
                " application/openmetrics-text\t; version = 0.0.1 ",
                OPEN_METRICS_001,
            ),
            (
                "application/openmetrics-text;version=\"0.0.1\"",
                OPEN_METRICS_001,
            ),
            (
                "application/openmetrics-text;version=\"0\\.0\\.1\"",
                OPEN_METRICS_001,
            ),
            ("application/openmetrics-text;version=\"0.0.1", CLASSIC),
            // Quotes hide separators.
            ("a/b;c=\"text/plain,application/openmetrics-text\"", CLASSIC),
            (
                "application/openmetrics-text;a=\"x;version=2.0.0,\\\"\";version=0.0.1",
                OPEN_METRICS_001,
            ),
            ("application/openmetrics-text;charset=UTF-8", OPEN_METRICS),
            ("application/openmetrics-text;charset=latin1", CLASSIC),
            ("application/openmetrics-text;;x;y=1", OPEN_METRICS),
            // Escaping: of 1.0.0 only, and none where it is unknown.
            ("text/plain;version=0.0.4;escaping=allow-utf-8", CLASSIC),
            ("text/plain;escaping=allow-utf-8", CLASSIC),
            (
                "application/openmetrics-text;version=0.0.1;escaping=dots",
                OPEN_METRICS_001,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=base64",
                OPEN_METRICS,
            ),
            (
                "application/openmetrics-text;escaping=\"Values\"",
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=values",
            ),
            (
                "application/openmetrics-text;escaping=dots;q=0.5,application/openmetrics-text;escaping=values",
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=values",
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=dots;q=0,application/openmetrics-text;version=1.0.0",
                OPEN_METRICS,
            ),
        ] {
            assert_eq!(chosen(&[accept]), expected, "{accept}");
        }
        for format in OFFERS {
            assert_eq!(chosen(&[format.content_type()]), format.content_type());
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = ["text/plain;q=0.1", "", "application/openmetrics-text;q=0.2"];
        assert_eq!(chosen(&lines), OPEN_METRICS);
        // A quote that is not closed ends with its line.
        let lines = ["a/b;c=\"", "application/openmetrics-text"];
        assert_eq!(chosen(&lines), OPEN_METRICS);
    }

    #[test]
    fn what_stands_behind_many_elements_is_not_read() {
        let fill = |n| "a/b,".repeat(n) + "application/openmetrics-text";
        assert_eq!(chosen(&[&fill(MOST_ELEMENTS - 1)]), OPEN_METRICS);
        assert_eq!(chosen(&[&fill(MOST_ELEMENTS)]), CLASSIC);
    }

    #[test]
    fn gzip_goes_to_those_who_take_it() {
        for (accept_encoding, expected) in [
            ("gzip", true),
            ("GZip", true),
            ("x-gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip, deflate, br, zstd", true),
            ("gzip;q=0.001", true),
            ("*", true),
            ("*;q=0.1", true),
            ("identity;q=0.5, *;q=0.5", true),
            ("identity;q=0.5, gzip;q=0.5", true),
            ("identity;q=0, gzip;q=0.1", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip; q=0, *", false),
            ("*;q=0", false),
            ("identity", false),
            ("identity, gzip;q=0.5", false),
            ("deflate, br", false),
            ("gzip;q=2", false),
            ("gzip;q=abc", false),
            ("gzipped", false),
            ("", false),
        ] {
            assert_eq!(
                takes_gzip([accept_encoding.as_bytes()]),
                expected,
                "{accept_encoding}"
            );
        }
        assert!(!takes_gzip([]));
        assert!(takes_gzip([&b"br"[..], b"gzip"]));
    }

    /// A range as it is meant, beside its text.
    #[derive(Clone, Debug)]
    struct Meant {
        media: &'static str,
        version: &'static str,
        escaping: &'static str,
        weight: &'static str,
    }

    impl Meant {
        fn text(&self) -> String {
            let mut text = self.media.to_owned();
            for (name, value) in [
                ("version", self.version),
                ("escaping", self.escaping),
                ("q", self.weight),
            ] {
                if !value.is_empty() {
                    text.push_str(&format!("; {name}={value}"));
                }
            }
            text
        }

        fn allows(&self, content_type: &str) -> bool {
            let (media, parameters) = content_type.split_once("; ").unwrap();
            let main = media.split_once('/').unwrap().0;
            let has = |name: &str, value: &str| {
                value.is_empty() || parameters.contains(&format!("{name}={value}"))
            };
            (self.media == media || self.media == format!("{main}/*") || self.media == "*/*")
                && has("version", self.version)
                && (has("escaping", self.escaping) || !parameters.contains("1.0.0"))
                && self.weight != "0"
        }
    }

    fn meant() -> impl Strategy<Value = Meant> {
        let one_of = |all: &'static [&'static str]| proptest::sample::select(all);
        (
            one_of(&[
                "*/*",
                "text/*",
                "application/*",
                "text/plain",
                "application/openmetrics-text",
                "application/json",
            ]),
            one_of(&["", "1.0.0", "0.0.4", "0.0.1", "2.0.0"]),
            one_of(&["", "allow-utf-8", "dots"]),
            one_of(&["", "0", "0.5", "1"]),
        )
            .prop_map(|(media, version, escaping, weight)| Meant {
                media,
                version,
                escaping,
                weight,
            })
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(
            lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..4),
        ) {
            let _ = Format::negotiate(lines.iter().map(Vec::as_slice));
            let _ = takes_gzip(lines.iter().map(Vec::as_slice));
        }

        #[test]
        fn what_looks_like_ranges_is_read(text in r#"([a-z*/,;="\\ .01]|text/plain|version=|q=|gzip){0,60}"#) {
            let _ = Format::negotiate([text.as_bytes()]);
            let _ = takes_gzip([text.as_bytes()]);
        }

        #[test]
        fn what_is_chosen_is_allowed_or_classic(
            ranges in proptest::collection::vec(meant(), 0..6),
        ) {
            let text = ranges.iter().map(Meant::text).collect::<Vec<_>>().join(", ");
            let chosen = Format::negotiate([text.as_bytes()]);
            prop_assert!(
                chosen == Format::CLASSIC || ranges.iter().any(|r| r.allows(chosen.content_type())),
                "{} for {text}", chosen.content_type()
            );
        }
    }
}
