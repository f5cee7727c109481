//! `X-KV-Pools`, read as RFC 9651 says: a list of members with parameters.

use super::http::Head;
use std::collections::BTreeMap;

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) role: String,
    pub(crate) parameters: BTreeMap<String, String>,
}

impl Member {
    /// A number; `None` where the parameter is left out.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        let text = self.parameters.get(name)?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("no number: {name}={text}")),
        )
    }

    /// Why usage is unknown.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.parameters.get("unknown").map(String::as_str)
    }
}

/// All members, in order.
pub(crate) fn pools(head: &Head) -> Vec<Member> {
    let value = head
        .get("x-kv-pools")
        .unwrap_or_else(|| panic!("no X-KV-Pools: {}", head.text()));
    value
        .split(',')
        .map(|member| parse(member.trim()))
        .collect()
}

/// The member of a role.
pub(crate) fn pool(head: &Head, role: &str) -> Member {
    let mut found: Vec<_> = pools(head)
        .into_iter()
        .filter(|member| member.role == role)
        .collect();
    assert_eq!(found.len(), 1, "members of {role} in {}", head.text());
    found.remove(0)
}

fn parse(member: &str) -> Member {
    let mut parts = member.split(';').map(str::trim);
    let role = parts.next().unwrap_or_default().to_owned();
    assert!(is_token(&role), "a member that is no token: {member}");
    let parameters = parts.map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, "?1"));
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        assert!(
            !key.is_empty() && key.chars().all(lower),
            "a bad key: {member}"
        );
        let integer = value.split('.').next().unwrap_or_default();
        assert!(
            integer.len() <= 15,
            "a number too long for RFC 9651: {member}"
        );
        let places = value.split_once('.').map_or(0, |(_, places)| places.len());
        assert!(
            value.parse::<f64>().is_err() || places <= 3,
            "too many places: {member}"
        );
        (key.to_owned(), value.to_owned())
    });
    Member {
        parameters: parameters.collect(),
        role,
    }
}

fn is_token(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c))
}
