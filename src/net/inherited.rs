//! Listening sockets that whoever started this process has opened for it: socket activation
//! (`sd_listen_fds(3)`).

use super::listen::adopt;
use listenfd::ListenFd;
use std::env;
use std::io;
use std::net::TcpListener;

/// More are never meant for kvgauge.
const MOST: usize = 16;

/// One of them.
#[derive(Debug)]
pub struct Inherited {
    /// Its name (`FileDescriptorName=`), where it has one.
    pub name: Option<String>,
    /// Ready to be handed to a runtime, as one that was [bound](super::bind) here.
    pub listener: TcpListener,
}

/// The sockets that were passed to this very process; none where none were, or to another. Call it once,
/// before there are other threads, as it takes them out of the environment.
///
/// # Errors
/// What is wrong with what was passed, in words.
pub fn inherited() -> io::Result<Vec<Inherited>> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("LISTEN_PID") != std::process::id().to_string() {
        return Ok(Vec::new());
    }
    let (count, names) = (variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"));
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let count = match count.parse::<usize>() {
        Ok(count) if count <= MOST => count,
        Ok(_) => return Err(wrong(format!("LISTEN_FDS={count} are more than {MOST}"))),
        Err(_) => return Err(wrong(format!("LISTEN_FDS={count:?} is no number"))),
    };
    let mut names = names.split(':');
    let mut sockets = ListenFd::from_env();
    let mut all = Vec::with_capacity(count);
    for at in 0..count {
        let name = names.next().filter(|name| !name.is_empty());
        let Some(listener) = sockets.take_tcp_listener(at)? else {
            return Err(wrong(format!("there is no socket {at}")));
        };
        let listener = adopt(listener)?;
        all.push(Inherited {
            name: name.map(str::to_owned),
            listener,
        });
    }
    Ok(all)
}
