//! When SGLang's `/v1/loads` is asked in place of the page, and when not.
//!
//! A page costs its engine more than the loads do, and is for people's graphs, so beside the loads it
//! is read only three times in `scrape.max_age`, or not at all (`sglang-loads`). Whatever is wrong with
//! the loads, the page is read as if there were none, and the loads are tried again after a while.

use super::fetch::Failed;
use crate::config::{Source, SourceKind, Target};
use crate::engine;
use crate::kv::{Pool, PoolKind, Reading, Role};
use http::Uri;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The loads are tried again after this.
const AGAIN: Duration = Duration::from_secs(60);

/// See the [module](self) description.
pub(super) struct Loads {
    pub(super) target: Target,
    pub(super) path: Uri,
    /// They are asked whatever the page is.
    alone: bool,
    /// When the last page was asked for, if it was good.
    page: Option<Instant>,
    /// Whether that was SGLang's.
    sglang: bool,
    /// The one model on it, which the loads do not name.
    model: Option<Arc<str>>,
    /// The role that it names.
    role: Option<Role>,
    /// Its pools.
    pools: usize,
    /// Whether the settings name a role.
    role_is_set: bool,
    /// Until then the page gives the readings.
    paused: Option<Instant>,
    /// Until then they are taken as they are, as no page says more.
    all: Option<Instant>,
    /// What was last said about the loads.
    told: Option<String>,
}

// === impl Loads ===

impl Loads {
    pub(super) fn new(source: &Source) -> Loads {
        let target = source.url.loads();
        Loads {
            path: target.path.parse().unwrap_or_default(),
            target,
            alone: source.kind == SourceKind::SglangLoads,
            page: None,
            sglang: false,
            model: None,
            role: None,
            pools: 0,
            role_is_set: source.role.is_some(),
            paused: None,
            all: None,
            told: None,
        }
    }

    /// Where the page is of the server that has them.
    pub(super) fn page_beside(&self) -> Target {
        let before = self.target.path.strip_suffix("/v1/loads");
        Target {
            path: format!("{}/metrics", before.unwrap_or_default()).into(),
            ..self.target.clone()
        }
    }

    /// Whether the page is to be read now.
    pub(super) fn page_is_due(&self, now: Instant, max_age: Duration) -> bool {
        let old = |at: Instant| now.saturating_duration_since(at) >= max_age / 3;
        self.page.is_none_or(old) || !self.may_ask(now)
    }

    /// Whether the loads may be asked: of an SGLang whose loads were not wrong a moment ago.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        (self.alone || self.sglang) && self.paused.is_none_or(|until| now >= until)
    }

    pub(super) fn saw_page(&mut self, asked: Instant, reading: &Reading) {
        self.page = Some(asked);
        self.sglang = reading.engine.as_deref() == Some("sglang");
        (self.role, self.pools) = (reading.role, reading.pools.len());
        let mut models = reading.pools.iter().map(|pool| &pool.model);
        let first = models.next().cloned().flatten();
        self.model = first.filter(|first| models.all(|model| model.as_ref() == Some(first)));
    }

    /// Why the page gives the readings now, where it has been read.
    pub(super) fn why_not(&self, now: Instant) -> Option<&str> {
        if self.may_ask(now) || (self.page.is_none() && !self.alone) {
            None
        } else if self.alone || self.sglang {
            self.told.as_deref()
        } else {
            Some("its page is not SGLang's, and no other engine has loads")
        }
    }

    /// The source is not what it was: everything is asked anew.
    pub(super) fn forget(&mut self) {
        self.page = None;
        self.sglang = false;
        (self.role, self.pools) = (None, 0);
        self.paused = None;
        self.all = None;
    }

    /// Whether what they say is as good as the page's gauges.
    pub(super) fn suffice(&self, reading: &Reading) -> Result<(), Failed> {
        let exact = |pool: &Pool| pool.usage.is_ok() && pool.kind == PoolKind::Full;
        let why = if reading.pools.is_empty() || !reading.pools.iter().all(exact) {
            "they do not say which pool is the fullest, and the page does".to_owned()
        } else if reading.pools.len() < self.pools {
            let (here, there) = (reading.pools.len(), self.pools);
            format!("they are of {here} pools, and the page is of {there}")
        } else if !self.role_is_set && reading.role.or(self.role).is_none() {
            "they name no role that is known, and none is set".to_owned()
        } else {
            return Ok(());
        };
        Err(Failed::NotLoads(why))
    }

    /// They give this reading; what they do not name is the page's.
    pub(super) fn are_fine(&mut self, reading: &mut Reading) {
        reading.role = reading.role.or(self.role);
        for pool in &mut reading.pools {
            pool.model.clone_from(&self.model);
        }
        self.paused = None;
        self.told = None;
    }

    /// There is no page that would say more.
    pub(super) fn are_all(&mut self, now: Instant) {
        self.paused = None;
        self.told = None;
        self.all = Some(now + AGAIN);
    }

    /// Whether that was so a moment ago.
    pub(super) fn no_page(&self, now: Instant) -> bool {
        self.all.is_some_and(|until| now < until)
    }

    /// Takes the page for a while. Whether this is news.
    pub(super) fn pause(&mut self, now: Instant, why: &str) -> bool {
        self.paused = Some(now + AGAIN);
        let news = self.told.as_deref() != Some(why);
        self.told = Some(why.to_owned());
        news
    }
}

/// A reading of the loads.
pub(super) fn understand(text: &[u8]) -> Result<Reading, Failed> {
    engine::read_loads(text).map_err(|error| Failed::NotLoads(error.to_string()))
}
