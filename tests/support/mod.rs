//! Shared by the black-box tests: starts the real binary and plays everybody around it, with raw
//! sockets, so that each byte on the wire is the test's to choose and to see.
//!
//! Blocking `std::net` and a thread a connection: slow peers, resets and half-closes are then what
//! they look like in the test.

// Each test binary uses a part.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

pub(crate) mod client;
pub(crate) mod crowd;
pub(crate) mod data;
pub(crate) mod demo;
pub(crate) mod http;
pub(crate) mod kvgauge;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod openai;
pub(crate) mod page;
pub(crate) mod pools;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod prometheus;
pub(crate) mod rng;
pub(crate) mod router;
pub(crate) mod same;
pub(crate) mod samples;
pub(crate) mod schema;
pub(crate) mod steps;
pub(crate) mod strict;
pub(crate) mod tap;
pub(crate) mod terminal;
pub(crate) mod tls;
pub(crate) mod upstream;
pub(crate) mod wait;

pub(crate) use client::{Client, fetch, get};
pub(crate) use http::{End, Head, Response};
pub(crate) use kvgauge::{Kvgauge, Setup};
pub(crate) use page::Page;
pub(crate) use pools::pool;
pub(crate) use process::Process;
pub(crate) use samples::Samples;
pub(crate) use upstream::{Next, Request, Upstream};
pub(crate) use wait::{Signal, eventually, pause};
