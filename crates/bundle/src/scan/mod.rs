//! The static scan (`spec/10-contribution.md` §9): a filter that authors can run, and the referee's first stage.
//!
//! It cannot tell every harmful source from a harmless one and does not have to: kernels run in isolation, whatever the
//! scan says.

mod policy;
mod triton;

pub use policy::policy;
pub use triton::host_helpers;

use crate::finding::{Finding, Place, Ruled, refuse};
use crate::path::{name, suffix};
use crate::python::{Dialect, Module, ParseOptions, Source, parse};
use crate::rule::Rule;
use crate::tree::{Node, Tree};
use std::collections::BTreeSet;

/// Which files of a tree are declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// `cuda_sources` of all rows.
    pub cuda: BTreeSet<String>,
    /// Paths of `[[dep_patches]]`.
    pub patches: BTreeSet<String>,
    /// `c_sources` of all rows.
    pub c: BTreeSet<String>,
    /// Whether the bundle speaks the C ABI: then C files take the place of Python, CUDA and patches.
    pub c_abi: bool,
}

/// Parses a source for the scan.
///
/// # Errors
/// The `syntax` or `budget` finding.
pub fn parsed(path: &str, source: &Source, dialect: Dialect) -> Ruled<Module> {
    parse(source, ParseOptions { dialect, type_comments: false }).map_err(|error| {
        let rule = if error.budget { Rule::Budget } else { Rule::Syntax };
        Box::new(Finding::new(rule, Place::at(path, source.position(error.at)), error.problem))
    })
}

/// A Python file's text, or the `unreadable` finding.
///
/// # Errors
/// Bytes that are not UTF-8.
pub fn readable<'b>(path: &str, bytes: &'b [u8]) -> Ruled<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => {
            let problem = "the source is not UTF-8; a coding cookie does not help";
            refuse(Rule::Unreadable, Place::file(path), problem)
        }
    }
}

/// Everything the tree policy says. Without `declared` only binaries, links and Python sources are looked at.
#[must_use]
pub fn tree(tree: &Tree, declared: Option<&Declared>, dialect: Dialect) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, node) in tree.nodes() {
        // Nothing beneath a bytecode cache is looked at: identity does not hold it, and no build reads it.
        if path.split('/').any(|part| part == "__pycache__") {
            continue;
        }
        match node {
            Node::Link(_) => {
                findings.push(Finding::new(Rule::Symlink, Place::file(path), "the node is a link"))
            }
            Node::File(bytes) => file(path, bytes, declared, dialect, &mut findings),
            Node::Directory | Node::Special => {}
        }
    }
    findings
}

fn file(path: &str, bytes: &[u8], declared: Option<&Declared>, dialect: Dialect, into: &mut Vec<Finding>) {
    let suffix = suffix(path);
    let say = |rule, problem: String| Finding::new(rule, Place::file(path), problem);
    if matches!(suffix, ".so" | ".o" | ".a" | ".dylib" | ".bin" | ".pyc") {
        into.push(say(Rule::Binary, format!("{suffix} files are compiled, or look as if they were")));
        return;
    }
    let c_abi = declared.is_some_and(|declared| declared.c_abi);
    if suffix == ".py" && !c_abi {
        into.extend(python(path, bytes, dialect));
        return;
    }
    let Some(declared) = declared else { return };
    let listed = |list: &BTreeSet<String>, rule| match list.contains(path) {
        true => None,
        false => Some(say(rule, "no row of the manifest lists the file".to_owned())),
    };
    into.extend(match suffix {
        ".cu" | ".cuh" if !c_abi => listed(&declared.cuda, Rule::UndeclaredCuda),
        ".patch" | ".diff" if !c_abi => listed(&declared.patches, Rule::UndeclaredPatch),
        ".c" | ".h" if c_abi => listed(&declared.c, Rule::UndeclaredC),
        _ if sanctioned(path) => None,
        _ => Some(say(Rule::UnsanctionedFile, "a bundle has no place for a file of this kind".to_owned())),
    });
}

/// Files that need no declaration.
fn sanctioned(path: &str) -> bool {
    let own = name(path);
    let in_metadata = path.split('/').rev().skip(1).any(|part| part == "metadata");
    matches!(own, "manifest.toml" | "rebuild.json" | ".gitignore")
        || own.starts_with("README")
        || own.starts_with("LICENSE")
        || (suffix(path) == ".json" && in_metadata)
}

/// Policy and advice on one Python file.
fn python(path: &str, bytes: &[u8], dialect: Dialect) -> Vec<Finding> {
    let text = match readable(path, bytes) {
        Ok(text) => text,
        Err(finding) => return vec![*finding],
    };
    let source = Source::new(text);
    match parsed(path, &source, dialect) {
        Ok(module) => {
            let mut findings = policy(path, &source, &module);
            findings.extend(host_helpers(path, &source, &module));
            findings
        }
        Err(finding) => vec![*finding],
    }
}
