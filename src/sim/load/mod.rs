//! Load over HTTP: chat calls that come at their times, whatever becomes of those before.

mod arrivals;

pub use arrivals::{Arrivals, Call, Rate, Traffic};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How much load, and of what kind.
#[derive(Clone, Debug)]
pub struct Load {
    /// The model asked for.
    pub model: String,
    /// What comes.
    pub traffic: Vec<Traffic>,
    /// The same seed gives the same requests at the same times.
    pub seed: u64,
}

/// What came of the load so far.
#[derive(Debug, Default)]
pub struct LoadStats {
    /// Answers that came whole, with status 200.
    pub completed: AtomicU64,
    /// Everything else.
    pub failed: AtomicU64,
    /// Calls that are under way.
    pub active: AtomicU64,
    /// Calls that were left out, since there were too many already.
    pub left_out: AtomicU64,
}

impl Load {
    /// The requests in the order in which they come.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::new(&self.model, &self.traffic, self.seed)
    }

    /// Runs until it is dropped.
    pub async fn run(self, target: SocketAddr, stats: Arc<LoadStats>) {
        let began = Instant::now();
        let clients = Arc::new(Clients {
            target,
            stats,
            idle: Mutex::default(),
            most_idle: self.traffic.iter().map(|traffic| traffic.most).sum(),
        });
        let active: Vec<Arc<AtomicU64>> = self.traffic.iter().map(|_| Arc::default()).collect();
        let mut calls = JoinSet::new();
        for call in self.arrivals() {
            sleep_until(began + call.at).await;
            while calls.try_join_next().is_some() {}
            let (Some(traffic), Some(active)) =
                (self.traffic.get(call.kind), active.get(call.kind))
            else {
                continue;
            };
            if active.load(Ordering::Relaxed) >= traffic.most as u64 {
                clients.stats.left_out.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let of_kind = Active::begin(active);
            let clients = Arc::clone(&clients);
            calls.spawn(async move {
                clients.call(&call).await;
                drop(of_kind);
            });
        }
    }
}

/// Counts a call as active while it lives.
struct Active(Arc<AtomicU64>);

impl Active {
    fn begin(count: &Arc<AtomicU64>) -> Active {
        count.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(count))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type Connection = SendRequest<Full<Bytes>>;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Those who call, with the connections that they keep.
struct Clients {
    target: SocketAddr,
    stats: Arc<LoadStats>,
    idle: Mutex<Vec<Connection>>,
    most_idle: usize,
}

impl Clients {
    async fn call(&self, call: &Call) {
        self.stats.active.fetch_add(1, Ordering::Relaxed);
        let outcome = self.exchange(call).await;
        self.stats.active.fetch_sub(1, Ordering::Relaxed);
        let count = match outcome {
            Ok(()) => &self.stats.completed,
            Err(_) => &self.stats.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// One chat call, read to its end.
    async fn exchange(&self, call: &Call) -> Result<(), Error> {
        let request = Request::post("/v1/chat/completions")
            .header(header::HOST, self.target.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body(call)))?;
        let mut connection = self.connection().await?;
        let response = connection.send_request(request).await?;
        let ok = response.status().is_success();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.most_idle {
            idle.push(connection);
        }
        if ok {
            Ok(())
        } else {
            Err("an error status".into())
        }
    }

    async fn connection(&self) -> Result<Connection, Error> {
        loop {
            let kept = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let Some(mut kept) = kept else { break };
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(self.target).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn body(call: &Call) -> String {
    let Call {
        prompt,
        output,
        prefix,
        ..
    } = call;
    let mut body = json!({
        "model": call.model,
        "messages": [{
            "role": "user",
            "content": format!(
                "Tell me about the KV cache. sim:prompt={prompt} sim:output={output} sim:prefix={prefix}"
            ),
        }],
        "stream": call.stream,
    });
    if call.stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some(rank) = call.dp_rank {
        body["data_parallel_rank"] = json!(rank);
    }
    body.to_string()
}
