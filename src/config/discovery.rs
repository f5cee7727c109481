//! The values of `[discovery]`.

use super::settings::{DnsName, Target};
use super::target::{Page, api};
use super::value::{Format, entries};
use std::sync::Arc;

/// The router whose list is read; `None` is off.
#[derive(Clone, Debug)]
pub(super) struct Router(pub(super) Option<Target>);

/// Paths of files.
#[derive(Clone, Debug)]
pub(super) struct Paths(pub(super) Vec<Arc<str>>);

/// Names in DNS.
#[derive(Clone, Debug)]
pub(super) struct Names(pub(super) Vec<DnsName>);

/// The most entries of a list.
const MOST: usize = 64;

/// The most bytes of a path.
const MAX_PATH: usize = 4096;

fn is_off(text: &str) -> bool {
    text.is_empty() || text.eq_ignore_ascii_case("off")
}

/// `off`, or what is written, with commas between.
fn write(texts: impl IntoIterator<Item = String>) -> String {
    let texts: Vec<String> = texts.into_iter().collect();
    if texts.is_empty() {
        "off".to_owned()
    } else {
        texts.join(", ")
    }
}

/// Reads a list; no text and `off` are no entry.
fn read<T>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if is_off(text) {
        return Ok(Vec::new());
    }
    let (mut list, mut wrong) = (Vec::new(), Vec::new());
    for entry in entries(text) {
        match one(entry) {
            Ok(value) => list.push(value),
            Err(why) if wrong.contains(&why) => {}
            Err(why) => wrong.push(why),
        }
        if list.len() > MOST || wrong.len() > MOST {
            wrong.push(format!("has more than {MOST} entries"));
            break;
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join(" and "));
    }
    Ok(list)
}

// === impl Format ===

impl Format for Router {
    const ALLOWED: &'static str =
        "\"off\", or the URL of sglang-router's API such as \"http://127.0.0.1:30001\"";

    fn read(text: &str) -> Result<Self, String> {
        if is_off(text) {
            return Ok(Router(None));
        }
        // The list's own path may stand there.
        let url = text.strip_suffix("/workers").unwrap_or(text);
        Ok(Router(Some(api(url)?)))
    }

    fn write(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(|| "off".to_owned(), ToString::to_string)
    }
}

impl Format for Paths {
    const ALLOWED: &'static str = "\"off\", or a list of paths of .json files such as [\"/etc/kvgauge/*.json\"] (a * in the file's name only)";
    const LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let path = |path: &str| {
            if path.is_empty() || path.len() > MAX_PATH || path.contains(char::is_control) {
                return Err("holds what is no path".to_owned());
            }
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            if folder.contains('*') {
                return Err("has a * in the name of a folder".to_owned());
            }
            if !name.ends_with(".json") {
                return Err("names files that do not end in .json (YAML is not read)".to_owned());
            }
            Ok(Arc::from(path))
        };
        read(text, path).map(Paths)
    }

    fn write(&self) -> String {
        write(self.0.iter().map(ToString::to_string))
    }
}

impl Format for Names {
    const ALLOWED: &'static str =
        "\"off\", or a list of [ROLE=]URL such as [\"decode=http://decode.default.svc:30002\"]";
    const LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let name = |text: &str| {
            let (role, url) = match text.split_once('=') {
                // Behind the scheme it is part of the URL.
                Some((role, url)) if !role.contains(':') => {
                    let role = role.trim().to_ascii_lowercase();
                    let role = role
                        .parse()
                        .map_err(|()| "has a role that is none".to_owned())?;
                    (Some(role), url.trim())
                }
                _ => (None, text),
            };
            let url = Page::read(url)?.0;
            Ok(DnsName { url, role })
        };
        read(text, name).map(Names)
    }

    fn write(&self) -> String {
        write(self.0.iter().map(|name| match name.role {
            Some(role) => format!("{role}={}", Page(name.url.clone()).write()),
            None => Page(name.url.clone()).write(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_nothing_and_lists_are_written_as_they_are_read() {
        for text in ["off", "", "OFF"] {
            assert!(Router::read(text).unwrap().0.is_none());
            assert!(Paths::read(text).unwrap().0.is_empty());
            assert!(Names::read(text).unwrap().0.is_empty());
        }
        let router = Router::read("https://Router/workers").unwrap();
        assert_eq!(router.write(), "https://router:443");
        let router = Router::read("http://Router:30001/workers").unwrap();
        assert_eq!(router.write(), "http://router:30001");
        let paths = Paths::read("/a/*.json, b.json").unwrap();
        assert_eq!(paths.write(), "/a/*.json, b.json");
        let names = Names::read("decode=http://d:1, http://e:2/m?a=b").unwrap();
        assert_eq!(names.write(), "decode=http://d:1/metrics, http://e:2/m?a=b");
    }

    #[test]
    fn what_can_not_be_found_is_refused() {
        for path in ["/a/b.yml", "/a/*/b.json", "a.json,,b.json"] {
            assert!(Paths::read(path).is_err(), "{path}");
        }
        for name in ["router=http://r:1", "decode=ftp://d", "decode=", "d:1"] {
            assert!(Names::read(name).is_err(), "{name}");
        }
        assert!(Router::read("http://r:1/metrics").is_err());
    }
}
