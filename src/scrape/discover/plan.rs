//! From what the settings say and what was found to the sources that are read. Pure.

use super::Found;
use crate::config::{Settings, Source, SourceKind};
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
    for (name, list, page) in found {
        // The same name for two pages is rare (paths that differ in odd characters): the first has it.
        if taken == settings.discovery.max_sources || !names.insert(Arc::clone(&name)) {
            beyond[list] += 1;
            continue;
        }
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
/// characters that names of sources have.
fn name(found: &Found) -> String {
    let role = found
        .role
        .map(|role| format!("{role}-"))
        .unwrap_or_default();
    let url = &found.url;
    let (path, query) = url.path.split_once('?').unwrap_or((&url.path, ""));
    let path = if path == USUAL_PATH { "" } else { path };
    // A query may hold a secret, but tells pages apart too.
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("_{:08x}", hash(query))
    };
    format!("{role}{}:{}{path}{query}", url.host, url.port)
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | ':' | '-' => c,
            _ => '_',
        })
        .take(MOST_NAME)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Target;
    use crate::kv::Role;
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
                "h:1_prometheus_metrics_8d4c29ef",
            ),
        ] {
            assert_eq!(name(&found(url, role)), wanted);
        }
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
