//! Which metric gave each value, and which were passed over.
//!
//! Both are made of an engine's fixed texts, or of a mapping's gauges, each of which is kept once: so
//! these bound them, however many pools a page has.

use std::borrow::Cow;

/// See the [module](self) description.
#[derive(Default)]
pub(super) struct Notes {
    chosen: Vec<Chosen>,
    passed_over: Vec<PassedOver>,
}

/// One of [`Reading::chosen`](crate::kv::Reading::chosen).
type Chosen = (&'static str, Cow<'static, str>);

/// One of [`Reading::passed_over`](crate::kv::Reading::passed_over).
type PassedOver = (&'static str, Cow<'static, str>, &'static str);

// === impl Notes ===

impl Notes {
    /// `metric` gave `value`.
    pub(super) fn chose(&mut self, value: &'static str, metric: impl Into<Cow<'static, str>>) {
        let chosen = (value, metric.into());
        if !self.chosen.contains(&chosen) {
            self.chosen.push(chosen);
        }
    }

    /// `metric` is on the page and could have given `value`, but for this reason did not.
    pub(super) fn passed(
        &mut self,
        value: &'static str,
        metric: impl Into<Cow<'static, str>>,
        why: &'static str,
    ) {
        let passed = (value, metric.into(), why);
        if !self.passed_over.contains(&passed) {
            self.passed_over.push(passed);
        }
    }

    /// [`Reading::chosen`](crate::kv::Reading::chosen) and
    /// [`Reading::passed_over`](crate::kv::Reading::passed_over).
    pub(super) fn into_vecs(mut self) -> (Vec<Chosen>, Vec<PassedOver>) {
        self.chosen.sort_unstable();
        self.passed_over.sort_unstable();
        (self.chosen, self.passed_over)
    }
}
