//! Which parts of the view there is room for.

use super::order::What;
use ratatui::text::Line;
use std::fmt;

/// Lines that are made when they are shown: there are many sizes, and one is.
pub(super) struct Size<'a> {
    height: usize,
    make: Box<dyn Fn() -> Vec<Line<'static>> + 'a>,
}

/// One part, in several sizes, each richer than the one before.
#[derive(Debug, Default)]
pub(super) struct Part<'a> {
    sizes: Vec<Size<'a>>,
    /// The one that is shown, if any.
    chosen: Option<usize>,
    /// Whether a blank line may stand before it.
    apart: bool,
}

/// All parts in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    parts: Vec<Part<'a>>,
    height: usize,
    /// Lines that the chosen sizes take.
    taken: usize,
    blanks: bool,
}

// === impl Size ===

impl<'a> Size<'a> {
    /// Of so many lines, which are these.
    pub(super) fn new(height: usize, make: impl Fn() -> Vec<Line<'static>> + 'a) -> Size<'a> {
        Size {
            height,
            make: Box::new(make),
        }
    }
}

impl From<Vec<Line<'static>>> for Size<'_> {
    fn from(lines: Vec<Line<'static>>) -> Self {
        Size::new(lines.len(), move || lines.clone())
    }
}

impl fmt::Debug for Size<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines", self.height)
    }
}

// === impl Part ===

impl<'a> Part<'a> {
    /// That follows the one before it at once.
    pub(super) fn joined(sizes: impl IntoIterator<Item = impl Into<Size<'a>>>) -> Part<'a> {
        Part {
            sizes: sizes.into_iter().map(Into::into).collect(),
            ..Part::default()
        }
    }

    /// That a blank line may stand before.
    pub(super) fn apart(sizes: impl IntoIterator<Item = impl Into<Size<'a>>>) -> Part<'a> {
        Part {
            apart: true,
            ..Part::joined(sizes)
        }
    }

    fn size(&self) -> Option<&Size<'a>> {
        self.chosen.and_then(|at| self.sizes.get(at))
    }

    fn height(&self) -> usize {
        self.size().map_or(0, |size| size.height)
    }
}

// === impl Plan ===

impl<'a> Plan<'a> {
    pub(super) fn new(parts: Vec<Part<'a>>, height: usize) -> Plan<'a> {
        Plan {
            parts,
            height,
            taken: 0,
            blanks: false,
        }
    }

    /// Shows a part in this size, if there is room and it is not shown in a richer one.
    pub(super) fn wish(&mut self, what: What, size: usize) {
        let part = &mut self.parts[what as usize];
        let Some(wished) = part.sizes.get(size) else {
            return;
        };
        let richer = part.chosen.is_none_or(|before| before < size);
        let blank = |height: usize| usize::from(self.blanks && part.apart && height > 0);
        let (before, after) = (part.height(), wished.height);
        let others = self.taken - before - blank(before);
        let taken = others + after + blank(after);
        if richer && taken <= self.height {
            part.chosen = Some(size);
            self.taken = taken;
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
        let blank = |part: &&Part<'_>| part.apart && part.height() > 0;
        let taken = self.taken + self.parts.iter().filter(blank).count();
        if !self.blanks && taken <= self.height {
            self.blanks = true;
            self.taken = taken;
        }
    }

    pub(super) fn lines(self) -> Vec<Line<'static>> {
        let mut all = Vec::new();
        for part in &self.parts {
            let Some(size) = part.size().filter(|size| size.height > 0) else {
                continue;
            };
            if self.blanks && part.apart {
                all.push(Line::default());
            }
            all.extend((size.make)());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Hundreds of roles have hundreds of sizes: those that are not shown cost nothing.
    #[test]
    fn of_many_sizes_one_is_made() {
        let made = Cell::new(0);
        let lines = |n: usize| {
            made.set(made.get() + 1);
            vec![Line::default(); n]
        };
        let size = |n: usize| Size::new(n, move || lines(n));
        let header = Part::joined([size(1)]);
        let many = Part::joined((1..1000).map(size));
        let mut plan = Plan::new(vec![header, many], 24);
        plan.wish_up_to(What::Verdict, usize::MAX - 1);
        plan.wish(What::Header, 0);
        assert_eq!(plan.lines().len(), 24);
        assert_eq!(made.get(), 1);
    }

    #[test]
    fn blank_lines_are_counted() {
        let two = || vec![Line::default(); 2];
        for (height, shown) in [(4, 4), (5, 4), (6, 6), (7, 6)] {
            let parts = vec![Part::apart([two()]), Part::apart([two()])];
            let mut plan = Plan::new(parts, height);
            plan.wish(What::Header, 0);
            plan.wish(What::Verdict, 0);
            plan.wish_blanks();
            assert_eq!(plan.lines().len(), shown, "{height}");
        }
        let mut plan = Plan::new(vec![Part::apart([two()]), Part::apart([two()])], 5);
        plan.wish(What::Header, 0);
        plan.wish_blanks();
        // With its blank line it has no room.
        plan.wish(What::Verdict, 0);
        assert_eq!(plan.lines().len(), 3);
    }
}
