//! In which form the families of a merged page stand in `OpenMetrics`, which reserves more names than
//! classic text does and has rules for the samples of a type.

use super::MetricType;
use super::escape::OddNames;
use super::kind::Suffix;
use super::merge::{Fate, Part, Plan};
use super::prepared::Open;

/// How a group of a plan is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As one family of this type.
    Family(MetricType),
    /// Each name of its samples as a family of unknown type.
    Untyped,
    /// Not by itself: it is left out, or its samples are in the family that they say something of.
    Nothing,
}

/// The form of each group.
pub(super) fn forms(plan: &Plan<'_>, odd_names: OddNames) -> Vec<Form> {
    let respells = matches!(odd_names, OddNames::Escaped(_));
    let mut forms: Vec<Form> = plan
        .groups
        .iter()
        .map(|group| match group.fate {
            Fate::Kept => Form::Untyped,
            Fate::Lost(_) | Fate::Joined => Form::Nothing,
        })
        .collect();
    let mut absorbed = Vec::new();
    let mut name = String::new();
    for (group, of) in plan.groups.iter().enumerate() {
        if of.fate != Fate::Kept {
            continue;
        }
        let kind = of.kind;
        let fits = kind.is_free() || {
            let odd = |p: &Part<'_>| p.entry.block.has_odd_lines();
            let mut parts = plan.parts(group).iter();
            // Where names are respelled two metrics may become one, so that nothing is sure.
            parts.all(|p| {
                !p.look
                    && p.entry.block.open_lines(p.entry.from, kind).is_some()
                    && !(respells && odd(p))
            }) && (is_apart(plan, group) || !has_several_samples(plan, group))
                && has_its_names(plan, group, &mut name)
                && take_companions(plan, group, &mut absorbed, &mut name)
        };
        if fits {
            forms[group] = Form::Family(kind);
        } else if kind.in_text() == MetricType::Gauge {
            forms[group] = Form::Family(MetricType::Gauge);
        }
    }
    for group in absorbed {
        forms[group] = Form::Nothing;
    }
    forms
}

/// Whether a metric of the group is more than one line, so that it must not be on two pages.
fn has_several_samples(plan: &Plan<'_>, group: usize) -> bool {
    let kind = plan.groups[group].kind;
    let mut parts = plan.parts(group).iter();
    kind.is_grouped() || parts.any(|p| p.entry.block.has_open_lines())
}

/// Whether no metric of the group can be on two pages, where that would matter.
fn is_apart(plan: &Plan<'_>, group: usize) -> bool {
    let parts = plan.parts(group);
    parts.len() == 1 || parts.iter().all(|p| plan.apart[p.entry.page])
}

/// Whether no other family has a name that this one's type reserves, [companions](Suffix::companions)
/// aside.
fn has_its_names(plan: &Plan<'_>, group: usize, name: &mut String) -> bool {
    let kind = plan.groups[group].kind;
    let full = plan.name(group);
    let base = kind.open_name(full);
    let ends_well = base.len() < full.len() && !base.is_empty();
    match kind {
        MetricType::Counter => ends_well && is_free(plan, base, name),
        // A counter and an info of one name: the counter's it is.
        MetricType::Info => {
            ends_well && is_free(plan, base, name) && counter_of(plan, base, name).is_none()
        }
        _ => true,
    }
}

/// Whether no family is called so, and none reserves the name.
fn is_free(plan: &Plan<'_>, base: &str, name: &mut String) -> bool {
    if plan.find(base).is_some() {
        return false;
    }
    let Some((owner, suffix)) = Suffix::split(base) else {
        return true;
    };
    let by_type = plan.find(owner).is_some_and(|group| {
        let kind = plan.groups[group].kind;
        suffix.claim(kind).is_some() || suffix.reserved_in_text(kind)
    });
    let by_counter = suffix == Suffix::Created && counter_of(plan, owner, name).is_some();
    !(by_type || by_counter)
}

/// The group of the counter that `OpenMetrics` would call `base`.
fn counter_of(plan: &Plan<'_>, base: &str, name: &mut String) -> Option<usize> {
    named(name, base, "_total");
    plan.find(name)
        .filter(|group| plan.groups[*group].kind == MetricType::Counter)
}

/// Adds the groups whose samples are among this one's to `absorbed`. `false` where there are such that
/// are not.
fn take_companions(
    plan: &Plan<'_>,
    group: usize,
    absorbed: &mut Vec<usize>,
    name: &mut String,
) -> bool {
    let kind = plan.groups[group].kind;
    let base = kind.open_name(plan.name(group));
    let before = absorbed.len();
    for ending in Suffix::companions(kind) {
        named(name, base, ending);
        let Some(companion) = plan.find(name) else {
            continue;
        };
        let has_page = |page| plan.parts(group).iter().any(|p| p.entry.page == page);
        let inside = plan.groups[companion].fate == Fate::Kept
            && plan.parts(companion).iter().all(|p| {
                !p.look && matches!(p.entry.block.open, Open::Companion) && has_page(p.entry.page)
            });
        if !inside {
            absorbed.truncate(before);
            return false;
        }
        absorbed.push(companion);
    }
    true
}

fn named(name: &mut String, base: &str, ending: &str) {
    name.clear();
    name.push_str(base);
    name.push_str(ending);
}
