//! A bundle: its tree, its manifest, and what the static scan says.

use crate::c;
use crate::finding::{BundleError, Finding, Place, Ruled};
use crate::manifest::{Abi, Manifest};
use crate::path::name;
use crate::report::Report;
use crate::rule::Rule;
use crate::tree::{Limits, Node, Tree};
use cacheon_identity::Digest;
use std::collections::BTreeSet;
use std::path::Path;

/// A bundle read into memory, with a manifest that follows the reader's rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    tree: Tree,
    manifest: Manifest,
    content_hash: Digest,
}

impl Bundle {
    /// Reads a directory (twice, refusing a change between) and its manifest.
    ///
    /// # Errors
    /// Limits, names, a broken manifest: refused. A read that fails: infrastructure.
    pub fn read(directory: &Path) -> Result<Self, BundleError> {
        Ok(Self::from_tree(Tree::read(directory, &Limits::default())?)?)
    }

    /// A bundle from a tree in memory.
    ///
    /// # Errors
    /// A broken manifest, or no file that counts towards identity.
    pub fn from_tree(tree: Tree) -> Ruled<Self> {
        let manifest = Manifest::read(&tree)?;
        let Some(content_hash) = tree.content_hash() else {
            return crate::finding::refuse(
                Rule::Empty,
                Place::bundle(),
                "no file counts towards the content hash",
            );
        };
        Ok(Self { tree, manifest, content_hash })
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The content hash.
    #[must_use]
    pub fn content_hash(&self) -> Digest {
        self.content_hash
    }

    /// The static scan: every finding, advice included. The scan is a filter for authors and the referee's first
    /// stage; isolation does not rest on it.
    #[must_use]
    pub fn scan(&self) -> Report {
        let mut findings = self.c_findings();
        findings.extend(self.tree_findings());
        Report::new(findings)
    }

    /// The bundle's declared C files.
    #[must_use]
    pub fn c_files(&self) -> BTreeSet<String> {
        self.manifest.ops.iter().flat_map(|op| &op.c_sources).cloned().collect()
    }

    pub(crate) fn c_findings(&self) -> Vec<Finding> {
        let declared = self.c_files();
        let mut findings = Vec::new();
        for path in &declared {
            if let Some(bytes) = self.tree.file(path) {
                findings.extend(c::scan(path, bytes, &declared, |other| self.tree.node(other).is_some()));
            }
        }
        if findings.iter().any(|finding| !finding.rule.advisory()) {
            return findings;
        }
        for (index, op) in self.manifest.ops.iter().enumerate().filter(|(_, op)| !op.c_sources.is_empty()) {
            let symbol = format!("{}_run", op.entry);
            let named = op
                .c_sources
                .iter()
                .any(|path| self.tree.file(path).is_some_and(|bytes| crate::c::names(bytes, &symbol)));
            if !named {
                let problem = format!("no source of the row names `{symbol}`; a macro may still define it");
                findings.push(Finding::new(Rule::CSymbol, op.place(index, "entry"), problem).about(symbol));
            }
        }
        findings
    }

    /// Files that a C bundle may not hold.
    fn tree_findings(&self) -> Vec<Finding> {
        let declared = self.c_files();
        let c = self.manifest.abi == Abi::C;
        let mut findings = Vec::new();
        for (path, node) in self.tree.nodes() {
            if path.split('/').any(|part| part == "__pycache__") {
                continue;
            }
            let place = || Place::file(path);
            match node {
                Node::Link(_) => {
                    findings.push(Finding::new(Rule::Symlink, place(), "the bundle holds a link"))
                }
                Node::File(_) if c => {
                    let suffix = crate::path::suffix(path);
                    if matches!(suffix, ".so" | ".o" | ".a" | ".dylib" | ".bin" | ".pyc") {
                        let problem = format!("{suffix} files are compiled");
                        findings.push(Finding::new(Rule::Binary, place(), problem));
                    } else if matches!(suffix, ".c" | ".h") {
                        if !declared.contains(path) {
                            findings.push(Finding::new(Rule::UndeclaredC, place(), "no row lists the file"));
                        }
                    } else if !sanctioned(path) {
                        let problem = "a bundle holds sources, manifest.toml, metadata/*.json, README and LICENSE files";
                        findings.push(Finding::new(Rule::UnsanctionedFile, place(), problem));
                    }
                }
                _ => {}
            }
        }
        findings
    }
}

/// Files that need no declaration (`spec/10-contribution.md` §9.2).
pub(crate) fn sanctioned(path: &str) -> bool {
    let own = name(path);
    let in_metadata = path.split('/').rev().skip(1).any(|part| part == "metadata");
    matches!(own, "manifest.toml" | "rebuild.json" | ".gitignore")
        || own.starts_with("README")
        || own.starts_with("LICENSE")
        || (crate::path::suffix(path) == ".json" && in_metadata)
}
