//! The families of classic text that a page's samples make up.

use super::MetricType;
use super::kind::Suffix;
use super::page::{Family, Page};
use std::borrow::Cow;

/// A family of classic text, before it is written.
pub(super) struct Draft<'p, 't> {
    pub(super) name: &'t str,
    pub(super) kind: MetricType,
    pub(super) help: Option<&'t str>,
    pub(super) unit: Option<&'t str>,
    pub(super) rows: Cow<'p, [u32]>,
    /// In `OpenMetrics` its samples and those of others make up one family.
    pub(super) shared: bool,
}

/// The families of classic text that the page's samples make up, in order of name.
pub(super) fn drafts<'p, 't>(
    page: &'p Page<'t>,
    keep: &dyn Fn(&str) -> bool,
) -> Vec<Draft<'p, 't>> {
    let mut drafts = Vec::with_capacity(page.families.len());
    let mut targets: Vec<Target<'t>> = Vec::new();
    for family in page.families.iter().filter(|f| f.end > f.start) {
        let of_family = &page.order[family.start as usize..family.end as usize];
        targets.clear();
        each_target(page, family, of_family, |_, target| {
            if !targets.contains(&target) {
                targets.push(target);
            }
        });
        for wanted in targets.iter().filter(|target| keep(target.name)) {
            let mut rows = Cow::Borrowed(of_family);
            if targets.len() > 1 {
                let mut own = Vec::new();
                each_target(page, family, of_family, |row, target| {
                    if target == *wanted {
                        own.push(row);
                    }
                });
                rows = Cow::Owned(own);
            }
            drafts.push(Draft {
                name: wanted.name,
                kind: wanted.kind,
                help: family.help,
                unit: family.unit,
                rows,
                shared: false,
            });
        }
    }
    drafts.sort_by_key(|draft| draft.name);
    drafts
}

fn each_target<'t>(
    page: &Page<'t>,
    family: &Family<'t>,
    rows: &[u32],
    mut each: impl FnMut(u32, Target<'t>),
) {
    let mut last = None;
    for row in rows {
        let id = page.rows[*row as usize].name;
        let target = match last {
            Some((same, target)) if same == id => target,
            _ => target(family, page.names.list[id as usize].text),
        };
        last = Some((id, target));
        each(*row, target);
    }
}

/// For each family that others say something of (`x_created` of a counter `x_total`): it, and those.
pub(super) fn shares(drafts: &mut [Draft<'_, '_>]) -> Vec<(usize, Vec<usize>)> {
    let mut pairs = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        if !matches!(draft.kind, MetricType::Gauge | MetricType::Unknown) {
            continue;
        }
        let Some((base, suffix)) = Suffix::split(draft.name) else {
            continue;
        };
        let find = |name: &str| drafts.binary_search_by(|d| d.name.cmp(name)).ok();
        // By the name that it has there: `a_total_created` says nothing of `a_total`, which is `a`.
        let typed = |at: &usize| {
            let Draft { name, kind, .. } = &drafts[*at];
            suffix.is_companion_of(*kind) && kind.open_name(name) == base
        };
        let found = find(base).filter(typed).or_else(|| {
            let counter = (suffix == Suffix::Created).then(|| format!("{base}_total"))?;
            find(&counter).filter(typed)
        });
        if let Some(base) = found {
            pairs.push((base, index));
        }
    }
    pairs.sort_unstable();
    for (base, companion) in &pairs {
        drafts[*base].shared = true;
        drafts[*companion].shared = true;
    }
    pairs
        .chunk_by(|a, b| a.0 == b.0)
        .map(|pairs| (pairs[0].0, pairs.iter().map(|p| p.1).collect()))
        .collect()
}

/// A family of classic text that some of a page family's samples make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target<'t> {
    name: &'t str,
    kind: MetricType,
}

/// The family of classic text that the samples called `sample` of a page's family are in.
fn target<'t>(family: &Family<'t>, sample: &'t str) -> Target<'t> {
    let suffix = Suffix::split(sample)
        .filter(|(base, _)| *base == family.name)
        .map(|(_, suffix)| suffix);
    let own = |kind| Target { name: sample, kind };
    match suffix {
        Some(Suffix::Created | Suffix::GaugeSum | Suffix::GaugeCount) => own(MetricType::Gauge),
        Some(Suffix::Total | Suffix::Info) => own(family.kind),
        // Without its ending nothing is left of it, which Python's reader refuses a page for.
        None if sample == "_total" && family.kind == MetricType::Counter => {
            own(MetricType::Unknown)
        }
        _ => Target {
            name: family.name,
            kind: family.kind,
        },
    }
}
