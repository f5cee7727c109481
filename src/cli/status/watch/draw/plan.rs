//! Which parts of the view there is room for.

use super::order::What;
use ratatui::text::Line;

/// One part, in several sizes, each richer than the one before.
#[derive(Debug, Default)]
pub(super) struct Part {
    sizes: Vec<Vec<Line<'static>>>,
    /// The one that is shown, if any.
    chosen: Option<usize>,
    /// Whether a blank line may stand before it.
    apart: bool,
}

/// All parts in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Plan {
    parts: Vec<Part>,
    height: usize,
    blanks: bool,
}

// === impl Part ===

impl Part {
    /// That follows the one before it at once.
    pub(super) fn joined(sizes: Vec<Vec<Line<'static>>>) -> Part {
        Part {
            sizes,
            ..Part::default()
        }
    }

    /// That a blank line may stand before.
    pub(super) fn apart(sizes: Vec<Vec<Line<'static>>>) -> Part {
        Part {
            apart: true,
            ..Part::joined(sizes)
        }
    }

    fn lines(&self) -> &[Line<'static>] {
        let chosen = self.chosen.and_then(|at| self.sizes.get(at));
        chosen.map_or(&[], |lines| lines)
    }
}

// === impl Plan ===

impl Plan {
    pub(super) fn new(parts: Vec<Part>, height: usize) -> Plan {
        Plan {
            parts,
            height,
            blanks: false,
        }
    }

    /// Shows a part in this size, if there is room and it is not shown in a richer one.
    pub(super) fn wish(&mut self, what: What, size: usize) {
        let part = what as usize;
        let before = self.parts[part].chosen;
        if size >= self.parts[part].sizes.len() || before.is_some_and(|before| before >= size) {
            return;
        }
        self.parts[part].chosen = Some(size);
        if self.taken() > self.height {
            self.parts[part].chosen = before;
        }
    }

    /// The same up to this size, as far as there is room.
    pub(super) fn wish_up_to(&mut self, what: What, size: usize) {
        for size in 0..=size.min(self.parts[what as usize].sizes.len()) {
            self.wish(what, size);
        }
    }

    /// Blank lines between parts, if there is room for all; those that come later have theirs, too.
    pub(super) fn wish_blanks(&mut self) {
        self.blanks = true;
        self.blanks = self.taken() <= self.height;
    }

    pub(super) fn lines(self) -> Vec<Line<'static>> {
        let mut all = Vec::new();
        for part in &self.parts {
            if self.blanks && part.apart && !part.lines().is_empty() {
                all.push(Line::default());
            }
            all.extend(part.lines().iter().cloned());
        }
        all
    }

    fn taken(&self) -> usize {
        let lines = |part: &Part| {
            let lines = part.lines().len();
            lines + usize::from(self.blanks && part.apart && lines > 0)
        };
        self.parts.iter().map(lines).sum()
    }
}
