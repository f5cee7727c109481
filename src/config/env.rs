//! The environment: `KVGAUGE_…`.

use super::error::{Origin, Problem, Warning};
use super::keys;
use super::layer::Layer;
use std::collections::BTreeMap;
use toml::Value;

/// The long spelling of the router's address, as in `[upstream] url`.
const UPSTREAM_URL: &str = "KVGAUGE_UPSTREAM_URL";

/// The process's variables that are ours, for [`load`](super::load). What is not UTF-8 is replaced
/// by U+FFFD, so that the value is refused with its name shown.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?;
        name.starts_with(keys::PREFIX)
            .then(|| (name.to_owned(), value.to_string_lossy().into_owned()))
    })
}

/// Reads the variables that start with `KVGAUGE_`; the others are passed over.
pub(super) fn layer(
    variables: impl IntoIterator<Item = (String, String)>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Warning>,
) -> Layer {
    // In the order of their names, so that messages don't change from run to run.
    let variables: BTreeMap<String, String> = variables
        .into_iter()
        .filter(|(name, _)| name.starts_with(keys::PREFIX))
        .collect();
    let mut known: BTreeMap<String, &str> = keys::environment_names()
        .map(|(key, name)| (name, key))
        .collect();
    known.insert(UPSTREAM_URL.to_owned(), keys::UPSTREAM);
    let both = variables.contains_key("KVGAUGE_UPSTREAM");
    let mut layer = Layer::default();
    for (name, value) in variables {
        let origin = Origin::Environment(name.clone());
        let Some(key) = known.get(&name).copied() else {
            if !from_kubernetes(&name, &value) {
                warnings.push(unknown(&name, known.keys()));
            }
            continue;
        };
        if name == UPSTREAM_URL && both {
            layer.doubt(keys::UPSTREAM);
            let message = "KVGAUGE_UPSTREAM is set too; set one of them".to_owned();
            problems.push(Problem::malformed(origin, "upstream", message));
        } else if key == keys::SOURCE {
            sources(&value, &origin, &mut layer, problems);
        } else if let Err(problem) = layer.set(key, Value::String(value), origin) {
            problems.push(problem);
        }
    }
    layer
}

/// Sources in their text form, semicolons between them.
fn sources(value: &str, origin: &Origin, layer: &mut Layer, problems: &mut Vec<Problem>) {
    let mut none = true;
    for text in value.split(';').map(str::trim).filter(|t| !t.is_empty()) {
        none = false;
        layer.add_source_text(text, origin, problems);
    }
    if none {
        layer.doubt(keys::SOURCE);
        let message = "is empty; unset the variable for the default sources".to_owned();
        problems.push(Problem::malformed(origin.clone(), keys::SOURCE, message));
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Warning {
    let message = match (name, keys::nearest(name, known)) {
        ("KVGAUGE_PORT", _) => "no setting, ignored; did you mean KVGAUGE_LISTEN?".to_owned(),
        ("KVGAUGE_CONFIG", _) => "no setting, ignored; name the file with --config".to_owned(),
        (_, Some(near)) => format!("no setting, ignored; did you mean {near}?"),
        (_, None) => "no setting, ignored".to_owned(),
    };
    Warning {
        origin: Origin::Environment(name.to_owned()),
        key: String::new(),
        message,
    }
}

/// Whether Kubernetes set this for a Service whose name starts with `kvgauge`: for each one it
/// gives every container of the namespace `…_SERVICE_HOST`, `…_SERVICE_PORT[_NAME]`,
/// `…_PORT` and `…_PORT_80_TCP[_PROTO|_PORT|_ADDR]`. Nobody who wrote a setting is behind those, so
/// they are not worth a warning.
fn from_kubernetes(name: &str, value: &str) -> bool {
    let name = format!("_{}", name.strip_prefix(keys::PREFIX).unwrap_or(name));
    if name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") {
        return true;
    }
    if name.ends_with("_PORT") && value.contains("://") {
        return true;
    }
    // `_PORT_`, digits, a protocol.
    name.match_indices("_PORT_").any(|(at, found)| {
        let rest = &name[at + found.len()..];
        let protocol = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() > protocol.len()
            && ["_TCP", "_UDP", "_SCTP"]
                .into_iter()
                .any(|p| protocol == p || protocol.starts_with(&format!("{p}_")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_injects_is_told_from_what_people_write() {
        for (name, value, injected) in [
            ("KVGAUGE_PORT", "tcp://10.0.0.1:80", true),
            ("KVGAUGE_SERVICE_HOST", "10.0.0.1", true),
            ("KVGAUGE_SERVICE_PORT", "80", true),
            ("KVGAUGE_SERVICE_PORT_HTTP", "80", true),
            ("KVGAUGE_PORT_30080_TCP", "tcp://10.0.0.1:30080", true),
            ("KVGAUGE_PORT_30080_TCP_ADDR", "10.0.0.1", true),
            ("KVGAUGE_PORT_30080_TCP_PORT", "30080", true),
            ("KVGAUGE_PORT_53_UDP_PROTO", "udp", true),
            ("KVGAUGE_ADMIN_PORT", "tcp://10.0.0.1:80", true),
            ("KVGAUGE_ADMIN_SERVICE_HOST", "10.0.0.1", true),
            ("KVGAUGE_PORT", "30080", false),
            ("KVGAUGE_ADMIN_PORT", "30090", false),
            ("KVGAUGE_PORT_NUMBER", "1", false),
            ("KVGAUGE_LISTNE", "1", false),
        ] {
            assert_eq!(from_kubernetes(name, value), injected, "{name}={value}");
        }
    }

    #[test]
    fn no_setting_has_a_name_that_kubernetes_may_inject() {
        for (_, name) in keys::environment_names() {
            assert!(!from_kubernetes(&name, "tcp://10.0.0.1:80"), "{name}");
        }
    }
}
