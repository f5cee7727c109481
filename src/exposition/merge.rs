//! Several prepared pages into one: what becomes of each family.

use super::kind::{Suffix, fits_in_text};
use super::labels::RawLabels;
use super::line::{RawSample, sample};
use super::plain::Previous;
use super::prepared::{Block, Prepared};
use super::scan::number;
use super::write;
use super::{Format, MetricType};
use std::ops::Range;

/// Pages merged.
#[derive(Debug)]
pub struct Merged {
    /// In the form asked for.
    pub text: Vec<u8>,
    /// Families of which samples were left out, in order of name.
    pub conflicts: Vec<Conflict>,
    /// Samples left out because another source has the very same series: the first source's is kept.
    /// Can happen only between pages that were not given different source labels, and between names
    /// that are [escaped](super::Escaping) to the same.
    pub duplicates: u64,
    /// The same by source: its index, and how many of its samples.
    pub duplicates_of: Vec<(usize, u64)>,
}

/// A family whose sources do not agree on what its name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The family whose samples were left out.
    pub family: String,
    /// The type that was kept; where the name is reserved by another family, that one's.
    pub kept: MetricType,
    /// Index of the source, its type, and the samples left out.
    pub dropped: Vec<(usize, MetricType, u64)>,
}

/// A family of one page.
#[derive(Clone, Copy)]
pub(super) struct Entry<'p> {
    pub(super) name: &'p str,
    pub(super) page: usize,
    pub(super) from: &'p Prepared,
    pub(super) block: &'p Block,
}

/// A family of the merged page, as classic text has families.
pub(super) struct Group {
    /// Where in the list of entries.
    entries: Range<usize>,
    /// Where in the list of parts.
    pub(super) parts: Range<usize>,
    pub(super) kind: MetricType,
    pinned: bool,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    /// Its name is reserved by this group, and it is left out.
    Lost(usize),
    /// Its name is reserved by another group, and as it has no type it goes in there.
    Joined,
}

/// What goes into a group.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) entry: Entry<'p>,
    /// Not every line of it may fit the family.
    pub(super) look: bool,
}

/// What a page of several sources is made of. Nothing of it depends on the form it is written in.
pub(super) struct Plan<'p> {
    entries: Vec<Entry<'p>>,
    /// Sorted by name.
    pub(super) groups: Vec<Group>,
    pub(super) parts: Vec<Part<'p>>,
    /// Group, and a group that goes into its block; sorted.
    joined: Vec<(usize, usize)>,
    /// By page: no other page can have a series of it.
    pub(super) apart: Vec<bool>,
    conflicts: Vec<Conflict>,
}

/// Merges pages: families sorted by name, in each the sources in the order given, HELP and TYPE once
/// (the first help text that there is).
///
/// The first `pinned` pages are kvgauge's own. Where sources type a family differently, a pinned
/// page's type is kept, else that of most sources (the first in order at a tie). A source that gives
/// no type agrees with any. The samples of the others are left out, and named in
/// [`Merged::conflicts`].
///
/// A histogram or summary `x` reserves `x_sum` and `x_count` (a histogram `x_bucket` too): readers
/// refuse a page that has a family of such a name. Of the two the pinned one is kept, else the one
/// that more sources have, else `x`; but samples without a type simply go into the block of `x`.
///
/// The same samples are on the page in every form (names outside the old character set only where
/// the reader asks for them). Where `OpenMetrics` has no place for a family's samples under its type
/// (a counter without `_total`, a histogram whose buckets do not add up, a name that clashes), they are
/// there with the same names as families of unknown type: a type is given up, a sample is not.
#[must_use]
pub fn merge(pages: &[&Prepared], pinned: usize, format: Format) -> Merged {
    let plan = Plan::new(pages, pinned);
    let (text, duplicates) = write::page(&plan, pages, format);
    Merged {
        text: text.into_bytes(),
        conflicts: plan.conflicts,
        duplicates: duplicates.iter().sum(),
        duplicates_of: duplicates
            .into_iter()
            .enumerate()
            .filter(|(_, n)| *n > 0)
            .collect(),
    }
}

/// What [`merge`] would leave out because sources disagree, without writing a page.
#[must_use]
pub fn conflicts(pages: &[&Prepared], pinned: usize) -> Vec<Conflict> {
    Plan::new(pages, pinned).conflicts
}

// === impl Plan ===

impl<'p> Plan<'p> {
    fn new(pages: &[&'p Prepared], pinned: usize) -> Plan<'p> {
        let mut entries: Vec<Entry<'p>> =
            Vec::with_capacity(pages.iter().map(|p| p.blocks.len()).sum());
        for (page, from) in pages.iter().enumerate() {
            entries.extend(from.blocks.iter().map(|block| Entry {
                name: block.name(from),
                page,
                from,
                block,
            }));
        }
        // Stable, and each page is sorted already: a merge of runs.
        entries.sort_by(|a, b| a.name.cmp(b.name));
        let mut groups = Vec::with_capacity(entries.len());
        let mut start = 0;
        for of_group in entries.chunk_by(|a, b| a.name == b.name) {
            groups.push(Group {
                entries: start..start + of_group.len(),
                parts: 0..0,
                kind: kept_kind(of_group, pinned),
                pinned: of_group[0].page < pinned,
                fate: Fate::Kept,
            });
            start += of_group.len();
        }
        let mut plan = Plan {
            parts: Vec::with_capacity(entries.len()),
            entries,
            groups,
            joined: Vec::new(),
            apart: pages_apart(pages),
            conflicts: Vec::new(),
        };
        plan.settle_reserved();
        for group in 0..plan.groups.len() {
            plan.settle_types(group);
        }
        plan
    }

    pub(super) fn name(&self, group: usize) -> &'p str {
        self.entries[self.groups[group].entries.start].name
    }

    /// The group of this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let name_of = |g: &Group| self.entries[g.entries.start].name;
        self.groups.binary_search_by(|g| name_of(g).cmp(name)).ok()
    }

    pub(super) fn parts(&self, group: usize) -> &[Part<'p>] {
        &self.parts[self.groups[group].parts.clone()]
    }

    /// The help text of a group, escaped for classic text.
    pub(super) fn help(&self, group: usize) -> &'p str {
        self.own_parts(group)
            .map(|p| p.entry.block.help(p.entry.from))
            .find(|help| !help.is_empty())
            .unwrap_or_default()
    }

    /// The unit that the sources give a group, where none contradicts.
    pub(super) fn unit(&self, group: usize) -> Option<&'p str> {
        let mut units = self
            .own_parts(group)
            .map(|p| p.entry.block.unit(p.entry.from))
            .filter(|unit| !unit.is_empty());
        let first = units.next()?;
        units.all(|unit| unit == first).then_some(first)
    }

    /// The parts of a group without those that have joined it from another.
    fn own_parts(&self, group: usize) -> impl Iterator<Item = &Part<'p>> {
        let name = self.name(group);
        self.parts(group)
            .iter()
            .filter(move |p| p.entry.name == name)
    }

    /// Decides between families of which one reserves the other's name.
    fn settle_reserved(&mut self) {
        let mut pairs = Vec::new();
        for group in 0..self.groups.len() {
            let Some((base, suffix)) = Suffix::split(self.name(group)) else {
                continue;
            };
            if let Some(base) = self.find(base)
                && suffix.reserved_in_text(self.groups[base].kind)
            {
                pairs.push((base, group));
            }
        }
        // A base comes before what it reserves, so its own fate is settled when its turn comes.
        pairs.sort_unstable();
        for pairs in pairs.chunk_by(|a, b| a.0 == b.0) {
            let base = pairs[0].0;
            if self.groups[base].fate != Fate::Kept {
                continue;
            }
            let weight = |g: &Group| (g.pinned, g.entries.len());
            let typed = pairs
                .iter()
                .map(|p| p.1)
                .filter(|g| self.groups[*g].kind != MetricType::Unknown);
            let strongest = typed.max_by_key(|g| (weight(&self.groups[*g]), usize::MAX - g));
            if let Some(strongest) = strongest
                && weight(&self.groups[strongest]) > weight(&self.groups[base])
            {
                self.groups[base].fate = Fate::Lost(strongest);
                continue;
            }
            for (_, group) in pairs {
                if self.groups[*group].kind == MetricType::Unknown {
                    self.groups[*group].fate = Fate::Joined;
                    self.joined.push((base, *group));
                } else {
                    self.groups[*group].fate = Fate::Lost(base);
                }
            }
        }
    }

    /// Decides which sources' samples go into a group.
    fn settle_types(&mut self, index: usize) {
        let Group { kind, fate, .. } = self.groups[index];
        let entries = self.groups[index].entries.clone();
        let left_out = |e: &Entry<'_>, samples| (e.page, e.block.kind, samples);
        let mut dropped = Vec::new();
        let start = self.parts.len();
        match fate {
            Fate::Joined => return,
            Fate::Lost(_) => {
                let all = &self.entries[entries];
                dropped.extend(all.iter().map(|e| left_out(e, e.block.samples)));
            }
            Fate::Kept => {
                for entry in &self.entries[entries] {
                    let part = |look| Part {
                        entry: *entry,
                        look,
                    };
                    if entry.block.kind.in_text() == kind.in_text() {
                        self.parts.push(part(false));
                    } else if entry.block.kind == MetricType::Unknown {
                        self.parts.push(part(kind.is_grouped()));
                    } else {
                        dropped.push(left_out(entry, entry.block.samples));
                    }
                }
                self.join(index, start);
            }
        }
        let family = self.name(index);
        for part in self.parts[start..].iter().filter(|part| part.look) {
            let misfits = misfits(part, family, kind);
            if misfits > 0 {
                dropped.push(left_out(&part.entry, misfits));
            }
        }
        self.groups[index].parts = start..self.parts.len();
        if !dropped.is_empty() {
            dropped.sort_unstable_by_key(|d| d.0);
            let kept = match fate {
                Fate::Lost(to) => self.groups[to].kind,
                _ => kind,
            };
            self.conflicts.push(Conflict {
                family: family.to_owned(),
                kept,
                dropped,
            });
        }
    }

    /// Puts the groups that have joined this one among its parts, which begin at `start`.
    fn join(&mut self, base: usize, start: usize) {
        let joined = self.joined.partition_point(|(b, _)| *b < base);
        let joined = self.joined[joined..].iter();
        for (_, group) in joined.take_while(|(b, _)| *b == base) {
            let entries = &self.entries[self.groups[*group].entries.clone()];
            self.parts.extend(entries.iter().map(|entry| Part {
                entry: *entry,
                look: true,
            }));
        }
        self.parts[start..].sort_by_key(|part| part.entry.page);
    }
}

/// Samples of a part that do not fit the family, of those that every reader can take.
fn misfits(part: &Part<'_>, family: &str, kind: MetricType) -> u64 {
    let mut previous = Previous::default();
    let lines = part.entry.block.lines.plain(part.entry.from).lines();
    let misfits = lines.filter(|line| {
        sample(line, &mut previous).is_ok_and(|sample| !fits(&sample, family, kind))
    });
    misfits.count() as u64
}

/// Whether a sample can be in a family of classic text.
pub(super) fn fits(sample: &RawSample<'_>, family: &str, kind: MetricType) -> bool {
    let suffix = Suffix::split(sample.name)
        .filter(|(base, _)| *base == family)
        .map(|(_, suffix)| suffix);
    let split = kind.split_label(family).and_then(|wanted| {
        let label = RawLabels::new(sample.labels, sample.plain).find(|l| l.name == wanted)?;
        Some(number(label.value.as_bytes()).is_some())
    });
    fits_in_text(kind, suffix, split)
}

/// The type of a family: a pinned page's, else that of most sources, the first in order at a tie.
fn kept_kind(entries: &[Entry<'_>], pinned: usize) -> MetricType {
    let typed = || {
        entries
            .iter()
            .filter(|e| e.block.kind != MetricType::Unknown)
    };
    let Some(first) = typed().next() else {
        return MetricType::Unknown;
    };
    if first.page < pinned {
        return first.block.kind;
    }
    let votes = |kind: MetricType| {
        typed()
            .filter(|e| e.block.kind.in_text() == kind.in_text())
            .count()
    };
    let mut best = (first.block.kind, votes(first.block.kind));
    if best.1 < typed().count() {
        for entry in typed() {
            let votes = votes(entry.block.kind);
            if votes > best.1 {
                best = (entry.block.kind, votes);
            }
        }
    }
    best.0
}

/// For each page whether its source label keeps its series apart from those of all others.
fn pages_apart(pages: &[&Prepared]) -> Vec<bool> {
    let common = pages.iter().find_map(|p| p.label()).map(|(name, _)| name);
    let labels: Vec<Option<(&str, &str)>> = pages
        .iter()
        .map(|p| {
            p.label()
                .filter(|(name, value)| Some(*name) == common && !value.is_empty())
        })
        .collect();
    // Sorted, so that many pages are not each compared with all others.
    let mut sorted = labels.clone();
    sorted.sort_unstable();
    let alone = |label| {
        let from = sorted.partition_point(|l| *l < label);
        sorted.get(from + 1).is_none_or(|next| *next != label)
    };
    labels
        .iter()
        .map(|label| label.is_some() && alone(*label))
        .collect()
}
