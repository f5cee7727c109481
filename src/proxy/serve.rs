//! The data plane's threads: workers, each with a runtime of its own, and who accepts for them.

use super::client::Client;
use super::connection;
use super::guard::caught;
use super::stack::StackParts;
use super::worker::{COMPLAINT_PAUSE, Counted, Load, Phase, Worker};
use crate::config::Settings;
use crate::net::{self, Addresses};
use crate::publish::Stamps;
use crate::telemetry::log::Log;
use crate::telemetry::{Meters, Telemetry};
use metrics::Counter;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often a worker hands its log lines over.
const LOG_TICK: Duration = Duration::from_millis(100);

/// Log ticks between two sweeps of the connections.
const TICKS_A_SWEEP: u32 = 5;

/// Accepted sockets on their way to a worker. When they pile up, the acceptor waits.
const MOST_ON_THE_WAY: usize = 256;

/// Wait after an accept that failed: longer each time, as long as they fail.
const ACCEPT_BACK_OFF: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(500));

/// What the data plane is made of.
pub struct Plane {
    /// The settings.
    pub settings: Arc<Settings>,
    /// Client connections at a time.
    pub connections: usize,
    /// The current stamp.
    pub stamps: Stamps,
    /// Where counts go.
    pub telemetry: Arc<Telemetry>,
    /// How far the process is on its way out.
    pub phase: watch::Receiver<Phase>,
}

/// The running data plane.
pub struct Running {
    threads: Vec<JoinHandle<io::Result<()>>>,
    loads: Arc<[Arc<Load>]>,
}

/// How far each worker was at the last look.
#[derive(Debug, Default)]
pub struct Beats(Vec<usize>);

/// A socket, and its place among the connections: dropped with the connection, however that ends.
struct Accepted<S> {
    stream: S,
    peer: SocketAddr,
    place: Place,
}

type Place = (Counted, OwnedSemaphorePermit);

// === impl Plane ===

impl Plane {
    /// Starts the workers, and with more than one of them the acceptor.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub fn start(self, listener: TcpListener, log: &Log) -> io::Result<Running> {
        let count = self.settings.workers.max(1);
        let loads: Arc<[Arc<Load>]> = (0..count).map(|_| Arc::default()).collect();
        let places = Arc::new(Semaphore::new(self.connections));
        let acceptor = Acceptor {
            places,
            phase: self.phase.clone(),
            failures: self.telemetry.accept_failures(),
        };
        let mut threads = Vec::with_capacity(count + 1);
        let mut inboxes = Vec::with_capacity(count);
        let mut own = Some((listener, acceptor));
        let addresses = Arc::<Addresses>::default();
        for index in 0..count {
            let source = if count == 1 {
                match own.take() {
                    Some((listener, acceptor)) => Source::Listener(listener, acceptor),
                    None => continue,
                }
            } else {
                let (inbox, outlet) = mpsc::channel(MOST_ON_THE_WAY);
                inboxes.push(inbox);
                Source::Inbox(outlet)
            };
            let worker = {
                let (settings, stamps) = (Arc::clone(&self.settings), self.stamps.clone());
                let (telemetry, loads) = (Arc::clone(&self.telemetry), Arc::clone(&loads));
                let (sink, addresses) = (log.sink(), Arc::clone(&addresses));
                move || {
                    let meters = Meters::new(&telemetry);
                    Worker::new(settings, &stamps, sink, meters, index, loads, addresses)
                }
            };
            let phase = self.phase.clone();
            threads.push(
                thread::Builder::new()
                    .name(format!("kvgauge-{index}"))
                    .spawn(move || work(worker, source, phase))?,
            );
        }
        if let Some((listener, acceptor)) = own {
            let loads = Arc::clone(&loads);
            threads.push(
                thread::Builder::new()
                    .name("kvgauge-accept".into())
                    .spawn(move || hand_out(listener, acceptor, &loads, &inboxes))?,
            );
        }
        Ok(Running { threads, loads })
    }
}

// === impl Running ===

impl Running {
    /// Requests in flight.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.loads.iter().map(|l| l.requests()).sum()
    }

    /// Open client connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.loads.iter().map(|l| l.connections()).sum()
    }

    /// Whether every thread has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Whether every worker's thread has gone on since the last look, which is some tenths of a second
    /// ago; one that has ended need not.
    #[must_use]
    pub fn all_beat(&self, last: &mut Beats) -> bool {
        let now: Vec<usize> = self.loads.iter().map(|load| load.beats()).collect();
        let before = std::mem::replace(&mut last.0, now);
        let went_on = |at: usize, now: usize| before.get(at).is_none_or(|before| *before != now);
        let ended = |at: usize| self.threads.get(at).is_none_or(JoinHandle::is_finished);
        let mut all = last.0.iter().enumerate();
        all.all(|(at, now)| went_on(at, *now) || ended(at))
    }

    /// Waits for every thread.
    ///
    /// # Errors
    /// The first thread's error, if any had one.
    pub fn join(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a worker thread panicked")));
            result = result.and(ended);
        }
        result
    }
}

// === a worker's thread ===

enum Source {
    Listener(TcpListener, Acceptor),
    Inbox(mpsc::Receiver<Accepted<std::net::TcpStream>>),
}

type Connections = Rc<RefCell<Vec<Weak<Client>>>>;

fn work(
    worker: impl FnOnce() -> Worker,
    source: Source,
    phase: watch::Receiver<Phase>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let worker = Rc::new(worker());
        let connections = Connections::default();
        let ticking = tokio::task::spawn_local(tick(Rc::clone(&worker), Rc::clone(&connections)));
        let leaving = tokio::task::spawn_local({
            let (worker, mut phase) = (Rc::clone(&worker), phase.clone());
            async move {
                reached(&mut phase, Phase::Leaving).await;
                worker.set_phase(Phase::Leaving);
            }
        });
        let parts = Rc::new(StackParts::new(Rc::clone(&worker)));
        let open = {
            let connections = Rc::clone(&connections);
            move |accepted: Accepted<TcpStream>| {
                net::prepare_accepted(&accepted.stream);
                let (parts, connections) = (Rc::clone(&parts), Rc::clone(&connections));
                tokio::task::spawn_local(async move {
                    let Accepted {
                        stream,
                        peer,
                        place,
                    } = accepted;
                    connection::serve(stream, peer, parts, |client| {
                        connections.borrow_mut().push(Rc::downgrade(client));
                    })
                    .await;
                    drop(place);
                });
            }
        };
        match source {
            Source::Listener(listener, acceptor) => {
                let load = Arc::clone(&worker.load);
                let give = async |stream, peer, permit| {
                    open(Accepted {
                        stream,
                        peer,
                        place: (Counted::new(&load), permit),
                    });
                };
                acceptor.run(listener, give).await?;
            }
            Source::Inbox(inbox) => receive(inbox, phase.clone(), &open).await,
        }
        drop(open);
        leave(&worker, &connections, phase).await;
        ticking.abort();
        leaving.abort();
        worker.sink.flush();
        Ok(())
    })
}

/// Takes sockets from the acceptor until the drain begins.
async fn receive(
    mut inbox: mpsc::Receiver<Accepted<std::net::TcpStream>>,
    mut phase: watch::Receiver<Phase>,
    open: &impl Fn(Accepted<TcpStream>),
) {
    loop {
        let accepted = tokio::select! {
            accepted = inbox.recv() => accepted,
            () = reached(&mut phase, Phase::Draining) => {
                // What the acceptor had already taken is served too.
                inbox.close();
                inbox.recv().await
            }
        };
        let Some(Accepted {
            stream,
            peer,
            place,
        }) = accepted
        else {
            return;
        };
        if let Ok(stream) = TcpStream::from_std(stream) {
            open(Accepted {
                stream,
                peer,
                place,
            });
        }
    }
}

/// Asks every connection to finish, waits for it, and cuts what is left when told to.
async fn leave(worker: &Rc<Worker>, connections: &Connections, mut phase: watch::Receiver<Phase>) {
    worker.set_phase(Phase::Draining);
    sweep(worker, connections);
    let mut cut = false;
    while worker.load.connections() > 0 {
        tokio::select! {
            () = sleep(Duration::from_millis(10)) => {}
            () = reached(&mut phase, Phase::Cutting), if !cut => {
                cut = true;
                worker.set_phase(Phase::Cutting);
                sweep(worker, connections);
            }
        }
    }
}

async fn tick(worker: Rc<Worker>, connections: Connections) {
    let mut ticks = interval(LOG_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0;
    loop {
        ticks.tick().await;
        worker.load.beat();
        count = (count + 1) % TICKS_A_SWEEP;
        // A panic here ends this turn, and no other.
        let _ = caught(|| worker.sink.flush());
        if count == 0 {
            let _ = caught(|| sweep(&worker, &connections));
            let _ = caught(|| worker.pool.sweep(Instant::now()));
            let _ = caught(|| worker.pool.follow(Instant::now()));
        }
    }
}

fn sweep(worker: &Worker, connections: &Connections) {
    let now = Instant::now();
    connections.borrow_mut().retain(|client| {
        client.upgrade().is_some_and(|client| {
            connection::sweep(&client, worker, now);
            true
        })
    });
}

/// Waits until the process has come so far on its way out, or whoever leads it is gone.
pub async fn reached(phase: &mut watch::Receiver<Phase>, at_least: Phase) {
    let _ = phase.wait_for(|now| *now >= at_least).await;
}

// === accepting ===

struct Acceptor {
    places: Arc<Semaphore>,
    phase: watch::Receiver<Phase>,
    failures: Counter,
}

impl Acceptor {
    /// Accepts until the drain begins; then the listener is closed.
    async fn run<F>(
        mut self,
        listener: TcpListener,
        give: impl Fn(TcpStream, SocketAddr, OwnedSemaphorePermit) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()>,
    {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut back_off = ACCEPT_BACK_OFF.0;
        let mut told: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                biased;
                () = reached(&mut self.phase, Phase::Draining) => return Ok(()),
                accepted = accept(&listener, &self.places) => accepted,
            };
            match accepted {
                Ok(Some((stream, peer, permit))) => {
                    back_off = ACCEPT_BACK_OFF.0;
                    give(stream, peer, permit).await;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.failures.increment(1);
                    // Now and then one succeeds in between, so what is counted is time.
                    if told.is_none_or(|last| last.elapsed() >= COMPLAINT_PAUSE) {
                        told = Some(Instant::now());
                        let cure = if net::out_of_descriptors(&error) {
                            "raise the limit of open files (ulimit -n), or lower limits.connections"
                        } else {
                            "clients wait in the listener's queue"
                        };
                        tracing::warn!("A client's connection can't be accepted ({error}): {cure}");
                    }
                    sleep(back_off).await;
                    back_off = (back_off * 2).min(ACCEPT_BACK_OFF.1);
                }
            }
        }
    }
}

/// A place first, so that at the limit clients wait in the listener's queue.
async fn accept(
    listener: &tokio::net::TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)>> {
    let Ok(place) = Arc::clone(places).acquire_owned().await else {
        return Ok(None);
    };
    let (stream, peer) = listener.accept().await?;
    Ok(Some((stream, peer, place)))
}

/// The acceptor's thread: each socket goes to the worker with the fewest open streams.
fn hand_out(
    listener: TcpListener,
    acceptor: Acceptor,
    loads: &[Arc<Load>],
    inboxes: &[mpsc::Sender<Accepted<std::net::TcpStream>>],
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(acceptor.run(listener, async |stream, peer, permit| {
        let Ok(stream) = stream.into_std() else {
            return;
        };
        let quietest = loads
            .iter()
            .zip(inboxes)
            // A worker that has ended early takes nothing any more.
            .filter(|(_, inbox)| !inbox.is_closed())
            .min_by_key(|(load, _)| (load.requests(), load.connections()));
        if let Some((load, inbox)) = quietest {
            // Counted here, so that a burst does not all go to one worker.
            let place = (Counted::new(load), permit);
            let accepted = Accepted {
                stream,
                peer,
                place,
            };
            let _ = inbox.send(accepted).await;
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_hangs_is_seen_and_one_that_has_ended_is_not_missed() {
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
        let lives = thread::spawn(move || {
            let _ = ended.recv();
            Ok(())
        });
        let gone = thread::spawn(|| Ok(()));
        while !gone.is_finished() {
            thread::yield_now();
        }
        let loads: Arc<[Arc<Load>]> = (0..2).map(|_| Arc::default()).collect();
        let running = Running {
            threads: vec![lives, gone],
            loads: Arc::clone(&loads),
        };
        let mut beats = Beats::default();
        assert!(running.all_beat(&mut beats), "nothing is known yet");
        loads[0].beat();
        assert!(running.all_beat(&mut beats));
        assert!(!running.all_beat(&mut beats), "it has not gone on");
        assert!(!running.all_beat(&mut beats));
        loads[0].beat();
        assert!(running.all_beat(&mut beats));
        drop(end);
        running.join().unwrap();
    }
}
