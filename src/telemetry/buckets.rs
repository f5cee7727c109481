//! Histogram bounds in seconds: OpenTelemetry's GenAI buckets, carried on to an hour since answers
//! may take that long, and finer at the low end where local engines are.

use super::names;

const REQUEST_DURATION: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68, 655.36, 1310.72, 2621.44, 3600.0,
];

const TIME_TO_FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0,
];

const TIME_PER_OUTPUT_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 10.0, 60.0, 600.0, 3600.0,
];

const OVERHEAD: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.5, 1.0, 5.0, 60.0, 600.0, 3600.0,
];

/// Sessions last for seconds or for days.
const TUNNEL_DURATION: &[f64] = &[
    0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0,
];

/// Each histogram with its bounds.
pub(super) const ALL: [(names::Name, &[f64]); 5] = [
    (names::REQUEST_DURATION, REQUEST_DURATION),
    (names::TUNNEL_DURATION, TUNNEL_DURATION),
    (names::TIME_TO_FIRST_TOKEN, TIME_TO_FIRST_TOKEN),
    (names::TIME_PER_OUTPUT_TOKEN, TIME_PER_OUTPUT_TOKEN),
    (names::OVERHEAD, OVERHEAD),
];
