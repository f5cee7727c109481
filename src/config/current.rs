//! The settings that are in force, for whoever follows them while kvgauge runs. The data path does not: it
//! holds those of the start.

use super::Settings;
use std::sync::Arc;
use tokio::sync::watch;

/// A view of the settings in force; clones see the same.
#[derive(Clone, Debug)]
pub struct Current(watch::Receiver<Arc<Settings>>);

/// Puts other settings in force.
#[derive(Debug)]
pub struct Holder(watch::Sender<Arc<Settings>>);

// === impl Holder ===

impl Holder {
    /// With these in force.
    #[must_use]
    pub fn new(settings: Arc<Settings>) -> Holder {
        Holder(watch::Sender::new(settings))
    }

    /// For who follows.
    #[must_use]
    pub fn current(&self) -> Current {
        Current(self.0.subscribe())
    }

    /// What is in force.
    #[must_use]
    pub fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.0.borrow())
    }

    /// Whoever follows is told.
    pub fn set(&self, settings: Arc<Settings>) {
        self.0.send_replace(settings);
    }
}

// === impl Current ===

impl Current {
    /// What is in force.
    #[must_use]
    pub fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits for the next that come; `None` when none will.
    pub async fn next(&mut self) -> Option<Arc<Settings>> {
        self.0.changed().await.ok()?;
        Some(Arc::clone(&self.0.borrow_and_update()))
    }
}
