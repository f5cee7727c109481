//! Files as Prometheus' `file_sd_configs` reads them, in JSON: a list of groups, each with `targets`
//! (`host:port`) and `labels`, of which `role`, `__scheme__`, `__metrics_path__`,
//! `__scrape_interval__`, and our own `__kvgauge_engine__` and `__kvgauge_kind__` are understood
//! (Prometheus keeps no label that begins with two underscores). A `role` that is none of ours is
//! somebody else's label: its targets are taken without one, which is told. A file is read again when it
//! has changed; one that is broken keeps the last good list, if it had one; one that is gone takes its
//! sources with it.

use super::{Found, Looked, Own, Problem, json_error, shown};
use crate::config::{self, ENGINES, Settings, Target};
use crate::kv::Role;
use crate::net::{self, Seen, small_file};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Bytes of one file.
const MOST_BYTES: u64 = 4 << 20;

/// Files of all patterns together that are read: the first by name, whatever order a folder is in.
const MOST_FILES: usize = 256;

/// Files that one pattern fits, of which those are chosen.
const MOST_SEEN: usize = 65_536;

/// The files, looked at on a thread of its own: a dead mount blocks whoever looks, for ever.
pub(in crate::scrape) struct Aside {
    /// Of which nothing has been looked at yet.
    new: Files,
    /// What is known of them, unless a look is on its way.
    files: Option<Files>,
    look: Option<oneshot::Receiver<(Files, Looked)>>,
    limit: Duration,
}

/// See the [module](self) description.
#[derive(Clone)]
struct Files {
    patterns: Vec<Arc<str>>,
    known: BTreeMap<PathBuf, Known>,
    may: May,
}

/// What labels may say.
#[derive(Clone)]
struct May {
    /// The mappings that are set.
    mappings: Vec<Arc<str>>,
    /// A reading has to last for three intervals.
    longest: Duration,
}

/// A file, as it was when it was last read.
#[derive(Clone, Default)]
struct Known {
    seen: Option<Seen>,
    list: List,
    /// Whether there has been a good list, which holds on.
    good: bool,
    problem: Option<String>,
}

/// What a file comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    found: Vec<Found>,
    /// What was not understood of it, and costs no target.
    odd: Option<String>,
}

#[derive(Deserialize)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

// === impl Group ===

impl Group {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

// === impl Aside ===

impl Aside {
    pub(super) fn new(settings: &Settings) -> Aside {
        Aside {
            new: Files::new(&settings.discovery.file_sd, settings),
            files: None,
            look: None,
            limit: settings.scrape.timeout,
        }
    }

    /// Looks, or waits for the look that did not end the last time.
    pub(super) async fn look(&mut self) -> Looked {
        let look = match self.look.take() {
            Some(look) => Ok(look),
            None => self.begin(),
        };
        let mut look = match look {
            Ok(look) => look,
            Err(error) => {
                return Aside::nothing(&format!(
                    "has no thread to look at its files with ({error}): see this machine's limit on threads"
                ));
            }
        };
        match timeout(self.limit, &mut look).await {
            Ok(Ok((files, looked))) => {
                self.files = Some(files);
                looked
            }
            Ok(Err(_)) => {
                Aside::nothing("broke off looking at its files: this is a bug in kvgauge")
            }
            Err(_) => {
                self.look = Some(look);
                let limit = self.limit;
                Aside::nothing(&format!(
                    "has files that could not be looked at within {limit:?}: see that the file system they are on answers"
                ))
            }
        }
    }

    fn begin(&mut self) -> io::Result<oneshot::Receiver<(Files, Looked)>> {
        let mut files = self.files.take().unwrap_or_else(|| self.new.clone());
        net::aside("file-sd", move || {
            let looked = files.look();
            (files, looked)
        })
    }

    fn nothing(why: &str) -> Looked {
        Looked {
            found: None,
            unhealthy: Vec::new(),
            problem: Some(
                Problem::new(format!("discovery.file_sd {why}")).while_holds("the last list"),
            ),
        }
    }
}

// === impl Files ===

impl Files {
    fn new(patterns: &[Arc<str>], settings: &Settings) -> Files {
        Files {
            patterns: patterns.to_vec(),
            known: BTreeMap::new(),
            may: May {
                mappings: settings.mappings.keys().cloned().collect(),
                longest: settings.scrape.max_age / 3,
            },
        }
    }

    fn look(&mut self) -> Looked {
        let mut problem = None;
        let mut paths = Vec::new();
        for pattern in &self.patterns {
            match fitting(pattern) {
                Ok(found) => paths.extend(found),
                Err(error) => {
                    let words = format!(
                        "{pattern:?} (discovery.file_sd) can't be looked for ({error}): see that it is there and may be read"
                    );
                    problem.get_or_insert(Problem::new(words));
                    // What is not there is gone; what can't be seen may well be there.
                    if error.kind() != ErrorKind::NotFound {
                        let known = self.known.keys();
                        paths.extend(known.filter(|path| fits_path(pattern, path)).cloned());
                    }
                }
            }
        }
        paths.sort();
        paths.dedup();
        if paths.len() > MOST_FILES {
            let n = paths.len();
            problem.get_or_insert(Problem::new(format!(
                "discovery.file_sd fits {n} files, of which the first {MOST_FILES} are read: put more targets into each"
            )));
            paths.truncate(MOST_FILES);
        }
        self.known.retain(|path, _| paths.contains(path));
        for path in paths {
            let known = self.known.entry(path.clone()).or_default();
            known.renew(&path, &self.may);
            if let Some(of_file) = known.problem(&path) {
                problem.get_or_insert(of_file);
            }
        }
        let lists = self.known.values().map(|known| &known.list);
        let found = lists.flat_map(|list| list.found.clone());
        Looked {
            unhealthy: Vec::new(),
            found: Some(found.collect()),
            problem,
        }
    }
}

// === impl Known ===

impl Known {
    /// Reads the file if it has changed.
    fn renew(&mut self, path: &Path, may: &May) {
        let seen = Seen::of(path);
        if seen.is_some() && seen == self.seen {
            return;
        }
        let text = match small_file(path, MOST_BYTES) {
            Ok(text) => text,
            Err(why) => {
                self.seen = None;
                self.problem = Some(why);
                return;
            }
        };
        self.seen = seen;
        match read(&text, may) {
            Ok(list) => {
                self.list = list;
                self.good = true;
                self.problem = None;
            }
            Err(why) => self.problem = Some(why),
        }
    }

    /// What is wrong with it now.
    fn problem(&self, path: &Path) -> Option<Problem> {
        let at = format!("{} (discovery.file_sd)", path.display());
        match (&self.problem, &self.list.odd) {
            (Some(what), _) => {
                let problem = Problem::new(format!("{at} {what}: mend the file"));
                Some(match self.good {
                    true => problem.while_holds("its last good list"),
                    false => problem,
                })
            }
            (None, Some(what)) => Some(Problem::new(format!("{at} {what}")).that_costs_nothing()),
            (None, None) => None,
        }
    }
}

// === impl May ===

impl May {
    /// What a group's labels say of how its targets are read.
    fn own(&self, group: &Group) -> Result<Own, String> {
        /// The shortest interval, as in settings.
        const SHORTEST: Duration = Duration::from_millis(10);
        let mut own = Own::default();
        if let Some(text) = group.label("__scrape_interval__") {
            let interval = config::read_duration(text)
                .map_err(|why| format!("has a __scrape_interval__ that is none: {why}"))?;
            // Prometheus' is often longer, and its files are not ours alone.
            let longest = self.longest.max(SHORTEST);
            own.interval = Some(interval.clamp(SHORTEST, longest));
        }
        if let Some(name) = group.label("__kvgauge_engine__") {
            let mapping = self.mappings.iter().any(|mapping| &**mapping == name);
            if !mapping && !ENGINES.contains(&name) {
                return Err(format!(
                    "has the engine \"{}\" in __kvgauge_engine__, which is none that is known here, and \
                     no mapping",
                    shown(name)
                ));
            }
            own.engine = Some(Arc::from(name));
        }
        if let Some(text) = group.label("__kvgauge_kind__") {
            let kind = config::read_kind(text)
                .map_err(|why| format!("has a __kvgauge_kind__ that is none: {why}"))?;
            own.kind = Some(kind);
        }
        Ok(own)
    }
}

/// The files that a pattern fits, which may have `*` in its last part alone; a path without one is that
/// file, which must be there.
fn fitting(pattern: &str) -> io::Result<Vec<PathBuf>> {
    if !pattern.contains('*') {
        let path = PathBuf::from(pattern);
        fs::metadata(&path)?;
        return Ok(vec![path]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(parts(pattern).0)? {
        let path = entry?.path();
        if fits_path(pattern, &path) && path.is_file() {
            found.push(path);
        }
        if found.len() >= MOST_SEEN {
            break;
        }
    }
    Ok(found)
}

/// The folder and the name of a pattern.
fn parts(pattern: &str) -> (&str, &str) {
    match pattern.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => (".", pattern),
    }
}

/// Whether a pattern fits a file as [`fitting`] finds it.
fn fits_path(pattern: &str, path: &Path) -> bool {
    if !pattern.contains('*') {
        return path == Path::new(pattern);
    }
    let (folder, name) = parts(pattern);
    let own = path.file_name().and_then(|n| n.to_str());
    // As in a shell, a leading dot is no part of a star: editors' and ConfigMaps' own files.
    let fine = own.is_some_and(|own| fits(name, own) && !own.starts_with('.'));
    fine && path.parent() == Some(Path::new(folder))
}

/// Whether a name fits a pattern of literal pieces with `*` between them.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The pages of a file's targets; the error says what is wrong with the file.
fn read(text: &[u8], may: &May) -> Result<List, String> {
    let groups: Vec<Group> = serde_json::from_slice(text)
        .map_err(|error| format!("is no list of targets in JSON ({})", json_error(&error)))?;
    let mut found = Vec::new();
    let mut odd = None;
    for group in &groups {
        let label = group.label("role").filter(|text| !text.is_empty());
        let role = label.and_then(|text| text.parse::<Role>().ok());
        if let (Some(text), None) = (label, role) {
            odd.get_or_insert_with(|| {
                format!(
                    "has the role \"{}\", which is none that kvgauge knows, so its targets have the one of their pages: write decode, prefill or unified if that is meant",
                    shown(text)
                )
            });
        }
        let scheme = group.label("__scheme__").unwrap_or("http");
        let path = group.label("__metrics_path__").unwrap_or("/metrics");
        if !path.starts_with('/') {
            return Err(format!(
                "has the path \"{}\" in __metrics_path__; it must begin with /",
                shown(path)
            ));
        }
        let own = may.own(group)?;
        for target in &group.targets {
            if target.contains('/') {
                return Err(format!(
                    "has the target \"{}\"; write host:port",
                    shown(target)
                ));
            }
            let url = Target::page(&format!("{scheme}://{target}{path}"))
                .map_err(|why| format!("has the target \"{}\", which {why}", shown(target)))?;
            found.push(Found {
                url,
                role,
                own: own.clone(),
            });
        }
    }
    Ok(List { found, odd })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceKind;

    fn files(pattern: &str) -> Files {
        Files::new(&[pattern.into()], &Settings::defaults())
    }

    fn read(text: &[u8]) -> Result<Vec<Found>, String> {
        super::read(text, &files("a.json").may).map(|list| list.found)
    }

    #[test]
    fn targets_and_the_labels_that_count_become_pages() {
        let text = br#"[
            {"targets":["10.0.0.1:8000","10.0.0.2:8000"],"labels":{"role":"decode","zone":"a"}},
            {"targets":["Trt:9"],"labels":{"__metrics_path__":"/prometheus/metrics","__scheme__":"http"}},
            {"targets":[]}
        ]"#;
        let found = read(text).unwrap();
        let found: Vec<_> = found.iter().map(|f| (f.url.to_string(), f.role)).collect();
        assert_eq!(
            found,
            [
                (
                    "http://10.0.0.1:8000/metrics".to_owned(),
                    Some(Role::Decode)
                ),
                (
                    "http://10.0.0.2:8000/metrics".to_owned(),
                    Some(Role::Decode)
                ),
                ("http://trt:9/prometheus/metrics".to_owned(), None),
            ]
        );
        assert_eq!(read(b"[]").unwrap(), []);
    }

    #[test]
    fn labels_say_how_their_targets_are_read_and_others_say_nothing() {
        let text = br#"[
            {"targets":["a"],"labels":{"__scheme__":"https","__scrape_interval__":"500ms",
                "__kvgauge_engine__":"vllm","__kvgauge_kind__":"metrics"}},
            {"targets":["b:1"],"labels":{"__scrape_interval__":"1m","engine":"ours","kind":"big"}}
        ]"#;
        let found = read(text).unwrap();
        assert_eq!(found[0].url.to_string(), "https://a:443/metrics");
        let own = Own {
            interval: Some(Duration::from_millis(500)),
            engine: Some("vllm".into()),
            kind: Some(SourceKind::Metrics),
        };
        assert_eq!(found[0].own, own);
        // Longer than a reading lasts is cut to a third of that.
        let own = Own {
            interval: Some(Duration::from_secs(10) / 3),
            ..Own::default()
        };
        assert_eq!(found[1].own, own);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, words) in [
            ("- targets: [a:1]", "is no list of targets in JSON"),
            ("{}", "is no list of targets in JSON"),
            (
                r#"[{"targets":["a:1"],"labels":{"__scheme__":"ftp"}}]"#,
                "is not an http URL",
            ),
            (
                r#"[{"targets":["a:1"],"labels":{"__scrape_interval__":"15"}}]"#,
                "`15` has no unit",
            ),
            (
                r#"[{"targets":["a:1"],"labels":{"__kvgauge_engine__":"vlm"}}]"#,
                "the engine \"vlm\" in __kvgauge_engine__",
            ),
            (
                r#"[{"targets":["a:1"],"labels":{"__kvgauge_kind__":"page"}}]"#,
                "`page` is nothing that can be read",
            ),
            (
                r#"[{"targets":["a:1"],"labels":{"__metrics_path__":"m"}}]"#,
                "begin with /",
            ),
            (r#"[{"targets":["http://a:1"]}]"#, "write host:port"),
            (r#"[{"targets":["a:99999"]}]"#, "no port"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, wanted) in [
            ("*.json", "a.json", true),
            ("*.json", ".json", true),
            ("*.json", "a.json.tmp", false),
            ("sglang-*-*.json", "sglang-a-b.json", true),
            ("sglang-*-*.json", "sglang-a.json", false),
            ("a*", "b", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn a_role_that_is_somebody_elses_is_told_and_costs_no_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let text = r#"[{"targets":["a:1"],"labels":{"role":"inference"}},
            {"targets":["b:1"],"labels":{"role":"decode"}}]"#;
        fs::write(&path, text).unwrap();
        let mut files = files(path.to_str().unwrap());
        for _ in 0..2 {
            let looked = files.look();
            let found = looked.found.unwrap();
            let roles: Vec<_> = found.iter().map(|found| found.role).collect();
            assert_eq!(roles, [None, Some(Role::Decode)]);
            let problem = looked.problem.unwrap();
            let words = "has the role \"inference\", which is none that kvgauge knows";
            assert!(problem.words.contains(words), "{problem}");
            assert_eq!(problem.holds, None);
        }
    }

    #[test]
    fn a_file_that_is_named_must_be_there_and_one_that_can_not_be_seen_keeps_its_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let mut found = files(path.to_str().unwrap());
        let problem = found.look().problem.unwrap().to_string();
        assert!(problem.contains("can't be looked for"), "{problem}");
        fs::write(&path, r#"[{"targets":["a:1"]}]"#).unwrap();
        assert_eq!(found.look().found.unwrap().len(), 1);

        // What is no folder can't be looked through, which is not the same as being empty.
        let below = folder.path().join("d");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("b.json"), r#"[{"targets":["b:1"]}]"#).unwrap();
        let mut found = files(&format!("{}/*.json", below.display()));
        assert_eq!(found.look().found.unwrap().len(), 1);
        fs::rename(&below, folder.path().join("e")).unwrap();
        fs::write(&below, "").unwrap();
        let looked = found.look();
        assert!(looked.problem.is_some());
        assert_eq!(looked.found.unwrap().len(), 1);
        fs::remove_file(&below).unwrap();
        assert_eq!(found.look().found, Some(Vec::new()));
    }

    #[test]
    fn of_too_many_files_the_first_by_name_are_read_and_all_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        // Not in the order of their names, as a folder is not either.
        for n in (0..400).map(|n| n * 7 % 400) {
            let name = format!("{n:03}.json");
            let text = format!(r#"[{{"targets":["h{n:03}:1"]}}]"#);
            fs::write(folder.path().join(name), text).unwrap();
        }
        let looked = files(&format!("{}/*.json", folder.path().display())).look();
        let problem = looked.problem.unwrap().to_string();
        assert!(
            problem.contains("fits 400 files, of which the first 256"),
            "{problem}"
        );
        let found = looked.found.unwrap();
        assert_eq!(found.len(), MOST_FILES);
        assert!(found.iter().any(|f| &*f.url.host == "h255"));
        assert!(found.iter().all(|f| &*f.url.host <= "h255"));
    }

    #[test]
    fn what_is_repeated_holds_no_password() {
        for text in [
            r#"[{"targets":["u:s3cret@h:1"]}]"#,
            r#"[{"targets":["http://u:s3cret@h:1/m"]}]"#,
            r#"[{"targets":"u:s3cret@h:1"}]"#,
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_look_that_hangs_keeps_the_list_and_is_waited_for_again() {
        let mut settings = Settings::defaults();
        settings.scrape.timeout = Duration::from_millis(10);
        let mut aside = Aside::new(&settings);
        let (ends, look) = oneshot::channel();
        aside.look = Some(look);
        for _ in 0..2 {
            let looked = aside.look().await;
            assert_eq!(looked.found, None);
            let problem = looked.problem.unwrap().to_string();
            assert!(
                problem.contains("could not be looked at within 10ms"),
                "{problem}"
            );
        }
        let seen = Looked {
            found: Some(Vec::new()),
            unhealthy: Vec::new(),
            problem: None,
        };
        let _ = ends.send((files("a.json"), seen));
        assert_eq!(aside.look().await.found, Some(Vec::new()));
    }

    #[test]
    fn a_broken_file_keeps_its_last_good_list_and_one_that_is_gone_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let pattern = format!("{}/*.json", folder.path().display());
        let mut found = files(&pattern);
        assert_eq!(found.look().found, Some(Vec::new()));

        write("a.json", "[");
        for _ in 0..2 {
            let looked = found.look();
            let problem = looked.problem.unwrap().to_string();
            assert!(problem.contains("a.json"), "{problem}");
            assert!(!problem.contains("holds"), "there is none yet: {problem}");
        }
        write("a.json", r#"[{"targets":["a:1"]}]"#);
        write("b.json", r#"[{"targets":["b:1"]}]"#);
        write("c.yml", "- targets: [c:1]");
        let looked = found.look();
        assert_eq!(looked.problem, None);
        assert_eq!(looked.found.unwrap().len(), 2);

        write("a.json", r#"[{"targets":["a:1", "a:2"#);
        write("b.json", r#"[{"targets":["b:1","b:2"]}]"#);
        // As long as it is so.
        for _ in 0..2 {
            let looked = found.look();
            let problem = looked.problem.unwrap().to_string();
            assert!(problem.contains("a.json"), "{problem}");
            assert!(problem.contains("its last good list holds"), "{problem}");
            let hosts: Vec<String> = looked
                .found
                .unwrap()
                .iter()
                .map(|f| f.url.authority())
                .collect();
            assert_eq!(hosts, ["a:1", "b:1", "b:2"]);
        }

        fs::remove_file(path("a.json")).unwrap();
        let looked = found.look();
        assert_eq!(looked.problem, None);
        assert_eq!(looked.found.unwrap().len(), 2);
    }
}
