//! Reads Rust source as text, well enough to find which rooms it names.

/// One naming of a room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Counted from 1.
    pub(crate) line: usize,
    /// The path's first segment below the crate.
    pub(crate) room: String,
}

/// The room of a file, by its path below `src/`.
pub(crate) fn room_of(name: &str) -> String {
    match name.split_once('/') {
        Some((room, _)) => room.to_owned(),
        None if name == "main.rs" => "cli".to_owned(),
        None => name.trim_end_matches(".rs").to_owned(),
    }
}

/// All rooms that a file names, in order.
pub(crate) fn uses_in(name: &str, text: &str) -> Vec<Use> {
    let code = code_only(text);
    let mut found = Vec::new();
    let supers = "super::".repeat(depth(name));
    for prefix in ["crate::", "kvgauge::", supers.as_str()] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            if prefix.is_empty()
                || before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
            {
                continue;
            }
            let rest = &code[at + prefix.len()..];
            for (offset, room) in first_segments(rest) {
                let line = code[..at + prefix.len() + offset].matches('\n').count() + 1;
                found.push(Use { line, room });
            }
        }
    }
    // `pub(in crate::x)` has its path in the same form.
    found.sort_by_key(|used| used.line);
    found
}

/// How many `super::` lead from a file's module to the crate.
fn depth(name: &str) -> usize {
    let parts: Vec<_> = name.trim_end_matches(".rs").split('/').collect();
    let own = usize::from(!matches!(parts.last(), Some(&"mod" | &"main" | &"lib")));
    parts.len() - 1 + own
}

/// The first segment of a path, or of each path of a `{…}` group, with its offset.
fn first_segments(rest: &str) -> Vec<(usize, String)> {
    if !rest.starts_with('{') {
        return identifier(rest).map(|name| (0, name)).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut level = 0;
    let mut at_start = false;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => level += 1,
            '}' => level -= 1,
            _ => {}
        }
        if level == 0 {
            break;
        }
        if level == 1 && matches!(c, '{' | ',') {
            at_start = true;
        } else if at_start && !c.is_whitespace() {
            at_start = false;
            found.extend(identifier(&rest[at..]).map(|name| (at, name)));
        }
    }
    found
}

fn identifier(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Whether a line of code names this path as a whole.
pub(crate) fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        // A path that starts in the middle of another one is another path.
        !before.is_some_and(|c| part(c) || c == ':') && !after.is_some_and(part)
    })
}

/// The text with comments, literals and `#[cfg(test)]` items blanked; lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    without_tests(&without_comments_and_literals(text))
}

fn without_comments_and_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let end = literal_or_comment_end(&chars, at);
        if end > at {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// Where the comment or literal that starts here ends; `at` where none does.
fn literal_or_comment_end(chars: &[char], at: usize) -> usize {
    let is = |offset: usize, c: char| chars.get(at + offset) == Some(&c);
    if is(0, '/') && is(1, '/') {
        return find(chars, at, |i| chars[i] == '\n');
    }
    if is(0, '/') && is(1, '*') {
        return find(chars, at + 2, |i| {
            chars[i] == '*' && chars.get(i + 1) == Some(&'/')
        }) + 2;
    }
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if is(0, 'r') && !in_word {
        let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
        if is(1 + hashes, '"') {
            let closes =
                |i: usize| chars[i] == '"' && (1..=hashes).all(|h| chars.get(i + h) == Some(&'#'));
            return (find(chars, at + hashes + 2, closes) + hashes + 1).min(chars.len());
        }
    }
    if is(0, '"') {
        let mut i = at + 1;
        while i < chars.len() && chars[i] != '"' {
            i += if chars[i] == '\\' { 2 } else { 1 };
        }
        return (i + 1).min(chars.len());
    }
    // A character literal, not a lifetime.
    if is(0, '\'') && is(1, '\\') {
        return (find(chars, at + 3, |i| chars[i] == '\'') + 1).min(chars.len());
    }
    if is(0, '\'') && is(2, '\'') {
        return at + 3;
    }
    at
}

fn find(chars: &[char], from: usize, matches: impl Fn(usize) -> bool) -> usize {
    (from..chars.len())
        .find(|i| matches(*i))
        .unwrap_or(chars.len())
}

/// Blanks the item behind each `#[cfg(test)]`, up to its closing brace or semicolon.
fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let mut level = 0_usize;
        let end = out[start..]
            .char_indices()
            .find(|(_, c)| {
                match c {
                    '{' => level += 1,
                    '}' => level = level.saturating_sub(1),
                    _ => {}
                }
                matches!(c, '}' | ';') && level == 0
            })
            .map_or(out.len(), |(offset, c)| start + offset + c.len_utf8());
        let blank: String = out[start..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        out.replace_range(start..end, &blank);
    }
    out
}
