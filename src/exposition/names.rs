//! The names on a page, each once.

use super::MetricType;
use super::series::hash;
use hashbrown::HashTable;

/// A name on the page: of samples, of HELP and TYPE lines, or both.
#[derive(Clone, Debug)]
pub(super) struct Name<'t> {
    pub(super) text: &'t str,
    pub(super) kind: Option<MetricType>,
    pub(super) help: Option<&'t str>,
    pub(super) unit: Option<&'t str>,
    /// Samples of exactly this name.
    pub(super) rows: u32,
    /// Index of the family that its samples are in; [`NONE`] until the page is read.
    pub(super) family: u32,
    /// Index of the family called so; [`NONE`] if there is none.
    pub(super) own: u32,
}

/// No family.
pub(super) const NONE: u32 = u32::MAX;

/// The names of a page, each once, in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct Names<'t> {
    pub(super) list: Vec<Name<'t>>,
    table: HashTable<u32>,
}

// === impl Names ===

impl<'t> Names<'t> {
    #[inline]
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        let same = |id: &u32| self.list[*id as usize].text == name;
        self.table.find(hash(name.as_bytes()), same).copied()
    }

    /// The index of a name, which is added if it is new.
    pub(super) fn intern(&mut self, name: &'t str) -> u32 {
        if let Some(id) = self.find(name) {
            return id;
        }
        // Names are never more than samples and comments, which are limited to what u32 can count.
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(Name {
            text: name,
            kind: None,
            help: None,
            unit: None,
            rows: 0,
            family: NONE,
            own: NONE,
        });
        let list = &self.list;
        self.table.insert_unique(hash(name.as_bytes()), id, |id| {
            hash(list[*id as usize].text.as_bytes())
        });
        id
    }
}

impl Name<'_> {
    pub(super) fn is_declared(&self) -> bool {
        self.kind.is_some() || self.help.is_some() || self.unit.is_some()
    }
}
