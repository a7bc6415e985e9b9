//! What an archive holds, and whether its names fit together.

use super::{refused, refused_member};
use crate::finding::BundleError;
use crate::path::component_order;
use cacheon_identity::Digest;

/// A regular file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its path, the wrapper stripped.
    pub path: String,
    /// Its bytes.
    pub size: u64,
}

/// An archive that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// The single top-level directory that was stripped, if any.
    pub wrapper: Option<String>,
    /// Every file, in component order.
    pub files: Vec<Member>,
    /// The content hash, where the members came in component order (as [`super::package`] writes them).
    pub content_hash: Option<Digest>,
}

impl Inventory {
    /// A member's path without the wrapper.
    #[must_use]
    pub fn strip<'a>(&self, path: &'a str) -> &'a str {
        match &self.wrapper {
            Some(wrapper) => path.strip_prefix(wrapper.as_str()).and_then(|rest| rest.strip_prefix('/')),
            None => None,
        }
        .unwrap_or(path)
    }
}

/// A member as it came.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: String,
    /// Its bytes; `None` for a directory.
    pub(super) size: Option<u64>,
}

fn below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}

/// Checks that names fit together and strips the wrapper. Component order puts a path right before all below it.
pub(super) fn settle(mut entries: Vec<Entry>) -> Result<Inventory, BundleError> {
    entries.sort_by(|left, right| component_order(&left.path, &right.path));
    for (at, entry) in entries.iter().enumerate() {
        let next = entries.get(at + 1).map_or("", |next| next.path.as_str());
        if next == entry.path {
            return Err(refused_member(&entry.path, "two members have this path"));
        }
        match (entry.size, below(next, &entry.path)) {
            (Some(_), true) => {
                return Err(refused_member(&entry.path, "the path is both a file and a directory"));
            }
            (None, false) => return Err(refused_member(&entry.path, "the directory is empty")),
            _ => {}
        }
    }
    let top = |entry: &Entry| entry.path.split('/').next().unwrap_or_default().to_owned();
    let Some(first) = entries.first() else { return Err(refused("the archive holds no file")) };
    let wrapper = Some(top(first)).filter(|wrapper| {
        entries
            .iter()
            .all(|entry| below(&entry.path, wrapper) || (entry.size.is_none() && entry.path == *wrapper))
    });
    let mut inventory = Inventory { wrapper, files: Vec::new(), content_hash: None };
    for entry in entries {
        if let Some(size) = entry.size {
            let path = inventory.strip(&entry.path).to_owned();
            inventory.files.push(Member { path, size });
        }
    }
    Ok(inventory)
}
