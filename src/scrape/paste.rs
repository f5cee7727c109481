//! A mapping to paste, made of the gauges on a page that look like KV usage.

use crate::config::Source;
use crate::engine::{MappedGauge, MappedUnit, Mapping, MappingSpec, Suspect};

/// Labels that often name the model.
const MODEL: [&str; 3] = ["model_name", "model", "served_model_name"];

/// Labels beside it that are given.
const MOST_LABELS: usize = 8;

/// The section `[engine.NAME]`, in lines of TOML; `None` where what is there gives no usage. A name that
/// settings can't say is left out.
pub(super) fn section<'a>(
    name: &str,
    suspects: impl Iterator<Item = &'a Suspect>,
) -> Option<Vec<String>> {
    let mut spec = MappingSpec::default();
    let mut lines = vec![format!("[engine.{name}]")];
    let mut labels: Vec<&str> = Vec::new();
    let mut blocks = false;
    let mut spare = None;
    for suspect in suspects {
        let Ok(gauge) = MappedGauge::new(&suspect.metric, suspect.unit) else {
            continue;
        };
        let place = match suspect.value {
            "usage" => &mut spec.usage,
            "used" => &mut spec.used,
            "capacity" => &mut spec.capacity,
            "running" => &mut spec.running,
            "queued" => &mut spec.queued,
            "hit_rate" => &mut spec.hit_rate,
            _ => continue,
        };
        // The first of several is the likeliest.
        if place.is_some() {
            continue;
        }
        let line = format!(
            "{} = {{ metric = {}, unit = {} }}",
            suspect.value,
            text(&suspect.metric),
            text(suspect.unit.as_str())
        );
        if suspect.spare {
            spare = Some(format!(
                "# {line}  # used over capacity says it more exactly"
            ));
            continue;
        }
        if suspect.value == "usage" && spare.is_some() {
            continue;
        }
        *place = Some(gauge);
        blocks |= suspect.unit == MappedUnit::Blocks;
        for label in &suspect.labels {
            // Others can't be said in settings.
            let plain = label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if plain && !labels.contains(&&**label) {
                labels.push(label);
            }
        }
        lines.push(line);
    }
    lines.extend(spare);
    Mapping::new(spec).ok()?;
    let model = MODEL.into_iter().find(|model| labels.contains(model));
    if let Some(model) = model {
        lines.push(format!("model = {}", text(model)));
    }
    let others = labels.into_iter().filter(|label| Some(*label) != model);
    for label in others.take(MOST_LABELS) {
        // Only a person knows whether these are several pools, or several values of one.
        lines.push(format!(
            "# rank = {}  # if each has a pool of its own; or metric = 'NAME{{{label}=\"…\"}}' for the one that is meant; else the largest counts",
            text(label)
        ));
    }
    if blocks {
        lines.push("# block_size = 16  # tokens a block has, so that tokens are known".to_owned());
    }
    Some(lines)
}

/// A whole `[[source]]` that is read by the mapping, in lines of TOML.
pub(crate) fn source(source: &Source, mapping: &str) -> Vec<String> {
    let query = match source.url.path.contains('?') {
        true => "  # with its query, which may be secret and is not shown",
        false => "",
    };
    let mut lines = vec![
        "[[source]]".to_owned(),
        format!("name = {}", text(&source.name)),
        format!("url = {}{query}", text(&source.url.to_string())),
    ];
    if let Some(role) = source.role {
        lines.push(format!("role = {}", text(role.as_str())));
    }
    lines.push(format!("engine = {}", text(mapping)));
    lines
}

/// A text as TOML writes it.
fn text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspect(value: &'static str, metric: &str, unit: MappedUnit, labels: &[&str]) -> Suspect {
        Suspect {
            value,
            metric: metric.into(),
            unit,
            labels: labels.iter().map(|label| (*label).into()).collect(),
            spare: false,
        }
    }

    #[test]
    fn what_gives_no_usage_or_has_an_odd_name_is_no_mapping() {
        let of = |suspects: &[Suspect]| section("mine", suspects.iter());
        let running = suspect("running", "running", MappedUnit::Requests, &[]);
        assert_eq!(of(std::slice::from_ref(&running)), None);
        let odd = suspect("usage", "kv \"usage\"", MappedUnit::Fraction, &[]);
        assert_eq!(of(&[odd, running]), None);
        let units = [
            suspect("used", "used_tokens", MappedUnit::Tokens, &[]),
            suspect("capacity", "max_blocks", MappedUnit::Blocks, &[]),
        ];
        assert_eq!(of(&units), None);
    }

    #[test]
    fn every_line_is_toml_whatever_the_labels_are_called() {
        let odd = "a\"b\n[c]";
        let suspects = [
            suspect("used", "used_blocks", MappedUnit::Blocks, &["model", odd]),
            suspect("capacity", "max_blocks", MappedUnit::Blocks, &["shard"]),
        ];
        let lines = section("mine", suspects.iter()).unwrap();
        assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
        let read: toml::Table = lines.join("\n").parse().unwrap();
        let keys: Vec<&String> = read["engine"]["mine"].as_table().unwrap().keys().collect();
        assert_eq!(keys, ["capacity", "model", "used"]);
    }
}
