//! What is known, and since when. Pure: who uses it says what time it is.

use super::feed::Heard;
use super::moment::{History, Moment, SourceSeen};
use crate::cli::role_line::RoleSays;
use crate::cli::status::report::{Level, Limits, titles};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Without an event for so long what is shown is old: there is one each second.
const OLD: Duration = Duration::from_secs(5);

/// Points of a role's past: an hour of them, one a second.
const MOST_POINTS: usize = 3600;

/// Roles whose past is kept.
const MOST_TRACKS: usize = 64;

/// Roles and sources that are looked at.
const MOST_ROLES: usize = 256;

/// Usage at a moment, unix seconds.
type Point = (i64, Option<f64>);

/// See the [module](self) description.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Whom it is about, as it may be shown.
    pub(super) address: String,
    pub(super) limits: Limits,
    pub(super) moment: Option<Box<Moment>>,
    /// The moment's roles, judged.
    pub(super) roles: Vec<Role>,
    /// Of those that are not among these nothing is known.
    pub(super) roles_left_out: u64,
    /// When each source was last read well, as far as it was seen here.
    read: BTreeMap<String, Instant>,
    heard: Option<Instant>,
    pub(super) lost: Option<Lost>,
    /// Whether anybody that was asked has ever answered.
    pub(super) answered: bool,
    tracks: Vec<Track>,
}

/// There is no connection.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) since: Instant,
    pub(super) message: String,
    pub(super) next_try: Instant,
}

/// A role, or a model of it.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) title: String,
    /// Of the role as a whole: its usage, whether a part is missing, whether its pages still move.
    pub(super) level: Level,
    /// Of its fullest pool, where it has several: one full pool makes its requests wait.
    pub(super) hottest: Level,
    /// Its sources whose page stands still with work to do.
    pub(super) still: Vec<Still>,
    pub(super) says: RoleSays,
}

/// A page that can be read, and says nothing of now.
#[derive(Clone, Debug)]
pub(super) struct Still {
    pub(super) source: String,
    pub(super) unchanged: Option<Duration>,
}

/// A role's past, the oldest first.
#[derive(Clone, Debug)]
struct Track {
    role: String,
    model: Option<String>,
    points: VecDeque<Point>,
}

/// What a column of a graph shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Column {
    /// Nothing was heard.
    Nothing,
    Unknown,
    /// The most of its time, 0 to 1.
    Usage(f64),
}

// === impl Model ===

impl Model {
    pub(super) fn new(address: String, limits: Limits) -> Model {
        Model {
            address,
            limits,
            moment: None,
            roles: Vec::new(),
            roles_left_out: 0,
            read: BTreeMap::new(),
            heard: None,
            lost: None,
            answered: false,
            tracks: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, heard: Heard, now: Instant) {
        match heard {
            Heard::History(history) => self.remember(history),
            Heard::Moment(moment) => self.renew(moment, now),
            Heard::Lost { message, again } => {
                let since = self.lost.as_ref().map_or(now, |lost| lost.since);
                self.lost = Some(Lost {
                    since,
                    message,
                    next_try: now + again,
                });
            }
        }
    }

    fn renew(&mut self, mut moment: Box<Moment>, now: Instant) {
        moment.sources.truncate(MOST_ROLES);
        self.date(&mut moment, now);
        let up = |source: &SourceSeen| source.says.state == "up";
        self.answered |= moment.kvgauge.is_some() || moment.sources.iter().any(up);
        let time = moment.unix();
        let roles = moment.roles.clone();
        self.roles_left_out = moment.roles_left_out;
        self.moment = Some(moment);
        let limits = self.limits;
        let titles = titles(&roles.iter().collect::<Vec<_>>());
        let moment = self.moment.as_deref();
        let role = |(mut says, title): (RoleSays, String)| {
            let still = moment.map_or_else(Vec::new, |moment| moment.standing_still(&says));
            let level = limits.judge(&mut says);
            let max = says.max.filter(|_| says.pools > 1 && says.usage.is_some());
            Role {
                // As the page has it.
                level: if still.is_empty() {
                    level
                } else {
                    level.max(Level::Warning)
                },
                hottest: max.map_or(Level::Ok, |max| limits.level(max)),
                title,
                still: still.iter().map(|source| Still::of(source)).collect(),
                says,
            }
        };
        let mut roles: Vec<Role> = roles.into_iter().zip(titles).map(role).collect();
        let left_out = roles.len().saturating_sub(MOST_ROLES);
        if left_out > 0 {
            roles.sort_by_key(|role| std::cmp::Reverse(role.gravest()));
            roles.truncate(MOST_ROLES);
            self.roles_left_out += left_out as u64;
        }
        self.roles = roles;
        for role in &self.roles {
            let usage = role.says.usage;
            if let Some(track) = track(&mut self.tracks, &role.says.role, &role.says.model) {
                track.add((time, usage));
            }
        }
        self.heard = Some(now);
        self.lost = None;
    }

    /// Says of sources that can't be read now when they were.
    fn date(&mut self, moment: &mut Moment, now: Instant) {
        let mut read = BTreeMap::new();
        for source in &mut moment.sources {
            let name = &source.says.name;
            let at = match source.age_ms {
                Some(age) => now.checked_sub(Duration::from_millis(age)),
                None => self.read.get(name).copied(),
            };
            if let Some(at) = at {
                source.age_ms = source
                    .age_ms
                    .or_else(|| u64::try_from(now.saturating_duration_since(at).as_millis()).ok());
                read.insert(name.clone(), at);
            }
        }
        self.read = read;
    }

    /// The past as kvgauge has it, in place of what was seen.
    fn remember(&mut self, history: History) {
        self.tracks.clear();
        for role in history.roles {
            let Some(track) = track(&mut self.tracks, &role.role, &role.model) else {
                return;
            };
            let share = |usage: &f64| (0.0..=1.0).contains(usage);
            let reasons = role.unknown.iter().map(Option::is_some);
            let reasons = reasons.chain(std::iter::repeat(false));
            for ((time, usage), unknown) in history.times.iter().zip(role.usage).zip(reasons) {
                if usage.is_some() || unknown {
                    track.add((*time, usage.filter(share)));
                }
            }
        }
    }

    /// How long ago the last moment was heard.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.heard.map(|heard| now.saturating_duration_since(heard))
    }

    /// Whether what is shown is not of now.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.lost.is_some() || self.age(now).is_none_or(|age| age > OLD)
    }

    /// The worst of the roles.
    pub(super) fn worst(&self) -> Option<&Role> {
        let fullness = |role: &Role| role.says.usage.unwrap_or_default();
        self.roles.iter().max_by(|a, b| {
            let levels = a.gravest().cmp(&b.gravest());
            levels.then(fullness(a).total_cmp(&fullness(b)))
        })
    }

    /// A role's last time, in so many columns of so many seconds, the oldest first; the last one is now.
    /// Columns begin at multiples of their length, so that what has been drawn stays as it is.
    pub(super) fn columns(
        &self,
        says: &RoleSays,
        columns: usize,
        step: i64,
        now: Instant,
    ) -> Vec<Column> {
        let mut all = vec![Column::Nothing; columns];
        let Some(moment) = &self.moment else {
            return all;
        };
        // A role whose page is gone has no model, and is still the same.
        let same = |role: &&Role| role.says.role == says.role;
        let alone = self.roles.iter().filter(same).count() < 2;
        let is = |track: &&Track| {
            let nameless = track.model.is_none() || says.model.is_none();
            track.role == says.role && (track.model == says.model || (alone && nameless))
        };
        let since = self.age(now).unwrap_or_default().as_secs();
        let today = moment
            .unix()
            .saturating_add_unsigned(since)
            .div_euclid(step);
        let points = self
            .tracks
            .iter()
            .filter(is)
            .flat_map(|track| &track.points);
        for (time, usage) in points {
            let back = today - time.div_euclid(step);
            let back = usize::try_from(back).ok();
            let Some(at) = back.and_then(|back| columns.checked_sub(back + 1)) else {
                continue;
            };
            all[at] = match (all[at], usage) {
                // A moment that is not known would vanish otherwise.
                (Column::Unknown, _) | (_, None) => Column::Unknown,
                (Column::Nothing, Some(usage)) => Column::Usage(*usage),
                (Column::Usage(most), Some(usage)) => Column::Usage(most.max(*usage)),
            };
        }
        all
    }
}

// === impl Role ===

impl Role {
    /// Of the role and of its fullest pool.
    pub(super) fn gravest(&self) -> Level {
        self.level.max(self.hottest)
    }
}

// === impl Still ===

impl Still {
    pub(super) fn of(source: &SourceSeen) -> Still {
        Still {
            source: source.says.name.clone(),
            unchanged: source.unchanged_ms.map(Duration::from_millis),
        }
    }
}

// === impl Track ===

impl Track {
    /// Time that goes back is a clock that was set: what came before is of another time.
    fn add(&mut self, point: Point) {
        if self.points.back().is_some_and(|last| last.0 > point.0) {
            self.points.clear();
        }
        if self.points.len() == MOST_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

fn track<'a>(
    tracks: &'a mut Vec<Track>,
    role: &str,
    model: &Option<String>,
) -> Option<&'a mut Track> {
    let at = tracks
        .iter()
        .position(|t| t.role == role && t.model == *model);
    let at = match at {
        Some(at) => at,
        None if tracks.len() < MOST_TRACKS => {
            tracks.push(Track {
                role: role.to_owned(),
                model: model.clone(),
                points: VecDeque::new(),
            });
            tracks.len() - 1
        }
        None => return None,
    };
    tracks.get_mut(at)
}
