//! Numbers as Python's `prometheus_client` writes them.

/// Writes a sample value: `3.0`, `2.581504e+06`, `0.004661623611662039`, `NaN`, `+Inf`.
///
/// Python's shortest form, but from ten million's neighbour on (seven digits before the point)
/// in Go's exponent form.
pub(crate) fn write(out: &mut String, value: f64) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    // Rust's Debug and Python's repr agree on the digits and on when they use an exponent.
    let text = format!("{value:?}");
    if let Some((mantissa, exponent)) = text.split_once('e') {
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        out.push_str(mantissa);
        out.push('e');
        out.push(sign);
        if digits.len() < 2 {
            out.push('0');
        }
        return out.push_str(digits);
    }
    match text.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let digits = format!("{}.{}{}", &text[..1], &text[1..dot], &text[dot + 1..]);
            out.push_str(digits.trim_end_matches('0').trim_end_matches('.'));
            out.push_str("e+");
            out.push_str(&format!("{:02}", dot - 1));
        }
        _ => out.push_str(&text),
    }
}

/// As `write`, into a new string.
#[cfg(test)]
pub(crate) fn text(value: f64) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn writes_what_real_pages_show() {
        for (value, shown) in [
            (3.0, "3.0"),
            (0.0, "0.0"),
            (-1.0, "-1.0"),
            (61_248.0, "61248.0"),
            (163_840.0, "163840.0"),
            (999_999.0, "999999.0"),
            (1_000_000.0, "1e+06"),
            (2_581_504.0, "2.581504e+06"),
            (2_508_222.0, "2.508222e+06"),
            (51_566_844.0, "5.1566844e+07"),
            (0.004_661_623_611_662_039, "0.004661623611662039"),
            (1_311.07, "1311.07"),
            (0.0001, "0.0001"),
            (0.000_05, "5e-05"),
            (1e16, "1e+16"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(text(value), shown);
        }
    }
}
