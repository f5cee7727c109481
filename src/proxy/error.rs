//! What can go wrong with a request: who failed, at which stage, and whether it may be tried again.
//! The only source of status, outcome, label and log.

use http::StatusCode;
use std::borrow::Cow;
use std::fmt;

/// Any error, as body types hand it on.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How a request ended: the `outcome` of the log and of `kvgauge_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole answer was delivered, whatever its status.
    Complete,
    /// The client left first.
    ClientGone,
    /// The router broke off, before its head or in its body.
    UpstreamAborted,
    /// There was no connection to the router.
    UpstreamUnreachable,
    /// A limit in time was passed.
    Timeout,
    /// The request was refused as it was.
    Rejected,
    /// There was no room.
    Overloaded,
    /// The protocol was switched, and both sides of the tunnel ended it in order.
    Upgraded,
    /// Cut at the end of the drain.
    Drained,
    /// Not a request.
    Malformed,
    /// A fault of kvgauge's own.
    Internal,
}

impl Outcome {
    /// The name in log and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::ClientGone => "client_gone",
            Outcome::UpstreamAborted => "upstream_aborted",
            Outcome::UpstreamUnreachable => "upstream_unreachable",
            Outcome::Timeout => "timeout",
            Outcome::Rejected => "rejected",
            Outcome::Overloaded => "overloaded",
            Outcome::Upgraded => "upgraded",
            Outcome::Drained => "drained",
            Outcome::Malformed => "malformed",
            Outcome::Internal => "internal",
        }
    }
}

/// Who failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// What it sent can't be forwarded.
    Client,
    /// The router.
    Upstream,
    /// kvgauge.
    Kvgauge,
}

/// Where it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request's head.
    RequestHead,
    /// The request's body is malformed, or broke off.
    RequestBody,
    /// Nothing of the request's body came for too long.
    RequestBodyTimeout,
    /// The request's body passed its limit.
    RequestTooLarge,
    /// A method, protocol or coding that is not carried.
    Unsupported,
    /// An `Expect` that nobody here meets.
    Expectation,
    /// No room for the request.
    Admission,
    /// No descriptor for a connection to the router.
    Descriptors,
    /// No connection to the router.
    Connect,
    /// No connection to the router in time.
    ConnectTimeout,
    /// The router's head did not come whole.
    ResponseHead,
    /// The router's head did not come in time.
    ResponseHeadTimeout,
    /// The whole exchange took too long.
    Deadline,
    /// A panic, wherever it was.
    Internal,
}

/// Whether the client may send the same request again without fear of running it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing of it reached the router.
    Safe,
    /// It may have reached the router.
    Unsafe,
}

/// Why a request has no answer of the router's.
#[derive(Debug)]
pub struct ProxyError {
    /// Who failed.
    pub who: Who,
    /// Where.
    pub stage: Stage,
    /// Whether it may be sent again.
    pub retry: Retry,
    /// Who failed, what was seen, what to do: for the client and the diagnostics.
    pub message: Cow<'static, str>,
}

impl ProxyError {
    /// A request that is refused for what its head says.
    #[must_use]
    pub fn refused(stage: Stage, message: impl Into<Cow<'static, str>>) -> ProxyError {
        ProxyError {
            who: Who::Client,
            stage,
            retry: Retry::Safe,
            message: message.into(),
        }
    }

    /// The router failed.
    #[must_use]
    pub fn upstream(
        stage: Stage,
        retry: Retry,
        message: impl Into<Cow<'static, str>>,
    ) -> ProxyError {
        ProxyError {
            who: Who::Upstream,
            stage,
            retry,
            message: message.into(),
        }
    }

    /// kvgauge failed: a panic, which standard error tells of.
    #[must_use]
    pub fn internal() -> ProxyError {
        ProxyError {
            who: Who::Kvgauge,
            stage: Stage::Internal,
            retry: Retry::Unsafe,
            message: Cow::Borrowed(
                "kvgauge failed by a fault of its own: its standard error says where; please report it",
            ),
        }
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.stage {
            Stage::RequestHead | Stage::RequestBody => StatusCode::BAD_REQUEST,
            Stage::RequestBodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Stage::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Stage::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Stage::Expectation => StatusCode::EXPECTATION_FAILED,
            Stage::Admission | Stage::Descriptors => StatusCode::SERVICE_UNAVAILABLE,
            Stage::Connect | Stage::ResponseHead => StatusCode::BAD_GATEWAY,
            Stage::ConnectTimeout | Stage::ResponseHeadTimeout | Stage::Deadline => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Stage::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// How the request ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.stage {
            Stage::RequestHead
            | Stage::RequestBody
            | Stage::RequestTooLarge
            | Stage::Unsupported
            | Stage::Expectation => Outcome::Rejected,
            Stage::Admission | Stage::Descriptors => Outcome::Overloaded,
            Stage::Connect | Stage::ConnectTimeout => Outcome::UpstreamUnreachable,
            Stage::ResponseHead => Outcome::UpstreamAborted,
            Stage::RequestBodyTimeout | Stage::ResponseHeadTimeout | Stage::Deadline => {
                Outcome::Timeout
            }
            Stage::Internal => Outcome::Internal,
        }
    }

    /// `error.type` of the log and `code` of the answer.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.stage {
            Stage::RequestHead => "bad_request",
            Stage::RequestBody => "bad_request_body",
            Stage::RequestBodyTimeout => "request_body_timeout",
            Stage::RequestTooLarge => "request_too_large",
            Stage::Unsupported => "unsupported",
            Stage::Expectation => "expectation_failed",
            Stage::Admission => "overloaded",
            Stage::Descriptors => "out_of_descriptors",
            Stage::Connect => "upstream_unreachable",
            Stage::ConnectTimeout => "upstream_connect_timeout",
            Stage::ResponseHead => "upstream_aborted",
            Stage::ResponseHeadTimeout => "upstream_timeout",
            Stage::Deadline => "request_timeout",
            Stage::Internal => "internal",
        }
    }

    /// Whether it may be in doubt where the request ends, or what is left of it: nothing behind it is
    /// read then.
    #[must_use]
    pub fn ends_the_connection(&self) -> bool {
        matches!(
            self.stage,
            Stage::Internal
                | Stage::RequestBodyTimeout
                | Stage::RequestHead
                | Stage::RequestBody
                | Stage::Unsupported
                | Stage::Expectation
        )
    }

    /// `type` of the answer, in OpenAI's words where it has one.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.who {
            Who::Client => "invalid_request_error",
            Who::Upstream => "upstream_error",
            Who::Kvgauge => "server_error",
        }
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProxyError {}

/// What ends a response body before its end.
#[derive(Debug)]
pub enum BodyError {
    /// The router broke off, or what it sent is not a body.
    Upstream(BoxError),
    /// Nothing came for `timeouts.stream_silence`.
    Silence,
    /// `timeouts.request` was over.
    Deadline,
    /// A panic.
    Internal,
}

impl BodyError {
    /// How the request ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            BodyError::Upstream(_) => Outcome::UpstreamAborted,
            BodyError::Silence | BodyError::Deadline => Outcome::Timeout,
            BodyError::Internal => Outcome::Internal,
        }
    }

    /// `error.type` of the log.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            BodyError::Upstream(_) => "upstream_aborted",
            BodyError::Silence => "stream_silence",
            BodyError::Deadline => "request_timeout",
            BodyError::Internal => "internal",
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Upstream(error) => write!(f, "the router broke off its answer: {error}"),
            BodyError::Silence => {
                f.write_str("the router sent nothing for timeouts.stream_silence")
            }
            BodyError::Deadline => f.write_str("the request took longer than timeouts.request"),
            BodyError::Internal => f.write_str("kvgauge failed by a fault of its own"),
        }
    }
}

impl std::error::Error for BodyError {}

/// What ends a tunnel before both of its sides have ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelError {
    /// The client's side broke.
    Client,
    /// The router's side broke.
    Upstream,
    /// Nothing moved for `timeouts.stream_silence`.
    Silence,
    /// `timeouts.request` was over.
    Deadline,
    /// The drain was over.
    Drained,
}

impl TunnelError {
    /// How the request ended.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            TunnelError::Client => Outcome::ClientGone,
            TunnelError::Upstream => Outcome::UpstreamAborted,
            TunnelError::Silence | TunnelError::Deadline => Outcome::Timeout,
            TunnelError::Drained => Outcome::Drained,
        }
    }

    /// `error.type` of the log.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            TunnelError::Client => "client_gone",
            TunnelError::Upstream => "upstream_aborted",
            TunnelError::Silence => "stream_silence",
            TunnelError::Deadline => "request_timeout",
            TunnelError::Drained => "drained",
        }
    }
}
