//! The simulated servers' HTTP: listener, bodies, requests as they come and answers as they go.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod body;
pub(crate) mod serve;

pub(crate) use body::Body;
pub use serve::Handle;
