//! The real `sglang-router`.

use super::client::{Client, get};
use super::program::{Program, free_port, python};
use super::wait::eventually;
use serde_json::Value;
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

    /// Takes a worker in; returns when it is on the list.
    pub(crate) fn add(&self, worker: &Value, address: SocketAddr) {
        self.ask("POST", "/workers", &worker.to_string());
        eventually("the worker is on the router's list", || self.id_of(address));
    }

    /// Lets a worker go; returns when it is off the list.
    pub(crate) fn remove(&self, address: SocketAddr) {
        let id = self.id_of(address).unwrap();
        self.ask("DELETE", &format!("/workers/{id}"), "");
        eventually("the worker is off the router's list", || {
            self.id_of(address).is_none().then_some(())
        });
    }

    fn ask(&self, method: &str, path: &str, body: &str) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.api,
            body.len()
        );
        let answer = Client::connect(self.api).send(&request).response(method);
        assert!((200..300).contains(&answer.status()), "{}", answer.text());
    }

    /// The router's id of the worker at this address.
    fn id_of(&self, worker: SocketAddr) -> Option<String> {
        let listing = get(self.api, "/workers").json();
        let url = format!("http://{worker}");
        let workers = listing["workers"].as_array()?;
        let worker = workers.iter().find(|worker| worker["url"] == url)?;
        Some(worker["id"].as_str()?.to_owned())
    }
}
