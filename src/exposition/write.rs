//! A merged page, written.

use super::MetricType;
use super::escape::{OddNames, escaped_label_name, escaped_metric_name};
use super::format::{Escaping, Format};
use super::forms::{Form, forms};
use super::labels::RawLabels;
use super::line::{RawSample, sample};
use super::merge::{Fate, Plan, fits};
use super::open::unit_fits;
use super::plain::Previous;
use super::prepared::{Patch, Prepared};
use super::relabel::push_all;
use super::scan::is_metric_name;
use super::series::{hash, label_hash, same_labels, series_hash};
use super::writer::push_quotes_escaped;
use hashbrown::{HashSet, HashTable};
use std::ops::Range;

/// Every ending of a sample's name that some family reserves.
const ENDINGS: [&str; 9] = [
    "", "_bucket", "_sum", "_count", "_total", "_created", "_info", "_gsum", "_gcount",
];

/// Writes the page, and counts by source the samples left out since they are there already.
pub(super) fn page(plan: &Plan<'_>, pages: &[&Prepared], format: Format) -> (String, Vec<u64>) {
    let room = pages.iter().map(|p| p.text.len()).sum::<usize>() + 64 * plan.groups.len();
    let mut writer = Writer {
        plan,
        out: String::with_capacity(room),
        open: format.is_open_metrics(),
        odd_names: OddNames::of(format),
        taken: None,
        seen: HashTable::new(),
        duplicates: vec![0; pages.len()],
    };
    if writer.open {
        for (group, form) in forms(plan, writer.odd_names).into_iter().enumerate() {
            writer.open_family(group, form);
        }
        writer.out.push_str("# EOF\n");
    } else {
        for (group, of) in plan.groups.iter().enumerate() {
            if of.fate == Fate::Kept
                && let Some(name) = writer.claimed(group)
            {
                writer.family(group, &name, &name, of.kind, None);
            }
        }
    }
    (writer.out, writer.duplicates)
}

struct Writer<'w, 'p> {
    plan: &'w Plan<'p>,
    out: String,
    open: bool,
    odd_names: OddNames,
    /// Names that an escaped one may not meet.
    /// By their hashes.
    taken: Option<HashSet<u64, foldhash::fast::RandomState>>,
    /// Hash and beginning of each line of the family at hand, where some may be there already.
    seen: HashTable<(u64, usize)>,
    /// By page.
    duplicates: Vec<u64>,
}

// === impl Writer ===

impl<'p> Writer<'_, 'p> {
    fn open_family(&mut self, group: usize, form: Form) {
        if form == Form::Nothing {
            return;
        }
        let Some(name) = self.claimed(group) else {
            return;
        };
        match form {
            Form::Nothing => {}
            Form::Family(kind) => {
                self.family(group, &name, kind.open_name(&name), kind, None);
            }
            // All its samples are called like it.
            Form::Untyped if !self.plan.groups[group].kind.is_grouped() => {
                self.family(group, &name, &name, MetricType::Unknown, None);
            }
            Form::Untyped => {
                for ending in ["", "_bucket", "_count", "_sum"] {
                    let only = format!("{}{ending}", self.plan.name(group));
                    let of_ending = format!("{name}{ending}");
                    self.family(group, &name, &of_ending, MetricType::Unknown, Some(&only));
                }
            }
        }
    }

    /// The name that a group has on the page. `None` where the page can't have it.
    fn claimed(&mut self, group: usize) -> Option<String> {
        let name = self.plan.name(group);
        let OddNames::Escaped(escaping) = self.odd_names else {
            let can = is_metric_name(name) || self.odd_names == OddNames::Quoted;
            return can.then(|| name.to_owned());
        };
        if is_metric_name(name) {
            return Some(name.to_owned());
        }
        let escaped = escaped_metric_name(name, escaping);
        let plan = self.plan;
        let taken = self.taken.get_or_insert_with(|| reserved(plan));
        let wanted = ENDINGS.map(|ending| hash(format!("{escaped}{ending}").as_bytes()));
        if wanted.iter().any(|name| taken.contains(name)) {
            for part in plan.parts(group) {
                let lines = part.entry.block.lines.odd(part.entry.from).lines();
                self.duplicates[part.entry.page] += lines.count() as u64;
            }
            return None;
        }
        taken.extend(wanted);
        Some(escaped)
    }

    /// Writes a family called `name` of a group called `base` on the page: all of the group, or its
    /// samples that were called `only`.
    fn family(
        &mut self,
        group: usize,
        base: &str,
        name: &str,
        kind: MetricType,
        only: Option<&str>,
    ) {
        let at = self.out.len();
        self.head(group, name, kind);
        let body = self.out.len();
        let parts = self.plan.parts(group);
        let alone = parts.iter().all(|p| p.entry.page == parts[0].entry.page);
        let apart = alone || parts.iter().all(|p| self.plan.apart[p.entry.page]);
        // Two names may have become one.
        let respelled = matches!(self.odd_names, OddNames::Escaped(_))
            && parts.iter().any(|p| p.entry.block.has_odd_lines());
        let mut rules = Rules {
            page: 0,
            only,
            fit: None,
            once: !apart || respelled,
            respell: None,
        };
        self.seen.clear();
        for part in parts {
            let (from, block) = (part.entry.from, part.entry.block);
            let typed = block.open_lines(from, kind).filter(|_| self.open);
            let exemplars = typed.is_some();
            let (lines, patches) = typed.unwrap_or((block.lines, block.patches(from)));
            let patches = Patches {
                start: lines.start,
                // Where two sources may have a series, its spelling is what tells two apart.
                list: if self.open && apart { patches } else { &[] },
                exemplars,
            };
            rules.fit = part
                .look
                .then(|| (self.plan.name(group), self.plan.groups[group].kind));
            rules.page = part.entry.page;
            rules.respell = None;
            self.patched_lines(from, lines.start..lines.odd, &patches, &rules);
            rules.respell = match self.odd_names {
                OddNames::LeftOut => continue,
                OddNames::Quoted => None,
                OddNames::Escaped(escaping) => Some((escaping, self.plan.name(group), base)),
            };
            self.patched_lines(from, lines.odd..lines.end, &patches, &rules);
        }
        if self.out.len() == body {
            self.out.truncate(at);
        }
    }

    fn head(&mut self, group: usize, name: &str, kind: MetricType) {
        let quote = if is_metric_name(name) { "" } else { "\"" };
        let out = &mut self.out;
        let help = self.plan.help(group);
        if self.open {
            push_all(
                out,
                &["# TYPE ", quote, name, quote, " ", kind.as_str(), "\n"],
            );
            let unit = self.plan.unit(group);
            if let Some(unit) = unit.filter(|unit| unit_fits(unit, name, kind)) {
                push_all(out, &["# UNIT ", quote, name, quote, " ", unit, "\n"]);
            }
            if !help.is_empty() {
                push_all(out, &["# HELP ", quote, name, quote, " "]);
                push_quotes_escaped(out, help);
                out.push('\n');
            }
        } else {
            if !help.is_empty() {
                push_all(out, &["# HELP ", quote, name, quote, " ", help, "\n"]);
            }
            push_all(
                out,
                &["# TYPE ", quote, name, quote, " ", kind.text_word(), "\n"],
            );
        }
    }

    /// Writes lines of a block with what the form has in them.
    fn patched_lines(
        &mut self,
        from: &Prepared,
        lines: Range<usize>,
        patches: &Patches<'_>,
        rules: &Rules<'_>,
    ) {
        if patches.list.is_empty() {
            self.lines(&from.text[lines], rules);
        } else if rules.are_none() {
            patches.write(&mut self.out, from, lines);
        } else {
            let mut text = String::new();
            patches.write(&mut text, from, lines);
            self.lines(&text, rules);
        }
    }

    /// Writes lines that stand in a block.
    fn lines(&mut self, lines: &str, rules: &Rules<'_>) {
        if rules.are_none() {
            self.out.push_str(lines);
            return;
        }
        let mut previous = Previous::default();
        for line in lines.lines() {
            if let Some(only) = rules.only.filter(|_| rules.is_only_name()) {
                if is_of(line, only) {
                    push_all(&mut self.out, &[line, "\n"]);
                }
                continue;
            }
            let Ok(sample) = sample(line, &mut previous) else {
                continue;
            };
            let wanted = rules.only.is_none_or(|only| only == sample.name)
                && rules
                    .fit
                    .is_none_or(|(family, kind)| fits(&sample, family, kind));
            if !wanted {
                continue;
            }
            let at = self.out.len();
            let written = match rules.respell {
                Some((escaping, family, written)) => {
                    push_respelled(&mut self.out, line, &sample, escaping, family, written)
                }
                None => {
                    self.out.push_str(line);
                    true
                }
            };
            if written && (!rules.once || self.is_new(at)) {
                self.out.push('\n');
            } else {
                self.out.truncate(at);
                self.duplicates[rules.page] += 1;
            }
        }
    }

    /// Notes the series that the page's last line is of; `false` if it is there already.
    fn is_new(&mut self, at: usize) -> bool {
        let Some((series, _)) = series_at(&self.out, at) else {
            return false;
        };
        let out = &self.out;
        let same = |&(other, from): &(u64, usize)| {
            let blocks = || Some((series_at(out, from)?.1, series_at(out, at)?.1));
            other == series && blocks().is_some_and(|(a, b)| a.0 == b.0 && same_labels(a.1, b.1))
        };
        if self.seen.find(series, same).is_some() {
            return false;
        }
        self.seen
            .insert_unique(series, (series, at), |(hash, _)| *hash);
        true
    }
}

/// The patches for lines that begin at `start`.
struct Patches<'p> {
    start: usize,
    list: &'p [Patch],
    /// The family has a place for exemplars.
    exemplars: bool,
}

impl Patches<'_> {
    fn write(&self, out: &mut String, from: &Prepared, lines: Range<usize>) {
        let place = |patch: &Patch| self.start + patch.at as usize;
        let first = self.list.partition_point(|p| place(p) < lines.start);
        let mut at = lines.start;
        for patch in &self.list[first..] {
            let here = place(patch);
            if here >= lines.end {
                break;
            }
            if patch.exemplar && !self.exemplars {
                continue;
            }
            let put = patch.put as usize..patch.put as usize + usize::from(patch.len);
            push_all(out, &[&from.text[at..here], &from.put[put]]);
            at = here + usize::from(patch.skip);
        }
        out.push_str(&from.text[at..lines.end]);
    }
}

/// What holds for the lines of a block, if not all go in as they are.
struct Rules<'w> {
    /// Whose lines they are.
    page: usize,
    /// Samples of this name only.
    only: Option<&'w str>,
    /// Samples only that classic text lets be in the family of this name and type.
    fit: Option<(&'w str, MetricType)>,
    /// No series that the family has already.
    once: bool,
    /// In other characters: the family's name before and after.
    respell: Option<(Escaping, &'w str, &'w str)>,
}

impl Rules<'_> {
    /// Nothing but the name decides.
    fn is_only_name(&self) -> bool {
        self.fit.is_none() && !self.once && self.respell.is_none()
    }

    fn are_none(&self) -> bool {
        self.only.is_none() && self.fit.is_none() && !self.once && self.respell.is_none()
    }
}

/// Whether a line of a block is a sample of this name.
fn is_of(line: &str, name: &str) -> bool {
    let quoted = line
        .strip_prefix("{\"")
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with('"'));
    let plain = line
        .strip_prefix(name)
        .is_some_and(|rest| rest.starts_with(['{', ' ']));
    plain || quoted
}

/// The hash, the name and the label block of the line that begins at `at`.
fn series_at(out: &str, at: usize) -> Option<(u64, (&str, &str))> {
    let line = out.get(at..)?.lines().next()?;
    let sample = sample(line, &mut Previous::default()).ok()?;
    let labels = RawLabels::new(sample.labels, sample.plain).map(|l| label_hash(&l));
    let hash = series_hash(
        hash(sample.name.as_bytes()),
        labels.fold(0, u64::wrapping_add),
    );
    Some((hash, (sample.name, sample.labels)))
}

/// Writes a line with names in other characters. `false` where two of its labels become one, or one
/// becomes a reserved one.
fn push_respelled(
    out: &mut String,
    line: &str,
    sample: &RawSample<'_>,
    escaping: Escaping,
    family: &str,
    written: &str,
) -> bool {
    match sample.name.strip_prefix(family) {
        Some(ending) if ENDINGS.contains(&ending) => push_all(out, &[written, ending]),
        _ => out.push_str(&escaped_metric_name(sample.name, escaping)),
    }
    let mut names: HashSet<String, foldhash::fast::RandomState> = HashSet::default();
    for label in RawLabels::new(sample.labels, sample.plain) {
        let before = if names.is_empty() { "{" } else { "," };
        let name = escaped_label_name(label.name, escaping);
        push_all(out, &[before, &name, "=\"", label.value, "\""]);
        // One that is reserved now, readers refuse.
        if name.starts_with("__") || !names.insert(name) {
            return false;
        }
    }
    if !names.is_empty() {
        out.push('}');
    }
    // From the blank before the value on, which is behind the labels.
    let labels_end = sample.labels.as_ptr() as usize + sample.labels.len() - line.as_ptr() as usize;
    out.push_str(line.get(labels_end + 1..).unwrap_or_default());
    true
}

/// The hash of every name that a family of the page has or reserves.
fn reserved(plan: &Plan<'_>) -> HashSet<u64, foldhash::fast::RandomState> {
    let mut names = HashSet::default();
    let mut full = String::new();
    for (group, of) in plan.groups.iter().enumerate() {
        let name = plan.name(group);
        // A counter `a_total` is `a` in OpenMetrics, and has `a_created` then.
        for base in [name, of.kind.open_name(name)] {
            for ending in ENDINGS {
                full.clear();
                push_all(&mut full, &[base, ending]);
                names.insert(hash(full.as_bytes()));
            }
        }
        let bases = ENDINGS.iter().filter_map(|e| name.strip_suffix(e));
        names.extend(bases.map(|base| hash(base.as_bytes())));
    }
    names
}
