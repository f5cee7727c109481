//! Pages of kvgauge's own, under whatever address: what stands on them is said by others already.

use crate::exposition::Page;

/// A family of every one of them.
const OURS: &str = "kvgauge_build_info";

/// Whether a kvgauge wrote this page.
pub(super) fn is_ours(page: &Page<'_>) -> bool {
    page.family(OURS).is_some()
}
