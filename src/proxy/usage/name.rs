//! A model's name.

use std::ops::Deref;

/// Longer names are not kept.
const LONGEST: usize = 256;

/// Bytes that are kept in place: most names are shorter, and need no allocation.
const IN_PLACE: usize = 38;

/// The name of a model, of bounded length.
#[derive(Debug, PartialEq, Eq)]
pub struct Name(Kept);

#[derive(Debug, PartialEq, Eq)]
enum Kept {
    /// So many of the bytes.
    InPlace(u8, [u8; IN_PLACE]),
    Apart(Box<str>),
}

// === impl Name ===

impl Name {
    /// Nothing where it is too long.
    pub(super) fn of(text: &str) -> Option<Name> {
        Name::in_place(text.as_bytes())
            .or_else(|| (text.len() <= LONGEST).then(|| Name(Kept::Apart(text.into()))))
    }

    /// The same of ASCII, which need not be looked at to know that.
    pub(super) fn of_ascii(text: &[u8]) -> Option<Name> {
        Name::in_place(text).or_else(|| Name::of(str::from_utf8(text).ok()?))
    }

    fn in_place(text: &[u8]) -> Option<Name> {
        let mut bytes = [0; IN_PLACE];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let len = u8::try_from(text.len()).ok()?;
        Some(Name(Kept::InPlace(len, bytes)))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Kept::InPlace(len, bytes) => bytes
                .get(..usize::from(*len))
                .and_then(|bytes| str::from_utf8(bytes).ok())
                .unwrap_or_default(),
            Kept::Apart(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_was_given_up_to_its_bound() {
        for len in [0, 1, IN_PLACE - 1, IN_PLACE, IN_PLACE + 1, LONGEST] {
            let text = "x".repeat(len);
            assert_eq!(Name::of(&text).as_deref(), Some(&*text));
            assert_eq!(Name::of_ascii(text.as_bytes()).as_deref(), Some(&*text));
        }
        let text = "x".repeat(LONGEST + 1);
        assert!(Name::of(&text).is_none());
        assert!(Name::of_ascii(text.as_bytes()).is_none());
        assert_eq!(Name::of("模型-é").as_deref(), Some("模型-é"));
    }
}
