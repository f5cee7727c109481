//! Which role the usage header speaks of.

use crate::config::Headline;
use crate::kv::{Role, RoleState};

/// The state whose usage is the headline. Where it is unknown, so is the headline, with its reason.
///
/// `Auto` is `decode` where any source has that role, known or not (a prefill server's value must
/// never stand in for a decode server's), else `unified`, else `prefill`. Where the role serves
/// several models, and for `Fullest`, it is the fullest of those that are known. `None` where no
/// source has the role.
#[must_use]
pub fn headline(states: &[RoleState], which: Headline) -> Option<&RoleState> {
    let of = |role: Role| fullest(states.iter().filter(move |state| state.role == role));
    match which {
        Headline::Auto => [Role::Decode, Role::Unified, Role::Prefill]
            .into_iter()
            .find_map(of),
        Headline::Role(role) => of(role),
        Headline::Fullest => fullest(states.iter()),
    }
}

/// The fullest; known before unknown, the first at a tie.
fn fullest<'a>(states: impl Iterator<Item = &'a RoleState>) -> Option<&'a RoleState> {
    states.reduce(|best, next| match (best.usage, next.usage) {
        (Ok(best_usage), Ok(usage)) if usage > best_usage => next,
        (Err(_), Ok(_)) => next,
        _ => best,
    })
}
