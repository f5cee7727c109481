//! Several prepared pages into one: a block a family, always valid.

use super::kind::{Suffix, fits_in_text};
use super::labels::RawLabels;
use super::line::{RawSample, sample};
use super::plain::Previous;
use super::prepared::{Block, Prepared};
use super::scan::number;
use super::series::{hash, label_hash, same_labels, series_hash};
use super::writer::push_type;
use super::{Format, MetricType};
use hashbrown::HashTable;

/// Pages merged.
#[derive(Debug)]
pub struct Merged {
    /// Classic text 0.0.4.
    pub text: Vec<u8>,
    /// Families of which samples were left out, in order of name.
    pub conflicts: Vec<Conflict>,
    /// Samples left out because another source has the very same series: the first source's is kept.
    /// Can happen only between pages that were not given different source labels.
    pub duplicates: u64,
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
struct Entry<'p> {
    name: &'p str,
    page: usize,
    from: &'p Prepared,
    block: Block,
}

/// A family of the merged page.
struct Group {
    /// Where in the list of entries.
    start: usize,
    end: usize,
    kind: MetricType,
    pinned: bool,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Its name is reserved by this group, and it is left out.
    Lost(usize),
    /// Its name is reserved by another group, and as it has no type it goes in there.
    Joined,
}

struct Merge<'p> {
    entries: Vec<Entry<'p>>,
    groups: Vec<Group>,
    /// Group, and a group that goes into its block; sorted.
    joined: Vec<(usize, usize)>,
    /// By page: no other page can have a series of it.
    apart: Vec<bool>,
    text: String,
    conflicts: Vec<Conflict>,
    duplicates: u64,
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
#[must_use]
pub fn merge(pages: &[&Prepared], pinned: usize, _format: Format) -> Merged {
    let mut merge = Merge::new(pages, pinned);
    merge.settle_reserved();
    for group in 0..merge.groups.len() {
        merge.write(group);
    }
    Merged {
        text: merge.text.into_bytes(),
        conflicts: merge.conflicts,
        duplicates: merge.duplicates,
    }
}

// === impl Merge ===

impl<'p> Merge<'p> {
    fn new(pages: &[&'p Prepared], pinned: usize) -> Merge<'p> {
        let mut entries: Vec<Entry<'p>> =
            Vec::with_capacity(pages.iter().map(|p| p.blocks().len()).sum());
        for (page, from) in pages.iter().enumerate() {
            let of_page = from.blocks().iter();
            entries.extend(of_page.map(|block| Entry {
                name: block.name(from),
                page,
                from,
                block: *block,
            }));
        }
        // Stable, and each page is sorted already: a merge of runs.
        entries.sort_by(|a, b| a.name.cmp(b.name));
        let mut groups = Vec::with_capacity(entries.len());
        let mut start = 0;
        while start < entries.len() {
            let len = entries[start..]
                .iter()
                .take_while(|e| e.name == entries[start].name)
                .count();
            let of_group = &entries[start..start + len];
            groups.push(Group {
                start,
                end: start + len,
                kind: kept_kind(of_group, pinned),
                pinned: of_group[0].page < pinned,
                fate: Fate::Kept,
            });
            start += len;
        }
        let room = pages.iter().map(|p| p.bytes()).sum::<usize>() + 64 * groups.len();
        Merge {
            entries,
            groups,
            joined: Vec::new(),
            apart: pages_apart(pages),
            text: String::with_capacity(room),
            conflicts: Vec::new(),
            duplicates: 0,
        }
    }

    fn name(&self, group: usize) -> &'p str {
        self.entries[self.groups[group].start].name
    }

    /// Decides between families of which one reserves the other's name.
    fn settle_reserved(&mut self) {
        let mut pairs = Vec::new();
        for group in 0..self.groups.len() {
            let Some((base, suffix)) = Suffix::split(self.name(group)) else {
                continue;
            };
            let found = self
                .groups
                .binary_search_by(|g| self.entries[g.start].name.cmp(base));
            if let Ok(base) = found
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
            let weight = |g: &Group| (g.pinned, g.end - g.start);
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

    fn write(&mut self, index: usize) {
        let Group {
            start,
            end,
            kind,
            fate,
            ..
        } = self.groups[index];
        let entries = start..end;
        match fate {
            Fate::Kept => {}
            Fate::Joined => return,
            Fate::Lost(to) => {
                let kept = self.groups[to].kind;
                let dropped = self.entries[entries]
                    .iter()
                    .map(|e| (e.page, e.block.kind, e.block.samples));
                let dropped = dropped.collect();
                self.conflicts.push(Conflict {
                    family: self.name(index).to_owned(),
                    kept,
                    dropped,
                });
                return;
            }
        }
        let mut dropped = Vec::new();
        // Which entries go in, and whether each line of it has to be looked at.
        let mut parts: Vec<(Entry<'p>, bool)> = Vec::with_capacity(end - start);
        for entry in &self.entries[entries] {
            if entry.block.kind.in_text() == kind.in_text() {
                parts.push((*entry, false));
            } else if entry.block.kind == MetricType::Unknown {
                parts.push((*entry, kind.split_label().is_some()));
            } else {
                dropped.push((entry.page, entry.block.kind, entry.block.samples));
            }
        }
        let own = parts.len();
        let joined = self.joined.partition_point(|(base, _)| *base < index);
        let joined = self.joined[joined..]
            .iter()
            .take_while(|(base, _)| *base == index);
        for (_, group) in joined {
            let Group { start, end, .. } = self.groups[*group];
            parts.extend(self.entries[start..end].iter().map(|e| (*e, true)));
        }
        let at = self.text.len();
        let help = parts[..own]
            .iter()
            .map(|(e, _)| e.block.help(e.from))
            .find(|h| !h.is_empty());
        if let Some(help) = help {
            for part in ["# HELP ", self.name(index), " ", help, "\n"] {
                self.text.push_str(part);
            }
        }
        let name = self.name(index);
        push_type(&mut self.text, name, kind);
        let body = self.text.len();
        parts.sort_by_key(|(e, _)| e.page);
        let alone = parts.iter().all(|(e, _)| e.page == parts[0].0.page);
        let mut seen =
            (!alone && !parts.iter().all(|(e, _)| self.apart[e.page])).then(Seen::default);
        for (entry, look) in &parts {
            if *look || seen.is_some() {
                let (misfits, duplicates) = self.write_lines(index, entry, &mut seen);
                self.duplicates += duplicates;
                if misfits > 0 {
                    dropped.push((entry.page, entry.block.kind, misfits));
                }
            } else {
                self.text.push_str(entry.block.lines(entry.from));
            }
        }
        if self.text.len() == body {
            self.text.truncate(at);
        }
        if !dropped.is_empty() {
            dropped.sort_unstable_by_key(|d| d.0);
            self.conflicts.push(Conflict {
                family: self.name(index).to_owned(),
                kept: kind,
                dropped,
            });
        }
    }

    /// Writes a block line by line. Gives the number of lines that do not fit the family, and of those
    /// that are there already.
    fn write_lines(
        &mut self,
        group: usize,
        entry: &Entry<'p>,
        seen: &mut Option<Seen<'p>>,
    ) -> (u64, u64) {
        let (mut misfits, mut duplicates) = (0, 0);
        let (family, kind) = (self.name(group), self.groups[group].kind);
        let mut previous = Previous::default();
        for line in entry.block.lines(entry.from).lines() {
            let Ok(sample) = sample(line, &mut previous) else {
                continue;
            };
            if !fits(&sample, family, kind) {
                misfits += 1;
            } else if seen.as_mut().is_some_and(|seen| !seen.insert(&sample)) {
                duplicates += 1;
            } else {
                self.text.push_str(line);
                self.text.push('\n');
            }
        }
        (misfits, duplicates)
    }
}

/// The series written so far.
#[derive(Default)]
struct Seen<'p>(HashTable<(u64, &'p str, &'p str)>);

impl<'p> Seen<'p> {
    /// `false` if it is there already.
    fn insert(&mut self, sample: &RawSample<'p>) -> bool {
        let labels = RawLabels::new(sample.labels, true).map(|l| label_hash(&l));
        let labels = labels.fold(0, u64::wrapping_add);
        let hash = series_hash(hash(sample.name.as_bytes()), labels);
        let same = |(h, name, labels): &(u64, &str, &str)| {
            *h == hash && *name == sample.name && same_labels(labels, sample.labels)
        };
        if self.0.find(hash, same).is_some() {
            return false;
        }
        self.0
            .insert_unique(hash, (hash, sample.name, sample.labels), |(h, ..)| *h);
        true
    }
}

fn fits(sample: &RawSample<'_>, family: &str, kind: MetricType) -> bool {
    let suffix = Suffix::split(sample.name)
        .filter(|(base, _)| *base == family)
        .map(|(_, suffix)| suffix);
    let split = kind.split_label().and_then(|wanted| {
        let label = RawLabels::new(sample.labels, true).find(|l| l.name == wanted)?;
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
    labels
        .iter()
        .map(|label| label.is_some() && labels.iter().filter(|l| *l == label).count() == 1)
        .collect()
}
