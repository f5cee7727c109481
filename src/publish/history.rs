//! The last hour, a number each step: what each role said, and what the traffic was like. Pure: whoever
//! fills it brings the time.

use crate::kv::{Queues, Role, RoleState, Unknown};
use crate::telemetry::Traffic;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// From one number to the next.
pub const STEP: Duration = Duration::from_secs(2);

/// Numbers of a column: an hour.
pub const MOST_STEPS: usize = 1800;

/// Roles, or models of them, that are kept.
pub const MOST_ROLES: usize = 16;

/// The columns of a role, beside its queues and the reasons.
pub const ROLE_COLUMNS: [&str; 8] = [
    "usage",
    "max",
    "fill",
    "used",
    "capacity",
    "running",
    "queued",
    "preempted",
];

/// The columns of the traffic.
pub const TRAFFIC_COLUMNS: [&str; 10] = [
    "requests_per_s",
    "failed_per_s",
    "input_tokens_per_s",
    "output_tokens_per_s",
    "ttft_p50_ms",
    "ttft_p90_ms",
    "ttft_p99_ms",
    "tpot_p50_ms",
    "tpot_p90_ms",
    "tpot_p99_ms",
];

/// Names of pools that are kept: as many as a byte can tell apart, and none.
const MOST_NAMES: usize = 255;

/// PD queues; see [`Queues::iter`].
const QUEUES: usize = 4;

/// Unknown.
const NONE: f32 = f32::NAN;

/// See the [module](self) description.
///
/// Times are of a clock that never goes back and that runs on while the machine sleeps. What o'clock it
/// was is worked out when it is asked for, so the past moves along when the wall clock is set right.
#[derive(Debug, Default)]
pub struct History {
    /// When the last step was due.
    last: Option<Duration>,
    /// Steps so far, at most [`MOST_STEPS`].
    length: usize,
    roles: Vec<RoleHistory>,
    names: Names,
    traffic: [Column; TRAFFIC_COLUMNS.len()],
}

/// The past of one role, or of one model of it.
#[derive(Debug)]
pub struct RoleHistory {
    /// The role.
    pub role: Role,
    /// The model, where the role serves several or its pages name one.
    pub model: Option<Arc<str>>,
    values: [Column; ROLE_COLUMNS.len()],
    queues: [Column; QUEUES],
    /// Why the usage is unknown.
    reasons: VecDeque<Option<Unknown>>,
    /// Which pool was the fullest, by its number among the [`Names`], 0 where that is not known. What would
    /// stand before the first is not there.
    fullest: VecDeque<u8>,
    /// It said something in the last step.
    present: bool,
}

/// What pools are called; the first one's number is 1. Takes no memory while there is none.
#[derive(Debug, Default)]
struct Names(Vec<Box<str>>);

/// Numbers, the newest last; NaN is unknown. What would stand before the first that is known is not there,
/// so a column that never held a number takes no memory.
#[derive(Debug, Default)]
struct Column(VecDeque<f32>);

// === impl History ===

impl History {
    /// Takes note of one step. Where more time has passed than a step, what lies between is unknown; where
    /// it was less than half a step, the last one is written anew. `fullest` names a role's fullest pool.
    pub fn note(
        &mut self,
        at: Duration,
        states: &[RoleState],
        fullest: impl Fn(&RoleState) -> Option<String>,
        traffic: &Traffic,
    ) {
        let steps = self.last.map_or(1, |last| steps_between(last, at));
        for _ in 1..steps.min(MOST_STEPS + 1) {
            self.advance(Unknown::Stalled);
        }
        if steps > 0 {
            self.advance(Unknown::NotRead);
        }
        self.last = match self.last {
            Some(last) if steps == 0 => Some(last),
            // Not `at`, so that a tick that comes late does not move all that was before.
            Some(last) if steps == 1 => Some(last + STEP),
            _ => Some(at),
        };
        for role in &mut self.roles {
            role.present = false;
            role.set(&RoleState::unknown(role.role, None, Unknown::NotRead));
        }
        for state in states {
            let alone = states.iter().filter(|s| s.role == state.role).count() == 1;
            if alone && self.says_it_of_all(state) {
                continue;
            }
            let name = fullest(state).map_or(0, |name| self.number_of(&name));
            if let Some(role) = self.role_of(state, alone) {
                role.present = true;
                role.set(state);
                role.set_fullest(name);
            }
        }
        self.roles.retain(|role| role.present || role.has_any());
        let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1000.0);
        let Traffic { ttft, tpot, .. } = traffic;
        let values = [
            traffic.requests,
            traffic.failed,
            traffic.input_tokens,
            traffic.output_tokens,
            ms(ttft.p50),
            ms(ttft.p90),
            ms(ttft.p99),
            ms(tpot.p50),
            ms(tpot.p90),
            ms(tpot.p99),
        ];
        for (column, value) in self.traffic.iter_mut().zip(values) {
            column.set(value);
        }
    }

    fn advance(&mut self, why: Unknown) {
        self.length = (self.length + 1).min(MOST_STEPS);
        self.traffic.iter_mut().for_each(Column::advance);
        for role in &mut self.roles {
            role.advance(why);
        }
    }

    /// The number of a name; a new one takes that of one that stands in no step any more, where all are
    /// taken. 0 where there is none left.
    fn number_of(&mut self, name: &str) -> u8 {
        let Names(names) = &mut self.names;
        let known = names.iter().position(|known| **known == *name);
        let at = known.or_else(|| {
            if names.len() < MOST_NAMES {
                names.push(name.into());
                return names.len().checked_sub(1);
            }
            let mut stands = [false; MOST_NAMES + 1];
            let all = self.roles.iter().flat_map(|role| &role.fullest);
            all.for_each(|number| stands[usize::from(*number)] = true);
            let free = stands.iter().skip(1).position(|stands| !stands)?;
            *names.get_mut(free)? = name.into();
            Some(free)
        });
        at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
    }

    /// A source that is not read any more names no model: what is said of its role then, that it is
    /// unknown and why, is said of each model that was there.
    fn says_it_of_all(&mut self, state: &RoleState) -> bool {
        if state.model.is_some() || state.usage.is_ok() {
            return false;
        }
        let mut says_it = false;
        for role in &mut self.roles {
            if role.role == state.role && role.model.is_some() {
                says_it = true;
                role.present = true;
                role.set(state);
            }
        }
        says_it
    }

    /// The place of a role; a new one takes that of one that is gone, where all are taken. One that had no
    /// name before its page could be read, and is `alone`, is the same.
    fn role_of(&mut self, state: &RoleState, alone: bool) -> Option<&mut RoleHistory> {
        let is = |role: &RoleHistory| role.role == state.role && role.model == state.model;
        if let Some(at) = self.roles.iter().position(is) {
            return self.roles.get_mut(at);
        }
        let mut of_role = self.roles.iter_mut().filter(|r| r.role == state.role);
        if let (true, Some(only), None) = (alone, of_role.next(), of_role.next())
            && only.model.is_none()
        {
            only.model.clone_from(&state.model);
            return self.roles.iter_mut().find(|role| is(role));
        }
        if self.roles.len() >= MOST_ROLES {
            let gone = self.roles.iter().position(|role| !role.present)?;
            self.roles.remove(gone);
        }
        self.roles.push(RoleHistory::new(state));
        self.roles
            .sort_by(|a, b| (a.role, &a.model).cmp(&(b.role, &b.model)));
        self.roles.iter_mut().find(|role| is(role))
    }

    /// Numbers of each column.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was noted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The time of each step in whole unix seconds, given what o'clock it is now, in unix time, and the time
    /// of the history's own clock.
    pub fn times(&self, unix: Duration, at: Duration) -> impl Iterator<Item = u64> + use<> {
        let last = self.last.unwrap_or(at);
        let newest = (unix + last).saturating_sub(at);
        let steps = u32::try_from(self.length).unwrap_or(u32::MAX);
        (0..steps)
            .rev()
            .map(move |back| newest.saturating_sub(STEP * back).as_secs())
    }

    /// The roles, in order.
    #[must_use]
    pub fn roles(&self) -> &[RoleHistory] {
        &self.roles
    }

    /// The columns of a role by [`ROLE_COLUMNS`], each [`len`](History::len) numbers.
    pub fn values<'a>(
        &'a self,
        role: &'a RoleHistory,
    ) -> impl Iterator<Item = (&'static str, impl Iterator<Item = f32> + Clone + 'a)> {
        let columns = ROLE_COLUMNS.into_iter().zip(&role.values);
        columns.map(|(name, column)| (name, column.numbers(self.length)))
    }

    /// The columns of a role's queues, those of which anything is known.
    pub fn queues<'a>(
        &'a self,
        role: &'a RoleHistory,
    ) -> impl Iterator<Item = (&'static str, impl Iterator<Item = f32> + Clone + 'a)> {
        let names = Queues::default().iter().map(|(name, _)| name);
        let columns = names.into_iter().zip(&role.queues);
        let known = columns.filter(|(_, column)| !column.0.is_empty());
        known.map(|(name, column)| (name, column.numbers(self.length)))
    }

    /// Why the usage of a role is unknown, in each step.
    pub fn reasons<'a>(
        &self,
        role: &'a RoleHistory,
    ) -> impl Iterator<Item = Option<Unknown>> + Clone + use<'a> {
        let before = self.length.saturating_sub(role.reasons.len());
        std::iter::repeat_n(Some(Unknown::NotRead), before).chain(role.reasons.iter().copied())
    }

    /// What a role's fullest pool was called, in each step; `None` where there were not several, or where
    /// it is not known.
    pub fn fullest<'a>(
        &'a self,
        role: &'a RoleHistory,
    ) -> impl Iterator<Item = Option<&'a str>> + Clone {
        let before = self.length.saturating_sub(role.fullest.len());
        let names = role.fullest.iter().map(|number| {
            let at = usize::from(*number).checked_sub(1)?;
            self.names.0.get(at).map(|name| &**name)
        });
        std::iter::repeat_n(None, before).chain(names)
    }

    /// The columns of the traffic by [`TRAFFIC_COLUMNS`].
    pub fn traffic(
        &self,
    ) -> impl Iterator<Item = (&'static str, impl Iterator<Item = f32> + Clone + '_)> {
        let columns = TRAFFIC_COLUMNS.into_iter().zip(&self.traffic);
        columns.map(|(name, column)| (name, column.numbers(self.length)))
    }
}

/// How many steps lie between, to the nearest.
fn steps_between(last: Duration, at: Duration) -> usize {
    let passed = at.saturating_sub(last) + STEP / 2;
    usize::try_from(passed.as_millis() / STEP.as_millis()).unwrap_or(usize::MAX)
}

// === impl RoleHistory ===

impl RoleHistory {
    fn new(state: &RoleState) -> RoleHistory {
        RoleHistory {
            role: state.role,
            model: state.model.clone(),
            values: Default::default(),
            queues: Default::default(),
            reasons: VecDeque::from([None]),
            fullest: VecDeque::new(),
            present: true,
        }
    }

    fn advance(&mut self, why: Unknown) {
        self.values.iter_mut().for_each(Column::advance);
        self.queues.iter_mut().for_each(Column::advance);
        self.reasons.push_back(Some(why));
        if self.reasons.len() > MOST_STEPS {
            self.reasons.pop_front();
        }
        if !self.fullest.is_empty() {
            self.fullest.push_back(0);
            if self.fullest.len() > MOST_STEPS {
                self.fullest.pop_front();
            }
        }
    }

    fn set(&mut self, state: &RoleState) {
        let number = |n: Option<u64>| n.map(as_float);
        let values = [
            state.usage.ok(),
            state.max,
            state.fill,
            number(state.used),
            number(state.capacity),
            number(state.running),
            number(state.queued),
            number(state.preempted),
        ];
        for (column, value) in self.values.iter_mut().zip(values) {
            column.set(value);
        }
        for (column, (_, value)) in self.queues.iter_mut().zip(state.queues.iter()) {
            column.set(number(value));
        }
        if let Some(reason) = self.reasons.back_mut() {
            *reason = state.usage.err();
        }
        self.set_fullest(0);
    }

    fn set_fullest(&mut self, number: u8) {
        match self.fullest.back_mut() {
            Some(last) => *last = number,
            None if number == 0 => {}
            None => self.fullest.push_back(number),
        }
    }

    fn has_any(&self) -> bool {
        let mut columns = self.values.iter().chain(&self.queues);
        columns.any(|column| !column.0.is_empty())
    }
}

// === impl Column ===

impl Column {
    fn advance(&mut self) {
        if self.0.is_empty() {
            return;
        }
        self.0.push_back(NONE);
        if self.0.len() <= MOST_STEPS {
            return;
        }
        self.0.pop_front();
        while self.0.front().is_some_and(|first| first.is_nan()) {
            self.0.pop_front();
        }
        if self.0.is_empty() {
            // Gives the memory back.
            self.0 = VecDeque::new();
        }
    }

    /// The newest number.
    fn set(&mut self, value: Option<f64>) {
        #[allow(clippy::cast_possible_truncation, reason = "exact enough to be drawn")]
        let value = value.map_or(NONE, |value| value as f32);
        match self.0.back_mut() {
            Some(last) => *last = value,
            None if value.is_nan() => {}
            None => self.0.push_back(value),
        }
    }

    /// As many as there are steps.
    fn numbers(&self, length: usize) -> impl Iterator<Item = f32> + Clone + '_ {
        let before = length.saturating_sub(self.0.len());
        std::iter::repeat_n(NONE, before).chain(self.0.iter().copied())
    }
}

/// Tokens and requests stay far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "far below")]
fn as_float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: f64) -> Duration {
        Duration::from_secs_f64(n)
    }

    fn decode(usage: f64) -> RoleState {
        RoleState {
            usage: Ok(usage),
            used: Some(12_034),
            preempted: Some(7),
            ..RoleState::unknown(Role::Decode, None, Unknown::Absent)
        }
    }

    fn note(history: &mut History, at: f64, states: &[RoleState]) {
        history.note(seconds(at), states, |_| None, &Traffic::default());
    }

    fn column(history: &History, role: usize, name: &str) -> Vec<Option<f32>> {
        let role = &history.roles()[role];
        let mut all = history.values(role).chain([]);
        let (_, numbers) = all.find(|(of, _)| *of == name).unwrap();
        let numbers: Vec<f32> = numbers.collect();
        assert_eq!(numbers.len(), history.len());
        let known = |n: &f32| (!n.is_nan()).then_some(*n);
        numbers.iter().map(known).collect()
    }

    fn reasons(history: &History, role: usize) -> Vec<&'static str> {
        let all = history.reasons(&history.roles()[role]);
        all.map(|why| why.map_or("", Unknown::as_str)).collect()
    }

    fn times(history: &History, unix: u64, at: f64) -> Vec<u64> {
        history
            .times(Duration::from_secs(unix), seconds(at))
            .collect()
    }

    #[test]
    fn a_step_is_a_number_and_unknown_is_none() {
        let mut history = History::default();
        assert!(history.is_empty());
        note(&mut history, 100.0, &[decode(0.5)]);
        // Ticks are never quite on time.
        note(&mut history, 102.3, &[decode(0.75)]);
        let unreachable = RoleState::unknown(Role::Decode, None, Unknown::Unreachable);
        note(&mut history, 103.9, &[unreachable]);
        assert_eq!(column(&history, 0, "usage"), [Some(0.5), Some(0.75), None]);
        assert_eq!(column(&history, 0, "used")[0], Some(12_034.0));
        assert_eq!(column(&history, 0, "fill"), [None; 3]);
        let preempted = column(&history, 0, "preempted");
        assert_eq!(preempted, [Some(7.0), Some(7.0), None]);
        assert_eq!(reasons(&history, 0), ["", "", "unreachable"]);
        assert_eq!(times(&history, 1_000, 104.0), [996, 998, 1_000]);
        let role = &history.roles()[0];
        assert_eq!(history.queues(role).count(), 0);
        let used: usize = role.values.iter().map(|column| column.0.capacity()).sum();
        assert!(used <= 12, "what is never known takes no memory: {used}");
    }

    #[test]
    fn a_gap_is_unknown_and_its_times_are_right() {
        let mut history = History::default();
        note(&mut history, 10.0, &[decode(0.5)]);
        // Suspended for eight seconds and a bit.
        note(&mut history, 20.7, &[decode(0.6)]);
        note(&mut history, 22.7, &[decode(0.7)]);
        let usage = column(&history, 0, "usage");
        let want = [Some(0.5), None, None, None, None, Some(0.6), Some(0.7)];
        assert_eq!(usage, want);
        let stalled = "stalled";
        let want = ["", stalled, stalled, stalled, stalled, "", ""];
        assert_eq!(reasons(&history, 0), want);
        assert_eq!(times(&history, 1_000, 22.7)[4..], [996, 998, 1_000]);
        // Longer than all that is kept.
        note(&mut history, 100_000.0, &[decode(0.8)]);
        assert_eq!(history.len(), MOST_STEPS);
        let usage = column(&history, 0, "usage");
        assert_eq!(usage.iter().flatten().count(), 1);
        assert_eq!(usage.last(), Some(&Some(0.8)));
    }

    /// The past moves along with the clock on the wall: it is as long ago as it was.
    #[test]
    fn a_wall_clock_that_is_set_leaves_no_gap() {
        let mut history = History::default();
        note(&mut history, 10.0, &[decode(0.5)]);
        note(&mut history, 12.0, &[decode(0.6)]);
        assert_eq!(times(&history, 5_000, 12.0), [4_998, 5_000]);
        assert_eq!(times(&history, 3_000, 12.9), [2_997, 2_999]);
        // Two ticks at once are one step.
        note(&mut history, 12.4, &[decode(0.9)]);
        assert_eq!(column(&history, 0, "usage"), [Some(0.5), Some(0.9)]);
        // Before 1970 there is nothing.
        assert_eq!(times(&history, 1, 12.0), [0, 1]);
    }

    #[test]
    fn roles_come_and_go() {
        let mut history = History::default();
        let prefill = RoleState {
            usage: Ok(0.1),
            ..RoleState::unknown(Role::Prefill, Some("m".into()), Unknown::Absent)
        };
        note(&mut history, 0.0, std::slice::from_ref(&prefill));
        note(&mut history, 2.0, &[decode(0.5), prefill]);
        note(&mut history, 4.0, &[decode(0.6)]);
        let roles: Vec<Role> = history.roles().iter().map(|role| role.role).collect();
        assert_eq!(roles, [Role::Decode, Role::Prefill], "in order");
        assert_eq!(column(&history, 0, "usage"), [None, Some(0.5), Some(0.6)]);
        assert_eq!(column(&history, 1, "usage"), [Some(0.1), Some(0.1), None]);
        assert_eq!(reasons(&history, 0), ["not_read", "", ""]);
        assert_eq!(reasons(&history, 1), ["", "", "not_read"]);
        // An hour later nothing is left of it.
        for n in 0..MOST_STEPS {
            note(&mut history, 6.0 + 2.0 * n as f64, &[decode(0.6)]);
        }
        assert_eq!(history.roles().len(), 1);
        assert_eq!(history.len(), MOST_STEPS);
        assert!(column(&history, 0, "usage").iter().all(Option::is_some));
    }

    /// While its page is not read a role has no model.
    #[test]
    fn a_role_stays_the_same_whether_its_model_is_known_or_not() {
        let nameless = |why| RoleState::unknown(Role::Decode, None, why);
        let named = |model: &str| RoleState {
            model: Some(model.into()),
            ..decode(0.5)
        };
        let mut history = History::default();
        note(&mut history, 0.0, &[nameless(Unknown::NotRead)]);
        note(&mut history, 2.0, &[named("m")]);
        note(&mut history, 4.0, &[nameless(Unknown::Unreachable)]);
        note(&mut history, 6.0, &[named("m")]);
        assert_eq!(history.roles().len(), 1);
        assert_eq!(history.roles()[0].model.as_deref(), Some("m"));
        let usage = column(&history, 0, "usage");
        assert_eq!(usage, [None, Some(0.5), None, Some(0.5)]);
        assert_eq!(reasons(&history, 0), ["not_read", "", "unreachable", ""]);
        // Of several each.
        note(&mut history, 8.0, &[named("m"), named("n")]);
        note(&mut history, 10.0, &[nameless(Unknown::Stale)]);
        assert_eq!(history.roles().len(), 2);
        for role in 0..2 {
            assert_eq!(reasons(&history, role).last(), Some(&"stale"));
        }
    }

    #[test]
    fn the_fullest_pool_is_named_in_each_step_and_names_are_bounded() {
        let mut history = History::default();
        let mut say = |n: usize, name: Option<&str>| {
            let name = name.map(str::to_owned);
            let at = seconds(2.0 * n as f64);
            history.note(at, &[decode(0.5)], |_| name.clone(), &Traffic::default());
            let all = history.fullest(&history.roles()[0]);
            let all: Vec<Option<String>> = all.map(|name| name.map(str::to_owned)).collect();
            assert_eq!(all.len(), history.len());
            assert!(history.names.0.len() <= MOST_NAMES);
            assert!(history.roles()[0].fullest.len() <= MOST_STEPS);
            all
        };
        say(0, None);
        say(1, Some("rank 2"));
        say(2, None);
        let said = say(3, Some("rank 2"));
        let rank = Some("rank 2".to_owned());
        assert_eq!(said, [None, rank.clone(), None, rank.clone()]);
        // Of more than there are numbers for the first ones stand; when they are an hour old others can.
        for n in 4..300 {
            say(n, Some(&format!("other {n}")));
        }
        let said = say(300, Some("rank 2"));
        assert_eq!((&said[3], &said[300]), (&rank, &rank));
        assert_eq!((said[4].as_deref(), &said[299]), (Some("other 4"), &None));
        for n in 301..301 + MOST_STEPS {
            say(n, None);
        }
        let said = say(2_200, Some("new"));
        assert_eq!(said.last().unwrap().as_deref(), Some("new"));
        assert_eq!(said.iter().flatten().count(), 1);
    }

    #[test]
    fn there_is_a_bound_to_roles_and_to_memory() {
        let mut history = History::default();
        let models = |from: usize| -> Vec<RoleState> {
            let one = |n: usize| RoleState {
                model: Some(format!("{n:03}").into()),
                ..decode(0.5)
            };
            (from..from + 20).map(one).collect()
        };
        note(&mut history, 0.0, &models(0));
        assert_eq!(history.roles().len(), MOST_ROLES);
        // Those that come take the places of those that are gone.
        note(&mut history, 2.0, &models(100));
        assert_eq!(history.roles().len(), MOST_ROLES);
        let first = history.roles()[0].model.as_deref();
        assert_eq!(first, Some("100"));
        for n in 0..2 * MOST_STEPS {
            note(&mut history, 4.0 + 2.0 * n as f64, &models(100));
        }
        let columns = history.roles().iter().flat_map(|role| &role.values);
        let numbers: Vec<usize> = columns.map(|column| column.0.capacity()).collect();
        assert!(numbers.iter().all(|n| *n <= 2 * MOST_STEPS), "{numbers:?}");
    }

    #[test]
    fn figures_of_the_traffic_stand_beside_them_in_milliseconds() {
        let mut history = History::default();
        let mut traffic = Traffic {
            requests: Some(3.0),
            ..Traffic::default()
        };
        traffic.ttft.p90 = Some(0.25);
        history.note(seconds(0.0), &[], |_| None, &Traffic::default());
        history.note(seconds(2.0), &[], |_| None, &traffic);
        for (name, numbers) in history.traffic() {
            let last: Vec<f32> = numbers.collect();
            assert!(last[0].is_nan());
            match name {
                "requests_per_s" => assert_eq!(last[1], 3.0),
                "ttft_p90_ms" => assert_eq!(last[1], 250.0),
                _ => assert!(last[1].is_nan(), "{name}"),
            }
        }
    }
}
