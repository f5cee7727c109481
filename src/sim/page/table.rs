//! The table of metric families (`families.tsv`), read once.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Which labels a family's series carry besides its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// `engine_type`, `model_name`, `moe_ep_rank`, `pp_rank`, `tp_rank`.
    Scheduler,
    /// `cache_type`, `dp_rank`, `pp_rank`, `tp_rank`.
    Cache,
    /// `engine_type`, `model_name`.
    Server,
    /// None.
    Plain,
}

/// On which tensor-parallel ranks a family stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// On every rank, all alike.
    Each,
    /// On every rank; those but 0 keep their first value.
    Zero,
    /// On rank 0 alone, or without ranks.
    First,
}

/// What a family's samples look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

/// Values that a family has from the start or from the first batch on: labels and number.
pub(crate) type Preset = Vec<(Vec<&'static str>, f64)>;

/// The upper bounds of a histogram's buckets, as label text and as numbers.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) text: Vec<&'static str>,
    pub(crate) value: Vec<f64>,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Family {
    /// Without the prefix `sglang:`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) group: Group,
    pub(crate) ranks: Ranks,
    pub(crate) labels: Vec<&'static str>,
    pub(crate) at_start: Preset,
    pub(crate) at_batch: Preset,
    pub(crate) bounds: Option<&'static str>,
    pub(crate) help: &'static str,
}

/// The table: families in the order of the file, and the sets of bounds by name.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) families: Vec<Family>,
    pub(crate) bounds: HashMap<&'static str, Bounds>,
    pub(crate) index: HashMap<&'static str, usize>,
}

/// The table of SGLang 0.5.23.
pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| read(include_str!("families.tsv")));

impl Family {
    /// The type as the TYPE line says it.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        }
    }
}

/// Lines that don't fit are left out; the tests compare the pages with real ones.
fn read(text: &'static str) -> Table {
    let mut table = Table::default();
    for line in text.lines() {
        if let Some(bounds) = line.strip_prefix('@') {
            let mut words = bounds.split_ascii_whitespace();
            let name = words.next().unwrap_or_default();
            let text: Vec<&str> = words.collect();
            let value = text.iter().filter_map(|word| word.parse().ok()).collect();
            table.bounds.insert(name, Bounds { text, value });
        } else if !line.starts_with('#')
            && let Some(family) = family(line)
        {
            table.index.insert(family.name, table.families.len());
            table.families.push(family);
        }
    }
    table
}

fn family(line: &'static str) -> Option<Family> {
    let mut columns = line.split('\t');
    let mut next = || columns.next();
    Some(Family {
        name: next()?,
        kind: match next()? {
            "gauge" => Kind::Gauge,
            "counter" => Kind::Counter,
            "histogram" => Kind::Histogram,
            _ => return None,
        },
        group: match next()? {
            "scheduler" => Group::Scheduler,
            "cache" => Group::Cache,
            "server" => Group::Server,
            "plain" => Group::Plain,
            _ => return None,
        },
        ranks: match next()? {
            "each" => Ranks::Each,
            "zero" => Ranks::Zero,
            "first" | "-" => Ranks::First,
            _ => return None,
        },
        labels: match next()? {
            "-" => Vec::new(),
            labels => labels.split(',').collect(),
        },
        at_start: preset(next()?),
        at_batch: preset(next()?),
        bounds: next().filter(|name| *name != "-"),
        help: next()?,
    })
}

fn preset(text: &'static str) -> Preset {
    if text == "-" {
        return Vec::new();
    }
    text.split(';')
        .filter_map(|item| {
            let (labels, value) = item.split_once('=')?;
            let labels = match labels {
                "" => Vec::new(),
                labels => labels.split(',').collect(),
            };
            Some((labels, value.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = include_str!("families.tsv")
            .lines()
            .filter(|line| !line.starts_with(['#', '@']))
            .count();
        assert_eq!(TABLE.families.len(), lines);
        assert!(lines > 80);
        for family in &TABLE.families {
            for (labels, _) in family.at_start.iter().chain(&family.at_batch) {
                assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
            }
            if family.kind == Kind::Histogram {
                let bounds = &TABLE.bounds[family.bounds.unwrap()];
                assert_eq!(bounds.text.len(), bounds.value.len(), "{}", family.name);
                assert!(bounds.value.is_sorted());
            }
        }
    }
}
