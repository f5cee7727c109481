//! The client's side of HTTP/1.1 (RFC 9112) on one connection, driven by whoever waits for the answer.
//!
//! There is no task beside it, so nothing goes from hand to hand: one read of the socket becomes one
//! frame of the body, whatever chunks it holds. And there is no buffer while nothing comes: what is read
//! is read into room that all connections of a thread share.
//!
//! 1. [`Outgoing`] writes a request, head and body.
//! 2. [`Connection::poll_head`] reads the head of the answer, and says how its body is framed.
//! 3. [`Answer`] reads the body, and goes on with an upload that is not over.

mod answer;
mod broken;
mod connection;
mod decoder;
mod head;
mod outgoing;
mod scratch;
mod trailers;

pub(super) use answer::Answer;
pub use broken::Broken;
pub(super) use connection::Connection;
pub(super) use decoder::Decoder;
pub(super) use head::Limits;
pub(super) use outgoing::Outgoing;
pub use trailers::belongs_in_head;

#[cfg(test)]
mod tests;
