//! What ends an exchange before its end.

use std::error::Error;
use std::io;

/// Why an exchange on a connection could not be brought to its end.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The peer ended the connection before its message was whole.
    #[error("the connection ended {0}")]
    Ended(&'static str),
    /// The connection broke.
    #[error("connection error: {0}")]
    Io(#[source] io::Error),
    /// The answer's head is over a limit.
    #[error("the head of the answer is too large")]
    HeadTooLarge,
    /// What came is no HTTP/1.1, or not clearly one message (RFC 9112, 6.3).
    #[error("{0}")]
    NotHttp(&'static str),
    /// The request's own body failed.
    #[error("the request's body failed: {0}")]
    RequestBody(#[source] Box<dyn Error + Send + Sync>),
}
