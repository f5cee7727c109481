//! How one value is written: the same in a file, an environment variable and a flag.
//!
//! Everything can be written as a text (that is all that a variable or a flag has); whole numbers
//! and lists also as TOML's own.

use super::error::quote;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A type that can be written in settings.
pub(super) trait Format: Sized {
    /// What may be written; follows "write ".
    const ALLOWED: &'static str;
    /// Whether a TOML list may be written too.
    const LIST: bool = false;

    /// Reads a TOML list of texts, where [`LIST`](Self::LIST) is set. The error is a whole sentence.
    fn read_list(texts: &[&str]) -> Result<Val<Self>, String> {
        Val::parse(&texts.join(","))
    }

    /// Reads the text, surrounding blanks removed. The error says what is wrong with it, as in
    /// "`5` has no unit".
    fn read(text: &str) -> Result<Self, String>;

    /// The text that reads as this value.
    fn write(&self) -> String;
}

/// A value in the settings' text form.
#[derive(Clone, Debug)]
pub(super) struct Val<T>(pub(super) T);

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct Size(pub(super) u64);

/// A value that the program finds by itself where it is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Auto<T>(pub(super) Option<T>);

/// Splits a list in its text form; no text is no entry.
pub(super) fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(move |e| !(e.is_empty() && text.trim().is_empty()))
}

// === impl Val ===

impl<T: Format> Val<T> {
    /// Reads `text`; the error is a whole sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        T::read(text)
            .map(Val)
            .map_err(|why| format!("{} {why}; write {}", quote(text), T::ALLOWED))
    }

    fn from_toml(value: &toml::Value) -> Result<Self, String> {
        let kind = match value {
            toml::Value::String(text) => return Self::parse(text),
            toml::Value::Integer(number) => return Self::parse(&number.to_string()),
            toml::Value::Array(list) if T::LIST => {
                let texts: Option<Vec<&str>> = list.iter().map(toml::Value::as_str).collect();
                match texts {
                    Some(texts) => return T::read_list(&texts),
                    None => "a list of something else than texts",
                }
            }
            toml::Value::Array(_) => "a list",
            toml::Value::Table(_) => "a table",
            toml::Value::Boolean(_) => "true or false",
            toml::Value::Float(_) => "a number with a fraction",
            // Not reached by way of serde, where a date is a text.
            toml::Value::Datetime(_) => "a date or time",
        };
        Err(format!("{kind} is not possible here; write {}", T::ALLOWED))
    }
}

impl<'de, T: Format> Deserialize<'de> for Val<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        Self::from_toml(&value).map_err(de::Error::custom)
    }
}

impl<T: Format> Serialize for Val<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.write())
    }
}

// === impl Format ===

impl Format for Duration {
    const ALLOWED: &'static str = "a duration such as \"250ms\", \"10s\", \"1m30s\" or \"1h\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Duration::ZERO);
        }
        if text.eq_ignore_ascii_case("off") {
            return Err("is not possible here".to_owned());
        }
        if text.parse::<f64>().is_ok() {
            return Err("has no unit".to_owned());
        }
        let duration: jiff::SignedDuration =
            text.parse().map_err(|_| "is not a duration".to_owned())?;
        Duration::try_from(duration).map_err(|_| "is negative".to_owned())
    }

    fn write(&self) -> String {
        let mut text = String::new();
        let nanos = u64::from(self.subsec_nanos());
        let parts = [
            (self.as_secs() / 3600, "h"),
            (self.as_secs() / 60 % 60, "m"),
            (self.as_secs() % 60, "s"),
            (nanos / 1_000_000, "ms"),
            (nanos / 1_000 % 1_000, "us"),
            (nanos % 1_000, "ns"),
        ];
        for (number, unit) in parts {
            if number > 0 {
                text.push_str(&format!("{number}{unit}"));
            }
        }
        if text.is_empty() {
            text.push('0');
        }
        text
    }
}

impl Format for usize {
    const ALLOWED: &'static str = "a whole number";

    fn read(text: &str) -> Result<Self, String> {
        let bad = || "is not a whole number that this machine can hold".to_owned();
        if text.eq_ignore_ascii_case("off") {
            return Err("is not possible here".to_owned());
        }
        // `+5` and `5_000` are what Rust and TOML read, so both are read everywhere.
        text.replace('_', "").parse().map_err(|_| bad())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// Units of [`Size`], the largest first.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl Format for Size {
    const ALLOWED: &'static str =
        "bytes such as 65536, \"64KiB\" or \"32MiB\" (units: B, kB, MB, GB, KiB, MiB, GiB)";

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Err("is not possible here".to_owned());
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim();
        let factor = if unit.is_empty() {
            Some(1)
        } else {
            let known = |(name, _): &&(&str, u64)| name.eq_ignore_ascii_case(unit);
            UNITS.iter().find(known).map(|(_, factor)| *factor)
        };
        let number = number.replace('_', "");
        if number.is_empty() {
            return Err("is not a size".to_owned());
        }
        let too_large = || "is too large".to_owned();
        let number: u64 = number.parse().map_err(|_| too_large())?;
        let factor = factor.ok_or_else(|| "has no unit of size that is known".to_owned())?;
        number.checked_mul(factor).map(Size).ok_or_else(too_large)
    }

    fn write(&self) -> String {
        let fits = |(_, factor): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*factor);
        match UNITS.iter().take(3).find(fits) {
            Some((unit, factor)) => format!("{}{unit}", self.0 / factor),
            None => self.0.to_string(),
        }
    }
}

/// `off`, or a value.
impl<T: Format + OffOr> Format for Option<T> {
    const ALLOWED: &'static str = T::OFF_OR;
    const LIST: bool = T::LIST;

    fn read_list(texts: &[&str]) -> Result<Val<Self>, String> {
        T::read_list(texts).map(|value| Val(Some(value.0)))
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            Ok(None)
        } else {
            T::read(text).map(Some)
        }
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(|| "off".to_owned(), T::write)
    }
}

/// A type whose keys can be off.
pub(super) trait OffOr {
    /// [`Format::ALLOWED`] with `off`.
    const OFF_OR: &'static str;
}

impl OffOr for Duration {
    const OFF_OR: &'static str =
        "\"off\", or a duration such as \"250ms\", \"10s\", \"1m30s\" or \"1h\"";
}

impl OffOr for usize {
    const OFF_OR: &'static str = "\"off\", or a whole number";
}

impl OffOr for Size {
    const OFF_OR: &'static str = "\"off\", or bytes such as 65536, \"64KiB\" or \"32MiB\" (units: B, kB, MB, GB, KiB, MiB, GiB)";
}

impl Format for Auto<usize> {
    const ALLOWED: &'static str = "\"auto\", or a whole number";

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("auto") {
            Ok(Auto(None))
        } else {
            usize::read(text).map(|n| Auto(Some(n)))
        }
    }

    fn write(&self) -> String {
        self.0.map_or_else(|| "auto".to_owned(), |n| n.to_string())
    }
}

impl Format for SocketAddr {
    const ALLOWED: &'static str = "an address such as \"127.0.0.1:30080\", \"[::1]:30080\", or \":30080\" for every IPv4 \
         address of this machine (\"[::]:30080\": IPv6 too)";

    fn read(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        if text.parse::<u32>().is_ok() {
            return Err("is a port without a colon before it".to_owned());
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(if text.parse::<IpAddr>().is_ok() {
                "has no port".to_owned()
            } else {
                "is not an address".to_owned()
            });
        };
        let host = match host {
            "" => Ipv4Addr::UNSPECIFIED,
            "localhost" => Ipv4Addr::LOCALHOST,
            _ if host.contains(':') => return Err("is not an address, or has no port".to_owned()),
            _ if host.parse::<IpAddr>().is_err() => {
                return Err("names no address of this machine (no name is looked up)".to_owned());
            }
            // An address, so it is the port that is wrong; its own parse says so below.
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let port: u16 = port
            .parse()
            .map_err(|_| "has no port from 0 to 65535".to_owned())?;
        Ok(SocketAddr::from((host, port)))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen<T: Format>(text: &str) -> Result<T, String> {
        Val::<T>::parse(text).map(|v| v.0)
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1m30s", 90_000),
            (" 2 s ", 2_000),
            ("1.5s", 1_500),
            ("1h", 3_600_000),
            ("0", 0),
            ("0s", 0),
        ] {
            let want = Ok(Duration::from_millis(millis));
            assert_eq!(seen::<Duration>(text), want, "{text}");
        }
        for (text, why) in [
            ("5", "`5` has no unit;"),
            ("1.5", "`1.5` has no unit;"),
            ("soon", "`soon` is not a duration;"),
            ("", "`` is not a duration;"),
            ("-1s", "`-1s` is negative;"),
            ("1s ago", "`1s ago` is negative;"),
            ("1 year", "`1 year` is not a duration;"),
            ("off", "`off` is not possible here;"),
        ] {
            let error = seen::<Duration>(text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
            assert!(
                error.ends_with("write a duration such as \"250ms\", \"10s\", \"1m30s\" or \"1h\"")
            );
        }
        assert_eq!(seen::<Option<Duration>>("Off"), Ok(None));
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for (duration, text) in [
            (Duration::ZERO, "0"),
            (Duration::from_millis(1_250), "1s250ms"),
            (Duration::from_secs(300), "5m"),
            (Duration::from_secs(3_661), "1h1m1s"),
            (Duration::from_nanos(1_001), "1us1ns"),
        ] {
            assert_eq!(duration.write(), text);
            assert_eq!(seen::<Duration>(text), Ok(duration));
        }
    }

    #[test]
    fn sizes_know_their_units() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("1_000", 1_000),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("32MiB", 33_554_432),
            ("1GB", 1_000_000_000),
            ("7B", 7),
        ] {
            assert_eq!(seen(text), Ok(Size(bytes)), "{text}");
        }
        for (text, why) in [
            ("32M", "`32M` has no unit of size that is known;"),
            ("MiB", "`MiB` is not a size;"),
            ("-1", "`-1` is not a size;"),
            ("1.5MiB", "`1.5MiB` has no unit of size that is known;"),
            ("99999999999GiB", "`99999999999GiB` is too large;"),
            (
                "99999999999999999999",
                "`99999999999999999999` is too large;",
            ),
        ] {
            let error = seen::<Size>(text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        assert_eq!(Size(33_554_432).write(), "32MiB");
        assert_eq!(Size(1_000).write(), "1000");
        assert_eq!(Size(0).write(), "0");
    }

    #[test]
    fn a_listener_is_an_address_of_this_machine() {
        for (text, address) in [
            ("127.0.0.1:30080", "127.0.0.1:30080"),
            (":30001", "0.0.0.0:30001"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::]:80", "[::]:80"),
        ] {
            assert_eq!(seen::<SocketAddr>(text).unwrap().to_string(), address);
        }
        for (text, why) in [
            ("30001", "`30001` is a port without a colon before it;"),
            ("127.0.0.1", "`127.0.0.1` has no port;"),
            ("::1", "`::1` is not an address, or has no port;"),
            (":70000", "`:70000` has no port from 0 to 65535;"),
            (
                "127.0.0.1:http",
                "`127.0.0.1:http` has no port from 0 to 65535;",
            ),
            ("router:80", "`router:80` names no address of this machine"),
            (
                "http://127.0.0.1:80",
                "`http://127.0.0.1:80` is not an address, or has no port;",
            ),
            ("", "`` is not an address;"),
        ] {
            let error = seen::<SocketAddr>(text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_splits_at_commas_and_may_be_empty() {
        assert_eq!(entries("a, b").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(entries(" ").count(), 0);
        assert_eq!(entries("a,,b").collect::<Vec<_>>(), ["a", "", "b"]);
    }
}
