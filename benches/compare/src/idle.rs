//! Streams that are held open and say nothing, to see what they take.

use crate::answers::Shape;
use crate::client::{Ask, Check};
use crate::tally::Tally;
use crate::wire::{Fault, Wire};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What each stream says before it falls silent.
const SHAPE: Shape = Shape {
    events: 4,
    size: 190,
    every_us: 0,
    hold: true,
};
/// So many are opened at once.
const OPENING: usize = 50;

/// Streams that are open.
#[derive(Debug, Default)]
pub struct Idle {
    streams: JoinSet<Result<(), Fault>>,
}

impl Idle {
    /// Opens streams; those that have had all their events are counted as right.
    pub async fn open(&mut self, to: SocketAddr, streams: u32, limit: Duration) -> Tally {
        let ask = Arc::new(Ask::stream(SHAPE, limit));
        let turn = Arc::new(Semaphore::new(OPENING));
        let (opened, mut open) = mpsc::channel(usize::try_from(streams).unwrap_or(OPENING).max(1));
        for _ in 0..streams {
            let (ask, turn, opened) = (Arc::clone(&ask), Arc::clone(&turn), opened.clone());
            self.streams.spawn(async move {
                let mut permit = turn.acquire_owned().await.ok();
                let mut wire = Wire::connect(to).await?;
                wire.write(ask.request()).await?;
                let mut check = Check::new(SHAPE.events);
                let mut opened = Some(opened);
                ask.events(&mut wire, &mut check, |seen| {
                    if seen == SHAPE.events
                        && opened.take().is_some_and(|all| all.try_send(()).is_ok())
                    {
                        permit = None;
                    }
                })
                .await
            });
        }
        drop(opened);
        let mut tally = Tally::default();
        let all = async {
            while tally.right < u64::from(streams) && open.recv().await.is_some() {
                tally.right += 1;
            }
        };
        let late = timeout(limit, all).await.is_err();
        if tally.right < u64::from(streams) {
            let why = if late {
                "not open in time"
            } else {
                "ended while being opened"
            };
            tally.count(Err(format!(
                "{} of {streams} streams open, others {why}",
                tally.right
            )));
        }
        tally
    }

    /// Lets them go, and checks their ends.
    pub async fn close(&mut self, release: &watch::Sender<u64>, limit: Duration) -> Tally {
        release.send_modify(|times| *times += 1);
        let mut tally = Tally::default();
        let all = async {
            while let Some(ended) = self.streams.join_next().await {
                tally.count(ended.unwrap_or_else(|error| Err(error.to_string())));
            }
        };
        if timeout(limit, all).await.is_err() {
            self.streams.abort_all();
            tally.count(Err("held streams did not end".into()));
        }
        tally
    }
}
