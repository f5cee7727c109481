//! Sockets: dialling, TLS, listening, the pool of connections to one target, descriptor limits; and the
//! small files that belong to them.
//! Used by the data path and by the scraper; each thread has a pool of its own.

mod again;
mod aside;
mod bearer;
mod causes;
mod connect;
mod dial;
mod file;
mod http1;
mod limits;
mod listen;
mod lookup;
mod members;
mod moved;
mod pool;
mod pump;
mod tls;
mod trust;

pub use again::again;
pub use aside::aside;
pub use bearer::{Bearer, Keeper};
pub use causes::caused_by;
pub use connect::{Connect, Plain};
pub use dial::{DialError, dial, out_of_descriptors};
pub use file::{Seen, small_file};
pub use http1::{Broken, Lines, Outbound, belongs_in_head};
pub use limits::raise_descriptor_limit;
pub use listen::{bind, keep_little_unsent, prepare, prepare_accepted};
pub use lookup::resolve;
pub use members::members;
pub use moved::Addresses;
pub use pool::{Pool, PoolError, PoolLimits, PooledBody, Sent, Switched};
pub use tls::{ConnectError, MaybeTls, Stream, TlsError};
pub use trust::{Trust, Trusts};
