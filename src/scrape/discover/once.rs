//! One look in every way that is set, for `doctor`.

use super::{Finder, plan};
use crate::config::{Settings, Source};
use crate::net::Trusts;
use std::sync::Arc;

/// One way in which sources are found, and what one look came to.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The name of its key, `discovery.…`.
    pub(crate) kind: &'static str,
    /// What was looked at.
    pub(crate) at: String,
    /// Pages on the list; `None` where no list was seen.
    pub(crate) found: Option<usize>,
    /// Of those, whom the list itself calls unhealthy.
    pub(crate) unhealthy: Vec<Arc<str>>,
    /// Of those, how many are not read since there are too many.
    pub(crate) beyond: usize,
    /// The cause, and behind the last colon the cure, where something was wrong.
    pub(crate) problem: Option<String>,
    /// The same of what costs no page.
    pub(crate) remark: Option<String>,
}

/// Every source that would be read: those of the settings, and those found; and how each way went.
pub(crate) async fn search(settings: &Settings) -> (Vec<Source>, Vec<Way>) {
    let mut ways = Vec::new();
    let mut lists = Vec::new();
    for mut finder in Finder::all(settings, &Trusts::default()) {
        let looked = finder.look().await;
        let (problem, remark) = match looked.problem {
            Some(problem) if problem.costs => (Some(problem.words), None),
            Some(problem) => (None, Some(problem.words)),
            None => (None, None),
        };
        ways.push(Way {
            kind: finder.kind(),
            at: finder.at(settings),
            found: looked.found.as_ref().map(Vec::len),
            unhealthy: looked.unhealthy,
            beyond: 0,
            problem,
            remark,
        });
        lists.push(looked.found.unwrap_or_default());
    }
    let plan = plan(settings, &lists);
    for (way, beyond) in ways.iter_mut().zip(plan.beyond) {
        way.beyond = beyond;
    }
    (plan.sources, ways)
}
