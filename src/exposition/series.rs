//! Which series a sample is: hashes and equality that do not depend on the order of labels.

use super::labels::{RawLabel, RawLabels};
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use std::hash::{BuildHasher, Hasher};

/// A hash with a seed of this process: the names on a page come from outside, so nobody may be able
/// to choose names that collide.
#[inline]
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// What one label, in canonical form, adds to the hash of its series. A label with an empty value is
/// no label.
#[inline]
pub(super) fn label_hash(label: &RawLabel<'_>) -> u64 {
    if label.value.is_empty() {
        return 0;
    }
    mix(hash(label.name.as_bytes()).rotate_left(17) ^ hash(label.value.as_bytes()))
}

/// The hash of a series: its name's and those of its labels, in any order.
#[inline]
pub(super) fn series_hash(name: u64, labels: u64) -> u64 {
    mix(name ^ labels.rotate_left(23))
}

/// Spreads every bit over all.
#[inline]
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Whether two label blocks in canonical form (names may be quoted) say the same.
pub(super) fn same_labels(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let sorted = |block| {
        let labels = RawLabels::new(block, false).filter(|l| !l.value.is_empty());
        let mut labels: Vec<(&str, &str)> = labels.map(|l| (l.name, l.value)).collect();
        labels.sort_unstable();
        labels
    };
    sorted(a) == sorted(b)
}
