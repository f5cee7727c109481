//! The forms a page can be written in.

/// The form of a page: what its content type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// Which text format, in which version.
    pub version: Version,
    /// What becomes of names outside `[a-zA-Z_:][a-zA-Z0-9_:]*`. `None`: whoever reads the page has not
    /// said that they know of such names, and their samples are left out.
    pub escaping: Option<Escaping>,
}

/// A text format and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Classic text 0.0.4.
    Text004,
    /// Classic text 1.0.0: as 0.0.4, and names may be quoted.
    Text100,
    /// `OpenMetrics` 0.0.1, as Prometheus 2 knows it: as 1.0.0.
    OpenMetrics001,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics100,
}

/// How names outside the old character set are written: the `escaping` of a media type in Prometheus 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Escaping {
    /// `allow-utf-8`: as they are, in quotes.
    AllowUtf8,
    /// `underscores`: every other character as `_`.
    Underscores,
    /// `dots`: a dot as `_dot_`, an underscore as `__`, every other character as `_`.
    Dots,
    /// `values`: `U__` in front, an underscore as `__`, every other character as its code point.
    Values,
}

impl Format {
    /// Classic text 0.0.4: what every reader takes.
    pub const CLASSIC: Format = Format {
        version: Version::Text004,
        escaping: None,
    };

    /// `OpenMetrics` 1.0.0 without names outside the old character set.
    pub const OPEN_METRICS: Format = Format {
        version: Version::OpenMetrics100,
        escaping: None,
    };

    /// Whether it is `OpenMetrics`.
    #[must_use]
    pub const fn is_open_metrics(self) -> bool {
        matches!(
            self.version,
            Version::OpenMetrics001 | Version::OpenMetrics100
        )
    }

    /// The content type that a page in this form has.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match (self.version, self.escaping) {
            (Version::Text004, _) => "text/plain; version=0.0.4; charset=utf-8",
            (Version::OpenMetrics001, _) => {
                "application/openmetrics-text; version=0.0.1; charset=utf-8"
            }
            (Version::Text100, None) => "text/plain; version=1.0.0; charset=utf-8",
            (Version::Text100, Some(Escaping::AllowUtf8)) => {
                "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
            }
            (Version::Text100, Some(Escaping::Underscores)) => {
                "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"
            }
            (Version::Text100, Some(Escaping::Dots)) => {
                "text/plain; version=1.0.0; charset=utf-8; escaping=dots"
            }
            (Version::Text100, Some(Escaping::Values)) => {
                "text/plain; version=1.0.0; charset=utf-8; escaping=values"
            }
            (Version::OpenMetrics100, None) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
            (Version::OpenMetrics100, Some(Escaping::AllowUtf8)) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
            }
            (Version::OpenMetrics100, Some(Escaping::Underscores)) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
            }
            (Version::OpenMetrics100, Some(Escaping::Dots)) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=dots"
            }
            (Version::OpenMetrics100, Some(Escaping::Values)) => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=values"
            }
        }
    }
}
