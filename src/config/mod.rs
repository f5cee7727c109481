//! Settings: defaults, file, environment, flags, validation.

mod settings;

pub use settings::*;
