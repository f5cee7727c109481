//! What one read of a source comes to, by its kind: its page, SGLang's loads, or the one in place of
//! the other. `serve` reads so again and again, `doctor` and `status` once.

use super::explain::{Keys, explain};
use super::fetch::{Failed, Fetcher};
use super::loads::{self, Loads};
use crate::config::{Settings, Source, SourceKind};
use crate::engine;
use crate::exposition::{Limits, Page};
use crate::kv::Reading;
use crate::net::Trusts;
use std::sync::Arc;
use std::time::Instant;

/// One source, and what is kept of it for the next read.
pub(super) struct Reader {
    source: Source,
    /// What cures are to be made in.
    keys: Keys,
    settings: Arc<Settings>,
    fetcher: Fetcher,
    loads: Loads,
}

/// A good read.
pub(super) struct Read<P> {
    pub(super) reading: Reading,
    /// What gave the reading: [`PAGE`] or [`LOADS`].
    pub(super) from: &'static str,
    /// What was made of the page, where it was read this time.
    pub(super) page: Option<P>,
    /// Of the page, where it was read this time, else of the loads.
    pub(super) bytes: usize,
    /// Of the gauges that the reading is made of; of all that is on the page, where there is no such
    /// gauge.
    pub(super) content: u64,
    /// Why the loads do not give the readings, where it is not the same as the last time.
    pub(super) news: Option<String>,
}

pub(super) const PAGE: &str = "page";
pub(super) const LOADS: &str = "loads";

// === impl Reader ===

impl Reader {
    pub(super) fn new(source: &Source, settings: &Arc<Settings>, trusts: &Trusts) -> Reader {
        let loads = Loads::new(source);
        let page = match source.kind {
            SourceKind::SglangLoads => loads.page_beside(),
            SourceKind::Metrics | SourceKind::Auto => source.url.clone(),
        };
        Reader {
            keys: Keys::of(source, settings),
            fetcher: Fetcher::new(&page, &settings.scrape)
                .with_token(source.bearer_file.as_ref())
                .with_trust(trusts.of(source.ca_file.as_ref())),
            loads,
            source: source.clone(),
            settings: Arc::clone(settings),
        }
    }

    /// Reads once. `take` is given each page that is read, with its text and what it says.
    pub(super) async fn read<P>(
        &mut self,
        asked: Instant,
        mut take: impl FnMut(&[u8], &Page<'_>, &Reading) -> P,
    ) -> Result<Read<P>, Failed> {
        let read = match self.source.kind {
            SourceKind::Metrics => self.page(&mut take).await,
            SourceKind::SglangLoads => self.loads_else_page(asked, &mut take).await,
            SourceKind::Auto => self.page_and_loads(asked, &mut take).await,
        };
        if read.is_err() {
            self.loads.forget();
        }
        read
    }

    /// A failure in words.
    pub(super) fn explain(&self, failed: &Failed) -> String {
        let url = match self.source.kind {
            SourceKind::SglangLoads => &self.loads.target,
            SourceKind::Metrics | SourceKind::Auto => &self.source.url,
        };
        explain(&self.source.name, url, failed, &self.keys)
    }

    /// Why the page gives the readings now, where the loads are to do it if they can.
    pub(super) fn without_loads(&self) -> Option<&str> {
        match self.source.kind {
            SourceKind::Metrics => None,
            SourceKind::SglangLoads | SourceKind::Auto => self.loads.why_not(Instant::now()),
        }
    }

    /// The path where the source was found, where the one in its url redirects there.
    pub(super) fn redirected(&self) -> Option<&str> {
        match self.source.kind {
            SourceKind::SglangLoads => self.fetcher.redirected_from(&self.loads.path),
            SourceKind::Metrics | SourceKind::Auto => self.fetcher.redirected(),
        }
    }

    async fn page<P>(
        &mut self,
        take: &mut impl FnMut(&[u8], &Page<'_>, &Reading) -> P,
    ) -> Result<Read<P>, Failed> {
        let text = self.fetcher.fetch().await?;
        let scrape = &self.settings.scrape;
        let limits = Limits {
            max_series: scrape.max_series,
            max_label_bytes: scrape.max_label_bytes,
            max_families: scrape.max_families,
        };
        let page =
            Page::read(&text, &limits).map_err(|error| self.fetcher.no_page(error.into()))?;
        let reading = engine::read_source(&page, &self.source, &self.settings);
        Ok(Read {
            from: PAGE,
            page: Some(take(&text, &page, &reading)),
            bytes: text.len(),
            // Of a whole page something moves each time: it counts our own reads, for one.
            content: reading.fingerprint.unwrap_or_else(|| page.content_hash()),
            news: None,
            reading,
        })
    }

    async fn loads<P>(&mut self) -> Result<Read<P>, Failed> {
        let text = self.fetcher.fetch_json(&self.loads.path).await?;
        let reading = loads::understand(&text)?;
        Ok(Read {
            from: LOADS,
            page: None,
            bytes: text.len(),
            content: reading.fingerprint.unwrap_or_default(),
            news: None,
            reading,
        })
    }

    /// The page when it is due, and the loads for the reading where they can be had.
    async fn page_and_loads<P>(
        &mut self,
        asked: Instant,
        take: &mut impl FnMut(&[u8], &Page<'_>, &Reading) -> P,
    ) -> Result<Read<P>, Failed> {
        let mut page = None;
        if self.loads.page_is_due(asked, self.settings.scrape.max_age) {
            let read = self.page(take).await?;
            self.loads.saw_page(asked, &read.reading);
            page = Some(read);
        }
        let mut wrong = None;
        if self.loads.may_ask(asked) {
            let loads = self.loads().await;
            match loads.and_then(|read| self.loads.suffice(&read.reading).map(|()| read)) {
                Ok(mut read) => {
                    self.loads.are_fine(&mut read.reading);
                    if let Some(page) = page {
                        (read.page, read.bytes) = (page.page, page.bytes);
                    }
                    return Ok(read);
                }
                // There is nobody to ask for the page either.
                Err(failed) if failed.reason().ends_reading() => return Err(failed),
                Err(failed) => wrong = Some(failed),
            }
        }
        let mut read = match page {
            Some(page) => page,
            None => self.page(take).await?,
        };
        read.news = wrong.and_then(|failed| self.pause(asked, &failed));
        Ok(read)
    }

    /// The loads, and where they can't be used the page, if that can.
    async fn loads_else_page<P>(
        &mut self,
        asked: Instant,
        take: &mut impl FnMut(&[u8], &Page<'_>, &Reading) -> P,
    ) -> Result<Read<P>, Failed> {
        let mut loads = None;
        if self.loads.may_ask(asked) {
            match self.loads().await {
                Err(failed) if failed.reason().ends_reading() => return Err(failed),
                Ok(mut read) if self.loads.suffice(&read.reading).is_ok() => {
                    self.loads.are_fine(&mut read.reading);
                    return Ok(read);
                }
                // What they say is not all that a page would, but there is none.
                Ok(read) if self.loads.no_page(asked) => return Ok(read),
                answer => loads = Some(answer),
            }
        }
        match self.page(take).await {
            Ok(mut page) => {
                let wrong = loads.and_then(|answer| match answer {
                    Ok(read) => self.loads.suffice(&read.reading).err(),
                    Err(failed) => Some(failed),
                });
                page.news = wrong.and_then(|failed| self.pause(asked, &failed));
                Ok(page)
            }
            Err(failed) if failed.reason().ends_reading() => Err(failed),
            Err(page) => {
                let loads = match loads {
                    Some(answer) => answer,
                    None => self.loads().await,
                };
                match loads {
                    Ok(read) => {
                        self.loads.are_all(asked);
                        Ok(read)
                    }
                    Err(failed) if failed.reason().ends_reading() => Err(failed),
                    Err(failed) => Err(Failed::Neither {
                        loads: Box::new(failed),
                        page: Box::new(page),
                        path: self.loads.page_beside().path,
                    }),
                }
            }
        }
    }

    /// Takes the page's readings for a while; why, where that is news.
    fn pause(&mut self, asked: Instant, failed: &Failed) -> Option<String> {
        let (name, at) = (&self.source.name, &self.loads.target);
        let why = explain(name, at, failed, &self.keys);
        self.loads.pause(asked, &why).then_some(why)
    }
}
