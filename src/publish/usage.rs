//! `X-KV-Usage`: the headline's usage as plain text, a decimal from 0 to 1 with four places.

use crate::kv::RoleState;

/// Places behind the point, here and in the log.
pub(super) const PLACES: usize = 4;

/// The value; `None`, so that the header is absent, when it is unknown.
pub(super) fn render(headline: Option<&RoleState>) -> Option<String> {
    let usage = headline?.usage.ok()?;
    let mut text = String::with_capacity(8);
    super::write_fraction(&mut text, usage, PLACES);
    Some(text)
}
