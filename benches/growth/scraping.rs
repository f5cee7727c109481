//! Who scrapes kvgauge, as Prometheus does: a connection that is kept.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What the answer comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As it is.
    Plain,
    /// What Prometheus asks for.
    Gzip,
}

/// One scraper.
pub(crate) struct Scraping {
    stream: BufReader<TcpStream>,
    request: &'static str,
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scraped {
    /// From the request to the last byte.
    pub(crate) took: Duration,
    /// Of its body, as they came.
    pub(crate) bytes: u64,
}

impl Scraping {
    pub(crate) fn new(admin: SocketAddr, coding: Coding) -> Self {
        let stream = TcpStream::connect(admin).unwrap();
        stream.set_nodelay(true).unwrap();
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).unwrap();
        Self {
            stream: BufReader::with_capacity(256 * 1024, stream),
            request: match coding {
                Coding::Plain => "GET /metrics HTTP/1.1\r\nHost: k.test\r\n\r\n",
                Coding::Gzip => {
                    "GET /metrics HTTP/1.1\r\nHost: k.test\r\n\
                     Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4\r\n\
                     Accept-Encoding: gzip\r\n\r\n"
                }
            },
        }
    }

    pub(crate) fn scrape(&mut self) -> Scraped {
        let start = Instant::now();
        self.stream
            .get_mut()
            .write_all(self.request.as_bytes())
            .unwrap();
        let mut length = None;
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let text = line.trim_end().to_ascii_lowercase();
            if text.is_empty() {
                break;
            }
            if let Some(n) = text.strip_prefix("content-length:") {
                length = Some(n.trim().parse().unwrap());
            }
        }
        let bytes = length.expect("a length");
        let body = self.stream.by_ref().take(bytes);
        let read = std::io::copy(&mut { body }, &mut std::io::sink()).unwrap();
        assert_eq!(read, bytes, "the whole page");
        Scraped {
            took: start.elapsed(),
            bytes,
        }
    }
}
