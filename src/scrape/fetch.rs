//! One read of one page.

use super::redirect::on_same_server;
use crate::config::{Scrape, Target};
use crate::exposition::PageError;
use crate::kv::FailureReason;
use crate::net::{
    Bearer, Broken, ConnectError, DialError, Keeper, MaybeTls, Pool, PoolError, PoolLimits,
    PooledBody, TlsError, Trust, Trusts, caused_by,
};
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    LOCATION, TRANSFER_ENCODING, USER_AGENT,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tower::Service;

/// Asked of every engine. Anything else makes Python servers respell metric names
/// (prometheus/client_python#1177).
const CLASSIC_TEXT: HeaderValue = HeaderValue::from_static("text/plain;version=0.0.4");

/// Asked of a router's list of workers, and of SGLang's loads.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Asked of a kvgauge that is watched.
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

const AGENT: HeaderValue = HeaderValue::from_static(concat!("kvgauge/", env!("CARGO_PKG_VERSION")));

/// On every answer that a kvgauge passes on, unless it is told otherwise.
const OURS: &str = "x-kv-pools";

/// Header fields and bytes of a source's response head.
const HEAD_LIMITS: (usize, usize) = (100, 64 * 1024);

/// A failed read: what was seen. What to do about it is in `explain.rs`.
#[derive(Debug)]
pub(super) enum Failed {
    Dial(DialError),
    Tls(TlsError),
    /// Reset by the peer: nobody is there any more.
    Reset(String),
    Broken(String),
    /// What is no HTTP came in place of an answer.
    NotHttp(String),
    /// The server says itself that it speaks HTTP in TLS only.
    NeedsTls,
    Timeout(Duration),
    Status(StatusCode, Option<String>),
    /// 404: whether without a body, and whether a kvgauge has passed it on.
    NotThere {
        empty: bool,
        through_kvgauge: bool,
    },
    /// A redirect led to this path of the same server: what was seen there.
    Moved(Uri, Box<Failed>),
    /// 401 or 403, and what to do about a token that was sent.
    Denied(StatusCode, Option<String>),
    /// A limit was passed: what was seen, and the setting that limits it.
    TooLarge {
        seen: String,
        key: &'static str,
    },
    /// The answer has this content coding, and none was asked for.
    Encoded(String),
    NotMetrics(&'static str),
    /// The page is a kvgauge's own, which repeats those of others.
    Ours,
    /// The answer is no stream of events, and one was asked for.
    NotEvents,
    /// The answer is not SGLang's loads, or they can't be used: why.
    NotLoads(String),
    /// SGLang's loads can't be used, and neither can the page at this path of the same server.
    Neither {
        loads: Box<Failed>,
        page: Box<Failed>,
        path: Arc<str>,
    },
}

impl Failed {
    /// Whether the address answered that nobody listens there, which costs no server anything.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Failed::Dial(DialError::Connect { source, .. })
            if source.kind() == ErrorKind::ConnectionRefused)
    }

    pub(super) fn reason(&self) -> FailureReason {
        match self {
            Failed::Dial(DialError::Resolve { .. } | DialError::Unresolved { .. }) => {
                FailureReason::Resolve
            }
            Failed::Dial(DialError::Connect { .. }) | Failed::Reset(_) => FailureReason::Connect,
            Failed::Dial(DialError::Timeout { .. })
            | Failed::Tls(TlsError::Timeout(_))
            | Failed::Timeout(_) => FailureReason::Timeout,
            Failed::Tls(_) => FailureReason::Tls,
            Failed::Broken(_) | Failed::NotHttp(_) => FailureReason::Body,
            Failed::Status(..)
            | Failed::NotThere { .. }
            | Failed::Denied(..)
            | Failed::NeedsTls => FailureReason::Status,
            Failed::Moved(_, there) => there.reason(),
            Failed::Neither { page, .. } => page.reason(),
            Failed::TooLarge { .. } => FailureReason::TooLarge,
            Failed::Encoded(_)
            | Failed::NotMetrics(_)
            | Failed::Ours
            | Failed::NotEvents
            | Failed::NotLoads(_) => FailureReason::Content,
        }
    }

    /// The status, where it is that which was wrong.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Failed::Status(status, _) | Failed::Denied(status, _) => Some(*status),
            Failed::NotThere { .. } => Some(StatusCode::NOT_FOUND),
            Failed::Moved(_, there) => there.status(),
            Failed::Neither { loads, page, .. } => page.status().or(loads.status()),
            _ => None,
        }
    }
}

impl From<PageError> for Failed {
    /// Why a text is not taken as a page.
    fn from(error: PageError) -> Failed {
        let (seen, key) = match error {
            PageError::NotMetrics { looks_like } => return Failed::NotMetrics(looks_like),
            PageError::NotText => return Failed::NotMetrics("bytes that are no text"),
            PageError::TooManySeries { limit } => {
                (format!("has more than {limit} series"), "scrape.max_series")
            }
            PageError::TooManyFamilies { limit } => (
                format!("has more than {limit} metric families"),
                "scrape.max_families",
            ),
            PageError::LabelsTooLong { limit, line } => (
                format!("has more than {limit} bytes of name and labels in line {line}"),
                "scrape.max_label_bytes",
            ),
        };
        Failed::TooLarge { seen, key }
    }
}

/// What one request came to.
enum Answer {
    Page(Vec<u8>),
    /// It is to be had at another path of the same server, or else this has failed.
    Elsewhere(Uri, Failed),
}

/// What the head of an answer says.
enum Head {
    Good(Box<Response<AnswerBody>>),
    /// As [`Answer::Elsewhere`].
    Elsewhere(Uri, Failed),
}

/// The body of an answer.
pub(super) type AnswerBody = PooledBody<Empty<Bytes>, MaybeTls>;

/// Reads one source's page, again and again, over one connection as long as that is kept.
pub(super) struct Fetcher {
    pool: Pool<Empty<Bytes>, MaybeTls>,
    limits: PoolLimits,
    path: Uri,
    host: HeaderValue,
    accept: HeaderValue,
    timeout: Duration,
    most_bytes: usize,
    /// The last page's length: the next one is about as long.
    expected: usize,
    token: Option<Bearer>,
    /// Paths that were redirected, each with the one that gave the last good answer in its place: a
    /// busy server is not asked twice each time. No more than the paths that are asked for, two.
    moved: Vec<(Uri, Uri)>,
}

impl Fetcher {
    pub(super) fn new(target: &Target, scrape: &Scrape) -> Fetcher {
        Fetcher::accepting(CLASSIC_TEXT, target, scrape)
    }

    /// For a text in JSON instead of a page.
    pub(super) fn json(target: &Target, scrape: &Scrape) -> Fetcher {
        Fetcher::accepting(JSON, target, scrape)
    }

    fn accepting(accept: HeaderValue, target: &Target, scrape: &Scrape) -> Fetcher {
        let limits = PoolLimits {
            connect: scrape.timeout,
            idle: Duration::from_secs(4),
            max_age: Duration::from_secs(600),
            max_idle: 1,
            header_fields: HEAD_LIMITS.0,
            header_bytes: HEAD_LIMITS.1,
        };
        Fetcher {
            pool: Pool::by(
                MaybeTls::new(Trusts::default().of(None)),
                target.clone(),
                limits,
            ),
            limits,
            path: target.path.parse().unwrap_or_default(),
            host: HeaderValue::from_str(&target.host_field())
                .unwrap_or(HeaderValue::from_static("localhost")),
            accept,
            timeout: scrape.timeout,
            most_bytes: scrape.max_page_bytes,
            expected: 0,
            token: None,
            moved: Vec::new(),
        }
    }

    /// Sends the token in this file with each request.
    pub(super) fn with_token(mut self, file: Option<&Arc<Path>>) -> Fetcher {
        self.token = file.map(|file| Bearer::new(file, Keeper::ASKING));
        self
    }

    /// The path where the last good page was found, where that is not the one that was asked for.
    pub(super) fn redirected(&self) -> Option<&str> {
        self.redirected_from(&self.path)
    }

    /// The same of the answer to this path.
    pub(super) fn redirected_from(&self, path: &Uri) -> Option<&str> {
        let moved = self.moved.iter().find(|(from, _)| from == path);
        moved.map(|(_, to)| to.path())
    }

    /// Trusts these CAs in place of the system's.
    pub(super) fn with_trust(mut self, trust: Rc<Trust>) -> Fetcher {
        let target = self.pool.target().clone();
        self.pool = Pool::by(MaybeTls::new(trust), target, self.limits);
        self
    }

    /// The page's bytes. The limit in time is for all of it.
    pub(super) async fn fetch(&mut self) -> Result<Vec<u8>, Failed> {
        let path = self.path.clone();
        let accept = self.accept.clone();
        let page = self.within(&path, accept).await?;
        self.expected = page.len();
        Ok(page)
    }

    /// What was fetched turned out to be no page, and so no redirect to it is remembered.
    pub(super) fn no_page(&mut self, failed: Failed) -> Failed {
        match self.moved.iter().position(|(from, _)| *from == self.path) {
            Some(at) => Failed::Moved(self.moved.swap_remove(at).1, Box::new(failed)),
            None => failed,
        }
    }

    /// The bytes of a JSON text on the same server, over the same connection.
    pub(super) async fn fetch_json(&mut self, path: &Uri) -> Result<Vec<u8>, Failed> {
        self.within(path, JSON).await
    }

    async fn within(&mut self, path: &Uri, accept: HeaderValue) -> Result<Vec<u8>, Failed> {
        let limit = self.timeout;
        timeout(limit, self.read(path, accept))
            .await
            .unwrap_or(Err(Failed::Timeout(limit)))
    }

    /// The answer's head.
    async fn ask(
        &mut self,
        path: &Uri,
        accept: HeaderValue,
    ) -> Result<Response<AnswerBody>, Failed> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(ACCEPT, accept);
        // Without this field any coding would be welcome (RFC 9110, 12.5.3).
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, AGENT);
        if let Some(token) = self.token.as_mut().and_then(|t| t.value(Instant::now())) {
            headers.insert(AUTHORIZATION, token);
        }
        self.pool.call(request).await.map_err(|error| match error {
            PoolError::Dial(ConnectError::Dial(error)) => Failed::Dial(error),
            PoolError::Dial(ConnectError::Tls(error)) => Failed::Tls(error),
            PoolError::Broken(error) => broken(&error),
        })
    }

    /// Follows one redirect, and asks at once where it led the last time.
    async fn read(&mut self, path: &Uri, accept: HeaderValue) -> Result<Vec<u8>, Failed> {
        let known = self.moved.iter().position(|(from, _)| from == path);
        if let Some(known) = known {
            let (_, to) = self.moved.swap_remove(known);
            match self.read_at(&to, accept.clone()).await {
                // It may be somewhere else by now.
                Ok(Answer::Elsewhere(..)) | Err(Failed::Status(..) | Failed::NotThere { .. }) => {}
                answer => return self.found(path, to, answer),
            }
        }
        match self.read_at(path, accept.clone()).await? {
            Answer::Page(page) => Ok(page),
            Answer::Elsewhere(to, _) => {
                let mut answer = self.read_at(&to, accept.clone()).await;
                if matches!(answer, Err(Failed::Broken(_) | Failed::Reset(_))) {
                    // Who redirects may close its connection behind it, which was just used again.
                    answer = self.read_at(&to, accept).await;
                }
                self.found(path, to, answer)
            }
        }
    }

    /// What `to` has answered in place of `path`.
    fn found(
        &mut self,
        path: &Uri,
        to: Uri,
        answer: Result<Answer, Failed>,
    ) -> Result<Vec<u8>, Failed> {
        match answer {
            Ok(Answer::Page(page)) => {
                self.moved.push((path.clone(), to));
                Ok(page)
            }
            Ok(Answer::Elsewhere(_, failed)) | Err(failed) => {
                Err(Failed::Moved(to, Box::new(failed)))
            }
        }
    }

    /// The head of a good answer, or what it is instead.
    async fn head_at(&mut self, path: &Uri, accept: HeaderValue) -> Result<Head, Failed> {
        let mut response = self.ask(path, accept.clone()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && self.token.as_mut().is_some_and(Bearer::renew)
        {
            response = self.ask(path, accept).await?;
        }
        if matches!(
            response.status(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            let advice = self.token.as_ref().map(Bearer::advice);
            return Err(Failed::Denied(response.status(), advice));
        }
        if response.status() == StatusCode::BAD_REQUEST
            && !self.pool.target().tls
            && asks_for_tls(response.body_mut()).await
        {
            return Err(Failed::NeedsTls);
        }
        if response.status() == StatusCode::NOT_FOUND {
            return Err(Failed::NotThere {
                empty: response.body().size_hint().exact() == Some(0),
                through_kvgauge: response.headers().contains_key(OURS),
            });
        }
        if response.status() != StatusCode::OK {
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|v| shown(v.to_str().ok()?));
            let failed = Failed::Status(response.status(), location);
            let server = self.pool.target();
            let to = on_same_server(response.status(), response.headers(), path, server);
            return match to {
                Some(to) => Ok(Head::Elsewhere(to, failed)),
                None => Err(failed),
            };
        }
        if let Some(coding) = coding(response.headers()) {
            return Err(Failed::Encoded(coding));
        }
        Ok(Head::Good(Box::new(response)))
    }

    /// The body of an answer that has no end: events, as they come. The limit in time is for its head.
    pub(super) async fn open_events(&mut self) -> Result<AnswerBody, Failed> {
        let path = self.path.clone();
        let limit = self.timeout;
        let head = timeout(limit, self.head_at(&path, EVENTS)).await;
        match head.unwrap_or(Err(Failed::Timeout(limit)))? {
            Head::Good(response) if are_events(response.headers()) => Ok(response.into_body()),
            Head::Good(_) => Err(Failed::NotEvents),
            Head::Elsewhere(_, failed) => Err(failed),
        }
    }

    async fn read_at(&mut self, path: &Uri, accept: HeaderValue) -> Result<Answer, Failed> {
        let is_page = accept == CLASSIC_TEXT;
        let response = match self.head_at(path, accept).await? {
            Head::Good(response) => response,
            Head::Elsewhere(to, failed) => return Ok(Answer::Elsewhere(to, failed)),
        };
        let framed = [CONTENT_LENGTH, TRANSFER_ENCODING];
        let ends_with_connection = !framed.iter().any(|f| response.headers().contains_key(f));
        let mut body = response.into_body();
        let promised = body.size_hint().exact();
        if let Some(bytes) = promised.filter(|n| *n > self.most_bytes as u64) {
            return Err(self.too_large(format!("has {bytes} bytes")));
        }
        let mut page = Vec::with_capacity(self.capacity(promised));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(&error))?;
            if let Some(data) = frame.data_ref() {
                if page.len() + data.len() > self.most_bytes {
                    let most = self.most_bytes;
                    return Err(self.too_large(format!("has more than {most} bytes")));
                }
                page.extend_from_slice(data);
            }
        }
        // The number that a line ends with may be the beginning of another one.
        let whole = page.is_empty() || page.ends_with(b"\n");
        if is_page && ends_with_connection && !whole {
            let what = "it ended in the middle of a line";
            return Err(Failed::Broken(what.to_owned()));
        }
        Ok(Answer::Page(page))
    }

    fn too_large(&self, seen: String) -> Failed {
        Failed::TooLarge {
            seen,
            key: "scrape.max_page_bytes",
        }
    }

    /// What a peer promises is believed up to the bound only.
    fn capacity(&self, promised: Option<u64>) -> usize {
        promised
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(self.expected + self.expected / 8)
            .min(self.most_bytes)
    }
}

/// Whether an answer of 400 says what servers say whose port speaks TLS (Go's, nginx').
async fn asks_for_tls(body: &mut AnswerBody) -> bool {
    const WORDS: [&[u8]; 2] = [b"HTTPS server", b"HTTPS port"];
    let Some(Ok(frame)) = body.frame().await else {
        return false;
    };
    // The first piece of a text that is as short.
    let text = frame.data_ref().map_or(&[][..], |data| data);
    WORDS
        .iter()
        .any(|words| memchr::memmem::find(text, words).is_some())
}

/// Whether an answer calls itself a stream of events.
fn are_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

pub(super) fn broken(error: &Broken) -> Failed {
    if let Some(error) = TlsError::at_the_bottom_of(error) {
        return Failed::Tls(error);
    }
    match error {
        Broken::NotHttp(_) => Failed::NotHttp(error.to_string()),
        _ if caused_by(error, &[ErrorKind::ConnectionReset]) => Failed::Reset(error.to_string()),
        _ => Failed::Broken(error.to_string()),
    }
}

/// The content coding of an answer that is not as it stands, as it may be shown.
fn coding(headers: &HeaderMap) -> Option<String> {
    /// Characters of it that are shown.
    const SHOWN: usize = 40;
    let coded = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .find(|v| !v.is_empty() && !v.as_bytes().eq_ignore_ascii_case(b"identity"))?;
    let text = String::from_utf8_lossy(coded.as_bytes());
    Some(
        text.chars()
            .flat_map(char::escape_debug)
            .take(SHOWN)
            .collect(),
    )
}

/// Characters of an address that are shown.
const MOST_SHOWN: usize = 200;

/// An address as it may be shown: without credentials and query.
fn shown(location: &str) -> Option<String> {
    let uri: Uri = location.parse().ok()?;
    let authority = uri.authority().map(Authority::as_str);
    let host = authority.map(|a| a.rsplit('@').next().unwrap_or(a));
    let mut address = match (uri.scheme_str(), host) {
        (Some(scheme), Some(host)) => format!("{scheme}://{host}{}", uri.path()),
        _ => uri.path().to_owned(),
    };
    if let Some((cut, _)) = address.char_indices().nth(MOST_SHOWN) {
        address.truncate(cut);
        address.push('…');
    }
    Some(address)
}
