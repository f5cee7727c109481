//! The page at `/`, for whoever asks with a browser: static files that are part of the binary.
//!
//! They say nothing of this deployment, so they are open where `admin.bearer_file` is set; what they
//! show comes from `/kv/history` and `/kv/stream`, which ask for the token.

use super::gzip::gzip_whole;
use super::{Answer, answer};
use bytes::Bytes;
use foldhash::quality::FixedState;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::hash::BuildHasher as _;
use std::sync::LazyLock;

/// One file.
pub(super) struct File {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($path:literal, $content_type:expr, $name:literal) => {
        File {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("web/", $name)),
        }
    };
}

/// Every file. `index.html` is at `/`; what it and the scripts name stands below `/assets/`.
const FILES: [File; 11] = [
    file!("/", "text/html; charset=utf-8", "index.html"),
    file!("/assets/app.css", CSS, "app.css"),
    file!("/assets/app.js", SCRIPT, "app.js"),
    file!("/assets/charts.js", SCRIPT, "charts.js"),
    file!("/assets/feed.js", SCRIPT, "feed.js"),
    file!("/assets/series.js", SCRIPT, "series.js"),
    file!("/assets/view.js", SCRIPT, "view.js"),
    file!("/assets/words.js", SCRIPT, "words.js"),
    file!("/assets/uplot.css", CSS, "uplot.css"),
    file!("/assets/uplot.js", SCRIPT, "uplot.js"),
    file!(
        "/assets/uplot.LICENSE",
        "text/plain; charset=utf-8",
        "uplot.LICENSE"
    ),
];

/// What is made of a file once, so that who asks again and again costs little.
struct Made {
    path: &'static str,
    tag: String,
    /// In gzip, from the first who takes that.
    packed: LazyLock<Option<Bytes>, Box<dyn FnOnce() -> Option<Bytes> + Send>>,
}

static MADE: LazyLock<Vec<Made>> = LazyLock::new(|| {
    let made = |file: &File| {
        let bytes = file.bytes;
        let hash = FixedState::default().hash_one(bytes);
        Made {
            path: file.path,
            tag: format!("W/\"{hash:016x}\""),
            packed: LazyLock::new(Box::new(move || gzip_whole(bytes).ok())),
        }
    };
    FILES.iter().map(made).collect()
});

/// No script, style or address but those of this listener, nothing written into the page itself, no
/// frame around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The file that is asked for. `/` is the page only for who names HTML: a person with curl, who takes
/// anything, gets the list of routes.
pub(super) fn find(path: &str, headers: &HeaderMap) -> Option<&'static File> {
    let file = FILES.iter().find(|file| file.path == path)?;
    (path != "/" || takes_html(headers)).then_some(file)
}

/// Whether HTML is named among what the client takes (RFC 9110, 12.5.1), and not with a weight of 0.
fn takes_html(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(ACCEPT).iter();
    fields.filter_map(|field| field.to_str().ok()).any(|field| {
        field.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let html = parts
                .next()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"));
            html && !parts.any(|part| {
                let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
                weight.is_some_and(|q| q.parse() == Ok(0.0))
            })
        })
    })
}

// === impl File ===

impl File {
    /// The file, or 304 where the client has it. `Accept-Encoding` is there where gzip is to be taken.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Answer {
        let tag = self.tag();
        let packed = if headers.contains_key(ACCEPT_ENCODING) {
            self.made().and_then(|made| made.packed.clone())
        } else {
            None
        };
        let mut answer = if has(headers, tag) {
            let mut answer = answer(StatusCode::NOT_MODIFIED, self.content_type, Bytes::new());
            answer.headers_mut().remove(http::header::CONTENT_TYPE);
            answer
        } else if let Some(packed) = packed {
            let mut answer = answer(StatusCode::OK, self.content_type, packed);
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(CONTENT_ENCODING, gzip);
            answer
        } else {
            answer(
                StatusCode::OK,
                self.content_type,
                Bytes::from_static(self.bytes),
            )
        };
        let fields = answer.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(tag) {
            fields.insert(ETAG, tag);
        }
        // Asked again each time, which costs a 304, so that an update of kvgauge is never half seen.
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        fields.insert(CONTENT_SECURITY_POLICY, POLICY);
        fields.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // Of a 304 too, which has what its 200 would have (RFC 9110, 15.4.5).
        fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if self.path == "/" {
            fields.append(VARY, HeaderValue::from_static("accept"));
        }
        answer
    }

    /// Weak, as the same tag stands for the plain bytes and those in gzip.
    fn tag(&self) -> &'static str {
        self.made().map_or("", |made| &made.tag)
    }

    fn made(&self) -> Option<&'static Made> {
        MADE.iter().find(|made| made.path == self.path)
    }
}

/// Whether the client holds what has this tag (RFC 9110, 13.1.2).
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let fields = headers.get_all(IF_NONE_MATCH).iter();
    let opaque = tag.trim_start_matches("W/");
    fields.filter_map(|field| field.to_str().ok()).any(|field| {
        field
            .split(',')
            .map(str::trim)
            .any(|held| held == "*" || held.trim_start_matches("W/") == opaque)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_page_is_for_who_names_html() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (value, page) in [
            (browser, true),
            ("Text/HTML", true),
            ("text/plain, text/html;q=0.1", true),
            ("*/*", false),
            ("text/*", false),
            ("text/html;q=0", false),
            ("text/html; q=0.000", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(find("/", &accept(value)).is_some(), page, "{value}");
        }
        assert!(find("/", &HeaderMap::new()).is_none());
        assert!(find("/assets/app.js", &HeaderMap::new()).is_some());
        assert!(find("/assets/../app.js", &HeaderMap::new()).is_none());
    }

    #[test]
    fn who_has_a_file_is_told_so() {
        let file = find("/assets/app.css", &HeaderMap::new()).unwrap();
        let tag = file.answer(&HeaderMap::new()).headers()[ETAG].clone();
        let tag = tag.to_str().unwrap();
        let opaque = tag.strip_prefix("W/").unwrap();
        for (held, status) in [
            (tag.to_owned(), 304),
            (opaque.to_owned(), 304),
            (format!("\"other\", {tag}"), 304),
            ("*".to_owned(), 304),
            ("\"other\"".to_owned(), 200),
        ] {
            let value = HeaderValue::from_str(&held).unwrap();
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, value)]);
            assert_eq!(file.answer(&headers).status(), status, "{held}");
        }
        let others: std::collections::HashSet<_> = FILES.iter().map(File::tag).collect();
        assert_eq!(others.len(), FILES.len());
    }

    /// What the policy would refuse fails here first, with its place.
    #[test]
    fn nothing_is_written_into_the_page_and_nothing_is_elsewhere() {
        for file in FILES.iter().filter(|file| !file.path.contains("uplot")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for (number, line) in text.lines().enumerate() {
                let outside = line.replace("http://www.w3.org/2000/svg", "");
                for banned in [
                    "http://",
                    "https://",
                    " style=",
                    "<style",
                    "javascript:",
                    " onclick=",
                    "innerHTML",
                    "outerHTML",
                    "insertAdjacentHTML",
                    "document.write",
                    "eval(",
                    "localStorage",
                ] {
                    let at = format!("{}:{}: {banned}", file.path, number + 1);
                    assert!(!outside.contains(banned), "{at}");
                }
            }
            assert!(!text.contains("<script>"), "{}", file.path);
        }
    }

    #[test]
    fn every_file_is_served_and_every_name_leads_to_one() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/web");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut served: Vec<String> = FILES
            .iter()
            .map(|file| match file.path {
                "/" => "index.html".to_owned(),
                path => path.trim_start_matches("/assets/").to_owned(),
            })
            .collect();
        there.sort();
        served.sort();
        assert_eq!(there, served);
        for file in &FILES {
            let text = String::from_utf8_lossy(file.bytes);
            for (before, after) in [("\"assets/", "\""), ("from \"./", "\"")] {
                for rest in text.split(before).skip(1) {
                    let name = rest.split(after).next().unwrap();
                    assert!(
                        served.iter().any(|one| one == name),
                        "{}: {name}",
                        file.path
                    );
                }
            }
        }
    }
}
