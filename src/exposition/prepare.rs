//! From a page to blocks of ready lines.

use super::MetricType;
use super::draft::{Draft, drafts, shares};
use super::facts::{
    Bounds, Known, LabelFacts, SampleName, final_block, hashed, same_series, series_of,
};
use super::kind::{Suffix, fits_in_text};
use super::open::{Facts, follows_rules, push_exemplar};
use super::page::{Page, Row};
use super::prepared::{Block, Lines, Open, Patch, Prepared};
use super::relabel::{canonical, push_all, push_relabelled};
use super::scan::{common_prefix, is_metric_name};
use super::series::{hash, series_hash};
use super::writer::{push_escaped, push_foreign_help, push_foreign_value};
use hashbrown::{HashMap, HashTable};
use std::cmp::Ordering;

/// Texts to put in that are remembered: bounds, mostly.
const MOST_PUTS: usize = 4096;

/// Turns one page into a [`Prepared`].
pub(super) struct Builder<'p, 't> {
    page: &'p Page<'t>,
    /// The source label's name, and `name="value"`.
    label: Option<(String, String)>,
    out: Prepared,
    /// Half of the hash, and the row, of every series so far; with room for all, so that none moves.
    seen: HashTable<(u32, u32)>,
    /// Label blocks in canonical form, where the page's own is not.
    scratch: String,
    known: Known<'t>,
    bounds: Bounds,
    /// Where texts that are put in stand, by their hashes.
    puts: HashMap<u64, u32, foldhash::fast::RandomState>,
    /// The samples of the family at hand.
    kept: Vec<Kept>,
    /// Its metrics, and where in the family each begins.
    metrics: HashMap<u64, u32, foldhash::fast::RandomState>,
}

/// A sample that goes into the block at hand.
#[derive(Clone, Copy)]
struct Kept {
    /// See [`Facts`].
    metric: u64,
    split: f64,
    row: u32,
    suffix: Option<Suffix>,
    /// A label is called like the source label.
    clash: bool,
    /// Its name, or one of its labels', needs quotes.
    odd: bool,
    /// The label that splits the family is spelled as `OpenMetrics` has it, or not there.
    float_form: bool,
}

/// By draft, of those that share a family: its block, and its samples.
type Shared = HashMap<usize, (usize, Vec<Kept>), foldhash::fast::RandomState>;

/// The form that lines are written in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Classic,
    OpenMetrics,
}

// === impl Builder ===

impl<'p, 't> Builder<'p, 't> {
    /// `label` is the source label's name, which must be a label name, and its value.
    pub(super) fn new(page: &'p Page<'t>, label: Option<(String, String)>) -> Builder<'p, 't> {
        let written = label.as_ref().map(|(name, value)| {
            let mut pair = format!("{name}=\"");
            push_escaped(&mut pair, value);
            pair.push('"');
            (name.clone(), pair)
        });
        let extra = written.as_ref().map_or(0, |(_, pair)| pair.len()) + "{,} \n".len();
        let length = |r: &Row<'_>| {
            page.names.list[r.name as usize].text.len() + r.labels.len() + r.value_text.len()
        };
        let lines: usize = page.rows.iter().map(|r| length(r) + extra).sum();
        let heads = page.families.iter();
        let heads: usize = heads
            .map(|f| f.name.len() + f.help.map_or(0, str::len))
            .sum();
        Builder {
            page,
            label: written,
            out: Prepared {
                text: String::with_capacity(lines + heads),
                put: String::new(),
                patches: Vec::new(),
                blocks: Vec::with_capacity(page.families.len()),
                label,
                samples: 0,
                duplicates: 0,
                misfits: 0,
                unwritable: 0,
            },
            seen: HashTable::with_capacity(page.rows.len()),
            scratch: String::new(),
            known: Known::default(),
            bounds: Bounds::default(),
            puts: HashMap::default(),
            kept: Vec::new(),
            metrics: HashMap::default(),
        }
    }

    pub(super) fn build(mut self, keep: &dyn Fn(&str) -> bool) -> Prepared {
        let mut drafts = drafts(self.page, keep);
        let shares = shares(&mut drafts);
        let mut shared = Shared::default();
        for (index, draft) in drafts.iter().enumerate() {
            self.collect(draft, &draft.rows);
            if self.kept.is_empty() {
                continue;
            }
            self.regroup(draft.kind);
            let block = self.block(draft);
            if draft.shared {
                shared.insert(index, (self.out.blocks.len(), self.kept.clone()));
            }
            self.out.blocks.push(block);
        }
        for (base, companions) in shares {
            self.combine(&drafts, base, &companions, &mut shared);
        }
        self.out.text.shrink_to_fit();
        self.out.put.shrink_to_fit();
        self.out.patches.shrink_to_fit();
        self.out.blocks.shrink_to_fit();
        self.out
    }

    /// Looks at every row of a family: which samples can be in it, and what has to be known of them.
    fn collect(&mut self, draft: &Draft<'p, 't>, rows: &[u32]) {
        self.kept.clear();
        let ours = self.label.as_ref().map(|(ours, _)| ours.as_str());
        let split_label = draft.kind.split_label(draft.name);
        let (mut last, mut name) = (u32::MAX, SampleName::new("", ""));
        for index in rows {
            let row = &self.page.rows[*index as usize];
            if row.name != last {
                last = row.name;
                name = SampleName::new(self.page.names.list[last as usize].text, draft.name);
            }
            let bounds = &mut self.bounds;
            let (mut labels, legacy) = if row.plain {
                let hashed = self.known.hashed(self.page.labels(row));
                (LabelFacts::of(hashed, ours, split_label, bounds), true)
            } else {
                let legacy = canonical(&mut self.scratch, row.labels);
                let hashed = hashed(&self.scratch, legacy);
                (LabelFacts::of(hashed, ours, split_label, bounds), legacy)
            };
            if labels.clash {
                // What it is called on the merged page counts: it may meet another there.
                let (block, _) = final_block(self.page, *index, ours);
                let hashed = hashed(&block, legacy);
                labels = LabelFacts::of(hashed, None, split_label, bounds);
                labels.clash = true;
            }
            if !fits_in_text(draft.kind, name.suffix, labels.split.is_number()) {
                self.out.misfits += 1;
                continue;
            }
            let series = series_hash(name.hash, labels.hash);
            let page = self.page;
            let half = (series >> 16) as u32;
            let same = |&(other_half, other): &(u32, u32)| {
                other_half == half && same_series(page, *index, other, ours)
            };
            if self.seen.find(series, same).is_some() {
                self.out.duplicates += 1;
                continue;
            }
            self.seen.insert_unique(series, (half, *index), |(_, row)| {
                series_of(page, *row, ours)
            });
            let odd = !(name.writable && legacy);
            if odd {
                self.out.unwritable += 1;
            } else {
                self.out.samples += 1;
            }
            self.kept.push(Kept {
                metric: labels.metric,
                split: labels.split.bound(draft.kind),
                row: *index,
                suffix: name.suffix,
                clash: labels.clash,
                odd,
                float_form: labels.float_form || draft.kind == MetricType::StateSet,
            });
        }
    }

    /// Puts the samples of one metric together, in order of the metrics' first appearance, and a
    /// histogram's buckets in order of their bounds.
    fn regroup(&mut self, kind: MetricType) {
        if !kind.is_grouped() {
            return;
        }
        let is_bucket = |kept: &Kept| kept.suffix == Some(Suffix::Bucket);
        let mut good = self.kept.windows(2).all(|pair| {
            let both = is_bucket(&pair[0]) && is_bucket(&pair[1]);
            !both || pair[0].metric != pair[1].metric || pair[0].split <= pair[1].split
        });
        self.metrics.clear();
        let mut last = None;
        for (kept, at) in self.kept.iter().zip(0u32..) {
            if last != Some(kept.metric) {
                last = Some(kept.metric);
                good &= *self.metrics.entry(kept.metric).or_insert(at) == at;
            }
        }
        if good {
            return;
        }
        let metrics = &self.metrics;
        // Stable, so that what is no bucket stays in the order of the page.
        self.kept.sort_by(|a, b| {
            let rank = |kept: &Kept| metrics.get(&kept.metric).copied();
            let by_kind = is_bucket(b).cmp(&is_bucket(a));
            let by_bound = if is_bucket(a) && is_bucket(b) {
                a.split.total_cmp(&b.split)
            } else {
                Ordering::Equal
            };
            rank(a).cmp(&rank(b)).then(by_kind).then(by_bound)
        });
    }

    /// Writes the family at hand.
    fn block(&mut self, draft: &Draft<'p, 't>) -> Block {
        let text = &mut self.out.text;
        let start = text.len();
        text.push_str(draft.name);
        let name = start..text.len();
        push_foreign_help(text, draft.help.unwrap_or_default());
        let help = name.end..text.len();
        text.push_str(draft.unit.unwrap_or_default());
        let unit = help.end..text.len();
        let kept = std::mem::take(&mut self.kept);
        let lines = self.lines(&kept, Form::Classic, draft.name, draft.kind);
        let kind = match draft.kind {
            MetricType::Unknown if draft.name.ends_with("_total") => MetricType::Counter,
            kind => kind,
        };
        let before = self.out.patches.len();
        let patched = self.patch(lines, &kept, draft.name, kind);
        let patches = before..self.out.patches.len();
        let open = if patched.is_some() && follows_rules(kind, self.facts(&kept)) {
            Open::Same
        } else {
            Open::Untyped
        };
        let samples = kept.iter().filter(|k| !k.odd).count() as u64;
        self.kept = kept;
        Block {
            name,
            help,
            unit,
            lines,
            kind: draft.kind,
            samples,
            patches,
            open,
        }
    }

    /// Notes in what lines of `OpenMetrics` differ from those of classic text that were written. `None`
    /// where there is too much of it.
    fn patch(&mut self, lines: Lines, kept: &[Kept], family: &str, kind: MetricType) -> Option<()> {
        let exemplars = kind.has_exemplars() && !self.page.exemplars.is_empty();
        let respell = kept.iter().any(|kept| !kept.float_form) && !bounds_repeat(kept);
        if !exemplars && !respell {
            return Some(());
        }
        let mut open = String::new();
        let mut at = lines.start;
        for odd in [false, true] {
            for kept in kept.iter().filter(|kept| kept.odd == odd) {
                let rest = self.out.text.as_bytes().get(at..)?;
                let end = at + memchr::memchr(b'\n', rest)?;
                if respell && !kept.float_form {
                    open.clear();
                    self.line(&mut open, kept, Form::OpenMetrics, family, kind);
                    let classic = self.out.text.get(at..end)?;
                    if let Some((from, skip, put)) = difference(classic, &open) {
                        self.push_patch(at - lines.start + from, skip, put, false)?;
                    }
                }
                if exemplars && let Some(exemplar) = self.exemplar(kept, kind) {
                    self.push_patch(end - lines.start, 0, &exemplar, true)?;
                }
                at = end + 1;
            }
        }
        Some(())
    }

    fn push_patch(&mut self, at: usize, skip: usize, put: &str, exemplar: bool) -> Option<()> {
        let at = u32::try_from(at).ok()?;
        let skip = u8::try_from(skip).ok()?;
        let (put, len) = self.put(put)?;
        self.out.patches.push(Patch {
            at,
            skip,
            put,
            len,
            exemplar,
        });
        Some(())
    }

    /// What of a sample's exemplar a family of this type has a place for, and what stands before it.
    fn exemplar(&self, kept: &Kept, kind: MetricType) -> Option<String> {
        let of_counter = kind == MetricType::Counter && kept.suffix.is_none();
        let place = of_counter || kept.suffix == Some(Suffix::Bucket);
        let raw = self.page.exemplar(kept.row).filter(|_| place)?;
        let mut exemplar = String::new();
        push_exemplar(&mut exemplar, raw);
        (!exemplar.is_empty()).then_some(exemplar)
    }

    /// Where a text is among those that are put in. Most are the same few.
    fn put(&mut self, text: &str) -> Option<(u32, u16)> {
        let len = u16::try_from(text.len()).ok()?;
        let hash = hash(text.as_bytes());
        let known = &self.out.put;
        let same = |put: &u32| known.get(*put as usize..)?.get(..text.len());
        if let Some(put) = self.puts.get(&hash)
            && same(put) == Some(text)
        {
            return Some((*put, len));
        }
        let put = u32::try_from(known.len()).ok()?;
        self.out.put.push_str(text);
        if self.puts.len() < MOST_PUTS {
            self.puts.insert(hash, put);
        }
        Some((put, len))
    }

    fn facts(&self, kept: &[Kept]) -> impl Iterator<Item = Facts> {
        kept.iter().map(|kept| Facts {
            suffix: kept.suffix,
            metric: kept.metric,
            split: kept.split,
            value: self.page.rows[kept.row as usize].value,
        })
    }

    /// Makes one family of `OpenMetrics` of a block and those that say something of the same metrics,
    /// where their samples allow it.
    fn combine(
        &mut self,
        drafts: &[Draft<'p, 't>],
        base: usize,
        companions: &[usize],
        shared: &mut Shared,
    ) {
        let Some((block, mut all)) = shared.remove(&base) else {
            return;
        };
        let (name, kind) = (drafts[base].name, drafts[base].kind);
        self.metrics.clear();
        for (kept, at) in all.iter().zip(0u32..) {
            self.metrics.entry(kept.metric).or_insert(at);
        }
        let mut blocks = Vec::with_capacity(companions.len());
        let mut good = true;
        for companion in companions {
            let Some((block, kept)) = shared.remove(companion) else {
                continue;
            };
            blocks.push(block);
            let suffix = Suffix::split(drafts[*companion].name).map(|(_, suffix)| suffix);
            good &= kept.iter().all(|k| self.metrics.contains_key(&k.metric));
            all.extend(kept.into_iter().map(|kept| Kept { suffix, ..kept }));
        }
        if blocks.is_empty() {
            return;
        }
        let metrics = &self.metrics;
        all.sort_by_key(|kept| metrics.get(&kept.metric).copied());
        if !(good && follows_rules(kind, self.facts(&all))) {
            self.out.blocks[block].open = Open::Untyped;
            return;
        }
        let lines = self.lines(&all, Form::OpenMetrics, name, kind);
        self.out.blocks[block].open = Open::Own(lines);
        for block in blocks {
            self.out.blocks[block].open = Open::Companion;
        }
    }

    /// Writes lines, those with odd names last.
    fn lines(&mut self, kept: &[Kept], form: Form, family: &str, kind: MetricType) -> Lines {
        let mut text = std::mem::take(&mut self.out.text);
        let start = text.len();
        let mut odd = start;
        for odd_ones in [false, true] {
            if odd_ones {
                odd = text.len();
                if self.out.unwritable == 0 {
                    break;
                }
            }
            for kept in kept.iter().filter(|kept| kept.odd == odd_ones) {
                self.line(&mut text, kept, form, family, kind);
                if form == Form::OpenMetrics
                    && let Some(exemplar) = self.exemplar(kept, kind)
                {
                    text.push_str(&exemplar);
                }
                text.push('\n');
            }
        }
        let end = text.len();
        self.out.text = text;
        Lines { start, odd, end }
    }

    /// Writes a line up to its value.
    fn line(&mut self, out: &mut String, kept: &Kept, form: Form, family: &str, kind: MetricType) {
        let row = &self.page.rows[kept.row as usize];
        let name = self.page.names.list[row.name as usize].text;
        let block = if row.plain {
            row.labels
        } else {
            canonical(&mut self.scratch, row.labels);
            &self.scratch
        };
        let mut before = "{";
        if is_metric_name(name) {
            out.push_str(name);
        } else {
            push_all(out, &["{\"", name, "\""]);
            before = ",";
        }
        if let Some((_, pair)) = &self.label {
            push_all(out, &[before, pair]);
            before = ",";
        }
        if !block.is_empty() {
            out.push_str(before);
            before = ",";
            let respelled = form == Form::OpenMetrics && !kept.float_form;
            if kept.clash || respelled {
                let ours = self.label.as_ref().filter(|_| kept.clash);
                let ours = ours.map(|(ours, _)| ours.as_str());
                let split = kind.split_label(family).filter(|_| respelled);
                push_relabelled(out, block, !kept.odd, ours, split);
            } else {
                out.push_str(block);
            }
        }
        out.push_str(if before == "," { "} " } else { " " });
        push_foreign_value(out, row.value, row.value_text);
    }
}

/// What of `classic` has to be replaced to make it `open`: where, how many bytes, and by what.
fn difference<'o>(classic: &str, open: &'o str) -> Option<(usize, usize, &'o str)> {
    let from = common_prefix(classic.as_bytes(), open.as_bytes());
    let (old, new) = (classic.get(from..)?, open.get(from..)?);
    let pairs = old.bytes().rev().zip(new.bytes().rev());
    let same = pairs.take_while(|(a, b)| a == b).count();
    let put = new.get(..new.len() - same)?;
    let skip = old.len() - same;
    (skip > 0 || !put.is_empty()).then_some((from, skip, put))
}

/// Whether two bounds of one metric would be one if they were spelled alike.
fn bounds_repeat(kept: &[Kept]) -> bool {
    let mut keys = Vec::new();
    kept.chunk_by(|a, b| a.metric == b.metric).any(|metric| {
        keys.clear();
        let key = |kept: &Kept| (kept.suffix.map(|s| s as u8), kept.split.to_bits());
        keys.extend(metric.iter().map(key));
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    })
}
