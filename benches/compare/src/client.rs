//! The client: asks, and checks every byte of what comes back.

use crate::answers::{self, DONE, RECEIVED, SHAPE, Shape};
use crate::clock;
use crate::tally::Tally;
use crate::wire::{Fault, Wire};
use crc32fast::Hasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Longest event that is waited for.
const EVENT_LIMIT: usize = 128 * 1024;
/// Quiet before each request that is sent alone.
const PAUSE: Duration = Duration::from_millis(1);

/// A request, and what the answer to it must be.
#[derive(Debug)]
pub struct Ask {
    request: Vec<u8>,
    received: String,
    want: Want,
    limit: Duration,
}

#[derive(Debug)]
enum Want {
    Whole(Vec<u8>),
    Events(u64),
}

impl Ask {
    /// A small chat call that is answered at once. An answer must be there within the limit.
    pub fn chat(limit: Duration) -> Self {
        Self::with(&chat(false), "", Want::Whole(answers::completion()), limit)
    }

    /// A chat call that is answered with a stream.
    pub fn stream(shape: Shape, limit: Duration) -> Self {
        let field = format!("{SHAPE}: {}\r\n", shape.field());
        Self::with(&chat(true), &field, Want::Events(shape.events), limit)
    }

    /// A body of this size, of text that does not repeat.
    pub fn upload(bytes: usize, limit: Duration) -> Self {
        let mut body = br#"{"model":"m","messages":[{"role":"user","content":""#.to_vec();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        while body.len() + 4 < bytes {
            // An LCG; its upper bits are good enough for letters.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            body.push(b'a' + ((state >> 59) % 26) as u8);
        }
        body.extend_from_slice(b"\"}]}");
        Self::with(&body, "", Want::Whole(answers::completion()), limit)
    }

    fn with(body: &[u8], more: &str, want: Want, limit: Duration) -> Self {
        let mut request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: router.example\r\naccept: application/json, text/event-stream\r\naccept-encoding: identity\r\nuser-agent: compare/1\r\nauthorization: Bearer sk-compare-0000000000000000000000\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        let received = answers::received(body.len() as u64, crc32fast::hash(body));
        Self {
            request,
            received,
            want,
            limit,
        }
    }

    /// Asks once on a connection that is kept, or made. After a fault it is not used again.
    pub async fn once(&self, to: SocketAddr, kept: &mut Option<Wire>, tally: &mut Tally) {
        let outcome = match timeout(self.limit, self.exchange(to, kept, tally)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no whole answer within {:?}", self.limit)),
        };
        if outcome.is_err() {
            *kept = None;
        }
        tally.count(outcome);
    }

    async fn exchange(
        &self,
        to: SocketAddr,
        kept: &mut Option<Wire>,
        tally: &mut Tally,
    ) -> Result<(), Fault> {
        let wire = match kept {
            Some(wire) => wire,
            None => kept.insert(Wire::connect(to).await?),
        };
        let started = clock::now();
        wire.write(&self.request).await?;
        match &self.want {
            Want::Whole(want) => {
                self.whole(wire, want).await?;
                tally.times.push(clock::now() - started);
            }
            Want::Events(events) => {
                let mut check = Check::new(*events);
                self.events(wire, &mut check, |_| ()).await?;
                tally.events += check.seen;
                tally.times.append(&mut check.delays);
            }
        }
        Ok(())
    }

    async fn whole(&self, wire: &mut Wire, want: &[u8]) -> Result<(), Fault> {
        let mut body = self.head(wire, "application/json").await?;
        let mut at = 0;
        while let Some(piece) = wire.piece(&mut body).await? {
            if want.get(at..at + piece.len()) != Some(piece) {
                return Err("a body that the upstream did not send".into());
            }
            at += piece.len();
        }
        if at == want.len() {
            Ok(())
        } else {
            Err("a body that is cut short".into())
        }
    }

    /// Reads a stream, and tells after each read how many events there were so far.
    pub(crate) async fn events(
        &self,
        wire: &mut Wire,
        check: &mut Check,
        mut so_far: impl FnMut(u64),
    ) -> Result<(), Fault> {
        let mut body = self.head(wire, "text/event-stream").await?;
        while let Some(piece) = wire.piece(&mut body).await? {
            check.take(piece, clock::now())?;
            so_far(check.seen);
        }
        check.end()
    }

    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }

    async fn head(&self, wire: &mut Wire, kind: &str) -> Result<crate::wire::Body, Fault> {
        let head = wire.head().await?.ok_or("closed instead of an answer")?;
        if head.first().split(' ').nth(1) != Some("200") {
            return Err(format!("an answer that begins {}", head.first()));
        }
        match head.field("content-type") {
            Some(is) if is.starts_with(kind) => {}
            is => return Err(format!("a content type {is:?}")),
        }
        if head.field(RECEIVED) != Some(&self.received) {
            return Err("the upstream received another body".into());
        }
        head.body()?
            .ok_or_else(|| "neither a length nor chunks".into())
    }
}

fn chat(stream: bool) -> Vec<u8> {
    let text = "Say in one sentence what a cache is for, and name whoever told you so. ".repeat(7);
    format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"You answer briefly."}},{{"role":"user","content":"{text}"}}],"temperature":0.6,"max_tokens":512,"stream":{stream}}}"#
    )
    .into_bytes()
}

/// So many connections ask, each again when it has its answer, until there were `count` in all. The
/// first requests are spread over `spread`.
pub async fn closed_loop(
    to: SocketAddr,
    ask: Ask,
    connections: u32,
    count: u64,
    spread: Duration,
) -> Tally {
    let (ask, left) = (Arc::new(ask), Arc::new(AtomicU64::new(count)));
    let mut clients = JoinSet::new();
    for place in 0..connections {
        let (ask, left) = (Arc::clone(&ask), Arc::clone(&left));
        clients.spawn(async move {
            let (mut tally, mut kept) = (Tally::default(), None);
            if !spread.is_zero() {
                sleep(spread * place / connections).await;
            }
            while left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_ok()
            {
                ask.once(to, &mut kept, &mut tally).await;
            }
            tally
        });
    }
    let mut all = Tally::default();
    while let Some(ended) = clients.join_next().await {
        match ended {
            Ok(tally) => all.add(tally),
            Err(error) => all.count(Err(error.to_string())),
        }
    }
    all
}

/// One request at a time, the targets in turn, so that whatever else happens on the machine meets
/// all of them alike. Each turn begins with another target.
pub async fn turns(targets: &[SocketAddr], ask: &Ask, count: usize) -> Vec<Tally> {
    let mut tallies: Vec<Tally> = targets.iter().map(|_| Tally::default()).collect();
    let mut kept: Vec<Option<Wire>> = targets.iter().map(|_| None).collect();
    // The first request of a connection is no measurement.
    for (place, to) in targets.iter().enumerate() {
        ask.once(*to, &mut kept[place], &mut tallies[place]).await;
        tallies[place].times.clear();
    }
    for turn in 0..count {
        for step in 0..targets.len() {
            let place = (turn + step) % targets.len();
            sleep(PAUSE).await;
            ask.once(targets[place], &mut kept[place], &mut tallies[place])
                .await;
        }
    }
    tallies
}

/// Holds a stream against what its upstream sends: events, one with their checksum, `[DONE]`.
#[derive(Debug)]
pub(crate) struct Check {
    wanted: u64,
    seen: u64,
    sum: Hasher,
    stage: Stage,
    part: Vec<u8>,
    delays: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Events,
    Summed,
    Done,
}

impl Check {
    pub(crate) fn new(wanted: u64) -> Self {
        Self {
            wanted,
            seen: 0,
            sum: Hasher::new(),
            stage: Stage::Events,
            part: Vec::new(),
            delays: Vec::new(),
        }
    }

    fn take(&mut self, mut bytes: &[u8], now: u64) -> Result<(), Fault> {
        if !self.part.is_empty() {
            // The rest of an event whose beginning came before.
            let mut whole = std::mem::take(&mut self.part);
            whole.extend_from_slice(bytes);
            return self.take(&whole, now);
        }
        while let Some(end) = memchr::memmem::find(bytes, b"\n\n") {
            let (event, rest) = bytes.split_at(end + 2);
            self.event(event, now)?;
            bytes = rest;
        }
        if bytes.len() > EVENT_LIMIT {
            return Err("an event without an end".into());
        }
        self.part.extend_from_slice(bytes);
        Ok(())
    }

    fn event(&mut self, event: &[u8], now: u64) -> Result<(), Fault> {
        match self.stage {
            Stage::Events if answers::is_closing(event) => {
                let want = answers::closing(self.wanted, self.sum.clone().finalize());
                if self.seen != self.wanted || event != want.as_bytes() {
                    return Err("a stream that the upstream did not send".into());
                }
                self.stage = Stage::Summed;
            }
            Stage::Events => {
                let sent = answers::sent(event).ok_or("an event that the upstream did not send")?;
                self.sum.update(event);
                self.seen += 1;
                self.delays.push(now.saturating_sub(sent));
            }
            Stage::Summed if event == DONE => self.stage = Stage::Done,
            Stage::Summed | Stage::Done => return Err("something behind the stream's end".into()),
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Fault> {
        match self.stage {
            Stage::Done if self.part.is_empty() => Ok(()),
            _ => Err("a stream that is cut short".into()),
        }
    }
}
