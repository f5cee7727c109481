//! Whose page it is, going by the names on it.

use crate::config::Source;
use crate::engine;
use crate::exposition::{Family, Page};
use crate::kv::Reading;

/// How the names begin that only routers publish: sglang-router (its name of now, and the one before),
/// vLLM's router.
const ROUTERS: [&str; 3] = ["smg_", "sgl_router_", "vllm_router_"];

/// A family of every page of kvgauge's own.
const OURS: &str = "kvgauge_build_info";

/// See the [module](self) description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whose {
    /// That of an engine which is known here, or was set.
    #[default]
    Engine,
    /// A router's, and no engine's.
    Router,
    /// The one that kvgauge itself serves.
    Kvgauge,
    /// Somebody else's.
    Other,
}

impl Whose {
    pub(super) fn of(page: &Page<'_>, reading: &Reading) -> Whose {
        let router = |name: &str| ROUTERS.iter().any(|router| name.starts_with(router));
        let routers = || page.families().iter().map(Family::name).any(router);
        if page.family(OURS).is_some() {
            Whose::Kvgauge
        } else if reading.engine.is_some() {
            // It is called what was set, whatever is on it.
            let nothing = reading.pools.is_empty() && engine::claimants(page).next().is_none();
            if nothing && routers() {
                Whose::Router
            } else {
                Whose::Engine
            }
        } else if routers() {
            Whose::Router
        } else {
            Whose::Other
        }
    }
}

/// Where a page is read as settings say and has no usage: another engine, whose names are on it.
pub(super) fn other_engine(
    page: &Page<'_>,
    source: &Source,
    reading: &Reading,
) -> Option<&'static str> {
    let set = source.engine.as_deref()?;
    if reading.pools.iter().any(|pool| pool.usage.is_ok()) {
        return None;
    }
    let mut claimants = engine::claimants(page).peekable();
    let first = *claimants.peek()?;
    claimants.all(|engine| engine != set).then_some(first)
}
