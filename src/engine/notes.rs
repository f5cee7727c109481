//! Which metric gave each value, and which were passed over.
//!
//! Both are made of fixed texts, each of which is kept once, so an engine's tables bound them
//! however many pools a page has.

/// See the [module](self) description.
#[derive(Default)]
pub(super) struct Notes {
    chosen: Vec<(&'static str, &'static str)>,
    passed_over: Vec<(&'static str, &'static str, &'static str)>,
}

// === impl Notes ===

impl Notes {
    /// `metric` gave `value`.
    pub(super) fn chose(&mut self, value: &'static str, metric: &'static str) {
        if !self.chosen.contains(&(value, metric)) {
            self.chosen.push((value, metric));
        }
    }

    /// `metric` is on the page and could have given `value`, but for this reason did not.
    pub(super) fn passed(&mut self, value: &'static str, metric: &'static str, why: &'static str) {
        if !self.passed_over.contains(&(value, metric, why)) {
            self.passed_over.push((value, metric, why));
        }
    }

    /// [`Reading::chosen`](crate::kv::Reading::chosen) and
    /// [`Reading::passed_over`](crate::kv::Reading::passed_over).
    #[allow(clippy::type_complexity)] // As the fields of the reading.
    pub(super) fn into_vecs(
        mut self,
    ) -> (
        Vec<(&'static str, &'static str)>,
        Vec<(&'static str, &'static str, &'static str)>,
    ) {
        self.chosen.sort_unstable();
        self.passed_over.sort_unstable();
        (self.chosen, self.passed_over)
    }
}
