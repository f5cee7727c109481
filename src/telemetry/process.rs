//! `process_…` metrics of kvgauge itself.

use metrics_exporter_prometheus::PrometheusRecorder;
use metrics_process::Collector;

pub(super) struct Process(Collector);

impl Process {
    pub(super) fn new(recorder: &PrometheusRecorder) -> Process {
        let collector = Collector::default();
        metrics::with_local_recorder(recorder, || collector.describe());
        Process(collector)
    }

    /// Reads `/proc` and sets the gauges: about 50 microseconds, so once a page.
    pub(super) fn collect(&self, recorder: &PrometheusRecorder) {
        metrics::with_local_recorder(recorder, || self.0.collect());
    }
}
