//! Who is read: a poller for each source, started when the source comes and ended when it leaves, and a
//! task for each way in which sources are found. Settings that are read anew start again what they concern;
//! what is known of a source stays.

use super::allowance::{Allowance, Allowed};
use super::board::{Board, Discovery, Entry, Id};
use super::discover::{Finder, Found, Looked, plan};
use super::poller::{Poller, Shared, initial};
use crate::config::{Current, Settings, Source};
use crate::kv::Handle;
use crate::net::{Trusts, again};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// From a panic over a source to its next read.
const AFTER_PANIC: Duration = Duration::from_secs(10);

/// Keeps reading all sources.
pub struct Scraper {
    settings: Current,
    board: Board,
    on_read: Box<dyn Fn() + Send + Sync>,
}

/// What the pollers report to.
pub(super) struct Reports {
    board: Board,
    on_read: Box<dyn Fn() + Send + Sync>,
}

/// The pollers that run.
struct Crew {
    settings: RefCell<Arc<Settings>>,
    reports: Rc<Reports>,
    members: RefCell<Vec<Member>>,
    next: Cell<u64>,
    trusts: Trusts,
    /// What each way of finding has found; none where nothing was seen yet.
    lists: RefCell<Vec<Vec<Found>>>,
    discoveries: RefCell<Vec<Discovery>>,
    finders: RefCell<Vec<AbortHandle>>,
    /// Lines of the diagnostics on who comes and goes, and on what is wrong with the lists.
    allowance: RefCell<Allowance>,
    /// Lines on what the sources are like that were found.
    found: Shared,
    started: Instant,
}

/// What becomes of the pollers of sources that stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    AsTheyAre,
    /// They begin anew, from what they know: how they read has changed.
    Anew,
}

struct Member {
    id: Id,
    source: Source,
    task: AbortHandle,
}

// === impl Scraper ===

impl Scraper {
    /// Puts every source of the settings on the board, as not read yet, and into `snapshot`. `on_read`
    /// is called after each read, when its result is there, and when sources have come or left. Settings
    /// that are in force later are followed.
    #[must_use]
    pub fn new(
        settings: Current,
        snapshot: Handle,
        on_read: impl Fn() + Send + Sync + 'static,
    ) -> Scraper {
        let board = Board::new(snapshot);
        board.set(
            settings
                .now()
                .sources
                .iter()
                .zip(0..)
                .map(|(source, id)| Entry {
                    id: Id(id),
                    state: Arc::new(initial(source)),
                    page: None,
                }),
        );
        Scraper {
            settings,
            board,
            on_read: Box::new(on_read),
        }
    }

    /// What is known of the sources.
    #[must_use]
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Starts a task for each source on this thread: call it within a tokio `LocalRuntime` or
    /// `LocalSet`.
    pub fn spawn(self) {
        let mut current = self.settings;
        let settings = current.now();
        let most = settings.discovery.max_sources;
        let crew = Rc::new(Crew {
            settings: RefCell::new(Arc::clone(&settings)),
            reports: Rc::new(Reports {
                board: self.board,
                on_read: self.on_read,
            }),
            members: RefCell::default(),
            next: Cell::new(0),
            trusts: Trusts::default(),
            lists: RefCell::default(),
            discoveries: RefCell::default(),
            finders: RefCell::default(),
            allowance: RefCell::new(Allowance::new(Instant::now())),
            found: Rc::new(RefCell::new(Allowance::shared(most, Instant::now()))),
            started: Instant::now(),
        });
        crew.look_for_more(&settings);
        crew.become_those(&settings.sources, Stay::AsTheyAre);
        tokio::task::spawn_local(async move {
            while let Some(new) = current.next().await {
                crew.follow(&new);
            }
        });
    }
}

fn not_looked(kind: &'static str) -> Discovery {
    Discovery {
        kind,
        up: None,
        found: 0,
        left_out: 0,
        unhealthy: Vec::new(),
        taken: None,
        failures: 0,
        problem: None,
    }
}

fn tell_health(unhealthy: &[Arc<str>]) {
    if unhealthy.is_empty() {
        tracing::info!("the router takes all of its workers for healthy again");
    } else {
        let names = unhealthy.join(", ");
        tracing::warn!(
            "the router takes {names} for unhealthy and sends nothing there: see its own log; their pages are read all the same"
        );
    }
}

/// Keeps looking for sources in one way.
async fn find(crew: Rc<Crew>, at: usize, mut finder: Finder) {
    let interval = crew.settings().discovery.interval;
    loop {
        let looked = finder.look().await;
        crew.take(at, looked);
        sleep(finder.pause(interval)).await;
    }
}

/// Reads a source until this is dropped, from what is `known` of it on. One over which kvgauge panics is as
/// if it had not been read, and is read again later.
#[allow(clippy::too_many_arguments, reason = "what a poller is made of")]
async fn keep_reading(
    id: Id,
    source: Source,
    known: Option<Entry>,
    settings: Arc<Settings>,
    trusts: Trusts,
    shared: Option<Shared>,
    started: Instant,
    reports: Rc<Reports>,
) {
    let (first, known) = (Cell::new(true), Cell::new(known));
    again(AFTER_PANIC, || {
        if !first.replace(false) {
            reports.report(Entry {
                id,
                state: Arc::new(initial(&source)),
                page: None,
            });
        }
        let mut poller = Poller::new(
            id,
            source.clone(),
            &settings,
            &trusts,
            shared.clone(),
            started,
        );
        if let Some(known) = known.take() {
            poller.resume(known);
        }
        poller.run(Rc::clone(&reports))
    })
    .await;
}

// === impl Reports ===

impl Reports {
    pub(super) fn report(&self, entry: Entry) {
        self.board.report(entry);
        (self.on_read)();
    }
}

// === impl Crew ===

impl Crew {
    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Starts looking for sources as the settings say, in place of how it was done. What a way has found
    /// that goes on is held until it has looked again.
    fn look_for_more(self: &Rc<Self>, settings: &Arc<Settings>) {
        let before = self.settings.replace(Arc::clone(settings));
        for task in self.finders.take() {
            task.abort();
        }
        let finders = Finder::all(settings, &self.trusts);
        let known = self.discoveries.take();
        let mut known: Vec<_> = known.into_iter().zip(self.lists.take()).collect();
        let (discoveries, lists): (Vec<_>, Vec<_>) = finders
            .iter()
            .map(|finder| {
                let goes_on = finder.at(&before) == finder.at(settings);
                let known = known.iter_mut().find(|(d, _)| d.kind == finder.kind());
                match known.filter(|_| goes_on) {
                    Some((discovery, list)) => (discovery.clone(), std::mem::take(list)),
                    None => (not_looked(finder.kind()), Vec::new()),
                }
            })
            .unzip();
        self.reports.board.found(discoveries.clone());
        self.discoveries.replace(discoveries);
        self.lists.replace(lists);
        let tasks = finders.into_iter().enumerate().map(|(at, finder)| {
            tokio::task::spawn_local(find(Rc::clone(self), at, finder)).abort_handle()
        });
        self.finders.replace(tasks.collect());
    }

    /// Takes over settings that were read anew.
    fn follow(self: &Rc<Self>, new: &Arc<Settings>) {
        let old = self.settings();
        let looks_as_before = old.discovery == new.discovery
            && old.scrape == new.scrape
            && old.mappings == new.mappings;
        if !looks_as_before {
            self.look_for_more(new);
        } else {
            self.settings.replace(Arc::clone(new));
        }
        let reads_as_before =
            old.scrape == new.scrape && old.metrics == new.metrics && old.mappings == new.mappings;
        let plan = plan(new, &self.lists.borrow());
        self.left_out(&plan.beyond);
        self.become_those(
            &plan.sources,
            if reads_as_before {
                Stay::AsTheyAre
            } else {
                Stay::Anew
            },
        );
        let discoveries = self.discoveries.borrow().clone();
        self.reports.board.found(discoveries);
    }

    /// Takes in what one way of finding has seen.
    fn take(&self, at: usize, looked: Looked) {
        self.note(at, &looked);
        if let Some(found) = looked.found {
            let mut lists = self.lists.borrow_mut();
            if let Some(list) = lists.get_mut(at).filter(|list| **list != found) {
                *list = found;
                let plan = plan(&self.settings(), &lists);
                drop(lists);
                self.left_out(&plan.beyond);
                self.become_those(&plan.sources, Stay::AsTheyAre);
            }
        }
        let discoveries = self.discoveries.borrow().clone();
        self.reports.board.found(discoveries);
    }

    /// How the look went; what is wrong is told when that changes.
    fn note(&self, at: usize, looked: &Looked) {
        let mut discoveries = self.discoveries.borrow_mut();
        let Some(discovery) = discoveries.get_mut(at) else {
            return;
        };
        if let Some(found) = &looked.found {
            discovery.found = found.len();
            discovery.taken = Some(Instant::now());
            if looked.unhealthy != discovery.unhealthy {
                self.tell(|| tell_health(&looked.unhealthy));
                discovery.unhealthy.clone_from(&looked.unhealthy);
            }
        }
        let kind = discovery.kind;
        let problem = looked.problem.as_ref();
        let whole = problem.is_none_or(|problem| !problem.costs);
        let problem: Option<Arc<str>> = problem.map(|problem| problem.to_string().into());
        discovery.up = Some(whole);
        if !whole {
            discovery.failures += 1;
        }
        if problem != discovery.problem {
            self.tell(|| match &problem {
                Some(what) => tracing::warn!("{what}"),
                None => tracing::info!("discovery.{kind}: the list of sources is whole again"),
            });
        }
        discovery.problem = problem;
    }

    /// How many sources are beyond the limit; told when it begins.
    fn left_out(&self, beyond: &[usize]) {
        for (discovery, n) in self.discoveries.borrow_mut().iter_mut().zip(beyond) {
            if discovery.left_out == 0 && *n > 0 {
                let (kind, most) = (discovery.kind, self.settings().discovery.max_sources);
                self.tell(|| {
                    tracing::warn!(
                        "discovery.{kind} has {n} sources more than are taken ({most}): raise discovery.max_sources if all are meant"
                    );
                });
            }
            discovery.left_out = *n;
        }
    }

    /// Says something, unless lists change so often that it would not end.
    fn tell(&self, say: impl FnOnce()) {
        let allowed = self.allowance.borrow_mut().take(Instant::now());
        if allowed == Allowed::No {
            return;
        }
        say();
        if allowed == Allowed::Last {
            tracing::warn!(
                "sources come and go so often that it is told now and then only; /sources has them"
            );
        }
    }

    /// Reads these sources and no other. A source that was read before as it is set now goes on; what is
    /// known of one that leaves is gone when this returns.
    fn become_those(&self, sources: &[Source], stay: Stay) {
        let settings = self.settings();
        let mut before = self.members.take();
        let mut members = Vec::with_capacity(sources.len());
        let view = self.reports.board.load();
        let mut entries = Vec::with_capacity(sources.len());
        let mut come = Vec::new();
        for source in sources {
            let stays = before.iter().position(|member| member.source == *source);
            let stays = stays.map(|at| before.swap_remove(at));
            let known = stays.as_ref().and_then(|member| view.entry(member.id));
            if let (Some(member), Some(entry)) = (stays, known) {
                if stay == Stay::Anew {
                    member.task.abort();
                    come.push((member.id, source, Some(entry.clone())));
                } else {
                    members.push(member);
                }
                entries.push(entry);
            } else {
                let id = Id(self.next.replace(self.next.get() + 1));
                come.push((id, source, None));
                entries.push(Entry {
                    id,
                    state: Arc::new(initial(source)),
                    page: None,
                });
            }
        }
        for gone in before {
            gone.task.abort();
            self.tell(|| tracing::info!("{}: not on any list any more", gone.source.name));
        }
        self.reports.board.set(entries);
        (self.reports.on_read)();
        for (id, source, known) in come {
            let found = !settings.sources.contains(source);
            if found && known.is_none() {
                self.tell(|| tracing::info!("{}: found at {}", source.name, source.url));
            }
            let task = tokio::task::spawn_local(keep_reading(
                id,
                source.clone(),
                known,
                Arc::clone(&settings),
                self.trusts.clone(),
                found.then(|| Rc::clone(&self.found)),
                self.started,
                Rc::clone(&self.reports),
            ));
            members.push(Member {
                id,
                source: source.clone(),
                task: task.abort_handle(),
            });
        }
        self.members.replace(members);
    }
}
