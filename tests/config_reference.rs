//! That `config/kvgauge.toml` and the table in `docs/design.md` say what the code does.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

use kvgauge::config::{self, Flags, InForce, Reloaded, Settings};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn reference() -> String {
    fs::read_to_string(root("config/kvgauge.toml")).unwrap()
}

/// The reference with every key uncommented: a `#` right before a key or a header.
fn uncommented() -> String {
    let lines = reference();
    let lines: Vec<&str> = lines
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
            _ => line,
        })
        .collect();
    lines.join("\n")
}

#[track_caller]
fn load(text: &str, env: Option<(String, &str)>) -> Settings {
    let (settings, warnings) = load_all(text, env);
    assert_eq!(warnings, []);
    settings
}

#[track_caller]
fn load_all(text: &str, env: Option<(String, &str)>) -> (Settings, Vec<config::Warning>) {
    let env = env.map(|(name, value)| (name, value.to_owned()));
    let name = Path::new("config/kvgauge.toml");
    match config::load_text(name, text, env, &Flags::default()) {
        Ok(loaded) => loaded,
        Err(error) => panic!("{error}"),
    }
}

/// Dotted keys of a table, those of `[[source]]` as `source.…`.
fn keys_of(at: &str, table: &toml::Table, found: &mut Vec<String>) {
    for (name, value) in table {
        let key = if at.is_empty() {
            name.clone()
        } else {
            format!("{at}.{name}")
        };
        match value {
            toml::Value::Table(inner) => keys_of(&key, inner, found),
            toml::Value::Array(list) if key == "source" => {
                for entry in list {
                    keys_of(&key, entry.as_table().unwrap(), found);
                }
            }
            _ => found.push(key),
        }
    }
}

#[test]
fn the_reference_is_the_default_with_and_without_its_comments() {
    assert_eq!(load(&reference(), None), Settings::defaults());
    assert_eq!(load(&uncommented(), None), Settings::defaults());
}

#[test]
fn every_key_stands_in_the_reference_with_words_above_it() {
    let mut found = Vec::new();
    keys_of("", &uncommented().parse().unwrap(), &mut found);
    let text = reference();
    for key in config::keys() {
        let own = key.strip_prefix("source.");
        match own.or_else(|| key.strip_prefix("engine.NAME.")) {
            // Not every source or mapping has each key, so there they are a list.
            Some(own) => {
                let line = |line: &str| {
                    line.strip_prefix("#   ")
                        .is_some_and(|l| l.split(' ').next() == Some(own))
                };
                assert!(text.lines().any(line), "{key} is missing");
            }
            None => assert!(found.contains(&key), "{key} is missing"),
        }
    }
    // No key without an explanation: the line above a key is prose.
    let lines: Vec<&str> = text.lines().collect();
    let own = lines.iter().position(|l| *l == "#[[source]]").unwrap();
    for pair in lines[..own].windows(2) {
        let [above, line] = pair else { unreachable!() };
        if line.starts_with('#') && line.contains(" = ") && !line.starts_with("# ") {
            assert!(
                above.starts_with("# "),
                "{line} stands without an explanation"
            );
        }
    }
}

#[test]
fn flags_and_variables_that_the_reference_names_exist() {
    let text = reference();
    let names: Vec<String> = config::keys()
        .iter()
        .filter_map(|k| config::environment_name(k))
        .chain(config::environment_name("source"))
        .collect();
    let mut seen = 0;
    for at in text.match_indices("KVGAUGE_").map(|(at, _)| at) {
        let name: String = text[at..]
            .chars()
            .take_while(|c| c.is_ascii_uppercase() || *c == '_')
            .collect();
        assert!(name == "KVGAUGE_" || names.contains(&name), "{name}");
        seen += 1;
    }
    assert!(seen > 3);
}

/// Keys and defaults of the table in design.md.
fn table() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root("docs/design.md")).unwrap();
    let (_, rest) = text.split_once("\n## Limits and defaults").unwrap();
    let rows = rest.lines().skip_while(|l| !l.starts_with("|---")).skip(1);
    let mut found = BTreeMap::new();
    for row in rows.take_while(|l| l.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [keys, _, defaults] = cells[..] else {
            panic!("{row}")
        };
        let keys: Vec<&str> = keys.split(", ").map(|k| k.trim_matches('`')).collect();
        let (section, _) = keys[0].split_once('.').unwrap_or_default();
        if section == "source" || section == "engine" {
            let section = keys[0].rsplit_once('.').unwrap().0;
            for key in keys {
                let own = key.rsplit('.').next().unwrap();
                found.insert(format!("{section}.{own}"), String::new());
            }
            continue;
        }
        let defaults: Vec<&str> = defaults.split(", ").collect();
        assert_eq!(keys.len(), defaults.len(), "{row}");
        for (key, default) in keys.into_iter().zip(defaults) {
            let key = if key.starts_with('.') {
                format!("{section}{key}")
            } else {
                key.to_owned()
            };
            let key = if key == "upstream" {
                "upstream.url".to_owned()
            } else {
                key
            };
            // `1,000,000`, `10 min` and `a and b` as they are written in settings.
            let default = default.replace(" and ", "+").replace(['`', ',', ' '], "");
            found.insert(key, default.replace('+', ", "));
        }
    }
    found
}

#[test]
fn the_table_in_the_design_has_the_keys_and_defaults_of_the_code() {
    let table = table();
    let mut keys = config::keys();
    keys.sort();
    assert_eq!(table.keys().cloned().collect::<Vec<_>>(), keys);
    for (key, default) in &table {
        if key.starts_with("source.") || key.starts_with("engine.") {
            continue;
        }
        let name = config::environment_name(key).unwrap();
        let settings = load("", Some((name, default)));
        let differences = settings.differences();
        assert!(
            differences.is_empty(),
            "design.md says {key} = {default}: {differences:?}"
        );
    }
}

/// What the scaled tests of limits in time stand for.
#[test]
fn the_limits_in_time_are_off_where_work_may_take_longer() {
    let settings = Settings::defaults();
    let (timeouts, pool, drain) = (settings.timeouts, settings.upstream_pool, settings.drain);
    let seconds = |limit: Duration| limit.as_secs_f64();
    assert_eq!(seconds(timeouts.connect), 2.0);
    assert_eq!(seconds(timeouts.request_head), 30.0);
    assert_eq!(seconds(timeouts.client_idle), 75.0);
    assert_eq!(timeouts.response_head, None);
    assert_eq!(timeouts.stream_silence, None);
    assert_eq!(timeouts.request, None);
    // Python servers close theirs after 5 s.
    assert_eq!(seconds(pool.idle), 4.0);
    assert_eq!(seconds(pool.max_age), 600.0);
    assert_eq!(pool.max_idle, 1024);
    assert_eq!((seconds(drain.delay), seconds(drain.timeout)), (0.0, 300.0));
    assert_eq!(settings.limits.request_body, None);
    assert_eq!(settings.limits.in_flight, None);
}

/// A value that is not the default, for every key but the sources'; as settings are written back.
const OTHERS: [(&str, &str); 51] = [
    ("listen", "10.0.0.1:1"),
    ("workers", "777"),
    ("trusted_proxies", "10.0.0.0/8, ::2/128"),
    ("upstream.url", "http://router:8"),
    ("upstream.idle", "3s"),
    ("upstream.max_idle", "17"),
    ("upstream.max_age", "1m1s"),
    ("admin.listen", "[::1]:2"),
    ("admin.bearer_file", "/run/operators"),
    ("scrape.interval", "1s500ms"),
    ("scrape.timeout", "4s"),
    ("scrape.max_age", "20s"),
    ("scrape.max_page_bytes", "1MiB"),
    ("scrape.max_series", "5"),
    ("scrape.max_label_bytes", "1000"),
    ("scrape.max_families", "6"),
    ("limits.request_body", "1GiB"),
    ("limits.header_fields", "50"),
    ("limits.header_bytes", "8KiB"),
    ("limits.connections", "9"),
    ("limits.in_flight", "10"),
    ("timeouts.connect", "11s"),
    ("timeouts.request_head", "12s"),
    ("timeouts.response_head", "13m"),
    ("timeouts.stream_silence", "14m"),
    ("timeouts.request", "15h"),
    ("timeouts.client_idle", "16s"),
    ("drain.delay", "10ms"),
    ("drain.timeout", "0"),
    ("usage.carry_bytes", "2KiB"),
    ("log.queue_bytes", "64KiB"),
    ("headers.usage", ""),
    ("headers.pools", "x-pools"),
    ("headers.audience", "10.0.0.0/8"),
    ("headers.headline", "fullest"),
    ("metrics.expose", "none"),
    ("metrics.source_label", "origin"),
    ("discovery.workers", "http://router:8"),
    ("discovery.file_sd", "/etc/kvgauge/*.json, a.json"),
    (
        "discovery.dns",
        "decode=http://d:1/metrics, http://e:2/metrics",
    ),
    ("discovery.interval", "6s"),
    ("discovery.max_sources", "300"),
    ("discovery.bearer_file", "/run/router"),
    ("discovery.ca_file", "/etc/router.pem"),
    ("discovery.source.interval", "2s"),
    ("discovery.source.engine", "vllm"),
    ("discovery.source.kind", "auto"),
    ("discovery.source.bearer_file", "/run/token"),
    ("discovery.source.ca_file", "/etc/ca.pem"),
    ("discovery.source.keep", "a.*"),
    ("discovery.source.drop", "b.*"),
];

#[test]
fn every_key_moves_its_own_setting_and_no_other() {
    let mut left = config::keys();
    left.retain(|key| !key.starts_with("source.") && !key.starts_with("engine."));
    for (key, value) in OTHERS {
        left.retain(|l| l != key);
        let shown = if key == "upstream.url" {
            "upstream"
        } else {
            key
        };
        // Some are odd without others, which is warned of.
        let (settings, _) = load_all("", Some((config::environment_name(key).unwrap(), value)));
        let differences = settings.differences();
        assert_eq!(differences.len(), 1, "{key}: {differences:?}");
        assert_eq!(differences[0].key, shown);
        assert_eq!(differences[0].value, value);
    }
    assert_eq!(left, Vec::<String>::new(), "keys without a value here");
}

/// A reload does with each key what the table of the code says.
#[test]
fn a_reload_takes_what_it_can_and_names_the_rest() {
    let old = Settings::defaults();
    for (key, value) in OTHERS {
        let (new, _) = load_all("", Some((config::environment_name(key).unwrap(), value)));
        let reloaded = Reloaded::between(&old, new.clone());
        let named = |list: &[config::Change]| {
            list.iter()
                .any(|change| change.new == value && (change.key == key || key == "upstream.url"))
        };
        match config::in_force(key).unwrap() {
            InForce::Reload => {
                assert!(named(&reloaded.changed), "{key}: {reloaded:?}");
                assert!(reloaded.at_restart.is_empty(), "{key}");
                assert_eq!(*reloaded.settings, new, "{key}");
            }
            InForce::Restart => {
                assert!(named(&reloaded.at_restart), "{key}: {reloaded:?}");
                assert!(reloaded.changed.is_empty(), "{key}");
                assert_eq!(*reloaded.settings, old, "{key}");
            }
        }
    }
}

#[test]
fn the_mapping_that_the_reference_shows_is_one() {
    let text = reference();
    let start = text.find("# [engine.acme]").unwrap();
    let mapping: Vec<&str> = text[start..]
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap())
        .collect();
    let source = "[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'acme'\n";
    let settings = load(&format!("{}\n{source}", mapping.join("\n")), None);
    assert!(settings.mapping(&settings.sources[0]).is_some());
}

#[test]
fn the_reference_and_the_readme_name_every_engine() {
    let readme = fs::read_to_string(root("README.md")).unwrap();
    for engine in config::ENGINES {
        assert!(reference().contains(&format!("\"{engine}\"")), "{engine}");
        assert!(readme.contains(&format!("`{engine}`")), "{engine}");
    }
}
