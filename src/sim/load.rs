//! Gentle load: chat clients whose number swells and ebbs, so that usage visibly moves.

use super::rng::Rng;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::f64::consts::TAU;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How much load, and of what kind.
#[derive(Clone, Debug)]
pub struct Load {
    /// The model asked for.
    pub model: String,
    /// The fewest clients at a time. Default is 5.
    pub fewest: usize,
    /// The most clients at a time. Default is 24.
    pub most: usize,
    /// From one swell to the next. Default is 60 s.
    pub period: Duration,
    /// Prompt lengths in tokens, from and to. Default is 30,000 to 110,000.
    pub prompt: (u64, u64),
    /// Output lengths in tokens, from and to. Default is 80 to 320.
    pub output: (u64, u64),
    /// The same seed gives the same requests.
    pub seed: u64,
}

/// What came of the load so far.
#[derive(Debug, Default)]
pub struct LoadStats {
    /// Answers that came whole, with status 200.
    pub completed: AtomicU64,
    /// Everything else.
    pub failed: AtomicU64,
    /// Clients that are in the middle of a call.
    pub active: AtomicU64,
}

impl Load {
    /// The demo's load.
    #[must_use]
    pub fn new(model: &str) -> Load {
        Load {
            model: model.to_owned(),
            fewest: 5,
            most: 24,
            period: Duration::from_secs(60),
            prompt: (30_000, 110_000),
            output: (80, 320),
            seed: 1,
        }
    }

    /// Runs until it is dropped. A target that is not there is tried again.
    pub async fn run(self, target: SocketAddr, stats: Arc<LoadStats>) {
        let began = Instant::now();
        let load = Arc::new(self);
        let mut clients = JoinSet::new();
        for index in 0..load.most {
            let client = Client {
                load: Arc::clone(&load),
                stats: Arc::clone(&stats),
                rng: Rng::new(load.seed.wrapping_mul(1_000_003) ^ index as u64),
                target,
                began,
                index,
                connection: None,
            };
            clients.spawn(client.run());
        }
        while clients.join_next().await.is_some() {}
    }

    /// How many clients there are so long after the begin: a wave that starts at its trough.
    fn clients(&self, after: Duration) -> usize {
        let phase = after.as_secs_f64() / self.period.as_secs_f64().max(1e-3);
        let height = (1.0 - (phase * TAU).cos()) / 2.0;
        let span = self.most.saturating_sub(self.fewest) as f64;
        self.fewest + (span * height).round() as usize
    }
}

struct Client {
    load: Arc<Load>,
    stats: Arc<LoadStats>,
    rng: Rng,
    target: SocketAddr,
    began: Instant,
    index: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Counts a call as active while it lives.
struct Active<'a>(&'a AtomicU64);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Client {
    async fn run(mut self) {
        loop {
            if self.index >= self.load.clients(self.began.elapsed()) {
                self.connection = None;
                sleep(Duration::from_millis(250)).await;
                continue;
            }
            let pause = Duration::from_millis(self.rng.between(50, 500));
            match self.call().await {
                Ok(()) => {
                    self.stats.completed.fetch_add(1, Ordering::Relaxed);
                    sleep(pause).await;
                }
                Err(_) => {
                    self.stats.failed.fetch_add(1, Ordering::Relaxed);
                    self.connection = None;
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// One chat call, read to its end. Three of four are streamed.
    async fn call(&mut self) -> Result<(), Error> {
        let (prompt, output) = (self.load.prompt, self.load.output);
        let prompt = self.rng.between(prompt.0, prompt.1);
        let output = self.rng.between(output.0, output.1);
        let stream = self.rng.below(4) > 0;
        // A third of every prompt is one of a few system prompts that many share.
        let prefix = 5_000 * (1 + self.rng.below(3));
        let mut body = json!({
            "model": self.load.model,
            "messages": [{
                "role": "user",
                "content": format!(
                    "Tell me about the KV cache. sim:prompt={prompt} sim:output={output} sim:prefix={prefix}"
                ),
            }],
            "stream": stream,
        });
        if stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        let request = Request::post("/v1/chat/completions")
            .header(header::HOST, self.target.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))?;
        self.connect().await?;
        let connection = self.connection.as_mut().ok_or("no connection")?;
        self.stats.active.fetch_add(1, Ordering::Relaxed);
        let _active = Active(&self.stats.active);
        let response = connection.send_request(request).await?;
        let ok = response.status().is_success();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        if ok {
            Ok(())
        } else {
            Err("an error status".into())
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        if let Some(connection) = &mut self.connection
            && connection.ready().await.is_ok()
        {
            return Ok(());
        }
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        self.connection = Some(sender);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_clients_swells_and_ebbs() {
        let load = Load::new("m");
        let at = |s| load.clients(Duration::from_secs(s));
        assert_eq!((at(0), at(30), at(60)), (5, 24, 5));
        assert!((0..600).all(|s| (5..=24).contains(&at(s))));
    }
}
