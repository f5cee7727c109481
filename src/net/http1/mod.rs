//! The client's side of HTTP/1.1 (RFC 9112) on one connection, driven by whoever waits for the answer.
//!
//! There is no task beside it, so nothing goes from hand to hand: one read of the socket becomes one
//! frame of the body, whatever chunks it holds. And there is no buffer while nothing comes: what is read
//! is read into room that all connections of a thread share.
//!
//! An [`Exchange`] is a request and its answer: [`Outgoing`] writes the one, head and body; the head of
//! the other is read by the [`Connection`], and says how its body is framed, which a [`Decoder`] then
//! takes out of what comes.

mod broken;
mod connection;
mod decoder;
mod exchange;
mod familiar;
mod head;
mod outbound;
mod outgoing;
mod scratch;
mod trailers;

pub use broken::Broken;
pub(super) use connection::Connection;
pub(super) use decoder::Decoder;
pub(super) use exchange::Exchange;
pub(super) use head::Limits;
pub use outbound::{Lines, Outbound};
use outgoing::Outgoing;
pub use trailers::belongs_in_head;

#[cfg(test)]
mod tests;
