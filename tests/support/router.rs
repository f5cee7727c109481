//! The real `sglang-router`.

use super::program::{Program, free_port, python};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

pub(crate) struct Router {
    pub(crate) program: Program,
    /// The OpenAI API.
    pub(crate) api: SocketAddr,
    /// Its metrics.
    pub(crate) metrics: SocketAddr,
}

impl Router {
    /// In front of engines that do both prefill and decode.
    pub(crate) fn plain(workers: &[SocketAddr], more: &[&str]) -> Self {
        let mut arguments = vec!["--worker-urls".to_owned()];
        arguments.extend(workers.iter().map(|worker| format!("http://{worker}")));
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        Self::start(&arguments)
    }

    /// In front of a prefill and a decode engine.
    pub(crate) fn disaggregated(prefill: SocketAddr, decode: SocketAddr, more: &[&str]) -> Self {
        let mut arguments = vec!["--pd-disaggregation".to_owned()];
        arguments.extend([
            "--prefill".to_owned(),
            format!("http://{prefill}"),
            "8998".to_owned(),
        ]);
        arguments.extend(["--decode".to_owned(), format!("http://{decode}")]);
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        Self::start(&arguments)
    }

    fn start(arguments: &[String]) -> Self {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (api, metrics) = (at(free_port()), at(free_port()));
        let mut command = Command::new(python());
        command
            .args(["-m", "sglang_router.launch_router", "--host", "127.0.0.1"])
            .args([
                "--port",
                &api.port().to_string(),
                "--prometheus-host",
                "127.0.0.1",
            ])
            .args(["--prometheus-port", &metrics.port().to_string()])
            // Errors that a test asks for must not take the worker out of service.
            .args([
                "--disable-circuit-breaker",
                "--worker-startup-check-interval",
                "1",
            ])
            .args(arguments);
        let mut program = Program::start("sglang-router", &mut command);
        program.until_ready(api, "/readiness");
        Self {
            program,
            api,
            metrics,
        }
    }

    pub(crate) fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.metrics)
    }
}
