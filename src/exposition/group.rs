//! From sample names to families, once the whole page has been seen.

use super::MetricType;
use super::kind::{Claim, Suffix};
use super::names::{NONE, Names};
use super::page::{Family, Row};
use hashbrown::HashMap;

/// Puts every name that has samples or was declared into a family, and sorts the rows by family.
/// Gives the families in order of first appearance, and the indices of the rows, family by family.
pub(super) fn group<'t>(names: &mut Names<'t>, rows: &[Row<'t>]) -> (Vec<Family<'t>>, Vec<u32>) {
    let mut owners: Vec<u32> = (0u32..)
        .take(names.list.len())
        .map(|id| owner(names, id))
        .collect();
    adopt_respelled(names, &mut owners);
    let mut families = Vec::new();
    for (id, owner) in (0u32..).zip(owners) {
        let rows = names.list[id as usize].rows;
        if rows > 0 {
            let family = own_family(names, owner, &mut families);
            families[family as usize].end += rows;
            names.list[id as usize].family = family;
        }
        if names.list[id as usize].is_declared() {
            own_family(names, id, &mut families);
        }
    }
    let order = sort_rows(names, rows, &mut families);
    (families, order)
}

/// The family called like the name `id`, which is made if it is new.
fn own_family<'t>(names: &mut Names<'t>, id: u32, families: &mut Vec<Family<'t>>) -> u32 {
    let name = &mut names.list[id as usize];
    if name.own == NONE {
        name.own = u32::try_from(families.len()).unwrap_or(NONE);
        families.push(Family {
            name: name.text,
            kind: name.kind.unwrap_or(MetricType::Unknown),
            help: name.help,
            unit: name.unit,
            start: 0,
            end: 0,
        });
    }
    name.own
}

/// The name whose family the samples of the name `id` are in.
fn owner(names: &Names<'_>, id: u32) -> u32 {
    let name = &names.list[id as usize];
    let Some((base, suffix)) = Suffix::split(name.text) else {
        return id;
    };
    let Some(base) = names.find(base) else {
        return id;
    };
    let claim = names.list[base as usize]
        .kind
        .and_then(|kind| suffix.claim(kind));
    match claim {
        Some(Claim::Strong) => base,
        Some(Claim::Weak) if name.kind.is_none() => base,
        _ => id,
    }
}

/// Where HELP and TYPE name `a:b` and no sample is called so, but samples are called `a_b`, gives
/// those the type: a family `a_b` beside the empty `a:b`.
fn adopt_respelled<'t>(names: &mut Names<'t>, owners: &mut [u32]) {
    let mut used = vec![false; owners.len()];
    let mut strays = Vec::new();
    for (id, owner) in owners.iter().enumerate() {
        if names.list[id].rows > 0 {
            used[*owner as usize] = true;
            if *owner as usize == id && !names.list[id].is_declared() {
                strays.push(id);
            }
        }
    }
    if strays.is_empty() {
        return;
    }
    let odd = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let idle = names
        .list
        .iter()
        .enumerate()
        .filter(|(id, n)| !used[*id] && n.kind.is_some() && n.text.contains(odd));
    // The first of two that are spelled alike wins.
    let mut respelled: HashMap<String, usize, foldhash::fast::RandomState> = HashMap::default();
    for (id, name) in idle {
        respelled.entry(name.text.replace(odd, "_")).or_insert(id);
    }
    if respelled.is_empty() {
        return;
    }
    for id in strays {
        let text = names.list[id].text;
        let by_suffix = Suffix::split(text).and_then(|(base, suffix)| {
            let declared = *respelled.get(base)?;
            suffix.claim(names.list[declared].kind?)?;
            Some((base, declared))
        });
        let found = by_suffix.or_else(|| respelled.get(text).map(|declared| (text, *declared)));
        let Some((base, declared)) = found else {
            continue;
        };
        let base = names.intern(base);
        let (kind, help, unit) = (
            names.list[declared].kind,
            names.list[declared].help,
            names.list[declared].unit,
        );
        let entry = &mut names.list[base as usize];
        if !entry.is_declared() {
            (entry.kind, entry.help, entry.unit) = (kind, help, unit);
        }
        if entry.kind == kind {
            owners[id] = base;
        }
    }
}

/// A counting sort of the rows by family. `end` holds each family's number of rows when it begins.
fn sort_rows(names: &Names<'_>, rows: &[Row<'_>], families: &mut [Family<'_>]) -> Vec<u32> {
    let mut at = 0;
    for family in families.iter_mut() {
        let count = family.end;
        (family.start, family.end) = (at, at);
        at += count;
    }
    let mut order = vec![0; rows.len()];
    for (row, i) in rows.iter().zip(0u32..) {
        let family = &mut families[names.list[row.name as usize].family as usize];
        order[family.end as usize] = i;
        family.end += 1;
    }
    order
}
