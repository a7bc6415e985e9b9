//! Where a bundle's Python names lead: modules, namespace directories, native stems.

use cacheon_bundle::path::{name, parent, stem};
use cacheon_bundle::tree::Tree;
use std::collections::BTreeMap;

/// The names of one contribution, and what they are called inside the tree.
pub(super) struct Names<'a> {
    tree: &'a Tree,
    namespace: &'a str,
    native: BTreeMap<String, String>,
}

/// What a dotted name of the bundle is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A Python module; its name inside the tree.
    Module(String),
    /// A directory without `__init__.py`, or the bundle's root.
    Directory,
    /// A CUDA source by its stem; its module name inside the tree.
    Native(String),
    /// Not of the bundle.
    Outside,
}

impl<'a> Names<'a> {
    /// `native` maps the stem of each `.cu` file to the stem of the emitted file.
    pub(super) fn new(tree: &'a Tree, namespace: &'a str, native: BTreeMap<String, String>) -> Self {
        Self { tree, namespace, native }
    }

    /// The dotted name inside the tree of a path of components.
    pub(super) fn dotted(&self, parts: &[&str]) -> String {
        std::iter::once(self.namespace).chain(parts.iter().copied()).collect::<Vec<_>>().join(".")
    }

    /// The dotted name inside the tree of a source file.
    pub(super) fn of_file(&self, path: &str) -> String {
        let mut parts: Vec<&str> = parent(path).split('/').filter(|part| !part.is_empty()).collect();
        if name(path) != "__init__.py" {
            parts.push(stem(path));
        }
        self.dotted(&parts)
    }

    /// A module at a path of components; `a/b/__init__.py` comes before `a/b.py`. The root is no module.
    fn module(&self, parts: &[&str]) -> bool {
        let base = parts.join("/");
        !parts.is_empty()
            && (self.tree.file(&format!("{base}/__init__.py")).is_some()
                || self.tree.file(&format!("{base}.py")).is_some())
    }

    /// What components from the root lead to. Only absolute names of one component can be native.
    pub(super) fn find(&self, parts: &[&str], absolute: bool) -> Found {
        if self.module(parts) {
            return Found::Module(self.dotted(parts));
        }
        if let ([only], true) = (parts, absolute)
            && let Some(native) = self.native.get(*only)
        {
            return Found::Native(native.clone());
        }
        if self.tree.is_directory(&parts.join("/")) { Found::Directory } else { Found::Outside }
    }
}
