//! That nothing which is written as settings makes kvgauge panic, and that what is taken is kept.

use kvgauge::config::{self, Flags, Settings};
use proptest::prelude::*;
use std::path::Path;

fn load(text: &str, env: Vec<(String, String)>, flags: &Flags) -> Option<Settings> {
    match config::load_text(Path::new("f.toml"), text, env, flags) {
        Ok((settings, _)) => Some(settings),
        Err(error) => {
            // Each problem is one line of its own that can be shown in a terminal.
            let text = error.to_string();
            assert_eq!(text.lines().count(), error.problems().len(), "{text:?}");
            assert!(
                !text.chars().any(|c| c.is_control() && c != '\n'),
                "{text:?}"
            );
            assert!(
                error.problems().iter().all(|p| p.message.len() < 2000),
                "{text}"
            );
            None
        }
    }
}

/// Texts that look like values, or nearly.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,25}(ms|s|m|h|d|KiB|GiB|x)?",
        "-?[0-9]{0,3}\\.?[0-9]{0,3}e?[0-9]{0,3} ?(ms|seconds|years|MiB)?",
        "(http|https|HTTP)?:?/{0,2}[\\[\\]a-z0-9.:@%é_-]{0,20}(:[0-9]{0,6})?[/?#a-zé ]{0,5}",
        "[\\[]?[0-9a-f.:]{0,12}[\\]]?:[0-9]{0,6}",
        "([0-9a-f.:/]{0,9},){0,4}",
        "([a-z]{0,3}=?http://[a-z]{0,2}:[0-9]{1,5}(,role=decode)?;){0,3}",
        "auto|off|all|none|kv|decode|fullest|localhost:1|loopback",
        "\\PC{0,40}",
        any::<String>(),
    ]
}

fn key() -> impl Strategy<Value = String> {
    let mut keys = config::keys();
    keys.extend(
        [
            "source",
            "upstream",
            "scrape",
            "admin.listen.x",
            "é",
            "a.b.c",
        ]
        .map(str::to_owned),
    );
    prop_oneof![9 => prop::sample::select(keys), 1 => "[a-z_.]{0,30}"]
}

/// A value as TOML writes it: as a text, bare, in a list, in a table.
fn toml_value() -> impl Strategy<Value = String> {
    (value(), 0..6).prop_map(|(value, form)| match form {
        0 => value,
        1 => format!("[{}]", toml::Value::String(value)),
        2 => format!("{{ url = {} }}", toml::Value::String(value)),
        _ => toml::Value::String(value).to_string(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn arbitrary_text_is_read_or_refused(text in any::<String>()) {
        load(&text, Vec::new(), &Flags::default());
    }

    #[test]
    fn arbitrary_toml_is_read_or_refused(lines in prop::collection::vec((key(), toml_value()), 0..8)) {
        let text: String = lines.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
        load(&text, Vec::new(), &Flags::default());
        // Alone too, since one bad line hides the others.
        for (key, value) in lines {
            load(&format!("{key} = {value}"), Vec::new(), &Flags::default());
            load(&format!("[[source]]\nname = {value}\n{key} = {value}"), Vec::new(), &Flags::default());
        }
    }

    #[test]
    fn arbitrary_variables_and_flags_are_read_or_refused(
        env in prop::collection::vec((key(), value()), 0..4),
        name in "KVGAUGE_[A-Z0-9_]{0,30}",
        texts in prop::collection::vec(prop::option::of(value()), 4),
        sources in prop::collection::vec(value(), 0..3),
    ) {
        let mut env: Vec<_> = env
            .into_iter()
            .filter_map(|(key, value)| Some((config::environment_name(&key)?, value)))
            .collect();
        env.push((name, "x".to_owned()));
        let [listen, upstream, admin, workers] = texts.try_into().unwrap();
        let flags = Flags { listen, upstream, admin, sources, workers };
        load("", env.clone(), &Flags::default());
        load("", env, &flags);
    }

    /// What is taken can be written down and read again as the same.
    #[test]
    fn what_is_taken_is_kept(key in key(), value in value()) {
        let Some(name) = config::environment_name(&key) else { return Ok(()) };
        let Some(settings) = load("", vec![(name, value)], &Flags::default()) else { return Ok(()) };
        let env: Vec<_> = settings
            .differences()
            .into_iter()
            .map(|d| {
                let key = if d.key == "upstream" { "upstream.url" } else { &d.key };
                (config::environment_name(key).unwrap(), d.value)
            })
            .collect();
        let again = load("", env, &Flags::default()).unwrap();
        prop_assert_eq!(Settings { sources: Vec::new(), ..again }, Settings { sources: Vec::new(), ..settings });
    }
}
