//! Texts from elsewhere in `/kv/stream` and `/kv/history`: whoever writes them, an event stays one that can
//! be taken each second.

use std::borrow::Cow;

/// Characters of a name, an address or a request's text.
const MOST_OF_NAME: usize = 200;

/// Characters of a message, which says what to do at its end.
const MOST_OF_MESSAGE: usize = 600;

/// Characters of a long name's end that stay: what tells such names apart often stands there.
const END: usize = 49;

/// A name: what is over 200 characters loses its middle. The same name is always cut alike, so that roles,
/// pools, sources and the history still go together.
pub(super) fn name(text: &str) -> Cow<'_, str> {
    // No character is shorter than a byte.
    if text.len() <= MOST_OF_NAME {
        return Cow::Borrowed(text);
    }
    let length = text.chars().count();
    if length <= MOST_OF_NAME {
        return Cow::Borrowed(text);
    }
    let start = text.chars().take(MOST_OF_NAME - 1 - END);
    let end = text.chars().skip(length - END);
    Cow::Owned(start.chain(['…']).chain(end).collect())
}

/// A text that is read from its start: what is over 200 characters loses its end.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    start(text, MOST_OF_NAME)
}

/// A message: what is over 600 characters loses its end.
pub(super) fn message(text: &str) -> Cow<'_, str> {
    start(text, MOST_OF_MESSAGE)
}

fn start(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(most - 1).chain(['…']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        for fits in ["", "m", &"é".repeat(200)] {
            assert_eq!((name(fits), text(fits)), (fits.into(), fits.into()));
        }
        let long = |n: usize| format!("{}{n:04}", "é".repeat(8_000));
        assert_ne!(name(&long(1)), name(&long(2)), "told apart by their ends");
        for cut in [name(&long(1)), text(&long(1))] {
            assert_eq!(cut.chars().count(), 200);
            assert!(cut.contains('…'));
        }
        assert_eq!(name(&name(&long(1))), name(&long(1)));
        assert_eq!(message(&long(1)).chars().count(), 600);
        assert!(message(&long(1)).ends_with("é…"));
    }
}
