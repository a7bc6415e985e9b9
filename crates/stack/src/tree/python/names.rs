//! Where a bundle's Python names lead: modules, namespace directories, native stems.

use cacheon_bundle::closure::Modules;
use cacheon_bundle::path::{name, parent, stem};
use cacheon_bundle::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The names of one contribution, and what they are called inside the tree.
pub(super) struct Names<'a> {
    tree: &'a Tree,
    namespace: &'a str,
    /// Stems of `.cu` files: the name Python imports, and the emitted file's stem.
    native: &'a BTreeMap<String, String>,
    stems: BTreeSet<String>,
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
    pub(super) fn new(tree: &'a Tree, namespace: &'a str, native: &'a BTreeMap<String, String>) -> Self {
        Self { tree, namespace, native, stems: native.keys().cloned().collect() }
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

    /// What components below a directory lead to; the rule of inspection decides. Only absolute names of one component
    /// can be native.
    pub(super) fn find(&self, base: &str, parts: &[&str], absolute: bool) -> Found {
        if let Some(file) = Modules::new(self.tree, &self.stems).file(base, parts) {
            return Found::Module(self.of_file(&file));
        }
        if let ([only], true) = (parts, absolute)
            && let Some(native) = self.native.get(*only)
        {
            return Found::Native(native.clone());
        }
        let path: Vec<&str> =
            [base].into_iter().chain(parts.iter().copied()).filter(|it| !it.is_empty()).collect();
        if self.tree.is_directory(&path.join("/")) { Found::Directory } else { Found::Outside }
    }
}
