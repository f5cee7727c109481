//! The simulated workers behind a real sglang-router 0.3.2 with prefill/decode disaggregation.
//!
//! Needs a Python that has it: `KVGAUGE_PYTHON=…/bin/python cargo test --test sim_real_router -- --ignored`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use kvgauge::kv::Role;
use kvgauge::sim::{EngineConfig, Worker};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Router(Child);

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn call(
    to: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Option<(StatusCode, String, bool)> {
    let stream = tokio::net::TcpStream::connect(to).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .ok()?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .ok()?;
    let response = sender.send_request(request).await.ok()?;
    let status = response.status();
    let mut body = response.into_body();
    let (mut bytes, mut whole) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref()?),
            Err(_) => whole = false,
        }
    }
    Some((status, String::from_utf8(bytes).ok()?, whole))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[tokio::test]
#[ignore = "needs sglang-router 0.3.2: set KVGAUGE_PYTHON to a Python that has it"]
async fn a_real_router_works_with_simulated_workers() {
    let python = std::env::var("KVGAUGE_PYTHON")
        .expect("KVGAUGE_PYTHON names a Python that has sglang-router 0.3.2");
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let worker = |role| Worker::start(at, EngineConfig::new(role, "demo/llama-70b"));
    let workers = [
        worker(Role::Prefill).await.unwrap(),
        worker(Role::Decode).await.unwrap(),
    ];
    Worker::pair_all(&workers);
    let [prefill, decode] = &workers;
    let (port, metrics) = (free_port(), free_port());
    let router = Command::new(python)
        .args(["-m", "sglang_router.launch_router", "--host", "127.0.0.1"])
        .args(["--port", &port.to_string()])
        .args(["--prometheus-host", "127.0.0.1"])
        .args(["--prometheus-port", &metrics.to_string()])
        .args(["--pd-disaggregation", "--disable-circuit-breaker"])
        .args(["--prefill", &format!("http://{}", prefill.addr), "8998"])
        .args(["--decode", &format!("http://{}", decode.addr)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the Python starts");
    let _router = Router(router);
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let ready = async {
        while call(to, "GET", "/readiness", "").await.map(|a| a.0) != Some(StatusCode::OK) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ready)
        .await
        .expect("the router gets ready");

    let chat = |text: &str, stream: bool| {
        // The router refuses stream_options where nothing is streamed.
        let options = if stream {
            r#","stream":true,"stream_options":{"include_usage":true}"#
        } else {
            ""
        };
        format!(
            r#"{{"model":"demo/llama-70b","messages":[{{"role":"user","content":"{text}"}}]{options}}}"#
        )
    };
    let path = "/v1/chat/completions";
    let text = "sim:prompt=30000 sim:output=9";
    for stream in [false, true] {
        let (status, body, whole) = call(to, "POST", path, &chat(text, stream)).await.unwrap();
        assert_eq!((status.as_u16(), whole), (200, true));
        assert!(body.contains("\"completion_tokens\":9"), "{body}");
    }
    for (wish, status) in [(400, 400), (404, 404), (429, 500), (503, 503)] {
        let body = chat(&format!("sim:status={wish}"), false);
        let answer = call(to, "POST", path, &body).await.unwrap();
        assert_eq!(answer.0, status, "{}", answer.1);
    }
    let body = chat("sim:output=50 sim:abort=3", true);
    let (status, _, whole) = call(to, "POST", path, &body).await.unwrap();
    assert_eq!((status.as_u16(), whole), (200, false));
    // Both halves went through both engines: the hand-over is real.
    let transfers = prefill.runner.page();
    assert!(transfers.contains("sglang:kv_transfer_latency_ms_count"));
    assert!(
        decode
            .runner
            .page()
            .contains("stage=\"decode_transferred\"")
    );
}
