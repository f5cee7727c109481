//! When SGLang's `/v1/loads` is asked in place of the page, and when not.
//!
//! A page costs its engine more than the loads do, and is for people's graphs, so beside the loads it
//! is read only three times in `scrape.max_age`. Whatever is wrong with the loads, the page is read as
//! if there were none, and the loads are tried again after a while.

use super::fetch::Failed;
use crate::config::Target;
use crate::engine;
use crate::kv::{PoolKind, Reading};
use http::Uri;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The loads are tried again after this.
const AGAIN: Duration = Duration::from_secs(60);

/// See the [module](self) description.
pub(super) struct Loads {
    pub(super) target: Target,
    pub(super) path: Uri,
    /// When the last page was asked for, if it was good.
    page: Option<Instant>,
    /// Whether that was SGLang's.
    sglang: bool,
    /// The one model on it, which the loads do not name.
    model: Option<Arc<str>>,
    /// Until then the page gives the readings.
    paused: Option<Instant>,
    /// What was last said about the loads.
    told: Option<String>,
}

// === impl Loads ===

impl Loads {
    pub(super) fn new(page: &Target) -> Loads {
        let target = page.loads();
        Loads {
            path: target.path.parse().unwrap_or_default(),
            target,
            page: None,
            sglang: false,
            model: None,
            paused: None,
            told: None,
        }
    }

    /// Whether the page is to be read now.
    pub(super) fn page_is_due(&self, now: Instant, max_age: Duration) -> bool {
        let old = |at: Instant| now.saturating_duration_since(at) >= max_age / 3;
        self.page.is_none_or(old) || !self.may_ask(now)
    }

    /// Whether the loads may be asked: of an SGLang whose loads were not wrong a moment ago.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.sglang && self.paused.is_none_or(|until| now >= until)
    }

    pub(super) fn saw_page(&mut self, asked: Instant, reading: &Reading) {
        self.page = Some(asked);
        self.sglang = reading.engine.as_deref() == Some("sglang");
        let mut models = reading.pools.iter().map(|pool| &pool.model);
        let first = models.next().cloned().flatten();
        self.model = first.filter(|first| models.all(|model| model.as_ref() == Some(first)));
    }

    /// Why the page gives the readings now, where it has been read.
    pub(super) fn why_not(&self, now: Instant) -> Option<&str> {
        if self.page.is_none() || self.may_ask(now) {
            None
        } else if self.sglang {
            self.told.as_deref()
        } else {
            Some("its page is not SGLang's, and no other engine has loads")
        }
    }

    /// The source is not what it was: everything is asked anew.
    pub(super) fn forget(&mut self) {
        self.page = None;
        self.sglang = false;
        self.paused = None;
    }

    /// The loads beside a page: they have to be as good as the page's gauges.
    pub(super) fn beside_page(&mut self, text: &[u8]) -> Result<Reading, Failed> {
        let mut reading = understand(text)?;
        let exact = |pool: &crate::kv::Pool| pool.usage.is_ok() && pool.kind == PoolKind::Full;
        if reading.pools.is_empty() || !reading.pools.iter().all(exact) {
            let why = "they do not say which pool is the fullest, and the page does".to_owned();
            return Err(Failed::NotLoads(why));
        }
        for pool in &mut reading.pools {
            pool.model.clone_from(&self.model);
        }
        self.told = None;
        Ok(reading)
    }

    /// Takes the page for a while. Whether this is news.
    pub(super) fn pause(&mut self, now: Instant, why: &str) -> bool {
        self.paused = Some(now + AGAIN);
        let news = self.told.as_deref() != Some(why);
        self.told = Some(why.to_owned());
        news
    }
}

/// A reading of the loads alone.
pub(super) fn understand(text: &[u8]) -> Result<Reading, Failed> {
    engine::read_loads(text).map_err(|error| Failed::NotLoads(error.to_string()))
}
