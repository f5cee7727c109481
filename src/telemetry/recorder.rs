//! The recorder behind the `metrics` facade: held, never installed globally.

use super::{buckets, names, process::Process};
use crate::exposition::MetricType;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use std::sync::Arc;

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// kvgauge's own counters, gauges and histograms. One per process, shared.
pub struct Telemetry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    process: Process,
}

impl Telemetry {
    /// Builds the recorder with its buckets and help texts.
    #[must_use]
    pub fn new() -> Arc<Telemetry> {
        let mut builder = PrometheusBuilder::new();
        for (name, bounds) in buckets::ALL {
            // Fails on an empty list of bounds only; then the builder is lost, so start anew.
            builder = builder
                .set_buckets_for_metric(Matcher::Full(name.name.to_owned()), bounds)
                .unwrap_or_else(|_| PrometheusBuilder::new());
        }
        let recorder = builder.build_recorder();
        for name in names::RECORDED {
            let (key, help) = (name.name.into(), SharedString::const_str(name.help));
            match name.kind {
                MetricType::Counter => recorder.describe_counter(key, None, help),
                MetricType::Histogram => recorder.describe_histogram(key, None, help),
                _ => recorder.describe_gauge(key, None, help),
            }
        }
        let handle = recorder.handle();
        let process = Process::new();
        Arc::new(Telemetry {
            recorder,
            handle,
            process,
        })
    }

    pub(super) fn counter(
        &self,
        name: names::Name,
        labels: &[(&'static str, &'static str)],
    ) -> Counter {
        self.recorder
            .register_counter(&key(name, labels), &METADATA)
    }

    pub(super) fn gauge(&self, name: names::Name) -> Gauge {
        self.recorder.register_gauge(&key(name, &[]), &METADATA)
    }

    pub(super) fn histogram(&self, name: names::Name) -> Histogram {
        self.recorder.register_histogram(&key(name, &[]), &METADATA)
    }

    /// Counts accepts that failed.
    pub fn accept_failures(&self) -> Counter {
        self.counter(names::ACCEPT_FAILURES, &[])
    }

    /// Counts requests cut at the end of the drain.
    pub fn drained(&self) -> Counter {
        self.counter(names::DRAINED, &[])
    }

    /// Counts merges of the unified page.
    pub fn metrics_merges(&self) -> Counter {
        self.counter(names::METRICS_MERGES, &[])
    }

    /// Counts log lines that were not written.
    pub fn log_lines_dropped(&self) -> Counter {
        self.counter(names::LOG_DROPPED, &[])
    }

    /// Moves recorded samples into their buckets. Without this they pile up (16 bytes each), so
    /// call it every second, off the data path.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The page of what was recorded, in classic text, families in no particular order.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// The page of `process_…`, in classic text.
    #[must_use]
    pub fn render_process(&self) -> String {
        self.process.render()
    }
}

fn key(name: names::Name, labels: &[(&'static str, &'static str)]) -> Key {
    let labels: Vec<Label> = labels
        .iter()
        .map(|(k, v)| Label::from_static_parts(k, v))
        .collect();
    Key::from_parts(name.name, labels)
}
