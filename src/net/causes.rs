//! What is at the bottom of an error that others have wrapped.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter;

/// Whether an I/O error of one of these kinds is among an error's causes, itself included.
#[must_use]
pub fn caused_by(error: &(dyn Error + 'static), kinds: &[ErrorKind]) -> bool {
    iter::successors(Some(error), |&cause| cause.source())
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| kinds.contains(&cause.kind()))
}
