//! The forms a page is written in, each with its checker.

use super::strict::{self, Checked, Names};
use super::strict_open;
use kvgauge::exposition::{Escaping, Format, Version};

/// A format, and the names that it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) format: Format,
    pub(crate) names: Names,
}

const fn utf8(version: Version) -> Form {
    Form {
        format: Format {
            version,
            escaping: Some(Escaping::AllowUtf8),
        },
        names: Names::Utf8,
    }
}

const fn escaped(version: Version, escaping: Escaping) -> Form {
    Form {
        format: Format {
            version,
            escaping: Some(escaping),
        },
        names: Names::Legacy,
    }
}

impl Form {
    pub(crate) const CLASSIC: Form = Form {
        format: Format::CLASSIC,
        names: Names::Legacy,
    };
    pub(crate) const OPEN: Form = Form {
        format: Format::OPEN_METRICS,
        names: Names::Legacy,
    };
    pub(crate) const TEXT_UTF8: Form = utf8(Version::Text100);
    pub(crate) const OPEN_UTF8: Form = utf8(Version::OpenMetrics100);
    /// Those in which a name stays as it is, or is left out.
    pub(crate) const ALL: [Form; 4] = [Form::CLASSIC, Form::OPEN, Form::TEXT_UTF8, Form::OPEN_UTF8];

    /// Some in which names are respelled, and may meet others then.
    pub(crate) const ESCAPED: [Form; 3] = [
        escaped(Version::OpenMetrics100, Escaping::Underscores),
        escaped(Version::Text100, Escaping::Dots),
        escaped(Version::OpenMetrics100, Escaping::Values),
    ];

    pub(crate) fn is_open(self) -> bool {
        self.format.is_open_metrics()
    }

    /// What the strict reader of this form says of a page.
    pub(crate) fn check(self, text: &[u8]) -> Result<Checked, String> {
        if self.is_open() {
            strict_open::check(text, self.names)
        } else {
            strict::check(text, self.names)
        }
    }
}
