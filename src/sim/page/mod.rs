//! An engine's Prometheus page: the values that have been set so far, and their text.
//!
//! A family is lazy as in Python's client: it has no sample before its first value.

pub(crate) mod number;
mod table;

use super::rng::Rng;
use std::borrow::Cow;
use std::collections::BTreeMap;
use table::{Bounds, Family, Group, Kind, Ranks, TABLE};

/// What stands in the labels that every series of an engine shares.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) model_name: String,
    pub(crate) engine_type: &'static str,
    /// Tensor-parallel ranks.
    pub(crate) ranks: u32,
    /// The data-parallel rank that the page is of, where there are such.
    pub(crate) dp_rank: Option<u32>,
}

/// The values of an engine's page.
#[derive(Debug)]
pub(crate) struct Page {
    labels: Labels,
    /// In the table's order; each family's series by the values of its own labels.
    families: Vec<Series>,
}

type Series = BTreeMap<Vec<String>, Value>;

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Histogram {
        sum: f64,
        count: u64,
        /// One per bound; not cumulative.
        buckets: Vec<u64>,
    },
}

/// Series that one family may have; more are not begun. Only paths of HTTP requests could get there.
const MAX_SERIES: usize = 256;

impl Page {
    /// A page with what stands there from the start.
    pub(crate) fn new(labels: Labels) -> Page {
        let mut page = Page {
            labels,
            families: TABLE.families.iter().map(|_| BTreeMap::new()).collect(),
        };
        for family in &TABLE.families {
            for (labels, value) in &family.at_start {
                page.preset(family, labels, *value);
            }
        }
        page
    }

    /// Gives a value to what appears with the first batch and has none yet.
    pub(crate) fn begin_batches(&mut self) {
        for family in &TABLE.families {
            for (labels, value) in &family.at_batch {
                self.preset(family, labels, *value);
            }
        }
    }

    pub(crate) fn set(&mut self, name: &str, labels: &[&str], value: f64) {
        if let Some(Value::Number(number)) = self.series(name, labels) {
            *number = value;
        }
    }

    pub(crate) fn add(&mut self, name: &str, labels: &[&str], value: f64) {
        if let Some(Value::Number(number)) = self.series(name, labels) {
            *number += value;
        }
    }

    pub(crate) fn observe(&mut self, name: &str, labels: &[&str], value: f64) {
        let bounds = bounds(name);
        if let Some(Value::Histogram {
            sum,
            count,
            buckets,
        }) = self.series(name, labels)
        {
            *sum += value;
            *count += 1;
            if let Some(bounds) = bounds
                && let Some(i) = bounds.value.iter().position(|bound| value <= *bound)
                && let Some(bucket) = buckets.get_mut(i)
            {
                *bucket += 1;
            }
        }
    }

    /// The series, begun if it was not there; `None` for a name that the table hasn't.
    fn series(&mut self, name: &str, labels: &[&str]) -> Option<&mut Value> {
        let index = *TABLE.index.get(name)?;
        let family = &TABLE.families[index];
        let series = self.families.get_mut(index)?;
        let key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if key.len() != family.labels.len()
            || (series.len() >= MAX_SERIES && !series.contains_key(&key))
        {
            return None;
        }
        Some(series.entry(key).or_insert_with(|| Value::new(family)))
    }

    fn preset(&mut self, family: &Family, labels: &[&str], value: f64) {
        if let Some(Value::Number(number)) = self.series(family.name, labels) {
            *number = value;
        }
    }

    /// The pages of a server's data-parallel ranks as one text, as the server shows them. `order`
    /// decides the order of the ranks, which changes on real pages too.
    pub(crate) fn render(pages: &[&Page], order: &mut Rng) -> String {
        let mut out = String::with_capacity(1 << 17);
        let mut shuffled = pages.to_vec();
        let Some(first) = pages.first().copied() else {
            return out;
        };
        for (index, family) in TABLE.families.iter().enumerate() {
            if pages.iter().all(|page| page.of(index).is_empty()) {
                continue;
            }
            for (what, text) in [("HELP", family.help), ("TYPE", family.kind_name())] {
                out.push_str("# ");
                out.push_str(what);
                out.push_str(" sglang:");
                out.push_str(family.name);
                out.push(' ');
                out.push_str(text);
                out.push('\n');
            }
            match family.group {
                // One process for all ranks counts these.
                Group::Server | Group::Plain => {
                    first.samples(&mut out, family, &together(pages, index, family), order);
                }
                Group::Scheduler | Group::Cache => {
                    order.shuffle(&mut shuffled);
                    for page in &shuffled {
                        page.samples(&mut out, family, page.of(index), order);
                    }
                }
            }
        }
        out
    }

    /// The series of the table's family with this index.
    fn of(&self, index: usize) -> &Series {
        static NONE: Series = Series::new();
        self.families.get(index).unwrap_or(&NONE)
    }

    fn samples(&self, out: &mut String, family: &Family, series: &Series, order: &mut Rng) {
        if family.ranks == Ranks::First {
            for (labels, value) in series {
                self.sample(out, family, labels, value, 0);
            }
            return;
        }
        let mut ranks: Vec<u32> = (0..self.labels.ranks).collect();
        order.shuffle(&mut ranks);
        for rank in ranks {
            for (labels, value) in series {
                if family.ranks == Ranks::Zero && rank != 0 {
                    let first = first_value(family, labels);
                    self.sample(out, family, labels, &first, rank);
                } else {
                    self.sample(out, family, labels, value, rank);
                }
            }
        }
    }

    fn sample(
        &self,
        out: &mut String,
        family: &Family,
        labels: &[String],
        value: &Value,
        rank: u32,
    ) {
        match value {
            Value::Number(number) => self.line(out, family, "", labels, None, rank, *number),
            Value::Histogram {
                sum,
                count,
                buckets,
            } => {
                self.line(out, family, "_sum", labels, None, rank, *sum);
                let mut total = 0;
                if let Some(bounds) = family.bounds.and_then(|name| TABLE.bounds.get(name)) {
                    for (le, n) in bounds.text.iter().zip(buckets) {
                        total += n;
                        self.line(out, family, "_bucket", labels, Some(le), rank, total as f64);
                    }
                }
                let count = *count as f64;
                self.line(out, family, "_bucket", labels, Some("+Inf"), rank, count);
                self.line(out, family, "_count", labels, None, rank, count);
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // one sample line has that many parts
    fn line(
        &self,
        out: &mut String,
        family: &Family,
        suffix: &str,
        own: &[String],
        le: Option<&str>,
        rank: u32,
        value: f64,
    ) {
        // A data-parallel rank of DP attention is the tensor- and expert-parallel rank of its number.
        let dp = self.labels.dp_rank;
        let cache_dp = dp.unwrap_or(0).to_string();
        let expert = dp.map_or(0, |dp| dp + rank).to_string();
        let tensor = (dp.unwrap_or(0) + rank).to_string();
        let rank = rank.to_string();
        let mut labels: Vec<(&str, &str)> = match family.group {
            Group::Scheduler => vec![
                ("engine_type", self.labels.engine_type),
                ("model_name", &self.labels.model_name),
                ("moe_ep_rank", &expert),
                ("pp_rank", "0"),
                ("tp_rank", &tensor),
            ],
            Group::Cache => vec![
                ("cache_type", "RadixCache"),
                ("dp_rank", &cache_dp),
                ("pp_rank", "0"),
                ("tp_rank", &rank),
            ],
            Group::Server => vec![
                ("engine_type", self.labels.engine_type),
                ("model_name", &self.labels.model_name),
            ],
            Group::Plain => Vec::new(),
        };
        labels.extend(
            family
                .labels
                .iter()
                .copied()
                .zip(own.iter().map(String::as_str)),
        );
        labels.extend(le.map(|le| ("le", le)));
        if family.group == Group::Scheduler && dp.is_some() {
            labels.push(("dp_rank", &cache_dp));
        }
        let pid = own_pid(&labels, dp);
        if let (Some(pid), Some(label)) = (&pid, labels.iter_mut().find(|(name, _)| *name == "pid"))
        {
            label.1 = pid;
        }
        labels.sort_unstable();
        out.push_str("sglang:");
        out.push_str(family.name);
        out.push_str(suffix);
        for (i, (name, value)) in labels.iter().enumerate() {
            out.push(if i == 0 { '{' } else { ',' });
            out.push_str(name);
            out.push_str("=\"");
            escape(out, value);
            out.push('"');
        }
        out.push_str(if labels.is_empty() { " " } else { "} " });
        number::write(out, value);
        out.push('\n');
    }
}

/// Each data-parallel rank is a process of its own.
fn own_pid(labels: &[(&str, &str)], dp: Option<u32>) -> Option<String> {
    let (_, pid) = labels.iter().find(|(name, _)| *name == "pid")?;
    Some((pid.parse::<u32>().ok()? + dp?).to_string())
}

/// What the ranks' pages say of one family, as the process that speaks for all of them counts it:
/// counts are added up, of gauges the first rank's stands.
fn together<'a>(pages: &[&'a Page], index: usize, family: &Family) -> Cow<'a, Series> {
    let (first, rest) = match pages {
        [] => return Cow::Owned(Series::new()),
        [first, rest @ ..] => (first.of(index), rest),
    };
    if rest.is_empty() || family.kind == Kind::Gauge {
        return Cow::Borrowed(first);
    }
    let mut sum = first.clone();
    for (labels, value) in rest.iter().flat_map(|page| page.of(index)) {
        match sum.get_mut(labels) {
            Some(into) => into.add(value),
            None => drop(sum.insert(labels.clone(), value.clone())),
        }
    }
    Cow::Owned(sum)
}

impl Value {
    fn add(&mut self, other: &Value) {
        match (self, other) {
            (Value::Number(into), Value::Number(number)) => *into += number,
            (
                Value::Histogram {
                    sum,
                    count,
                    buckets,
                },
                Value::Histogram {
                    sum: more,
                    count: n,
                    buckets: others,
                },
            ) => {
                *sum += more;
                *count += n;
                for (into, n) in buckets.iter_mut().zip(others) {
                    *into += n;
                }
            }
            // A family has one kind.
            _ => {}
        }
    }

    fn new(family: &Family) -> Value {
        match family.kind {
            Kind::Gauge | Kind::Counter => Value::Number(0.0),
            Kind::Histogram => Value::Histogram {
                sum: 0.0,
                count: 0,
                buckets: vec![0; bounds(family.name).map_or(0, |bounds| bounds.value.len())],
            },
        }
    }
}

fn bounds(name: &str) -> Option<&'static Bounds> {
    let family = &TABLE.families[*TABLE.index.get(name)?];
    TABLE.bounds.get(family.bounds?)
}

fn first_value(family: &Family, labels: &[String]) -> Value {
    let preset = family.at_start.iter().find(|(own, _)| own == labels);
    Value::Number(preset.map_or(0.0, |(_, value)| *value))
}

/// Escapes a label value as the text format asks.
pub(crate) fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ranks: u32) -> Page {
        Page::new(Labels {
            model_name: "demo \"x\"".to_owned(),
            engine_type: "decode",
            ranks,
            dp_rank: None,
        })
    }

    fn lines(page: &Page, name: &str) -> Vec<String> {
        Page::render(&[page], &mut Rng::new(0))
            .lines()
            .filter(|line| line.starts_with(&format!("sglang:{name}")))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_gauge_has_no_sample_before_its_first_value() {
        let mut page = page(4);
        assert!(lines(&page, "token_usage").is_empty());
        assert_eq!(lines(&page, "max_total_num_tokens{").len(), 4);
        page.begin_batches();
        page.set("token_usage", &[], 0.25);
        assert_eq!(
            lines(&page, "token_usage"),
            [
                "sglang:token_usage{engine_type=\"decode\",model_name=\"demo \\\"x\\\"\",\
              moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 0.25"
            ]
        );
    }

    #[test]
    fn only_rank_0_moves_where_others_were_only_seeded() {
        let mut page = page(2);
        page.add("prefill_effective_tokens_total", &["input"], 7.0);
        let lines = lines(&page, "prefill_effective_tokens_total");
        let of = |rank: &str| {
            lines
                .iter()
                .find(|line| line.contains("mode=\"input\"") && line.contains(rank))
                .unwrap()
                .clone()
        };
        assert!(of("tp_rank=\"0\"").ends_with(" 7.0"));
        assert!(of("tp_rank=\"1\"").ends_with(" 0.0"));
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn histograms_are_sum_then_cumulative_buckets_then_count() {
        let mut page = page(1);
        page.observe("time_to_first_token_seconds", &["true"], 0.3);
        page.observe("time_to_first_token_seconds", &["true"], 900.0);
        let lines = lines(&page, "time_to_first_token_seconds");
        assert!(lines[0].starts_with("sglang:time_to_first_token_seconds_sum{"));
        assert!(lines[1].contains("is_streaming=\"true\",le=\"0.1\","));
        let value = |le: &str| {
            let line = lines.iter().find(|line| line.contains(le)).unwrap();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!(value("le=\"0.2\""), "0.0");
        assert_eq!(value("le=\"0.4\""), "1.0");
        assert_eq!(value("le=\"400.0\""), "1.0");
        assert_eq!(value("le=\"+Inf\""), "2.0");
        assert!(lines.last().unwrap().contains("_count{"));
    }

    #[test]
    fn endless_paths_do_not_grow_the_page_without_end() {
        let mut page = page(1);
        for i in 0..2_000 {
            page.add("http_requests_total", &[&format!("/{i}"), "GET"], 1.0);
        }
        assert_eq!(lines(&page, "http_requests_total").len(), MAX_SERIES);
    }
}
