//! Fields that hold a list (RFC 9110, 5.6.1).

use http::{HeaderMap, HeaderName};

/// The members of all lines of a field, without the blanks around them. Empty ones are members too.
pub fn members<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    let members = lines.flat_map(|line| line.as_bytes().split(|b| *b == b','));
    members.map(<[u8]>::trim_ascii)
}
