//! The limits that pages are read with.

use kvgauge::exposition::Limits;

pub(crate) const LIMITS: Limits = Limits {
    max_series: 1_000_000,
    max_label_bytes: 16 * 1024,
    max_families: 100_000,
};
