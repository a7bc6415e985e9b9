//! Which bundle files an import statement names.

use crate::path::parent;
use crate::tree::Tree;
use std::collections::BTreeSet;

/// The bundle as Python's import system would see it, with its root on the path.
#[derive(Debug)]
pub struct Modules<'a> {
    tree: &'a Tree,
    stems: &'a BTreeSet<String>,
}

/// An import statement.
#[derive(Debug)]
pub(crate) enum Import<'n> {
    /// `import a.b`
    Module(&'n str),
    /// `from ..base import names`
    From {
        /// The dotted base, empty when only dots name it.
        base: &'n str,
        /// The imported names, `*` included.
        names: Vec<&'n str>,
        /// The dots.
        level: usize,
    },
}

/// The bundle files an import reaches; empty when it is wholly external.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) files: Vec<String>,
}

fn joined(base: &str, parts: &[&str]) -> String {
    let mut path = base.to_owned();
    for part in parts {
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(part);
    }
    path
}

impl<'a> Modules<'a> {
    /// The modules of a tree; `stems` are the names of its native ones.
    #[must_use]
    pub fn new(tree: &'a Tree, stems: &'a BTreeSet<String>) -> Self {
        Self { tree, stems }
    }

    /// The file of a dotted path below `base` (a directory): a package before a plain module.
    #[must_use]
    pub fn file(&self, base: &str, parts: &[&str]) -> Option<String> {
        if parts.is_empty() && base.is_empty() {
            // The bundle's root is no package.
            return None;
        }
        let path = joined(base, parts);
        let candidates = [format!("{path}/__init__.py"), format!("{path}.py")];
        // Dots alone name a directory, never a module beside it.
        let count = if parts.is_empty() { 1 } else { 2 };
        candidates.into_iter().take(count).find(|path| self.tree.file(path).is_some())
    }

    fn is_directory(&self, base: &str, parts: &[&str]) -> bool {
        self.tree.is_directory(&joined(base, parts))
    }

    /// Whether a dotted path is a module or a directory of the bundle.
    #[must_use]
    pub fn is_local(&self, parts: &[&str]) -> bool {
        self.file("", parts).is_some() || self.is_directory("", parts)
    }

    fn local_prefix(&self, parts: &[&str]) -> bool {
        (1..parts.len()).any(|length| self.is_local(&parts[..length]))
    }

    /// What an import in the file at `path` reaches, or why it is refused.
    pub(crate) fn resolve(&self, path: &str, import: &Import<'_>) -> Result<Target, String> {
        match import {
            Import::Module(name) => self.module(name),
            Import::From { base, names, level } => self.from(path, base, names, *level),
        }
    }

    fn module(&self, name: &str) -> Result<Target, String> {
        let parts: Vec<&str> = name.split('.').collect();
        if parts.len() > 1 && self.stems.contains(parts[0]) {
            return Err(format!("`{name}` looks inside the native module `{}`", parts[0]));
        }
        if let Some(file) = self.file("", &parts) {
            if self.stems.contains(name) {
                return Err(format!("`{name}` is a Python file and a CUDA source at once"));
            }
            return Ok(Target { files: vec![file] });
        }
        if self.local_prefix(&parts) {
            return Err(format!("`{name}` starts in the bundle but is not in it"));
        }
        if self.is_directory("", &parts) {
            return Err(format!("`{name}` is a directory of the bundle without __init__.py"));
        }
        Ok(Target::default())
    }

    fn from(&self, path: &str, base: &str, names: &[&str], level: usize) -> Result<Target, String> {
        let absolute = level == 0;
        let parts: Vec<&str> = if base.is_empty() { Vec::new() } else { base.split('.').collect() };
        if absolute && parts.len() > 1 && self.stems.contains(parts[0]) {
            return Err(format!("`{base}` looks inside the native module `{}`", parts[0]));
        }
        let mut root = if absolute { "" } else { parent(path) };
        for _ in 1..level {
            if root.is_empty() {
                return Err("the relative import leaves the bundle".to_owned());
            }
            root = parent(root);
        }
        let mut files = Vec::new();
        let module = self.file(root, &parts);
        let is_module = module.is_some();
        if let Some(file) = module {
            if absolute && parts.len() == 1 && self.stems.contains(base) {
                return Err(format!("`{base}` is a Python file and a CUDA source at once"));
            }
            files.push(file);
        }
        let mut found = 0;
        for name in names.iter().filter(|name| **name != "*") {
            let mut whole = parts.clone();
            whole.push(name);
            if let Some(file) = self.file(root, &whole) {
                found += 1;
                files.push(file);
            }
        }
        if is_module {
            return Ok(Target { files });
        }
        let shown = format!("{}{base}", ".".repeat(level));
        if found > 0 && found < names.len() {
            return Err(format!("some names of `{shown}` are in the bundle and some are not"));
        }
        let directory = self.is_directory(root, &parts);
        if absolute && !directory && self.local_prefix(&parts) {
            return Err(format!("`{shown}` starts in the bundle but is not in it"));
        }
        if found == 0 && (!absolute || directory) {
            return Err(format!("`{shown}` holds none of these names"));
        }
        Ok(Target { files })
    }
}
