//! A relay that records all bytes that pass, so that what stands before and behind kvgauge can be
//! compared.

use super::http::{End, Head, Wire};
use super::wait::eventually;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request and its answer, as they passed.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Head,
    pub(crate) request_body: Vec<u8>,
    pub(crate) answer: Head,
    /// Without the chunks' framing.
    pub(crate) body: Vec<u8>,
    /// How the body ended: a cut and a reset look the same here, `Cut`.
    pub(crate) end: End,
}

/// The two directions of a connection.
#[derive(Default)]
struct Recorded {
    there: Vec<u8>,
    back: Vec<u8>,
    ended: bool,
}

pub(crate) struct Tap {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>>,
}

impl Tap {
    /// Relays to `target`.
    pub(crate) fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&connections);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let recorded = Arc::new(Mutex::new(Recorded::default()));
                all.lock().unwrap().push(Arc::clone(&recorded));
                std::thread::spawn(move || relay(client, target, &recorded));
            }
        });
        Self {
            address,
            connections,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All exchanges so far whose answers have ended.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let connections = self.connections.lock().unwrap();
        connections
            .iter()
            .flat_map(|recorded| read(&recorded.lock().unwrap()))
            .collect()
    }

    /// Waits for the exchange that `wanted` finds.
    pub(crate) fn exchange(&self, what: &str, wanted: impl Fn(&Exchange) -> bool) -> Exchange {
        eventually(&format!("{what} passes the tap"), || {
            self.exchanges()
                .into_iter()
                .find(|exchange| wanted(exchange))
        })
    }

    /// Waits for the exchange whose request, or else answer, has this id.
    pub(crate) fn of_id(&self, id: &str) -> Exchange {
        self.exchange(id, |exchange| {
            let has = |head: &Head| head.all("x-request-id").iter().any(|v| v == id.as_bytes());
            has(&exchange.request) || has(&exchange.answer)
        })
    }
}

fn relay(client: TcpStream, target: SocketAddr, recorded: &Arc<Mutex<Recorded>>) {
    let Ok(server) = TcpStream::connect(target) else {
        // The client sees a reset, much as if nobody listened.
        Wire::new(client).reset_on_close();
        recorded.lock().unwrap().ended = true;
        return;
    };
    let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let there = Arc::clone(recorded);
    let upward = std::thread::spawn(move || {
        copy(from, to, |bytes| {
            there.lock().unwrap().there.extend_from_slice(bytes);
        });
    });
    copy(server, client, |bytes| {
        recorded.lock().unwrap().back.extend_from_slice(bytes);
    });
    recorded.lock().unwrap().ended = true;
    let _ = upward.join();
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut record: impl FnMut(&[u8])) {
    let _ = to.set_nodelay(true);
    let mut piece = [0; 65536];
    loop {
        match from.read(&mut piece) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(n) => {
                // Before it is passed on: whoever has seen it finds it here.
                record(&piece[..n]);
                if to.write_all(&piece[..n]).is_err() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    // An end that is none: neither side may take it for one.
    Wire::new(to).reset_on_close();
    Wire::new(from).reset_on_close();
}

fn read(recorded: &Recorded) -> Vec<Exchange> {
    let mut there = Wire::recorded(&recorded.there);
    let mut back = Wire::recorded(&recorded.back);
    let mut exchanges = Vec::new();
    while let Ok(request) = there.head() {
        let request_body = there.request_body(&request).bytes;
        let Ok(mut answer) = back.head() else { break };
        while answer.status() < 200 {
            let Ok(next) = back.head() else {
                return exchanges;
            };
            answer = next;
        }
        let body = back.response_body(&answer, request.method());
        if body.end != End::Complete && !recorded.ended {
            break;
        }
        exchanges.push(Exchange {
            request,
            request_body,
            answer,
            body: body.bytes,
            end: body.end,
        });
    }
    exchanges
}
