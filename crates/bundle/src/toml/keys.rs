//! Which namespaces a document may still write to.

use super::{Item, Table, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Marks on a key path.
#[derive(Debug, Default)]
struct Marks {
    explicit: bool,
    frozen: bool,
    nested: BTreeMap<String, Marks>,
}

/// The marks of a whole document: tables that may not be opened again, inline values that may not grow.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    root: Marks,
    pending: BTreeSet<Vec<String>>,
}

impl Namespaces {
    fn find(&self, key: &[String]) -> Option<(&Marks, bool)> {
        let mut marks = &self.root;
        let mut frozen = false;
        for part in key {
            frozen |= marks.frozen;
            match marks.nested.get(part) {
                Some(inner) => marks = inner,
                None if frozen => return Some((marks, true)),
                None => return None,
            }
        }
        Some((marks, frozen || marks.frozen))
    }

    fn at(&mut self, key: &[String]) -> &mut Marks {
        key.iter().fold(&mut self.root, |marks, part| marks.nested.entry(part.clone()).or_default())
    }

    pub(super) fn frozen(&self, key: &[String]) -> bool {
        !key.is_empty() && self.find(key).is_some_and(|(_, frozen)| frozen)
    }

    pub(super) fn explicit(&self, key: &[String]) -> bool {
        let mut marks = &self.root;
        for part in key {
            match marks.nested.get(part) {
                Some(inner) => marks = inner,
                None => return false,
            }
        }
        marks.explicit
    }

    pub(super) fn freeze(&mut self, key: &[String]) {
        self.at(key).frozen = true;
    }

    pub(super) fn open(&mut self, key: &[String]) {
        self.at(key).explicit = true;
    }

    pub(super) fn open_later(&mut self, key: &[String]) {
        if !self.pending.contains(key) {
            self.pending.insert(key.to_vec());
        }
    }

    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.pending) {
            self.open(&key);
        }
    }

    /// Forgets everything below `key`: it now names a fresh array element.
    pub(super) fn forget(&mut self, key: &[String]) {
        let Some((last, parents)) = key.split_last() else { return };
        let mut marks = &mut self.root;
        for part in parents {
            match marks.nested.get_mut(part) {
                Some(inner) => marks = inner,
                None => return,
            }
        }
        marks.nested.remove(last);
    }
}

/// The table behind `key`, made where absent; `None` when something else is in the way.
pub(super) fn nest<'a>(
    root: &'a mut Table,
    key: &[String],
    at: usize,
    through_lists: bool,
) -> Option<&'a mut Table> {
    let mut table = root;
    for part in key {
        let item =
            table.entry(part.clone()).or_insert_with(|| Item { value: Value::Table(Table::new()), at });
        table = match &mut item.value {
            Value::Table(inner) => inner,
            Value::Array(items) if through_lists => match items.last_mut().map(|item| &mut item.value) {
                Some(Value::Table(inner)) => inner,
                _ => return None,
            },
            _ => return None,
        };
    }
    Some(table)
}
