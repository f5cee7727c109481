//! Those who ask: each does one request after the other and writes down what it has seen of it.

use super::ledger::{Entry, Ledger, Seen};
use super::upstream::{all_events, plain, streamed, whole};
use crate::support::rng::Rng;
use crate::support::{Client, End, Head, pause};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than anything that is waited for: an upstream that is stopped, an accept that can't be.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of an upload at most.
const UPLOAD: u64 = 200_000;

/// One who asks, again and again.
pub(crate) struct Asker<'a> {
    name: String,
    address: SocketAddr,
    rng: Rng,
    ledger: &'a Ledger,
    stop: &'a AtomicBool,
    /// Kept from the request before.
    connection: Option<Client>,
    asked: usize,
}

impl<'a> Asker<'a> {
    pub(crate) fn new(
        name: String,
        address: SocketAddr,
        rng: Rng,
        ledger: &'a Ledger,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            name,
            address,
            rng,
            ledger,
            stop,
            connection: None,
            asked: 0,
        }
    }

    /// Streams, until told to stop.
    pub(crate) fn streams(mut self) {
        // Not all at one moment.
        pause(Duration::from_millis(self.rng.below(1000)));
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.id();
            let entry = self.stream(id);
            self.enter(entry);
        }
    }

    /// Requests with a whole answer, and clients that leave on the way, until told to stop.
    pub(crate) fn plain_ones(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.id();
            let entry = match self.rng.below(10) {
                0 => self.half_an_upload(id),
                1 => {
                    self.half_a_head(&id);
                    continue;
                }
                _ => self.upload(id),
            };
            self.enter(entry);
            pause(Duration::from_millis(self.rng.below(100)));
        }
    }

    fn id(&mut self) -> String {
        self.asked += 1;
        format!("{}-{}", self.name, self.asked)
    }

    fn enter(&mut self, entry: Entry) {
        let well = matches!(entry.seen, Seen::Whole | Seen::Left | Seen::LeftEarly);
        self.ledger.enter(entry);
        if !well {
            // As a client with a back-off does.
            pause(Duration::from_millis(200 + self.rng.below(300)));
        }
    }

    fn connect(&mut self) -> Client {
        if let Some(client) = self.connection.take() {
            return client;
        }
        let mut client = Client::connect(self.address);
        client.patience(PATIENCE);
        client
    }

    /// One of two keeps its connection.
    fn keep(&mut self, client: Client, head: &Head) {
        if self.rng.below(2) == 0 && !head.has("connection") {
            self.connection = Some(client);
        }
    }

    fn leave(&mut self, client: Client) {
        if self.rng.below(2) == 0 {
            client.reset();
        }
    }

    fn stream(&mut self, id: String) -> Entry {
        let events = 10 + self.rng.below(50) as usize;
        let between = Duration::from_millis(100 + self.rng.below(150));
        let expected = all_events(&id, events);
        let leaves = match self.rng.below(12) {
            0 => Some(0),
            1 | 2 => Some(1 + self.rng.below(expected.len() as u64 / 2) as usize),
            _ => None,
        };
        let mut entry = Entry::new(id, expected.len());
        let mut client = self.connect();
        if client
            .try_send(streamed(&entry.id, events, between))
            .is_err()
        {
            return entry;
        }
        if leaves == Some(0) {
            // By FIN, so that the request is read before the end is.
            pause(Duration::from_millis(self.rng.below(150)));
            return entry.saw(Seen::LeftEarly);
        }
        let Ok(head) = client.try_head() else {
            return entry;
        };
        entry.stamped = head.has("x-kv-pools");
        if head.status() != 200 {
            let answer = client.body_of(head.clone(), "POST");
            self.keep(client, &head);
            return entry.saw_error(&answer);
        }
        loop {
            match client.try_chunk() {
                Ok(Some(data)) => {
                    let from = entry.received;
                    entry.received += data.len();
                    let right = expected.as_bytes().get(from..entry.received);
                    if right != Some(data.as_slice()) {
                        let text = String::from_utf8_lossy(&data).into_owned();
                        return entry.saw(Seen::Mixed(text));
                    }
                }
                Ok(None) if entry.received == expected.len() => {
                    self.keep(client, &head);
                    return entry.saw(Seen::Whole);
                }
                Ok(None) => {
                    let text = "an end before the last event".to_owned();
                    return entry.saw(Seen::Mixed(text));
                }
                Err(End::Silent) => {
                    return entry.saw(Seen::Mixed("nothing for a minute".to_owned()));
                }
                Err(_) => return entry.saw(Seen::Broken),
            }
            if leaves.is_some_and(|bytes| entry.received >= bytes) {
                self.leave(client);
                return entry.saw(Seen::Left);
            }
        }
    }

    fn upload(&mut self, id: String) -> Entry {
        let bytes = self.rng.below(UPLOAD) as usize;
        let expected = whole(&id, bytes);
        let mut entry = Entry::new(id, expected.len());
        entry.uploads = true;
        let mut client = self.connect();
        if client.try_send(plain(&entry.id, bytes)).is_err() {
            return entry;
        }
        // Where this fails an answer may be there all the same.
        let _ = client.try_send(vec![b'u'; bytes]);
        let Ok(answer) = client.try_response("POST") else {
            return entry;
        };
        entry.stamped = answer.head.has("x-kv-pools");
        if answer.status() != 200 {
            // The connection ends with an answer that did not wait for the body.
            return entry.saw_error(&answer);
        }
        entry.received = answer.body.len();
        if answer.end != End::Complete {
            return entry.saw(Seen::Broken);
        }
        if answer.body != expected.as_bytes() {
            return entry.saw(Seen::Mixed(answer.text()));
        }
        self.keep(client, &answer.head);
        entry.saw(Seen::Whole)
    }

    /// Leaves in the middle of a body, once kvgauge has begun to read it.
    fn half_an_upload(&mut self, id: String) -> Entry {
        let bytes = 2 + self.rng.below(UPLOAD) as usize;
        let mut entry = Entry::new(id, 0);
        entry.uploads = true;
        let mut client = self.connect();
        let head = plain(&entry.id, bytes).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
        if client.try_send(head).is_err() {
            return entry;
        }
        let Ok(head) = client.try_head() else {
            return entry;
        };
        if head.status() != 100 {
            entry.stamped = head.has("x-kv-pools");
            let answer = client.body_of(head, "POST");
            return entry.saw_error(&answer);
        }
        entry.stamped = true;
        let _ = client.try_send(vec![b'u'; bytes / 2]);
        self.leave(client);
        entry.saw(Seen::LeftUploading)
    }

    /// Leaves in the middle of a head: no request at all.
    fn half_a_head(&mut self, id: &str) {
        let head = plain(id, 0);
        let mut client = Client::connect(self.address);
        if client.try_send(&head[..head.len() / 2]).is_ok() {
            self.ledger.half_a_head();
        }
        client.close();
    }
}
