//! Reading an engine that kvgauge does not know, by a mapping that an operator gives.
//!
//! What a mapping is, and when it can be read by, is in the settings' room. A value that its unit does
//! not allow is unknown and counted, as everywhere.

use super::gauges::{Key, Sheet, Unit, fit, whole};
use crate::config::{BlockSize, MappedGauge, MappedUnit, Mapping};
use crate::exposition::{Page, Sample};
use crate::kv::{Pool, Reading, Role, Unknown};

/// The metric in [`Reading::chosen`] of a page that is read by a mapping.
pub const MAPPING: &str = "mapping";

/// How a value of this unit is checked.
fn checked_as(unit: MappedUnit) -> Unit {
    match unit {
        MappedUnit::Fraction => Unit::Fraction,
        MappedUnit::Percent => Unit::Percent,
        MappedUnit::Tokens | MappedUnit::Blocks => Unit::Count,
        MappedUnit::Requests => Unit::Requests,
    }
}

/// Whether the gauge means this sample. A label that is not there is an empty one.
fn means(gauge: &MappedGauge, sample: &Sample<'_, '_>) -> bool {
    gauge
        .labels()
        .all(|(label, value)| sample.label(label).unwrap_or_default() == value)
}

/// What a page says when it is read by the mapping of this name. Gauges without the labels that tell pools apart
/// belong to the only pool, where there is one; of several, requests without them are nobody's.
#[must_use]
pub fn read_mapped(page: &Page<'_>, name: &str, mapping: &Mapping) -> Reading {
    let spec = mapping.spec();
    let mut sheet = Sheet::default();
    for (value, gauge) in mapping.gauges() {
        let Some(gauge) = gauge else { continue };
        let unit = checked_as(gauge.unit());
        sheet.take_named(page, gauge.name(), value, unit, |sample| {
            means(gauge, sample).then(|| {
                Key::of(
                    sample,
                    spec.model.as_deref().unwrap_or_default(),
                    spec.rank.as_deref().unwrap_or_default(),
                )
            })
        });
    }
    sheet.bound();
    let mut odd = std::mem::take(&mut sheet.odd);
    let fingerprint = sheet.fingerprint();

    let of_kv = |row: &super::gauges::Row| {
        ["usage", "used", "capacity"].map(|v| row.get(v)) != [Err(Unknown::Absent); 3]
    };
    if sheet.rows.len() == 2
        && let Some(key) = sheet
            .rows
            .iter()
            .find(|(_, row)| !of_kv(row))
            .map(|(key, _)| key.clone())
        && let Some(loose) = sheet.rows.remove(&key)
        && let Some(mut pool) = sheet.rows.first_entry()
    {
        pool.get_mut().absorb(loose);
    }
    // Of several pools it is nobody's, and no pool without a usage either.
    if sheet.rows.len() > 2 && spec.rank.is_some() {
        sheet
            .rows
            .retain(|key, row| key.rank.is_some() || of_kv(row));
    }

    let block_size = match &spec.block_size {
        None => None,
        Some(BlockSize::Tokens(tokens)) => whole_float(*tokens),
        Some(BlockSize::Gauge(gauge)) => {
            let mut sizes = Sheet::default();
            sizes.take_named(page, gauge.name(), "block_size", Unit::Count, |sample| {
                means(gauge, sample).then_some(Key::NONE)
            });
            let row = sizes.rows.get(&Key::NONE);
            row.and_then(|row| row.get("block_size").ok())
        }
    };
    let tokens = |gauge: Option<&MappedGauge>, value: Result<f64, Unknown>| {
        let value = value.ok()?;
        match gauge?.unit() {
            MappedUnit::Blocks => Some(value * block_size?),
            _ => Some(value),
        }
    };
    let same_unit =
        spec.used.as_ref().map(MappedGauge::unit) == spec.capacity.as_ref().map(MappedGauge::unit);

    let mut chosen: Vec<(&'static str, &'static str)> = Vec::new();
    let mut pools = Vec::with_capacity(sheet.rows.len());
    for (key, row) in &sheet.rows {
        let used = tokens(spec.used.as_ref(), row.get("used"));
        let capacity = tokens(spec.capacity.as_ref(), row.get("capacity"));
        if row.get("capacity") == Ok(0.0) {
            odd.add("zero_capacity");
        }
        let parts = if same_unit {
            row.get("used").ok().zip(row.get("capacity").ok())
        } else {
            used.zip(capacity)
        };
        let mut pool = Pool::unknown(Unknown::Absent);
        pool.usage = match (row.get("usage"), parts) {
            (Err(Unknown::Absent), Some((used, capacity))) if capacity > 0.0 => odd
                .check(used / capacity, Unit::Fraction)
                .ok_or(Unknown::Invalid),
            (usage, _) => usage,
        };
        pool.model = key.model.as_deref().map(Into::into);
        pool.rank = key.place();
        pool.capacity = capacity.and_then(whole).filter(|tokens| *tokens > 0);
        pool.used = used
            .and_then(whole)
            .filter(|used| pool.usage.is_ok() && fit(*used, pool.capacity));
        pool.fill = row.get("fill").ok();
        pool.running = row.count("running");
        pool.queued = row.count("queued");
        pool.hit_rate = row.get("hit_rate").ok();
        for (value, known) in [
            ("usage", pool.usage.is_ok()),
            ("used", pool.used.is_some()),
            ("capacity", pool.capacity.is_some()),
            ("fill", pool.fill.is_some()),
            ("running", pool.running.is_some()),
            ("queued", pool.queued.is_some()),
            ("hit_rate", pool.hit_rate.is_some()),
        ] {
            if known && !chosen.contains(&(value, MAPPING)) {
                chosen.push((value, MAPPING));
            }
        }
        pools.push(pool);
    }
    chosen.sort_unstable();
    Reading {
        engine: Some(name.to_owned().into()),
        role: Some(Role::Unified),
        pools,
        chosen,
        passed_over: Vec::new(),
        odd: odd.into_vec(),
        fingerprint,
    }
}

/// A number of tokens as a float.
fn whole_float(tokens: u64) -> Option<f64> {
    let float = super::gauges::float(tokens);
    whole(float).map(|_| float)
}
