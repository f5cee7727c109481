//! What gets room first. The one place for it: where a window is too low for all, the order below decides.

use super::plan::{Part, Plan};

/// The view's parts, from top to bottom.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Whom it is about, and how new it is.
    Header,
    /// No connection, or what is not well.
    Verdict,
    Roles,
    Traffic,
    Sources,
    Pools,
    Errors,
    Requests,
}

/// The sizes that depend on what there is to show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Roles.
    pub(super) roles: usize,
    /// Sources with which something is wrong.
    pub(super) unwell: usize,
    /// Pools at the warning or above it.
    pub(super) hot_pools: usize,
}

const ALL: usize = usize::MAX - 1;

/// Pools that are shown where one is hot: it says little without the others.
const POOLS_BESIDE: usize = 4;

/// Gives each part its room. `parts` are in the order of [`What`].
pub(super) fn plan(parts: Vec<Part<'_>>, height: usize, counts: Counts) -> Plan<'_> {
    let mut plan = Plan::new(parts, height);
    let roles = |lines: usize| counts.roles.saturating_sub(1) + lines - 1;
    let hot_pools = |plan: &mut Plan<'_>, most: usize| {
        if let Some(size) = counts.hot_pools.min(most).checked_sub(1) {
            plan.wish_up_to(What::Pools, size);
        }
    };
    // What is so and what is wrong, in a line each.
    plan.wish(What::Header, 0);
    plan.wish_up_to(What::Verdict, 1);
    plan.wish_up_to(What::Roles, roles(1));
    plan.wish(What::Sources, 0);
    plan.wish_up_to(What::Verdict, ALL);
    plan.wish_up_to(What::Sources, counts.unwell.min(4));
    plan.wish(What::Traffic, 0);
    // How much of it, who waits, and what to do about what is wrong first.
    plan.wish(What::Roles, roles(2));
    plan.wish(What::Traffic, 1);
    if counts.unwell <= 4 {
        plan.wish_up_to(What::Sources, counts.unwell + counts.unwell.min(1));
    }
    plan.wish(What::Roles, roles(3));
    // How it has been, every source that is not well, which pools are hot, what to do about the rest.
    plan.wish(What::Roles, roles(4));
    plan.wish_up_to(What::Sources, counts.unwell);
    hot_pools(&mut plan, 3);
    plan.wish_up_to(What::Sources, 2 * counts.unwell);
    plan.wish_blanks();
    // Everything of the roles, the pools beside those that are hot, the sources that are well, what went
    // wrong and what went by.
    hot_pools(&mut plan, 8);
    if counts.hot_pools > 0 && counts.unwell == 0 {
        plan.wish_up_to(What::Pools, POOLS_BESIDE - 1);
    }
    plan.wish_up_to(What::Sources, ALL);
    plan.wish(What::Roles, roles(5));
    plan.wish_up_to(What::Errors, 2);
    plan.wish_up_to(What::Requests, 4);
    // Pools far from the warning say little: theirs is what is left.
    plan.wish_up_to(What::Pools, ALL);
    plan.wish_up_to(What::Errors, 5);
    plan.wish_up_to(What::Requests, ALL);
    plan.wish_up_to(What::Errors, ALL);
    plan
}
