//! A bundle: its tree, its manifest, and what the static scan says.

use crate::c;
use crate::finding::{BundleError, Finding, Place, Ruled};
use crate::inspect::VariantDomain;
use crate::manifest::{Abi, Manifest};
use crate::python::Dialect;
use crate::report::Report;
use crate::rule::Rule;
use crate::scan::{self, Declared};
use crate::tree::{Limits, Tree};
use cacheon_identity::Digest;
use std::collections::BTreeSet;
use std::path::Path;

/// A bundle read into memory, with a manifest that follows the reader's rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    tree: Tree,
    manifest: Manifest,
    content_hash: Digest,
    dialect: Dialect,
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
        Ok(Self { tree, manifest, content_hash, dialect: Dialect::default() })
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

    /// The same bundle, its Python read in another dialect.
    #[must_use]
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// The dialect in which Python is read.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Every row's domain, in manifest order.
    ///
    /// # Errors
    /// As [`crate::inspect::variants`].
    pub fn variants(&self) -> Ruled<Vec<VariantDomain>> {
        crate::inspect::variants(&self.tree, &self.manifest)
    }

    /// The static scan: every finding, advice included. The scan is a filter for authors and the referee's first
    /// stage; isolation does not rest on it.
    #[must_use]
    pub fn scan(&self) -> Report {
        let mut findings = self.c_findings();
        findings.extend(scan::tree(&self.tree, Some(&self.declared()), self.dialect));
        Report::new(findings)
    }

    /// What the manifest declares.
    #[must_use]
    pub fn declared(&self) -> Declared {
        Declared {
            cuda: self.manifest.ops.iter().flat_map(|op| &op.cuda_sources).cloned().collect(),
            patches: self.manifest.dep_patches.iter().map(|patch| patch.path.clone()).collect(),
            c: self.c_files(),
            c_abi: self.manifest.abi == Abi::C,
        }
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
}
