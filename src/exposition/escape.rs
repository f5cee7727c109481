//! Names outside the old character set, as readers ask for them: Prometheus 3's `escaping=`.

use super::format::{Escaping, Format, Version};
use super::scan::{is_label_name, is_metric_name};
use std::fmt::Write;

/// How a page is to hold names outside the old character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OddNames {
    /// Not at all.
    LeftOut,
    /// In quotes.
    Quoted,
    /// In other characters.
    Escaped(Escaping),
}

impl OddNames {
    pub(super) fn of(format: Format) -> OddNames {
        match (format.version, format.escaping) {
            (Version::Text004 | Version::OpenMetrics001, _) | (_, None) => OddNames::LeftOut,
            (_, Some(Escaping::AllowUtf8)) => OddNames::Quoted,
            (_, Some(escaping)) => OddNames::Escaped(escaping),
        }
    }
}

/// A metric name in other characters; one of the old character set stays as it is, as in
/// `EscapeMetricFamily` of prometheus/common.
pub(super) fn escaped_metric_name(name: &str, escaping: Escaping) -> String {
    if is_metric_name(name) {
        return name.to_owned();
    }
    escaped(name, escaping, |c, first| {
        matches!(c, 'a'..='z' | 'A'..='Z' | '_' | ':') || (!first && c.is_ascii_digit())
    })
}

/// A label name in other characters. A colon, which labels may not have, is one of those that go.
pub(super) fn escaped_label_name(name: &str, escaping: Escaping) -> String {
    if is_label_name(name) {
        return name.to_owned();
    }
    escaped(name, escaping, |c, first| {
        matches!(c, 'a'..='z' | 'A'..='Z' | '_') || (!first && c.is_ascii_digit())
    })
}

fn escaped(name: &str, escaping: Escaping, legal: impl Fn(char, bool) -> bool) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    if escaping == Escaping::Values {
        out.push_str("U__");
    }
    for (at, c) in name.char_indices() {
        let legal = legal(c, at == 0);
        match escaping {
            Escaping::AllowUtf8 => out.push(c),
            Escaping::Underscores => out.push(if legal { c } else { '_' }),
            Escaping::Dots => match c {
                '.' => out.push_str("_dot_"),
                '_' => out.push_str("__"),
                c => out.push(if legal { c } else { '_' }),
            },
            Escaping::Values => match c {
                '_' => out.push_str("__"),
                c if legal => out.push(c),
                // Writing to a string can't fail.
                c => drop(write!(out, "_{:x}_", u32::from(c))),
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the page "UTF-8 metric and label name escaping schemes" of Prometheus's documentation says.
    #[test]
    fn names_are_escaped_as_prometheus_escapes_them() {
        let cases = [
            (
                "no:escaping_1",
                "no:escaping_1",
                "no:escaping_1",
                "no:escaping_1",
            ),
            (
                "mysystem.prod.west.cpu.load",
                "mysystem_prod_west_cpu_load",
                "mysystem_dot_prod_dot_west_dot_cpu_dot_load",
                "U__mysystem_2e_prod_2e_west_2e_cpu_2e_load",
            ),
            ("a_b.c", "a_b_c", "a__b_dot_c", "U__a__b_2e_c"),
            (
                "http.status:sum",
                "http_status:sum",
                "http_dot_status:sum",
                "U__http_2e_status:sum",
            ),
            ("花火", "__", "__", "U___82b1__706b_"),
        ];
        for (name, underscores, dots, values) in cases {
            for (escaping, wanted) in [
                (Escaping::Underscores, underscores),
                (Escaping::Dots, dots),
                (Escaping::Values, values),
            ] {
                assert_eq!(escaped_metric_name(name, escaping), wanted, "{escaping:?}");
            }
        }
        assert_eq!(escaped_label_name("a:b", Escaping::Underscores), "a_b");
        assert_eq!(escaped_label_name("9", Escaping::Values), "U___39_");
    }
}
