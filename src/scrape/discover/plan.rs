//! From what the settings say and what was found to the sources that are read. Pure.

use super::Found;
use crate::config::{Settings, Source, SourceKind};
use crate::kv::Role;
use crate::scrape::pace::hash;
use std::collections::HashSet;
use std::sync::Arc;

/// The path that a name does not say.
const USUAL_PATH: &str = "/metrics";

/// The longest name, as in settings.
const MOST_NAME: usize = 128;

/// What is to be read.
pub(in crate::scrape) struct Plan {
    /// Those of the settings in their order, then those found in the order of their names.
    pub(in crate::scrape) sources: Vec<Source>,
    /// For each list, how many sources were found that are beyond the limit.
    pub(in crate::scrape) beyond: Vec<usize>,
}

/// All sources: each page once, whoever names it; those of the settings as they are set there; of those
/// found at most `discovery.max_sources`, the first in the order of their names, so that the same ones
/// stay whatever order the lists are in. kvgauge's own pages are none.
pub(in crate::scrape) fn plan(settings: &Settings, lists: &[Vec<Found>]) -> Plan {
    let mut sources = settings.sources.clone();
    let mut pages: HashSet<_> = sources.iter().map(|s| s.url.page_identity()).collect();
    let mut names: HashSet<Arc<str>> = sources.iter().map(|s| Arc::clone(&s.name)).collect();
    // Those that are not read by their page.
    let loads: HashSet<_> = sources
        .iter()
        .filter(|source| source.kind == SourceKind::SglangLoads)
        .map(|source| source.url.page_identity())
        .collect();
    let mut found = Vec::new();
    for (list, one) in lists.iter().enumerate() {
        for page in one {
            let own = [settings.listen, settings.admin.listen];
            if own.into_iter().any(|listener| page.url.reaches(listener)) {
                continue;
            }
            if loads.contains(&page.url.loads().page_identity()) {
                continue;
            }
            if pages.insert(page.url.page_identity()) {
                found.push((Arc::<str>::from(name(page)), list, page));
            }
        }
    }
    found.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let mut beyond = vec![0; lists.len()];
    let mut taken = 0;
    for (mut name, list, page) in found {
        if taken == settings.discovery.max_sources {
            beyond[list] += 1;
            continue;
        }
        if names.contains(&name) {
            // Rare: of a source that is set, or `decode-h:1` as a role's and as a host's.
            name = Arc::from(marked(&name, page));
        }
        names.insert(Arc::clone(&name));
        taken += 1;
        sources.push(source(name, page, settings));
    }
    Plan { sources, beyond }
}

/// A source that is read as `[discovery.source]` and its own entry say.
fn source(name: Arc<str>, found: &Found, settings: &Settings) -> Source {
    let (set, own) = (&settings.discovery.source, &found.own);
    let mut source = Source {
        interval: own.interval.or(set.interval),
        engine: own.engine.clone().or_else(|| set.engine.clone()),
        kind: own.kind.unwrap_or(set.kind),
        bearer_file: set.bearer_file.clone(),
        ca_file: set.ca_file.clone(),
        keep: set.keep.clone(),
        drop: set.drop.clone(),
        ..Source::new(name, found.url.clone(), found.role)
    };
    source.url = source.kind.page(source.url);
    source
}

/// `decode-host:port`: role, host and port, and the path where it is not the usual one, in the
/// characters that names of sources have. Where other pages might come to the same name it is
/// [`marked`].
fn name(found: &Found) -> String {
    let role = found
        .role
        .map(|role| format!("{role}-"))
        .unwrap_or_default();
    let url = &found.url;
    let (path, query) = url.path.split_once('?').unwrap_or((&url.path, ""));
    let path = if path == USUAL_PATH { "" } else { path };
    // A query may hold a secret, so only the mark tells pages apart that differ in theirs.
    let whole = format!("{role}{}:{}", url.host, url.port);
    // A slash becomes an underscore, so that one in the path is no longer told from it.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | ':' | '-');
    let tells =
        query.is_empty() && whole.len() + path.len() <= MOST_NAME && path.chars().all(plain);
    let name: String = format!("{whole}{path}")
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | ':' | '-' => c,
            _ => '_',
        })
        .take(MOST_NAME)
        .collect();
    if tells { name } else { marked(&name, found) }
}

/// The name with a mark of what it is the name of, the same at every look and after a restart.
fn marked(name: &str, found: &Found) -> String {
    /// A dash and eight digits.
    const MARK: usize = 9;
    let role = found.role.map_or("", Role::as_str);
    let mark = hash(&format!(
        "{role} {} {}",
        found.url.authority(),
        found.url.path
    ));
    let name: String = name.chars().take(MOST_NAME - MARK).collect();
    format!("{name}-{mark:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Target;
    use crate::scrape::discover::Own;

    fn found(url: &str, role: Option<Role>) -> Found {
        Found {
            url: Target::page(url).unwrap(),
            role,
            own: Own::default(),
        }
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.sources.iter().map(|s| &*s.name).collect()
    }

    fn settings() -> Settings {
        let mut settings = Settings::defaults();
        settings.sources.clear();
        settings
    }

    #[test]
    fn names_say_role_host_and_port_and_an_unusual_path() {
        for (url, role, wanted) in [
            (
                "http://10.0.0.1:30002",
                Some(Role::Decode),
                "decode-10.0.0.1:30002",
            ),
            ("http://Engine-0.svc:80/metrics", None, "engine-0.svc:80"),
            (
                "http://[fd00::1]:8000",
                Some(Role::Prefill),
                "prefill-fd00::1:8000",
            ),
            (
                "http://h:1/prometheus/metrics?a=1",
                None,
                "h:1_prometheus_metrics-490993ad",
            ),
        ] {
            assert_eq!(name(&found(url, role)), wanted);
        }
    }

    #[test]
    fn pages_that_differ_in_what_a_name_can_not_hold_are_all_taken_under_the_same_names_each_time()
    {
        let long = "a".repeat(200);
        let mut list: Vec<Found> = [
            "http://h:1/m?x=1",
            "http://h:1/m/x=1",
            "http://h:1/m_x_1",
            "http://h:1/m/x",
            &format!("http://h:1/{long}1"),
            &format!("http://h:1/{long}2"),
        ]
        .map(|url| found(url, None))
        .into();
        let whole = plan(&settings(), std::slice::from_ref(&list));
        let all = names(&whole);
        assert_eq!(all.len(), list.len());
        assert_eq!(whole.beyond, [0]);
        assert!(all.contains(&"h:1_m_x"), "{all:?}");
        assert!(all.iter().all(|name| name.len() <= MOST_NAME), "{all:?}");
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), list.len());
        // Whoever leaves takes only its own name along.
        let gone = name(&list.remove(0));
        let left = plan(&settings(), &[list]);
        let rest: Vec<_> = all.into_iter().filter(|name| *name != gone).collect();
        assert_eq!(names(&left), rest);
    }

    #[test]
    fn a_name_that_is_set_is_left_to_whom_it_was_given() {
        let mut settings = settings();
        let url = Target::page("http://other:1").unwrap();
        settings
            .sources
            .push(Source::new("decode-h:1".into(), url, None));
        let list = vec![
            found("http://h:1", Some(Role::Decode)),
            found("http://decode-h:1", None),
        ];
        let plan = plan(&settings, &[list]);
        let all = names(&plan);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 3, "{all:?}");
        assert!(all[1].starts_with("decode-h:1-"), "{all:?}");
        assert_eq!(plan.beyond, [0]);
    }

    #[test]
    fn a_page_is_taken_once_and_the_settings_win() {
        let mut settings = settings();
        settings.sources.push(Source::new(
            "mine".into(),
            Target::page("http://127.0.0.1:30002").unwrap(),
            Some(Role::Decode),
        ));
        let workers = vec![
            found("http://localhost:30002", Some(Role::Decode)),
            found("http://10.0.0.2:8000", Some(Role::Prefill)),
        ];
        let files = vec![
            found("http://10.0.0.2:8000", None),
            found("http://10.0.0.1:8000", None),
        ];
        let plan = plan(&settings, &[workers, files]);
        assert_eq!(
            names(&plan),
            ["mine", "10.0.0.1:8000", "prefill-10.0.0.2:8000"]
        );
        assert_eq!(plan.beyond, [0, 0]);
    }

    #[test]
    fn the_order_of_a_list_says_nothing_and_what_is_beyond_the_limit_is_counted() {
        let mut settings = settings();
        settings.discovery.max_sources = 2;
        let mut list: Vec<Found> = (1..=4)
            .map(|n| found(&format!("http://10.0.0.{n}:8000"), None))
            .collect();
        for _ in 0..2 {
            let plan = plan(&settings, std::slice::from_ref(&list));
            assert_eq!(names(&plan), ["10.0.0.1:8000", "10.0.0.2:8000"]);
            assert_eq!(plan.beyond, [2]);
            list.reverse();
        }
    }

    #[test]
    fn those_found_are_read_as_the_settings_say_and_their_own_entry_before_that() {
        let mut settings = settings();
        let set = &mut settings.discovery.source;
        set.ca_file = Some(Arc::from(std::path::Path::new("/ca.pem")));
        set.kind = SourceKind::SglangLoads;
        set.engine = Some("sglang".into());
        let mut other = found("https://10.0.0.2", None);
        other.own.kind = Some(SourceKind::Metrics);
        other.own.engine = Some("vllm".into());
        let list = vec![found("https://10.0.0.1", None), other];
        let plan = plan(&settings, &[list]);
        let seen: Vec<_> = plan
            .sources
            .iter()
            .map(|s| (&*s.name, s.url.to_string(), s.engine.as_deref()))
            .collect();
        let loads = "https://10.0.0.1:443/v1/loads".to_owned();
        let page = "https://10.0.0.2:443/metrics".to_owned();
        assert_eq!(
            seen,
            [
                ("10.0.0.1:443", loads, Some("sglang")),
                ("10.0.0.2:443", page, Some("vllm")),
            ]
        );
        assert!(plan.sources.iter().all(|s| s.ca_file.is_some()));
    }

    #[test]
    fn a_server_whose_loads_are_read_is_not_read_by_its_page_too() {
        let mut settings = settings();
        let url = Target::page("http://10.0.0.1:8000").unwrap().loads();
        settings.sources.push(Source {
            kind: SourceKind::SglangLoads,
            ..Source::new("mine".into(), url, Some(Role::Decode))
        });
        let list = vec![found("http://10.0.0.1:8000", Some(Role::Decode))];
        assert_eq!(names(&plan(&settings, &[list])), ["mine"]);
    }

    #[test]
    fn our_own_pages_are_no_sources() {
        let own = vec![
            found("http://127.0.0.1:30090", None),
            found("http://localhost:30080", None),
        ];
        assert!(plan(&settings(), &[own]).sources.is_empty());
    }
}
