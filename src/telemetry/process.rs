//! `process_…` metrics of kvgauge itself. A page of their own, since they carry a source label as every
//! other server's on the unified page do.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;

pub(super) struct Process {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    collector: Collector,
}

impl Process {
    pub(super) fn new() -> Process {
        let recorder = PrometheusBuilder::new()
            .add_global_label("source", "kvgauge")
            .build_recorder();
        let collector = Collector::default();
        metrics::with_local_recorder(&recorder, || collector.describe());
        Process {
            handle: recorder.handle(),
            recorder,
            collector,
        }
    }

    /// Reads `/proc`, about 50 microseconds, and renders.
    pub(super) fn render(&self) -> String {
        metrics::with_local_recorder(&self.recorder, || self.collector.collect());
        self.handle.render()
    }
}
