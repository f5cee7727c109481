//! The data path. Start with `stack.rs`: it reads as a request's way.

mod admit;
#[doc(hidden)]
pub mod bench;
mod break_off;
mod client;
mod connection;
mod deadline;
mod error;
mod forward;
mod framing;
mod guard;
mod headers;
mod hop;
mod io;
mod notes;
mod own_wakes;
mod record;
mod request_id;
mod respond;
mod screen;
mod serve;
mod stack;
mod stamp;
mod ticket;
mod trailer;
mod tunnel;
mod turn;
mod upgrade;
mod usage;
mod worker;

pub use error::{Outcome, ProxyError, Retry, Stage, Who};
pub use serve::{Beats, Plane, Running, reached};
pub use stamp::{Stamp, StampLayer, StampNames};
pub use worker::{Load, Phase};
