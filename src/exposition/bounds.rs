//! The bounds of buckets and quantiles, in the one spelling that they have in `OpenMetrics`.

use super::relabel::push_all;
use super::scan::number;
use std::fmt::{self, Write};

/// Whether a number is spelled as Prometheus spells the bounds of buckets and quantiles, so that one
/// bound has one spelling: Go's shortest `%g` with `.0` where it would look whole.
pub(super) fn is_float_form(text: &str) -> bool {
    looks_like_float_form(text) || {
        // Many digits, or a form seldom seen.
        let mut form = String::new();
        text.contains(['.', 'e'])
            && number(text.as_bytes()).is_some_and(|number| {
                push_float(&mut form, number);
                form == text
            })
    }
}

/// May be `false` for one that is.
fn looks_like_float_form(text: &str) -> bool {
    if matches!(text, "+Inf" | "-Inf") {
        return true;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if let Some((mantissa, exponent)) = digits.split_once('e') {
        return is_scientific(mantissa, exponent);
    }
    let Some((whole, fraction)) = digits.split_once('.') else {
        return false;
    };
    let whole_fits = whole.len() <= 6 && (whole == "0" || !whole.starts_with('0'));
    let fraction_fits = fraction == "0" || (!fraction.ends_with('0') && fraction.len() <= 9);
    let not_small = whole != "0" || fraction == "0" || !fraction.starts_with("0000");
    all_digits(whole) && all_digits(fraction) && whole_fits && fraction_fits && not_small
}

/// The form of numbers from a million on, and below a ten-thousandth. At most 15 digits, which are
/// always told apart, so that none of them is one too many.
fn is_scientific(mantissa: &str, exponent: &str) -> bool {
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "1"));
    let mantissa_fits = whole.len() == 1
        && whole != "0"
        && fraction.len() <= 14
        && !fraction.ends_with('0')
        && all_digits(whole)
        && all_digits(fraction);
    let least = match exponent.as_bytes().first() {
        Some(b'+') => 6,
        Some(b'-') => 5,
        _ => return false,
    };
    let digits = &exponent[1..];
    let two = digits.len() == 2 || (digits.len() == 3 && !digits.starts_with('0'));
    mantissa_fits && two && digits.parse().is_ok_and(|n: u16| (least..300).contains(&n))
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Appends a bound as it stands on a page, in float form if it is a number.
pub(super) fn push_float_form(out: &mut String, text: &str) {
    let whole = text.len() <= 6 && all_digits(text) && (text == "0" || !text.starts_with('0'));
    if whole {
        push_all(out, &[text, ".0"]);
    } else if let Some(number) = number(text.as_bytes()) {
        push_float(out, number);
    } else {
        out.push_str(text);
    }
}

/// Appends a number as Go's `FormatFloat(value, 'g', -1, 64)` spells it, with `.0` where it would look
/// whole: the form of `le` and `quantile` in `OpenMetrics`, and of Prometheus 3 for both formats.
pub(super) fn push_float(out: &mut String, value: f64) {
    if !value.is_finite() {
        out.push_str(match value {
            v if v.is_nan() => "NaN",
            v if v > 0.0 => "+Inf",
            _ => "-Inf",
        });
        return;
    }
    // Shortest digits that read back the same, as Go's. Neither can be longer than there is room.
    let (mut shortest, mut plain) = (Short::default(), Short::default());
    if write!(shortest, "{value:e}").is_err() {
        return;
    }
    let shortest = shortest.text();
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) && write!(plain, "{value}").is_ok() {
        let whole = !plain.text().contains('.');
        push_all(out, &[plain.text(), if whole { ".0" } else { "" }]);
    } else {
        let sign = if exponent < 0 { "-" } else { "+" };
        let pad = if exponent.abs() < 10 { "0" } else { "" };
        let mut digits = itoa::Buffer::new();
        push_all(
            out,
            &[
                mantissa,
                "e",
                sign,
                pad,
                digits.format(exponent.unsigned_abs()),
            ],
        );
    }
}

/// A few characters, without an allocation: there may be a bound in every line.
#[derive(Default)]
struct Short {
    bytes: [u8; 32],
    len: usize,
}

impl Short {
    fn text(&self) -> &str {
        let text = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let place = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn float(value: f64) -> String {
        let mut out = String::new();
        push_float(&mut out, value);
        out
    }

    /// The right side is what Go 1.24 prints, with `.0`.
    #[test]
    fn floats_are_spelled_as_go_spells_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (100_000.0, "100000.0"),
            (1e6, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (2.5e-7, "2.5e-07"),
            (-3.25, "-3.25"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_for_float_form_is(text in "-?[0-9]{1,7}\\.[0-9]{1,10}|[0-9]{1,3}|[+-]Inf|-?[0-9]{1,2}(\\.[0-9]{1,16})?e[+-]?[0-9]{1,4}") {
            // One that is too large is none.
            let number = number(text.as_bytes());
            prop_assume!(number.is_some());
            let number = number.unwrap();
            if looks_like_float_form(&text) {
                prop_assert_eq!(&float(number), &text);
            }
            let mut form = String::new();
            push_float_form(&mut form, &text);
            prop_assert_eq!(&form, &float(number));
            prop_assert_eq!(is_float_form(&text), form == text);
        }

        #[test]
        fn floats_read_back_the_same(value in any::<f64>()) {
            let back: f64 = float(value).parse().unwrap();
            prop_assert!(back == value || back.is_nan() && value.is_nan());
        }
    }

    #[test]
    fn the_usual_bounds_are_taken_for_float_form() {
        for text in [
            "0.0", "0.005", "0.1", "1.0", "7.5", "100000.0", "1e+06", "2.5e-05", "+Inf", "-1.5",
        ] {
            assert!(is_float_form(text), "{text}");
        }
        for text in [
            "1",
            "1e6",
            "1e+6",
            "1000000.0",
            "0.00001",
            ".5",
            "1.",
            "1.50",
            "Inf",
            "",
            "e",
            "e+06",
        ] {
            assert!(!is_float_form(text), "{text}");
        }
    }
}
